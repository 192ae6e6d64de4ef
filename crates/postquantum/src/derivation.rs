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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeyId;

    fn counted<const N: usize>(first: u8) -> [u8; N] {
        core::array::from_fn(|at| first.wrapping_add(at as u8))
    }

    /// Computed with `hashlib.blake2s` and `hmac` of Python 3 from the formulas of this file and of RFC 5869.
    #[test]
    fn numbers_of_python() {
        let transcript = Transcript {
            header: counted(1),
            initiator: &counted(2),
            responder: &counted(3),
            encapsulation_key: &counted(4),
            ciphertext: &counted(5),
        };
        let [previous, secret] = [6, 7].map(|first| Key::from(counted(first)));
        let derived = derive(&previous, &secret, &transcript);
        let hex = |bytes: &[u8]| crypto::hex(bytes);
        assert_eq!(
            hex(derived.next.as_bytes()),
            "8ab46fd8886f71e882038e4918f8036f09042876986100370c99c22a67d60305"
        );
        assert_eq!(hex(&derived.responder), "5d0cd26f6d0433e6b984bedff54ec22d");
        assert_eq!(hex(&derived.initiator), "d775412c071ecd6cbc80b512415ed855");
        assert_eq!(hex(&KeyId::of(&previous).0), "7561c5fd143988a0");
    }
}
