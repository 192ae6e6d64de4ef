//! The server's part: asks who the client is, gives it its options, and says goodbye.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::key_state::{Authorisation, Step};
use super::machine::{Agreed, Phase, Session, Side};
use super::output::{CloseReason, Output};
use super::settings::ServerSettings;
use super::token::{TokenKeeper, TokenSession};
use crate::data::wire::Layout;
use crate::message::{AuthFailed, Message, Restart};
use crate::negotiate::{IvProto, PeerInfo, cipher, occ};
use crate::push::{PushOptions, bundles};

/// How long a client that requests its options again gets no second answer.
const ANSWERED_FOR: Duration = Duration::from_secs(30);

/// Marks that this build has the server role. Without it the type has no value, and the compiler leaves out the code
/// for servers.
#[cfg(feature = "server")]
pub(super) type Servers = ();

/// This build has no server role.
#[cfg(not(feature = "server"))]
pub(super) type Servers = core::convert::Infallible;

/// The state of servers only.
pub(super) struct ServerSide {
    pub(super) settings: Arc<ServerSettings>,
    /// Authentication questions asked so far.
    pub(super) asked: u64,
    pub(super) peer_info: Arc<PeerInfo>,
    /// The user name of the first negotiation, which later ones must repeat.
    pub(super) username: Option<String>,
    /// The refusal that the client gets once it listens.
    pub(super) refusal: Option<AuthFailed>,
    /// Deadline for the daemon's answer.
    pub(super) answer_by: Option<Instant>,
    /// The client has requested its options, or needs no asking.
    pub(super) push_wanted: bool,
    /// The daemon was asked for the client's options.
    push_asked: bool,
    /// The reply that was sent, and when.
    reply: Vec<String>,
    replied: Option<Instant>,
    pub(super) token: Option<TokenSession>,
}

impl ServerSide {
    #[cfg(feature = "server")]
    pub(super) fn new(settings: Arc<ServerSettings>) -> Self {
        Self {
            settings,
            asked: 0,
            peer_info: Arc::default(),
            username: None,
            refusal: None,
            answer_by: None,
            push_wanted: false,
            push_asked: false,
            reply: Vec::new(),
            replied: None,
            token: None,
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.answer_by
    }
}

impl Session {
    pub(super) fn server_side(&mut self) -> Option<&mut ServerSide> {
        match &mut self.side {
            Side::Server(server, _) => Some(server),
            Side::Client(_) => None,
        }
    }

    /// The client's peer info; empty until the client has sent it.
    #[must_use]
    pub fn peer_info(&self) -> Option<&Arc<PeerInfo>> {
        match &self.side {
            Side::Server(server, _) => Some(&server.peer_info),
            Side::Client(_) => None,
        }
    }

    pub(super) fn active_server(
        &mut self,
        now: Instant,
        out: &mut Vec<Output>,
    ) -> Result<(), CloseReason> {
        if let Some(refusal) = self.server_side().and_then(|it| it.refusal.take()) {
            return self.refuse(refusal, now);
        }
        self.go_on(now, out)
    }

    /// Continues once the client is accepted and reads messages.
    pub(super) fn go_on(&mut self, now: Instant, out: &mut Vec<Output>) -> Result<(), CloseReason> {
        if self.primary.authorisation != Authorisation::Granted {
            return Ok(());
        }
        if self.agreed.is_some() {
            // Install now: the client seals with these keys without waiting for our confirmation.
            if self.primary.step >= Step::Exchanged && !self.primary.installed {
                self.install_keys(now, out)?;
                self.renew_token(now)?;
            }
            return Ok(());
        }
        if self.primary.step != Step::Active {
            return Ok(());
        }
        let Some(server) = self.server_side() else {
            return Ok(());
        };
        if server.push_wanted && !server.push_asked {
            server.push_asked = true;
            out.push(Output::PushRequested);
        }
        Ok(())
    }

    /// The daemon's options for the client, after [`Output::PushRequested`].
    pub fn push(&mut self, options: &PushOptions, now: Instant, out: &mut Vec<Output>) {
        let asked = self.server_side().is_some_and(|it| it.push_asked);
        if !asked || self.agreed.is_some() || !matches!(self.phase, Phase::Starting) {
            return;
        }
        if let Err(reason) = self.push_options(options, now, out) {
            self.fail(reason, now, out);
        }
        self.run(now, out);
    }

