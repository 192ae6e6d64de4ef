//! Files and settings that are read and checked before the first socket is opened.
//!
//! The start takes a [`Ready`]; `millrace check` makes one with [`rehearse`] and drops it, so both report the same
//! faults.

use super::{kernel_plane, lacking};
#[cfg(feature = "server")]
use config::openvpn::Server;
use config::openvpn::{ControlWrap, OpenVpn, Prompted};
use config::settings::DataplaneSettings;
use host::privileges;
use openvpn::tls::TlsSettings;
use openvpn::wrap::WrapSettings;
#[cfg(feature = "server")]
use openvpn_host::accounts::{htpasswd::PasswordFile, persist, pool::Pool};
use openvpn_host::hooks::Hooks;
use openvpn_host::management::server::password;
use openvpn_host::scripts::Hook;
use openvpn_host::secrets::{self, SecretError};
use openvpn_host::setup;
use std::error::Error;
#[cfg(feature = "server")]
use std::sync::Arc;
use std::time::SystemTime;
use zeroize::Zeroizing;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The checked keys and settings that a tunnel starts with.
pub(super) struct Ready {
    /// Certificates, keys and rules.
    pub(super) tls: TlsSettings,
    /// Each wrap of the control channel. Read once: a process that dropped its privileges cannot read the keys again.
    pub(super) wraps: Vec<(ControlWrap, WrapSettings)>,
    /// Parts for a server only.
    #[cfg(feature = "server")]
    pub(super) server: Option<ReadyServer>,
}

/// Parts that only a server needs.
#[cfg(feature = "server")]
pub(super) struct ReadyServer {
    /// The secret that signs auth tokens.
    pub(super) token_secret: Option<Zeroizing<[u8; 32]>>,
    /// Names and password hashes.
    pub(super) passwords: Option<Arc<PasswordFile>>,
    /// Addresses for the clients.
    pub(super) pool: Option<Pool>,
}

impl Ready {
    /// Reads what the configuration names. `passphrase` is called if the private key needs one.
    ///
    /// # Errors
    /// A file cannot be read, or does not hold what its directive needs; the message begins with the directive.
    pub(super) fn read(
        config: &OpenVpn,
        file: Option<&str>,
        passphrase: impl FnOnce() -> Outcome<Zeroizing<String>>,
    ) -> Outcome<Self> {
        if let Some(command) = config.scripts.tls_verify.as_ref() {
            let hooks = Hooks::new(config, file, SystemTime::now());
            hooks.invocation(Hook::TlsVerify, command, [], &hooks.base)?;
        }
        let mut wraps: Vec<(ControlWrap, WrapSettings)> = Vec::new();
        for connection in &config.connections {
            if !wraps.iter().any(|(wanted, _)| *wanted == connection.wrap) {
                let settings = setup::wrap_settings(config, connection)?;
                wraps.push((connection.wrap.clone(), settings));
            }
        }
        #[cfg(feature = "server")]
        let server = config
            .server()
            .map(|server| ReadyServer::read(config, server))
            .transpose()?;
        let tls = match setup::tls_settings(config, None) {
            Err(error) if setup::wants_passphrase(&error) => {
                setup::tls_settings(config, Some(passphrase()?.as_bytes()))?
            }
            other => other?,
        };
        Ok(Self {
            tls,
            wraps,
            #[cfg(feature = "server")]
            server,
        })
    }
}

#[cfg(feature = "server")]
impl ReadyServer {
    fn read(config: &OpenVpn, server: &Server) -> Outcome<Self> {
        let secret = |token| setup::token_secret(config, token);
        Ok(Self {
            token_secret: server.auth_token.as_ref().map(secret).transpose()?,
            passwords: passwords(config)?,
            pool: pool(config, server)?,
        })
    }
}

