//! Signs indexes and releases: with Ed25519 in usign's file format for opkg, and with P-256 in PEM for apk.
//!
//! `usign -G`, `signify-openbsd -G -n` and [`new_usign`] make Ed25519 keys; `openssl ecparam -name prime256v1 -genkey
//! -noout` and [`new_p256`] make P-256 keys.

use crate::packages::hash;
use aws_lc_rs::digest::{Digest, SHA256};
use aws_lc_rs::encoding::{AsDer as _, EcPrivateKeyRfc5915Der};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA512_ASN1, ED25519, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair as _, UnparsedPublicKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::path::Path;
use std::{fs, io};
use thiserror::Error;
use zeroize::Zeroizing;

/// The largest key file, in bytes.
const LARGEST: u64 = 16 << 10;
/// The algorithm, with which usign's files begin. In secret keys the passphrase's key derivation follows.
const ED25519_MARK: &[u8] = b"Ed";
const DERIVATION: &[u8] = b"BK";

/// Why a file contains no usable key.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// The file is not a known kind of key.
    #[error(
        "neither a secret key of usign or signify, nor a P-256 key in PEM without a passphrase"
    )]
    Kind,
    /// A signify secret key with a passphrase.
    #[error("the key has a passphrase; make one without (signify-openbsd -G -n)")]
    Passphrase,
    /// The key's parts contradict each other.
    #[error("the key is damaged")]
    Damaged,
    /// The crypto library refuses to sign.
    #[error("the key cannot sign")]
    Sign,
}

/// An Ed25519 key with the number by which usign identifies it.
#[derive(Debug)]
pub struct Usign {
    number: [u8; 8],
    pair: Ed25519KeyPair,
}

/// A P-256 key.
#[derive(Debug)]
pub struct P256 {
    pair: EcdsaKeyPair,
}

/// The keys of a release.
#[derive(Debug, Default)]
pub struct Keys {
    /// The key for opkg.
    pub usign: Option<Usign>,
    /// The key for apk.
    pub p256: Option<P256>,
}

impl Keys {
    /// Reads a key file of either kind; the key replaces an earlier one of the same kind.
    ///
    /// # Errors
    /// When the file is neither kind of key.
    pub fn read(&mut self, path: &Path) -> Result<(), KeyError> {
        if fs::metadata(path)?.len() > LARGEST {
            return Err(KeyError::Kind);
        }
        let text = Zeroizing::new(fs::read_to_string(path)?);
        self.parse(&text)
    }

    /// Reads the text of a key file; see [`Self::read`].
    ///
    /// # Errors
    /// The errors of [`Self::read`].
    pub fn parse(&mut self, text: &str) -> Result<(), KeyError> {
        if text.starts_with("untrusted comment:") {
            self.usign = Some(Usign::parse(text)?);
        } else {
            self.p256 = Some(P256::parse(text)?);
        }
        Ok(())
    }
}

impl Usign {
    fn parse(text: &str) -> Result<Self, KeyError> {
        let bytes = Zeroizing::new(second_line(text).ok_or(KeyError::Kind)?);
        // Layout: algorithm, derivation, rounds, salt, checksum, number, seed and public key.
        if bytes.len() != 104 || &bytes[..2] != ED25519_MARK || &bytes[2..4] != DERIVATION {
            return Err(KeyError::Kind);
        }
        if bytes[4..8] != [0; 4] {
            return Err(KeyError::Passphrase);
        }
        if hash::sha512(&bytes[40..])[..8] != bytes[24..32] {
            return Err(KeyError::Damaged);
        }
        let mut number = [0; 8];
        number.copy_from_slice(&bytes[32..40]);
        let pair = Ed25519KeyPair::from_seed_and_public_key(&bytes[40..72], &bytes[72..104]);
        let pair = pair.map_err(|_| KeyError::Damaged)?;
        Ok(Self { number, pair })
    }

