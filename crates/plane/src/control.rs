//! Messages from the data plane to control. The other half of the boundary is control's calls to the data plane.

use crate::{Line, LineId, PeerId, StreamId};

/// The data plane's view of the protocol's state machine.
///
/// Called by workers: must not block, and must bound what it queues.
pub trait Control: Send + Sync + 'static {
    /// A datagram that is not a data packet. `from` is the way that it came, with our address that was called: what is
    /// sent there ([`DataPlane::send`](crate::DataPlane::send)) answers it.
    ///
    /// Returns whether it was taken; `false` counts as a drop.
    fn datagram(&self, from: Line, bytes: &[u8]) -> bool;

    /// An authentic data packet of this peer's that carries a message instead of an IP packet.
    fn message(&self, peer: PeerId, bytes: &[u8]) {
        let _ = (peer, bytes);
    }

    /// Something happened to this peer.
    fn notify(&self, peer: PeerId, notice: Notice);

    /// A stream has ended, or sent what no peer would send.
    fn stream_closed(&self, stream: StreamId) {
        let _ = stream;
    }

    /// The data plane has stopped: the interface was deleted, or a worker cannot go on.
    fn device_gone(&self);
}

/// Reasons to look at a peer. All are rare but [`NeedSession`](Self::NeedSession).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Notice {
    /// A packet waits for a session. Told for every packet that is read without one: control keeps a set and no queue.
    NeedSession,
    /// Traffic flows and this peer's timers are not armed.
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
    /// An authentic packet came from another address, and the peer is there now. [`DataPlane::peer`](crate::DataPlane::peer)
    /// knows where: a peer may move with each packet, and a notice that named the address would be late.
    Moved {
        /// The line that it was heard by.
        line: LineId,
    },
    /// Nothing was heard from the peer for as long as [`DataPlane::keep_alive`](crate::DataPlane::keep_alive) said: nothing is
    /// sent to it any more.
    Silent,
    /// The data plane cannot go on with the peer, for a reason that the log has.
    Failed,
    /// The peer compresses: told of the first such packet of a key.
    Compressed {
        /// Whether the packet was unpacked; dropped otherwise.
        unpacked: bool,
    },
}
