//! Whether a client may come in: certificates, passwords, and the scripts that judge them.
//!
//! Nothing here waits: scripts and password checks run on other threads, and their verdicts come
//! back as [`Done`].

use super::super::conduit::Way;
use super::super::policy::auth_script::{self, Credentials, Verdict};
use super::super::policy::environment::Environment;
use super::super::policy::names;
use super::super::policy::scripts::{Hook, tls_verify_arguments};
use super::Server;
use super::jobs::{Done, Jobs, Judged};
use super::served::{Deferred, Step};
use config::openvpn::ClientCertificate;
use openvpn::message::{Advance, AuthFailed, AuthFailedKind, Message};
use openvpn::negotiate::IvProto;
use openvpn::server::{ClientId, Source};
use openvpn::session::{AuthId, AuthRequest, Decision, Session, TokenState};
use openvpn::verify::PeerCertificate;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Why a client is not let in.
struct Refusal {
    /// What it is told; empty for no reason. Never more than a script, or a sentence that is the same on every machine: it
    /// is a stranger.
    told: String,
    /// What the log says.
    logged: String,
    /// It may try again soon, if it knows that word.
    temporary: bool,
}

impl Refusal {
    /// For the log only.
    fn logged(why: impl Into<String>) -> Self {
        Self {
            told: String::new(),
            logged: why.into(),
            temporary: false,
        }
    }

    /// By a script, with what it has to say.
    fn by_script(reason: Option<String>) -> Self {
        let told = reason.unwrap_or_default();
        Self {
            logged: if told.is_empty() {
                "the name and password, or a script, were refused".to_owned()
            } else {
                told.clone()
            },
            told,
            temporary: false,
        }
    }

    /// Nobody could be asked.
    fn busy(why: impl Into<String>) -> Self {
        Self {
            told: "the server is busy".to_owned(),
            logged: why.into(),
            temporary: true,
        }
    }
}