    /// Signs a message; returns the text of the signature file.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> String {
        let signature = self.pair.sign(message);
        let bytes = [ED25519_MARK, &self.number, signature.as_ref()].concat();
        let number = hash::hex(&self.number);
        format!(
            "untrusted comment: signed by key {number}\n{}\n",
            STANDARD.encode(bytes)
        )
    }

    /// The text of the public key file, which opkg reads from `/etc/opkg/keys/NUMBER`.
    #[must_use]
    pub fn public(&self) -> String {
        let bytes = [ED25519_MARK, &self.number, self.pair.public_key().as_ref()].concat();
        let number = hash::hex(&self.number);
        format!(
            "untrusted comment: public key {number}\n{}\n",
            STANDARD.encode(bytes)
        )
    }
}

/// Whether a signature file is valid for a message, by the public key file.
#[must_use]
pub fn usign_holds(public: &str, signature: &str, message: &[u8]) -> bool {
    let (Some(public), Some(signature)) = (second_line(public), second_line(signature)) else {
        return false;
    };
    let belong = public.len() == 42 && signature.len() == 74 && public[..10] == signature[..10];
    belong
        && public.starts_with(ED25519_MARK)
        && UnparsedPublicKey::new(&ED25519, &public[10..])
            .verify(message, &signature[10..])
            .is_ok()
}

fn second_line(text: &str) -> Option<Vec<u8>> {
    let line = text.lines().nth(1)?;
    STANDARD.decode(line.trim_end()).ok()
}

impl P256 {
    fn parse(text: &str) -> Result<Self, KeyError> {
        // A block of curve parameters may precede the key, which contains them as well.
        let block = ["EC PRIVATE KEY", "PRIVATE KEY"]
            .into_iter()
            .find_map(|name| {
                let (_, rest) = text.split_once(&format!("-----BEGIN {name}-----\n"))?;
                rest.split_once("-----END").map(|(block, _)| block)
            });
        let block = Zeroizing::new(block.ok_or(KeyError::Kind)?.replace(['\n', '\r'], ""));
        let der = STANDARD
            .decode(block.as_bytes())
            .map_err(|_| KeyError::Kind)?;
        let der = Zeroizing::new(der);
        let pair = EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_ASN1_SIGNING, &der);
        let pair = pair.map_err(|_| KeyError::Kind)?;
        Ok(Self { pair })
    }

    /// Signs the SHA-512 of a message with ECDSA; returns DER. P-256 uses only the first half of the digest, so the
    /// library gets only that half.
    ///
    /// # Errors
    /// When the library gets no random numbers.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let half = &hash::sha512(message)[..32];
        let half = Digest::import_less_safe(half, &SHA256).map_err(|_| KeyError::Sign)?;
        let signature = self.pair.sign_digest(&half).map_err(|_| KeyError::Sign)?;
        Ok(signature.as_ref().to_vec())
    }

    /// The point of the public key, in uncompressed form.
    #[must_use]
    pub fn point(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    /// The public key in PEM, which apk reads from `/etc/apk/keys`.
    #[must_use]
    pub fn public(&self) -> String {
        // RFC 5480: a sequence of algorithm and curve, and the point as a bit string.
        const PREFIX: [u8; 26] = [
            0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06,
            0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
        ];
        pem("PUBLIC KEY", &[&PREFIX, self.point()].concat())
    }
}

/// Generates a secret key file for opkg.
///
/// # Errors
/// When there are no random numbers.
pub fn new_usign() -> Result<Zeroizing<String>, Unspecified> {
    let mut seed = Zeroizing::new([0; 32]);
    let mut number = [0; 8];
    rand::fill(&mut *seed)?;
    rand::fill(&mut number)?;
    usign_text(&seed, number)
}

fn usign_text(seed: &[u8; 32], number: [u8; 8]) -> Result<Zeroizing<String>, Unspecified> {
    let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| Unspecified)?;
    let secret = Zeroizing::new([&seed[..], pair.public_key().as_ref()].concat());
    // Zero rounds and an empty salt mean "no passphrase".
    let checksum = &hash::sha512(&secret)[..8];
    let head = [ED25519_MARK, DERIVATION, &[0; 20], checksum, &number];
    let bytes = Zeroizing::new([&head.concat()[..], &secret].concat());
    let base64 = Zeroizing::new(STANDARD.encode(bytes));
    let number = hash::hex(&number);
    Ok(Zeroizing::new(format!(
        "untrusted comment: private key {number}\n{}\n",
        *base64
    )))
}