    fn push_options(
        &mut self,
        options: &PushOptions,
        now: Instant,
        out: &mut Vec<Output>,
    ) -> Result<(), CloseReason> {
        let occ_cipher = self.peer_options().and_then(|it| occ::value(it, "cipher"));
        let occ_cipher = occ_cipher.map(str::to_owned);
        let token = self.issue_token(now);
        let settings = self.settings();
        let (list, fallback) = (settings.data_ciphers.clone(), settings.fallback);
        let (exporter, epoch) = (settings.exporter, settings.epoch);
        let Some(server) = self.server_side() else {
            return Ok(());
        };
        let info = Arc::clone(&server.peer_info);
        let chosen = cipher::choose_as_server(&list, fallback, &info, occ_cipher.as_deref());
        let cipher = match chosen {
            Ok(cipher) => cipher,
            Err(why) => {
                log::warn!("{why}");
                let told = "Data channel cipher negotiation failed (no shared cipher)";
                return self.refuse(AuthFailed::because(told), now);
            }
        };
        let proto = info.proto();
        let exporter = exporter && proto.has(IvProto::TLS_KEY_EXPORT);
        let peer_id = options.peer_id.filter(|_| proto.has(IvProto::DATA_V2));
        let layout = match peer_id {
            None => Layout::V1,
            Some(peer_id)
                if epoch && exporter && cipher.is_aead() && proto.has(IvProto::DATA_EPOCH) =>
            {
                Layout::Epoch { peer_id }
            }
            Some(peer_id) => Layout::V2 { peer_id },
        };
        let agreed = Agreed {
            cipher,
            layout,
            exporter,
            dynamic_wrap: exporter && proto.has(IvProto::DYN_TLS_CRYPT),
            cc_exit: proto.has(IvProto::CC_EXIT_NOTIFY),
        };
        let mut list = options.options.clone();
        list.extend(peer_id.map(|it| format!("peer-id {it}")));
        list.extend(token.unwrap_or_default());
        list.extend(negotiated(&agreed, &info));
        list.extend(
            options
                .tun_mtu
                .filter(|_| info.mtu().is_some())
                .map(|it| format!("tun-mtu {it}")),
        );
        server.reply = bundles(&list);
        self.agreed = Some(agreed);
        self.send_reply(now)?;
        self.install_keys(now, out)?;
        let timers = self.settings().timers;
        self.up(timers, now, out);
        Ok(())
    }

    fn send_reply(&mut self, now: Instant) -> Result<(), CloseReason> {
        let Some(server) = self.server_side() else {
            return Ok(());
        };
        server.replied = Some(now);
        for bundle in server.reply.clone() {
            self.say(&Message::PushReply(bundle))?;
        }
        Ok(())
    }

    /// The options that carry a token, if tokens are given out and the client has a name.
    fn issue_token(&mut self, now: Instant) -> Option<Vec<String>> {
        use base64::Engine as _;
        let wall = self.wall(now);
        let server = self.server_side()?;
        let keeper: Arc<TokenKeeper> = server.settings.tokens.clone()?;
        let username = server.username.clone().filter(|it| !it.is_empty())?;
        let (token, session) = keeper.issue(&username, server.token, wall);
        server.token = Some(session);
        let user = base64::engine::general_purpose::STANDARD.encode(&username);
        Some(vec![
            format!("auth-token {}", *token),
            format!("auth-token-user {user}"),
        ])
    }

    fn renew_token(&mut self, now: Instant) -> Result<(), CloseReason> {
        match self.issue_token(now) {
            // Push only the token: the first reply had the user name.
            Some(options) => self.say(&Message::PushReply(options[0].clone())),
            None => Ok(()),
        }
    }

    /// Deadline by which a client that is let in must request its options. Without it a silent client would keep its
    /// place for ever.
    pub(super) fn request_by(&self) -> Option<Instant> {
        let Side::Server(server, _) = &self.side else {
            return None;
        };
        let waits = matches!(self.phase, Phase::Starting)
            && self.primary.step == Step::Active
            && server.answer_by.is_none()
            && !server.push_wanted;
        let window = self.settings().hand_window;
        self.primary
            .established
            .filter(|_| waits)
            .map(|at| at + window)
    }

