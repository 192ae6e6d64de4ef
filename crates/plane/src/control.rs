//! Messages from the data plane to control. The other half of the boundary is control's calls to the data plane.

use crate::{Line, LineId, PeerId, StreamId};

/// The data plane's view of the protocol's state machine.
///
/// Called by workers: must not block, and must bound what it queues.
pub trait Control: Send + Sync + 'static {
    /// Takes a datagram that is not a data packet. `from` is the line that it came by, with the local address that it
    /// was sent to. [`DataPlane::send`](crate::DataPlane::send) to `from` answers the datagram.
    ///
    /// Returns whether control took the datagram; `false` counts as a drop.
    fn datagram(&self, from: Line, bytes: &[u8]) -> bool;

    /// Takes a message that an authentic data packet of this peer carries instead of an IP packet.
    fn message(&self, peer: PeerId, bytes: &[u8]) {
        let _ = (peer, bytes);
    }

    /// Reports an event of this peer.
    fn notify(&self, peer: PeerId, notice: Notice);

    /// Reports that a stream has ended, or carried bytes that no peer would send.
    fn stream_closed(&self, stream: StreamId) {
        let _ = stream;
    }

    /// Reports that the data plane has stopped: the interface was deleted, or a worker cannot go on.
    fn device_gone(&self);
}

/// Reasons to look at a peer. All except [`NeedSession`](Self::NeedSession) are rare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Notice {
    /// A packet waits for a session. The data plane reports every such packet, so control keeps a set of peers and no
    /// queue.
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
    /// An authentic packet came from another address: the peer has moved there.
    /// [`DataPlane::peer`](crate::DataPlane::peer) returns the address. The notice has none, because a peer may move
    /// with each packet and it would be outdated.
    Moved {
        /// The line by which the packet came.
        line: LineId,
    },
    /// The peer was silent for longer than [`DataPlane::keep_alive`](crate::DataPlane::keep_alive) allows. The data
    /// plane sends nothing more to it.
    Silent,
    /// The data plane cannot serve the peer any longer; the log has the reason.
    Failed,
    /// The peer compresses. The data plane reports the first compressed packet of a key.
    Compressed {
        /// Whether the data plane unpacked the packet; otherwise it dropped the packet.
        unpacked: bool,
    },
}
