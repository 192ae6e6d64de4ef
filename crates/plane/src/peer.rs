//! The state of a peer and its lines that a data plane reports to control.

use crate::Line;
use std::time::Instant;

/// A peer of one data plane: a small number that control chooses, used again only after the peer was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub u32);

/// The meaning of authentic packets of a peer from another address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Moving {
    /// The peer has moved; control gets [`Notice::Moved`](crate::Notice::Moved).
    Tell,
    /// The packets are suspect, and are dropped.
    Stay,
    /// The peer is at that address as well: it uses several lines, of which this end sees only the addresses. Each
    /// address at which the peer was heard within the last seconds counts as a line of its own. Packets for several
    /// lines ([`LineMode`](crate::LineMode)) go to each of them. Packets for one line go to the same address as before,
    /// until the peer is silent there and heard elsewhere; then it has moved, and control is told.
    Gather,
}

/// When a peer was last active; see the WireGuard kernel module's `timers.c` for how these drive
/// a protocol's timers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The first data sent since anything authenticated was received.
    pub unanswered_since: Option<Instant>,
    /// The first data received since anything was sent.
    pub unacked_since: Option<Instant>,
    /// The last data sent.
    pub last_data_sent: Option<Instant>,
    /// The last authenticated packet sent.
    pub last_sent: Option<Instant>,
    /// The last authenticated packet received.
    pub last_received: Option<Instant>,
    /// The last data received.
    pub last_data_received: Option<Instant>,
}

/// A data plane's state of a peer at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerState {
    /// The line that is used to send, with the address where the peer was heard last; `None` while it has none.
    pub line: Option<Line>,
    /// The times of the peer's last activity.
    pub times: Times,
    /// The data plane itself detects when the peer falls silent; `times` then only show that it is not silent.
    pub guarded: bool,
    /// When an authentic data packet last came over `line`.
    pub heard: Option<Instant>,
    /// Bytes of authenticated packets received, headers and tags included.
    pub rx_bytes: u64,
    /// Bytes of packets sent, headers and tags included.
    pub tx_bytes: u64,
    /// Packets that the sending key has sealed; `None` where there is no such key.
    pub sealed: Option<u64>,
    /// Whether packets wait for a session.
    pub staged: bool,
    /// Bytes of `rx_bytes` and `tx_bytes` that carried no host traffic: keepalives, and messages inside data packets. 0
    /// if the data plane does not include those in the totals.
    pub message_bytes: u64,
}

impl PeerState {
    /// Bytes of packets that carried host traffic, both ways, headers and tags included.
    #[must_use]
    pub const fn payload_bytes(&self) -> u64 {
        (self.rx_bytes + self.tx_bytes).saturating_sub(self.message_bytes)
    }
}

/// Counts of one line of a peer, since the peer was made.
///
/// Each copy of an authentic packet is counted once, by its fate: [`Self::received`] is the sum of all except
/// `buffered`, which counts the accepted packets that had to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounts {
    /// Packets sent over this line, copies included.
    pub sent: u64,
    /// Bytes of the sent packets, headers and tags included.
    pub sent_bytes: u64,
    /// Bytes of the packets that were received, headers and tags included, without copies.
    pub received_bytes: u64,
    /// First copies that came before their number was given up.
    pub accepted: u64,
    /// First copies that came after their number was given up. Always 0 where packets are not put into order.
    pub late: u64,
    /// Accepted packets that waited for a packet in front of them.
    pub buffered: u64,
    /// Copies whose number had already come, over this line or another.
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

    /// First copies of a number: the line's useful deliveries.
    #[must_use]
    pub const fn first(&self) -> u64 {
        self.accepted + self.late
    }

    /// The number of packets lost on this line, of the `sent` ones that the peer sent over it, if the network makes no
    /// copies.
    #[must_use]
    pub const fn lost(&self, sent: u64) -> u64 {
        sent.saturating_sub(self.received())
    }
}

/// One line of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineState {
    /// The line, the peer's address on it, and the transport.
    pub line: Line,
    /// The time of the last authentic packet on this line, copies included.
    pub heard: Option<Instant>,
    /// The counts of the line. Addresses gathered on one line ([`Moving::Gather`]) are counted
    /// together, and each of them has these counts.
    pub counts: LineCounts,
}

impl LineState {
    /// The state of a line without traffic so far.
    #[must_use]
    pub fn unused(line: Line) -> Self {
        Self {
            line,
            heard: None,
            counts: LineCounts::default(),
        }
    }
}

/// Reordering counts of one peer over all lines and sessions. All are 0 while packets are written as they come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderCounts {
    /// Numbers that were given up, including those whose packet came later.
    pub given_up: u64,
    /// Numbers whose fate is decided: accepted or given up.
    pub decided: u64,
    /// Accepted packets behind a gap.
    pub waiting: u64,
    /// First copies that came before their number was given up.
    pub accepted: u64,
    /// First copies that came after their number was given up.
    pub late: u64,
    /// All copies that were received.
    pub received: u64,
    /// Missing numbers that the peer was asked for.
    pub asked: u64,
    /// Requested numbers that have come.
    pub repaired: u64,
}

impl OrderCounts {
    /// Numbers of which no copy has come. `decided` is `accepted - waiting + given_up`, so this is also the packets
    /// sent minus those that came.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.given_up.saturating_sub(self.late)
    }

    /// Total number of lost copies over all lines, if each of `lines` lines carried every packet.
    #[must_use]
    pub const fn lost_copies(&self, lines: u64) -> u64 {
        let sent = lines * (self.decided + self.waiting);
        sent.saturating_sub(self.received)
    }
}

/// The state of a peer's lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerLines {
    /// Each line, or each address of a line with several, in the order of the lines' numbers.
    pub lines: Vec<LineState>,
    /// The counts of putting packets into order.
    pub order: OrderCounts,
}
