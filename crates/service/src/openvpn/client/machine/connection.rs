//! One connection to one server, from the first packet to the last.

use super::dialling::Candidate;
use super::network::Incoming;
use super::verdict::{Question, judged};
use super::{Machine, Phase};
use crate::inbox::Arrival;
use crate::openvpn::channel::{self, Channel};
use crate::openvpn::client::WRONG_ADDRESS;
use crate::openvpn::client::event::Event;
use crate::openvpn::client::host::{Cx, SERVER, Told};
use crate::openvpn::{device, statusdoc};
use crate::status::PeerStatus;
use openvpn::data::inband::InBand;
use openvpn::key_method::Credentials;
use openvpn::message::Message;
use openvpn::session::{CloseReason, Output, Session};
use openvpn_host::connect::Target;
use openvpn_host::console::log_lines::outer;
use openvpn_host::management::{Addresses, State};
use openvpn_host::scripts::environment::Environment;
use openvpn_host::scripts::{Hook, ipchange_arguments};
use openvpn_host::signals::Signal;
use openvpn_host::terms;
use plane::Now;
use plane::{Endpoint, Line, Moving, Notice, PeerState, Reorder, StreamId};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Interval of key-usage checks: a cipher with short blocks may last only a second.
const TRAFFIC: Duration = Duration::from_millis(500);

/// Minimum interval between two log lines about a server's moves; those between are debug lines.
const MOVES_TOLD_APART: Duration = Duration::from_secs(60);

/// Interval for keys that wear slowly: an idle router should not wake more often than for its pings.
const SLOW_TRAFFIC: Duration = Duration::from_secs(10);

/// Maximum number of outputs that may wait while the interface is set. The client leaves a server that exceeds it, for
/// example by constant key renewals.
const WAITING_MAX: usize = 128;

/// How a connection ended.
#[derive(Debug)]
pub(super) enum End {
    /// The session is over.
    Closed(CloseReason),
    /// A step that the connection needed failed.
    Failed(String),
    /// Connect again over another line, for this reason.
    OtherLine(String),
    /// Connect again from another source address.
    Moved,
}

/// A connection to a server.
pub(in crate::openvpn::client) struct Connection {
    pub(super) target: Box<Target>,
    pub(super) remote: SocketAddr,
    /// The stream's number; `None` for UDP.
    pub(super) stream: Option<StreamId>,
    pub(super) session: Session,
    /// Outputs of the session that are not performed yet.
    pub(super) outputs: VecDeque<Output>,
    /// Network settings that the interface does not have yet. Meanwhile only control-channel outputs are performed.
    pub(super) incoming: Option<Incoming>,
    /// Question that `tls-verify` is answering.
    pub(super) question: Option<Question>,
    pub(super) channel: Channel,
    traffic_at: Instant,
    pub(super) end: Option<End>,
    /// The signal that ends the connection.
    pub(super) leaving: Option<Signal>,
    heard: bool,
    /// The server's certificate is accepted.
    certified: bool,
    /// Deadline for the server's first packet (`server-poll-timeout`); then the next server is tried.
    patience: Instant,
    /// The session is up but not announced: the routes are missing.
    unannounced: bool,
    /// Why the server's packets are dropped, with the remedy.
    pub(in crate::openvpn::client) dropped: Option<&'static str>,
    /// When the log last reported a move of the server.
    move_told: Option<Instant>,
    /// When the session began, or when it came up.
    pub(super) since: SystemTime,
}

impl Connection {
    pub(in crate::openvpn::client) fn session(&self) -> &Session {
        &self.session
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        if self.end.is_some() {
            return None;
        }
        let traffic = self.channel.has_keys().then_some(self.traffic_at);
        let patience = (!self.heard).then_some(self.patience);
        let session = self.session.next_deadline();
        session.into_iter().chain(traffic).chain(patience).min()
    }

    /// Reads the data plane's state of the server.
    pub(super) fn look(&mut self, cx: &Cx<'_>) -> PeerState {
        let state = cx.plane(|plane| self.channel.look(plane, SERVER));
        state.unwrap_or_default()
    }

