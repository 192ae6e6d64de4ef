//! What the data plane tells control. The other half of the boundary is [`Tunnel`](crate::Tunnel).

use netio::udp::Endpoint;

/// The data plane's view of the protocol's state machine.
///
/// Called by workers: must not block, and must bound what it queues.
pub trait Control: Send + Sync + 'static {
    /// A datagram that is not a data packet. `from` carries our address that was called.
    ///
    /// Returns whether it was taken; `false` counts as a drop.
    fn datagram(&self, from: Endpoint, bytes: &[u8]) -> bool;

    /// Something happened to the peer with this id.
    fn notify(&self, peer: u32, notice: Notice);

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
}
