//! A server that is reached by several uplinks (lines).
//!
//! A server follows a client by its authentic data packets, which carry the client's peer id (`DATA_V2`). It takes
//! control packets only from the client's known address. So data packets lead, and control packets follow on the same
//! line. Before there are keys, only one line is used at a time: a control packet from elsewhere would begin another
//! session.
//!
//! A server answers a request of the options check (OCC) at once, to the address it came from. Servers with a kernel
//! data plane do not; only their own packets show that a line works.

use super::connection::Connection;
use super::{Machine, Phase};
use config::openvpn::OpenVpn;
use lines::control::{Answers, LineEffect, LineFacts, LineReport, LineUsage, Lines};
use openvpn::data::inband::{OCC_REQUEST, PING};
use openvpn::data::wire::Layout;
use openvpn::packet::{ControlHead, Opcode};
use plane::Now;
use plane::{LineId, PeerState, StreamId};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::openvpn::client::effect::{Cx, Effect, SERVER};

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
        lines.set_answers(Answers::Within(HANDSHAKE));
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

    /// Whether a line is open and none is being opened. A better line would be used as soon as it opens, and the server
    /// would hear two addresses.
    pub(super) fn has_line(&self) -> bool {
        let lines = self.lines.as_ref();
        lines.is_none_or(|it| it.lines.has_open() && !it.lines.is_opening())
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
    pub(super) fn open_lines(&mut self, cx: &mut Cx) {
        self.with_lines(cx, |it, now, effects| {
            it.lines.bind(now.monotonic, effects);
        });
    }

    /// Takes the host's report on the uplinks.
    pub(super) fn lines_read(&mut self, facts: &[Option<LineFacts>], cx: &mut Cx) {
        let closed = self.ifname.is_none();
        self.with_lines(cx, |it, now, effects| {
            let bound = Some((it.port, it.mark)).filter(|_| !closed);
            it.lines.read(facts, bound, now.monotonic, effects);
        });
        self.look(cx);
    }

    /// Handles the result of opening a line's sockets.
    pub(super) fn line_opened(&mut self, line: LineId, result: Result<u16, String>, cx: &mut Cx) {
        self.with_lines(cx, |it, now, effects| {
            it.lines.opened(line, result, now.monotonic, effects);
        });
        if !self.has_line() {
            return;
        }
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Line(candidate, remote, _) => {
                self.begin_session(candidate, remote, None, cx);
            }
            other => {
                self.phase = other;
                self.look(cx);
            }
        }
    }

    /// Checks the lines if their deadline has passed.
    pub(super) fn lines_deadline(&mut self, cx: &mut Cx) {
        if self.lines_due().is_none_or(|at| at > cx.now.monotonic) {
            return;
        }
        let connected = self.connection().is_some();
        self.with_lines(cx, |it, now, effects| {
            it.lines.expire(now.monotonic, effects);
            if !connected {
                it.lines
                    .look(now.monotonic, |_| PeerState::default(), effects);
            }
        });
        self.look(cx);
    }

    /// Checks the lines of a connection over UDP.
    fn look(&mut self, cx: &mut Cx) {
        if self.lines.is_some() && self.connection().is_some_and(|it| it.stream.is_none()) {
            self.with_connection(cx, |machine, it, cx| {
                machine.look_at_lines(it, cx);
                machine.perform(it, cx);
            });
        }
    }

    /// Removes the interface and its lines.
    pub(super) fn close_interface(&mut self, cx: &mut Cx) {
        self.with_lines(cx, |it, _, effects| it.lines.end(effects));
        cx.push(Effect::CloseInterface);
    }

    /// Closes the dialled stream. Lines stay.
    pub(super) fn close_line(&self, stream: Option<StreamId>, cx: &mut Cx) {
        if let Some(stream) = stream {
            cx.plane(|plane| plane.remove_stream(stream));
        }
        if self.lines.is_none() {
            cx.plane(|plane| plane.close_line(LineId::FIRST));
        }
    }

    /// Begins a session with the server at this address.
    pub(super) fn call_by_lines(&mut self, to: SocketAddr, cx: &mut Cx) {
        self.with_lines(cx, |it, now, effects| {
            it.lines.call(SERVER, to, effects);
            it.lines
                .look(now.monotonic, |_| PeerState::default(), effects);
        });
    }

    /// Notes a control packet sent on the line in use.
    pub(super) fn asked_by_line(&mut self, packet: &[u8], now: Now) {
        let answered = ControlHead::peek(packet).is_ok_and(|head| head.opcode != Opcode::AckV1);
        if let Some(it) = &mut self.lines
            && answered
            && !it.follows
        {
            it.lines.asked(SERVER, now.monotonic);
        }
    }

    /// Notes a control packet from the server.
    pub(super) fn heard_by_line(&mut self, line: LineId, cx: &mut Cx) {
        self.with_lines(cx, |it, now, effects| {
            // Later control packets prove little: an attacker can replay them on another line.
            if !it.follows {
                it.lines.heard(SERVER, line, now.monotonic, effects);
            }
        });
    }

    /// Notes the server's answer to a request.
    pub(super) fn answered_by_line(&mut self, now: Now) {
        if let Some(it) = &mut self.lines {
            it.trials = None;
            it.lines.set_answers(Answers::Probes);
            it.lines.answered(SERVER, now.monotonic);
            it.lines.hurry(now.monotonic);
        }
    }

    /// Notes that the session is up: the server may now be reached by several lines.
    pub(super) fn connected_by_lines(&mut self, it: &Connection, cx: &mut Cx) {
        let layout = it.session.data_channel().map(|(_, layout)| layout);
        let named = matches!(layout, Some(Layout::V2 { .. } | Layout::Epoch { .. }));
        let pings = it.session.ping_restart().map(|limit| limit / 2);
        let Some(lines) = &mut self.lines else { return };
        if lines.follows {
            return;
        }
        lines
            .lines
            .set_answers(Answers::Within(pings.unwrap_or(SILENT)));
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
    pub(super) fn server_moved(&mut self, to: SocketAddr, cx: &mut Cx) {
        self.with_lines(cx, |it, now, effects| {
            it.lines.call(SERVER, to, effects);
            it.lines.hurry(now.monotonic);
        });
    }

    /// Resets the lines at the end of a session.
    pub(super) fn forget_lines(&mut self) {
        if let Some(it) = &mut self.lines {
            it.lines.forget(SERVER);
            it.lines.set_answers(Answers::Within(HANDSHAKE));
            it.lines.set_singly(true);
            it.follows = false;
            it.trials = None;
        }
    }

    /// Checks the lines with the present packet counts.
    fn look_at_lines(&mut self, it: &mut Connection, cx: &mut Cx) {
        let state = it.look(cx);
        let Some(lines) = &mut self.lines else { return };
        let before = lines.lines.used(SERVER);
        let follows = lines.follows;
        self.with_lines(cx, |it, now, effects| {
            it.lines.look(now.monotonic, |_| state, effects);
            it.try_request(now.monotonic, effects);
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

    /// Counts the bytes carried by each uplink.
    fn count_lines(&mut self, cx: &mut Cx) {
        let Some(carried) = cx.plane(|plane| plane.carried()) else {
            return;
        };
        self.with_lines(cx, |it, now, effects| {
            if it.lines.counted(&carried, now, effects) {
                it.lines.hurry(now.monotonic);
            }
        });
    }

    /// Saves the last byte counts at the end.
    pub(super) fn lines_end(&mut self, cx: &mut Cx) {
        self.count_lines(cx);
        self.with_lines(cx, |it, _, effects| it.lines.keep(effects));
    }

    /// Calls into the lines and performs their effects.
    pub(super) fn with_lines(
        &mut self,
        cx: &mut Cx,
        call: impl FnOnce(&mut ServerLines, Now, &mut Vec<LineEffect>),
    ) {
        let Some(lines) = &mut self.lines else { return };
        let mut effects = Vec::new();
        call(lines, cx.now, &mut effects);
        for effect in effects {
            self.by_lines(effect, cx);
        }
    }

    fn by_lines(&mut self, effect: LineEffect, cx: &mut Cx) {
        match effect {
            LineEffect::Hello(line) => self.say_hello(line, cx),
            LineEffect::RelayAt(address) => self.relay_at(address, cx),
            LineEffect::Count => self.count_lines(cx),
            LineEffect::Read => cx.push(Effect::ReadLines),
            LineEffect::Open { line, port, mark } => cx.push(Effect::OpenLine(line, port, mark)),
            LineEffect::Keep(usage) => cx.push(Effect::KeepUsage(usage)),
            LineEffect::KeepAddress(name, address) => cx.push(Effect::KeepAddress(name, address)),
            LineEffect::Log(level, words) => cx.log(level, words),
            LineEffect::LogPeer(_, words) => cx.info(words),
            LineEffect::Probe { peer, line, .. } => {
                cx.plane(|plane| plane.inject_by(peer, line.id, &OCC_REQUEST));
            }
            LineEffect::Keepalive(id) => {
                cx.plane(|plane| plane.inject(id, &PING));
            }
            LineEffect::Plane(call) => {
                cx.plane(|plane| call.on(plane));
            }
        }
    }
}

impl ServerLines {
    /// Sends a request by each line in turn until the server answers; often at first.
    fn try_request(&mut self, now: Instant, effects: &mut Vec<LineEffect>) {
        let Some((left, _)) = self.trials.filter(|(_, at)| *at <= now) else {
            return;
        };
        let next = if left > 0 { TRIAL } else { TRIAL_LATER };
        self.trials = Some((left.saturating_sub(1), now + next));
        effects.extend(self.lines.trial(SERVER, left.into()));
        // The server stays with the line of the last request.
        effects.push(LineEffect::Keepalive(SERVER));
    }
}