    /// Carries out an output about keys and data packets. Returns whether it installed keys.
    pub(super) fn carry_out(&mut self, output: Output, insecure: bool, cx: &mut Cx<'_>) -> bool {
        let (channel, peer) = (&mut self.channel, (SERVER, self.remote));
        let done = cx.plane(|plane| channel.carry_out(output, plane, peer, insecure, cx.now));
        match done {
            Some(Ok(Some(keys))) => {
                let backend = keys.cipher.backend;
                cx.info(format!("Data Channel: cipher '{}', {backend}", keys.agreed));
                return true;
            }
            Some(Err(error)) => {
                self.fail(error);
                // Discards outputs that would use the keys.
                self.outputs.clear();
            }
            Some(Ok(None)) | None => {}
        }
        false
    }

    /// Checks the usage of the newest keys.
    pub(super) fn watch_keys(&mut self, now: Now, outputs: &mut Vec<Output>, cx: &Cx<'_>) {
        let Some(key_id) = self.session.newest_keys() else {
            return;
        };
        let channel = &mut self.channel;
        if let Some(Some(usage)) = cx.plane(|plane| channel.usage(plane, SERVER, key_id)) {
            self.session.traffic(&usage, now.monotonic, outputs);
        }
    }

    /// Runs the session's due timers.
    pub(super) fn timers(&mut self, state: &PeerState, now: Now, outputs: &mut Vec<Output>) {
        let mut times = channel::times(state);
        if self.incoming.is_some() {
            // The keys that would open the server's packets are not installed yet.
            times.last_received = Some(now.monotonic);
        }
        self.session.activity(times);
        let deadline = self.session.next_deadline();
        if deadline.is_some_and(|at| at <= now.monotonic) {
            self.session.expired(now.monotonic, outputs);
        }
    }

    /// Returns the server's part of the status. `state` comes from the data plane.
    pub(in crate::openvpn::client) fn status(&self, state: &PeerState) -> PeerStatus {
        statusdoc::peer(&self.channel, self.remote, state, &self.session, self.since)
    }

    /// Ends the connection with an error, unless it has ended already.
    pub(super) fn fail(&mut self, error: String) {
        self.end.get_or_insert(End::Failed(error));
    }

    /// Whether the server has sent anything.
    pub(super) const fn has_heard(&self) -> bool {
        self.heard
    }

    /// The server's time limit, if it passed without a first packet.
    pub(super) fn waited_in_vain(&self, now: Instant) -> Option<Duration> {
        let time = Duration::from_secs(self.target.connection.connect_timeout.into());
        (!self.heard && now >= self.patience).then_some(time)
    }

    fn close(&mut self, reason: CloseReason) {
        self.end.get_or_insert(End::Closed(reason));
    }
}

