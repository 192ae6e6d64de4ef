//! Derives keys from passphrases, with the three methods in use.

use std::num::NonZeroU32;

use aws_lc_rs::{digest, pbkdf2};
use md5::{Digest as _, Md5};
use zeroize::Zeroizing;

/// A hash of the key derivations, and of the MAC of PKCS#12.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hash {
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
    pub(super) fn digest(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => &digest::SHA256,
            Self::Sha384 => &digest::SHA384,
            Self::Sha512 => &digest::SHA512,
        }
    }

    fn pbkdf2(self) -> pbkdf2::Algorithm {
        match self {
            Self::Sha1 => pbkdf2::PBKDF2_HMAC_SHA1,
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha384 => pbkdf2::PBKDF2_HMAC_SHA384,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        }
    }
}

/// PBKDF2 (RFC 8018 §5.2).
pub(super) fn pbkdf2(
    hash: Hash,
    passphrase: &[u8],
    salt: &[u8],
    rounds: NonZeroU32,
    len: usize,
) -> Zeroizing<Vec<u8>> {
    let mut key = Zeroizing::new(vec![0; len]);
    pbkdf2::derive(hash.pbkdf2(), rounds, salt, passphrase, &mut key);
    key
}

/// The key derivation of encrypted keys of OpenSSL's own form: MD5, one round.
pub(super) fn bytes_to_key(passphrase: &[u8], salt: &[u8], len: usize) -> Zeroizing<Vec<u8>> {
    // Grown to its size at once: growing later would leave copies behind.
    let mut key = Zeroizing::new(Vec::with_capacity(len + 16));
    while key.len() < len {
        let last = key.len().saturating_sub(16);
        let block = Md5::new()
            .chain_update(&key[last..])
            .chain_update(passphrase)
            .chain_update(salt)
            .finalize();
        key.extend_from_slice(&block);
    }
    key.truncate(len);
    key
}

/// The purpose of a derivation of PKCS#12.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pkcs12Use {
    Key = 1,
    Iv = 2,
    Mac = 3,
}

/// The key derivation of PKCS#12 (RFC 7292 appendix B). `passphrase` is in the form of
/// [`bmp_passphrase`].
pub(super) fn pkcs12(
    hash: Hash,
    purpose: Pkcs12Use,
    passphrase: &[u8],
    salt: &[u8],
    rounds: NonZeroU32,
    len: usize,
) -> Zeroizing<Vec<u8>> {
    let block = hash.digest().block_len();
    let fill = |bytes: &[u8]| -> Vec<u8> {
        let len = bytes.len().div_ceil(block) * block;
        bytes.iter().copied().cycle().take(len).collect()
    };
    let mut state = Zeroizing::new([fill(salt), fill(passphrase)].concat());
    let mut key = Zeroizing::new(Vec::with_capacity(len + hash.digest().output_len()));
    while key.len() < len {
        let mut context = digest::Context::new(hash.digest());
        context.update(&vec![purpose as u8; block]);
        context.update(&state);
        let mut value = context.finish();
        for _ in 1..rounds.get() {
            value = digest::digest(hash.digest(), value.as_ref());
        }
        key.extend_from_slice(value.as_ref());
        // Each block of the state, as a number, grows by the hash (repeated to a block) and one.
        for number in state.chunks_mut(block) {
            let mut carry = 1;
            for (at, byte) in number.iter_mut().enumerate().rev() {
                let sum =
                    u16::from(*byte) + u16::from(value.as_ref()[at % value.as_ref().len()]) + carry;
                *byte = sum as u8;
                carry = sum >> 8;
            }
        }
    }
    key.truncate(len);
    key
}

/// A passphrase as PKCS#12 wants it: two bytes a character, and two zeros. What is not UTF-8 is
/// taken for Latin-1.
pub(super) fn bmp_passphrase(passphrase: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut out = Zeroizing::new(Vec::with_capacity(2 * passphrase.len() + 2));
    match std::str::from_utf8(passphrase) {
        Ok(text) => text
            .encode_utf16()
            .for_each(|unit| out.extend_from_slice(&unit.to_be_bytes())),
        Err(_) => passphrase
            .iter()
            .for_each(|&byte| out.extend_from_slice(&[0, byte])),
    }
    out.extend_from_slice(&[0, 0]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn pbkdf2_gives_the_answers_of_rfc_6070() {
        let rounds = NonZeroU32::new(4096).expect("not zero");
        let key = pbkdf2(Hash::Sha1, b"password", b"salt", rounds, 20);
        assert_eq!(hex(&key), "4b007901b765489abead49d926f721d065a429c1");
    }

    /// The vector that came with BouncyCastle and went round the libraries.
    #[test]
    fn pkcs12_gives_the_known_answers() {
        let passphrase = bmp_passphrase(b"smeg");
        let salt = [0x0a, 0x58, 0xcf, 0x64, 0x53, 0x0d, 0x82, 0x3f];
        let one = NonZeroU32::MIN;
        let key = pkcs12(Hash::Sha1, Pkcs12Use::Key, &passphrase, &salt, one, 24);
        assert_eq!(
            hex(&key),
            "8aaae6297b6cb04642ab5b077851284eb7128f1a2a7fbca3"
        );
        let iv = pkcs12(Hash::Sha1, Pkcs12Use::Iv, &passphrase, &salt, one, 8);
        assert_eq!(hex(&iv), "79993dfe048d3b76");
    }
}
