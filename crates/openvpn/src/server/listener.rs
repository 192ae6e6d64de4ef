//! The listener: UDP ports, and all connections of TCP ports; its settings and outputs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use plane::{Endpoint, Line, Source};

use super::drops::{Drops, Refused};
use super::table::{ClientId, Remote, Table};
use crate::cookie::{CookieError, CookieKeeper, ResetLimiter};
use crate::keyfile::v2::Metadata;
use crate::packet::{AckList, ControlHead, ControlPacket, EarlyNegotiation, Head, Opcode};
use crate::session::{CloseReason, Dropped, Output, ServerSettings, Session, Start, Times};
use crate::wrap::{FirstPacket, WrapSettings};

/// Number of usable peer ids: the last of the 2^24 means "no peer id".
const MAX_SESSIONS: usize = (1 << 24) - 1;

/// All sessions of a server.
///
/// A session's number is its peer id. The daemon calls a session through [`Listener::with`], which sends the output to
/// the right address and updates the session's deadline.
pub struct Listener {
    settings: ListenerSettings,
    cookies: CookieKeeper,
    pub(super) limiter: ResetLimiter,
    starts: Option<ResetLimiter>,
    pub(super) table: Table,
    drops: Drops,
    /// The server is ending: no new session may begin.
    closing: bool,
    /// The time of day, and the instant at which it was read.
    clock: (SystemTime, Instant),
}

impl Listener {
    /// A listener without sessions. `wall` is the time of day at `now`.
    #[must_use]
    pub fn new(settings: ListenerSettings, now: Instant, wall: SystemTime) -> Self {
        let mut secret = zeroize::Zeroizing::new([0; 32]);
        crypto::random(&mut secret[..]);
        let hand_window = settings.server.common.keys.hand_window;
        let (most, period) = settings.resets;
        Self {
            cookies: CookieKeeper::new(&secret, hand_window, now),
            limiter: ResetLimiter::new(most, period),
            starts: settings
                .starts
                .map(|(most, period)| ResetLimiter::new(most, period)),
            settings,
            table: Table::default(),
            drops: Drops::default(),
            closing: false,
            clock: (wall, now),
        }
    }

    /// Takes a control packet. `called` is our address to which it was sent; answers leave from that address.
    ///
    /// # Errors
    /// Why the packet was dropped; [`drops`](Self::drops) counts it.
    pub fn receive(
        &mut self,
        datagram: &[u8],
        from: Remote,
        called: Option<Source>,
        now: Instant,
        out: &mut Vec<ServerOutput>,
    ) -> Result<(), Refused> {
        let outcome = self.dispatch(datagram, from, called, now, out);
        if let Err(why) = &outcome {
            self.drops.count(why);
        }
        outcome
    }