impl Machine<'_> {
    /// Begins a session over a new socket.
    pub(super) fn begin_session(
        &mut self,
        candidate: Candidate,
        remote: SocketAddr,
        stream: Option<StreamId>,
        cx: &mut Cx<'_>,
    ) {
        let Candidate { target, login } = candidate;
        let connection = &target.connection;
        let known = self.wraps.iter().find(|(it, _)| *it == connection.wrap);
        let Some((_, wrap)) = known else {
            return self.attempt_failed("the control channel's keys were not loaded", cx);
        };
        let tls = Arc::clone(&self.tls);
        let settings = terms::client(
            self.config,
            connection,
            tls,
            wrap.clone(),
            self.mover.is_for_kernel(),
        );
        let login = login.map(|login| Credentials {
            username: login.name.into_bytes(),
            password: login.password.as_bytes().to_vec(),
        });
        let mut outputs = Vec::new();
        let settings = Arc::new(settings);
        let (monotonic, wall) = (cx.now.monotonic, cx.now.wall);
        let session = match Session::client(settings, login, monotonic, wall, &mut outputs) {
            Ok(session) => session,
            Err(why) => {
                self.close_line(stream, cx);
                return self.attempt_failed(&why.to_string(), cx);
            }
        };
        let by_lines = self.lines.is_some() && stream.is_none();
        let (float, endpoint) = (connection.float, Endpoint::new(remote));
        let moving = if float { Moving::Tell } else { Moving::Stay };
        let line = match stream {
            Some(stream) => Line::tcp(endpoint, stream),
            None => Line::udp(endpoint),
        };
        cx.plane(|plane| {
            if by_lines {
                // Each uplink adds its path when it opens.
                plane.add_peer(SERVER, moving);
            } else {
                channel::add_peer(plane, SERVER, line, moving);
            }
            plane.change_routes(&device::everywhere(SERVER));
        });
        if by_lines {
            self.call_by_lines(remote, cx);
        }
        // TCP keeps packets in order.
        if self.config.data.reorder && stream.is_none() {
            cx.plane(|plane| plane.set_reorder(SERVER, Some(Reorder::default())));
        }
        cx.host.refresh_revocations();
        let patience = Duration::from_secs(connection.connect_timeout.into());
        self.phase = Phase::Connection(Box::new(Connection {
            target,
            remote,
            stream,
            session,
            outputs: outputs.into(),
            incoming: None,
            question: None,
            channel: Channel::new(stream.is_some()),
            traffic_at: monotonic + TRAFFIC,
            end: None,
            leaving: None,
            heard: false,
            certified: false,
            patience: monotonic + patience,
            unannounced: false,
            dropped: None,
            move_told: None,
            since: wall,
        }));
        self.with_connection(cx, |machine, it, cx| machine.perform(it, cx));
    }

    /// Handles an event that needs a connection.
    pub(super) fn connection_event(&mut self, it: &mut Connection, event: Event, cx: &mut Cx<'_>) {
        let mut outputs = Vec::new();
        match event {
            Event::Control(arrival) => self.control(it, &arrival, cx.now, &mut outputs, cx),
            Event::Message(bytes) if InBand::of(&bytes) == Some(InBand::Exit) => {
                it.session.peer_exits(cx.now.monotonic, &mut outputs);
            }
            Event::Message(bytes)
                if it.stream.is_none()
                    && matches!(InBand::of(&bytes), Some(InBand::Options(_))) =>
            {
                self.answered_by_line(cx.now);
            }
            Event::Notice(Notice::Moved { .. }) => {
                let line = it.look(cx).line;
                self.follow_server(it, line, cx);
            }
            Event::Notice(notice) => noticed(it, notice, cx.now, &mut outputs, cx),
            Event::StreamClosed(stream) if it.stream == Some(stream) => {
                cx.info("Connection reset, restarting [0]");
                it.close(CloseReason::Local);
            }
            Event::Planned(number, planned) => self.planned(it, number, planned, cx),
            Event::Judged(number, passed, verdict) => {
                judged(it, number, passed, verdict, cx.now, &mut outputs, cx);
            }
            Event::InterfaceSet(set) => self.interface_set(it, *set, cx),
            Event::RoutesSet => self.routes_set(it, cx),
            _ => {}
        }
        it.outputs.extend(outputs);
        self.perform(it, cx);
    }

    fn control(
        &mut self,
        it: &mut Connection,
        arrival: &Arrival,
        now: Now,
        outputs: &mut Vec<Output>,
        cx: &mut Cx<'_>,
    ) {
        // Drops packets of an earlier stream or from another address.
        let there = self.relay_on(arrival.line).unwrap_or(it.remote);
        let elsewhere = arrival.from.addr != there && !it.target.connection.float;
        let elsewhere = elsewhere || !self.is_used(arrival.line);
        if arrival.stream != it.stream || (it.stream.is_none() && elsewhere) {
            self.refusals.count(WRONG_ADDRESS);
            return;
        }
        let received = it.session.receive(&arrival.bytes, now.monotonic, outputs);
        if received.is_ok() && it.stream.is_none() {
            self.heard_by_line(arrival.line, cx);
        }
        match received {
            Ok(()) if !it.heard => {
                it.heard = true;
                self.calling.answered(cx);
                cx.state(State::Auth, "");
                cx.info(format!("TLS: Initial packet from {}", outer(it.remote)));
            }
            Ok(()) => {}
            // Debug level: any sender that reaches the port can cause this.
            Err(why) => {
                self.refusals.count(why.name());
                let from = outer(arrival.from.addr);
                cx.debug(format!("control packet from {from}: {why}"));
            }
        }
        if !it.certified && it.session.certificate().is_some() {
            it.certified = true;
            cx.state(State::GetConfig, "");
        }
    }

    /// Does the work that is due.
    pub(super) fn tick(&mut self, it: &mut Connection, cx: &mut Cx<'_>) {
        if it.end.is_some() {
            return;
        }
        if !it.heard && cx.now.monotonic >= it.patience {
            cx.info("Server poll timeout, restarting");
            cx.info("SIGUSR1[soft,server_poll] received, process restarting");
            return it.close(CloseReason::Local);
        }
        let mut outputs = Vec::new();
        let state = it.look(cx);
        it.timers(&state, cx.now, &mut outputs);
        if cx.now.monotonic >= it.traffic_at {
            // The kernel's data plane and the revocation list need frequent checks.
            let seldom = it.session.wears_slowly()
                && !self.mover.is_for_kernel()
                && self.config.tls.crl.is_none();
            it.traffic_at = cx.now.monotonic + if seldom { SLOW_TRAFFIC } else { TRAFFIC };
            cx.host.refresh_revocations();
            it.watch_keys(cx.now, &mut outputs, cx);
        }
        it.outputs.extend(outputs);
        self.set_late_routes(cx);
        self.perform(it, cx);
        self.announce(it, cx);
    }

    /// Leaves the server politely, or at once on the second request.
    pub(super) fn leave(&mut self, it: &mut Connection, signal: Signal, cx: &mut Cx<'_>) {
        if it.leaving.replace(signal).is_some() {
            return it.close(CloseReason::Local);
        }
        let mut outputs = Vec::new();
        it.session.leave(cx.now.monotonic, &mut outputs);
        it.outputs.extend(outputs);
        self.perform(it, cx);
    }

    /// Performs the session's outputs in order; those that must wait for the interface stay.
    pub(super) fn perform(&mut self, it: &mut Connection, cx: &mut Cx<'_>) {
        let mut waiting = 0;
        while let Some(output) = it.outputs.get(waiting) {
            if it.incoming.is_some() && waits(output) {
                waiting += 1;
            } else if let Some(output) = it.outputs.remove(waiting) {
                self.one(it, output, cx);
            }
        }
        if waiting > WAITING_MAX {
            it.fail("the server renews its keys endlessly".to_owned());
        }
    }

    /// Logs the server's message; rate-limited, because a server may send them without end.
    fn say(&mut self, message: &Message, cx: &mut Cx<'_>) {
        let words = match message {
            Message::Info(text) | Message::InfoPre(text) => {
                format!("Info command was pushed by server ('{text}')")
            }
            Message::AuthPending { .. } => {
                cx.state(State::AuthPending, "");
                "AUTH_PENDING received, waiting".to_owned()
            }
            other => return cx.debug(format!("{other:?}")),
        };
        let (told, note) = self.talk.judge(cx.now.monotonic);
        let words = Some(words).filter(|_| told);
        note.into_iter().chain(words).for_each(|it| cx.info(it));
    }

    fn one(&mut self, it: &mut Connection, output: Output, cx: &mut Cx<'_>) {
        match output {
            Output::Send(packet) => {
                self.asked_by_line(&packet, cx.now);
                let to = self.destination(it.remote);
                cx.plane(|plane| plane.send_to_peer(SERVER, to, &packet));
            }
            // A ping needs a key.
            Output::SendPing if it.incoming.is_some() => {}
            Output::Judge { key_id, peer } => self.judge(it, key_id, &peer, cx),
            Output::Pushed(reply) => self.pushed(it, reply, cx),
            Output::AuthToken(token) => {
                self.logins.keep_token(&token);
                cx.tell(Told::AuthToken(token));
            }
            Output::Message(message) => self.say(&message, cx),
            Output::Connected => self.connected(it, cx),
            Output::Renegotiated { key_id } => {
                cx.info(format!("new data channel keys, key id {key_id}"));
            }
            Output::Closed(reason) => it.close(reason),
            // Outputs of server sessions only.
            Output::Authenticate(_) | Output::PushRequested | Output::Handshake(_) => {}
            keys_or_data => {
                if it.carry_out(keys_or_data, self.config.data.allow_insecure, cx) {
                    self.know_relays(cx);
                }
            }
        }
    }

    /// Takes the line over which the data plane now reaches the server.
    fn follow_server(&mut self, it: &mut Connection, line: Option<Line>, cx: &mut Cx<'_>) {
        let Some(to) = line
            .map(|it| it.endpoint.addr)
            .filter(|to| *to != it.remote)
        else {
            return;
        };
        let from = std::mem::replace(&mut it.remote, to);
        let again = |at: Instant| cx.now.monotonic < at + MOVES_TOLD_APART;
        let text = format!("the server floated from {from} to {to}");
        if it.move_told.is_some_and(again) {
            cx.debug(text);
        } else {
            it.move_told = Some(cx.now.monotonic);
            cx.info(text);
        }
        cx.plane(|plane| channel::follow(plane, SERVER, from, to));
        self.server_moved(to, cx);
    }

    /// Script environment of the configuration and the authenticated server.
    pub(super) fn environment_of(&self, it: &Connection) -> Environment {
        let mut environment = self.hooks.base.clone();
        for (name, value) in it
            .session
            .certificate()
            .iter()
            .flat_map(|it| it.environment())
        {
            environment.set(&name, value);
        }
        for prefix in ["untrusted", "trusted"] {
            environment.set_peer(prefix, it.remote);
        }
        environment
    }

    fn connected(&mut self, it: &mut Connection, cx: &mut Cx<'_>) {
        let environment = self.environment_of(it);
        let script = self.config.scripts.ipchange.as_ref();
        let arguments = ipchange_arguments(it.remote);
        self.run_script(Hook::IpChange, script, arguments, &environment, cx);
        let peer = it.session.certificate().map(|c| c.common_name.clone());
        cx.info(format!(
            "[{}] Peer Connection Initiated with {}",
            peer.unwrap_or_default(),
            outer(it.remote)
        ));
        if it.stream.is_none() {
            self.connected_by_lines(it, cx);
        }
        let (ping, silence) = it.session.keep_alive();
        cx.plane(|plane| plane.keep_alive(SERVER, ping, silence));
        self.restarted = true;
        self.was_up = true;
        // The server's own address is unknown behind a relay.
        if self.destination(it.remote).is_some()
            && let Some((name, address)) = self.attempts.proved()
        {
            cx.host.keep_address(&name, address);
        }
        it.since = cx.now.wall;
        // The server's certificate is valid now, so the true time is later than the start of its validity.
        cx.keep_floor(&mut self.floor, cx.now.wall);
        it.unannounced = true;
        self.announce(it, cx);
    }

    /// Announces the tunnel once its routes are set: scripts and users rely on them.
    pub(super) fn announce(&mut self, it: &mut Connection, cx: &mut Cx<'_>) {
        let late = self.network.as_ref().is_some_and(|it| !it.is_complete());
        if late || !std::mem::take(&mut it.unannounced) {
            return;
        }
        (self.is_connected, cx.connected) = (true, true);
        let took = self.calling.is_up(cx.now.monotonic);
        let (tunnel, tunnel_v6) = self.addresses();
        let addresses = Addresses {
            tunnel,
            tunnel_v6,
            remote: Some(it.remote),
        };
        cx.tell(Told::State(
            State::Connected,
            "SUCCESS".to_owned(),
            addresses,
        ));
        cx.later(move |host| host.is_up(took));
    }
}