impl Server<'_> {
    /// A session asks whether its client may come in.
    pub(super) fn judge(&mut self, id: ClientId, request: &AuthRequest) {
        match self.first_judgement(id, request) {
            Ok(Some(jobs)) => {
                let Some(client) = self.clients.get_mut(&id) else {
                    return;
                };
                let (number, auth) = (client.number, request.id);
                let source = Source::from(client.from);
                // A client that renews its keys stays what it is.
                if client.step == Step::Arriving {
                    client.step = Step::Judged;
                }
                match self
                    .background
                    .submit(Some(source), move || Done::Judged(auth, jobs.run()))
                {
                    Ok(job) => {
                        self.jobs.insert(job, (id, number));
                    }
                    Err(busy) => self.decide(id, auth, Err(Refusal::busy(busy.to_string()))),
                }
            }
            Ok(None) => self.decide(id, request.id, Ok(())),
            Err(why) => self.decide(id, request.id, Err(why)),
        }
    }

    /// What can be said at once: `Ok(None)` for yes, jobs for what must be asked, or why not.
    fn first_judgement(
        &mut self,
        id: ClientId,
        request: &AuthRequest,
    ) -> Result<Option<Jobs>, Refusal> {
        let config = self.config;
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
            if config.scripts.tls_verify.is_none() {
                verified(certificate);
            }
        }
        environment.set("common_name", &client.common_name);
        environment.set_peer_info(&request.peer_info.emit());
        if server.auth_token.is_some() {
            // Whoever judges passwords and tokens alike must know which of them it is.
            let state = match request.token {
                TokenState::Initial => "Initial",
                TokenState::Authenticated => "Authenticated",
                TokenState::Expired => "Expired",
            };
            environment.set("session_state", state);
        }
        if !client.username.is_empty() {
            environment.set("username", &client.username);
        }

        let mut jobs = Jobs::default();
        let script = |hook, command, arguments: Vec<String>, environment: &Environment| {
            self.hooks
                .invocation(hook, command, arguments, environment)
                .map_err(|e| Refusal::logged(e.to_string()))
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
                return Err(Refusal::logged("no user name and password"));
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
        jobs.directory = self.script_directory();
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
        let _who = whose.and_then(|(id, _)| self.speak_of(id));
        match (done, whose) {
            (Done::Told(Err(error)), _) => log::warn!("WARNING: {error}"),
            (Done::Judged(auth, judged), Some((id, _))) => self.judged(id, auth, judged),
            (Done::Answered(auth, Err(error)), Some((id, _))) => {
                if let Some(client) = self.clients.get_mut(&id) {
                    client.deferred = None;
                }
                self.decide(id, auth, Err(Refusal::logged(error.to_string())));
            }
            (Done::Settled(outcome), Some((id, _))) => self.settled(id, outcome),
            _ => {}
        }
    }

    fn judged(&mut self, id: ClientId, auth: AuthId, judged: Judged) {
        if judged.certificate
            && self.config.scripts.tls_verify.is_some()
            && let Some(certificate) = self.listener.session(id).and_then(Session::certificate)
        {
            verified(certificate);
        }
        let answer = match judged.answer {
            Ok(answer) => answer,
            Err(error) => return self.decide(id, auth, Err(Refusal::logged(error.to_string()))),
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
                self.decide(id, auth, Err(Refusal::by_script(reason)));
            }
            _ => self.decide(id, auth, Ok(())),
        }
    }

    /// The client has answered what was asked of it while its login is judged: a script is told,
    /// which decides as the one before it may (`client-crresponse`).
    pub(super) fn answered(&mut self, id: ClientId, response: String) {
        let config = self.config;
        let (Some(command), Some(client)) =
            (&config.scripts.client_crresponse, self.clients.get(&id))
        else {
            return;
        };
        let Some(Deferred::Login(auth, files)) = &client.deferred else {
            log::debug!("an answer to nothing");
            return;
        };
        let (auth, number, directory) = (*auth, client.number, self.script_directory());
        // A client may answer as often as it likes: a script is told of one answer at a time.
        if self.jobs.values().any(|whose| *whose == (id, number)) {
            log::debug!("an answer while a script has the one before it");
            return;
        }
        let source = Some(Source::from(client.from));
        let hook = Hook::ClientCrResponse;
        let script = self
            .hooks
            .invocation(hook, command, [], &client.environment)
            .map(|script| files.name_to(script));
        let job = match script {
            Ok(script) => self.background.submit(source, move || {
                Done::Answered(
                    auth,
                    auth_script::tell_response(script, &response, &directory),
                )
            }),
            Err(error) => return log::warn!("WARNING: {error}"),
        };
        match job {
            Ok(job) => {
                self.jobs.insert(job, (id, number));
            }
            Err(busy) => log::warn!("WARNING: {busy}"),
        }
    }

    /// Where files for scripts are made.
    pub(super) fn script_directory(&self) -> PathBuf {
        let config = self.config;
        let wanted = config.scripts.tmp_dir.as_ref();
        wanted.map_or_else(std::env::temp_dir, |path| config.path(path))
    }

    /// Asks the files of scripts that take their time.
    pub(super) fn poll_deferred(&mut self) {
        let waiting: Vec<ClientId> = self
            .clients
            .iter()
            .filter_map(|(id, client)| client.deferred.is_some().then_some(*id))
            .collect();
        for id in waiting {
            let _who = self.speak_of(id);
            let deferred = self.clients.get_mut(&id).and_then(|c| c.deferred.take());
            match deferred {
                Some(Deferred::Login(auth, files)) => match files.verdict() {
                    Verdict::Accepted => self.decide(id, auth, Ok(())),
                    Verdict::Refused(why) => {
                        self.decide(id, auth, Err(Refusal::by_script(why)));
                    }
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

    /// Tells the session whether its client may come in.
    fn decide(&mut self, id: ClientId, auth: AuthId, verdict: Result<(), Refusal>) {
        let decision = match verdict {
            Ok(()) => {
                if let Some(client) = self.clients.get_mut(&id) {
                    client.authorised = true;
                    if let Way::Stream(stream) = client.conduit.way() {
                        self.streams.admitted(stream.id());
                    }
                    if !client.username.is_empty() {
                        log::info!(
                            "TLS: Username/Password authentication succeeded for username '{}'",
                            client.username
                        );
                    }
                }
                Decision::Accept
            }
            Err(why) => {
                log::warn!("TLS Auth Error: {}", why.logged);
                let info = self.listener.session(id).and_then(Session::peer_info);
                let knows = info.is_some_and(|it| it.proto().has(IvProto::AUTH_FAIL_TEMP));
                let mut failed = AuthFailed::because(&why.told);
                if why.temporary && knows {
                    failed.kind = AuthFailedKind::Temporary {
                        backoff: None,
                        advance: Advance::Unspecified,
                    };
                }
                Decision::Reject(failed)
            }
        };
        self.with(id, |session, now, out| {
            session.authenticated(auth, decision, now, out);
        });
    }
}

/// Says that nothing is wrong with a chain, its root first.
fn verified(certificate: &PeerCertificate) {
    for (depth, of) in certificate.chain.iter().enumerate().rev() {
        log::info!("VERIFY OK: depth={depth}, {}", of.subject);
    }
}
