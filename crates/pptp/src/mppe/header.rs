//! The header of an encrypted packet (RFC 3078, section 3.1), and errors when opening one.

use crate::ppp::{parse_frame, protocol};

/// Length of the header in bytes.
pub const HEADER_LEN: usize = 2;
/// Bytes that encryption adds to a packet: the header, and the unshortened inner protocol field.
pub const OVERHEAD: usize = 4;

const FLUSHED: u16 = 0x8000;
const COMPRESSED: u16 = 0x2000;
const ENCRYPTED: u16 = 0x1000;
const COUNT: u16 = 0x0fff;

/// The header's flags and count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bit A: this packet begins with a new key or a restarted stream.
    pub flushed: bool,
    /// The coherency count, 12 bits.
    pub count: u16,
}

/// Why a packet was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The packet is too short for a header and a protocol.
    #[error("too short")]
    Short,
    /// Bit D is missing.
    #[error("not encrypted")]
    NotEncrypted,
    /// Bit C is set: compressed by MPPC, which was not negotiated.
    #[error("compressed")]
    Compressed,
    /// Bit A is missing in stateless mode.
    #[error("without a new key")]
    NotFlushed,
    /// The packet is older than the keys kept.
    #[error("too late")]
    Late,
    /// The packet's key was used already.
    #[error("a duplicate")]
    Duplicate,
    /// The packet is further ahead than keys are made.
    #[error("too far ahead")]
    TooFar,
    /// Packets before this one were lost, so the stream cannot continue: send a Reset-Request.
    #[error("out of step")]
    Lost,
    /// The peer has not answered a Reset-Request yet.
    #[error("waiting for the peer to reset the encryption")]
    Waiting,
    /// The decrypted bytes are not a packet.
    #[error("garbled")]
    Garbled,
}

impl Header {
    /// Reads the header of a packet with at least one more byte.
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

/// Whether decrypted bytes begin like a frame with an IP packet: the only test of a key.
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
