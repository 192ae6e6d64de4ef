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

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn first() -> EpochKey {
        let mut material = KeyMaterial {
            cipher: [0xff; 64],
            hmac: [0xff; 64],
        };
        material.cipher[..32]
            .iter_mut()
            .zip(0..)
            .for_each(|(byte, at)| *byte = at);
        EpochKey::first(&material)
    }

    /// Made with another implementation of HKDF (RFC 5869).
    #[test]
    fn each_epoch_has_its_keys() {
        let mut epoch = first();
        for (number, key, short_key, iv) in [
            (
                1,
                "ebbbf838a8658beb56f2324d691351bd4c8c230fb271ada8f67de830b7ee3192",
                "c0b015350de890ee8e1849d2c29a1b94",
                "568de14f8f744bfb0b721f66",
            ),
            (
                2,
                "4010426e3e169cd80289883d7f38d7eee445ead5fa21812fabebe155a4408ee5",
                "2586116e6e44094e7e8659d311948333",
                "9caaa619cb6277bbb0e90c48",
            ),
            (
                3,
                "97262f79e388a314377b63881143f2490755d3396aa5c4fe98ab8384318cc859",
                "4254f2a6c4ab003f3857ab2e4c25bf53",
                "cd8fc5d76f8d9e1d521e6401",
            ),
        ] {
            assert_eq!(epoch.epoch(), number);
            let data = epoch.data_key(32);
            assert_eq!(
                (hex(&data.key), hex(&data.implicit_iv)),
                (key.to_owned(), iv.to_owned())
            );
            assert_eq!(hex(&epoch.data_key(16).key), short_key);
            epoch = epoch.next().expect("an epoch after it");
        }
    }

    #[test]
    fn there_is_a_last_epoch() {
        let last = EpochKey {
            epoch: u16::MAX,
            secret: [0; 32],
        };
        assert!(last.next().is_none());
        assert_eq!(format!("{last:?}"), "EpochKey { epoch: 65535, .. }");
    }

    /// RFC 5869 appendix A.1 gives the expansion that the labels go through.
    #[test]
    fn expansion_is_that_of_rfc_5869() {
        struct Length;
        impl KeyType for Length {
            fn len(&self) -> usize {
                42
            }
        }
        let prk = [
            0x07, 0x77, 0x09, 0x36, 0x2c, 0x2e, 0x32, 0xdf, 0x0d, 0xdc, 0x3f, 0x0d, 0xc4, 0x7b,
            0xba, 0x63, 0x90, 0xb6, 0xc7, 0x3b, 0xb5, 0x0f, 0x9c, 0x31, 0x22, 0xec, 0x84, 0x4a,
            0xd7, 0xc2, 0xb3, 0xe5,
        ];
        let info: Vec<u8> = (0xf0..=0xf9).collect();
        let mut out = [0; 42];
        let prk = Prk::new_less_safe(HKDF_SHA256, &prk);
        prk.expand(&[&info], Length)
            .and_then(|okm| okm.fill(&mut out))
            .expect("42 bytes");
        assert_eq!(
            hex(&out),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
        );
    }
}
