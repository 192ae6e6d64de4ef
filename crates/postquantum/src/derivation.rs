//! The derivation of the next preshared key.

use crypto::mlkem::{CIPHERTEXT_LEN, ENCAPSULATION_KEY_LEN};
use crypto::{Key, blake2s};
use zeroize::Zeroizing;

use crate::message::HEADER_LEN;

/// Bytes of a tag.
pub(crate) const TAG_LEN: usize = 16;

/// Proves that its sender has derived the same key.
pub(crate) type Tag = [u8; TAG_LEN];

/// Everything that both ends must have seen alike.
pub(crate) struct Transcript<'a> {
    /// The Offer's header, as of a message in one part.
    pub(crate) header: [u8; HEADER_LEN],
    /// Static public key of the end that offered.
    pub(crate) initiator: &'a [u8; 32],
    /// Static public key of the end that answered.
    pub(crate) responder: &'a [u8; 32],
    pub(crate) encapsulation_key: &'a [u8; ENCAPSULATION_KEY_LEN],
    pub(crate) ciphertext: &'a [u8; CIPHERTEXT_LEN],
}

/// The result of an exchange.
pub(crate) struct Derived {
    /// Preshared key of the next handshake.
    pub(crate) next: Key,
    /// The tag of the Answer.
    pub(crate) responder: Tag,
    /// The tag of Confirm, which Done repeats: its sender has read the Confirm.
    pub(crate) initiator: Tag,
}

/// `T = BLAKE2s("millrace-pq-1" || header || S_i || S_r || ek || ct)`, and three outputs of
/// HKDF-BLAKE2s with the previous key as salt over `secret || T`.
pub(crate) fn derive(previous: &Key, secret: &Key, transcript: &Transcript<'_>) -> Derived {
    let hash = blake2s::hash(&[
        b"millrace-pq-1",
        &transcript.header,
        transcript.initiator,
        transcript.responder,
        transcript.encapsulation_key,
        transcript.ciphertext,
    ]);
    let mut input = Zeroizing::new([0; 64]);
    input[..32].copy_from_slice(secret.as_bytes());
    input[32..].copy_from_slice(&hash);
    let [next, responder, initiator] = blake2s::kdf(previous.as_bytes(), &*input);
    let tag = |key: &Key| {
        let mut tag = [0; TAG_LEN];
        tag.copy_from_slice(&key.as_bytes()[..TAG_LEN]);
        tag
    };
    Derived {
        responder: tag(&responder),
        initiator: tag(&initiator),
        next,
    }
}
