//! Decides whether a client may connect, by certificates, passwords and scripts.
//!
//! Scripts and password checks are background jobs; their verdicts come back as [`Done`].

use super::admission::{BUSY, for_now, knows_temporary};
use super::client::{Deferred, Step};
use super::{ClientKey, Cx, Done, Job, JobId, Login, LoginChecks, Machine, Polled, line};
use config::openvpn::ClientCertificate;
use openvpn::message::{AuthFailed, Message};
use openvpn::server::ClientId;
use openvpn::session::{AuthId, AuthRequest, Decision, Session, TokenState};
use openvpn::verify::PeerCertificate;
use openvpn_host::scripts::auth_script::{Credentials, PendingAuth, Verdict};
use openvpn_host::scripts::environment::Environment;
use openvpn_host::scripts::names;
use openvpn_host::scripts::{Hook, tls_verify_arguments};
use plane::SourceNetwork;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Refusal of a client, with its reasons.
#[derive(Default)]
struct Refusal {
    /// Reason that the client gets; may be empty. The client is a stranger, so it gets a script's text or a fixed
    /// sentence.
    told: String,
    /// Reason for the log.
    logged: String,
    /// The client may try again soon, if it understands `TEMP`.
    temporary: bool,
    /// A password file or a script rejected the name and password.
    guessed: bool,
}

impl Refusal {
    /// Refusal whose reason goes only to the log.
    fn logged(why: impl Into<String>) -> Self {
        Self {
            logged: why.into(),
            ..Self::default()
        }
    }

    /// Refusal by a script, with the script's reason.
    fn by_script(reason: Option<String>) -> Self {
        let unsaid = "the password check or a script refused the login";
        Self {
            logged: match reason.as_deref().unwrap_or_default() {
                "" => unsaid.to_owned(),
                reason => reason.to_owned(),
            },
            told: reason.unwrap_or_default(),
            guessed: true,
            ..Self::default()
        }
    }

    /// Temporary refusal: no job could be started.
    fn busy(why: impl Into<String>) -> Self {
        Self {
            told: BUSY.to_owned(),
            logged: why.into(),
            temporary: true,
            ..Self::default()
        }
    }
}

