//! The keys of the epoch data format (OpenVPN 2.7): one secret per direction, which every epoch
//! replaces by one that leads to the next but not back.

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::keys::KeyMaterial;

/// The first epoch of a key.
pub const FIRST_EPOCH: u16 = 1;

/// Bytes of an epoch's secret.
const SECRET_LEN: usize = 32;

/// The secret of one epoch of one direction.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct EpochKey {
    #[zeroize(skip)]
    epoch: u16,
    secret: [u8; SECRET_LEN],
}

/// What seals and opens the packets of one epoch.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct EpochDataKey {
    /// The key of the AEAD; its length is the cipher's.
    pub key: Vec<u8>,
    /// XORed with the eight bytes of epoch and packet id (and four zeros) to make the nonce.
    pub implicit_iv: [u8; 12],
}

impl EpochKey {
    /// The secret of the first epoch, from the key material of a direction.
    pub fn first(material: &KeyMaterial) -> Self {
        let mut secret = [0; SECRET_LEN];
        secret.copy_from_slice(&material.cipher[..SECRET_LEN]);
        Self {
            epoch: FIRST_EPOCH,
            secret,
        }
    }

    /// Which epoch this is, counting from one.
    pub fn epoch(&self) -> u16 {
        self.epoch
    }

    /// The secret of the epoch after this one; none after the last that a header can name.
    pub fn next(&self) -> Option<Self> {
        let mut next = Self {
            epoch: self.epoch.checked_add(1)?,
            secret: [0; SECRET_LEN],
        };
        expand_label(&self.secret, b"datakey upd", b"", &mut next.secret);
        Some(next)
    }

    /// The data key of this epoch, for a cipher whose keys have `key_len` bytes (at most 64).
    pub fn data_key(&self, key_len: usize) -> EpochDataKey {
        let mut data = EpochDataKey {
            key: vec![0; key_len.min(64)],
            implicit_iv: [0; 12],
        };
        expand_label(&self.secret, b"data_key", b"", &mut data.key);
        expand_label(&self.secret, b"data_iv", b"", &mut data.implicit_iv);
        data
    }
}

impl std::fmt::Debug for EpochKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EpochKey")
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for EpochDataKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EpochDataKey").finish_non_exhaustive()
    }
}

/// HKDF-Expand-Label of RFC 8446 §7.1 with SHA-256 and OpenVPN's own prefix in the label.
fn expand_label(secret: &[u8; SECRET_LEN], label: &[u8], context: &[u8], out: &mut [u8]) {
    /// A length, as the library wants it.
    struct Length(usize);
    impl KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }

    const PREFIX: &[u8] = b"ovpn ";
    // All callers are in this file: labels and lengths are short constants.
    debug_assert!(PREFIX.len() + label.len() < 256 && context.len() < 256 && out.len() <= 64);
    let out_len = (out.len() as u16).to_be_bytes();
    let label_len = [(PREFIX.len() + label.len()) as u8];
    let context_len = [context.len() as u8];
    let info = [
        &out_len[..],
        &label_len,
        PREFIX,
        label,
        &context_len,
        context,
    ];
    let prk = Prk::new_less_safe(HKDF_SHA256, secret);
    // Expansion fails only beyond 255 hashes (8160 bytes), and filling only if the lengths differ.
    #[expect(clippy::expect_used, reason = "the lengths are constants of this file")]
    prk.expand(&info, Length(out.len()))
        .and_then(|okm| okm.fill(out))
        .expect("at most 64 bytes are expanded, into a buffer of that length");
}
