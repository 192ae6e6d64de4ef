//! Seals and opens one message at a time: the sealed fields of handshakes, and cookies. [`Key`] is the
//! key: 32 secret bytes.

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
use subtle::ConstantTimeEq;
use zeroize::Zeroize;

use crate::TAG_LEN;
use crate::packet_aead::counter_nonce;

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

/// The tag does not match the message, its key, its number and its associated data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message is not authentic: another key sealed it, or it was changed on the way")]
pub struct Unauthentic;

/// Seals the text that `message` begins with under ChaCha20-Poly1305 and writes the tag into its last [`TAG_LEN`]
/// bytes.
///
/// # Panics
/// If `message` is shorter than a tag: its length is the caller's own choice.
pub fn seal(key: &Key, counter: u64, aad: &[u8], message: &mut [u8]) {
    let (text, tag) = message.split_at_mut(message.len() - TAG_LEN);
    let nonce = Nonce::assume_unique_for_key(counter_nonce(counter));
    // The library fails for texts beyond 256 GiB only; handshake messages have some hundred bytes.
    #[allow(clippy::unwrap_used)]
    let sealed = library_key(key)
        .seal_in_place_separate_tag(nonce, Aad::from(aad), text)
        .unwrap();
    tag.copy_from_slice(sealed.as_ref());
}

/// Opens a message of text and tag under ChaCha20-Poly1305 in place and returns the text.
///
/// # Errors
/// [`Unauthentic`], and the text is zeros, if the tag is wrong or `message` shorter than one.
pub fn open<'a>(
    key: &Key,
    counter: u64,
    aad: &[u8],
    message: &'a mut [u8],
) -> Result<&'a mut [u8], Unauthentic> {
    let nonce = Nonce::assume_unique_for_key(counter_nonce(counter));
    let opened = library_key(key).open_in_place(nonce, Aad::from(aad), message);
    opened.map_err(|_| Unauthentic)
}

/// The key in the library's form.
fn library_key(key: &Key) -> LessSafeKey {
    // A key of the algorithm's own length is the only condition, and the type of `key` meets it.
    #[allow(clippy::unwrap_used)]
    LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key.as_bytes()).unwrap())
}

/// Seals as [`seal`] does, under XChaCha20-Poly1305, whose nonce is long enough to be random.
///
/// # Panics
/// If `message` is shorter than a tag: its length is the caller's own choice.
pub fn xseal(key: &Key, nonce: &[u8; 24], aad: &[u8], message: &mut [u8]) {
    let (text, tag) = message.split_at_mut(message.len() - TAG_LEN);
    let cipher = XChaCha20Poly1305::new(key.as_bytes().into());
    // Only a text beyond 256 GiB is refused, as above.
    #[allow(clippy::unwrap_used)]
    let sealed = cipher
        .encrypt_inout_detached(nonce.into(), aad, text.into())
        .unwrap();
    tag.copy_from_slice(&sealed);
}

/// Opens as [`open`] does, under XChaCha20-Poly1305.
///
/// # Errors
/// [`Unauthentic`] if the tag is wrong or `message` shorter than one.
pub fn xopen<'a>(
    key: &Key,
    nonce: &[u8; 24],
    aad: &[u8],
    message: &'a mut [u8],
) -> Result<&'a mut [u8], Unauthentic> {
    let (text, tag) = message
        .split_last_chunk_mut::<TAG_LEN>()
        .ok_or(Unauthentic)?;
    let cipher = XChaCha20Poly1305::new(key.as_bytes().into());
    let tag: &[u8; TAG_LEN] = tag;
    cipher
        .decrypt_inout_detached(nonce.into(), aad, (&mut *text).into(), tag.into())
        .map_err(|_| Unauthentic)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_short_for_a_tag_is_not_authentic() {
        for len in 0..TAG_LEN {
            let mut message = vec![0; len];
            assert_eq!(open(&Key::ZERO, 0, &[], &mut message), Err(Unauthentic));
            assert_eq!(
                xopen(&Key::ZERO, &[0; 24], &[], &mut message),
                Err(Unauthentic)
            );
        }
    }

    #[test]
    fn associated_data_and_number_are_part_of_it() {
        let key = Key::from([3; 32]);
        let mut sealed = *b"text................";
        seal(&key, 5, b"aad", &mut sealed);
        assert_eq!(
            open(&key, 5, b"aad", &mut sealed.clone()).as_deref(),
            Ok(&b"text"[..])
        );
        assert_eq!(open(&key, 6, b"aad", &mut sealed.clone()), Err(Unauthentic));
        assert_eq!(open(&key, 5, b"", &mut sealed.clone()), Err(Unauthentic));
    }
}
