//! The client's part: begins, requests its options, and leaves politely.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use log::Level;
use zeroize::Zeroizing;

use super::key_state::KeyState;
use super::machine::{Agreed, Phase, Session, Side};
use super::output::{CloseReason, Output};
use super::settings::{ClientSettings, Timers};
use crate::data::inband::OCC_EXIT;
use crate::data::wire::{Layout, NO_PEER_ID};
use crate::key_method::{Credentials, KeyMethod, Login};
use crate::message::{Message, Restart};
use crate::negotiate::{cipher, occ};
use crate::packet::{Opcode, SessionId};
use crate::push::{Assembler, PushReply};
use crate::role::Role;

/// How often a client requests its options.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// When a client asks the second time. Servers before 2.5 forget requests that come while they still authenticate the
/// client.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Interval between exit notices on the data channel, for servers that take none on the control channel.
const EXIT_EVERY: Duration = Duration::from_secs(1);

/// The state of clients only.
pub(super) struct ClientSide {
    pub(super) settings: Arc<ClientSettings>,
    credentials: Option<Credentials>,
    /// The server's token, which replaces the password.
    token: Option<Credentials>,
    /// The credentials were sent to the server.
    shown: bool,
    assembler: Assembler,
    /// When to request the options next, and when to give up.
    pull: Option<(Instant, Instant)>,
    /// How many exit notices to send.
    exit_notify: u32,
    /// Exit notices still to send, and when the next is due.
    leaving: Option<(u32, Instant)>,
    /// The log already has a warning about a push to the running session.
    warned: bool,
}

impl ClientSide {
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let pull = self.pull.map(|(ask, give_up)| ask.min(give_up));
        pull.into_iter().chain(self.leaving.map(|it| it.1)).min()
    }
}

impl Session {
    /// Begins a session with a server. `wall` is the time of day at `now`.
    ///
    /// # Errors
    /// [`CloseReason::Protocol`] if the system has no random numbers.
    pub fn client(
        settings: Arc<ClientSettings>,
        credentials: Option<Credentials>,
        now: Instant,
        wall: SystemTime,
        out: &mut Vec<Output>,
    ) -> Result<Self, CloseReason> {
        let own = SessionId::random()
            .ok_or_else(|| CloseReason::Protocol("the system gave no random numbers".into()))?;
        let wrap = settings.wrap.wrap();
        let reset = if wrap.client_key_len() > 0 {
            Opcode::HardResetClientV3
        } else {
            Opcode::HardResetClientV2
        };
        let timeout = settings.common.keys.tls_timeout;
        let primary = KeyState::begin(Role::Client, 0, reset, timeout, now)?;
        let side = Side::Client(Box::new(ClientSide {
            exit_notify: settings.explicit_exit_notify.unwrap_or(0),
            settings,
            credentials,
            token: None,
            shown: false,
            assembler: Assembler::default(),
            pull: None,
            leaving: None,
            warned: false,
        }));
        let mut session = Self::new(side, own, None, wrap, primary, now, wall);
        session.run(now, out);
        Ok(session)
    }

    fn client_side(&mut self) -> Option<&mut ClientSide> {
        match &mut self.side {
            Side::Client(client) => Some(client),
            Side::Server(..) => None,
        }
    }

    /// Changes the credentials for the next negotiations. A token takes precedence over them.
    pub fn set_credentials(&mut self, credentials: Option<Credentials>) {
        if let Some(client) = self.client_side() {
            client.credentials = credentials;
        }
    }

    pub(super) fn write_client_record(&mut self) -> Result<(), CloseReason> {
        let source = self.primary.source.clone();
        let (Some(source), Some(client)) = (source, self.client_side()) else {
            return Ok(());
        };
        let login = client.token.as_ref().or(client.credentials.as_ref());
        let record = KeyMethod {
            source,
            options: client.settings.common.occ.local(Role::Client),
            login: login.cloned().map_or(Login::Absent, Login::Given),
            peer_info: client.settings.peer_info().emit(),
        };
        client.shown = true;
        self.primary.write_record(&record)
    }

    /// Whether the server was sent the name and the password, or the token.
    #[must_use]
    pub fn has_shown_login(&self) -> bool {
        matches!(&self.side, Side::Client(client) if client.shown)
    }

    pub(super) fn active_client(&mut self, now: Instant) -> Result<(), CloseReason> {
        if self.agreed.is_some() {
            return Ok(());
        }
        let window = self.settings().keys.hand_window;
        if let Some(client) = self.client_side() {
            client.pull = Some((now + ASK_AGAIN, now + window));
        }
        self.say(&Message::PushRequest)
    }

    pub(super) fn tick_client(
        &mut self,
        now: Instant,
        out: &mut Vec<Output>,
    ) -> Result<(), CloseReason> {
        self.say_exit(now, out);
        let window = self.settings().keys.hand_window;
        let Some(client) = self.client_side() else {
            return Ok(());
        };
        if let Some((ask, give_up)) = &mut client.pull {
            if now >= *give_up {
                return Err(CloseReason::NoPushReply(window));
            }
            if now >= *ask {
                *ask = now + ASK_EVERY;
                return self.say(&Message::PushRequest);
            }
        }
        Ok(())
    }

