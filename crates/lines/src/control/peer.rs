//! The lines to one peer that has a configured endpoint.

use super::{BUSY, IDLE, Lines, PROBE_IDLE, PROBE_METERED, PROBE_SPREAD, WAITING, number};
use crate::health::{Change, Fault, Health};
use crate::scheduler::{LineSettings, Scheduler, Switch};
use plane::{LineId, LineMode, PeerState};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Minimum time between two initiations. The answer to one may be in transit, and the peer must see its session
/// used before the next initiation requests another.
const APART: Duration = Duration::from_millis(400);

/// How long to wait for the answer to a probe while no round trip is known.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a peer that answered is not probed again, although the packets sent to it need no answer.
const ANSWERED: Duration = Duration::from_secs(2);

/// Age up to which traffic counts as recent.
const RECENT: Duration = Duration::from_secs(5);

/// A peer that spreads its packets hears from us on each line at least this often. It takes a line that is silent for
/// five seconds for one that is no longer used.
const TELL: Duration = Duration::from_secs(2);

/// One line of the peer.
#[derive(Clone, Debug)]
pub(super) struct OfLine {
    pub(super) health: Health,
    /// The line has sockets.
    open: bool,
    /// The line is metered or has used up its allowance, so it is probed seldom.
    pub(super) spared: bool,
    /// When the peer was last heard on this line.
    heard: Option<Instant>,
}

/// The initiation that was sent last by a probe.
#[derive(Clone, Copy, Debug)]
struct Probe {
    line: LineId,
    sent: Instant,
    answered: bool,
}

#[derive(Debug)]
pub(super) struct PeerLines {
    /// The peer's configured address.
    pub(super) address: SocketAddr,
    pub(super) lines: Vec<OfLine>,
    pub(super) scheduler: Scheduler,
    /// The peer's packets go over several lines at a time.
    pub(super) spreads: bool,
    /// How the data plane was told to use the lines.
    mode: LineMode,
    /// A switch of lines that was not passed to the data plane yet.
    switched: Option<Switch>,
    /// The line that the data plane uses by the last call.
    pub(super) used: Option<LineId>,
    probe: Option<Probe>,
    /// Index of the line not in use that was probed last.
    asked_last: usize,
    /// When to send a keepalive over the line in use, after a probe over another line.
    calls_back: Option<Instant>,
    /// When an answer last came to a probe over the line in use.
    answered: Option<Instant>,
    /// When a keepalive last went over all lines because no data did.
    told: Option<Instant>,
}

impl PeerLines {
    pub(super) fn new(lines: &Lines, address: SocketAddr) -> Self {
        let mut peer = Self {
            address,
            lines: Vec::new(),
            scheduler: Scheduler::of(&lines.settings),
            spreads: lines.settings.mode.spreads(),
            mode: LineMode::Single,
            switched: None,
            used: None,
            probe: None,
            asked_last: 0,
            calls_back: None,
            answered: None,
            told: None,
        };
        for line in (0..lines.ends.len()).map(number) {
            peer.lines.push(OfLine {
                health: lines.health(line),
                open: false,
                spared: lines.line_settings(line).is_spared(),
                heard: None,
            });
            if lines.is_open(line) {
                peer.opened(line, lines.line_settings(line));
            }
        }
        peer
    }

    fn line(&mut self, line: LineId) -> Option<&mut OfLine> {
        self.lines.get_mut(line.index())
    }

    /// Handles a line's new sockets.
    pub(super) fn opened(&mut self, line: LineId, settings: LineSettings) {
        if let Some(of) = self.line(line) {
            of.open = true;
        }
        self.scheduler.add(line, settings);
    }

    /// Handles the loss of a line's sockets.
    pub(super) fn closed(&mut self, line: LineId, now: Instant) {
        if let Some(of) = self.line(line) {
            of.open = false;
        }
        self.switched = self.scheduler.remove(line, now).or(self.switched);
    }

