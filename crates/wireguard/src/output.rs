//! Requests of a device to its caller.

use std::net::SocketAddr;
use std::time::SystemTime;

use plane::{PeerId, SessionKeys};

use crate::data::DataKeys;
use crate::message::INITIATION_LEN;

/// A datagram of the handshake: at most 148 bytes, kept in place; or one of AmneziaWG, and what precedes it.
#[derive(Clone)]
pub struct Datagram {
    bytes: [u8; INITIATION_LEN],
    len: u8,
    #[cfg(feature = "amnezia")]
    dressed: Option<Box<[u8]>>,
    #[cfg(feature = "amnezia")]
    before: Vec<Box<[u8]>>,
}

impl Datagram {
    /// The bytes to send.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        #[cfg(feature = "amnezia")]
        if let Some(dressed) = &self.dressed {
            return dressed;
        }
        &self.bytes[..usize::from(self.len)]
    }

    /// Datagrams that mean nothing, to be sent to the same address before this one. They count as no traffic.
    #[must_use]
    pub fn before(&self) -> &[Box<[u8]>] {
        #[cfg(feature = "amnezia")]
        return &self.before;
        #[cfg(not(feature = "amnezia"))]
        &[]
    }

    /// Whether it is the first message of a handshake.
    #[must_use]
    pub fn is_initiation(&self) -> bool {
        crate::message::kind(&self.bytes) == Some(crate::message::TYPE_INITIATION)
    }

    /// The datagram `dressed`, which carries this message.
    #[cfg(feature = "amnezia")]
    pub(crate) fn dressed(message: Self, dressed: Box<[u8]>) -> Self {
        Self {
            dressed: Some(dressed),
            ..message
        }
    }

    /// The datagram after these.
    #[cfg(feature = "amnezia")]
    pub(crate) fn after(self, before: Vec<Box<[u8]>>) -> Self {
        Self { before, ..self }
    }
}

impl<const N: usize> From<[u8; N]> for Datagram {
    fn from(message: [u8; N]) -> Self {
        const {
            assert!(
                N <= INITIATION_LEN,
                "no message of the handshake is longer than an initiation"
            );
        };
        let mut bytes = [0; INITIATION_LEN];
        bytes[..N].copy_from_slice(&message);
        // At most 148.
        Self {
            bytes,
            len: N as u8,
            #[cfg(feature = "amnezia")]
            dressed: None,
            #[cfg(feature = "amnezia")]
            before: Vec::new(),
        }
    }
}

impl core::fmt::Debug for Datagram {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let len = self.as_bytes().len();
        write!(f, "Datagram(type {}, {len} bytes)", self.bytes[0])
    }
}

/// An action for the caller. Carry actions out in the order in which the device emits them.
#[derive(Debug)]
// A handful of these exist at a time; a box for each datagram would cost more than the room that it saves.
#[allow(clippy::large_enum_variant)]
pub enum Output {
    /// Send a datagram of the handshake.
    ///
    /// With a peer it is an initiation or a response. Count it as an authentic packet sent: into the peer's transmitted
    /// bytes, as traversal and as the end of `unacknowledged_since` in its [`Activity`](crate::Activity). Without a
    /// peer it is a cookie reply to a source that is not a known peer yet.
    Send {
        /// The datagram's peer; `None` for a cookie reply to an unknown source.
        peer: Option<PeerId>,
        /// Destination address.
        to: SocketAddr,
        /// Datagram to send.
        datagram: Datagram,
    },
    /// An authentic handshake message came from this address.
    ///
    /// The address is the peer's endpoint from now on. The message counts as an authentic packet received: into the
    /// received bytes, as traversal and as the end of `unanswered_since`.
    Heard {
        /// The peer that was heard.
        peer: PeerId,
        /// The source address.
        from: SocketAddr,
        /// Whether the message begins a handshake.
        begins: bool,
    },
    /// Open packets of this session from now on, and begin with an empty replay window.
    ///
    /// Call [`Device::refresh`](crate::Device::refresh), once for each direction, when an authentic packet is opened or
    /// sealed after `refresh_at`, or sealed beyond `refresh_messages`. With `confirm`, call
    /// [`Device::confirmed`](crate::Device::confirmed) for the first authentic packet, and seal with these keys from
    /// then on: the other side may have lost every older one. The report leads to [`SendWith`](Self::SendWith) for the
    /// same session, whose packet numbers must continue.
    AddKeys {
        /// The peer of the packets.
        peer: PeerId,
        /// The keys. Our name for the session is the receiver's index in the headers of its packets.
        keys: SessionKeys<DataKeys>,
    },
    /// Seal with the keys of this session, which were added before, from now on, and send what is staged or, if nothing
    /// is and `confirm` is set, an empty packet.
    SendWith {
        /// The peer.
        peer: PeerId,
        /// Our name for the session.
        local_index: u32,
        /// We are the initiator. The other side may not seal until it has received a packet, so one must be sent at
        /// once.
        confirm: bool,
    },
    /// Forget the keys of this session; packets with this index belong to no session.
    RemoveKeys {
        /// The owner of the keys.
        peer: PeerId,
        /// Our name for the session.
        local_index: u32,
    },
    /// Seal nothing for this peer until a session is named again.
    StopSending {
        /// The peer.
        peer: PeerId,
    },
    /// Send what is staged for this peer or, if nothing is, an empty packet.
    SendKeepalive {
        /// The peer.
        peer: PeerId,
    },
    /// No answer came for [`REKEY_ATTEMPT_TIME`](crate::message::REKEY_ATTEMPT_TIME): drop the packets that wait.
    DropStaged {
        /// The peer.
        peer: PeerId,
    },
    /// No check is scheduled: report the next activity of this peer (see [`Activity`](crate::Activity)).
    Disarmed {
        /// The peer.
        peer: PeerId,
    },
    /// Both sides have the new keys.
    HandshakeComplete {
        /// The peer.
        peer: PeerId,
        /// Wall-clock time of the handshake, for reports.
        at: SystemTime,
    },
    /// Seal this UDP payload with the keys of this session and send it to the peer at once; if it is empty, send an
    /// empty packet. The session may carry nothing else ([`Carriage`](crate::Carriage)), or no packets be sealed with it.
    #[cfg(feature = "postquantum")]
    SendInside {
        /// The peer.
        peer: PeerId,
        /// Our name for the session.
        local_index: u32,
        /// A datagram of the exchange of post-quantum keys.
        payload: Vec<u8>,
    },
    /// Run the job on another thread, and call [`Device::computed`](crate::Device::computed) with its outcome.
    #[cfg(feature = "postquantum")]
    Compute {
        /// The peer.
        peer: PeerId,
        /// Work of ML-KEM.
        job: postquantum::Job,
    },
    /// The peer was removed, because the device took on the same key. Its keys have been removed before.
    PeerRemoved {
        /// The peer.
        peer: PeerId,
    },
}

#[cfg(feature = "postquantum")]
impl Output {
    /// An empty packet of a session that packets are not sealed with.
    pub(crate) const fn empty(peer: PeerId, local_index: u32) -> Self {
        Self::SendInside {
            peer,
            local_index,
            payload: Vec::new(),
        }
    }
}
