//! tls-crypt: each control packet encrypted and authenticated, but for its head.
//!
//! ```text
//! opcode<<3 | key_id, session id | counter, time | tag: [u8; 32] | AES-256-CTR(rest)
//! ```
//! The tag is the HMAC-SHA256 of the 17 bytes before it and of the rest before encryption.

use super::replay::ReplayId;
use crate::keyfile::StaticKey;
use crate::packet::CONTROL_HEAD_LEN;
use crate::role::Role;
use aws_lc_rs::cipher::{AES_256, EncryptingKey, EncryptionContext, UnboundCipherKey};
use crypto::hmac::Hmac;
use std::fmt;

/// Bytes before the tag, which it covers.
const ASSOCIATED_LEN: usize = CONTROL_HEAD_LEN + ReplayId::LEN;

/// The keys of both directions.
#[derive(Debug)]
pub(super) struct TlsCrypt {
    send: SyntheticIv,
    receive: SyntheticIv,
}

impl TlsCrypt {
    /// Bytes that the wrap adds.
    pub(super) const OVERHEAD: usize = ReplayId::LEN + TAG_LEN;

    /// The server sends with the first half of the key, the client with the second.
    pub(super) fn new(key: &StaticKey, role: Role) -> Self {
        let (send, receive) = match role {
            Role::Server => (0, 1),
            Role::Client => (1, 0),
        };
        let keys = |half| SyntheticIv::new(key.cipher(half), key.hmac(half));
        Self {
            send: keys(send),
            receive: keys(receive),
        }
    }

    /// Wraps the plain packet `packet`, head and all, with capacity for `room` bytes behind it.
    pub(super) fn seal(&self, packet: &[u8], number: ReplayId, room: usize) -> Vec<u8> {
        // Only packets with a head are sealed.
        let (head, rest) = packet.split_at(CONTROL_HEAD_LEN.min(packet.len()));
        let mut sealed = Vec::with_capacity(packet.len() + Self::OVERHEAD + room);
        sealed.extend_from_slice(head);
        sealed.extend_from_slice(&number.to_wire());
        sealed.extend_from_slice(&[0; TAG_LEN]);
        sealed.extend_from_slice(rest);
        let (associated, after) = sealed.split_at_mut(head.len() + ReplayId::LEN);
        let (tag, text) = after.split_at_mut(TAG_LEN);
        tag.copy_from_slice(&self.send.seal(associated, text));
        sealed
    }

    /// The number and the body of a wrapped packet; `None` if it is too short or not authentic.
    pub(super) fn open(&self, packet: &[u8]) -> Option<(ReplayId, Vec<u8>)> {
        let (associated, rest) = packet.split_at_checked(ASSOCIATED_LEN)?;
        let (tag, text) = rest.split_first_chunk()?;
        let mut body = text.to_vec();
        let number = associated.last_chunk()?;
        self.receive
            .open(associated, tag, &mut body)
            .then(|| (ReplayId::from_wire(*number), body))
    }
}

/// Bytes of a tag; the first 16 are the IV.
pub(super) const TAG_LEN: usize = 32;

/// AES-256-CTR under an HMAC-SHA256 that is also its IV: how tls-crypt seals packets and tls-crypt-v2 keys. The keys of
/// one direction.
pub(super) struct SyntheticIv {
    cipher: EncryptingKey,
    hmac: Hmac,
}

impl SyntheticIv {
    /// Takes 64 bytes of a key file for each key, and uses the first 32.
    #[allow(clippy::expect_used)]
    pub(super) fn new(cipher: &[u8], hmac: &[u8]) -> Self {
        // All callers pass 64 bytes of a key; AWS-LC refuses only keys of a wrong length.
        let cipher = UnboundCipherKey::new(&AES_256, &cipher[..32])
            .and_then(EncryptingKey::ctr)
            .expect("32 bytes are a key of AES-256");
        Self {
            cipher,
            hmac: Hmac::sha256(&hmac[..32]),
        }
    }

    /// Encrypts `text` in place, bound to `associated`; returns the tag.
    pub(super) fn seal(&self, associated: &[u8], text: &mut [u8]) -> [u8; TAG_LEN] {
        let mut tag = [0; TAG_LEN];
        tag.copy_from_slice(self.hmac.sign(&[associated, text]).as_ref());
        self.apply(&tag, text);
        tag
    }

    /// Decrypts `text` in place. `false` if it is not authentic: `text` is then of no use.
    #[must_use]
    pub(super) fn open(&self, associated: &[u8], tag: &[u8; TAG_LEN], text: &mut [u8]) -> bool {
        self.apply(tag, text);
        self.hmac.verify(&[associated, text], tag)
    }

    /// XORs the key stream into `text`. Counter mode decrypts as it encrypts.
    #[allow(clippy::expect_used)]
    fn apply(&self, tag: &[u8; TAG_LEN], text: &mut [u8]) {
        let mut iv = [0; 16];
        iv.copy_from_slice(&tag[..16]);
        // AWS-LC refuses an IV of the wrong length, which the type rules out, and nothing else.
        self.cipher
            .less_safe_encrypt(text, EncryptionContext::Iv128((&iv).into()))
            .expect("counter mode takes text of any length");
    }
}

/// The keys are not shown.
impl fmt::Debug for SyntheticIv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SyntheticIv(..)")
    }
}