    /// Sets whether a line has used up its monthly allowance.
    pub(super) fn set_used_up(&mut self, line: LineId, settings: LineSettings, now: Instant) {
        if let Some(of) = self.line(line) {
            of.spared = settings.is_spared();
            let interval = if of.spared { PROBE_METERED } else { PROBE_IDLE };
            of.health.set_probe_interval(interval);
        }
        let switch = self.scheduler.set_used_up(line, settings.used_up, now);
        self.switched = switch.or(self.switched);
    }

    /// Sets the fault that the host reports of a line.
    pub(super) fn fault(&mut self, line: LineId, fault: Option<Fault>) {
        if let Some(of) = self.line(line) {
            of.health.fault(fault);
        }
    }

    /// Handles a handshake message of the peer.
    pub(super) fn heard(&mut self, line: LineId, now: Instant) {
        let answer = self
            .probe
            .as_mut()
            .filter(|probe| probe.line == line && !probe.answered);
        // The line's health counts only probes, not initiations of the protocol itself.
        let took = answer.map(|probe| {
            probe.answered = true;
            now.saturating_duration_since(probe.sent)
        });
        let answers = took.is_some();
        if answers {
            self.calls_back = None;
        }
        if answers && self.used == Some(line) {
            self.answered = Some(now);
        }
        let Some(of) = self.line(line) else { return };
        of.heard = Some(now);
        if let Some(took) = took {
            of.health.round_trip(took, now);
        }
        of.health.received(now);
    }

    /// Handles the answer to the last probe, from any line. Returns whether there was a probe.
    pub(super) fn probe_answered(&mut self, now: Instant) -> bool {
        let Some(line) = self.probe.map(|probe| probe.line) else {
            return false;
        };
        self.heard(line, now);
        if self.used != Some(line) && !self.spreads {
            // Once more, as the keepalive that followed the probe may have overtaken it.
            self.calls_back = Some(now);
        }
        true
    }

    /// Records that the protocol has sent an initiation over the line in use.
    pub(super) fn asked(&mut self, now: Instant) {
        let Some(line) = self.used else { return };
        self.probe = Some(Probe {
            line,
            sent: now,
            answered: false,
        });
        if let Some(of) = self.line(line) {
            of.health.sent(now);
        }
    }

    /// Takes the data plane's figures for the line in use. Returns when to look again.
    pub(super) fn look(&mut self, state: &PeerState, now: Instant) -> Duration {
        let moved = state.times.last_sent.max(state.times.last_received);
        let busy = moved.is_some_and(|at| now < at + RECENT);
        if self.spreads {
            // While packets are spread, traffic on one line says nothing about the others.
            let data = state
                .times
                .last_data_sent
                .max(state.times.last_data_received);
            let interval = match data.is_some_and(|at| now < at + RECENT) {
                true => PROBE_SPREAD,
                false => PROBE_IDLE,
            };
            for of in self.lines.iter_mut().filter(|of| !of.spared) {
                of.health.set_probe_interval(interval);
            }
        }
        let spreads = self.spreads;
        let asked_lately = self.answered.is_some_and(|at| now < at + ANSWERED);
        let waits = |probe: Probe| !probe.answered && now < probe.sent + PATIENCE;
        let waiting = self.probe.is_some_and(waits);
        let Some(of) = self.used.and_then(|line| self.line(line)) else {
            return if waiting { WAITING } else { BUSY };
        };
        if let Some(heard) = state
            .heard
            .filter(|heard| of.heard.is_none_or(|before| *heard > before))
        {
            of.heard = Some(heard);
            of.health.received(heard);
        }
        let data = state.times.last_data_sent;
        // A peer that does not know of lines answers through any one of them, the first that it heard.
        let elsewhere = state.times.last_received.filter(|_| spreads);
        let heard = of.heard.max(elsewhere);
        let unanswered = data.filter(|sent| heard.is_none_or(|heard| *sent > heard));
        if let Some(at) = unanswered.filter(|_| !asked_lately) {
            of.health.sent(at);
        }
        match busy {
            _ if waiting => WAITING,
            true if unanswered.is_some() => WAITING,
            true => BUSY,
            false => IDLE,
        }
    }

