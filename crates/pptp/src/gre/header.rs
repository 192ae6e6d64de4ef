//! The header of enhanced GRE (RFC 2637, section 4.1).
//!
//! | bytes | field |
//! |---|---|
//! | 2 | flags and version: `K` always, `S` with a sequence number, `A` with an acknowledgement, version 1 |
//! | 2 | protocol: PPP |
//! | 2 | length of the payload |
//! | 2 | the receiver's call ID |
//! | 4 | sequence number, if `S` |
//! | 4 | acknowledgement number, if `A` |

use core::ops::Range;

use crate::bytes::Reader;

/// The protocol of the payload: PPP (RFC 2637, section 4.1).
pub const PROTOCOL: u16 = 0x880b;
/// Bytes of a header with both numbers.
pub const MAX_HEADER_LEN: usize = 16;

const KEY: u16 = 0x2000;
const SEQUENCE: u16 = 0x1000;
const ACKNOWLEDGEMENT: u16 = 0x0080;
const VERSION: u16 = 0x0001;

/// The fields of a header, except the payload's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The call ID that the receiver of the packet gave the call.
    pub call_id: u16,
    /// The packet's sequence number; required with a payload.
    pub sequence: Option<u32>,
    /// The highest number that the sender of the packet has received.
    pub acknowledgement: Option<u32>,
}

/// Why a packet is not a PPTP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The packet is shorter than its header.
    #[error("the packet ends within its header")]
    Short,
    /// Flags that PPTP does not use, a missing key flag, or another version.
    #[error("flags and version are {0:#06x}, which is not valid enhanced GRE")]
    Flags(u16),
    /// A payload other than PPP.
    #[error("protocol {0:#06x} is not PPP")]
    Protocol(u16),
    /// The header promises more payload than the packet has.
    #[error("the payload is shorter than the header says")]
    Length,
    /// A payload without a sequence number.
    #[error("the payload has no sequence number")]
    Unnumbered,
}

/// A packet: its header and the range of its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The header.
    pub header: Header,
    /// The payload's range in the parsed bytes; empty in a pure acknowledgement. Bytes after it are padding.
    pub payload: Range<usize>,
}

impl Packet {
    /// Reads the payload of an IP packet of protocol 47.
    ///
    /// # Errors
    /// See [`HeaderError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, HeaderError> {
        let mut reader = Reader::new(bytes);
        let flags = reader.u16().ok_or(HeaderError::Short)?;
        if flags & !(SEQUENCE | ACKNOWLEDGEMENT) != KEY | VERSION {
            return Err(HeaderError::Flags(flags));
        }
        let protocol = reader.u16().ok_or(HeaderError::Short)?;
        if protocol != PROTOCOL {
            return Err(HeaderError::Protocol(protocol));
        }
        let len = usize::from(reader.u16().ok_or(HeaderError::Short)?);
        let call_id = reader.u16().ok_or(HeaderError::Short)?;
        let mut number = |flag| {
            if flags & flag == 0 {
                Ok(None)
            } else {
                reader.u32().map(Some).ok_or(HeaderError::Short)
            }
        };
        let sequence = number(SEQUENCE)?;
        let acknowledgement = number(ACKNOWLEDGEMENT)?;
        let start = bytes.len() - reader.rest().len();
        if len > reader.rest().len() {
            return Err(HeaderError::Length);
        }
        if len > 0 && sequence.is_none() {
            return Err(HeaderError::Unnumbered);
        }
        Ok(Self {
            header: Header {
                call_id,
                sequence,
                acknowledgement,
            },
            payload: start..start + len,
        })
    }
}

impl Header {
    /// Bytes of this header: 8, 12 or 16.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        8 + 4 * (self.sequence.is_some() as usize + self.acknowledgement.is_some() as usize)
    }

    /// The header's bytes for a payload of `payload` bytes, and the header's length.
    #[must_use]
    pub fn write(&self, payload: u16) -> ([u8; MAX_HEADER_LEN], usize) {
        let mut bytes = [0; MAX_HEADER_LEN];
        let mut flags = KEY | VERSION;
        let mut len = 8;
        for (number, flag) in [
            (self.sequence, SEQUENCE),
            (self.acknowledgement, ACKNOWLEDGEMENT),
        ] {
            if let Some(number) = number {
                flags |= flag;
                bytes[len..len + 4].copy_from_slice(&number.to_be_bytes());
                len += 4;
            }
        }
        bytes[..2].copy_from_slice(&flags.to_be_bytes());
        bytes[2..4].copy_from_slice(&PROTOCOL.to_be_bytes());
        bytes[4..6].copy_from_slice(&payload.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.call_id.to_be_bytes());
        (bytes, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_with_both_numbers_as_on_the_wire() {
        let bytes = [
            0x30, 0x81, 0x88, 0x0b, 0, 2, 0x12, 0x34, 0, 0, 0, 7, 0, 0, 0, 9, 0xc0, 0x21, 0, 0,
        ];
        let packet = Packet::parse(&bytes).unwrap();
        let header = Header {
            call_id: 0x1234,
            sequence: Some(7),
            acknowledgement: Some(9),
        };
        assert_eq!(packet.header, header);
        assert_eq!(packet.payload, 16..18, "what follows is padding");
        assert_eq!(header.write(2).0, bytes[..16]);
        assert_eq!(header.header_len(), 16);
    }

    #[test]
    fn an_acknowledgement_has_no_payload() {
        let header = Header {
            call_id: 1,
            sequence: None,
            acknowledgement: Some(9),
        };
        let (bytes, len) = header.write(0);
        assert_eq!(bytes[..2], [0x20, 0x81]);
        assert_eq!(len, 12);
        assert_eq!(Packet::parse(&bytes[..len]).unwrap().header, header);
    }

    #[test]
    fn what_enhanced_gre_does_not_have_is_refused() {
        let good = [0x30, 0x01, 0x88, 0x0b, 0, 1, 0, 1, 0, 0, 0, 7, 0x21];
        assert!(Packet::parse(&good).is_ok());
        for bit in 0..16 {
            let flags = 0x3001_u16 ^ (1 << bit);
            let mut bytes = good;
            bytes[..2].copy_from_slice(&flags.to_be_bytes());
            let found = Packet::parse(&bytes);
            match bit {
                7 => assert_eq!(found, Err(HeaderError::Short), "acknowledged: 4 bytes more"),
                12 => assert_eq!(found, Err(HeaderError::Unnumbered)),
                _ => assert_eq!(found, Err(HeaderError::Flags(flags))),
            }
        }
        let mut bytes = good;
        bytes[5] = 2;
        assert_eq!(Packet::parse(&bytes), Err(HeaderError::Length));
        bytes[3] = 0;
        assert_eq!(Packet::parse(&bytes), Err(HeaderError::Protocol(0x8800)));
        for len in 0..12 {
            assert_eq!(Packet::parse(&good[..len]), Err(HeaderError::Short));
        }
    }
}