    pub(super) fn message_for_client(
        &mut self,
        message: Message,
        now: Instant,
        out: &mut Vec<Output>,
    ) -> Result<(), CloseReason> {
        match message {
            Message::PushReply(part) => self.push_reply(&part, now, out),
            Message::PushUpdate(_) => {
                self.warn_of_push(format_args!(
                    "the server changes options of the running tunnel (PUSH_UPDATE), which is not supported"
                ));
                Ok(())
            }
            Message::AuthFailed(failed) => {
                self.sent_away(CloseReason::AuthFailed(failed), now, out);
                Ok(())
            }
            Message::Restart(restart) => {
                self.sent_away(CloseReason::Restart(restart), now, out);
                Ok(())
            }
            Message::Halt(restart) => {
                self.sent_away(CloseReason::Halt(restart), now, out);
                Ok(())
            }
            Message::Exit => {
                self.sent_away(CloseReason::Restart(Restart::default()), now, out);
                Ok(())
            }
            Message::AuthPending { timeout } => {
                self.auth_is_pending(timeout, now);
                out.push(Output::Message(Message::AuthPending { timeout }));
                Ok(())
            }
            Message::Unknown(text) => {
                log::debug!("unknown message: {}", crate::push::loggable(&text));
                Ok(())
            }
            // Only clients say these.
            Message::PushRequest | Message::CrResponse(_) => Ok(()),
            other @ (Message::Info(_) | Message::InfoPre(_)) => {
                out.push(Output::Message(other));
                Ok(())
            }
        }
    }

    /// Warns of an option that the server pushes to the running session: once, as a server may push without end.
    fn warn_of_push(&mut self, words: fmt::Arguments<'_>) {
        let warned = self.client_side();
        let warned = warned.is_none_or(|it| std::mem::replace(&mut it.warned, true));
        log::log!(if warned { Level::Debug } else { Level::Warn }, "{words}");
    }

    /// Extends the wait for the server as it asked, but to no longer than keys last.
    fn auth_is_pending(&mut self, timeout: Option<Duration>, now: Instant) {
        let settings = self.settings();
        let wait = timeout.unwrap_or(settings.keys.hand_window);
        let wait = wait.min(settings.longest_wait());
        if let Some(ClientSide {
            pull: Some((_, give_up)),
            ..
        }) = self.client_side()
        {
            *give_up = now + wait;
        }
    }

    fn push_reply(
        &mut self,
        part: &str,
        now: Instant,
        out: &mut Vec<Output>,
    ) -> Result<(), CloseReason> {
        let up = matches!(self.phase, Phase::Up);
        let Some(client) = self.client_side() else {
            return Ok(());
        };
        let whole = match client.assembler.add(part) {
            Ok(Some(whole)) => whole,
            Ok(None) => return Ok(()),
            Err(error) => return Err(CloseReason::Push(error.to_string())),
        };
        let settings = Arc::clone(&client.settings);
        let options = whole.split(',').filter(|it| !it.is_empty());
        let reply = match PushReply::parse(options, &settings.filter) {
            Ok(reply) => reply,
            // A later push reply can only renew the token.
            Err(error) if up => {
                self.warn_of_push(format_args!(
                    "ignored a push reply of a session that is already up: {error}"
                ));
                return Ok(());
            }
            Err(error) => return Err(CloseReason::Push(error.to_string())),
        };
        self.take_token(&reply, out);
        if up {
            return Ok(());
        }
        self.agree(&reply)?;
        let timers = merged(&settings.common.timers, &reply);
        if let Some(client) = self.client_side() {
            client.pull = None;
            if let Some(times) = reply.explicit_exit_notify {
                client.exit_notify = times;
            }
        }
        out.push(Output::Pushed(Box::new(reply)));
        self.install_keys(now, out)?;
        self.up(timers, now, out);
        Ok(())
    }

    fn take_token(&mut self, reply: &PushReply, out: &mut Vec<Output>) {
        let (Some(token), Some(client)) = (&reply.auth_token, self.client_side()) else {
            return;
        };
        let username = match (&reply.auth_token_user, &client.token, &client.credentials) {
            (Some(user), _, _) => user.clone().into_bytes(),
            (None, Some(known), _) | (None, None, Some(known)) => known.username.clone(),
            (None, None, None) => Vec::new(),
        };
        client.token = Some(Credentials {
            username,
            password: token.as_bytes().to_vec(),
        });
        out.push(Output::AuthToken(Zeroizing::clone(token)));
    }