    /// Returns the line to probe now, and counts the probe as sent.
    pub(super) fn probe(&mut self, single: bool, now: Instant) -> Option<LineId> {
        if self.probe.is_some_and(|probe| now < self.until(&probe)) {
            return None;
        }
        let used = self.used;
        // One line at a time, in turn, so that the first lines do not keep the later ones from being probed.
        let (last, count) = (self.asked_last, self.lines.len());
        let others = (1..=count).map(|after| number((last + after) % count));
        let others = others.filter(|line| Some(*line) != used && !single);
        let due = |line: &LineId| {
            let of = self.lines.get_mut(line.index());
            of.is_some_and(|of| of.open && of.health.probe_due(now))
        };
        let line = used.into_iter().chain(others).find(due)?;
        self.probe = Some(Probe {
            line,
            sent: now,
            answered: false,
        });
        if used != Some(line) {
            self.asked_last = line.index();
        }
        if used.is_some_and(|used| used != line) && !self.spreads {
            self.calls_back = Some(now);
        }
        Some(line)
    }

    /// Until when no other initiation is sent, as it would replace this one.
    fn until(&self, probe: &Probe) -> Instant {
        if probe.answered {
            // Packets that are still on a slow line were sealed with keys that the handshake after the next removes.
            let slowest = self.lines.iter().filter_map(|of| of.health.smoothed());
            let slowest = slowest.max().filter(|_| self.spreads).unwrap_or_default();
            return probe.sent + APART.max(slowest * 2);
        }
        let of = self.lines.get(probe.line.index());
        let known = of.and_then(|of| of.health.smoothed());
        let patience = known.map_or(PATIENCE, |it| (it * 2).max(APART));
        probe.sent + patience
    }

    /// Whether to send a keepalive over the line in use, so that the peer sends there again. It is due at once, and a
    /// second time after an unanswered probe, which the first keepalive may have overtaken.
    pub(super) fn calls_back(&mut self, now: Instant) -> bool {
        let due = self.calls_back.take_if(|at| *at <= now).is_some();
        let sent = self
            .probe
            .filter(|probe| !probe.answered && probe.sent == now);
        if due && sent.is_some() {
            self.calls_back = Some(now + PATIENCE / 2);
        }
        due
    }

    /// Whether to send a keepalive over all lines: data arrives, but none goes out that shows the peer which lines it
    /// can use.
    pub(super) fn tells(&mut self, state: &PeerState, now: Instant) -> bool {
        let times = &state.times;
        let comes = times.last_data_received.is_some_and(|at| now < at + TELL);
        let told = times.last_data_sent.max(self.told);
        let due = self.mode != LineMode::Single && comes && told.is_none_or(|at| now >= at + TELL);
        if due {
            self.told = Some(now);
        }
        due
    }

    /// Judges all lines. Returns the lines whose state has changed.
    pub(super) fn judge(&mut self, now: Instant) -> Vec<(LineId, Change)> {
        let numbered = (0..).map(LineId).zip(&mut self.lines);
        let changes = numbered.filter_map(|(line, of)| Some((line, of.health.poll(now)?)));
        changes.collect()
    }

    /// Whether the peer answers over a line.
    pub(super) fn works_by(&self, line: LineId) -> bool {
        let of = self.lines.get(line.index());
        of.is_some_and(|of| of.health.state().0.usable())
    }

    /// Whether packets go over a line.
    pub(super) fn uses(&self, line: LineId) -> bool {
        let single = !matches!(self.mode, LineMode::Balance(_) | LineMode::Duplicate(_));
        self.mode.lines().contains(line) || single && self.used == Some(line)
    }

