//! One line as a window knows it: whether it is alive, how late its packets are, how much it reorders them itself.
//! Times are microseconds since the window's first packet.

use std::iter::Sum;
use std::ops::Add;

use super::trail::Trail;

/// A line that was silent for less than this is alive, however often it had delivered before: a transfer over a long
/// path comes in bursts, one each round trip. If a line is dead, packets wait for it no longer than its usual lateness.
const SILENCE_MIN: u64 = 1_000_000;
/// Minimum slack of a line: the inaccuracy of clocks and batches.
const SLACK_MIN: u64 = 500;
/// Mean deviation assumed for an unknown line. The window waits for four mean deviations.
const UNKNOWN: u64 = 80_000;
/// Slack of a line whose reordering is still unknown: as much as delays of 200 ms that vary by a quarter.
const SLACK_UNKNOWN: u64 = 100_000;
/// Overtaken packets of a line after which its reordering is known.
const DOUBTS: u16 = 256;
/// How many doubts a lost packet removes, and by which part it shortens the known displacement.
const DOUBTS_OF_LOSS: u16 = DOUBTS / 8;
const PART_OF_LOSS: u64 = 64;
/// The time within which a greatest value is forgotten.
const PEAK_LIFE: u64 = 30_000_000;
/// Packets further apart than this cannot overtake each other, so the displacement does not fade meanwhile.
const APART: u64 = 100_000;

/// A greatest value that fades.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    value: u64,
    at: u64,
}

impl Peak {
    const fn at(self, now: u64) -> u64 {
        let left = PEAK_LIFE.saturating_sub(now.saturating_sub(self.at));
        // Displacements are below a few seconds: no overflow.
        self.value * left / PEAK_LIFE
    }

    fn sample(&mut self, value: u64, now: u64) {
        if value >= self.at(now) {
            *self = Self { value, at: now };
        }
    }
}

/// Mean and mean deviation, after RFC 6298, in 256ths, of the packets that are late at all. Packets in time pull both
/// down slowly: a line that jitters delivers most of its packets in time, and the few late ones show the lateness.
#[derive(Clone, Copy, Debug)]
struct Lateness {
    mean: u64,
    deviation: u64,
}

impl Default for Lateness {
    /// The values before any packet: packets may be late by as much as two lines differ.
    fn default() -> Self {
        Self {
            mean: 0,
            deviation: UNKNOWN * 256,
        }
    }
}

impl Lateness {
    const fn sample(&mut self, value: u64) {
        if value == 0 {
            self.deviation -= self.deviation / 256;
            self.mean -= self.mean / 256;
            return;
        }
        let value = value * 256;
        let difference = value.abs_diff(self.mean);
        self.deviation = self.deviation - self.deviation / 4 + difference / 4;
        self.mean = self.mean - self.mean / 8 + value / 8;
    }
}

/// Copies that came over one line, or from one peer over all lines, by their fate.
///
/// Each copy is counted once: [`Self::received`] is the sum of all except `buffered`, which counts the accepted packets
/// that had to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// Packets that came before their number was given up.
    pub accepted: u64,
    /// Packets that came after their number was given up.
    pub late: u64,
    /// Accepted packets that waited for a packet in front of them.
    pub buffered: u64,
    /// Duplicates of packets that had arrived before, with a number at or above the window's limit.
    pub duplicated_within: u64,
    /// Duplicates of packets that had arrived before, with a number below the window's limit.
    pub duplicated_below: u64,
    /// Packets whose number is too old to know whether it had come.
    pub ancient: u64,
    /// Packets whose number is too far ahead, or that came while there was no room.
    pub ignored: u64,
}

impl Copies {
    /// Number of received packets, copies included.
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.accepted + self.late + self.duplicated() + self.ancient + self.ignored
    }

    /// Duplicates: packets whose number had already come.
    #[must_use]
    pub const fn duplicated(&self) -> u64 {
        self.duplicated_within + self.duplicated_below
    }
}

impl Add for Copies {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            accepted: self.accepted + other.accepted,
            late: self.late + other.late,
            buffered: self.buffered + other.buffered,
            duplicated_within: self.duplicated_within + other.duplicated_within,
            duplicated_below: self.duplicated_below + other.duplicated_below,
            ancient: self.ancient + other.ancient,
            ignored: self.ignored + other.ignored,
        }
    }
}

impl Sum for Copies {
    fn sum<I: Iterator<Item = Self>>(copies: I) -> Self {
        copies.fold(Self::default(), Add::add)
    }
}

#[derive(Clone, Debug)]
pub(super) struct LineTrack {
    pub(super) copies: Copies,
    trail: Trail,
    /// When the line last delivered anything; `None` if it has not.
    heard: Option<u64>,
    /// Mean time between packets.
    gap: u64,
    lateness: Lateness,
    latest: Peak,
    displacement: Peak,
    /// The part of [`DOUBTS`] that is left.
    doubts: u16,
}