    pub(super) fn tick_server(
        &mut self,
        now: Instant,
        _out: &mut Vec<Output>,
    ) -> Result<(), CloseReason> {
        let late = self
            .server_side()
            .is_some_and(|it| it.answer_by.is_some_and(|by| now >= by));
        if late {
            return self.refuse(AuthFailed::because("Authentication timed out"), now);
        }
        if self.request_by().is_some_and(|by| now >= by) {
            return Err(CloseReason::NoPushRequest(self.settings().hand_window));
        }
        Ok(())
    }

    pub(super) fn message_for_server(
        &mut self,
        message: Message,
        now: Instant,
        out: &mut Vec<Output>,
    ) -> Result<(), CloseReason> {
        match message {
            Message::PushRequest => {
                let Some(server) = self.server_side() else {
                    return Ok(());
                };
                server.push_wanted = true;
                match server.replied {
                    Some(at) if now < at + ANSWERED_FOR => Ok(()),
                    Some(_) => self.send_reply(now),
                    None => self.go_on(now, out),
                }
            }
            Message::Exit => {
                self.client_exits(now, out);
                Ok(())
            }
            other @ (Message::CrResponse(_) | Message::Info(_)) => {
                out.push(Output::Message(other));
                Ok(())
            }
            other => {
                log::debug!("a client has no business with {other:?}");
                Ok(())
            }
        }
    }

    /// Handles the client's exit notice. The session stays for a while, so that a retransmitted packet does not begin a
    /// new one.
    pub(super) fn client_exits(&mut self, now: Instant, out: &mut Vec<Output>) {
        if matches!(self.phase, Phase::Starting | Phase::Up) {
            self.slots.clear(out);
            self.linger(CloseReason::PeerExit, false, now);
        }
    }

    /// Sends the client the reason for the refusal, and ends the session.
    pub(super) fn refuse(&mut self, failed: AuthFailed, now: Instant) -> Result<(), CloseReason> {
        if self.primary.step != Step::Active {
            // The client does not accept a refusal before its keys are active.
            if let Some(server) = self.server_side() {
                server.answer_by = None;
                server.refusal = Some(failed);
            }
            return Ok(());
        }
        self.say(&Message::AuthFailed(failed.clone()))?;
        self.linger(CloseReason::Refused(failed), true, now);
        Ok(())
    }

    /// Tells the client to connect again, and ends the session.
    pub fn restart(&mut self, restart: Restart, now: Instant, out: &mut Vec<Output>) {
        self.farewell(&Message::Restart(restart), now, out);
    }

    /// Tells the client to stop, and ends the session.
    pub fn halt(&mut self, halt: Restart, now: Instant, out: &mut Vec<Output>) {
        self.farewell(&Message::Halt(halt), now, out);
    }

    /// Informs a connected client that it may no longer use the server, and ends the session.
    pub fn deny(&mut self, failed: AuthFailed, now: Instant, out: &mut Vec<Output>) {
        if let Err(reason) = self.refuse(failed, now) {
            self.fail(reason, now, out);
        }
        self.run(now, out);
    }

    fn farewell(&mut self, message: &Message, now: Instant, out: &mut Vec<Output>) {
        if !matches!(self.phase, Phase::Up) || self.say(message).is_err() {
            return self.close_now(CloseReason::Local, out);
        }
        self.linger(CloseReason::Local, true, now);
        self.run(now, out);
    }
}

/// The negotiated features, as options for the client.
fn negotiated(agreed: &Agreed, info: &PeerInfo) -> Vec<String> {
    let mut list = Vec::new();
    if info.negotiates_cipher() {
        list.push(format!("cipher {}", agreed.cipher.name()));
    }
    let mut flags = String::new();
    let mut add = |flag: &str, wanted: bool| {
        if wanted {
            flags.push(' ');
            flags.push_str(flag);
        }
    };
    add("cc-exit", agreed.cc_exit);
    // A client that takes `cc-exit` here takes `tls-ekm` here, too.
    add("tls-ekm", agreed.cc_exit && agreed.exporter);
    add("dyn-tls-crypt", agreed.dynamic_wrap);
    add("aead-epoch", matches!(agreed.layout, Layout::Epoch { .. }));
    if agreed.exporter && !agreed.cc_exit {
        list.push("key-derivation tls-ekm".to_owned());
    }
    if !flags.is_empty() {
        list.push(format!("protocol-flags{flags}"));
    }
    list
}
