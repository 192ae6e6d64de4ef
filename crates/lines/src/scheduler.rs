//! Chooses the lines on which a packet is sent.
//!
//! A [`Scheduler`] knows the lines of one peer: their settings, the verdict of their [`Health`](crate::health), and the
//! bytes that they have carried. A data plane chooses for each packet by [`Scheduler::active`] and
//! [`Scheduler::line_mode`].
//!
//! Metered lines are used only where no other works, and carry no copies then. A line that has used up its monthly
//! allowance ([`Allowance`]) is used only where not even a metered one works: higher charges or a lower rate are better
//! than no tunnel. If no line works, packets stay on the last line: the verdicts may be wrong, and a packet that is not
//! sent is certainly lost.

mod allowance;
mod failover;
#[cfg(test)]
mod tests;

pub use allowance::{Allowance, Month, NoMonth};
pub use failover::{FailoverSettings, SwitchReason};
pub use plane::LineSet;

use crate::health::LineState;
use config::lines::LineMode as Mode;
use failover::{Failover, Rank};
use plane::{LINES_MAX, LineId, LineMode};
use std::time::Instant;

/// The settings of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineSettings {
    /// Lines with a lower number are preferred.
    pub priority: u8,
    /// Whether traffic on the line costs money.
    pub metered: bool,
    /// The rate in bits a second, if known.
    pub rate: Option<u64>,
    /// Whether the line has used up its allowance of this month.
    pub used_up: bool,
    /// Whether the line carries streams (TCP), which cannot take copies or a share of the packets: it takes part in
    /// failover only.
    pub stream: bool,
}

impl From<&config::lines::Line> for LineSettings {
    fn from(line: &config::lines::Line) -> Self {
        Self {
            priority: line.priority,
            metered: line.metered,
            rate: line.rate,
            used_up: false,
            stream: false,
        }
    }
}

impl Default for LineSettings {
    fn default() -> Self {
        Self::from(&config::lines::Line::default())
    }
}

impl LineSettings {
    /// Whether tests of the line are rare, because its traffic is dear.
    #[must_use]
    pub const fn is_spared(&self) -> bool {
        self.metered || self.used_up
    }

    fn rank(&self, line: LineId, state: LineState) -> Rank {
        Rank {
            down: state == LineState::Down,
            used_up: self.used_up,
            metered: self.metered,
            degraded: state == LineState::Degraded,
            priority: self.priority,
            line,
        }
    }
}

/// A change of the line for packets that go over one line only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// The line that was used.
    pub from: Option<LineId>,
    /// The line that is used now.
    pub to: LineId,
    /// Reason for the switch.
    pub reason: SwitchReason,
}

#[derive(Clone, Debug)]
struct Line {
    settings: LineSettings,
    state: LineState,
}

/// The rate assumed for lines without a known one: only its ratio to others matters.
const RATE_UNKNOWN: u64 = 10_000_000;

/// Chooses lines for the packets of one peer.
#[derive(Clone, Debug)]
pub struct Scheduler {
    mode: Mode,
    lines: [Option<Line>; LINES_MAX],
    failover: Failover,
    /// The line for packets that go over one only.
    single: LineSet,
    /// The lines for packets that go over several.
    several: LineSet,
}

impl Scheduler {
    /// A scheduler of these settings, still without lines.
    #[must_use]
    pub fn of(settings: &config::lines::Lines) -> Self {
        let (hold, usual) = (settings.hold, FailoverSettings::default());
        let hold_max = usual.hold_max.max(hold);
        Self::new(settings.mode, FailoverSettings { hold, hold_max })
    }

    /// A scheduler without lines.
    #[must_use]
    pub const fn new(mode: Mode, failover: FailoverSettings) -> Self {
        Self {
            mode,
            lines: [const { None }; LINES_MAX],
            failover: Failover::new(failover),
            single: LineSet::EMPTY,
            several: LineSet::EMPTY,
        }
    }

    /// Adds a line, or changes its settings. Its state is unknown.
    pub fn add(&mut self, line: LineId, settings: LineSettings) {
        if let Some(place) = self.lines.get_mut(line.index()) {
            *place = Some(Line {
                settings,
                state: LineState::Unknown,
            });
        }
    }

    /// Removes a line.
    pub fn remove(&mut self, line: LineId, now: Instant) -> Option<Switch> {
        if let Some(place) = self.lines.get_mut(line.index()) {
            *place = None;
        }
        self.update(now)
    }

    /// Sets the state of a line.
    pub fn set_state(&mut self, line: LineId, state: LineState, now: Instant) -> Option<Switch> {
        if let Some(line) = self.line(line) {
            line.state = state;
        }
        self.update(now)
    }