    fn dispatch(
        &mut self,
        datagram: &[u8],
        from: Remote,
        called: Option<Source>,
        now: Instant,
        out: &mut Vec<ServerOutput>,
    ) -> Result<(), Refused> {
        if Head::peek(datagram).is_some_and(|it| it.opcode.is_data()) {
            return Err(Refused::Session(Dropped::Data));
        }
        let head =
            ControlHead::peek(datagram).map_err(|it| Refused::Session(Dropped::Packet(it)))?;
        if let Some(id) = self.table.find(from, head.session) {
            let Some(session) = self.table.session(id) else {
                return Ok(());
            };
            let mut outputs = Vec::new();
            let outcome = session.receive(datagram, now, &mut outputs);
            if outcome.is_ok() {
                self.table.called(id, called);
            }
            self.route(id, outputs, out);
            self.bound_strangers(out);
            return outcome.map_err(Refused::Session);
        }
        if self.closing {
            return Err(Refused::Closing);
        }
        let wall = self.wall(now);
        let seconds = wall
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |it| it.as_secs());
        let first = self
            .settings
            .wrap
            .open_first(datagram, seconds)
            .map_err(Refused::Wrap)?;
        match head.opcode {
            Opcode::HardResetClientV2 | Opcode::HardResetClientV3 => {
                // A client's reset is always message 0 of key 0.
                if !first.packet.begins_session() {
                    return Err(Refused::NotFirst);
                }
                self.room(from)?;
                let stream = from.is_stream();
                let cannot_resend = head.opcode == Opcode::HardResetClientV3
                    && !first.announces_early_negotiation();
                if !stream && cannot_resend && self.settings.force_cookie {
                    return Err(Refused::NoCookie);
                }
                self.giving_way(now)?;
                // A sender with a connection has proved its address.
                if !stream && !self.limiter.allow(now) {
                    return Err(Refused::Limited);
                }
                if stream || cannot_resend {
                    return self.begin(first, Start::Reset, from, called, now, out);
                }
                self.answer(first, from.address, called, now, seconds, out);
                Ok(())
            }
            // Over TCP the connection has proved the address, so there is no cookie.
            _ if from.is_stream() => Err(Refused::Cookie(CookieError::NotThirdPacket)),
            _ => {
                let own = self
                    .cookies
                    .check(&first.packet, from.address, now)
                    .map_err(Refused::Cookie)?;
                self.room(from)?;
                self.limiter.proven();
                let mut first = first;
                first.wrap.skip_reset();
                self.begin(first, Start::AfterResets(own), from, called, now, out)
            }
        }
    }

    /// Checks that there is room for one more client. A reconnecting client is not kept out by its own old session.
    fn room(&self, from: Remote) -> Result<(), Refused> {
        let most = self.max_clients();
        if self.table.len() >= most
            && self.table.len() - self.table.half_open_len() >= most
            && self.table.at(from).is_empty()
        {
            return Err(Refused::Full);
        }
        Ok(())
    }

    pub(super) fn max_clients(&self) -> usize {
        // Half of all numbers: as many sessions again may be waiting to be let in.
        self.settings.max_clients.min(MAX_SESSIONS / 2)
    }

    /// Answers a reset without keeping any state.
    fn answer(
        &self,
        mut first: FirstPacket,
        from: SocketAddr,
        called: Option<Source>,
        now: Instant,
        seconds: u64,
        out: &mut Vec<ServerOutput>,
    ) {
        let client = first.packet.session;
        let early = EarlyNegotiation {
            resend_client_key: first.packet.opcode == Opcode::HardResetClientV3,
        };
        let reset = ControlPacket {
            opcode: Opcode::HardResetServerV2,
            key_id: 0,
            session: self.cookies.session_id(client, from, now),
            acks: AckList::from_iter([0]),
            peer_session: Some(client),
            message_id: Some(0),
            payload: early.emit(),
        };
        out.push(ServerOutput::Send {
            to: Remote::udp(from),
            called,
            // The field has 32 bits.
            datagram: first.wrap.seal(&reset, seconds as u32),
        });
    }

    fn begin(
        &mut self,
        first: FirstPacket,
        start: Start,
        from: Remote,
        called: Option<Source>,
        now: Instant,
        out: &mut Vec<ServerOutput>,
    ) -> Result<(), Refused> {
        let stream = from.is_stream();
        let streams = self.settings.streams.as_ref().filter(|_| stream);
        let server = Arc::clone(streams.unwrap_or(&self.settings.server));
        if let Some(starts) = self.starts.as_mut().filter(|_| !stream)
            && !starts.allow(now)
        {
            return Err(Refused::TooSoon);
        }
        self.make_room(now, out)?;
        let (metadata, len) = (first.metadata, first.len);
        let mut outputs = Vec::new();
        let session = Session::accept(
            server,
            start,
            first.packet,
            first.wrap,
            now,
            self.wall(now),
            &mut outputs,
        )
        .map_err(Refused::Begin)?;
        session.control_traffic().add_received(len);
        // A client that starts over again and again has at most one session that is up and one that is starting.
        for id in self.table.at(from).to_vec() {
            self.with(id, out, |session, out| {
                if !session.is_up() {
                    session.close(CloseReason::Replaced, out);
                }
            });
        }
        let client = self.table.insert(session, from, called);
        out.push(ServerOutput::Started {
            client,
            from,
            metadata,
        });
        self.route(client, outputs, out);
        Ok(())
    }

    /// Runs `call` on a session and sends its output. `None` if no session has this number.
    pub fn with<R>(
        &mut self,
        id: ClientId,
        out: &mut Vec<ServerOutput>,
        call: impl FnOnce(&mut Session, &mut Vec<Output>) -> R,
    ) -> Option<R> {
        let mut outputs = Vec::new();
        let result = call(self.table.session(id)?, &mut outputs);
        self.route(id, outputs, out);
        Some(result)
    }

    /// Passes on the output of a session.
    fn route(&mut self, client: ClientId, outputs: Vec<Output>, out: &mut Vec<ServerOutput>) {
        let Some((to, called)) = self.table.entry(client).map(|it| (it.remote, it.called)) else {
            return;
        };
        let (mut closed, mut connected) = (false, false);
        for output in outputs {
            match output {
                Output::Send(datagram) => {
                    out.push(ServerOutput::Send {
                        to,
                        called,
                        datagram,
                    });
                    continue;
                }
                Output::Closed(_) => closed = true,
                Output::Connected => connected = true,
                _ => {}
            }
            out.push(ServerOutput::Client { client, output });
        }
        if closed {
            self.table.remove(client);
        } else {
            self.table.requeue(client);
        }
        if connected {
            self.replace(client, to, out);
        }
    }

    /// Ends the sessions that the client had before this one.
    fn replace(&mut self, client: ClientId, remote: Remote, out: &mut Vec<ServerOutput>) {
        let older: Vec<ClientId> = self
            .table
            .at(remote)
            .iter()
            .copied()
            .filter(|it| *it != client)
            .collect();
        for id in older {
            self.with(id, out, |session, out| {
                session.close(CloseReason::Replaced, out);
            });
        }
    }

    /// Runs the timers that are due. `times` returns a client's last packet times in the data plane.
    pub fn expired(
        &mut self,
        now: Instant,
        times: impl Fn(ClientId) -> Times,
        out: &mut Vec<ServerOutput>,
    ) {
        for id in self.due(now) {
            let times = times(id);
            self.with(id, out, |session, out| {
                session.activity(times);
                session.expired(now, out);
            });
        }
    }

    /// The sessions with a timer that is due: call [`Session::activity`], then [`Session::expired`].
    #[must_use]
    pub fn due(&self, now: Instant) -> Vec<ClientId> {
        self.table.due(now)
    }

    /// Stops accepting sessions because the server is ending. A client that was told to leave could otherwise reconnect
    /// just before the server is gone.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// Changes the limits `max-clients`, `connect-freq-initial` and `connect-freq`, as in [`ListenerSettings`].
    pub fn limit(
        &mut self,
        max_clients: usize,
        resets: (u32, Duration),
        starts: Option<(u32, Duration)>,
    ) {
        let settings = &mut self.settings;
        settings.max_clients = max_clients;
        if settings.resets != resets {
            settings.resets = resets;
            self.limiter = ResetLimiter::new(resets.0, resets.1);
        }
        if settings.starts != starts {
            settings.starts = starts;
            self.starts = starts.map(|(most, period)| ResetLimiter::new(most, period));
        }
    }

    /// The newest session of a remote.
    #[must_use]
    pub fn at(&self, remote: Remote) -> Option<ClientId> {
        self.table.at(remote).last().copied()
    }

    /// When to call [`expired`](Self::expired) next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.table.next_deadline()
    }

    /// Moves a client to a new UDP address, from which one of its authentic data packets came: control packets go there
    /// from now on.
    ///
    /// Returns `false` and changes nothing if another client's session has that address: taking it over would cut that
    /// client off. A client over TCP is never moved.
    pub fn floated(&mut self, client: ClientId, to: Endpoint, out: &mut Vec<ServerOutput>) -> bool {
        let (to, called) = (Remote::udp(to.addr), to.source);
        let Some(entry) = self.table.entry(client) else {
            return false;
        };
        if entry.remote == to {
            self.table.called(client, called);
            return true;
        }
        if entry.remote.is_stream() {
            return false;
        }
        let name = |id: ClientId| {
            let certificate = self.table.entry(id)?.session.certificate();
            certificate.map(|it| it.common_name.clone())
        };
        let ours = name(client);
        let others: Vec<ClientId> = self.table.at(to).to_vec();
        if others.iter().any(|it| ours.is_none() || name(*it) != ours) {
            return false;
        }
        self.table.move_to(client, to);
        self.table.called(client, called);
        self.replace(client, to, out);
        true
    }

    /// Ends the sessions of a TCP connection that was closed, and no others.
    pub fn disconnected(&mut self, from: Remote, out: &mut Vec<ServerOutput>) {
        debug_assert!(from.is_stream());
        for id in self.table.at(from).to_vec() {
            self.with(id, out, |session, out| {
                session.close(CloseReason::PeerExit, out);
            });
        }
    }

    /// A session by its number.
    #[must_use]
    pub fn session(&self, id: ClientId) -> Option<&Session> {
        self.table.entry(id).map(|it| &*it.session)
    }

    /// The line to a client, from our address that the client sends to.
    #[must_use]
    pub fn line(&self, id: ClientId) -> Option<Line> {
        let entry = self.table.entry(id)?;
        Some(entry.remote.line(entry.called))
    }

    /// The address and transport of a client.
    #[must_use]
    pub fn remote(&self, id: ClientId) -> Option<Remote> {
        self.table.entry(id).map(|it| it.remote)
    }

    /// All sessions, including those that are not up yet.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.table.ids()
    }

    /// How many sessions there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is no session.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    /// How many packets were dropped.
    #[must_use]
    pub fn drops(&self) -> Drops {
        self.drops
    }

    /// Sets the time of day: `wall` at `now`. The daemon calls this at each wake-up. A router may start with a wrong
    /// clock, and the age of client keys needs the right one.
    pub fn set_wall_clock(&mut self, now: Instant, wall: SystemTime) {
        self.clock = (wall, now);
    }

    fn wall(&self, now: Instant) -> SystemTime {
        let (wall, then) = self.clock;
        wall + now.saturating_duration_since(then)
    }
}