/// The reordering seen on lines, for the window of a peer's next session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reordering {
    /// The longest time by which a packet was overtaken by others of its line, in microseconds, whole milliseconds. It
    /// fades.
    displacement: u64,
    /// Overtaken packets still to be seen until the displacement counts as known.
    doubts: u16,
}

impl Default for Reordering {
    /// The values before any packet.
    fn default() -> Self {
        Self {
            displacement: 0,
            doubts: DOUBTS,
        }
    }
}

impl Reordering {
    /// The reordering of lines that are known to keep order.
    #[cfg(test)]
    pub(crate) const NONE: Self = Self {
        displacement: 0,
        doubts: 0,
    };

    /// Merges two lines' reordering into the expectation for a line that may be like either.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            displacement: self.displacement.max(other.displacement),
            doubts: self.doubts.max(other.doubts),
        }
    }
}

impl LineTrack {
    /// Makes a line that is expected to reorder as others did.
    pub(super) fn new(expected: Reordering, now: u64) -> Self {
        Self {
            copies: Copies::default(),
            trail: Trail::new(),
            heard: None,
            gap: 0,
            lateness: Lateness::default(),
            latest: Peak::default(),
            displacement: Peak {
                value: expected.displacement,
                at: now,
            },
            doubts: expected.doubts,
        }
    }

    /// The reordering seen on the line; `None` if it has delivered nothing.
    pub(super) fn reordering(&self, now: u64) -> Option<Reordering> {
        self.heard?;
        Some(Reordering {
            displacement: self.displacement.at(now).div_ceil(1000) * 1000,
            doubts: self.doubts,
        })
    }

    /// Records the loss of a number that the line may have passed.
    pub(super) fn lost(&mut self, number: u64) {
        if self.trail.first_from(number).is_some() {
            self.doubts = self.doubts.saturating_sub(DOUBTS_OF_LOSS);
            self.displacement.value -= self.displacement.value / PART_OF_LOSS;
        }
    }

    /// Records that the line has delivered a copy of `number`, which some line had passed `lateness` ago; `None` if
    /// that is too long to be meaningful.
    pub(super) fn delivered(&mut self, number: u64, lateness: Option<u64>, now: u64) {
        if let Some(heard) = self.heard {
            let gap = now.saturating_sub(heard);
            if gap > APART {
                self.displacement.at += gap;
            }
            self.gap = self.gap - self.gap / 16 + gap.min(1_000_000) / 16;
        }
        self.heard = Some(now);
        let overtaken = self.trail.first_from(number + 1);
        self.trail.push(number, now);
        let Some(lateness) = lateness else {
            return;
        };
        if let Some(overtaken) = overtaken {
            // The displacement is at most the time since the first line passed the number.
            let displacement = now.saturating_sub(overtaken).min(lateness);
            self.displacement.sample(displacement, now);
            self.doubts = self.doubts.saturating_sub(1);
        }
        self.lateness.sample(lateness);
        self.latest.sample(lateness, now);
    }

    /// When the line first delivered this number or a greater one.
    pub(super) fn first_from(&self, number: u64) -> Option<u64> {
        self.trail.first_from(number)
    }

    /// Records that the line is alive, by a packet that says nothing about its order.
    pub(super) const fn spoke(&mut self, now: u64) {
        self.heard = Some(now);
    }

    /// The highest number that is final on this line: its slack has run out, so the line will deliver no lower number.
    #[inline]
    pub(super) fn passed(&self, now: u64) -> Option<u64> {
        self.trail.number_at(now.checked_sub(self.slack(now))?)
    }

    /// The time until which the line counts as alive if it stays silent. Silence while all lines were silent, up to
    /// `busy_since`, does not count.
    pub(super) fn alive_until(&self, busy_since: u64) -> Option<u64> {
        let heard = self.heard?;
        Some(heard.max(busy_since) + SILENCE_MIN.max(4 * self.gap))
    }

    /// How long a packet of this line may still be overtaken by others of the same line.
    pub(super) fn slack(&self, now: u64) -> u64 {
        let doubts = u64::from(self.doubts);
        let unknown = SLACK_UNKNOWN * doubts / u64::from(DOUBTS);
        // A quarter more than was seen, and twice as much while the displacement is not known.
        let seen = self.displacement.at(now);
        let seen = seen * 5 / 4 + seen * 3 / 4 * doubts / u64::from(DOUBTS);
        SLACK_MIN.max(unknown).max(seen)
    }

    /// Mean lateness.
    pub(super) const fn lateness(&self) -> u64 {
        self.lateness.mean / 256
    }

