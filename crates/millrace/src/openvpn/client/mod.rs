//! A client: one server at a time, connected again and again until told to stop.

mod attempt;
mod inside;
mod tls_verify;

use super::connect::{self, Attempts, ProxyLogin, Target};
use super::device::{self, Link};
use super::hooks::Hooks;
use super::plane::{ClientWire, Inbox};
use super::policy::management::{Addresses, QueryKind, State};
use super::policy::scripts::Hook;
use super::revocation::RevocationFile;
use super::secrets::{self, Login};
use super::signals::Signal;
use super::{Context, Ended, plane, setup};
use crate::privileges;
use crate::status::Refusals;
use config::openvpn::{AuthRetry, Connection, ControlWrap, Prompted, RemapUsr1};
use engine::Tunnel;
use openvpn::push::PushReply;
use openvpn::session::{CloseReason, Dropped};
use openvpn::tls::TlsSettings;
use openvpn::wrap::WrapSettings;
use std::sync::Arc;
use std::time::SystemTime;
use zeroize::Zeroizing;

/// The counter of packets from elsewhere than from the server.
pub(super) const WRONG_ADDRESS: &str = "wrong_address";

/// What an attempt to be connected came to.
pub(super) enum Outcome {
    /// Try again, the next server.
    Again,
    /// Try again, the same server.
    Same,
    /// Leave with this status.
    Exit(u8),
    /// Somebody outside wants something.
    Signal(Signal),
}

/// A client and what it keeps from one connection to the next.
pub(super) struct Client<'a> {
    pub(super) context: &'a Context,
    pub(super) hooks: Hooks<'a>,
    pub(super) tls: Arc<TlsSettings>,
    pub(super) crl: RevocationFile,
    /// How the control channel is wrapped, by what the configuration says of it: read once, for a
    /// process that gave up its rights cannot read the keys again.
    wraps: Vec<(ControlWrap, WrapSettings)>,
    pub(super) inbox: Arc<Inbox>,
    /// The interface, while there is one.
    pub(super) device: Option<(Tunnel<ClientWire>, Link)>,
    /// Addresses, routes and name servers, while they are set.
    set: Option<inside::Set>,
    login: Option<Login>,
    /// The token of the configuration (`auth-token`), until it was tried.
    first_token: Option<Zeroizing<String>>,
    /// A token of the server's, in the place of the password.
    pub(super) token: Option<Login>,
    /// The name that was shown last, or that the server wants to see with its token.
    user: String,
    /// Whether a session was up before: scripts are told.
    pub(super) restarted: bool,
    /// Whether the last session was up.
    pub(super) was_up: bool,
    /// All is done: addresses and routes are set.
    pub(super) is_connected: bool,
    /// Packets and sessions that came to nothing.
    pub(super) refusals: Refusals,
    pub(super) streams: u64,
    /// What is not needed any more was given up.
    pub(super) unprivileged: bool,
}

/// Runs a client until somebody says stop.
pub(super) fn run(context: &Context) -> Ended {
    plane::allow_recursion(context.config.network.allow_recursive_routing);
    let mut client = match Client::new(context) {
        Ok(client) => client,
        Err(error) => {
            context.fatal(&*error);
            return Ended::Exit(1);
        }
    };
    let ended = client.connect_again_and_again();
    if matches!(ended, Ended::Exit(_)) {
        client.state(State::Exiting, "SIGTERM");
    }
    drop(client.take_down("init"));
    ended
}

