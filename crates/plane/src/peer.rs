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
    /// That it has moved, which control is told ([`Notice::Moved`](crate::Notice::Moved)).
    Tell,
    /// Nothing good: they are dropped.
    Stay,
    /// That it is there as well: it uses several lines, of which this end sees no more than their addresses. Each address
    /// at which it was heard within the last seconds counts as a line of its own, and what is sent to the peer on several
    /// lines ([`LineMode`](crate::LineMode)) goes to each of them. What goes over one line only goes to the same address
    /// as before, until the peer is silent there and heard elsewhere; then it has moved, and control is told.
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
    /// When it was active.
    pub times: Times,
    /// The data plane itself notices a peer that falls silent: `times` show only that it has not.
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
    /// Bytes among those received and sent that carried nothing of a host's: keepalives, and messages inside data packets. 0 where
    /// those are not counted among them in the first place.
    pub message_bytes: u64,
}

impl PeerState {
    /// Bytes of packets that carried something of a host's, both ways, headers and tags included.
    #[must_use]
    pub const fn payload_bytes(&self) -> u64 {
        (self.rx_bytes + self.tx_bytes).saturating_sub(self.message_bytes)
    }
}
