//! The header of an encrypted packet (RFC 3078, section 3.1), and what can be wrong with one.

use crate::ppp::{parse_frame, protocol};

/// Bytes of the header.
pub const HEADER_LEN: usize = 2;
/// Bytes that encryption adds to a packet: the header, and the inner protocol field, which is not shortened.
pub const OVERHEAD: usize = 4;

const FLUSHED: u16 = 0x8000;
const COMPRESSED: u16 = 0x2000;
const ENCRYPTED: u16 = 0x1000;
const COUNT: u16 = 0x0fff;

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// A: the key, or the stream that begins with it, is new with this packet.
    pub flushed: bool,
    /// The coherency count, 12 bits.
    pub count: u16,
}

/// Why a packet was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Too short for a header and a protocol.
    #[error("too short")]
    Short,
    /// Without bit D.
    #[error("not encrypted")]
    NotEncrypted,
    /// With bit C: compressed by MPPC, which was not agreed on.
    #[error("compressed")]
    Compressed,
    /// Without bit A, where each packet has a key of its own.
    #[error("without a key of its own")]
    NotFlushed,
    /// Older than the keys that are kept.
    #[error("too late")]
    Late,
    /// With a key that was used.
    #[error("a duplicate")]
    Duplicate,
    /// Further ahead than keys are made.
    #[error("too far ahead")]
    TooFar,
    /// Packets before this one were lost, without which the stream does not go on: a Reset-Request is to be sent.
    #[error("out of step")]
    Lost,
    /// The answer to a Reset-Request has not come yet.
    #[error("waiting for the peer to begin anew")]
    Waiting,
    /// The decrypted bytes are no packet.
    #[error("garbled")]
    Garbled,
}

impl Header {
    /// Reads the header of a packet that has at least one byte more.
    ///
    /// # Errors
    /// [`OpenError::Short`], [`OpenError::NotEncrypted`], [`OpenError::Compressed`].
    pub fn parse(information: &[u8]) -> Result<Self, OpenError> {
        let &[high, low, _, ..] = information else {
            return Err(OpenError::Short);
        };
        let bits = u16::from_be_bytes([high, low]);
        if bits & ENCRYPTED == 0 {
            return Err(OpenError::NotEncrypted);
        }
        if bits & COMPRESSED != 0 {
            return Err(OpenError::Compressed);
        }
        Ok(Self {
            flushed: bits & FLUSHED != 0,
            count: bits & COUNT,
        })
    }

    /// The header's bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; HEADER_LEN] {
        let flushed = if self.flushed { FLUSHED } else { 0 };
        (flushed | ENCRYPTED | self.count & COUNT).to_be_bytes()
    }
}

/// Bytes that [`looks_like_ip`] needs.
pub(super) const GLANCE: usize = 3;

/// Whether decrypted bytes begin as a frame with a packet of IP does: all that there is to tell a good key by.
pub(super) fn looks_like_ip(opened: &[u8]) -> bool {
    let Some((number, start)) = parse_frame(opened) else {
        return false;
    };
    match (number, opened.get(start)) {
        (protocol::IPV4, Some(first)) => first >> 4 == 4,
        (protocol::IPV6, Some(first)) => first >> 4 == 6,
        _ => false,
    }
}