impl<'a> Client<'a> {
    fn new(context: &'a Context) -> Result<Self, Box<dyn std::error::Error>> {
        let config = &context.config;
        // In front of the list itself, so that one written between the two is taken later.
        let crl = RevocationFile::new(config);
        let mut tls = load_tls(context)?;
        let hooks = Hooks::new(config, context.file.as_deref(), SystemTime::now());
        if let Some(command) = &config.scripts.tls_verify {
            let program = hooks.invocation(Hook::TlsVerify, command, [], &hooks.base)?;
            tls.set_judge(Arc::new(tls_verify::TlsVerify(program)));
        }
        for warning in tls.warnings() {
            log::warn!("WARNING: {warning}");
        }
        let mut wraps: Vec<(ControlWrap, WrapSettings)> = Vec::new();
        for connection in &config.connections {
            if !wraps.iter().any(|(wanted, _)| *wanted == connection.wrap) {
                let settings = setup::wrap_settings(config, connection)?;
                wraps.push((connection.wrap.clone(), settings));
            }
        }
        Ok(Self {
            context,
            wraps,
            hooks,
            tls: Arc::new(tls),
            crl,
            inbox: Arc::new(Inbox::new()?),
            device: None,
            set: None,
            login: None,
            first_token: config
                .client()
                .and_then(|client| client.auth_token.as_ref())
                .map(|(_, token)| Zeroizing::new(token.expose().to_owned())),
            token: None,
            user: String::new(),
            restarted: false,
            was_up: false,
            is_connected: false,
            refusals: Refusals::new(
                Dropped::REASONS
                    .into_iter()
                    .chain(CloseReason::REFUSALS)
                    .chain([WRONG_ADDRESS]),
            ),
            streams: 0,
            unprivileged: false,
        })
    }

    /// Tells the management port how far the tunnel is.
    pub(super) fn state(&self, state: State, detail: &str) {
        let mut office = self.context.office.borrow_mut();
        office.state(state, detail, Addresses::default());
    }

    fn connect_again_and_again(&mut self) -> Ended {
        let config = &self.context.config;
        self.state(State::Connecting, "");
        let mut attempts = Attempts::new(config);
        loop {
            let outcome = match attempts.next(&self.context.stop()) {
                connect::Next::Target(target) => self.attempt(&target, &mut attempts),
                connect::Next::Stopped => match self.context.signals.take() {
                    Some(signal) => Outcome::Signal(signal),
                    None => continue,
                },
                connect::Next::GiveUp(why) => {
                    log::error!("{why}");
                    Outcome::Exit(1)
                }
            };
            if matches!(outcome, Outcome::Again | Outcome::Same) {
                self.context.is_lost();
            }
            match outcome {
                Outcome::Again => {}
                Outcome::Same => attempts.same(),
                Outcome::Exit(status) => return Ended::Exit(status),
                Outcome::Signal(signal) => match signal {
                    Signal::Exit(name) => {
                        log::info!("{name}[hard,] received, process exiting");
                        return Ended::Exit(0);
                    }
                    Signal::Reload => {
                        log::info!("SIGHUP[hard,] received, process restarting");
                        return Ended::Reload;
                    }
                    Signal::Restart => match config.service.remap_usr1 {
                        Some(RemapUsr1::Hup) => return Ended::Reload,
                        Some(RemapUsr1::Term) => return Ended::Exit(0),
                        None => {
                            log::info!("SIGUSR1[hard,] received, process restarting");
                            if !config.service.persist_remote_ip {
                                attempts.forget_addresses();
                            }
                        }
                    },
                    Signal::Status => {}
                },
            }
            self.state(State::Reconnecting, "SIGUSR1");
            self.context.office.borrow_mut().closed();
            self.context.hold();
            // Another user could not set everything up again.
            let other_user = config.service.user.is_some() || config.service.group.is_some();
            if !config.service.persist_tun && !other_user {
                // Undone when it is dropped.
                drop(self.take_down("restart"));
                self.device = None;
            }
        }
    }

    /// The name and password to show, if the configuration has any. A token of the configuration
    /// goes first.
    fn credentials(&mut self) -> Result<Option<Login>, secrets::SecretError> {
        if self.context.forget.take() {
            self.login = None;
            self.token = None;
        }
        let client = self.context.config.client();
        if let Some(token) = self.first_token.take() {
            let user = client.and_then(|client| client.auth_token.as_ref());
            let name = match user.and_then(|(user, _)| user.clone()) {
                Some(name) => name,
                None => self.asked()?.map(|login| login.name).unwrap_or_default(),
            };
            self.token = Some(Login {
                name,
                password: token,
            });
        }
        let login = self.asked()?;
        if let Some(login) = &login {
            self.user.clone_from(&login.name);
        }
        Ok(login)
    }