/// Reads the file of names and password hashes, if there is one.
#[cfg(feature = "server")]
pub(super) fn passwords(config: &OpenVpn) -> Outcome<Option<Arc<PasswordFile>>> {
    let path = config.server().and_then(|it| it.password_file.as_ref());
    let Some(path) = path else {
        return Ok(None);
    };
    let (file, bad) = PasswordFile::load(&config.path(path))?;
    for line in bad {
        log::warn!("WARNING: {}: {line}", path.display());
    }
    log::info!("{} users in {}", file.users(), path.display());
    Ok(Some(Arc::new(file)))
}

#[cfg(feature = "server")]
fn pool(config: &OpenVpn, server: &Server) -> Outcome<Option<Pool>> {
    if server.pool.is_none() && server.pool_v6.is_none() {
        return Ok(None);
    }
    let topology = config.network.topology.unwrap_or_default();
    let mut pool = Pool::new(server.pool, server.pool_v6, topology, server.duplicate_cn)?;
    if let Some(wanted) = &server.pool_persist {
        persist::load(&config.path(&wanted.path), &mut pool, wanted.seconds == 0)?;
    }
    Ok(Some(pool))
}

/// Returns the configuration if this build and this machine can run it.
///
/// # Errors
/// The reason, with the directive's place in front.
pub(super) fn fit(config: OpenVpn, dataplane: &DataplaneSettings) -> Result<OpenVpn, String> {
    if let Some(why) = lacking(&config) {
        return Err(config.located(why));
    }
    let config = match kernel_plane::is_wanted(dataplane) {
        true => kernel_plane::checked(config)?,
        false => config,
    };
    let service = &config.service;
    match privileges::look_up(service.user.as_deref(), service.group.as_deref()) {
        Ok(()) => Ok(config),
        Err(error) => Err(config.located(&error.to_string())),
    }
}

/// Runs a start up to its first socket, without changing anything. A passphrase that the user would be asked for counts
/// as correct.
///
/// # Errors
/// The reason why the start would fail, with the directive's place in front.
pub fn rehearse(config: &OpenVpn, dataplane: &DataplaneSettings) -> Result<(), String> {
    rehearsed(config, dataplane)?;
    let prompted = config.client().and_then(|it| it.auth_user_pass.as_ref());
    let login = prompted.map_or(Ok(()), |it| {
        secrets::rehearse_login("auth-user-pass", it, config)
    });
    login.map_err(|error| config.located(&error.to_string()))
}

/// Rehearses a start where only a management client can answer questions.
///
/// # Errors
/// The reason why the start would fail or ask, with the directive's place in front.
pub fn rehearse_alone(config: &OpenVpn, dataplane: &DataplaneSettings) -> Result<(), String> {
    let asks = rehearsed(config, dataplane)?;
    let management = config.service.management.as_ref();
    let complete = if management.is_some_and(|it| it.password == Some(Prompted::Ask)) {
        Err(SecretError::Nobody { what: "management" })
    } else if management.is_some_and(|it| it.query_passwords) {
        Ok(())
    } else if asks {
        Err(SecretError::Nobody { what: "askpass" })
    } else {
        secrets::complete(config)
    };
    complete.map_err(|error| config.located(&error.to_string()))
}

/// Rehearses a start. Returns whether a passphrase would be asked for.
fn rehearsed(config: &OpenVpn, dataplane: &DataplaneSettings) -> Result<bool, String> {
    let config = fit(config.clone(), dataplane)?;
    let mut asked = false;
    let mut read = || {
        if let Some(wanted) = &config.service.management
            && !matches!(wanted.password, Some(Prompted::Ask))
        {
            password(&config, wanted)?;
        }
        Ready::read(&config, None, || match &config.tls.askpass {
            Some(Prompted::From(_)) => {
                Ok(secrets::passphrase(config.tls.askpass.as_ref(), &config)?)
            }
            _ => {
                asked = true;
                Err("a passphrase is asked for".into())
            }
        })
    };
    match read() {
        Err(error) if !asked => Err(config.located(&error.to_string())),
        _ => Ok(asked),
    }
}

#[cfg(test)]
mod tests;
