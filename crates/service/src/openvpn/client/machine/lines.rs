//! A server that is reached over several uplinks (lines).
//!
//! A server follows a client by its authentic data packets, which carry the client's peer id (`DATA_V2`). It takes
//! control packets only from the client's known address. So data packets lead, and control packets follow on the same
//! line. Before there are keys, only one line is used at a time: a control packet from elsewhere would begin another
//! session.
//!
//! A server answers a request of the options check (OCC) at once, to the address it came from. Servers with a kernel
//! data plane do not; only their own packets show that a line works.

use super::connection::Connection;
use super::relays::known_at;
use super::{Machine, Phase};
use crate::openvpn::channel::Plane;
use crate::openvpn::client::host::{Cx, SERVER};
use config::openvpn::OpenVpn;
use lines::control::{LineFacts, LinePlane, LineReport, LineUsage, Lines, Outside};
use log::Level;
use openvpn::data::inband::{OCC_REQUEST, PING};
use openvpn::data::wire::Layout;
use openvpn::packet::{ControlHead, Opcode};
use plane::Now;
use plane::{Line, LineId, PeerId, PeerState, StreamId};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant, SystemTime};

/// How long a server may leave control packets unanswered before the line counts as down. The client repeats them after
/// two seconds.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Silence after which a line counts as down, if the connected server ignores requests and its ping interval is
/// unknown.
const SILENT: Duration = Duration::from_secs(60);

/// Test requests for a server that may ignore them: `TRIALS` at interval `TRIAL`, then at `TRIAL_LATER`.
const TRIALS: u8 = 5;
const TRIAL: Duration = Duration::from_secs(2);
const TRIAL_LATER: Duration = Duration::from_secs(60);

/// State of the lines to the server.
pub(super) struct ServerLines {
    pub(super) lines: Lines,
    /// Port of the sockets; 0 for any.
    port: u16,
    mark: u32,
    /// The session is up and the server follows data packets from other addresses.
    follows: bool,
    /// When the next test request is sent, and how many more follow at the short interval.
    trials: Option<(u8, Instant)>,
}

impl ServerLines {
    /// Returns `None` without configured lines.
    pub(super) fn new(config: &OpenVpn) -> Option<Box<Self>> {
        let mut connections = config.connections.iter();
        let udp = connections.any(|it| !it.protocol.transport.is_tcp());
        if config.lines.lines.is_empty() || !udp {
            return None;
        }
        let local = config.connections.first().map(|it| &it.local);
        let mut lines = Lines::new(config.lines.clone());
        lines.set_answers(Some(HANDSHAKE));
        lines.set_singly(true);
        Some(Box::new(Self {
            lines,
            port: local.filter(|it| it.bind).map_or(0, |it| it.port),
            mark: config.sockets.mark.unwrap_or(0),
            follows: false,
            trials: None,
        }))
    }
}

