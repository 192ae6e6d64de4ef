//! What the data plane tells control. The other half of the boundary is [`Tunnel`](crate::Tunnel).

use netio::udp::Endpoint;
use std::net::SocketAddr;

/// The data plane's view of the protocol's state machine.
///
/// Called by workers: must not block, and must bound what it queues.
pub trait Control: Send + Sync + 'static {
    /// A datagram that is not a data packet. `from` carries our address that was called; `stream`
    /// is the [`Stream`](crate::Stream) that it came through, if any.
    ///
    /// Returns whether it was taken; `false` counts as a drop.
    fn datagram(&self, from: Endpoint, stream: Option<u64>, bytes: &[u8]) -> bool;

    /// An authentic data packet of this peer's that carries a message instead of an IP packet.
    fn message(&self, peer: u32, bytes: &[u8]) {
        let _ = (peer, bytes);
    }

    /// Something happened to the peer with this id.
    fn notify(&self, peer: u32, notice: Notice);

    /// A stream has ended, or sent what no peer would send.
    fn stream_closed(&self, stream: u64) {
        let _ = stream;
    }

    /// The data plane has stopped: somebody deleted the interface, or a worker cannot go on.
    fn device_gone(&self);
}

/// Reasons to look at a peer. All are rare: none happens per packet or per batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Notice {
    /// Packets wait for a session.
    NeedSession,
    /// Traffic flows and nobody has armed this peer's timers ([`Peer::arm`](crate::Peer::arm)).
    Active,
    /// The first packet of a session that the peer must confirm has come.
    Confirmed {
        /// Our name for that session.
        index: u32,
    },
    /// A key has passed the age or count after which it should be renewed, and is still used.
    Refresh {
        /// Our name for its session.
        index: u32,
    },
    /// An authentic packet came from another address, and the peer is there now.
    Moved {
        /// Where it is.
        to: SocketAddr,
    },
    /// The peer compresses: told of the first such packet of a key.
    Compressed {
        /// Whether the packet was unpacked; dropped otherwise.
        unpacked: bool,
    },
}
