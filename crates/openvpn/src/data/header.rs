//! The head of a data packet.
//!
//! ```text
//! DATA_V1  6<<3 | key_id
//! DATA_V2  9<<3 | key_id, peer id: u24
//! ```

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
            Self::V1 => 1,
            Self::V2 | Self::Epoch => 4,
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
