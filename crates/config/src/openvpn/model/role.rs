//! Settings that only clients or only servers have.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use super::{FilterAction, Ifconfig, IfconfigV6, Prompted, Secret, Source};

/// Client or server, with its settings.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Role {
    /// `client`, or `tls-client`.
    Client(Client),
    /// `server`, or `mode server` with `tls-server`.
    Server(Server),
}

/// `auth-retry`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AuthRetry {
    /// Exit when the server refuses the password.
    #[default]
    None,
    /// Try again with the same password.
    NoInteract,
    /// Ask for another password.
    Interact,
}

/// `static-challenge TEXT ECHO [scrv1|concat]`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StaticChallenge {
    /// The question for the user.
    pub text: String,
    /// The answer is shown while it is typed.
    pub echo: bool,
    /// The answer is appended to the password instead of the SCRV1 form.
    pub concat: bool,
}

/// `resolv-retry`: how long to retry if the server's name does not resolve.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ResolvRetry {
    /// `infinite`, the default.
    #[default]
    Infinite,
    /// Seconds to continue trying.
    Seconds(u32),
}

/// A client.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Client {
    /// `pull-filter`, in their order: each with the beginning of the options that it applies to.
    pub pull_filters: Vec<(FilterAction, String)>,
    /// `remote-random`.
    pub remote_random: bool,
    /// `remote-random-hostname`: put a random label in front of the server's name.
    pub remote_random_hostname: bool,
    /// `resolv-retry`.
    pub resolv_retry: ResolvRetry,
    /// `connect-retry-max`: rounds over all servers; `None` for no limit.
    pub connect_retry_max: Option<u32>,
    /// `auth-user-pass`.
    pub auth_user_pass: Option<Prompted>,
    /// `auth-retry`.
    pub auth_retry: AuthRetry,
    /// `static-challenge`.
    pub static_challenge: Option<StaticChallenge>,
    /// `auth-token`, `auth-token-user` in the file: used instead of the password at first.
    pub auth_token: Option<(Option<String>, Secret)>,
    /// `push-peer-info`: send the server data about this machine, and the `UV_*` of `setenv`.
    pub push_peer_info: bool,
    /// `setenv CLIENT_CERT 0`: the client has no certificate, on purpose.
    pub no_client_cert: bool,
}

/// `ifconfig-pool START END [NETMASK]`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pool {
    /// First address.
    pub start: Ipv4Addr,
    /// Last address, included.
    pub end: Ipv4Addr,
    /// The netmask that clients get with `topology subnet`.
    pub netmask: Option<Ipv4Addr>,
}

/// `ifconfig-ipv6-pool BASE/BITS`: addresses from `base` on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PoolV6 {
    /// First address.
    pub base: Ipv6Addr,
    /// Length of the prefix that clients get, in bits.
    pub bits: u8,
}

/// `ifconfig-pool-persist FILE [SECONDS]`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PoolPersist {
    /// Path of the file.
    pub path: PathBuf,
    /// Seconds between writes, by default 600; 0 for "read only".
    pub seconds: u32,
}

/// `auth-gen-token [LIFETIME] [RENEWAL] [external-auth]`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AuthToken {
    /// Seconds from the first authentication; 0 for no limit.
    pub lifetime: u32,
    /// Seconds after which the server sends a new token; 0 for the renegotiation interval.
    pub renewal: u32,
    /// `external-auth`: the verify script judges tokens too.
    pub external_auth: bool,
    /// `auth-gen-token-secret`; `None` for a secret that lives as long as the process.
    pub secret: Option<Source>,
}

/// A limit: `count` events in `seconds`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Rate {
    /// Number of events.
    pub count: u32,
    /// Length of the period, in seconds.
    pub seconds: u32,
}

/// A server.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Server {
    /// `ifconfig-pool`, or the pool that `server` derives from its network.
    pub pool: Option<Pool>,
    /// `ifconfig-ipv6-pool`, or the pool that `server-ipv6` derives from its network.
    pub pool_v6: Option<PoolV6>,
    /// `ifconfig-pool-persist`.
    pub pool_persist: Option<PoolPersist>,
    /// `ifconfig-push-constraint`, or the network of `server` with `topology subnet`: network and netmask that
    /// clients' addresses must lie in.
    pub ifconfig_push_constraint: Option<(Ipv4Addr, Ipv4Addr)>,
    /// `push`, and the options that `server` and `keepalive` add, in the order in which stock sends them.
    pub push: Vec<String>,
    /// `client-config-dir`.
    pub client_config_dir: Option<PathBuf>,
    /// `ccd-exclusive`: clients without a file in that directory are refused.
    pub ccd_exclusive: bool,
    /// `client-to-client`.
    pub client_to_client: bool,
    /// `duplicate-cn`.
    pub duplicate_cn: bool,
    /// `max-clients`, by default 1024.
    pub max_clients: u32,
    /// `max-routes-per-client`, by default 256.
    pub max_routes_per_client: u32,
    /// `username-as-common-name`.
    pub username_as_common_name: bool,
    /// `auth-user-pass-optional`.
    pub auth_user_pass_optional: bool,
    /// `auth-user-pass-file` (Millrace's own): `name:hash` lines as `htpasswd` writes them.
    pub password_file: Option<PathBuf>,
    /// `auth-gen-token`.
    pub auth_token: Option<AuthToken>,
    /// `connect-freq`: limit of new sessions; `None` for no limit.
    pub connect_freq: Option<Rate>,
    /// `connect-freq-initial`: limit of answers to first packets, by default 100 in 10 seconds.
    pub connect_freq_initial: Rate,
}

/// Settings of one client, from a file of `client-config-dir` or a `client-connect` script.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ClientSettings {
    /// `disable`: the client is refused.
    pub disable: bool,
    /// `push-reset`: the client does not get the server's push list.
    pub push_reset: bool,
    /// `push` and `push-remove`, in their order, after the server's list.
    pub push: Vec<PushChange>,
    /// `ifconfig-push LOCAL SECOND`.
    pub ifconfig_push: Option<Ifconfig>,
    /// `ifconfig-push LOCAL SECOND ALIAS`: the address that the server routes to instead of LOCAL.
    pub ifconfig_push_alias: Option<Ipv4Addr>,
    /// `ifconfig-ipv6-push`; without a remote, the server's own address is used.
    pub ifconfig_v6_push: Option<IfconfigV6>,
    /// `inactive SECONDS [BYTES]` for this client.
    pub inactive: Option<(u32, u64)>,
    /// `session-timeout` for this client, in seconds.
    pub session_timeout: Option<u32>,
    /// `max-routes-per-client` for this client.
    pub max_routes: Option<u32>,
    /// `iroute`: network and length of its prefix, in bits.
    pub iroutes: Vec<(Ipv4Addr, u8)>,
    /// `iroute-ipv6`.
    pub iroutes_v6: Vec<(Ipv6Addr, u8)>,
}

/// A change to the list of pushed options.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PushChange {
    /// `push TEXT`.
    Add(String),
    /// `push-remove PREFIX`: options that begin with this text are not sent.
    Remove(String),
}
