//! The part of a session that is the same for both roles: packets, keys, time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::client::ClientSide;
use super::key_state::{Event, KeyState, Link, Step, next_key_id};
use super::liveness::{Due, Liveness, Times};
use super::output::{CloseReason, ControlTraffic, Dropped, Handshake, Handshaken, Output};
use super::server::{ServerSide, Servers};
use super::slots::Slots;
use crate::data::wire::Layout;
use crate::message::Message;
use crate::negotiate::{Cipher, Transport, occ};
use crate::packet::{CONTROL_HEAD_LEN, ControlHead, ControlPacket, Head, Opcode, SessionId};
use crate::role::Role;
use crate::verify::PeerCertificate;
use crate::wrap::{DynamicWrap, Wrap};

/// Minimum time between two key renewals that a client starts: each costs the server a handshake.
const RENEWED_APART: Duration = Duration::from_secs(1);

/// Features that both sides agreed on when the session came up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agreed {
    pub(super) cipher: Cipher,
    pub(super) layout: Layout,
    /// Data keys come from the TLS exporter.
    pub(super) exporter: bool,
    /// Renegotiations are wrapped by keys from the exporter.
    pub(super) dynamic_wrap: bool,
    /// Both sides understand `EXIT` in the control channel.
    pub(super) cc_exit: bool,
}

#[derive(Debug)]
pub(super) enum Phase {
    /// The session has no keys yet.
    Starting,
    /// Packets may flow.
    Up,
    /// The session has ended and waits until the peer has acknowledged the last messages.
    Closing {
        until: Instant,
        /// Close as soon as the peer has acknowledged everything, without waiting for `until`.
        early: bool,
        reason: CloseReason,
    },
    Closed,
}

pub(super) enum Side {
    Client(Box<ClientSide>),
    Server(Box<ServerSide>, Servers),
}

impl From<(ServerSide, Servers)> for Side {
    fn from((side, servers): (ServerSide, Servers)) -> Self {
        Self::Server(Box::new(side), servers)
    }
}

/// One peer's session, from the first packet to the last.
///
/// Each call appends what the caller has to do to `out`, in order. After [`Output::Closed`] the session does nothing
/// more.
pub struct Session {
    pub(super) side: Side,
    pub(super) own: SessionId,
    pub(super) peer: Option<SessionId>,
    pub(super) wrap: Wrap,
    /// The wrap of renegotiations, if they have one of their own (dynamic tls-crypt).
    pub(super) dynamic: Option<Box<DynamicWrap>>,
    pub(super) primary: KeyState,
    /// The previous negotiation, which may still have messages to acknowledge.
    pub(super) previous: Option<Box<KeyState>>,
    pub(super) slots: Slots,
    pub(super) agreed: Option<Agreed>,
    pub(super) liveness: Liveness,
    pub(super) phase: Phase,
    /// At the last usage report, the newest keys had used up half of a limit.
    pub(super) half_worn: bool,
    /// When to renew the keys because of their age; `None` for never.
    pub(super) renegotiate_at: Option<Instant>,
    /// How long the previous keys stayed the newest: a peer that renews more often than we would sets this pace.
    pub(super) interval: Option<Duration>,
    /// Messages to send after the running negotiation.
    pub(super) queued: VecDeque<Message>,
    /// Number of TLS handshakes handed to other threads so far.
    pub(super) handshakes: u64,
    pub(super) certificate: Option<Arc<PeerCertificate>>,
    /// The group of the last key exchange.
    #[cfg(feature = "postquantum")]
    pub(super) key_exchange: Option<&'static str>,
    /// The peer's option string, once it has come.
    pub(super) options: Option<String>,
    /// The wall clock in seconds since 1970, and the instant at which it was read.
    clock: (u64, Instant),
    pub(super) traffic: Arc<ControlTraffic>,
}

