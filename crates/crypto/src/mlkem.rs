//! ML-KEM-768 (FIPS 203): a secret that one side encapsulates for the other's public key.

use aws_lc_rs::kem::{self, Ciphertext, ML_KEM_768};

use crate::Key;

/// Bytes of an encapsulation key, which is public.
pub const ENCAPSULATION_KEY_LEN: usize = 1184;
/// Bytes of a ciphertext.
pub const CIPHERTEXT_LEN: usize = 1088;

/// The bytes are not an encapsulation key (FIPS 203, section 7.2), or the library is out of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the encapsulation key is not valid: the peer must make another")]
pub struct Refused;

/// A private key. The library erases its memory when it is freed.
pub struct DecapsulationKey(kem::DecapsulationKey);

impl DecapsulationKey {
    /// Makes a key pair. Takes 50 µs to 1 ms on a router.
    ///
    /// # Errors
    /// The library is out of memory.
    pub fn generate() -> Result<(Self, Box<[u8; ENCAPSULATION_KEY_LEN]>), Refused> {
        let private = kem::DecapsulationKey::generate(&ML_KEM_768).map_err(|_| Refused)?;
        let public = private.encapsulation_key().map_err(|_| Refused)?;
        let public = public.key_bytes().map_err(|_| Refused)?;
        let bytes = Box::<[u8]>::from(public.as_ref());
        Ok((Self(private), bytes.try_into().map_err(|_| Refused)?))
    }

    /// The secret inside `ciphertext`. A ciphertext for another key gives an unrelated secret, in the same time.
    ///
    /// # Errors
    /// The library is out of memory.
    pub fn decapsulate(&self, ciphertext: &[u8; CIPHERTEXT_LEN]) -> Result<Key, Refused> {
        let ciphertext = Ciphertext::from(ciphertext.as_slice());
        let secret = self.0.decapsulate(ciphertext).map_err(|_| Refused)?;
        key(secret.as_ref())
    }
}

impl core::fmt::Debug for DecapsulationKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("DecapsulationKey(..)")
    }
}

/// Makes a secret and its ciphertext for the owner of `public`.
///
/// # Errors
/// [`Refused`] if `public` is not a valid key.
pub fn encapsulate(
    public: &[u8; ENCAPSULATION_KEY_LEN],
) -> Result<(Box<[u8; CIPHERTEXT_LEN]>, Key), Refused> {
    let public = kem::EncapsulationKey::new(&ML_KEM_768, public).map_err(|_| Refused)?;
    let (ciphertext, secret) = public.encapsulate().map_err(|_| Refused)?;
    let bytes = Box::<[u8]>::from(ciphertext.as_ref());
    Ok((
        bytes.try_into().map_err(|_| Refused)?,
        key(secret.as_ref())?,
    ))
}

fn key(secret: &[u8]) -> Result<Key, Refused> {
    let secret: [u8; 32] = secret.try_into().map_err(|_| Refused)?;
    Ok(Key::from(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_share_the_secret() {
        let (private, public) = DecapsulationKey::generate().unwrap();
        let (mut ciphertext, secret) = encapsulate(&public).unwrap();
        assert_eq!(private.decapsulate(&ciphertext).unwrap(), secret);
        ciphertext[7] ^= 1;
        assert_ne!(private.decapsulate(&ciphertext).unwrap(), secret);
    }

    #[test]
    fn a_key_with_a_coefficient_beyond_the_modulus_is_refused() {
        let (_, mut public) = DecapsulationKey::generate().unwrap();
        public[..3].fill(0xff);
        assert_eq!(encapsulate(&public).err(), Some(Refused));
    }
}
