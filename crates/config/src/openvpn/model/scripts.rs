//! Programs that are run when something happens.

use std::path::PathBuf;

/// A program and its arguments, as the words of the directive's value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Command {
    /// Never empty: the program, then its arguments.
    pub words: Vec<String>,
}

/// `script-security`.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum ScriptSecurity {
    /// `0`: no program at all.
    None,
    /// `1`, the default: `ip` and the like only.
    #[default]
    BuiltIn,
    /// `2`: scripts.
    Scripts,
    /// `3`: scripts, with passwords in their environment.
    Passwords,
}

/// How `auth-user-pass-verify` gets the password.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PasswordMethod {
    /// `via-env`.
    Environment,
    /// `via-file`.
    File,
}

/// Every hook.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Scripts {
    /// `script-security`.
    pub security: ScriptSecurity,
    /// `up`: the interface has its addresses.
    pub up: Option<Command>,
    /// `up-restart`: `up` and `down` also run at restarts.
    pub up_restart: bool,
    /// `down`: the interface is gone, or is about to go with [`Scripts::down_pre`].
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
    pub auth_user_pass_verify: Option<(Command, PasswordMethod)>,
    /// `client-crresponse`.
    pub client_crresponse: Option<Command>,
    /// `setenv`, `setenv-safe` (its names begin with `OPENVPN_`), in their order. `UV_*` also go
    /// to the server with `push-peer-info`.
    pub environment: Vec<(String, String)>,
    /// `tmp-dir`: where files for scripts are made.
    pub tmp_dir: Option<PathBuf>,
}
