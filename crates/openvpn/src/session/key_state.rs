//! One negotiation of keys: its messages, its TLS session, and how far it has come.

use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use super::output::{AuthId, CloseReason, Handshaken};
use crate::key_method::{KeyMethod, RECORD_MAX};
use crate::keys::KeySource;
use crate::packet::{AckList, ControlPacket, EarlyNegotiation, Opcode, SessionId};
use crate::reliable::{Acks, Message, Receipt, ReceiveWindow, SendWindow};
use crate::role::Role;
use crate::tls::{TlsError, TlsSession, TlsSettings};
use crate::verify::PeerCertificate;
use crate::wrap::Wrap;

/// Maximum number of TLS bytes that wait to be sent. The longest handshakes, with chains of RSA certificates, have some
/// 16 KiB.
const MAX_TLS_OUT: usize = 64 * 1024;

/// How far a negotiation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// Our reset is not acknowledged, or the peer's has not come.
    Reset,
    /// The TLS handshake is running, or the peer's record has yet to come.
    Tls,
    /// Client: our record is written, the peer's has yet to come. Server: the peer's has come.
    Records,
    /// Both records are there, and the peer has yet to acknowledge everything.
    Exchanged,
    /// The peer has everything. Messages may flow.
    Active,
}

/// Whether the peer may use the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Authorisation {
    /// The daemon was not asked yet.
    Open,
    /// The daemon was asked.
    Asked(AuthId),
    /// The peer may use the keys.
    Granted,
}

/// An event of a negotiation.
#[derive(Debug)]
pub(super) enum Event {
    /// Client: the server's reset requests our wrapped key once more.
    ResendClientKey,
    /// These messages go to TLS on another thread: call [`KeyState::give_away`] next.
    Handshake(Vec<Vec<u8>>),
    /// Client: the server's certificate passed all rules; the daemon has yet to give its verdict.
    Verified(Box<PeerCertificate>),
    /// The TLS handshake is done.
    Handshaked,
    /// The peer's record has come, see [`KeyState::peer`].
    Record,
    /// The negotiation is [`Step::Active`].
    Active,
    /// Text messages from the peer.
    Text(Zeroizing<Vec<u8>>),
}

pub(super) struct KeyState {
    pub(super) key_id: u8,
    pub(super) step: Step,
    role: Role,
    send: SendWindow,
    receive: ReceiveWindow,
    acks: Acks,
    /// Set from [`Step::Tls`] on until newer keys follow; `None` while the handshake is [away](Self::away).
    pub(super) tls: Option<Box<TlsSession>>,
    /// The number of the handshake that another thread runs, and when it was handed out.
    pub(super) away: Option<(u64, Instant)>,
    /// When the negotiation began, moved forward by the time its handshake spent in another thread.
    pub(super) waits_since: Instant,
    handshaked: bool,
    tls_out: Vec<u8>,
    /// The part of the peer's record that TLS has delivered.
    record: Zeroizing<Vec<u8>>,
    /// The peer has sent something inside TLS.
    pub(super) heard_tls: bool,
    /// Our random bytes, until keys are derived from them.
    pub(super) source: Option<KeySource>,
    /// The peer's key-method message, until keys are derived from it.
    pub(super) peer: Option<KeyMethod>,
    /// The next message of TLS carries the wrapped client key.
    append_client_key: bool,
    pub(super) started: Instant,
    pub(super) established: Option<Instant>,
    pub(super) authorisation: Authorisation,
    /// The data keys of this negotiation are installed.
    pub(super) installed: bool,
}

impl KeyState {
    /// Begins with a reset of this kind.
    pub(super) fn begin(
        role: Role,
        key_id: u8,
        reset: Opcode,
        timeout: Duration,
        now: Instant,
    ) -> Result<Self, CloseReason> {
        let mut send = SendWindow::new(timeout);
        // Cannot fail: the window is empty.
        let _ = send.push(reset, Vec::new(), now);
        Self::with(role, key_id, send, ReceiveWindow::new(), Step::Reset, now)
    }