impl core::fmt::Debug for Listener {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Listener")
            .field("sessions", &self.table.len())
            .field("drops", &self.drops)
            .finish_non_exhaustive()
    }
}

/// Settings of a listener.
#[derive(Clone)]
pub struct ListenerSettings {
    /// Settings of the listener's sessions.
    pub server: Arc<ServerSettings>,
    /// Settings of sessions over TCP where the others are over UDP; `None` if all are of one kind.
    pub streams: Option<Arc<ServerSettings>>,
    /// How the control channel is wrapped.
    pub wrap: WrapSettings,
    /// `max-clients`, at most 2^24 - 1, the number of peer ids.
    pub max_clients: usize,
    /// `connect-freq-initial`: how many resets are answered in which time.
    pub resets: (u32, Duration),
    /// `connect-freq`: how many sessions may begin in which time; `None` for no limit. Not for TCP.
    pub starts: Option<(u32, Duration)>,
    /// `force-cookie` of `tls-crypt-v2`: clients before 2.6 that use it are not let in, for they make the server keep
    /// a session before they have proved their address.
    pub force_cookie: bool,
}

impl ListenerSettings {
    /// OpenVPN's defaults.
    #[must_use]
    pub fn new(server: Arc<ServerSettings>, wrap: WrapSettings) -> Self {
        Self {
            server,
            streams: None,
            wrap,
            max_clients: 1024,
            resets: (100, Duration::from_secs(10)),
            starts: None,
            force_cookie: false,
        }
    }
}

/// An action for the caller. Carry actions out in the order in which the listener emits them.
#[derive(Debug)]
pub enum ServerOutput {
    /// Send this datagram, for a session or to a stranger.
    Send {
        /// Destination of the datagram.
        to: Remote,
        /// Our address to send from: the one that the receiver sent to. `None` lets the kernel choose.
        called: Option<Source>,
        /// One datagram; over TCP one packet behind its length.
        datagram: Vec<u8>,
    },
    /// A session began. Nothing is known of the client but its address.
    Started {
        /// Number of the new client.
        client: ClientId,
        /// The client's address and transport.
        from: Remote,
        /// Metadata of the client's tls-crypt-v2 key, for a script to judge.
        metadata: Option<Metadata>,
    },
    /// A session requests something; never [`Output::Send`]. After [`Output::Closed`] another session may get the
    /// number.
    Client {
        /// Number of the client.
        client: ClientId,
        /// Request of the client's session.
        output: Output,
    },
}
