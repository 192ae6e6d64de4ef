//! The ciphers of data packets: the layout behind the head, and the keys.
//!
//! | cipher | on the wire behind the [head](super::wire::Layout) H |
//! |---|---|
//! | AEAD | `number:u32, tag[16], text` |
//! | AEAD with epochs | `epoch:u16, number:u48, text, tag[16]` |
//! | CBC and HMAC | `HMAC[L], IV[block], CBC(number:u32, payload, padding)` |
//! | no cipher | `HMAC[L], number:u32, payload` |
//!
//! AEADs authenticate `DATA_V2`'s head in front of the number, and not `DATA_V1`'s; the HMAC covers neither. Everything
//! is big-endian. An AEAD's nonce is the number and the first eight bytes of the HMAC's key, which would otherwise have
//! no use; with epochs it comes from the epoch's secret.
//!
//! [`new`] makes one key's cipher of the algorithms that are still sound, [`new_insecure`] of all.

mod epoch;

use std::sync::Arc;

use crypto::packet_aead::{self, AeadLayout};
use crypto::{Cipher, Digest, PacketCbc, PacketCipher};
use epoch::EpochAead;
use zeroize::Zeroizing;

use super::wire::{Layout, V2_LEN};
use crate::keys::KeyMaterial;

/// Why there is no such cipher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CipherError {
    /// Too weak to be used unless someone insists.
    #[error("{cipher} with {digest} is not secure: choose AES-256-GCM at both ends")]
    Insecure {
        /// Requested cipher.
        cipher: Cipher,
        /// Requested digest.
        digest: Digest,
    },
    /// The epoch layout has a place for an AEAD's tag and none for an HMAC.
    #[error("packets with epochs need an AEAD, and {0} is none")]
    EpochNeedsAead(Cipher),
    /// No code on this machine computes this cipher.
    #[error("this machine has no code for {0}: choose AES-256-GCM")]
    NoBackend(Cipher),
}

/// The cipher of one direction of one key.
///
/// `digest` matters to ciphers that are not AEADs; [`Digest::None`] leaves their packets unauthenticated. Packet
/// numbers are [`Packet::counter`](plane::Packet::counter): the first is 1, and with epochs the epoch stands in the
/// upper 16 bits, from 1 too. Whether a number is 0 or came before is for the caller to check.
///
/// # Errors
/// [`CipherError`]: an insecure cipher, or one that the layout cannot carry.
pub fn new(
    cipher: Cipher,
    digest: Digest,
    keys: &KeyMaterial,
    layout: Layout,
) -> Result<Arc<dyn PacketCipher>, CipherError> {
    if cipher.is_insecure() || (!cipher.is_aead() && digest.is_insecure()) {
        return Err(CipherError::Insecure { cipher, digest });
    }
    new_insecure(cipher, digest, keys, layout)
}

/// Makes keys as [`new`] does, with every cipher and digest, since old servers need them: blocks of 64 bits (a
/// key may seal 64 MB at most), MD5, and none at all.
///
/// # Errors
/// [`CipherError::EpochNeedsAead`].
pub fn new_insecure(
    cipher: Cipher,
    digest: Digest,
    keys: &KeyMaterial,
    layout: Layout,
) -> Result<Arc<dyn PacketCipher>, CipherError> {
    let header = match layout {
        Layout::Epoch { .. } if !cipher.is_aead() => {
            return Err(CipherError::EpochNeedsAead(cipher));
        }
        Layout::Epoch { .. } => {
            let mut secret = Zeroizing::new([0; 32]);
            secret.copy_from_slice(&keys.cipher[..32]);
            let aead = EpochAead::new(cipher, &secret).ok_or(CipherError::NoBackend(cipher))?;
            return Ok(Arc::new(aead));
        }
        Layout::V1 => 0,
        Layout::V2 { .. } => V2_LEN,
    };
    let missing = CipherError::NoBackend(cipher);
    if !cipher.is_aead() {
        let cbc = PacketCbc::new(None, (cipher, &keys.cipher), (digest, &keys.hmac));
        return Ok(Arc::new(cbc.ok_or(missing)?));
    }
    let mut salt = [0; 8];
    salt.copy_from_slice(&keys.hmac[..8]);
    let layout = AeadLayout::Number32 { header, salt };
    packet_aead::new(None, cipher, &keys.cipher, layout).ok_or(missing)
}
