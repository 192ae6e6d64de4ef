//! Counters of a window.

use std::iter::Sum;
use std::ops::Add;

/// Copies that came by one line, or from one peer by all lines, by their fate.
///
/// Each copy is counted once: [`Self::received`] is the sum of all except `buffered`, which counts the accepted packets
/// that had to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// First copies that came before their number was given up.
    pub accepted: u64,
    /// First copies that came after their number was given up.
    pub late: u64,
    /// Accepted packets that waited for a packet in front of them.
    pub buffered: u64,
    /// Copies of a number at or above the window's limit that had already come.
    pub duplicated_within: u64,
    /// Copies of a number below the window's limit that had already come.
    pub duplicated_below: u64,
    /// Copies of numbers too old to know whether they had come.
    pub ancient: u64,
    /// Copies with a number too far ahead, or that came while there was no room.
    pub ignored: u64,
}

impl Copies {
    /// All copies.
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.accepted + self.late + self.duplicated() + self.ancient + self.ignored
    }

    /// Copies of numbers that had already come.
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

/// Counters of a window, of one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The copies of all lines.
    pub copies: Copies,
    /// Numbers that were given up, including those that came later.
    pub given_up: u64,
    /// Numbers whose fate is decided: accepted or given up. Waiting packets are not counted.
    pub decided: u64,
    /// Accepted packets behind a gap: those that wait, and those that passed it.
    pub waiting: u64,
}

impl Counters {
    /// Numbers of which no copy has come. `decided` is `copies.accepted - waiting + given_up`, so this is also the
    /// packets sent minus those that came.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.given_up - self.copies.late
    }
}
