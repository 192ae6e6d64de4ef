//! What the engine must know of a protocol's data packets, and nothing more.

/// The data packet format of a tunnel protocol.
///
/// A datagram is `header || sealed payload || tag`. The engine reads and writes headers through
/// this trait; the cipher comes with each key.
pub trait Wire: Send + Sync + 'static {
    /// Bytes before the payload.
    const HEADER: usize;
    /// Bytes behind the payload: the tag, at its longest.
    const TAG: usize;

    /// Decides which packet numbers of a session are new.
    type Window: Window;

    /// Says what a received datagram is.
    fn classify(datagram: &[u8]) -> Class;

    /// Writes the header of data packet number `counter` for the receiver's `index`.
    /// `header` is [`Wire::HEADER`] bytes long.
    fn write_header(header: &mut [u8], index: u32, counter: u64);

    /// The payload length that a packet of `len` bytes is padded to, on an interface of `mtu`
    /// bytes. At least `len`.
    fn padded(len: usize, mtu: usize) -> usize;
}

/// What a received datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A data packet of the session that we named `index`.
    Data {
        /// Our name for the session.
        index: u32,
        /// Its number in the session.
        counter: u64,
    },
    /// Something for the protocol's state machine.
    Control,
    /// Nothing that this protocol knows.
    Malformed,
}

/// A replay window. Only authenticated packets are shown to it.
pub trait Window: Default + Send + 'static {
    /// Whether packet `counter` has not been accepted before and is not too old; accepts it.
    fn accept(&mut self, counter: u64) -> bool;
}