/// Generates a secret key file for apk.
///
/// # Errors
/// When there are no random numbers.
pub fn new_p256() -> Result<Zeroizing<String>, Unspecified> {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING)?;
    let der: EcPrivateKeyRfc5915Der<'_> = pair.private_key().as_der()?;
    Ok(Zeroizing::new(pem("EC PRIVATE KEY", der.as_ref())))
}

fn pem(name: &str, der: &[u8]) -> String {
    let text = Zeroizing::new(STANDARD.encode(der));
    let lines = text.as_bytes().chunks(64).map(String::from_utf8_lossy);
    let lines: String = lines.map(|it| format!("{it}\n")).collect();
    format!("-----BEGIN {name}-----\n{lines}-----END {name}-----\n")
}

/// Whether a signature by [`P256::sign`] is valid.
#[must_use]
pub fn p256_holds(point: &[u8], signature: &[u8], message: &[u8]) -> bool {
    UnparsedPublicKey::new(&ECDSA_P256_SHA512_ASN1, point)
        .verify(message, signature)
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn known() -> Zeroizing<String> {
        usign_text(&[7; 32], [1, 2, 3, 4, 5, 6, 7, 8]).unwrap()
    }

    #[test]
    fn what_is_signed_holds_and_nothing_else() {
        let mut keys = Keys::default();
        keys.parse(&known()).unwrap();
        keys.parse(&new_p256().unwrap()).unwrap();
        let (usign, p256) = (keys.usign.unwrap(), keys.p256.unwrap());
        let signature = usign.sign(b"message");
        assert!(signature.starts_with("untrusted comment: signed by key 0102030405060708\n"));
        assert!(usign_holds(&usign.public(), &signature, b"message"));
        assert!(!usign_holds(&usign.public(), &signature, b"massage"));
        assert!(!usign_holds(&signature, &signature, b"message"));
        let signature = p256.sign(b"message").unwrap();
        assert!(p256_holds(p256.point(), &signature, b"message"));
        assert!(!p256_holds(p256.point(), &signature, b"massage"));
    }

    #[test]
    fn keys_that_cannot_be_used_are_refused_with_the_reason() {
        let parse = |text: &str| Keys::default().parse(text).unwrap_err();
        // Changes the 24 bits around the number of rounds.
        let passphrase = known().replacen("RWRCSwAAAAA", "RWRCSwAAACo", 1);
        assert!(matches!(parse(&passphrase), KeyError::Passphrase));
        let damaged = known().replacen("BwcHBwcH", "BwcHBwcI", 1);
        assert!(matches!(parse(&damaged), KeyError::Damaged));
        for text in [
            "",
            "untrusted comment: x\n",
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        ] {
            assert!(matches!(parse(text), KeyError::Kind), "{text}");
        }
        assert!(!format!("{:?}", Keys::default()).contains("seed"));
    }

    #[test]
    fn the_text_of_a_key_is_that_of_usign() {
        // Assembled by hand, with the public key from `openssl pkey` and the checksum from `sha512sum`.
        let text = "untrusted comment: private key 0102030405060708\n\
            RWRCSwAAAAAAAAAAAAAAAAAAAAAAAAAAlgHmrXWVgz4BAgMEBQYHCAcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH6kpsY+KcUgq+9VB7Ey7F+ZVHdq6+vnuSQh7qaRRG0iw=\n";
        assert_eq!(*known(), text);
        let mut keys = Keys::default();
        keys.parse(&new_usign().unwrap()).unwrap();
        assert!(keys.usign.is_some());
    }

    #[test]
    fn openssl_takes_the_signature_and_the_public_key() {
        let has = Command::new("openssl").arg("version").output().is_ok();
        if !lab::require_that(has, "openssl: install openssl") {
            return;
        }
        let mut keys = Keys::default();
        keys.parse(&new_p256().unwrap()).unwrap();
        let p256 = keys.p256.unwrap();
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = directory.path().join(name);
            fs::write(&path, bytes).unwrap();
            path
        };
        let output = Command::new("openssl")
            .args(["dgst", "-sha512", "-verify"])
            .arg(file("key", p256.public().as_bytes()))
            .arg("-signature")
            .arg(file("signature", &p256.sign(b"message").unwrap()))
            .arg(file("message", b"message"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}
