//! Events of a client's lines, and their consequences.

use super::ClientMachine;
use super::lines::{KNOCK, Knows, SERVER, ServerLines, TELL_AGAIN};
use crate::pptp::machine::{Cx, Way};
use crate::pptp::order::Order;
use ::config::lines::LineMode;
use ::pptp::lines::TELL;
use ::pptp::session::DownReason;
use lines::control::{LineFacts, LinePlane, LineUsage, Outside, PROBE_IDLE};
use log::Level;
use plane::{LINES_MAX, Line, LineId, LineSet, PeerId, PeerState};
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::time::{Instant, SystemTime};

impl ClientMachine {
    /// Opens the lines, each once its device exists.
    pub(super) fn open_lines(&mut self, cx: &mut Cx<'_>) {
        self.with_lines(cx, |it, now, out| {
            it.lines.bind(now, out);
            it.rest_anew(now);
        });
        self.lines_settled(cx);
    }

    /// Reads the host's facts about the lines, where there are any.
    pub(super) fn read_lines(&mut self, cx: &mut Cx<'_>) {
        self.with_lines(cx, |it, now, out| {
            it.lines.read(now, out);
            it.rest_anew(now);
        });
        self.lines_settled(cx);
    }

    /// Continues after lines may have been opened: connects if a call waits for a line, or else checks the lines.
    fn lines_settled(&mut self, cx: &mut Cx<'_>) {
        let Some(it) = &mut self.lines else { return };
        if it.lines.has_open()
            && let Some(server) = it.waits.take()
        {
            return self.dial(server, cx);
        }
        if it.waits.is_some() && !std::mem::replace(&mut it.said, true) {
            let words = "no uplink is available; waiting for one".to_owned();
            cx.host.log(Level::Warn, words);
        }
        self.look(cx);
    }

    /// Handles the server's answer to a TCP connection over a line other than the call's.
    pub(super) fn knocked(&mut self, line: LineId, cx: &mut Cx<'_>) {
        self.with_lines(cx, |it, now, out| {
            let several = it.knows == Knows::Several;
            if several && it.joined.is_empty() {
                it.port_only.get_or_insert(now);
            }
            if !several || it.is_lost() && !it.joined.contains(line) {
                it.lines.heard(SERVER, line, now, out);
                it.lines.hurry(now);
            }
        });
    }

    /// Calls the server over the chosen line.
    pub(super) fn dial(&mut self, server: SocketAddrV4, cx: &mut Cx<'_>) {
        let mut line = None;
        let several = self.with_lines(cx, |it, now, out| {
            it.hung_up();
            it.knows = Knows::Unknown;
            if !it.lines.has_open() {
                it.waits = Some(server);
                return;
            }
            it.waits = None;
            it.lines.call(SERVER, server.into(), out);
            it.rest(now);
            it.lines.look(now, |_| PeerState::default(), out);
            if it.wakes(now) {
                it.lines.look(now, |_| PeerState::default(), out);
            }
            line = it.lines.used(SERVER);
            it.used = line;
            it.dialled = line;
            it.calls = Some(now);
            it.lines.asked(SERVER, now);
        });
        if (line.is_some() || !several)
            && let Err(why) = cx.host.connect(server, line)
        {
            self.not_connected(&why, cx);
        }
    }

    /// Handles the server's answer at its port.
    pub(super) fn dialled(&mut self, cx: &mut Cx<'_>) {
        self.with_lines(cx, |it, now, out| {
            it.calls = None;
            if let Some(line) = it.dialled {
                it.lines.heard(SERVER, line, now, out);
            }
        });
    }

    /// Probes all lines from now on, as a call has failed or the tunnel is up.
    pub(super) fn ask_all_lines(&mut self) {
        if let Some(it) = &mut self.lines {
            it.lines.set_singly(false);
            it.lines.set_answers(None);
            if it.knows != Knows::Several {
                it.lines.set_idle(KNOCK);
            }
        }
    }

    /// Handles the end of a call; `settled` is the argument of [`ServerLines::ended`].
    pub(super) fn hung_up(&mut self, reason: &DownReason, settled: Option<bool>, now: Instant) {
        if let Some(it) = &mut self.lines {
            it.ended(reason, settled, now);
            it.hung_up();
        }
    }

