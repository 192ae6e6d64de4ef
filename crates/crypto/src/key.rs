//! 32 secret bytes.

use subtle::ConstantTimeEq;
use zeroize::Zeroize;

/// A symmetric key, a shared secret or a chaining key: 32 bytes that are erased when dropped, compared in constant time
/// and never printed.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl Key {
    /// Thirty-two zero bytes: WireGuard's "no preshared key".
    pub const ZERO: Self = Self([0; 32]);

    /// The bytes, for code that computes with them.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl From<[u8; 32]> for Key {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Key {}

impl core::fmt::Debug for Key {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Key(..)")
    }
}