    fn asked(&mut self) -> Result<Option<Login>, secrets::SecretError> {
        if let Some(token) = &self.token {
            return Ok(Some(token.clone()));
        }
        let config = &self.context.config;
        let Some(client) = config.client() else {
            return Ok(None);
        };
        let Some(prompted) = &client.auth_user_pass else {
            return Ok(None);
        };
        if let Some(login) = &self.login {
            return Ok(Some(login.clone()));
        }
        if let Some(login) = self.ask_visitor(prompted) {
            let login = login?;
            self.keep(&login);
            return Ok(Some(login));
        }
        let mut login = secrets::login("auth-user-pass", "Auth", prompted, config)?;
        if let Some(challenge) = &client.static_challenge {
            let answer = secrets::ask(&format!("CHALLENGE: {} ", challenge.text), challenge.echo)
                .map_err(|error| secrets::SecretError::NoTerminal {
                what: "static-challenge",
                error,
            })?;
            login.password = if challenge.concat {
                Zeroizing::new(format!("{}{}", *login.password, *answer))
            } else {
                openvpn::session::static_response(&login.password, &answer)
            };
        }
        self.keep(&login);
        Ok(Some(login))
    }

    /// Keeps name and password for the next connection, if they may be kept.
    fn keep(&mut self, login: &Login) {
        let config = &self.context.config;
        // An answer to a challenge is good once.
        let challenge = config.client().and_then(|it| it.static_challenge.as_ref());
        if !config.service.auth_nocache && challenge.is_none() {
            self.login = Some(login.clone());
        }
    }

    /// How the control channel of a connection is wrapped.
    fn wrap(&self, connection: &Connection) -> Result<WrapSettings, setup::SetupError> {
        let known = self.wraps.iter().find(|(it, _)| *it == connection.wrap);
        match known {
            Some((_, settings)) => Ok(settings.clone()),
            None => setup::wrap_settings(&self.context.config, connection),
        }
    }

    /// Asks for name and password on the management port, where that is wanted and there is one.
    fn ask_visitor(&self, prompted: &Prompted) -> Option<Result<Login, secrets::SecretError>> {
        let config = &self.context.config;
        if !matches!(prompted, Prompted::Ask) {
            return None;
        }
        let challenge = config
            .client()
            .and_then(|client| client.static_challenge.as_ref());
        let question = QueryKind::UserPassword {
            challenge: challenge.map(|c| (c.text.clone(), c.echo, c.concat)),
        };
        let answer = self.context.ask("Auth", question)?;
        Some(answer.map(|answer| Login {
            name: answer.username.to_string(),
            password: answer.text,
        }))
    }

    /// The name and password for a proxy.
    fn proxy_login(&self, prompted: &Prompted) -> Result<ProxyLogin, secrets::SecretError> {
        let question = QueryKind::UserPassword { challenge: None };
        if matches!(prompted, Prompted::Ask)
            && let Some(answer) = self.context.ask("HTTP Proxy", question)
        {
            return answer.map(|answer| ProxyLogin {
                name: answer.username.to_string(),
                password: answer.text,
            });
        }
        let login = secrets::login("http-proxy", "HTTP Proxy", prompted, &self.context.config)?;
        Ok(ProxyLogin {
            name: login.name,
            password: login.password,
        })
    }

    /// Keeps a token of the server's in the place of the password.
    pub(super) fn keep_token(&mut self, token: &str) {
        self.token = Some(Login {
            name: self.user.clone(),
            password: Zeroizing::new(token.to_owned()),
        });
    }

    /// What the server pushed that is neither for the session nor for the interface.
    pub(super) fn hear(&mut self, reply: &PushReply) {
        for text in &reply.echo {
            log::info!("ECHO:{text}");
            self.context.office.borrow_mut().echoed(text);
        }
        if let Some(user) = &reply.auth_token_user {
            self.user.clone_from(user);
            if let Some(token) = &mut self.token {
                token.name.clone_from(user);
            }
        }
    }

    /// Whoever gave the password is told that it was refused.
    fn refused(&mut self, failed: &openvpn::message::AuthFailed) {
        let reason = (!failed.reason.is_empty()).then_some(failed.reason.as_str());
        let mut office = self.context.office.borrow_mut();
        office.verification_failed("Auth", reason);
    }

