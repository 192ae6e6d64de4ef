//! A data plane's state of the lines of a peer, for people and for the choice of lines.

use crate::Line;
use std::time::Instant;

/// Counts of one line of a peer, since the peer was made.
///
/// Each copy of an authentic packet is counted once, by what became of it: [`Self::received`] is the sum of all but
/// `buffered`, which says how many of the accepted had to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounts {
    /// Packets that were sent by this line, copies among them.
    pub sent: u64,
    /// Their bytes, headers and tags included.
    pub sent_bytes: u64,
    /// Bytes of the packets that were received, headers and tags included, without copies.
    pub received_bytes: u64,
    /// First copies that came in time.
    pub accepted: u64,
    /// First copies that came after their number was no longer waited for. None where packets are not put into order.
    pub late: u64,
    /// Accepted ones that waited for a packet in front of them.
    pub buffered: u64,
    /// Copies whose number had come, by this line or another.
    pub duplicated: u64,
    /// Copies of numbers too old to know whether they had come.
    pub ancient: u64,
}

impl LineCounts {
    /// All copies that were received.
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.accepted + self.late + self.duplicated + self.ancient
    }

    /// Copies that were the first of their number: what the line was good for.
    #[must_use]
    pub const fn first(&self) -> u64 {
        self.accepted + self.late
    }

    /// Of `sent` packets that the peer sent by this line, how many were lost on it, if the network makes no copies.
    #[must_use]
    pub const fn lost(&self, sent: u64) -> u64 {
        sent.saturating_sub(self.received())
    }
}

/// One line of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineState {
    /// Which line, where the peer is on it, and by what transport.
    pub line: Line,
    /// When an authentic packet came by it last, copies included.
    pub heard: Option<Instant>,
    /// Its counts. Addresses that were gathered on one line ([`Moving::Gather`](crate::Moving::Gather)) are counted
    /// together, and each of them has these counts.
    pub counts: LineCounts,
}

impl LineState {
    /// A line that nothing went over.
    #[must_use]
    pub fn unused(line: Line) -> Self {
        Self {
            line,
            heard: None,
            counts: LineCounts::default(),
        }
    }
}

/// Counts of putting packets into order, of one peer over all lines and sessions. All 0 while packets are written as
/// they come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderCounts {
    /// Numbers that were no longer waited for, those with them whose packet came later.
    pub given_up: u64,
    /// Numbers whose fate is decided: accepted or given up.
    pub decided: u64,
    /// Accepted packets behind a gap.
    pub waiting: u64,
    /// First copies that came in time.
    pub accepted: u64,
    /// First copies that came after their number was given up.
    pub late: u64,
    /// All copies.
    pub received: u64,
    /// Numbers that the peer was asked for because they were missing.
    pub asked: u64,
    /// Numbers of these that have come.
    pub repaired: u64,
}

impl OrderCounts {
    /// Numbers of which no copy has come. `decided` is `accepted - waiting + given_up`, so that it is also what was sent
    /// less what came.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.given_up.saturating_sub(self.late)
    }

    /// Copies that were lost on all lines together, if each of `lines` lines carried every packet.
    #[must_use]
    pub const fn lost_copies(&self, lines: u64) -> u64 {
        let sent = lines * (self.decided + self.waiting);
        sent.saturating_sub(self.received)
    }
}

/// The state of a peer's lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerLines {
    /// Each line, and of a line with several addresses each of these, in the order of the lines' numbers.
    pub lines: Vec<LineState>,
    /// The counts of putting packets into order.
    pub order: OrderCounts,
}