impl Machine<'_> {
    /// The lines to the server; empty if the host's routes choose the path.
    pub(in crate::openvpn::client) fn line_reports(&self) -> Vec<LineReport> {
        match &self.lines {
            Some(it) if self.stream_line().is_none() => it.lines.reports(SERVER),
            _ => self.stream_reports(),
        }
    }

    /// Whether a line is open.
    pub(super) fn has_line(&self) -> bool {
        let lines = self.lines.as_ref();
        lines.is_none_or(|it| it.lines.has_open())
    }

    /// Whether a control packet from this line may belong to the session. Before the server follows, it knows one line
    /// only; a late answer on another belongs to another session.
    pub(super) fn is_used(&self, line: LineId) -> bool {
        let lines = self.lines.as_ref();
        lines.is_none_or(|it| it.follows || it.lines.used(SERVER) == Some(line))
    }

    /// When the lines need attention next.
    pub(super) fn lines_due(&self) -> Option<Instant> {
        let by_stream = self.connection().is_some_and(|it| it.stream.is_some());
        let it = self.lines.as_ref().filter(|_| !by_stream)?;
        it.lines.due()
    }

    /// Opens the lines of a new interface.
    pub(super) fn open_lines(&mut self, cx: &mut Cx<'_>) {
        self.with_lines(cx, |it, now, out| it.lines.bind(now, out));
    }

    /// Reads the host's state of the uplinks.
    pub(super) fn read_lines(&mut self, cx: &mut Cx<'_>) {
        self.with_lines(cx, |it, now, out| it.lines.read(now, out));
        self.lines_settled(cx);
        self.read_stream_lines(cx);
    }

    /// Continues after lines may have been opened: with the session that waits for one, or with a look.
    pub(super) fn lines_settled(&mut self, cx: &mut Cx<'_>) {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Line(candidate, remote, _) if self.has_line() => {
                self.begin_session(candidate, remote, None, cx);
            }
            other => {
                self.phase = other;
                self.look(cx);
            }
        }
    }

    /// Checks the lines if their deadline has passed.
    pub(super) fn lines_deadline(&mut self, cx: &mut Cx<'_>) {
        if self.lines_due().is_none_or(|at| at > cx.now.monotonic) {
            return;
        }
        let connected = self.connection().is_some();
        self.with_lines(cx, |it, now, out| {
            it.lines.expire(now, out);
            if !connected {
                it.lines.look(now, |_| PeerState::default(), out);
            }
        });
        self.lines_settled(cx);
    }

    /// Checks the lines of a connection over UDP.
    fn look(&mut self, cx: &mut Cx<'_>) {
        if self.lines.is_some() && self.connection().is_some_and(|it| it.stream.is_none()) {
            self.with_connection(cx, |machine, it, cx| {
                machine.look_at_lines(it, cx);
                machine.perform(it, cx);
            });
        }
    }

    /// Removes the interface and its lines.
    pub(super) fn close_interface(&mut self, cx: &mut Cx<'_>) {
        self.with_lines(cx, |it, now, out| it.lines.end(now, out));
        cx.later(|host| host.close_interface());
    }

    /// Closes the dialled stream. Lines stay.
    pub(super) fn close_line(&self, stream: Option<StreamId>, cx: &mut Cx<'_>) {
        if let Some(stream) = stream {
            cx.plane(|plane| plane.remove_stream(stream));
        }
        if self.lines.is_none() {
            cx.plane(|plane| plane.close_line(LineId::FIRST));
        }
    }

    /// Begins a session with the server at this address.
    pub(super) fn call_by_lines(&mut self, to: SocketAddr, cx: &mut Cx<'_>) {
        self.with_lines(cx, |it, now, out| {
            it.lines.call(SERVER, to, out);
            it.lines.look(now, |_| PeerState::default(), out);
        });
    }

    /// Records a control packet sent on the line in use.
    pub(super) fn asked_by_line(&mut self, packet: &[u8], now: Now) {
        let answered = ControlHead::peek(packet).is_ok_and(|head| head.opcode != Opcode::AckV1);
        if let Some(it) = &mut self.lines
            && answered
            && !it.follows
        {
            it.lines.asked(SERVER, now.monotonic);
        }
    }

    /// Records a control packet from the server.
    pub(super) fn heard_by_line(&mut self, line: LineId, cx: &mut Cx<'_>) {
        self.with_lines(cx, |it, now, out| {
            // Later control packets prove little: an attacker can replay them on another line.
            if !it.follows {
                it.lines.heard(SERVER, line, now, out);
            }
        });
    }

    /// Records the server's answer to a request.
    pub(super) fn answered_by_line(&mut self, now: Now) {
        if let Some(it) = &mut self.lines {
            it.trials = None;
            it.lines.set_answers(None);
            it.lines.answered(SERVER, now.monotonic);
            it.lines.hurry(now.monotonic);
        }
    }

    /// Records that the session is up: the server may now be reached over several lines.
    pub(super) fn connected_by_lines(&mut self, it: &Connection, cx: &mut Cx<'_>) {
        let layout = it.session.data_channel().map(|(_, layout)| layout);
        let named = matches!(layout, Some(Layout::V2 { .. } | Layout::Epoch { .. }));
        let pings = it.session.ping_restart().map(|limit| limit / 2);
        let Some(lines) = &mut self.lines else { return };
        if lines.follows {
            return;
        }
        lines.lines.set_answers(Some(pings.unwrap_or(SILENT)));
        if named {
            lines.follows = true;
            lines.trials = Some((TRIALS - 1, cx.now.monotonic));
            lines.lines.set_singly(false);
        } else {
            cx.warn(
                "the server gives its clients no numbers (it is older than 2.4, or `cipher none`): one uplink is used at a \
                 time, and the tunnel is connected anew by another",
            );
        }
    }

    /// Handles a move of the server.
    pub(super) fn server_moved(&mut self, to: SocketAddr, cx: &mut Cx<'_>) {
        self.with_lines(cx, |it, now, out| {
            it.lines.call(SERVER, to, out);
            it.lines.hurry(now);
        });
    }

    /// Resets the lines at the end of a session.
    pub(super) fn forget_lines(&mut self) {
        if let Some(it) = &mut self.lines {
            it.lines.forget(SERVER);
            it.lines.set_answers(Some(HANDSHAKE));
            it.lines.set_singly(true);
            it.follows = false;
            it.trials = None;
        }
    }

    /// Checks the lines with the present packet counts.
    fn look_at_lines(&mut self, it: &mut Connection, cx: &mut Cx<'_>) {
        let state = it.look(cx);
        let Some(lines) = &mut self.lines else { return };
        let before = lines.lines.used(SERVER);
        let follows = lines.follows;
        self.with_lines(cx, |it, now, out| {
            it.lines.look(now, |_| state, out);
            it.try_request(now, out);
        });
        let used = self.lines.as_ref().and_then(|it| it.lines.used(SERVER));
        if before.is_some() && used != before && !follows && it.has_heard() {
            // The server has no session for that address.
            it.fail("another uplink is used, by which the server knows of no session".to_owned());
        }
    }

    /// Restores the uplinks' byte counts from before the restart.
    pub(in crate::openvpn::client) fn restore_lines(&mut self, usage: &[LineUsage]) {
        if let Some(it) = &mut self.lines {
            it.lines.restore(usage);
        }
    }

    /// Counts and saves the uplinks' bytes at the end.
    pub(in crate::openvpn::client) fn lines_end(&mut self, cx: &mut Cx<'_>) {
        self.with_lines(cx, |it, now, out| it.lines.keep(now, out));
    }

    /// Calls the lines.
    pub(super) fn with_lines(
        &mut self,
        cx: &mut Cx<'_>,
        call: impl FnOnce(&mut ServerLines, Instant, &mut Around<'_, '_, '_>),
    ) {
        let Some(mut lines) = self.lines.take() else {
            return;
        };
        let (now, plane) = (cx.now.monotonic, cx.plane.clone());
        let mut out = Around {
            bound: (lines.port, lines.mark),
            plane: plane.as_deref(),
            machine: &mut *self,
            cx,
        };
        call(&mut lines, now, &mut out);
        self.lines = Some(lines);
    }
}

