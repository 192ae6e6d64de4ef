//! Scripts that run on events.

use std::path::PathBuf;

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