    /// Resumes after a reset exchange for which the server kept no state.
    #[cfg(feature = "server")]
    pub(super) fn resume(timeout: Duration, now: Instant) -> Result<Self, CloseReason> {
        let send = SendWindow::starting_at(1, timeout);
        let receive = ReceiveWindow::starting_at(1);
        Self::with(Role::Server, 0, send, receive, Step::Reset, now)
    }

    fn with(
        role: Role,
        key_id: u8,
        send: SendWindow,
        receive: ReceiveWindow,
        step: Step,
        now: Instant,
    ) -> Result<Self, CloseReason> {
        let source =
            KeySource::generate(role).map_err(|it| CloseReason::Protocol(it.to_string()))?;
        Ok(Self {
            key_id,
            step,
            role,
            send,
            receive,
            acks: Acks::new(),
            tls: None,
            away: None,
            waits_since: now,
            handshaked: false,
            tls_out: Vec::new(),
            record: Zeroizing::default(),
            heard_tls: false,
            source: Some(source),
            peer: None,
            append_client_key: false,
            started: now,
            established: None,
            authorisation: Authorisation::Open,
            installed: false,
        })
    }

    /// Takes a packet that the wrap has let through. Returns `false` for a message from too far ahead.
    pub(super) fn take(&mut self, packet: ControlPacket, now: Instant) -> bool {
        self.send.acknowledge(&packet.acks, now);
        let Some(id) = packet.message_id else {
            return true;
        };
        let receipt: Receipt = self.receive.insert(
            id,
            Message {
                opcode: packet.opcode,
                payload: packet.payload,
            },
        );
        if receipt.is_acknowledged() {
            self.acks.push(id);
        }
        receipt.is_acknowledged()
    }

    /// Advances as far as the received messages allow and returns the first event. Call it until it returns `None`.
    pub(super) fn progress(
        &mut self,
        settings: &TlsSettings,
        peer_known: bool,
        now: Instant,
    ) -> Result<Option<Event>, CloseReason> {
        if self.step == Step::Reset && self.send.is_empty() && peer_known {
            self.tls = Some(Box::new(TlsSession::new(settings).map_err(failed)?));
            self.step = Step::Tls;
        }
        if let Some(event) = self.read(settings)? {
            return Ok(Some(event));
        }
        if let Some(peer) = self.tls.as_deref_mut().and_then(TlsSession::question) {
            return Ok(Some(Event::Verified(Box::new(peer))));
        }
        if let Some(event) = self.deliver()? {
            return Ok(Some(event));
        }
        self.fill()?;
        if self.step == Step::Exchanged && self.send.is_empty() && self.tls_out.is_empty() {
            self.step = Step::Active;
            self.established = Some(now);
            return Ok(Some(Event::Active));
        }
        Ok(None)
    }

    /// Counts everything sent as acknowledged if the negotiation waits for nothing else. Returns whether it did.
    pub(super) fn conclude(&mut self) -> bool {
        let concluded = self.step == Step::Exchanged && self.tls_out.is_empty();
        if concluded {
            self.send.clear();
        }
        concluded
    }

    /// Hands out the TLS session for a handshake on another thread, under this number.
    pub(super) fn give_away(&mut self, number: u64, now: Instant) -> Option<Box<TlsSession>> {
        let tls = self.tls.take()?;
        self.away = Some((number, now));
        Some(tls)
    }

    /// Takes back the TLS session of a handshake. `None` if it belongs to another negotiation.
    pub(super) fn take_back(
        &mut self,
        done: Handshaken,
        now: Instant,
    ) -> Option<Result<(), CloseReason>> {
        let (_, since) = self.away.take_if(|(number, _)| *number == done.number)?;
        self.waits_since += now.saturating_duration_since(since);
        let mut tls = done.tls;
        if done.outcome.is_err() {
            // The alert says why, if the peer still listens.
            self.tls_out.extend(tls.take_tls());
        }
        self.tls = Some(tls);
        Some(done.outcome.map_err(failed))
    }

