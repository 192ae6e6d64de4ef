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
mod balance;
mod failover;
#[cfg(test)]
mod tests;

pub use allowance::{Allowance, Month, NoMonth};
pub use failover::{FailoverSettings, SwitchReason};
pub use plane::LineSet;

use crate::health::LineState;
pub use balance::{FlowTable, PacketShare, Spread};
use failover::{Failover, Rank};
use plane::{LINES_MAX, LineId, LineMode};
use std::time::Instant;

/// How lines are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The preferred line, whatever its state.
    Single,
    /// The best line that works; a better one takes over after a hold time.
    #[default]
    Failover,
    /// Each packet on all lines that work.
    Duplicate,
    /// [Critical](crate::inner::Inner::critical) packets on all lines that work, all others as with failover.
    Critical,
    /// Each inner flow on one of the lines that work, by their rates.
    BalanceFlows,
    /// Each packet on one of the lines that work, by their rates; [critical](crate::inner::Inner::critical) ones as with
    /// failover. The peer must put them back into order.
    BalancePackets,
}

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

impl Default for LineSettings {
    fn default() -> Self {
        Self {
            priority: 10,
            metered: false,
            rate: None,
            used_up: false,
            stream: false,
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

    /// How the data plane is to choose for each packet, beside [`Self::active`]. Tell it both after each change.
    #[must_use]
    pub fn line_mode(&self) -> LineMode {
        match self.mode {
            Mode::Single | Mode::Failover => LineMode::Single,
            Mode::Duplicate => LineMode::Duplicate(self.several),
            Mode::Critical => LineMode::Critical(self.several),
            Mode::BalanceFlows => LineMode::Balance(self.weights()),
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
        let rank = |(line, of): (LineId, &Line)| Rank {
            down: of.state == LineState::Down,
            used_up: of.settings.used_up,
            metered: of.settings.metered,
            degraded: of.state == LineState::Degraded,
            priority: of.settings.priority,
            line,
        };
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
