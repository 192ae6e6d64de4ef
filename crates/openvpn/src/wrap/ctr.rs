//! AES-256-CTR under an HMAC-SHA256 that is also its IV: how tls-crypt seals packets and tls-crypt-v2 keys.

use std::fmt;

use aws_lc_rs::cipher::{AES_256, EncryptingKey, EncryptionContext, UnboundCipherKey};

use crate::digest::Hmac;

/// Bytes of a tag; the first 16 are the IV.
pub(super) const TAG_LEN: usize = 32;

/// The keys of one direction.
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