    /// Hands the messages that arrived to TLS, in order.
    fn read(&mut self, settings: &TlsSettings) -> Result<Option<Event>, CloseReason> {
        let mut apart = Vec::new();
        // Messages for TLS wait until there is a TLS session; before that only the reset is taken.
        while self.tls.is_some() || self.receive.next_id() == 0 {
            let Some(message) = self.receive.pop() else {
                break;
            };
            match message.opcode {
                Opcode::HardResetServerV2 if self.role == Role::Client => {
                    let asked = EarlyNegotiation::parse(&message.payload)
                        .map_err(|it| CloseReason::Protocol(it.to_string()))?;
                    if asked.resend_client_key {
                        return Ok(Some(Event::ResendClientKey));
                    }
                }
                Opcode::ControlV1 | Opcode::ControlWkcV1 => {
                    let Some(tls) = &mut self.tls else {
                        return Err(CloseReason::Protocol(
                            "it does not begin with a reset".into(),
                        ));
                    };
                    if settings.are_handshakes_apart() && tls.is_handshaking() {
                        apart.push(message.payload);
                        continue;
                    }
                    self.heard_tls = true;
                    if let Err(error) = tls.read_tls(&message.payload) {
                        // The alert says why, if the peer still listens.
                        self.tls_out.extend(tls.take_tls());
                        return Err(failed(error));
                    }
                }
                _ => {}
            }
        }
        Ok((!apart.is_empty()).then_some(Event::Handshake(apart)))
    }

    /// Reads what TLS decrypted: first the peer's [`KeyMethod`] message, then control messages.
    fn deliver(&mut self) -> Result<Option<Event>, CloseReason> {
        let Some(tls) = &mut self.tls else {
            return Ok(None);
        };
        if !self.handshaked {
            if tls.is_handshaking() {
                return Ok(None);
            }
            self.handshaked = true;
            return Ok(Some(Event::Handshaked));
        }
        let waits_for_record = match self.role {
            Role::Client => self.step == Step::Records,
            Role::Server => self.step == Step::Tls,
        };
        if waits_for_record {
            self.record.extend_from_slice(&tls.read_plain());
            if self.record.is_empty() {
                return Ok(None);
            }
            let decoded = KeyMethod::decode(&self.record, self.role.peer())
                .map_err(|it| CloseReason::Protocol(it.to_string()))?;
            return match decoded {
                Some((record, length)) => {
                    self.peer = Some(record);
                    // Bytes after the record are messages that came early.
                    self.record = Zeroizing::new(self.record.split_off(length));
                    self.step = match self.role {
                        Role::Client => Step::Exchanged,
                        Role::Server => Step::Records,
                    };
                    Ok(Some(Event::Record))
                }
                None if self.record.len() > RECORD_MAX => {
                    Err(CloseReason::Protocol("its key record has no end".into()))
                }
                None => Ok(None),
            };
        }
        if self.step == Step::Active {
            let early = core::mem::take(&mut self.record);
            let text = if early.is_empty() {
                tls.read_plain()
            } else {
                early
            };
            return Ok((!text.is_empty()).then_some(Event::Text(text)));
        }
        Ok(None)
    }

    /// Applies the daemon's verdict on [`Event::Verified`].
    pub(super) fn judged(&mut self, verdict: Result<(), String>) -> Result<(), CloseReason> {
        match &mut self.tls {
            Some(tls) => tls.judged(verdict).map_err(failed),
            None => Ok(()),
        }
    }

    /// Writes our record into TLS.
    pub(super) fn write_record(&mut self, record: &KeyMethod) -> Result<(), CloseReason> {
        let bytes = record
            .encode(self.role)
            .map_err(|it| CloseReason::Protocol(it.to_string()))?;
        self.say(&bytes)?;
        self.step = match self.role {
            Role::Client => Step::Records,
            Role::Server => Step::Exchanged,
        };
        Ok(())
    }

    /// Writes a message into TLS.
    pub(super) fn say(&mut self, plain: &[u8]) -> Result<(), CloseReason> {
        match &mut self.tls {
            Some(tls) => tls.write_plain(plain).map_err(failed),
            None => Ok(()),
        }
    }

