//! Algorithms for which several implementations compete.

use crate::Digest;

/// An algorithm for which code is chosen. Key lengths do not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// AES-GCM, both directions.
    AesGcm,
    /// ChaCha20-Poly1305, both directions.
    ChaCha20Poly1305,
    /// Encryption with AES-CBC.
    AesCbcEncrypt,
    /// Decryption with AES-CBC.
    AesCbcDecrypt,
    /// HMAC with SHA-1.
    HmacSha1,
    /// HMAC with SHA-256 and SHA-224.
    HmacSha256,
    /// HMAC with SHA-512 and SHA-384.
    HmacSha512,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Self; 7] = [
        Self::AesGcm,
        Self::ChaCha20Poly1305,
        Self::AesCbcEncrypt,
        Self::AesCbcDecrypt,
        Self::HmacSha1,
        Self::HmacSha256,
        Self::HmacSha512,
    ];

    /// The name in profiles and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AesGcm => "aes-gcm",
            Self::ChaCha20Poly1305 => "chacha20-poly1305",
            Self::AesCbcEncrypt => "aes-cbc-encrypt",
            Self::AesCbcDecrypt => "aes-cbc-decrypt",
            Self::HmacSha1 => "hmac-sha1",
            Self::HmacSha256 => "hmac-sha256",
            Self::HmacSha512 => "hmac-sha512",
        }
    }

    /// The algorithm of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
    }

    /// The algorithm for choosing the code of a digest's HMAC. `None` for digests with one candidate, and for no
    /// digest.
    pub(crate) fn of_digest(digest: Digest) -> Option<Self> {
        match digest {
            Digest::Sha1 => Some(Self::HmacSha1),
            Digest::Sha224 | Digest::Sha256 => Some(Self::HmacSha256),
            Digest::Sha384 | Digest::Sha512 => Some(Self::HmacSha512),
            _ => None,
        }
    }
}
