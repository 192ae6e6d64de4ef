//! Packets to be encrypted or decrypted, by the places of their parts.

use core::ops::Range;

/// The direction of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Sealing.
    #[default]
    Encrypt,
    /// Opening.
    Decrypt,
}

/// The places of a packet's parts in its memory. A cipher without a tag has an empty one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) aad: Span,
    pub(crate) text: Span,
    pub(crate) tag: Span,
    /// Nonce or initialisation vector: the first bytes, as many as the task needs.
    pub(crate) nonce: [u8; 16],
}

/// A range that is `Copy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) len: usize,
}

impl Span {
    pub(crate) const fn range(self) -> Range<usize> {
        self.start..self.start + self.len
    }
}

impl From<&Range<usize>> for Span {
    fn from(range: &Range<usize>) -> Self {
        Self {
            start: range.start,
            len: range.len(),
        }
    }
}