    /// What the end of a session means.
    fn after(&mut self, reason: &CloseReason, attempts: &mut Attempts) -> Outcome {
        if let Some(refusal) = reason.refusal() {
            self.refusals.count(refusal);
        }
        let config = &self.context.config;
        match reason {
            CloseReason::AuthFailed(failed) => {
                log::error!("AUTH: Received control message: AUTH_FAILED{failed}");
                let had_token = self.token.take().is_some();
                if had_token {
                    // The token is spent; the password may still be good.
                    return Outcome::Same;
                }
                self.refused(failed);
                if attempts.after_auth_failed(failed) {
                    return Outcome::Again;
                }
                match self.context.auth_retry.get() {
                    AuthRetry::NoInteract => Outcome::Again,
                    AuthRetry::Interact => {
                        self.login = None;
                        Outcome::Again
                    }
                    AuthRetry::None => {
                        log::info!("SIGTERM[soft,auth-failure] received, process exiting");
                        Outcome::Exit(1)
                    }
                }
            }
            CloseReason::Halt(_) => {
                log::info!("Connection reset command was pushed by server: {reason}");
                Outcome::Exit(1)
            }
            CloseReason::PingExit(_) => {
                log::info!("{reason}");
                log::info!("SIGTERM[soft,ping-exit] received, process exiting");
                Outcome::Exit(0)
            }
            CloseReason::Inactive(_) | CloseReason::SessionTimeout(_) => {
                log::info!("{reason}, exiting");
                Outcome::Exit(0)
            }
            CloseReason::PingRestart(_) => {
                log::info!("{reason}, restarting");
                log::info!("SIGUSR1[soft,ping-restart] received, process restarting");
                Outcome::Again
            }
            CloseReason::HandshakeWindow(_) | CloseReason::Tls(_) => {
                log::error!("TLS Error: {reason}");
                log::error!("TLS Error: TLS handshake failed");
                if config.timers.tls_exit {
                    return Outcome::Exit(1);
                }
                log::info!("SIGUSR1[soft,tls-error] received, process restarting");
                Outcome::Again
            }
            CloseReason::Restart(restart) => {
                log::info!("Connection reset command was pushed by server: {reason}");
                attempts.after_restart(restart);
                Outcome::Again
            }
            CloseReason::NoCipher(_) | CloseReason::Push(_) => {
                log::error!("OPTIONS ERROR: {reason}");
                log::error!("ERROR: Failed to apply push options");
                Outcome::Again
            }
            _ => {
                log::info!("{reason}");
                Outcome::Again
            }
        }
    }

    /// The interface, made now if there is none.
    fn device(&mut self, target: &Target) -> Result<(), device::DeviceError> {
        if self.device.is_some() {
            return Ok(());
        }
        let connection = &target.connection;
        let (tunnel, link) = device::start(
            &self.context.config.device,
            &self.context.rungs,
            &self.context.dataplane,
            super::terms::tun_mtu(connection),
            connection.mtu.fragment.is_some(),
            &self.inbox,
            connection.protocol.transport.is_tcp(),
        )?;
        if self.unprivileged {
            // The first ones are confined when privileges are dropped.
            privileges::confine_other_threads();
        }
        if link.index != 0 {
            log::info!("TUN/TAP device {} opened", link.name);
        }
        self.context.office.borrow_mut().publish(&link);
        self.device = Some((tunnel, link));
        Ok(())
    }
}

/// Certificates and keys, with a passphrase asked for where one is needed.
pub(super) fn load_tls(context: &Context) -> Result<TlsSettings, Box<dyn std::error::Error>> {
    let config = &context.config;
    match setup::tls_settings(config, None) {
        Err(error) if setup::wants_passphrase(&error) => {
            let file = matches!(config.tls.askpass, Some(Prompted::From(_)));
            let asked = match file {
                true => None,
                false => context.ask("Private Key", QueryKind::Password),
            };
            let passphrase = match asked {
                Some(answer) => answer?.text,
                None => secrets::passphrase(config.tls.askpass.as_ref(), config)?,
            };
            Ok(setup::tls_settings(config, Some(passphrase.as_bytes()))?)
        }
        other => Ok(other?),
    }
}
