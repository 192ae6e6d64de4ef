//! Events of a client's lines, and their consequences.

use super::ClientMachine;
use super::lines::{KNOCK, Knows, SERVER, ServerLines, TELL_AGAIN};
use crate::pptp::machine::{Effect, Way};
use crate::pptp::order::Order;
use ::config::lines::LineMode;
use ::pptp::lines::TELL;
use ::pptp::session::DownReason;
use lines::control::{Answers, LineEffect, LineFacts, PROBE_IDLE, PlaneCall};
use log::Level;
use plane::{LineId, LineSet, PeerState};
use std::net::SocketAddrV4;
use std::time::Instant;

impl ClientMachine {
    /// Opens the lines, each once its device exists.
    pub(super) fn open_lines(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        self.with_lines(now, effects, |it, out| it.lines.bind(now, out));
    }

    /// Reads the lines' facts again, as the host's devices or addresses have changed.
    pub(super) fn links_changed(&self, effects: &mut Vec<Effect>) {
        if self.lines.is_some() {
            effects.push(Effect::ReadLines);
        }
    }

    /// Takes the host's facts about the lines.
    pub(super) fn lines_read(
        &mut self,
        facts: &[Option<LineFacts>],
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        self.with_lines(now, effects, |it, out| {
            it.lines.read(facts, Some((0, 0)), now, out);
            // The facts may have changed what failed calls have shown about lines.
            it.resting = LineSet::EMPTY;
            it.rest(now);
        });
        if let Some(it) = &mut self.lines
            && it.waits.is_some()
            && !it.lines.has_open()
            && !it.lines.is_opening()
            && !std::mem::replace(&mut it.said, true)
        {
            let words = "no uplink is there: waiting for one".to_owned();
            effects.push(Effect::Log(Level::Warn, words));
        }
        self.look(now, effects);
    }

    /// Handles the result of opening a line's socket.
    pub(super) fn line_opened(
        &mut self,
        line: LineId,
        result: Result<(), String>,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        self.with_lines(now, effects, |it, out| {
            it.lines.opened(line, result.map(|()| 0), now, out);
        });
        let opening = self.lines.as_ref().is_some_and(|it| it.lines.is_opening());
        let waits = self.lines.as_mut().and_then(|it| match opening {
            true => None,
            false => it.waits.take(),
        });
        match waits {
            Some(server) => self.dial(server, now, effects),
            None => self.look(now, effects),
        }
    }

