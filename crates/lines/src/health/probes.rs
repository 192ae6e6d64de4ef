//! The last probes of a line, for the share that was lost.

use std::time::{Duration, Instant};

/// Number of probes that count.
const COUNTED: u8 = 32;

/// Fewest probes for a loss figure.
const ENOUGH: u8 = 8;

/// Longest pause between two probes that belong together. On a busy or metered line they are further apart, and do not
/// show the present state.
const APART: Duration = Duration::from_secs(40);

/// The share of lost probes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Loss {
    /// Percent of the probes that were lost.
    pub percent: u8,
    /// When the last probe was sent.
    last: Instant,
}

impl Loss {
    /// Whether the last probe was sent lately.
    #[must_use]
    pub fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) <= APART
    }
}

/// The last probes.
#[derive(Clone, Debug, Default)]
pub(super) struct Probes {
    /// A bit for each probe without an answer; the last probe has the lowest.
    lost: u32,
    /// Number of probes, at most [`COUNTED`].
    count: u8,
    last: Option<Instant>,
}

impl Probes {
    /// Counts a probe that is sent now.
    pub(super) fn sent(&mut self, now: Instant) {
        if self.last.is_some_and(|it| now > it + APART) {
            *self = Self::default();
        }
        self.last = Some(now);
        self.lost = self.lost << 1 | 1;
        self.count = COUNTED.min(self.count + 1);
    }

    /// Counts the answer to the last probe.
    pub(super) const fn answered(&mut self) {
        self.lost &= !1;
    }

    /// The share of lost probes, without the last, whose answer may be on its way.
    pub(super) fn loss(&self) -> Option<Loss> {
        let count = self.count.saturating_sub(1);
        let lost = (self.lost >> 1).count_ones();
        Some(Loss {
            percent: (lost * 100 / u32::from(count).max(1)) as u8,
            last: self.last.filter(|_| count >= ENOUGH)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_probes_count_and_old_ones_do_not() {
        let (mut probes, mut now) = (Probes::default(), Instant::now());
        let mut ask = |count: usize, every: usize, apart: u64| {
            for number in 0..count {
                now += Duration::from_secs(apart);
                probes.sent(now);
                if every == 0 || number % every != 0 {
                    probes.answered();
                }
            }
            let loss = probes.loss();
            assert!(loss.is_none_or(|it| {
                it.is_recent(now + APART) && !it.is_recent(now + APART + Duration::from_secs(1))
            }));
            loss.map(|it| it.percent)
        };
        for (count, every, apart, percent) in [
            (8, 0, 5, None),
            (1, 0, 5, Some(0)),
            // One in four of 31 probes, then all, and as a line that works again.
            (40, 4, 5, Some(25)),
            (40, 1, 5, Some(100)),
            (20, 0, 5, Some(38)),
            (40, 0, 5, Some(0)),
            // Metered: one a minute.
            (40, 1, 60, None),
            (8, 0, 40, Some(12)),
        ] {
            assert_eq!(
                ask(count, every, apart),
                percent,
                "{count} of {every} at {apart}"
            );
        }
    }
}