impl Session {
    pub(super) fn new(
        side: Side,
        own: SessionId,
        peer: Option<SessionId>,
        wrap: Wrap,
        primary: KeyState,
        now: Instant,
        wall: SystemTime,
    ) -> Self {
        let seconds = wall
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |it| it.as_secs());
        Self {
            side,
            own,
            peer,
            wrap,
            dynamic: None,
            primary,
            previous: None,
            slots: Slots::default(),
            agreed: None,
            liveness: Liveness::new(super::Timers::default(), now),
            phase: Phase::Starting,
            half_worn: false,
            renegotiate_at: None,
            interval: None,
            queued: VecDeque::new(),
            handshakes: 0,
            certificate: None,
            #[cfg(feature = "postquantum")]
            key_exchange: None,
            options: None,
            clock: (seconds, now),
            traffic: Arc::default(),
        }
    }

    /// Takes a packet of the control channel from the peer's address.
    ///
    /// # Errors
    /// Why the packet was dropped. The session is then unchanged.
    pub fn receive(
        &mut self,
        datagram: &[u8],
        now: Instant,
        out: &mut Vec<Output>,
    ) -> Result<(), Dropped> {
        let packet = self.open(datagram)?;
        self.take(packet, now, out)?;
        self.traffic.add_received(datagram.len());
        self.run(now, out);
        Ok(())
    }

    /// Unwraps a packet and sees whether it is for this session.
    fn open(&mut self, datagram: &[u8]) -> Result<ControlPacket, Dropped> {
        if matches!(self.phase, Phase::Closed) {
            return Err(Dropped::Closed);
        }
        if Head::peek(datagram).is_some_and(|it| it.opcode.is_data()) {
            return Err(Dropped::Data);
        }
        let head = ControlHead::peek(datagram).map_err(Dropped::Packet)?;
        if self.peer.is_some_and(|it| it != head.session) {
            return Err(Dropped::OtherSession);
        }
        let role = self.role();
        let packet = match &mut self.dynamic {
            Some(dynamic) if head.key_id > 0 => dynamic.wrap(&self.wrap, role).open(datagram),
            _ => self.wrap.open(datagram),
        }
        .map_err(Dropped::Wrap)?;
        if packet.peer_session.is_some_and(|it| it != self.own) {
            return Err(Dropped::OtherSession);
        }
        Ok(packet)
    }

    /// Passes a packet to the negotiation that it belongs to.
    pub(super) fn take(
        &mut self,
        packet: ControlPacket,
        now: Instant,
        out: &mut Vec<Output>,
    ) -> Result<(), Dropped> {
        let (opcode, key_id) = (packet.opcode, packet.key_id);
        let ours = match self.role() {
            Role::Client => matches!(opcode, Opcode::HardResetServerV2),
            Role::Server => matches!(
                opcode,
                Opcode::HardResetClientV2 | Opcode::HardResetClientV3 | Opcode::ControlWkcV1
            ),
        };
        let common = matches!(
            opcode,
            Opcode::SoftResetV1 | Opcode::ControlV1 | Opcode::AckV1
        );
        if !ours && !common {
            return Err(Dropped::Unexpected(opcode));
        }
        // By the protocol, a hard reset is always message 0 of key 0.
        if opcode.is_hard_reset() && (key_id != 0 || packet.message_id != Some(0)) {
            return Err(Dropped::Unexpected(opcode));
        }
        if self.peer.is_none() {
            // An answer to our reset names our session id; any other packet belongs to another session.
            if !opcode.is_hard_reset() || packet.peer_session != Some(self.own) {
                return Err(Dropped::OtherSession);
            }
            self.peer = Some(packet.session);
        }
        if opcode == Opcode::SoftResetV1 && key_id != self.primary.key_id {
            if key_id != next_key_id(self.primary.key_id) {
                return Err(Dropped::KeyId(key_id));
            }
            // A peer that starts a new negotiation has received all of the previous one. Stock peers then ignore the
            // previous one, so a lost acknowledgement would never be repeated.
            if self.primary.conclude()
                && let Err(reason) = self.advance(now, out)
            {
                self.fail(reason, now, out);
            }
            if !self.may_renegotiate() {
                return Err(Dropped::KeyId(key_id));
            }
            if matches!(self.role(), Role::Server) && now < self.primary.started + RENEWED_APART {
                return Err(Dropped::TooSoon);
            }
            log::debug!("the peer renews the keys, key id {key_id}");
            self.begin_renegotiation(now, out);
        }
        let state = if key_id == self.primary.key_id {
            &mut self.primary
        } else {
            self.previous
                .as_deref_mut()
                .filter(|it| it.key_id == key_id)
                .ok_or(Dropped::KeyId(key_id))?
        };
        if !state.take(packet, now) {
            return Err(Dropped::TooFarAhead);
        }
        self.liveness.control_received(now);
        Ok(())
    }

    /// Runs the timers that are due. Call it at [`next_deadline`](Self::next_deadline), just after
    /// [`activity`](Self::activity).
    pub fn expired(&mut self, now: Instant, out: &mut Vec<Output>) {
        if matches!(self.phase, Phase::Closed) {
            return;
        }
        self.slots.expire(now, out);
        if matches!(self.phase, Phase::Up) && self.slots.is_empty() {
            return self.close_now(CloseReason::WornOut, out);
        }
        if let Err(reason) = self.tick(now, out) {
            self.fail(reason, now, out);
        }
        self.run(now, out);
    }

    fn tick(&mut self, now: Instant, out: &mut Vec<Output>) -> Result<(), CloseReason> {
        let window = self.settings().keys.hand_window;
        if let Phase::Closing { .. } = self.phase {
            return Ok(());
        }
        if self.primary.step < Step::Active && now >= self.primary.started + window {
            return Err(CloseReason::HandshakeWindow(window));
        }
        if self.renegotiate_at.is_some_and(|at| now >= at) {
            self.renegotiate(now, out);
        }
        match &self.side {
            Side::Client(_) => self.tick_client(now, out)?,
            Side::Server(..) => self.tick_server(now, out)?,
        }
        if matches!(self.phase, Phase::Up) {
            match self.liveness.due(now) {
                Some(Due::Ping) => out.push(Output::SendPing),
                // The peer is gone, or the daemon ends anyway: send nothing.
                Some(Due::Close(reason)) => self.close_now(reason, out),
                None => {}
            }
        }
        Ok(())
    }

    /// When to call [`expired`](Self::expired) next; in the past if a timer is already due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let window = self.settings().keys.hand_window;
        let mut deadlines = vec![self.primary.next_deadline()];
        deadlines.push(self.previous.as_ref().and_then(|it| it.next_deadline()));
        match &self.phase {
            Phase::Closed => return None,
            Phase::Closing { until, .. } => deadlines.push(Some(*until)),
            Phase::Starting | Phase::Up => {
                if self.primary.step < Step::Active {
                    deadlines.push(Some(self.primary.started + window));
                }
                deadlines.push(self.renegotiate_at.filter(|_| self.may_renegotiate()));
                deadlines.push(self.request_by());
                deadlines.push(self.slots.next_deadline());
                deadlines.push(match &self.side {
                    Side::Client(client) => client.next_deadline(),
                    Side::Server(server, _) => server.next_deadline(),
                });
                if matches!(self.phase, Phase::Up) {
                    deadlines.push(self.liveness.next_deadline());
                }
            }
        }
        deadlines.into_iter().flatten().min()
    }

    /// Reports when the data plane last sent and received packets.
    pub fn activity(&mut self, times: Times) {
        self.liveness.activity(times);
    }

    /// Overrides `inactive` and `session-timeout` for this peer, where given. For a session that is up.
    pub fn limit(&mut self, inactive: Option<(Duration, u64)>, timeout: Option<Duration>) {
        self.liveness.limit(inactive, timeout);
    }

    /// Advances the negotiation as far as possible, then sends the packets that are due.
    pub(super) fn run(&mut self, now: Instant, out: &mut Vec<Output>) {
        if let Err(reason) = self.advance(now, out) {
            self.fail(reason, now, out);
        }
        self.flush(now, out);
        if let Phase::Closing {
            until,
            early,
            reason,
        } = &self.phase
            && (now >= *until || (*early && self.primary.is_quiet()))
        {
            let reason = reason.clone();
            self.close_now(reason, out);
        }
    }

    fn advance(&mut self, now: Instant, out: &mut Vec<Output>) -> Result<(), CloseReason> {
        let tls = Arc::clone(&self.settings().tls);
        while let Some(event) = self.primary.progress(&tls, self.peer.is_some(), now)? {
            if let Event::Handshake(messages) = event {
                self.hand_out(messages, now, out);
                continue;
            }
            if matches!(self.phase, Phase::Closing { .. } | Phase::Closed) {
                continue;
            }
            match event {
                // Handled above.
                Event::Handshake(_) => {}
                Event::ResendClientKey => self.primary.append_client_key(),
                Event::Verified(peer) => out.push(Output::Judge {
                    key_id: self.primary.key_id,
                    peer,
                }),
                Event::Handshaked => self.handshaked()?,
                Event::Record => self.record(now, out)?,
                Event::Active => self.active(now, out)?,
                Event::Text(text) => self.text(&text, now, out)?,
            }
        }
        // The previous negotiation can only deliver messages that were in flight when the new one began.
        while let Some(previous) = &mut self.previous
            && let Ok(Some(event)) = previous.progress(&tls, true, now)
        {
            if let (Event::Text(text), Phase::Up) = (event, &self.phase) {
                self.text(&text, now, out)?;
            }
        }
        Ok(())
    }

    fn handshaked(&mut self) -> Result<(), CloseReason> {
        let Some(tls) = &self.primary.tls else {
            return Ok(());
        };
        if let Some(description) = tls.describe() {
            log::info!("Control Channel: {description}");
        }
        #[cfg(feature = "postquantum")]
        {
            self.key_exchange = tls.key_exchange();
        }
        let certificate = tls.shared_peer();
        if self.agreed.is_some()
            && !self.is_same_peer(self.certificate.as_deref(), certificate.as_deref())
        {
            return Err(CloseReason::Tls(
                "the peer's certificate differs from the one at the session's start".to_owned(),
            ));
        }
        self.certificate = certificate;
        match &self.side {
            Side::Client(_) => self.write_client_record(),
            Side::Server(..) => Ok(()),
        }
    }

    fn record(&mut self, now: Instant, out: &mut Vec<Output>) -> Result<(), CloseReason> {
        if let Some(record) = &self.primary.peer
            && self.agreed.is_none()
        {
            let expected = self.settings().occ.expected(self.role());
            for difference in occ::differences(&expected, &record.options) {
                match &self.side {
                    Side::Client(_) if difference.starts_with(occ::ONLY_FRAMED_HERE) => log::warn!(
                        "WARNING: {difference}; if no packets come back, remove comp-lzo and compress from the file"
                    ),
                    // Such a session works, so the user need do nothing.
                    _ => log::info!("WARNING: {difference}"),
                }
            }
            self.options = Some(record.options.clone());
        }
        match &self.side {
            // The server has our record, or it would not have answered.
            Side::Client(_) if self.agreed.is_some() => self.install_keys(now, out),
            Side::Client(_) => Ok(()),
            Side::Server(..) => self.take_client_record(now, out),
        }
    }

    fn active(&mut self, now: Instant, out: &mut Vec<Output>) -> Result<(), CloseReason> {
        if let Some(previous) = &mut self.previous {
            // Messages from now on go into the new negotiation.
            previous.tls = None;
        }
        self.say_queued()?;
        if self.primary.installed {
            self.slots.confirm(self.seals_from(), now, out);
        }
        self.schedule_renegotiation();
        match &self.side {
            Side::Client(_) => self.active_client(now),
            Side::Server(..) => self.active_server(now, out),
        }
    }

    /// Hands out the TLS session of the running negotiation, with the messages received for it.
    fn hand_out(&mut self, messages: Vec<Vec<u8>>, now: Instant, out: &mut Vec<Output>) {
        self.handshakes += 1;
        let number = self.handshakes;
        let tls = self.primary.give_away(number, now);
        let work = tls.map(|tls| Handshake::new(number, tls, messages));
        out.extend(work.map(|it| Output::Handshake(Box::new(it))));
    }

    /// Takes back the TLS of a handshake. TLS of a negotiation that has failed meanwhile is dropped.
    pub fn handshaken(&mut self, done: Handshaken, now: Instant, out: &mut Vec<Output>) {
        if matches!(self.phase, Phase::Closed) {
            return;
        }
        match self.primary.take_back(done, now) {
            Some(Ok(())) => {}
            Some(Err(reason)) => self.fail(reason, now, out),
            None => return,
        }
        self.run(now, out);
    }

    /// Marks the session as up and starts its timers.
    pub(super) fn up(&mut self, timers: super::Timers, now: Instant, out: &mut Vec<Output>) {
        self.phase = Phase::Up;
        self.liveness = Liveness::new(timers, now);
        out.push(Output::Connected);
    }

    pub(super) fn flush(&mut self, now: Instant, out: &mut Vec<Output>) {
        if matches!(self.phase, Phase::Closed) {
            return;
        }
        let (wall, role) = (self.wall(now) as u32, self.role());
        let transport = match self.settings().transport() {
            // IPv6 and UDP headers; packets over IPv4 could be 20 bytes larger.
            Transport::Udp => 48,
            Transport::Tcp => 40 + 20 + 2,
        };
        let packet = usize::from(self.settings().max_packet_size);
        let before = out.len();
        for state in self
            .previous
            .as_deref_mut()
            .into_iter()
            .chain([&mut self.primary])
        {
            let wrap = match &mut self.dynamic {
                Some(dynamic) if state.key_id > 0 => dynamic.wrap(&self.wrap, role),
                _ => &mut self.wrap,
            };
            // Four acknowledgements with the session id that belongs to them, and the message's number.
            let head = CONTROL_HEAD_LEN + wrap.overhead() + (1 + 4 * 4 + SessionId::LEN) + 4;
            let mut link = Link {
                own: self.own,
                peer: self.peer,
                wall,
                largest: packet.saturating_sub(transport + head).max(128),
                wrap,
            };
            state.flush(&mut link, now, |it| {
                self.traffic.add_sent(it.len());
                out.push(Output::Send(it));
            });
        }
        if out.len() > before {
            self.liveness.control_sent(now);
        }
    }

    /// Whether a renewal comes from the peer that began: a thief of a token must not go on with another certificate. A
    /// server may have a renewed one of the same name, which passed all rules of the configuration.
    fn is_same_peer(
        &self,
        before: Option<&PeerCertificate>,
        now: Option<&PeerCertificate>,
    ) -> bool {
        let own = |it: Option<&PeerCertificate>| {
            let own = it.and_then(|it| it.chain.first()).map(|it| it.sha256);
            own.filter(|_| matches!(self.side, Side::Server(..)))
        };
        let name = |it: Option<&PeerCertificate>| it.map(|it| it.common_name.clone());
        own(before) == own(now) && name(before) == name(now)
    }

    /// The wall clock in seconds since 1970. It advances with `now`, so setting the system clock does not change it.
    pub(super) fn wall(&self, now: Instant) -> u64 {
        let (seconds, then) = self.clock;
        seconds + now.saturating_duration_since(then).as_secs()
    }
}

impl core::fmt::Debug for Session {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Session")
            .field("role", &self.role())
            .field("own", &self.own)
            .field("peer", &self.peer)
            .field("phase", &self.phase)
            .finish_non_exhaustive()
    }
}
