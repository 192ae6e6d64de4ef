//! Tasks of an accelerator, and the places of the packets that it gets.

use core::ops::Range;

use crate::algorithm::Algorithm;

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

/// A task of an accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    /// AES in CBC mode, whole blocks. The initialisation vector is the job's nonce.
    AesCbc,
    /// AES-GCM with a nonce of 12 bytes and a tag of 16 behind the text.
    AesGcm,
    /// ChaCha20-Poly1305 (RFC 8439), likewise.
    ChaCha20Poly1305,
}

impl Task {
    /// All tasks.
    pub const ALL: [Self; 3] = [Self::AesCbc, Self::AesGcm, Self::ChaCha20Poly1305];

    /// The name in profiles and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AesCbc => "aes-cbc",
            Self::AesGcm => "aes-gcm",
            Self::ChaCha20Poly1305 => "chacha20-poly1305",
        }
    }

    /// The task of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|task| task.name() == name)
    }

    /// The accelerator's task for an algorithm, if there is one.
    #[must_use]
    pub const fn of(algorithm: Algorithm) -> Option<Self> {
        match algorithm {
            Algorithm::AesGcm => Some(Self::AesGcm),
            Algorithm::ChaCha20Poly1305 => Some(Self::ChaCha20Poly1305),
            Algorithm::AesCbcEncrypt | Algorithm::AesCbcDecrypt => Some(Self::AesCbc),
            // The CPU hashes many packets at once, and an accelerator would need one more call for each.
            Algorithm::HmacSha1 | Algorithm::HmacSha256 | Algorithm::HmacSha512 => None,
        }
    }

    /// Bytes of nonce or initialisation vector.
    #[cfg(feature = "accelerators")]
    pub(crate) const fn nonce_len(self) -> usize {
        match self {
            Self::AesCbc => 16,
            Self::AesGcm | Self::ChaCha20Poly1305 => 12,
        }
    }

    /// Bytes of tag.
    pub(crate) const fn tag_len(self) -> usize {
        match self {
            Self::AesCbc => 0,
            Self::AesGcm | Self::ChaCha20Poly1305 => crate::TAG_LEN,
        }
    }
}