/// The outside of a client's lines.
pub(super) struct Around<'x, 'm, 'a> {
    /// Port and mark of the sockets.
    bound: (u16, u32),
    plane: Option<&'x Plane>,
    machine: &'x mut Machine<'m>,
    cx: &'x mut Cx<'a>,
}

impl Outside for Around<'_, '_, '_> {
    fn wall(&self) -> SystemTime {
        self.cx.now.wall
    }

    fn plane(&mut self) -> Option<&mut dyn LinePlane> {
        let plane: &mut dyn LinePlane = self.plane.as_mut()?;
        Some(plane)
    }

    fn facts(&mut self) -> Vec<Option<LineFacts>> {
        self.cx.host.line_facts()
    }

    fn open(&mut self, line: LineId, mark: Option<u32>) -> Result<(), String> {
        let (port, usual) = self.bound;
        self.cx.host.open_line(line, port, mark.unwrap_or(usual))
    }

    fn probe(&mut self, peer: PeerId, line: Line, _: bool) {
        self.cx
            .plane(|plane| plane.inject_by(peer, line.id, &OCC_REQUEST));
    }

    fn keepalive(&mut self, peer: PeerId) {
        self.cx.plane(|plane| plane.inject(peer, &PING));
    }

    fn hello(&mut self, to: &Line, hello: &[u8], stamp: SystemTime) {
        self.cx.keep_floor(&mut self.machine.floor, stamp);
        self.cx.plane(|plane| plane.send(to, hello));
    }

    fn relay_at(&mut self, address: SocketAddr) {
        if self.machine.network.is_some() {
            self.cx
                .later(move |host| host.keep_relay_outside(address.ip()));
        }
        let connection = self.machine.connection();
        if connection.is_some_and(|it| it.peer.key.is_some()) {
            known_at(address, self.cx);
        }
    }

    fn keep_address(&mut self, name: &str, address: IpAddr) {
        self.cx.host.keep_address(name, address);
    }

    fn keep_usage(&mut self, usage: &[LineUsage]) {
        self.cx.host.keep_usage(usage);
    }

    fn log(&mut self, _: Option<PeerId>, level: Level, words: &str) {
        self.cx.log(level, words);
    }
}

impl ServerLines {
    /// Sends a request over each line in turn until the server answers; often at first.
    fn try_request(&mut self, now: Instant, out: &mut Around<'_, '_, '_>) {
        let Some((left, _)) = self.trials.filter(|(_, at)| *at <= now) else {
            return;
        };
        let next = if left > 0 { TRIAL } else { TRIAL_LATER };
        self.trials = Some((left.saturating_sub(1), now + next));
        self.lines.trial(SERVER, left.into(), out);
    }
}