    /// Handles the server's answer whether it supports several lines.
    pub(super) fn agreed(&mut self, several: bool, cx: &mut Cx<'_>) {
        let Some(it) = &mut self.lines else { return };
        let mode = it.mode;
        if several {
            it.knows = Knows::Several;
            it.joined = LineSet::EMPTY;
            it.lines.set_mode(mode);
            it.lines.set_idle(PROBE_IDLE);
            it.tells = Some((cx.now, TELL_AGAIN.0));
            if self.order.is_none()
                && let (Some((up, _)), Some(session)) = (&self.up, &self.session)
            {
                let reorder = self.options.reorder.or(Some(true));
                self.order = Order::of(session.call_id(), up.protection, reorder);
            }
            for line in self.all_open() {
                self.probe_by(line, cx);
            }
        } else {
            it.knows = Knows::One;
            let failover = match mode {
                LineMode::Single => LineMode::Single,
                _ => LineMode::Failover,
            };
            it.lines.set_mode(failover);
            if mode.spreads() {
                let why = match self
                    .up
                    .as_ref()
                    .is_some_and(|(up, _)| up.protection.is_some())
                {
                    true => "the server is not Millrace, or its file has no [uplinks]",
                    false => "without MPPE there are no keys to authenticate other uplinks",
                };
                let words = format!(
                    "only one uplink is used at a time, as with failover instead of {}: {why}",
                    mode.as_str()
                );
                cx.host.log(Level::Warn, words);
            }
        }
        if let Some(it) = &mut self.lines {
            it.follow();
        }
        self.look(cx);
    }

    /// Handles the loss of the control connection: the call continues if the server is heard soon.
    pub(super) fn control_lost(&mut self, cx: &mut Cx<'_>) {
        if let Some(it) = &mut self.lines {
            it.tells = Some((cx.now, TELL_AGAIN.0));
        }
        for line in self.all_open() {
            self.probe_by(line, cx);
        }
    }

    fn all_open(&self) -> Vec<LineId> {
        let lines = self.lines.as_ref();
        lines.map_or_else(Vec::new, |it| it.lines.all_open())
    }

    /// Handles a packet that looks like the answer to a probe.
    pub(super) fn answered(&mut self, line: LineId, packet: &[u8], cx: &mut Cx<'_>) {
        let session = self.session.as_mut();
        let answered = session.and_then(|session| session.answered(packet, cx.now));
        let Some(answered) = answered.filter(|it| it.line == line.0) else {
            self.counts.forged += 1;
            return;
        };
        if answered.again {
            self.probe_by(line, cx);
        }
        if answered.accepted {
            let mut joins = false;
            self.with_lines(cx, |it, now, out| {
                it.lines.heard(SERVER, line, now, out);
                joins = it.join(line, now);
                if joins {
                    it.follow();
                    it.tells = Some((now, TELL_AGAIN.0));
                    it.lines.hurry(now);
                }
            });
            if joins {
                self.look(cx);
            }
        }
    }

    /// When the lines next have something to do.
    pub(super) fn lines_deadline(&self) -> Option<Instant> {
        self.lines.as_ref().and_then(|it| it.deadline())
    }

    /// Handles due events of the lines.
    pub(super) fn expire_lines(&mut self, cx: &mut Cx<'_>) {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= cx.now);
        if due(self.lines.as_ref().and_then(|it| it.lines.due())) {
            self.with_lines(cx, |it, now, out| {
                if it.lines.expire(now, out) {
                    it.rest_anew(now);
                }
            });
            self.lines_settled(cx);
        }
        if let Some(it) = &mut self.lines
            && let Some((_, left)) = it.tells.filter(|(at, _)| *at <= cx.now)
        {
            let next = match left {
                0 => TELL,
                _ => TELL_AGAIN.1,
            };
            it.tells = Some((cx.now + next, left.saturating_sub(1)));
            let line = it.line();
            self.probe_by(line, cx);
        }
    }

    /// Looks at the lines, and applies the consequences.
    fn look(&mut self, cx: &mut Cx<'_>) {
        self.with_lines(cx, |it, now, out| {
            let state = it.state();
            it.rest(now);
            it.lines.look(now, |_| state, out);
            it.drop_lost(now);
        });
        let Some(it) = &mut self.lines else { return };
        let Some((used, dialled)) = it.used.zip(it.dialled) else {
            return;
        };
        if !it.lines.may_work(SERVER, used) && self.up.is_none() {
            // No line works. All are asked to find the first that answers, except that lines which failed a call need
            // a new call.
            let calls = !it.resting.is_empty() && it.is_late(cx.now);
            self.ask_all_lines();
            if calls {
                self.redial(cx);
            }
            return;
        }
        // Call again: TCP repeats packets that the dead line lost at longer and longer intervals.
        if it.is_late(cx.now) || it.is_forgotten(cx.now) {
            return self.redial(cx);
        }
        let knows = it.knows == Knows::Several;
        if used == dialled || knows && it.joined.contains(used) {
            return;
        }
        // Keep the call while its own line works, as the new line may only await its first probe; keep it also if the
        // new line is down too.
        if knows && !(it.is_lost() && it.lines.may_work(SERVER, used)) {
            return;
        }
        self.redial(cx);
    }

    /// Ends the call, and calls the server over the line that works.
    fn redial(&mut self, cx: &mut Cx<'_>) {
        let server = SocketAddrV4::new(self.server(), self.options.port);
        let words = "reconnecting to the server through the uplink that works".to_owned();
        cx.host.log(Level::Info, words);
        self.hangs_up = true;
        if let Some(session) = &mut self.session {
            session.stop(cx.now, &mut self.outputs);
        }
        self.translate(cx);
        self.hangs_up = false;
        self.session = None;
        self.is_connected = false;
        self.again_at = None;
        self.dial(server, cx);
    }

