//! Who comes in, and with what: certificates' scripts, passwords, client files, addresses.
//!
//! Nothing here waits: scripts and password checks run on other threads, and their verdicts come
//! back as [`Done`].

use super::super::policy::auth_script::{Answer, AuthScriptError, Credentials, Verdict};
use super::super::policy::clients::{self, Addresses};
use super::super::policy::connect_script::{self, ConnectScriptError, Connected};
use super::super::policy::environment::Environment;
use super::super::policy::scripts::{Hook, tls_verify_arguments};
use super::super::policy::timestamp::Clock;
use super::super::policy::variables::PoolFacts;
use super::super::policy::{log_lines, names};
use super::Server;
use super::jobs::{Done, Jobs};
use super::served::{Deferred, Served, Step};
use config::openvpn::{
    ClientCertificate, ClientSettings, Crl, Framing as Configured, parse_client_settings,
};
use openvpn::data::framing::Framing;
use openvpn::message::{AuthFailed, Message};
use openvpn::push::PushOptions;
use openvpn::server::ClientId;
use openvpn::session::{AuthId, AuthRequest, CloseReason, Decision, TokenState};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

impl Server<'_> {
    /// A session asks whether its client may come in.
    pub(super) fn judge(&mut self, id: ClientId, request: &AuthRequest) {
        match self.first_judgement(id, request) {
            Ok(Some(jobs)) => {
                let Some(client) = self.clients.get_mut(&id) else {
                    return;
                };
                let (number, auth) = (client.number, request.id);
                client.step = Step::Judged;
                match self
                    .background
                    .submit(move || Done::Judged(auth, jobs.run()))
                {
                    Ok(job) => {
                        self.jobs.insert(job, (id, number));
                    }
                    Err(busy) => self.decide(id, auth, Err(busy.to_string())),
                }
            }
            Ok(None) => self.decide(id, request.id, Ok(None)),
            Err(why) => self.decide(id, request.id, Err(why)),
        }
    }

    /// What can be said at once: `Ok(None)` for yes, jobs for what must be asked, or why not.
    fn first_judgement(
        &mut self,
        id: ClientId,
        request: &AuthRequest,
    ) -> Result<Option<Jobs>, String> {
        let config = &self.context.config;
        let Some(server) = config.server() else {
            return Ok(None);
        };
        let Some(client) = self.clients.get_mut(&id) else {
            return Ok(None);
        };
        client.username = names::name(&request.username);
        let environment = &mut client.environment;
        let from_certificate = request.certificate.as_ref().map(|c| c.common_name.clone());
        client.common_name = match from_certificate {
            Some(name) if !server.username_as_common_name || client.username.is_empty() => name,
            _ if server.username_as_common_name
                || config.tls.verify.client_certificate == ClientCertificate::None =>
            {
                client.username.clone()
            }
            _ => "UNDEF".to_owned(),
        };
        if let Some(certificate) = &request.certificate {
            for (name, value) in certificate.environment() {
                environment.set(&name, value);
            }
            for (depth, of) in certificate.chain.iter().enumerate().rev() {
                log::info!("VERIFY OK: depth={depth}, {}", of.subject);
            }
            if let Some(Crl::Directory(directory)) = &config.tls.crl
                && let Some(own) = certificate.chain.first()
                && config.path(directory).join(&own.serial).exists()
            {
                return Err(format!(
                    "the certificate with serial {} is revoked",
                    own.serial
                ));
            }
        }
        environment.set("common_name", &client.common_name);
        environment.set_peer_info(&request.peer_info.emit());
        if !client.username.is_empty() {
            environment.set("username", &client.username);
        }

        let mut jobs = Jobs::default();
        let script = |hook, command, arguments: Vec<String>, environment: &Environment| {
            self.hooks
                .invocation(hook, command, arguments, environment)
                .map_err(|e| e.to_string())
        };
        if let (Some(command), Some(certificate), false) = (
            &config.scripts.tls_verify,
            &request.certificate,
            request.renegotiation,
        ) {
            for (depth, of) in certificate.chain.iter().enumerate().rev() {
                let arguments = tls_verify_arguments(depth, &of.subject).to_vec();
                jobs.first
                    .push(script(Hook::TlsVerify, command, arguments, environment)?);
            }
        }
        if let (Some(command), Some(metadata)) =
            (&config.tls.tls_crypt_v2_verify, client.metadata.take())
        {
            let mut environment = environment.clone();
            environment.set("metadata_type", metadata.kind().unwrap_or(0));
            let invocation = script(Hook::TlsVerify, command, Vec::new(), &environment)?;
            jobs.metadata = Some((
                invocation.with("script_type", "tls-crypt-v2-verify"),
                metadata.body().to_vec(),
            ));
        }
        if request.token != TokenState::Authenticated
            || server.auth_token.as_ref().is_some_and(|t| t.external_auth)
        {
            let login = Credentials {
                username: request.username.clone(),
                password: request.password.clone(),
            };
            let wanted = config.scripts.auth_user_pass_verify.is_some() || self.passwords.is_some();
            if wanted && request.username.is_empty() && !server.auth_user_pass_optional {
                return Err("no user name and password".to_owned());
            }
            if let Some((command, method)) = &config.scripts.auth_user_pass_verify {
                let invocation =
                    script(Hook::AuthUserPassVerify, command, Vec::new(), environment)?;
                jobs.login = Some((invocation, login.clone(), *method));
            }
            if let Some(file) = &self.passwords
                && !request.username.is_empty()
            {
                jobs.file = Some((Arc::clone(file), login));
            }
        }
        jobs.directory = config
            .scripts
            .tmp_dir
            .as_ref()
            .map_or_else(std::env::temp_dir, |path| config.path(path));
        Ok((!jobs.is_empty()).then_some(jobs))
    }

    /// Work on another thread is done.
    pub(super) fn finished(&mut self, job: u64, done: Done) {
        let whose = self.jobs.remove(&job);
        // The client may have gone, and another have its number.
        let whose = whose.filter(|(id, number)| {
            self.clients
                .get(id)
                .is_some_and(|client| client.number == *number)
        });
        match (done, whose) {
            (Done::Told(Err(error)), _) => log::warn!("WARNING: {error}"),
            (Done::Judged(auth, answer), Some((id, _))) => self.judged(id, auth, answer),
            (Done::Settled(outcome), Some((id, _))) => self.settled(id, outcome),
            _ => {}
        }
    }

    fn judged(&mut self, id: ClientId, auth: AuthId, answer: Result<Answer, AuthScriptError>) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return self.decide(id, auth, Err(error.to_string())),
        };
        if let Some(pending) = answer.pending {
            let timeout = Duration::from_secs(pending.timeout.into());
            self.with(id, |session, now, out| {
                session.send_message(&Message::InfoPre(pending.extra), now, out);
                session.authentication_pending(timeout, now, out);
            });
        }
        match (answer.verdict, answer.files) {
            (Verdict::Deferred, Some(files)) => {
                if let Some(client) = self.clients.get_mut(&id) {
                    client.deferred = Some(Deferred::Login(auth, files));
                }
            }
            (Verdict::Refused(reason), _) => {
                self.decide(id, auth, Err(reason.unwrap_or_default()));
            }
            _ => self.decide(id, auth, Ok(None)),
        }
    }

    /// Asks the files of scripts that take their time.
    pub(super) fn poll_deferred(&mut self) {
        let waiting: Vec<ClientId> = self
            .clients
            .iter()
            .filter_map(|(id, client)| client.deferred.is_some().then_some(*id))
            .collect();
        for id in waiting {
            let deferred = self.clients.get_mut(&id).and_then(|c| c.deferred.take());
            match deferred {
                Some(Deferred::Login(auth, files)) => match files.verdict() {
                    Verdict::Accepted => self.decide(id, auth, Ok(None)),
                    Verdict::Refused(why) => self.decide(id, auth, Err(why.unwrap_or_default())),
                    Verdict::Deferred => {
                        if let Some(client) = self.clients.get_mut(&id) {
                            client.deferred = Some(Deferred::Login(auth, files));
                        }
                    }
                },
                Some(Deferred::Settings(files)) => self.settled(id, files.poll()),
                None => {}
            }
        }
    }

    /// Tells the session whether its client may come in; `Err` with why not, empty for no reason.
    fn decide(&mut self, id: ClientId, auth: AuthId, verdict: Result<Option<()>, String>) {
        let label = self.clients.get(&id).map(Served::label).unwrap_or_default();
        let decision = match verdict {
            Ok(_) => {
                log::info!("{label} TLS: Username/Password authentication succeeded");
                Decision::Accept
            }
            Err(why) => {
                log::warn!("{label} TLS Auth Error: {why}");
                Decision::Reject(AuthFailed::because(&why))
            }
        };
        self.with(id, |session, now, out| {
            session.authenticated(auth, decision, now, out);
        });
    }

    /// The client is authenticated and waits for its options.
    pub(super) fn settle(&mut self, id: ClientId) {
        let config = &self.context.config;
        let Some(server) = config.server() else {
            return;
        };
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        client.environment.set_peer("trusted", client.from);
        client
            .environment
            .set_connected(SystemTime::now(), &Clock::system());
        log::info!(
            "{} [{}] Peer Connection Initiated with {}",
            client.from,
            client.common_name,
            log_lines::outer(client.from)
        );
        let name = client.common_name.clone();
        // Whoever comes again is the same one: the earlier session is over.
        if !server.duplicate_cn {
            let earlier: Vec<ClientId> = self
                .clients
                .iter()
                .filter(|(other, c)| {
                    **other != id && c.common_name == name && matches!(c.step, Step::In)
                })
                .map(|(other, _)| *other)
                .collect();
            for other in earlier {
                log::info!(
                    "MULTI: new connection by client '{name}' will cause previous active sessions by this client to be dropped. Remember to use the --duplicate-cn option if you want multiple clients using the same certificate or username to concurrently connect."
                );
                self.with(other, |session, _, out| {
                    session.close(CloseReason::Replaced, out);
                });
            }
        }
        let mut settings = ClientSettings::default();
        if let Some(directory) = &server.client_config_dir {
            let directory = config.path(directory);
            if server.ccd_exclusive && !clients::has_own_file(&directory, &name) {
                return self.refuse(id, "no file in client-config-dir, and ccd-exclusive is set");
            }
            match clients::file(&directory, &name) {
                Ok(None) => {}
                Ok(Some((path, text))) => {
                    let (read, report) = parse_client_settings(&text, &path.display().to_string());
                    for entry in report
                        .entries
                        .iter()
                        .filter(|e| e.verdict != config::report::Verdict::Honoured)
                    {
                        log::warn!("{}", report.describe(entry));
                    }
                    settings = read;
                }
                Err(error) => {
                    log::warn!("client-config-dir: {error}");
                    return self.refuse(id, "its file in client-config-dir cannot be read");
                }
            }
        }
        if settings.disable {
            return self.refuse(id, "it is disabled by its file in client-config-dir");
        }
        self.address(id, settings);
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let Some(command) = &config.scripts.client_connect else {
            return self.admit(id);
        };
        let invocation = match self.hooks.invocation(
            Hook::ClientConnect,
            command,
            Vec::new(),
            &client.environment,
        ) {
            Ok(invocation) => invocation,
            Err(error) => {
                log::warn!("{error}");
                return self.refuse(id, "client-connect cannot be run");
            }
        };
        client.step = Step::Settled;
        let number = client.number;
        let directory = config
            .scripts
            .tmp_dir
            .as_ref()
            .map_or_else(std::env::temp_dir, |path| config.path(path));
        match self
            .background
            .submit(move || Done::Settled(connect_script::run(invocation, &directory)))
        {
            Ok(job) => {
                self.jobs.insert(job, (id, number));
            }
            Err(busy) => {
                log::warn!("{busy}");
                self.refuse(id, "too many clients at once");
            }
        }
    }

    fn settled(&mut self, id: ClientId, outcome: Result<Connected, ConnectScriptError>) {
        match outcome {
            Ok(Connected::Settings(text)) => {
                let (more, report) = parse_client_settings(&text, "client-connect");
                for entry in report
                    .entries
                    .iter()
                    .filter(|e| e.verdict != config::report::Verdict::Honoured)
                {
                    log::warn!("{}", report.describe(entry));
                }
                let Some(client) = self.clients.get_mut(&id) else {
                    return;
                };
                let settings = clients::merge(std::mem::take(&mut client.settings), more);
                if settings.disable {
                    return self.refuse(id, "it is disabled by client-connect");
                }
                self.address(id, settings);
                self.admit(id);
            }
            Ok(Connected::Deferred(files)) => {
                if let Some(client) = self.clients.get_mut(&id) {
                    client.deferred = Some(Deferred::Settings(files));
                }
            }
            Err(error) => {
                log::warn!("{error}");
                self.refuse(id, "client-connect refused it");
            }
        }
    }

    /// Gives the client its addresses.
    fn address(&mut self, id: ClientId, settings: ClientSettings) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        if let Some(pool) = &mut self.pool {
            match (client.lease, clients::needs_lease(&settings)) {
                (None, true) => client.lease = pool.acquire(Some(&client.common_name)),
                (Some(lease), false) => {
                    pool.forget(lease.place);
                    client.lease = None;
                }
                _ => {}
            }
            if client.lease.is_none() && clients::needs_lease(&settings) {
                log::warn!("{}: no free address in the pool", client.label());
            }
        }
        client.addresses = Addresses::new(&self.side, &settings, client.lease.as_ref());
        client.networks = clients::inner_networks(&settings, &client.addresses);
        client.environment.set_pool(
            self.side.topology,
            &PoolFacts {
                ifconfig: client.addresses.ifconfig,
                ifconfig_v6: client.addresses.ifconfig_v6,
            },
        );
        client.settings = settings;
    }

    /// Everything is known: the client gets its options, and its keys.
    fn admit(&mut self, id: ClientId) {
        let config = &self.context.config;
        let Some(server) = config.server() else {
            return;
        };
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let mut options = clients::push_options(&server.push, &client.settings, &client.addresses);
        if config.data.migrate
            && let Some(session) = self.listener.session(id)
        {
            let old = session
                .peer_options()
                .is_some_and(|o| o.split(',').any(|w| w == "comp-lzo"));
            let can = |flag| session.peer_info().is_some_and(|info| info.flag(flag));
            client.framing = if old && can("IV_COMP_STUBv2") {
                options.push("compress stub-v2".to_owned());
                Framing::V2
            } else if old && can("IV_LZO_STUB") {
                options.push("comp-lzo no".to_owned());
                Framing::Lzo
            } else if old {
                Framing::Lzo
            } else {
                Framing::None
            };
        } else {
            client.framing = super::super::sizes::configured(config.data.framing);
        }
        // What a client is pushed about its framing goes for the server's side as well.
        for option in &options {
            match option.split_whitespace().collect::<Vec<_>>()[..] {
                ["comp-lzo", ..] => client.framing = Framing::Lzo,
                ["compress", "stub-v2" | "lz4-v2"] => client.framing = Framing::V2,
                ["compress", "lzo"] => client.framing = Framing::Lzo,
                ["compress"] | ["compress", "stub" | "lz4"] => {
                    client.framing = Framing::Swap;
                }
                _ => {}
            }
        }
        debug_assert!(config.data.framing == Configured::None || !options.is_empty());
        let push = PushOptions {
            options,
            tun_mtu: Some(self.mtu.into()),
            peer_id: Some(id.0),
        };
        self.with(id, |session, now, out| session.push(&push, now, out));
    }

    fn refuse(&mut self, id: ClientId, why: &str) {
        let label = self.clients.get(&id).map(Served::label).unwrap_or_default();
        log::warn!("{label} the client is refused: {why}");
        self.with(id, |session, now, out| {
            session.deny(AuthFailed::default(), now, out);
        });
    }
}
