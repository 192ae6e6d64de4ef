//! The state that directives make, before it is checked as a whole.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use super::directive::Origin;
use super::{
    Action, Cipher, Client, DataChannel, Device, Family, HttpProxy, KeyDirection, Management, Mtu,
    Network, Options, PORT, Prompted, Proxy, Rate, Scripts, Server, Service, Sockets, Source,
    Timers, Tls, Usage, resolve,
};

/// The state after the directives so far.
#[derive(Default)]
pub(crate) struct Draft {
    pub options: Options,
    pub action: Option<Action>,
    /// Password files whose names show that they belong to this configuration.
    pub own_passwords: Vec<PathBuf>,
    /// The profile's own password file for its management port.
    pub own_management: Option<PathBuf>,
    /// Where relative paths start.
    pub directory: Option<PathBuf>,
    pub ignore_unknown: Vec<String>,
    pub forward_compatible: bool,

    pub client_helper: bool,
    pub tls_client: bool,
    pub tls_server: bool,
    pub pull: bool,
    pub mode_server: bool,
    pub server_helper: Option<ServerHelper>,
    pub server_v6_helper: Option<(Ipv6Addr, u8)>,
    pub keepalive: Option<(u32, u32)>,
    pub dev: Option<String>,
    /// Whether `dev-type` was given.
    pub dev_is_typed: bool,

    /// The connection outside blocks, which is the template of all.
    pub connection: ConnectionDraft,
    pub remotes: Vec<RemoteLine>,
    pub blocks: Vec<ConnectionDraft>,
    pub proto_tcp_forced: Option<bool>,
    pub http_user_pass: Option<Prompted>,
    pub http_override: Option<HttpProxy>,

    pub device: Device,
    pub sockets: Sockets,
    pub tls: Tls,
    /// `remote-cert-tls`, which other rules override whatever the order of the lines.
    pub remote_cert_tls: Option<Usage>,
    pub data: DataChannel,
    pub ciphers: CipherNames,
    pub timers: Timers,
    pub network: Network,
    pub scripts: Scripts,
    pub service: Service,
    pub client: Client,
    pub server: Server,
    pub management: Management,
    /// Whether `management` was given.
    pub has_management: bool,
    /// The first `management-*` directive, which may stand before `management`.
    pub management_companion: Option<String>,
}

/// Ciphers of a file without `data-ciphers`, and its word `DEFAULT`.
pub(crate) const DEFAULT_CIPHERS: [Cipher; 3] = [
    Cipher::Aes256Gcm,
    Cipher::Aes128Gcm,
    Cipher::ChaCha20Poly1305,
];

impl Draft {
    /// Stock's defaults.
    pub(crate) fn new(options: Options) -> Self {
        Self {
            options,
            connection: ConnectionDraft::new(),
            data: DataChannel {
                ciphers: DEFAULT_CIPHERS.to_vec(),
                allow_insecure: options.allow_insecure_ciphers,
                unpack: true,
                ..DataChannel::default()
            },
            service: Service {
                verb: 1,
                status_version: 1,
                ..Service::default()
            },
            server: Server {
                max_clients: 1024,
                max_routes_per_client: 256,
                connect_freq_initial: Rate {
                    count: 100,
                    seconds: 10,
                },
                ..Server::default()
            },
            management: Management {
                log_cache: 250,
                ..Management::default()
            },
            ..Self::default()
        }
    }

    /// Resolves a path that a directive names.
    pub(crate) fn path(&self, named: &str) -> PathBuf {
        resolve(self.directory.as_deref(), Path::new(named))
    }

    /// Whether a client asks the server for options (`pull`).
    pub(crate) const fn pulls(&self) -> bool {
        self.pull || self.client_helper
    }
}

/// `server NETWORK NETMASK [nopool]`, before it is expanded.
#[derive(Clone, Copy)]
pub(crate) struct ServerHelper {
    pub network: Ipv4Addr,
    pub netmask: Ipv4Addr,
    pub bits: u8,
    pub pool: bool,
}

/// Names of ciphers, before the permitted ones are selected.
#[derive(Default)]
pub(crate) struct CipherNames {
    pub list: Option<String>,
    pub fallback: Option<String>,
    pub cipher: Option<String>,
    /// `compat-mode` as `MAJOR * 10000 + MINOR * 100 + PATCH`.
    pub compat: Option<u32>,
    pub keysize: Option<u32>,
}

/// The transport of `proto`; plain `tcp` gets its side later.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum RawTransport {
    #[default]
    Udp,
    Tcp,
    TcpClient,
    TcpServer,
}

/// A `remote` line.
pub(crate) struct RemoteLine {
    pub host: String,
    pub port: Option<u16>,
    pub protocol: Option<(RawTransport, Family)>,
}

/// A `local` line: a further address of a server, or the one that a client sends from.
#[derive(Clone)]
pub(crate) struct LocalLine {
    /// The address; `None` for all addresses.
    pub host: Option<String>,
    pub port: Option<u16>,
    pub protocol: Option<(RawTransport, Family)>,
}

/// `http-proxy-option` lines, which may stand before `http-proxy`.
#[derive(Clone, Default, Eq, PartialEq)]
pub(crate) struct HttpOptions {
    pub version: Option<String>,
    pub user_agent: Option<String>,
    pub headers: Vec<(String, Option<String>)>,
}

/// A connection under construction.
#[derive(Clone, Default)]
pub(crate) struct ConnectionDraft {
    pub host: Option<String>,
    pub remote_port: u16,
    pub transport: RawTransport,
    pub family: Family,
    pub locals: Vec<LocalLine>,
    pub local_port: u16,
    /// Whether `lport` was given, which implies `bind`.
    pub local_port_defined: bool,
    pub bind: bool,
    pub nobind: bool,
    pub ipv6_only: bool,
    pub float: bool,
    pub retry: u32,
    pub retry_max: u32,
    pub timeout: u32,
    pub http: Option<HttpProxy>,
    pub http_options: HttpOptions,
    pub socks: Option<Proxy>,
    pub mtu: Mtu,
    /// Whether `link-mtu` was given.
    pub link_mtu: bool,
    pub exit_notify: u8,
    pub tls_auth: Option<Source>,
    pub tls_crypt: Option<Source>,
    pub tls_crypt_v2: Option<Source>,
    pub key_direction: Option<KeyDirection>,
    pub force_cookie: Option<bool>,
    /// The place of the `<connection>` block; `None` outside blocks.
    pub origin: Option<Origin>,
}

impl ConnectionDraft {
    /// A connection with stock's defaults.
    fn new() -> Self {
        Self {
            remote_port: PORT,
            local_port: PORT,
            retry: 1,
            retry_max: 300,
            timeout: 120,
            ..Self::default()
        }
    }

    /// Takes the server of a `remote` line.
    pub(crate) fn call(&mut self, line: RemoteLine) {
        self.host = Some(line.host);
        self.remote_port = line.port.unwrap_or(self.remote_port);
        (self.transport, self.family) = line.protocol.unwrap_or((self.transport, self.family));
    }
}