    /// Mean lateness plus `halves / 2` times its mean deviation, and at least the recent maximum: jitter has a longer
    /// tail than four deviations.
    pub(super) fn late_at_most(&self, halves: u64, now: u64) -> u64 {
        let usual = (self.lateness.mean + self.lateness.deviation * halves / 2) / 256;
        usual.max(self.latest.at(now))
    }

    /// Mean lateness and four times its mean deviation.
    pub(super) const fn late_mostly(&self) -> u64 {
        (self.lateness.mean + self.lateness.deviation * 4) / 256
    }

    /// Forgets the numbers of the line, because the peer has restarted.
    pub(super) fn restart(&mut self, now: u64) {
        *self = Self {
            copies: self.copies,
            heard: self.heard,
            gap: self.gap,
            ..Self::new(self.reordering(now).unwrap_or_default(), now)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_which_nothing_is_known_has_much_slack_until_it_is() {
        let mut line = LineTrack::new(Reordering::default(), 0);
        assert_eq!(line.slack(0), SLACK_UNKNOWN);
        let count = 2 * u64::from(DOUBTS);
        for number in (1..count).step_by(2) {
            let now = number * 1000;
            line.delivered(number, Some(0), now);
            line.delivered(number - 1, Some(400), now + 400);
        }
        let now = count * 1000;
        assert_eq!(line.slack(now), SLACK_MIN);
        let mut next = LineTrack::new(line.reordering(now).unwrap(), 0);
        assert_eq!(next.slack(0), 1250, "whole milliseconds");
        next.delivered(2, Some(0), 1000);
        next.delivered(1, Some(8000), 9000);
        let third = LineTrack::new(next.reordering(9000).unwrap(), 0);
        assert_eq!(third.slack(0), 10_000);
    }

    #[test]
    fn what_is_handed_on_is_the_worst_of_all_lines() {
        let sure = Reordering {
            displacement: 9000,
            doubts: 3,
        };
        let unknown = Reordering::default();
        let both = Reordering {
            displacement: 9000,
            doubts: DOUBTS,
        };
        assert_eq!(sure.or(unknown), both);
        assert_eq!(unknown.or(sure), both);
        assert_eq!(LineTrack::new(sure, 0).reordering(0), None, "not heard");
    }

    #[test]
    fn what_was_lost_tells_too_that_a_line_keeps_order() {
        let mut line = LineTrack::new(Reordering::default(), 0);
        line.lost(0);
        assert_eq!(line.slack(0), SLACK_UNKNOWN, "it had not passed it");
        line.delivered(100, Some(0), 1_000_000);
        for lost in 1..=DOUBTS / DOUBTS_OF_LOSS {
            let before = line.slack(0);
            line.lost(0);
            assert!(line.slack(0) < before, "{lost}");
        }
        assert_eq!(line.slack(0), SLACK_MIN);
    }

    #[test]
    fn what_reorders_is_not_forgotten_while_the_line_is_idle() {
        let mut line = LineTrack::new(Reordering::NONE, 0);
        line.delivered(2, Some(0), 1000);
        line.delivered(1, Some(8000), 9000);
        let hour = 3_600_000_000;
        line.delivered(3, Some(0), hour);
        assert_eq!(line.slack(hour), 10_000);
        // Packets follow one another for as long as a peak lives.
        for step in 1..=PEAK_LIFE / APART {
            line.delivered(3 + step, Some(0), hour + step * APART);
        }
        assert_eq!(line.slack(hour + PEAK_LIFE), SLACK_MIN);
    }

    #[test]
    fn a_line_that_reorders_has_slack_and_loses_it() {
        let mut line = LineTrack::new(Reordering::NONE, 0);
        line.delivered(2, Some(0), 1000);
        line.delivered(1, Some(4000), 5000);
        assert_eq!(line.slack(5000), 5000);
        line.delivered(0, None, 6000);
        assert!(line.slack(6000) < 5000, "an old copy");
        assert_eq!(line.slack(5000 + PEAK_LIFE), SLACK_MIN);
    }

    #[test]
    fn lateness_is_learnt() {
        let mut line = LineTrack::new(Reordering::NONE, 0);
        for number in 0..200 {
            line.delivered(number, Some(30_000), number * 1000);
        }
        assert!((29_900..=30_000).contains(&line.lateness()));
        assert!((29_900..30_500).contains(&line.late_at_most(8, 200_000)));
    }

    #[test]
    fn silence_counts_from_when_others_began_to_speak() {
        let mut line = LineTrack::new(Reordering::NONE, 0);
        assert_eq!(line.alive_until(0), None);
        line.delivered(1, Some(0), 1000);
        assert_eq!(line.alive_until(0), Some(1_001_000));
        assert_eq!(line.alive_until(5_000_000), Some(6_000_000));
    }
}
