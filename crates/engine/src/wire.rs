//! What the engine must know of a protocol's messages to sort them, and nothing more.

use netio::udp::Endpoint;

/// The messages of a tunnel protocol.
///
/// A data packet is `header || payload || trailer`. How long the two are and what is in them may
/// differ from key to key: that is the key's [`Format`](crate::Format). What is common to all keys
/// is here.
pub trait Wire: Send + Sync + 'static {
    /// Most bytes that any key's format puts before a payload.
    const HEAD_MAX: usize;
    /// Most bytes that any key's format puts behind a payload.
    const TAIL_MAX: usize;
    /// Whether packets wait for a session where there is none; else they are dropped.
    const STAGES: bool;
    /// Whether congestion marks are carried between inner and outer headers (RFC 6040).
    const ECN: bool;

    /// Decides which packet numbers of a session are new.
    type Window: Window;

    /// Says what a received datagram is.
    fn classify(datagram: &[u8]) -> Class;

    /// The payload length that a packet of `len` bytes is padded to, on an interface of `mtu`
    /// bytes. At least `len`.
    #[must_use]
    fn padded(len: usize, mtu: usize) -> usize {
        let _ = mtu;
        len
    }

    /// Whether `datagram`, which an inner packet carries to `to`, was sent by this very tunnel to
    /// a peer at `endpoint` for its session `receiver`: then the way to the peer leads into the
    /// tunnel, and the datagram would go round for ever.
    fn loops(datagram: &[u8], to: std::net::SocketAddr, receiver: u32, endpoint: &Endpoint)
    -> bool;
}

/// What a received datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A data packet.
    Data {
        /// The session that it says it belongs to.
        session: SessionName,
        /// Its number in the session, where the header tells; else 0.
        counter: u64,
        /// Bytes of the header that do not belong to what the key's format opens.
        header: usize,
    },
    /// Something for the protocol's state machine.
    Control,
    /// Nothing that this protocol knows.
    Malformed,
}

/// How a data packet names its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionName {
    /// By our name for it.
    Index(u32),
    /// By its number among the sessions of whoever has the address that it came from.
    OfSender(u8),
}

/// A replay window. Only authenticated packets are shown to it.
pub trait Window: Default + Send + 'static {
    /// Whether packet `counter` has not been accepted before and is not too old; accepts it.
    fn accept(&mut self, counter: u64) -> bool;
}
