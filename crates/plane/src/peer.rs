//! A peer as control and a data plane speak of it.

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
    /// When an authentic data packet last came by `line`.
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