impl Machine<'_> {
    /// Handles a session's request to authenticate its client.
    pub(super) fn authenticate(&mut self, cx: &mut Cx<'_>, id: ClientId, request: &AuthRequest) {
        match self.checks_of(cx, id, request) {
            Ok(Some(checks)) => {
                let Some(client) = self.clients.get_mut(&id) else {
                    return;
                };
                // A client that renews its keys keeps its step.
                if client.step == Step::Arriving {
                    client.step = Step::Judged;
                }
                let (key, source) = (client.key(id), SourceNetwork::from(client.from.address));
                self.judge_login(cx, key, source, (request.id, checks));
            }
            Ok(None) => self.decide(cx, id, request.id, Ok(())),
            Err(why) => self.decide(cx, id, request.id, Err(why)),
        }
    }

    /// Starts the check of a login, after a delay if wrong passwords came from the same source.
    fn judge_login(
        &mut self,
        cx: &mut Cx<'_>,
        key: ClientKey,
        source: SourceNetwork,
        login: (AuthId, LoginChecks),
    ) {
        let (client, now) = (self.clients.get(&key.id), cx.now.monotonic);
        let user = client.map_or(&[][..], |it| it.username.as_bytes());
        if !user.is_empty() {
            if let Some(until) = self.guesses.shut_until(source, user, now) {
                return self.shut.push((until, key, source, login));
            }
            self.guesses.judging(source, user, now);
        }
        let (auth, checks) = login;
        if let Err(busy) = self.start_for(cx, key, source, Job::Login(auth, checks)) {
            self.decide(cx, key.id, auth, Err(Refusal::busy(busy)));
        }
    }

    /// Starts the checks of logins whose delay is over, and drops those of departed clients.
    pub(super) fn judge_shut(&mut self, cx: &mut Cx<'_>) {
        for (until, key, source, login) in std::mem::take(&mut self.shut) {
            if !self.is_there(key) {
                continue;
            }
            match until > cx.now.monotonic {
                true => self.shut.push((until, key, source, login)),
                false => {
                    let _about = self.about(key.id);
                    self.judge_login(cx, key, source, login);
                }
            }
        }
    }

    /// Decides at once if possible: `Ok(None)` admits the client, `Ok(Some)` holds the checks to run, `Err` refuses.
    fn checks_of(
        &mut self,
        cx: &mut Cx<'_>,
        id: ClientId,
        request: &AuthRequest,
    ) -> Result<Option<LoginChecks>, Refusal> {
        let config = self.config;
        let Some(server) = config.server() else {
            return Ok(None);
        };
        let Some(client) = self.clients.get_mut(&id) else {
            return Ok(None);
        };
        let mut verified = None;
        client.username = names::name(&request.username);
        let environment = &mut client.environment;
        let from_certificate = request.certificate.as_ref().map(|c| c.common_name.clone());
        client.common_name = match from_certificate {
            Some(name) if !server.username_as_common_name || client.username.is_empty() => name,
            _ if server.username_as_common_name
                || config.tls.client_certificate == ClientCertificate::None =>
            {
                client.username.clone()
            }
            _ => "UNDEF".to_owned(),
        };
        let certified = request.certificate.as_ref().map(|it| &*it.common_name);
        let name = self.names.of(certified, &client.common_name);
        client.name = name.map(Box::from);
        if let Some(certificate) = &request.certificate {
            for (name, value) in certificate.environment() {
                environment.set(&name, value);
            }
            if config.scripts.tls_verify.is_none() {
                verified.clone_from(&request.certificate);
            }
        }
        environment.set("common_name", &client.common_name);
        environment.set_peer_info(&request.peer_info.emit());
        if server.auth_token.is_some() {
            // A script that judges both passwords and tokens must know which one it got.
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

        if let Some(certificate) = verified {
            self.verified(cx, &certificate);
        }
        let Some(client) = self.clients.get_mut(&id) else {
            return Ok(None);
        };
        let environment = &client.environment;
        let mut checks = LoginChecks::default();
        let script = |hook, command, arguments: Vec<String>, environment: &Environment| {
            self.hooks
                .invocation(hook, command, arguments, environment)
                .map_err(|e| Refusal::logged(e.to_string()))
        };
        if let (Some(command), Some(certificate)) =
            (&config.scripts.tls_verify, &request.certificate)
        {
            for (depth, of) in certificate.chain.iter().enumerate().rev() {
                let arguments = tls_verify_arguments(depth, &of.subject).to_vec();
                checks
                    .certificates
                    .push(script(Hook::TlsVerify, command, arguments, environment)?);
            }
        }
        if let (Some(command), Some(metadata)) =
            (&config.scripts.tls_crypt_v2_verify, client.metadata.take())
        {
            let mut environment = environment.clone();
            environment.set("metadata_type", metadata.kind().unwrap_or(0));
            let invocation = script(Hook::TlsVerify, command, Vec::new(), &environment)?;
            checks.metadata = Some((
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
            if let Some(command) = &config.scripts.auth_user_pass_verify {
                let invocation =
                    script(Hook::AuthUserPassVerify, command, Vec::new(), environment)?;
                checks.login = Some((invocation, login.clone(), config.scripts.password_method));
            }
            if let Some(file) = &self.passwords
                && !request.username.is_empty()
            {
                checks.file = Some((Arc::clone(file), login));
            }
        }
        checks.directory = self.script_directory();
        Ok((!checks.is_empty()).then_some(checks))
    }

    /// Handles the end of a background job.
    pub(super) fn finished(&mut self, cx: &mut Cx<'_>, job: JobId, done: Done) {
        // The client may be gone and its peer id reused.
        let whose = self.jobs.remove(&job).filter(|key| self.is_there(*key));
        let Some(key) = whose else {
            match done {
                Done::Told(Err(error)) => line!(cx, Warn, "WARNING: {error}"),
                Done::Told(Ok(())) => {}
                Done::Login(..) | Done::Settings(_) | Done::Responded(..) => {
                    cx.host.forget(job);
                }
            }
            return;
        };
        let id = key.id;
        let _about = self.about(id);
        match done {
            Done::Login(auth, login) => self.judged(cx, id, auth, job, login),
            Done::Responded(auth, Err(error)) => {
                self.defer(cx, id, None);
                self.decide(cx, id, auth, Err(Refusal::logged(error)));
            }
            Done::Settings(outcome) => self.settled(cx, id, job, outcome),
            Done::Responded(_, Ok(())) | Done::Told(_) => {}
        }
    }

    fn judged(&mut self, cx: &mut Cx<'_>, id: ClientId, auth: AuthId, job: JobId, login: Login) {
        if login.certificate
            && self.config.scripts.tls_verify.is_some()
            && let Some(certificate) = self.listener.session(id).and_then(Session::certificate)
        {
            let certificate = Arc::clone(certificate);
            self.verified(cx, &certificate);
        }
        let (verdict, pending) = match login.answer {
            Ok(answer) => answer,
            Err(error) => return self.decide(cx, id, auth, Err(Refusal::logged(error))),
        };
        if let Some(PendingAuth { timeout, extra, .. }) = pending {
            let timeout = Duration::from_secs(timeout.into());
            self.with(cx, id, |session, now, out| {
                session.send_message(&Message::InfoPre(extra), now, out);
                session.authentication_pending(timeout, now, out);
            });
        }
        match verdict {
            Verdict::Deferred => self.defer(cx, id, Some(Deferred::Login(auth, job))),
            Verdict::Refused(reason) => self.decide(cx, id, auth, Err(Refusal::by_script(reason))),
            Verdict::Accepted => self.decide(cx, id, auth, Ok(())),
        }
    }

    /// Passes the client's answer to a challenge to the `client-crresponse` script while the login is pending. The
    /// script may decide as the first one could.
    pub(super) fn answered(&mut self, cx: &mut Cx<'_>, id: ClientId, response: String) {
        let config = self.config;
        let (Some(command), Some(client)) =
            (&config.scripts.client_crresponse, self.clients.get(&id))
        else {
            return;
        };
        let Some(Deferred::Login(auth, asked)) = client.deferred else {
            return line!(cx, Debug, "the client answered without a challenge");
        };
        let key = client.key(id);
        // A client may answer without limit; only one answer at a time goes to a script.
        if self.jobs.values().any(|whose| *whose == key) {
            return line!(
                cx,
                Debug,
                "the client answered again while a script still checks its last answer"
            );
        }
        let source = SourceNetwork::from(client.from.address);
        let hook = Hook::ClientCrResponse;
        match self
            .hooks
            .invocation(hook, command, [], &client.environment)
        {
            Ok(script) => {
                let directory = self.script_directory();
                let job = Job::Respond {
                    auth,
                    asked,
                    script,
                    response,
                    directory,
                };
                if let Err(busy) = self.start_for(cx, key, source, job) {
                    line!(cx, Warn, "WARNING: {busy}");
                }
            }
            Err(error) => line!(cx, Warn, "WARNING: {error}"),
        }
    }

    /// Directory for script files.
    pub(super) fn script_directory(&self) -> PathBuf {
        let config = self.config;
        match &config.scripts.tmp_dir {
            Some(path) => config.path(path),
            None => self.temporary.clone(),
        }
    }

    /// Checks the files of deferred scripts.
    pub(super) fn poll_deferred(&mut self, cx: &mut Cx<'_>) {
        let clients = self.clients.iter();
        let jobs = clients.filter_map(|(id, client)| Some((*id, client.deferred?.job())));
        for (id, job) in jobs.collect::<Vec<_>>() {
            let _about = self.about(id);
            if let Some(polled) = cx.host.poll(job) {
                self.polled(cx, id, job, polled);
            }
        }
    }

    /// Handles the current content of a job's files.
    fn polled(&mut self, cx: &mut Cx<'_>, id: ClientId, job: JobId, polled: Polled) {
        let deferred = self.clients.get(&id).and_then(|client| client.deferred);
        match (deferred, polled) {
            (Some(Deferred::Login(auth, of)), Polled::Login(verdict)) if of == job => {
                let verdict = match verdict {
                    Verdict::Accepted => Ok(()),
                    Verdict::Refused(why) => Err(Refusal::by_script(why)),
                    Verdict::Deferred => return,
                };
                self.defer(cx, id, None);
                self.decide(cx, id, auth, verdict);
            }
            (Some(Deferred::Settings(of)), Polled::Settings(outcome)) if of == job => {
                self.settled(cx, id, job, outcome);
            }
            _ => {}
        }
    }

    /// Passes the session the decision whether its client may connect.
    fn decide(
        &mut self,
        cx: &mut Cx<'_>,
        id: ClientId,
        auth: AuthId,
        verdict: Result<(), Refusal>,
    ) {
        let decision = match verdict {
            Ok(()) => {
                if let Some(client) = self.clients.get_mut(&id) {
                    client.authorised = true;
                    if let Some(stream) = client.from.connection {
                        self.connections.admitted(stream);
                    }
                    if !client.username.is_empty() {
                        let source = SourceNetwork::from(client.from.address);
                        self.guesses.right(source, client.username.as_bytes());
                        // Checks the waiting logins from this source again: the same user's own delay is over.
                        let now = cx.now.monotonic;
                        for waits in self.shut.iter_mut().filter(|it| it.2 == source) {
                            waits.0 = now;
                        }
                        line!(
                            cx,
                            Info,
                            "TLS: Username/Password authentication succeeded for username '{}'",
                            client.username
                        );
                    }
                }
                Decision::Accept
            }
            Err(why) => {
                line!(cx, Warn, "TLS Auth Error: {}", why.logged);
                if let Some(client) = self.clients.get(&id).filter(|_| why.guessed)
                    && !client.username.is_empty()
                {
                    let (source, user) = (
                        SourceNetwork::from(client.from.address),
                        client.username.as_bytes(),
                    );
                    self.guesses.wrong(source, user, cx.now.monotonic);
                }
                let session = self.listener.session(id);
                let failed = match why.temporary && session.is_some_and(knows_temporary) {
                    true => for_now(&why.told),
                    false => AuthFailed::because(&why.told),
                };
                Decision::Reject(failed)
            }
        };
        self.with(cx, id, |session, now, out| {
            session.authenticated(auth, decision, now, out);
        });
    }

    /// Logs that a certificate chain is valid, root first.
    fn verified(&mut self, cx: &mut Cx<'_>, certificate: &PeerCertificate) {
        for (depth, of) in certificate.chain.iter().enumerate().rev() {
            line!(cx, Info, "VERIFY OK: depth={depth}, {}", of.subject);
        }
    }
}
