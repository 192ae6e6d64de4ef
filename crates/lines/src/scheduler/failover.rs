//! Uses one line at a time, and decides when another takes over.

use super::Switch;
use plane::LineId;
use std::fmt;
use std::time::{Duration, Instant};

/// The rank of a line: less is better, and the first field that differs decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// Whether the line is known not to work: set only for lines in a best guess, never for usable ones.
    pub(super) down: bool,
    pub(super) used_up: bool,
    pub(super) metered: bool,
    pub(super) degraded: bool,
    pub(super) priority: u8,
    /// Breaks ties among lines of one priority: the lowest number.
    pub(super) line: LineId,
}

/// The settings for going back to a better line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailoverSettings {
    /// A better line must have been usable for this long before it takes over from one that works.
    pub hold: Duration,
    /// The limit of the hold time, which doubles each time a line fails soon after it took over.
    pub hold_max: Duration,
}

impl Default for FailoverSettings {
    /// 30 seconds, up to 15 minutes.
    fn default() -> Self {
        Self {
            hold: Duration::from_secs(30),
            hold_max: Duration::from_secs(15 * 60),
        }
    }
}

/// Why another line is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchReason {
    /// No line was in use.
    First,
    /// The line that was in use does not work any more.
    Failed,
    /// The line that was in use has degraded, and this one has not.
    Degraded,
    /// The line that was in use has used up its allowance of this month.
    UsedUp,
    /// This line is preferred, and has worked for the hold time.
    Preferred(Duration),
}

impl fmt::Display for SwitchReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First => f.write_str("no uplink was in use"),
            Self::Failed => f.write_str("the uplink in use has failed"),
            Self::Degraded => f.write_str("the uplink in use has degraded"),
            Self::UsedUp => f.write_str("the uplink in use has reached its monthly cap"),
            Self::Preferred(hold) => {
                write!(f, "it is preferred and has worked for {} s", hold.as_secs())
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Failover {
    settings: FailoverSettings,
    active: Option<LineId>,
    /// Whether the active line was used up at the last check.
    used_up: bool,
    hold: Duration,
    /// A better line, and the time since when it is better.
    better: Option<(LineId, Instant)>,
    /// When a better line took over last.
    went_back: Option<Instant>,
}

impl Failover {
    pub(super) const fn new(settings: FailoverSettings) -> Self {
        Self {
            settings,
            active: None,
            used_up: false,
            hold: settings.hold,
            better: None,
            went_back: None,
        }
    }

    pub(super) const fn active(&self) -> Option<LineId> {
        self.active
    }

    /// When the better line takes over, if nothing changes.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.better.map(|(_, since)| since + self.hold)
    }

    /// Chooses between the best usable line and the line in use, which is `current` if it is usable. Returns the
    /// switch, if any.
    pub(super) fn choose(
        &mut self,
        best: Option<Rank>,
        current: Option<Rank>,
        now: Instant,
    ) -> Option<Switch> {
        let Some(best) = best else {
            // Packets stay on the last line, which may come back before that is noticed.
            self.better = None;
            return None;
        };
        self.calm_down(now);
        let used_up = current.is_some_and(|current| current.used_up);
        // A better line that has come back must prove itself for the hold time. If instead the line in use has just
        // been used up, the switch is immediate.
        let newly = std::mem::replace(&mut self.used_up, used_up) != used_up && used_up;
        let reason = match (self.active, current) {
            (None, _) => SwitchReason::First,
            (Some(_), None) => SwitchReason::Failed,
            (Some(_), Some(current)) if current.line == best.line => {
                self.better = None;
                return None;
            }
            (Some(_), Some(_)) if newly && !best.used_up => SwitchReason::UsedUp,
            (Some(_), Some(current))
                if current.degraded && !best.degraded && current.metered == best.metered =>
            {
                SwitchReason::Degraded
            }
            _ => {
                let since = match self.better {
                    Some((line, since)) if line == best.line => since,
                    _ => now,
                };
                self.better = Some((best.line, since));
                if now < since + self.hold {
                    return None;
                }
                SwitchReason::Preferred(self.hold)
            }
        };
        self.used_up = best.used_up;
        self.switch(best.line, reason, now)
    }

    fn switch(&mut self, to: LineId, reason: SwitchReason, now: Instant) -> Option<Switch> {
        match reason {
            SwitchReason::Preferred(_) => self.went_back = Some(now),
            SwitchReason::Failed | SwitchReason::Degraded => {
                // The line failed soon after it took over: the next time it must prove itself for longer.
                let soon = self.went_back.is_some_and(|at| now < at + self.hold * 4);
                if soon {
                    self.hold = (self.hold * 2).min(self.settings.hold_max);
                }
                self.went_back = None;
            }
            SwitchReason::UsedUp => self.went_back = None,
            SwitchReason::First => {}
        }
        self.better = None;
        let from = self.active.replace(to);
        Some(Switch { from, to, reason })
    }

    /// Resets the hold time once a line that took over has worked for long.
    fn calm_down(&mut self, now: Instant) {
        if self.went_back.is_some_and(|at| now >= at + self.hold * 4) {
            self.hold = self.settings.hold;
            self.went_back = None;
        }
    }
}