    /// Returns how the data plane is to use the lines, if that has changed.
    pub(super) fn spread(&mut self, singly: bool) -> Option<LineMode> {
        let mode = match singly {
            true => LineMode::Single,
            false => self.scheduler.line_mode(),
        };
        (std::mem::replace(&mut self.mode, mode) != mode).then_some(mode)
    }

    /// Follows the states of the lines. Returns the new line to use, if it changes, and why.
    pub(super) fn choose(&mut self, now: Instant) -> Option<(LineId, Option<Switch>)> {
        let mut switch = self.switched.take();
        for (line, of) in (0..).map(LineId).zip(&self.lines) {
            if of.open {
                let state = of.health.state().0;
                switch = self.scheduler.set_state(line, state, now).or(switch);
            }
        }
        let line = self.scheduler.active()?;
        if self.used.replace(line) == Some(line) {
            return None;
        }
        Some((line, switch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Sockets;
    use config::lines::{Line, LineMode as Mode, Lines as Settings};

    /// Makes `count` lines, all open.
    fn lines(count: usize) -> Lines {
        let mut lines = Lines::new(Settings {
            mode: Mode::Duplicate,
            lines: vec![Line::default(); count],
            ..Settings::default()
        });
        for end in &mut lines.ends {
            end.fault = None;
            end.sockets = Sockets::Open;
        }
        lines
    }

    #[test]
    fn a_peer_that_sends_hears_of_the_lines_that_it_can_send_by() {
        let lines = lines(2);
        let mut peer = PeerLines::new(&lines, SocketAddr::from(([192, 0, 2, 1], 51820)));
        let start = Instant::now();
        let told = |peer: &mut PeerLines, sends: bool| {
            let mut told = 0;
            for step in 0..100 {
                let now = start + Duration::from_millis(100) * step;
                let mut state = PeerState::default();
                state.times.last_data_received = Some(now);
                state.times.last_data_sent = sends.then_some(now);
                told += u32::from(peer.tells(&state, now));
            }
            peer.told = None;
            told
        };
        assert_eq!(told(&mut peer, false), 0, "one line");
        peer.mode = LineMode::Duplicate([LineId(0), LineId(1)].into_iter().collect());
        assert_eq!(told(&mut peer, false), 5);
        assert_eq!(told(&mut peer, true), 0);
    }

    #[test]
    fn the_round_trip_of_what_the_protocol_asks_is_not_that_of_an_older_probe() {
        let lines = lines(1);
        let mut peer = PeerLines::new(&lines, SocketAddr::from(([192, 0, 2, 1], 51820)));
        let ms = Duration::from_millis;
        let start = Instant::now();
        peer.choose(start);
        assert_eq!(peer.probe(true, start), Some(LineId(0)));
        peer.heard(LineId(0), start + ms(40));
        peer.asked(start + ms(2000));
        peer.heard(LineId(0), start + ms(2040));
        assert_eq!(peer.lines[0].health.smoothed(), Some(ms(40)));
    }

    #[test]
    fn each_line_is_asked_although_one_before_it_never_answers() {
        let lines = lines(8);
        let address = SocketAddr::from(([192, 0, 2, 1], 51820));
        let mut peer = PeerLines::new(&lines, address);
        let mut asked = [0; 8];
        let start = Instant::now();
        for step in 0..600 {
            let now = start + Duration::from_millis(100) * step;
            let mut state = PeerState::default();
            // Data goes out and arrives all the time.
            state.times.last_data_sent = Some(now);
            state.times.last_received = Some(now);
            peer.look(&state, now);
            if let Some(line) = peer.probe(false, now) {
                asked[line.index()] += 1;
                if line != LineId(1) {
                    peer.heard(line, now);
                }
            }
            peer.judge(now);
            peer.choose(now);
        }
        assert!(asked.iter().all(|times| *times >= 5), "{asked:?}");
    }
}
