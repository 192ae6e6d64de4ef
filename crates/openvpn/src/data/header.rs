//! The head of a data packet.
//!
//! ```text
//! DATA_V1  6<<3 | key_id
//! DATA_V2  9<<3 | key_id, peer id: u24
//! ```

use crate::packet::{Head, Opcode};

/// What comes before the sealed part, by what the ends have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// DATA_V1, with packet ids of 32 bits.
    V1,
    /// DATA_V2, with packet ids of 32 bits.
    V2,
    /// DATA_V2, with packet ids of 16 bits of epoch and 48 of counter.
    Epoch,
}

impl Layout {
    /// Bytes before the sealed part.
    #[must_use]
    pub const fn header_len(self) -> usize {
        match self {
            Self::V1 => DataHeader::V1_LEN,
            Self::V2 | Self::Epoch => DataHeader::V2_LEN,
        }
    }

    /// Bytes of the packet id.
    #[must_use]
    pub const fn packet_id_len(self) -> usize {
        match self {
            Self::V1 | Self::V2 => 4,
            Self::Epoch => 8,
        }
    }
}

/// The head of a data packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHeader {
    /// Which key of the session, 0..=7.
    pub key_id: u8,
    /// Whose packet it is, by the number that the server gave: 24 bits. `None` is DATA_V1.
    pub peer_id: Option<u32>,
}

impl DataHeader {
    /// Bytes of DATA_V1's head.
    pub const V1_LEN: usize = 1;
    /// Bytes of DATA_V2's head.
    pub const V2_LEN: usize = 4;
    /// The peer id that stands for none: the server sends DATA_V2 and goes by address all the same.
    pub const NO_PEER_ID: u32 = 0x00ff_ffff;

    /// Reads the head of a packet. `None` if it is no data packet or cut off.
    #[must_use]
    pub fn parse(packet: &[u8]) -> Option<Self> {
        let head = Head::peek(packet)?;
        let peer_id = match head.opcode {
            Opcode::DataV1 => None,
            Opcode::DataV2 => {
                let [_, a, b, c] = *packet.first_chunk()?;
                Some(u32::from_be_bytes([0, a, b, c]))
            }
            _ => return None,
        };
        Some(Self {
            key_id: head.key_id,
            peer_id,
        })
    }

    /// The bytes on the wire, of which the first [`len`](Self::len) count.
    #[must_use]
    pub fn emit(self) -> [u8; Self::V2_LEN] {
        let opcode = match self.peer_id {
            None => Opcode::DataV1,
            Some(_) => Opcode::DataV2,
        };
        let key_id = self.key_id;
        let first = Head { opcode, key_id }.emit();
        let [_, a, b, c] = self.peer_id.unwrap_or(0).to_be_bytes();
        [first, a, b, c]
    }

    /// Bytes on the wire: 1 or 4.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub const fn len(self) -> usize {
        match self.peer_id {
            None => Self::V1_LEN,
            Some(_) => Self::V2_LEN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms() {
        let v1 = DataHeader {
            key_id: 3,
            peer_id: None,
        };
        assert_eq!(v1.emit()[..v1.len()], [0x33]);
        assert_eq!(DataHeader::parse(&[0x33]), Some(v1));
        let v2 = DataHeader {
            key_id: 7,
            peer_id: Some(0x12_3456),
        };
        assert_eq!(v2.emit()[..v2.len()], [0x4f, 0x12, 0x34, 0x56]);
        assert_eq!(DataHeader::parse(&v2.emit()), Some(v2));
    }

    #[test]
    fn nothing_else() {
        assert_eq!(DataHeader::parse(&[]), None);
        assert_eq!(DataHeader::parse(&[0x48, 0, 0]), None);
        for opcode in (0..32).filter(|opcode| ![6, 9].contains(opcode)) {
            assert_eq!(DataHeader::parse(&[opcode << 3; 8]), None);
        }
    }
}
