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

    /// The number of packets lost on the line, of `sent` ones that each went over it, if the network makes no copies.
    #[must_use]
    pub const fn lost(&self, sent: u64) -> u64 {
        sent.saturating_sub(self.received())
    }

    /// First copies of a number: the line's useful deliveries.
    #[must_use]
    pub const fn first(&self) -> u64 {
        self.accepted + self.late
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
    /// How often the peer has begun anew.
    pub restarts: u64,
}

impl Counters {
    /// Numbers of which no copy has come. `decided` is `copies.accepted - waiting + given_up`, so this is also the
    /// packets sent minus those that came.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.given_up - self.copies.late
    }

    /// Copies that were lost on all lines together, if each of `lines` lines carried every packet.
    ///
    /// On one line this is [`Self::lost`], if the network itself makes no copies.
    #[must_use]
    pub const fn lost_copies(&self, lines: u64) -> u64 {
        let sent = lines * (self.decided + self.waiting);
        sent.saturating_sub(self.copies.received())
    }

    /// The counters in the terms of the PPTP sequence window for OpenWrt kernels.
    #[must_use]
    pub const fn pptp(&self) -> PptpCounters {
        PptpCounters {
            accepted: self.copies.accepted,
            under_window: self.copies.duplicated_below + self.copies.late + self.copies.ancient,
            buffered: self.copies.buffered,
            duplicated: self.copies.duplicated_within,
            lost: self.given_up + 1,
        }
    }
}

/// Figures in the form of `/proc/pptp/NAME` of the PPTP sequence window for OpenWrt kernels.
///
/// There `lost` begins with 1, and `under_window` counts late packets and duplicates, which that module cannot tell
/// apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PptpCounters {
    /// Packets that came before their number was given up.
    pub accepted: u64,
    /// Packets at or below the last one that was handed up.
    pub under_window: u64,
    /// Packets that waited.
    pub buffered: u64,
    /// Packets above the last one handed up that had already come.
    pub duplicated: u64,
    /// Numbers that were given up, plus one.
    pub lost: u64,
}

impl PptpCounters {
    /// Numbers that the peer has sent.
    #[must_use]
    pub const fn sent(&self) -> u64 {
        self.accepted + self.lost - 1
    }

    /// Copies that were lost on two lines together, if both carried every packet.
    #[must_use]
    pub const fn lost_on_two_lines(&self) -> u64 {
        (self.accepted + (self.lost - 1) * 2).saturating_sub(self.under_window + self.duplicated)
    }

    /// Packets that were lost, if there is only one line.
    #[must_use]
    pub const fn lost_on_one_line(&self) -> u64 {
        (self.lost - 1).saturating_sub(self.under_window)
    }
}
