//! X25519 (RFC 7748).

use aws_lc_rs::agreement::{self, UnparsedPublicKey, X25519};
use zeroize::{Zeroize, Zeroizing};

use crate::{Key, random};

/// The other side's public key makes every shared secret zero: it lies on a small subgroup, unlike any honest peer's
/// key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the public key is of low order: every secret shared with it would be zero")]
pub struct LowOrder;

/// A public key: a point's u-coordinate, as it goes over the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// The bytes as they go over the wire.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for PublicKey {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl core::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // The first bytes are enough to tell peers apart in a log.
        let [a, b, c, d, ..] = self.0;
        write!(f, "PublicKey({a:02x}{b:02x}{c:02x}{d:02x}..)")
    }
}

/// A private key, static or ephemeral, held in the library's form so that it is parsed once however often it is used.
pub struct PrivateKey {
    library: agreement::PrivateKey,
    /// Kept because the configuration interfaces must be able to show the key. Invariant: clamped.
    bytes: Zeroizing<[u8; 32]>,
    public: PublicKey,
}

impl PrivateKey {
    /// Takes 32 random bytes and clamps them. Costs one multiplication, for the public key.
    #[must_use]
    pub fn new(mut bytes: [u8; 32]) -> Self {
        bytes[0] &= 0b1111_1000;
        bytes[31] = (bytes[31] & 0b0111_1111) | 0b0100_0000;
        // Any 32 bytes are an X25519 private key with a public key of 32 bytes. So only a lack of memory can fail here,
        // after which nothing can continue.
        #[allow(clippy::unwrap_used)]
        let library = agreement::PrivateKey::from_private_key(&X25519, &bytes).unwrap();
        #[allow(clippy::unwrap_used)]
        let public = PublicKey(
            library
                .compute_public_key()
                .unwrap()
                .as_ref()
                .try_into()
                .unwrap(),
        );
        let key = Self {
            library,
            bytes: Zeroizing::new(bytes),
            public,
        };
        bytes.zeroize();
        key
    }

    /// A new key from the system's random numbers.
    #[must_use]
    pub fn generate() -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        random(bytes.as_mut());
        Self::new(*bytes)
    }

    /// The public key, computed when the key was made.
    #[must_use]
    pub const fn public(&self) -> PublicKey {
        self.public
    }

    /// The private key itself, clamped.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// The secret shared with the owner of `public`.
    ///
    /// # Errors
    /// [`LowOrder`] if it would be all zeros (RFC 7748, section 6.1): the handshake must end there.
    pub fn agree(&self, public: &PublicKey) -> Result<Key, LowOrder> {
        agreement::agree(
            &self.library,
            UnparsedPublicKey::new(&X25519, &public.0),
            LowOrder,
            |secret| {
                let secret: [u8; 32] = secret.try_into().map_err(|_| LowOrder)?;
                Ok(Key::from(secret))
            },
        )
    }
}

impl Clone for PrivateKey {
    fn clone(&self) -> Self {
        Self::new(*self.bytes)
    }
}

impl PartialEq for PrivateKey {
    fn eq(&self, other: &Self) -> bool {
        // Equal public keys mean equal clamped private keys, and comparing public keys needs no care.
        self.public == other.public
    }
}

impl Eq for PrivateKey {}

impl core::fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "PrivateKey(of {:?})", self.public)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_share_the_secret() {
        let (a, b) = (PrivateKey::generate(), PrivateKey::generate());
        assert_ne!(a, b);
        assert_eq!(a.agree(&b.public()), b.agree(&a.public()));
    }

    #[test]
    fn keys_are_clamped_once_and_not_printed() {
        let key = PrivateKey::new([0xff; 32]);
        assert_eq!((key.as_bytes()[0], key.as_bytes()[31]), (0xf8, 0x7f));
        assert_eq!(PrivateKey::new(*key.as_bytes()), key);
        assert!(!format!("{key:?}").contains("ffff"));
    }

    #[test]
    fn a_zero_secret_is_refused() {
        let key = PrivateKey::generate();
        assert_eq!(key.agree(&PublicKey::from([0; 32])), Err(LowOrder));
    }
}