    /// Records that a line has used up its allowance of this month, or that another month has begun.
    pub fn set_used_up(&mut self, line: LineId, used_up: bool, now: Instant) -> Option<Switch> {
        if let Some(line) = self.line(line) {
            line.settings.used_up = used_up;
        }
        self.update(now)
    }

    /// Updates the choice after time has passed.
    pub fn poll(&mut self, now: Instant) -> Option<Switch> {
        self.update(now)
    }

    /// When to poll, if nothing changes before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        match self.mode {
            Mode::Single => None,
            _ => self.failover.next_deadline(),
        }
    }

    /// The line for packets that go over one only.
    #[must_use]
    pub fn active(&self) -> Option<LineId> {
        self.single.first()
    }

    /// Whether a line, if it worked, would be preferred to another that works.
    #[must_use]
    pub fn prefers(&self, line: LineId, to: LineId) -> bool {
        let rank = |line: LineId| {
            let of = self.lines.get(line.index())?.as_ref()?;
            Some(of.settings.rank(line, LineState::Up))
        };
        self.mode != Mode::Single && rank(line) < rank(to)
    }

    /// See [`LineSettings::is_spared`]; false for a line that was not added.
    #[must_use]
    pub fn is_spared(&self, line: LineId) -> bool {
        let line = self.lines.get(line.index()).and_then(Option::as_ref);
        line.is_some_and(|it| it.settings.is_spared())
    }

    /// How the data plane is to choose for each packet, beside [`Self::active`]. Tell it both after each change.
    #[must_use]
    pub fn line_mode(&self) -> LineMode {
        match self.mode {
            Mode::Single | Mode::Failover => LineMode::Single,
            Mode::Duplicate => LineMode::Duplicate(self.several),
            Mode::Critical => LineMode::Critical(self.several),
            Mode::Balance => LineMode::Balance(self.weights()),
            Mode::BalancePackets => LineMode::BalancePackets(self.weights()),
        }
    }

    fn line(&mut self, line: LineId) -> Option<&mut Line> {
        self.lines.get_mut(line.index())?.as_mut()
    }

    fn lines(&self) -> impl Iterator<Item = (LineId, &Line)> + Clone {
        let numbered = (0..).map(LineId).zip(&self.lines);
        numbered.filter_map(|(id, line)| Some((id, line.as_ref()?)))
    }

    fn update(&mut self, now: Instant) -> Option<Switch> {
        let rank = |(line, of): (LineId, &Line)| of.settings.rank(line, of.state);
        let mut switch = None;
        if self.mode == Mode::Single {
            let preferred = self
                .lines()
                .min_by_key(|(id, line)| (line.settings.priority, *id));
            self.single = preferred.map_or(LineSet::EMPTY, |(id, _)| LineSet::of(id));
        } else {
            let usable = self.lines().filter(|(_, line)| line.state.usable());
            let usable = usable.map(rank);
            let active = self.failover.active();
            let current = usable.clone().find(|rank| Some(rank.line) == active);
            let best = usable.min();
            switch = self.failover.choose(best, current, now);
            let active = self.failover.active();
            // The best guess, before any line is known to work and after all have failed. The line in use stays unless
            // it is known not to work, and another may.
            let guess = self.lines().map(rank).min();
            let may = guess.is_some_and(|guess| !guess.down);
            let stays = |line: &LineId| {
                let line = self.lines[line.index()].as_ref();
                line.is_some_and(|line| line.state != LineState::Down || !may)
            };
            let line = active.filter(stays).or_else(|| Some(guess?.line));
            self.single = line.map_or(LineSet::EMPTY, LineSet::of);
        }
        self.several = self.several_lines();
        switch
    }

    /// The lines for copies and shares: lines that work and cost nothing, or else the line in use.
    fn several_lines(&self) -> LineSet {
        let free = |line: &Line| {
            let LineSettings {
                metered,
                used_up,
                stream,
                ..
            } = line.settings;
            line.state.usable() && !metered && !used_up && !stream
        };
        let lines: LineSet = self
            .lines()
            .filter(|(_, line)| free(line))
            .map(|(id, _)| id)
            .collect();
        if lines.is_empty() { self.single } else { lines }
    }

    /// The weights of the lines by which flows and packets are shared.
    fn weights(&self) -> [u64; LINES_MAX] {
        let mut weights = [0; LINES_MAX];
        for (id, line) in self.lines().filter(|(id, _)| self.several.contains(*id)) {
            let rate = line.settings.rate.unwrap_or(RATE_UNKNOWN);
            weights[id.index()] = rate.clamp(1, 1 << 50);
        }
        weights
    }
}