    /// Appends the wrapped client key to the next message of TLS.
    pub(super) fn append_client_key(&mut self) {
        self.append_client_key = true;
    }

    /// Collects the bytes that TLS wants to send.
    fn fill(&mut self) -> Result<(), CloseReason> {
        if let Some(tls) = &mut self.tls {
            self.tls_out.extend(tls.take_tls());
        }
        if self.tls_out.len() > MAX_TLS_OUT {
            return Err(CloseReason::Protocol(
                "it does not acknowledge messages".into(),
            ));
        }
        Ok(())
    }

    /// Wraps and sends the packets that are due.
    pub(super) fn flush(
        &mut self,
        link: &mut Link<'_>,
        now: Instant,
        mut send: impl FnMut(Vec<u8>),
    ) {
        if let Some(tls) = &mut self.tls {
            self.tls_out.extend(tls.take_tls());
        }
        while !self.tls_out.is_empty() && self.send.room() > 0 {
            let (opcode, room) = if core::mem::take(&mut self.append_client_key) {
                let room = link.largest.saturating_sub(link.wrap.client_key_len());
                (Opcode::ControlWkcV1, room.max(128))
            } else {
                (Opcode::ControlV1, link.largest)
            };
            let rest = self.tls_out.split_off(room.min(self.tls_out.len()));
            let payload = core::mem::replace(&mut self.tls_out, rest);
            // Cannot fail: there is room.
            let _ = self.send.push(opcode, payload, now);
        }
        while let Some(message) = self.send.pop_due(now) {
            let acks = match link.peer {
                Some(_) => self.acks.take(AckList::MAX_WITH_MESSAGE),
                None => AckList::new(),
            };
            send(link.seal(
                self.key_id,
                message.opcode,
                acks,
                Some(message.message_id),
                message.payload.to_vec(),
            ));
        }
        // SoftEther drops packets with more than four, and has no wrap.
        let most = if link.wrap.is_none() {
            AckList::MAX_WITH_MESSAGE
        } else {
            AckList::MAX
        };
        while link.peer.is_some() && self.acks.is_due() {
            let acks = self.acks.take(most);
            send(link.seal(self.key_id, Opcode::AckV1, acks, None, Vec::new()));
        }
    }

    /// Whether the peer has acknowledged everything that we sent.
    pub(super) fn is_quiet(&self) -> bool {
        self.send.is_empty() && self.tls_out.is_empty()
    }

    /// When the next retransmission is due.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.send.next_deadline()
    }
}

// Shaped for `map_err`.
#[allow(clippy::needless_pass_by_value)]
fn failed(error: TlsError) -> CloseReason {
    CloseReason::Tls(error.to_string())
}

/// The means to put messages into packets.
pub(super) struct Link<'a> {
    pub(super) wrap: &'a mut Wrap,
    pub(super) own: SessionId,
    pub(super) peer: Option<SessionId>,
    /// Seconds since 1970.
    pub(super) wall: u32,
    /// Bytes of payload that fit into a packet.
    pub(super) largest: usize,
}

impl Link<'_> {
    fn seal(
        &mut self,
        key_id: u8,
        opcode: Opcode,
        acks: AckList,
        message_id: Option<u32>,
        payload: Vec<u8>,
    ) -> Vec<u8> {
        let packet = ControlPacket {
            opcode,
            key_id,
            session: self.own,
            acks,
            peer_session: self.peer,
            message_id,
            payload,
        };
        self.wrap.seal(&packet, self.wall)
    }
}

/// Numbers go from 0 to 7 and then from 1: 0 is only for the first keys of a session.
pub(super) fn next_key_id(key_id: u8) -> u8 {
    key_id % 7 + 1
}

#[cfg(test)]
mod tests {
    use super::next_key_id;

    #[test]
    fn key_ids_go_round_without_zero() {
        let mut id = 0;
        let ids: Vec<u8> = (0..9)
            .map(|_| {
                id = next_key_id(id);
                id
            })
            .collect();
        assert_eq!(ids, [1, 2, 3, 4, 5, 6, 7, 1, 2]);
    }
}