    /// Takes what the server chose, if we offered it.
    fn agree(&mut self, reply: &PushReply) -> Result<(), CloseReason> {
        let options = self.peer_options().unwrap_or_default();
        let settings = self.settings();
        let cipher = cipher::choose_as_client(
            &settings.data_ciphers,
            settings.fallback,
            reply.cipher.as_deref(),
            occ::value(options, "cipher"),
        )
        .map_err(CloseReason::NoCipher)?;
        let not_offered = |flag: &str| {
            Err(CloseReason::Push(format!(
                "it wants {flag}, which was not offered"
            )))
        };
        if (reply.tls_ekm || reply.dyn_tls_crypt) && !settings.exporter {
            return not_offered("keys from the TLS exporter");
        }
        let layout = match (reply.aead_epoch, reply.peer_id) {
            (true, _) if !settings.epoch || !cipher.is_aead() => return not_offered("aead-epoch"),
            (true, None) => return not_offered("aead-epoch needs a peer id"),
            (true, Some(peer_id)) => Layout::Epoch { peer_id },
            // A server without peer ids, or one that pushes the number that means "no peer id".
            (false, None | Some(NO_PEER_ID)) => Layout::V1,
            (false, Some(peer_id)) => Layout::V2 { peer_id },
        };
        self.agreed = Some(Agreed {
            cipher,
            layout,
            exporter: reply.tls_ekm,
            dynamic_wrap: reply.dyn_tls_crypt,
            cc_exit: reply.cc_exit,
        });
        Ok(())
    }

    /// Takes the daemon's verdict on the [`Output::Judge`] with this number. A verdict on a closed question does
    /// nothing.
    pub fn judged(
        &mut self,
        key_id: u8,
        verdict: Result<(), String>,
        now: Instant,
        out: &mut Vec<Output>,
    ) {
        let open =
            key_id == self.primary.key_id && matches!(self.phase, Phase::Starting | Phase::Up);
        if !open {
            return;
        }
        match self.primary.judged(verdict) {
            Ok(()) => self.run(now, out),
            Err(reason) => self.fail(reason, now, out),
        }
    }

    /// Leaves the session, and tells the peer if that was agreed on. [`Output::Closed`] follows, perhaps later.
    pub fn leave(&mut self, now: Instant, out: &mut Vec<Output>) {
        let (up, stream) = (self.is_up(), self.settings().transport().is_stream());
        let in_band = self.settings().in_band;
        let cc_exit = self.agreed.is_some_and(|it| it.cc_exit);
        let tries = self.client_side().map_or(0, |it| it.exit_notify);
        if !up || tries == 0 {
            return self.close_now(CloseReason::Local, out);
        }
        if cc_exit {
            if self.say(&Message::Exit).is_err() {
                return self.close_now(CloseReason::Local, out);
            }
            self.linger(CloseReason::Local, true, now);
            return self.run(now, out);
        }
        if stream || !in_band {
            // The closed connection tells the server, or no message can.
            return self.close_now(CloseReason::Local, out);
        }
        if let Some(client) = self.client_side() {
            client.leaving = Some((tries, now));
        }
        self.say_exit(now, out);
    }

    /// Sends the next exit notice on the data channel, or closes the session after the last.
    fn say_exit(&mut self, now: Instant, out: &mut Vec<Output>) {
        let Some(client) = self.client_side() else {
            return;
        };
        match client.leaving {
            Some((_, at)) if now < at => {}
            Some((0, _)) => self.close_now(CloseReason::Local, out),
            Some((tries, _)) => {
                client.leaving = Some((tries - 1, now + EXIT_EVERY));
                out.push(Output::SendData(OCC_EXIT.to_vec()));
            }
            None => {}
        }
    }

    /// Ends a session that the server closed. The server waits for our acknowledgement; one that restarts waits for
    /// every client.
    fn sent_away(&mut self, reason: CloseReason, now: Instant, out: &mut Vec<Output>) {
        self.flush(now, out);
        self.close_now(reason, out);
    }

    /// Handles an exit notice from the peer on the data channel.
    pub fn peer_exits(&mut self, now: Instant, out: &mut Vec<Output>) {
        match self.role() {
            Role::Client => self.close_now(CloseReason::Restart(Restart::default()), out),
            Role::Server => self.client_exits(now, out),
        }
    }
}

/// Merges the timers: pushed values override configured ones.
fn merged(ours: &Timers, reply: &PushReply) -> Timers {
    let mut timers = Timers {
        ping: reply.ping.or(ours.ping),
        ping_restart: ours.ping_restart,
        ping_exit: ours.ping_exit,
        inactive: reply.inactive.or(ours.inactive),
        session_timeout: reply.session_timeout.or(ours.session_timeout),
    };
    // Only one of the two counts: the one that came last.
    if reply.ping_restart.is_some() {
        (timers.ping_restart, timers.ping_exit) = (reply.ping_restart, None);
    }
    if reply.ping_exit.is_some() {
        (timers.ping_restart, timers.ping_exit) = (None, reply.ping_exit);
    }
    timers
}