    /// Sends a probe to the server over a line.
    pub(super) fn probe_by(&mut self, line: LineId, cx: &mut Cx<'_>) {
        let address = self.server();
        let Some(it) = &self.lines else { return };
        let (used, lines) = (it.line(), it.in_use());
        let bits = lines.fold(0, |bits, line| bits | 1_u16 << line.0);
        let session = self.session.as_mut();
        if let Some(probe) = session.and_then(|session| session.probe(line.0, used.0, bits)) {
            cx.host.send(Way::by(line, address), &probe);
        }
    }

    fn ask_by(&mut self, line: LineId, cx: &mut Cx<'_>) {
        let Some(it) = &self.lines else { return };
        let several = it.knows == Knows::Several;
        let knocks = match several {
            // The server may still answer TCP on this line, and accept a new call there.
            true => it.is_lost() && !it.joined.contains(line),
            false => it.dialled != Some(line) || self.up.is_none(),
        };
        if several {
            self.probe_by(line, cx);
        }
        if knocks {
            let server = SocketAddrV4::new(self.server(), self.options.port);
            cx.host.knock(line, server);
        }
        if several || knocks {
            return;
        }
        if let Some(session) = &mut self.session {
            session.ask_echo(cx.now, &mut self.outputs);
            self.translate(cx);
        }
    }

    /// Calls `f` with the lines, and acts on its consequences. Returns `false` where there are no lines.
    fn with_lines(
        &mut self,
        cx: &mut Cx<'_>,
        call: impl FnOnce(&mut ServerLines, Instant, &mut Around<'_, '_>),
    ) -> bool {
        let Some(it) = &mut self.lines else {
            return false;
        };
        let now = cx.now;
        let mut out = Around {
            cx,
            closed: LineSet::EMPTY,
            used: None,
            mode: None,
            asked: Vec::new(),
        };
        call(it, now, &mut out);
        let Around {
            closed,
            used,
            mode,
            asked,
            ..
        } = out;
        it.joined = it.joined.filter(|line| !closed.contains(*line)).collect();
        let changes = used.is_some() || mode.is_some();
        if changes {
            it.used = used.or(it.used);
            it.wanted = mode.unwrap_or(it.wanted);
            it.tells = it.tells.map(|_| (now, TELL_AGAIN.0));
        }
        if changes || !closed.is_empty() {
            it.follow();
        }
        for line in asked {
            self.ask_by(line, cx);
        }
        true
    }
}

/// The outside of a client's lines. Changes to the call's own state wait until the lines have returned.
struct Around<'x, 'a> {
    cx: &'x mut Cx<'a>,
    closed: LineSet,
    used: Option<LineId>,
    mode: Option<plane::LineMode>,
    /// Lines to probe.
    asked: Vec<LineId>,
}

/// Empty methods are not used by PPTP: files with `shape`, caps or relays are refused.
impl Outside for Around<'_, '_> {
    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }

    fn plane(&mut self) -> Option<&mut dyn LinePlane> {
        Some(self)
    }

    fn facts(&mut self) -> Vec<Option<LineFacts>> {
        self.cx.host.line_facts()
    }

    fn open(&mut self, line: LineId, mark: Option<u32>) -> Result<(), String> {
        self.cx.host.open_line(line, mark.unwrap_or(0))
    }

    fn probe(&mut self, _: PeerId, line: Line, _: bool) {
        self.asked.push(line.id);
    }

    fn keepalive(&mut self, _: PeerId) {}

    fn hello(&mut self, _: &Line, _: &[u8], _: SystemTime) {}

    fn relay_at(&mut self, _: SocketAddr) {}

    fn keep_address(&mut self, _: &str, _: IpAddr) {}

    fn keep_usage(&mut self, _: &[LineUsage]) {}

    fn log(&mut self, _: Option<PeerId>, level: Level, words: &str) {
        self.cx.host.log(level, words.to_owned());
    }
}

impl LinePlane for Around<'_, '_> {
    fn close_line(&mut self, line: LineId) {
        self.cx.host.close_line(line);
        self.closed = self.closed.with(line);
    }

    /// Packets have one address, and the server learns of lines by another method.
    fn set_line(&mut self, _: PeerId, _: Line) {}

    fn use_line(&mut self, _: PeerId, line: LineId) {
        self.used = Some(line);
    }

    fn set_line_mode(&mut self, _: PeerId, mode: plane::LineMode) {
        self.mode = Some(mode);
    }

    fn set_rate(&mut self, _: u64) {}

    fn set_line_rates(&mut self, _: [u64; LINES_MAX]) {}

    fn carried(&mut self) -> [u64; LINES_MAX] {
        [0; LINES_MAX]
    }
}