/// Whether an output must wait for the interface: keys, because `up` must run before traffic flows, and messages about
/// the session.
fn waits(output: &Output) -> bool {
    !matches!(
        output,
        Output::Send(_)
            | Output::SendPing
            | Output::Judge { .. }
            | Output::AuthToken(_)
            | Output::Message(_)
            | Output::Closed(_)
    )
}

fn noticed(
    it: &mut Connection,
    notice: Notice,
    now: Now,
    outputs: &mut Vec<Output>,
    cx: &mut Cx<'_>,
) {
    let mut drops = |words: &'static str| {
        it.dropped = Some(words);
        cx.error(words);
    };
    match notice {
        Notice::Compressed { unpacked: true } => cx.warn(
            "the server compresses packets; they are accepted, but their lengths reveal parts of their content to \
             eavesdroppers (VORACLE). Remove comp-lzo and compress at the server, or set `comp-lzo no` there",
        ),
        Notice::Compressed { unpacked: false } => drops(
            "the server compresses packets in a form that was not agreed or allowed; they are dropped. Remove \
             comp-lzo and compress at the server, or set `comp-lzo no` there",
        ),
        Notice::Unframed => drops(
            "the server's packets lack the agreed framing of comp-lzo or compress; they are dropped. Remove both from \
             the file and write `pull-filter ignore comp`, or set the same at both ends",
        ),
        Notice::Silent => it.session.fell_silent(outputs),
        Notice::Failed => it.session.close(CloseReason::DataPlane, outputs),
        Notice::Refresh { .. } => it.session.renegotiate(now.monotonic, outputs),
        _ => {}
    }
}
