//! The process: its user, its log, its management interface, its scripts, and actions instead of a tunnel.

use std::path::PathBuf;

use super::Prompted;

/// `management ADDRESS PORT [PASSWORD FILE]`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ManagementAddress {
    /// Address or name, and port.
    Tcp(String, u16),
    /// `PATH unix`.
    Unix(PathBuf),
}

impl Default for ManagementAddress {
    fn default() -> Self {
        Self::Tcp(String::new(), 0)
    }
}

/// `management` and its related directives.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Management {
    /// The address to listen on or connect to.
    pub address: ManagementAddress,
    /// The password, one line; `None` for no password.
    pub password: Option<Prompted>,
    /// `management-client`: connect to the address instead of listening.
    pub connect: bool,
    /// `management-hold`: wait for a command before starting.
    pub hold: bool,
    /// `management-signal`: raise SIGUSR1 when the other end disconnects.
    pub signal: bool,
    /// `management-forget-disconnect`: forget passwords when the other end disconnects.
    pub forget_disconnect: bool,
    /// `management-up-down`: report when the tunnel goes up and down.
    pub up_down: bool,
    /// `management-query-passwords`: ask for passwords there.
    pub query_passwords: bool,
    /// `management-log-cache`: log lines kept for the client, by default 250.
    pub log_cache: u16,
    /// `management-client-user`: accept only this user, on a Unix socket.
    pub user: Option<String>,
    /// `management-client-group`.
    pub group: Option<String>,
}

/// `log`, `log-append`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LogFile {
    /// Path of the log.
    pub path: PathBuf,
    /// Whether to append to the file.
    pub append: bool,
}

/// `status FILE [SECONDS]`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StatusFile {
    /// Path of the status file.
    pub path: PathBuf,
    /// Seconds between writes, by default 60.
    pub seconds: u32,
}

/// `remap-usr1`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RemapUsr1 {
    /// `SIGHUP`: read the whole configuration again.
    Hup,
    /// `SIGTERM`: exit.
    Term,
}

/// How the process runs.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Service {
    /// `user` to switch to after the start.
    pub user: Option<String>,
    /// `group` to switch to after the start.
    pub group: Option<String>,
    /// `daemon`: detach after the start.
    pub daemon: bool,
    /// `syslog`, or `daemon` without a log file.
    pub syslog: bool,
    /// The name in the system log, by default `openvpn`.
    pub syslog_name: Option<String>,
    /// `writepid`.
    pub pid_file: Option<PathBuf>,
    /// `log`, `log-append`.
    pub log: Option<LogFile>,
    /// `verb`, 0 to 11, by default 1.
    pub verb: u8,
    /// `mute`: at most this many similar messages in a row; 0 for no limit.
    pub mute: u32,
    /// `suppress-timestamps`.
    pub suppress_timestamps: bool,
    /// `machine-readable-output`.
    pub machine_readable: bool,
    /// `status`.
    pub status: Option<StatusFile>,
    /// `status-version`, 1 to 3.
    pub status_version: u8,
    /// `nice`.
    pub nice: Option<i32>,
    /// `mlock`: memory is not swapped out.
    pub mlock: bool,
    /// `management`.
    pub management: Option<Management>,
    /// `remap-usr1`.
    pub remap_usr1: Option<RemapUsr1>,
    /// `persist-tun`: the interface stays over a restart.
    pub persist_tun: bool,
    /// `persist-key`: keys are not read again at a restart.
    pub persist_key: bool,
    /// `persist-remote-ip`: the server's name is not resolved again at a restart.
    pub persist_remote_ip: bool,
    /// `auth-nocache`: passwords are forgotten after use.
    pub auth_nocache: bool,
    /// `echo`, `parameter`: texts for the log.
    pub echo: Vec<String>,
}

/// A program and its arguments: the words of a directive's value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Command {
    /// The program, then its arguments; never empty.
    pub words: Vec<String>,
}

/// `script-security`.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum ScriptSecurity {
    /// `0`: run no program at all.
    None,
    /// `1`, the default: only `ip` and the like.
    #[default]
    BuiltIn,
    /// `2`: scripts.
    Scripts,
    /// `3`: scripts, with passwords in their environment.
    Passwords,
}

/// How `auth-user-pass-verify` gets the password.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum PasswordMethod {
    /// `via-env`.
    Environment,
    /// `via-file`.
    #[default]
    File,
}

/// All hook scripts.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Scripts {
    /// `script-security`.
    pub security: ScriptSecurity,
    /// `up`: runs when the interface has its addresses.
    pub up: Option<Command>,
    /// `up-restart`: `up` and `down` also run at restarts.
    pub up_restart: bool,
    /// `down`: runs when the interface is gone, or before that with [`Scripts::down_pre`].
    pub down: Option<Command>,
    /// `down-pre`.
    pub down_pre: bool,
    /// `route-up`.
    pub route_up: Option<Command>,
    /// `route-pre-down`.
    pub route_pre_down: Option<Command>,
    /// `ipchange`.
    pub ipchange: Option<Command>,
    /// `tls-verify`.
    pub tls_verify: Option<Command>,
    /// `client-connect`.
    pub client_connect: Option<Command>,
    /// `client-disconnect`.
    pub client_disconnect: Option<Command>,
    /// `learn-address`.
    pub learn_address: Option<Command>,
    /// `auth-user-pass-verify`.
    pub auth_user_pass_verify: Option<Command>,
    /// How `auth-user-pass-verify` gets the password.
    pub password_method: PasswordMethod,
    /// `client-crresponse`.
    pub client_crresponse: Option<Command>,
    /// `tls-crypt-v2-verify`.
    pub tls_crypt_v2_verify: Option<Command>,
    /// `setenv`, `setenv-safe` (whose names get the prefix `OPENVPN_`), in order. `push-peer-info` also sends `UV_*`
    /// to the server.
    pub environment: Vec<(String, String)>,
    /// `tmp-dir`: directory for scripts' files.
    pub tmp_dir: Option<PathBuf>,
}

/// An option that requests an action instead of a tunnel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// `--help`.
    Help,
    /// `--version`.
    Version,
    /// `--genkey`.
    GenKey(GenKey),
    /// `--show-ciphers`.
    ShowCiphers,
    /// `--show-digests`.
    ShowDigests,
    /// `--show-tls`.
    ShowTls,
    /// `--show-curves`, `--show-groups`.
    ShowGroups,
    /// `--show-gateway`.
    ShowGateway,
    /// `--mktun`: a persistent interface named by `dev`, for `user` and `group`.
    MakeTun,
    /// `--rmtun`.
    RemoveTun,
}

/// `--genkey [KIND] [FILE] [METADATA]`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GenKey {
    /// The kind of key.
    pub kind: KeyKind,
    /// The output file; `None` for standard output. In the old form it is the file of `--secret`.
    pub file: Option<PathBuf>,
    /// Base64 metadata for a tls-crypt-v2 client key; `None` for a time stamp. The server's key comes from
    /// `--tls-crypt-v2`.
    pub metadata: Option<String>,
}

/// Kinds of keys.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeyKind {
    /// `secret`: the 2048-bit key of `tls-auth` and `tls-crypt`.
    Static,
    /// `tls-crypt-v2-server`.
    TlsCryptV2Server,
    /// `tls-crypt-v2-client`.
    TlsCryptV2Client,
    /// `auth-token`: the secret of `auth-gen-token-secret`.
    AuthToken,
}
