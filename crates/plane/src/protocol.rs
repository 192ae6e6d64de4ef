//! The engine's view of a protocol: its messages, by which the engine sorts them, key material with its limits, and the
//! trait that makes formats of it.

use crate::{Endpoint, Format};
use std::sync::Arc;
use std::time::Instant;
use zeroize::ZeroizeOnDrop;

/// A tunnel protocol whose keys a data plane takes as material.
///
/// Control hands over material. A user-space data plane makes formats of it with this trait; a kernel data plane passes
/// the bytes on. So control is the same for both.
pub trait Protocol: Wire {
    /// The material of one session: the keys of both directions, and everything else that its packet format depends on
    /// (cipher, peer-id, framing). Erased when dropped.
    type Keys: ZeroizeOnDrop + Send;

    /// Why material is refused: a cipher that is not allowed, or that the format cannot carry.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Makes the formats of a session. Control's thread calls it once a session; it schedules keys, so it may take some
    /// ten microseconds.
    ///
    /// # Errors
    /// The protocol refuses the material.
    fn formats(&self, keys: &Self::Keys) -> Result<Formats, Self::Error>;
}

/// Both directions of one session.
pub struct Formats {
    /// Seals what is sent.
    pub seal: Arc<dyn Format>,
    /// Opens what is received.
    pub open: Arc<dyn Format>,
    /// The cipher that seals and opens.
    pub cipher: CipherName,
}

/// A cipher and the code that computes it, by the names that status shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CipherName {
    /// The cipher, as the protocol names it.
    pub cipher: &'static str,
    /// The implementation that was chosen.
    pub backend: &'static str,
}

/// The keys of a session, for [`DataPlane::add_keys`](crate::DataPlane::add_keys).
#[derive(Debug)]
pub struct SessionKeys<K> {
    /// Our name for the session: the peer writes it into its packets, or
    /// [`SessionName::OfSender`] counts from it. Unique in the data plane.
    pub session: u32,
    /// The peer's name for the session, by which [`Wire::loops`] recognises the tunnel's own datagrams. The format does
    /// not read this field: if packets carry the name, the material contains it too.
    pub remote: u32,
    /// Key material of the protocol.
    pub material: K,
    /// Limits of the receiving direction.
    pub receive: KeyLimits,
    /// Limits of the sending direction.
    pub send: KeyLimits,
    /// Whether the peer must first show that it has the keys. If so, its first authentic packet is reported
    /// ([`Notice::Confirmed`](crate::Notice::Confirmed)), and these keys seal from then on, unless keys that expire
    /// later seal already. If not, they seal from [`DataPlane::send_with`](crate::DataPlane::send_with) on.
    pub confirm: bool,
}

/// The use of a session's keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyUsage {
    /// Packets sealed.
    pub sealed: u64,
    /// The greatest number of an authentic packet; 0 before the first.
    pub opened: u64,
    /// Packets for these keys that were not authentic.
    pub forged: u64,
    /// The epoch of the sealing key; 0 if packets have no epochs.
    pub epoch: u16,
}

