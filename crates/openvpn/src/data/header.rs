//! The head of a data packet.
//!
//! ```text
//! DATA_V1  6<<3 | key_id
//! DATA_V2  9<<3 | key_id, peer id: u24
//! ```

use super::wire::{Head, Opcode};

/// Bytes of `DATA_V1`'s head.
pub const V1_LEN: usize = 1;

/// Bytes of `DATA_V2`'s head.
pub const V2_LEN: usize = 4;

/// The peer id of a peer that has none.
pub const NO_PEER_ID: u32 = 0x00ff_ffff;

/// The bytes before the sealed part, and the numbering of packets, as the ends have agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// `DATA_V1`, with packet ids of 32 bits: peers that know no peer id.
    V1,
    /// `DATA_V2`, with packet ids of 32 bits.
    V2 {
        /// The 24-bit number in the head, of packets both sent and received.
        peer_id: u32,
    },
    /// `DATA_V2`, with packet ids of 16 bits of epoch and 48 of counter: both ends of version 2.7, with AEAD ciphers.
    Epoch {
        /// The 24-bit number in the head, of packets both sent and received.
        peer_id: u32,
    },
}

impl Layout {
    /// Bytes before the sealed part.
    #[must_use]
    pub const fn header_len(self) -> usize {
        match self {
            Self::V1 => V1_LEN,
            Self::V2 { .. } | Self::Epoch { .. } => V2_LEN,
        }
    }

    /// Bytes of the packet id.
    #[must_use]
    pub const fn packet_id_len(self) -> usize {
        match self {
            Self::V1 | Self::V2 { .. } => 4,
            Self::Epoch { .. } => 8,
        }
    }

    /// Whether packets are numbered by epochs.
    #[must_use]
    pub const fn has_epochs(self) -> bool {
        matches!(self, Self::Epoch { .. })
    }

    /// The head of the packets of one key: the first [`header_len`](Self::header_len) of these bytes.
    #[must_use]
    pub const fn header(self, key_id: u8) -> [u8; V2_LEN] {
        match self {
            Self::V1 => [
                Head {
                    opcode: Opcode::DataV1,
                    key_id,
                }
                .emit(),
                0,
                0,
                0,
            ],
            Self::V2 { peer_id } | Self::Epoch { peer_id } => {
                let [_, a, b, c] = peer_id.to_be_bytes();
                [
                    Head {
                        opcode: Opcode::DataV2,
                        key_id,
                    }
                    .emit(),
                    a,
                    b,
                    c,
                ]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_name_key_and_peer() {
        assert_eq!(Layout::V1.header(5), [0x35, 0, 0, 0]);
        assert_eq!(Layout::V1.header_len(), 1);
        for layout in [
            Layout::V2 { peer_id: 0x01_0203 },
            Layout::Epoch { peer_id: 0x01_0203 },
        ] {
            assert_eq!(layout.header(2), [0x4a, 1, 2, 3]);
            assert_eq!(layout.header_len(), 4);
        }
    }
}