    /// Handles the server's answer to a TCP connection by a line other than the call's.
    pub(super) fn knocked(&mut self, line: LineId, now: Instant, effects: &mut Vec<Effect>) {
        self.with_lines(now, effects, |it, out| {
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

    /// Calls the server by the chosen line.
    pub(super) fn dial(&mut self, server: SocketAddrV4, now: Instant, effects: &mut Vec<Effect>) {
        let mut line = None;
        let several = self.with_lines(now, effects, |it, out| {
            it.hung_up();
            it.knows = Knows::Unknown;
            if !it.lines.has_open() || it.lines.is_opening() {
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
        if line.is_some() || !several {
            effects.push(Effect::Connect(server, line));
        }
    }

    /// Handles the server's answer at its port.
    pub(super) fn dialled(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        self.with_lines(now, effects, |it, out| {
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
            it.lines.set_answers(Answers::Probes);
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

    /// Takes whether the server knows of several lines.
    pub(super) fn agreed(&mut self, several: bool, now: Instant, effects: &mut Vec<Effect>) {
        let Some(it) = &mut self.lines else { return };
        let mode = it.mode;
        if several {
            it.knows = Knows::Several;
            it.joined = LineSet::EMPTY;
            it.lines.set_mode(mode);
            it.lines.set_idle(PROBE_IDLE);
            it.tells = Some((now, TELL_AGAIN.0));
            if self.order.is_none()
                && let (Some((up, _)), Some(session)) = (&self.up, &self.session)
            {
                let reorder = self.options.reorder.or(Some(true));
                self.order = Order::of(session.call_id(), up.protection, reorder);
            }
            for line in self.all_open() {
                self.probe_by(line, effects);
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
                    true => "the server is no Millrace, or its file has no [uplinks]",
                    false => "without MPPE there are no keys to tell the server of other uplinks",
                };
                let words = format!(
                    "one uplink is used at a time, as with failover, and not {}: {why}",
                    mode.as_str()
                );
                effects.push(Effect::Log(Level::Warn, words));
            }
        }
        if let Some(it) = &mut self.lines {
            it.follow();
        }
        self.look(now, effects);
    }

    /// Handles the loss of the control connection: the call goes on if the server is heard soon.
    pub(super) fn control_lost(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        if let Some(it) = &mut self.lines {
            it.tells = Some((now, TELL_AGAIN.0));
        }
        for line in self.all_open() {
            self.probe_by(line, effects);
        }
    }

    fn all_open(&self) -> Vec<LineId> {
        let lines = self.lines.as_ref();
        lines.map_or_else(Vec::new, |it| it.lines.all_open())
    }

    /// Handles a packet that looks like the answer to a probe.
    pub(super) fn answered(
        &mut self,
        line: LineId,
        packet: &[u8],
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let session = self.session.as_mut();
        let answered = session.and_then(|session| session.answered(packet, now));
        let Some(answered) = answered.filter(|it| it.line == line.0) else {
            self.counts.forged += 1;
            return;
        };
        if answered.again {
            self.probe_by(line, effects);
        }
        if answered.accepted {
            let mut joins = false;
            self.with_lines(now, effects, |it, out| {
                it.lines.heard(SERVER, line, now, out);
                joins = it.join(line, now);
                if joins {
                    it.follow();
                    it.tells = Some((now, TELL_AGAIN.0));
                    it.lines.hurry(now);
                }
            });
            if joins {
                self.look(now, effects);
            }
        }
    }

    /// When the lines next have something to do.
    pub(super) fn lines_deadline(&self) -> Option<Instant> {
        self.lines.as_ref().and_then(|it| it.deadline())
    }

    /// Handles what is due about the lines.
    pub(super) fn expire_lines(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.lines.as_ref().and_then(|it| it.lines.due())) {
            self.with_lines(now, effects, |it, out| it.lines.expire(now, out));
            self.look(now, effects);
        }
        if let Some(it) = &mut self.lines
            && let Some((_, left)) = it.tells.filter(|(at, _)| *at <= now)
        {
            let next = match left {
                0 => TELL,
                _ => TELL_AGAIN.1,
            };
            it.tells = Some((now + next, left.saturating_sub(1)));
            let line = it.line();
            self.probe_by(line, effects);
        }
    }

    /// Looks at the lines, and applies the consequences.
    fn look(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        self.with_lines(now, effects, |it, out| {
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
            let calls = !it.resting.is_empty() && it.is_late(now);
            self.ask_all_lines();
            if calls {
                self.redial(now, effects);
            }
            return;
        }
        // Call again: TCP repeats packets that the dead line lost at longer and longer intervals.
        if it.is_late(now) || it.is_forgotten(now) {
            return self.redial(now, effects);
        }
        let knows = it.knows == Knows::Several;
        if it.lines.is_opening() || used == dialled || knows && it.joined.contains(used) {
            return;
        }
        // The line may have been unprobed a moment ago, or it was the last that worked.
        if knows && !(it.is_lost() && it.lines.may_work(SERVER, used)) {
            return;
        }
        self.redial(now, effects);
    }

    /// Ends the call, and calls the server by the line that works.
    fn redial(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let server = SocketAddrV4::new(self.server(), self.options.port);
        let words = "the server is called anew, by the uplink that works".to_owned();
        effects.push(Effect::Log(Level::Info, words));
        self.hangs_up = true;
        if let Some(session) = &mut self.session {
            session.stop(now, &mut self.outputs);
        }
        self.translate(now, effects);
        self.hangs_up = false;
        self.session = None;
        self.is_connected = false;
        self.again_at = None;
        self.dial(server, now, effects);
    }

    /// Sends a probe to the server by a line.
    pub(super) fn probe_by(&mut self, line: LineId, effects: &mut Vec<Effect>) {
        let address = self.server();
        let Some(it) = &self.lines else { return };
        let (used, lines) = (it.line(), it.in_use());
        let bits = lines.fold(0, |bits, line| bits | 1_u16 << line.0);
        let session = self.session.as_mut();
        if let Some(probe) = session.and_then(|session| session.probe(line.0, used.0, bits)) {
            effects.push(Effect::Gre(Way::by(line, address), probe.to_vec()));
        }
    }

    fn ask_by(&mut self, line: LineId, now: Instant, effects: &mut Vec<Effect>) {
        let Some(it) = &self.lines else { return };
        let several = it.knows == Knows::Several;
        let knocks = match several {
            // The server may still answer TCP on this line, and accept a new call there.
            true => it.is_lost() && !it.joined.contains(line),
            false => it.dialled != Some(line) || self.up.is_none(),
        };
        if several {
            self.probe_by(line, effects);
        }
        if knocks {
            let server = SocketAddrV4::new(self.server(), self.options.port);
            effects.push(Effect::Knock(line, server));
        }
        if several || knocks {
            return;
        }
        if let Some(session) = &mut self.session {
            session.ask_echo(now, &mut self.outputs);
            self.translate(now, effects);
        }
    }

    /// Calls `f` with the lines, and carries out their effects. Returns `false` where there are no lines.
    fn with_lines(
        &mut self,
        now: Instant,
        effects: &mut Vec<Effect>,
        call: impl FnOnce(&mut ServerLines, &mut Vec<LineEffect>),
    ) -> bool {
        let Some(it) = &mut self.lines else {
            return false;
        };
        let mut out = Vec::new();
        call(it, &mut out);
        for effect in out {
            self.by_lines(effect, now, effects);
        }
        true
    }

    fn by_lines(&mut self, effect: LineEffect, now: Instant, effects: &mut Vec<Effect>) {
        let Some(it) = &mut self.lines else { return };
        match effect {
            LineEffect::Read => effects.push(Effect::ReadLines),
            LineEffect::Open { line, mark, .. } => effects.push(Effect::OpenLine(line, mark)),
            LineEffect::Plane(PlaneCall::Close(line)) => {
                it.joined = it.joined.filter(|joined| *joined != line).collect();
                it.follow();
                effects.push(Effect::CloseLine(line));
            }
            LineEffect::Plane(PlaneCall::UseLine(_, line)) => {
                it.used = Some(line);
                it.follow();
                it.tells = it.tells.map(|_| (now, TELL_AGAIN.0));
            }
            LineEffect::Plane(PlaneCall::SetLineMode(_, mode)) => {
                it.wanted = mode;
                it.follow();
                it.tells = it.tells.map(|_| (now, TELL_AGAIN.0));
            }
            LineEffect::Probe { line, .. } => self.ask_by(line.id, now, effects),
            LineEffect::Log(level, words) => effects.push(Effect::Log(level, words)),
            LineEffect::LogPeer(_, words) => effects.push(Effect::Log(Level::Info, words)),
            // Not used by PPTP: packets have one address, and the server learns of lines in another way. Files with
            // `shape`, caps or relays are refused.
            LineEffect::Plane(
                PlaneCall::SetLine(..) | PlaneCall::SetRate(_) | PlaneCall::SetLineRates(_),
            )
            | LineEffect::Keepalive(_)
            | LineEffect::Count
            | LineEffect::Keep(_)
            | LineEffect::Hello(_)
            | LineEffect::RelayAt(_)
            | LineEffect::KeepAddress(..) => {}
        }
    }
}