/// The messages of a tunnel protocol.
///
/// A data packet is `header || payload || trailer`. The length and content of header and trailer may differ from key to
/// key, so the key's [`Format`] defines them. This trait has everything that all keys share.
pub trait Wire: Send + Sync + 'static {
    /// Maximum number of bytes that any key's format puts before a payload, apart from [`Wire::prefix`].
    const HEAD_MAX: usize;
    /// Maximum number of bytes that any key's format puts behind a payload.
    const TAIL_MAX: usize;
    /// Whether packets without a session wait for one; otherwise they are dropped.
    const STAGES: bool;
    /// Whether congestion marks are carried between inner and outer headers (RFC 6040).
    const ECN: bool;

    /// Whether a peer waits for a sign of life after a message, as after any other packet.
    const MESSAGES_ARE_DATA: bool = false;

    /// Bytes in front of each packet on a stream that make a record of it; 0 for a protocol that no stream carries.
    const RECORD_HEADER: usize = 0;

    /// Decides which packet numbers of a session are new.
    type Window: Window;

    /// A worker's state for [`Wire::classify`].
    type Reader: Default + Send;

    /// Bytes in front of each data packet that the settings of the moment add to the protocol's own.
    fn prefix(&self) -> usize {
        0
    }

    /// Brings the reader up to date, before a batch of datagrams.
    fn prepare(&self, reader: &mut Self::Reader) {
        let _ = reader;
    }

    /// Takes the datagrams of one receive together, before each of them is classified in the same order.
    fn look_ahead<'a>(&self, reader: &mut Self::Reader, datagrams: impl Iterator<Item = &'a [u8]>) {
        let _ = (reader, datagrams);
    }

    /// Classifies a received datagram.
    fn classify(&self, reader: &Self::Reader, datagram: &[u8]) -> Class;

    /// Returns the record at the start of `bytes`, which were read from a stream. A packet of more than `longest` bytes
    /// is malformed, even before all of its bytes have come.
    #[must_use]
    fn record(bytes: &[u8], longest: usize) -> Record {
        let _ = (bytes, longest);
        Record::Malformed
    }

    /// Makes a record of a packet; `None` if the packet is too long for one, or no stream carries the protocol.
    #[must_use]
    fn to_record(packet: &[u8]) -> Option<Vec<u8>> {
        let _ = packet;
        None
    }

    /// Takes the interface's MTU in bytes, at the start and whenever it changes.
    fn follow_mtu(&self, mtu: usize) {
        let _ = mtu;
    }

    /// Whether `datagram`, the payload of an inner packet to `to`, is one of this tunnel's own: sent to a peer at
    /// `endpoint` for its session `receiver`. If so, the route to the peer leads into the tunnel, and the datagram
    /// would go round for ever.
    fn loops(
        &self,
        datagram: &[u8],
        to: std::net::SocketAddr,
        receiver: u32,
        endpoint: &Endpoint,
    ) -> bool;
}

/// The beginning of a stream's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A packet, behind [`Wire::RECORD_HEADER`] bytes.
    Whole {
        /// Bytes of the packet; at least one.
        len: usize,
    },
    /// The record is still incomplete.
    Partial,
    /// Bytes that no peer would send: the stream cannot be read any further.
    Malformed,
}

/// The class of a received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A data packet.
    Data {
        /// The session that the packet claims.
        session: SessionName,
        /// The packet's number in the session, if the header has it; else 0.
        counter: u64,
        /// Bytes of the header, in front of the part that the key's format opens.
        header: usize,
        /// Whether the datagram is a message for the protocol's state machine if the session does not exist.
        or_control: bool,
    },
    /// A message for the protocol's state machine.
    Control,
    /// A datagram that this protocol does not know.
    Malformed,
}

/// How a data packet names its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionName {
    /// Our index of the session.
    Index(u32),
    /// The session's number among those of the peer at the source address.
    OfSender(u8),
}

/// A replay window. Only authenticated packets are shown to it.
pub trait Window: Default + Send + 'static {
    /// Returns whether packet `counter` is new, and remembers it.
    fn accept(&mut self, counter: u64) -> ReplayCheck;
}

/// A replay window's verdict on a packet's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayCheck {
    /// The number was not seen before.
    New,
    /// The number was seen before, and is still in the window: a packet that was delivered twice, or a replay.
    Duplicate,
    /// The number is older than the window, so its history is unknown, or is beyond the limit of every key.
    TooOld,
}

/// How long a key may be used.
#[derive(Clone, Copy, Debug)]
pub struct KeyLimits {
    /// From this moment on the key is not used for newly read packets. Packets that were read before are still sealed,
    /// opened and sent.
    pub expires: Instant,
    /// Packets with this number or a higher one are not sent. They are not accepted either, if the number can be read
    /// without opening the packet ([`Class::Data`]).
    pub messages_max: u64,
    /// Any use of the key from this moment on requests a new key; `None` if the peer is to renew it.
    pub refresh_at: Option<Instant>,
    /// The data plane requests a new key after sending this many packets.
    pub refresh_messages: u64,
}

impl KeyLimits {
    /// Limits that only expire: any number of packets, and no notice before the end.
    #[must_use]
    pub const fn until(expires: Instant) -> Self {
        Self {
            expires,
            messages_max: u64::MAX,
            refresh_at: None,
            refresh_messages: u64::MAX,
        }
    }
}
