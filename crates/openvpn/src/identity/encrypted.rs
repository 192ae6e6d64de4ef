//! Keys and containers that a passphrase locks (RFC 8018, RFC 7292 appendix C, and OpenSSL's own
//! form with `DEK-Info`).
//!
//! Old ciphers are opened, as people still have such files; nothing is ever written with them.

use std::num::NonZeroU32;

use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, DecryptionContext, PaddedBlockDecryptingKey, UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use des::cipher::{BlockCipherDecrypt, KeyInit};
use rc2::Rc2;
use zeroize::Zeroizing;

use crate::der::{self, BadDer, Reader};
use crate::identity::IdentityError;
use crate::identity::kdf::{self, Hash, Pkcs12Use};

/// More rounds than this would keep a router busy for minutes; no known file has so many.
const ROUNDS_MAX: u32 = 10_000_000;

const PBES2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 5, 13];
const PBKDF2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 5, 12];
/// pkcs-12PbeIds; one byte follows.
const PKCS12_PBE: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 12, 1];
/// The HMACs of RFC 8018; one byte follows.
const HMAC: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 2];
/// NIST's AES; one byte follows.
const AES: &[u8] = &[0x60, 0x86, 0x48, 1, 101, 3, 4, 1];
const DES_EDE3_CBC: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 3, 7];

const REMEDY: &str =
    "decrypt it once with 'openssl pkey', and encrypt it again with 'openssl pkcs8 -topk8'";

/// A block cipher in CBC mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cipher {
    Aes128,
    Aes192,
    Aes256,
    Des,
    TripleDes,
    TripleDesTwoKeys,
    /// The effective bits of the key, which has as many bytes as they need.
    Rc2(u8),
}

impl Cipher {
    fn key_len(self) -> usize {
        match self {
            Self::Des => 8,
            Self::Aes128 | Self::TripleDesTwoKeys => 16,
            Self::Aes192 | Self::TripleDes => 24,
            Self::Aes256 => 32,
            Self::Rc2(bits) => usize::from(bits / 8),
        }
    }

    fn block_len(self) -> usize {
        match self {
            Self::Aes128 | Self::Aes192 | Self::Aes256 => 16,
            _ => 8,
        }
    }

    /// Decrypts, checks lengths and removes the padding; `None` if the key is wrong.
    fn open(self, key: &[u8], iv: &[u8], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        if key.len() != self.key_len() || iv.len() != self.block_len() {
            return None;
        }
        match self {
            Self::Aes128 => open_aes(&AES_128, key, iv, sealed),
            Self::Aes192 => open_aes(&AES_192, key, iv, sealed),
            Self::Aes256 => open_aes(&AES_256, key, iv, sealed),
            Self::Des => open_cbc(&des::Des::new_from_slice(key).ok()?, iv, sealed),
            Self::TripleDes => open_cbc(&des::TdesEde3::new_from_slice(key).ok()?, iv, sealed),
            Self::TripleDesTwoKeys => {
                open_cbc(&des::TdesEde2::new_from_slice(key).ok()?, iv, sealed)
            }
            Self::Rc2(bits) => open_cbc(
                &Rc2::new_with_eff_key_len(key, usize::from(bits)),
                iv,
                sealed,
            ),
        }
    }
}

fn open_aes(
    algorithm: &'static aws_lc_rs::cipher::Algorithm,
    key: &[u8],
    iv: &[u8],
    sealed: &[u8],
) -> Option<Zeroizing<Vec<u8>>> {
    let key = UnboundCipherKey::new(algorithm, key).ok()?;
    let key = PaddedBlockDecryptingKey::cbc_pkcs7(key).ok()?;
    let iv = FixedLength::<16>::try_from(iv).ok()?;
    let mut buffer = Zeroizing::new(sealed.to_vec());
    let plain = key
        .decrypt(&mut buffer, DecryptionContext::Iv128(iv))
        .ok()?;
    Some(Zeroizing::new(plain.to_vec()))
}

/// CBC with PKCS#7 padding around a cipher of 64-bit blocks.
fn open_cbc<C>(cipher: &C, iv: &[u8], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>>
where
    C: BlockCipherDecrypt<BlockSize = des::cipher::consts::U8>,
{
    let mut plain = Zeroizing::new(sealed.to_vec());
    let mut before: [u8; 8] = iv.try_into().ok()?;
    let (blocks, rest) = plain.as_chunks_mut::<8>();
    if !rest.is_empty() {
        return None;
    }
    for block in blocks {
        let sealed = *block;
        cipher.decrypt_block(block.into());
        block
            .iter_mut()
            .zip(before)
            .for_each(|(byte, before)| *byte ^= before);
        before = sealed;
    }
    // A padding oracle does no harm: the holder of the file may try passphrases without end.
    let padding = usize::from(*plain.last()?);
    let len = plain.len().checked_sub(padding)?;
    if !(1..=8).contains(&padding)
        || plain[len..]
            .iter()
            .any(|&byte| usize::from(byte) != padding)
    {
        return None;
    }
    plain.truncate(len);
    Some(plain)
}

/// How a passphrase becomes a key.
#[derive(Debug, Clone, Copy)]
enum Kdf<'a> {
    Pbkdf2 { hash: Hash, iv: &'a [u8] },
    Pkcs12,
}

/// How something is encrypted, as its AlgorithmIdentifier says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scheme<'a> {
    cipher: Cipher,
    kdf: Kdf<'a>,
    salt: &'a [u8],
    rounds: NonZeroU32,
}

impl<'a> Scheme<'a> {
    /// Reads the content of an AlgorithmIdentifier.
    pub(super) fn parse(what: &'static str, algorithm: &'a [u8]) -> Result<Self, IdentityError> {
        let mut reader = Reader::new(algorithm);
        let scheme = reader.content(der::OID).and_then(|oid| match oid {
            PBES2 => Self::parse_pbes2(&mut reader),
            [prefix @ .., kind] if prefix == PKCS12_PBE => Self::parse_pkcs12(*kind, &mut reader),
            other => Ok(Err(der::dotted(other))),
        });
        match scheme {
            Ok(Ok(scheme)) => Ok(scheme),
            Ok(Err(unknown)) => Err(IdentityError::Unsupported {
                what,
                reason: format!("its encryption is not supported ({unknown}); {REMEDY}"),
            }),
            Err(BadDer) => Err(IdentityError::Unreadable {
                what,
                reason: "the header that describes its encryption is unreadable; export it again"
                    .to_owned(),
            }),
        }
    }

    /// The outer error means bad encoding; the inner error names an unknown algorithm.
    fn parse_pbes2(reader: &mut Reader<'a>) -> Result<Result<Self, String>, BadDer> {
        let mut parameters = reader.inside(der::SEQUENCE)?;
        let mut kdf = parameters.inside(der::SEQUENCE)?;
        let mut encryption = parameters.inside(der::SEQUENCE)?;
        let kdf_oid = kdf.content(der::OID)?;
        if kdf_oid != PBKDF2 {
            return Ok(Err(der::dotted(kdf_oid)));
        }
        let mut kdf = kdf.inside(der::SEQUENCE)?;
        let salt = kdf.content(der::OCTET_STRING)?;
        let rounds = rounds(&mut kdf)?;
        // The length of the key, which the cipher gives too.
        kdf.optional(der::INTEGER)?;
        let hash = match kdf.optional(der::SEQUENCE)? {
            None => Hash::Sha1,
            Some(prf) => match Reader::new(prf.content).content(der::OID)? {
                [prefix @ .., 7] if prefix == HMAC => Hash::Sha1,
                [prefix @ .., 9] if prefix == HMAC => Hash::Sha256,
                [prefix @ .., 10] if prefix == HMAC => Hash::Sha384,
                [prefix @ .., 11] if prefix == HMAC => Hash::Sha512,
                other => return Ok(Err(der::dotted(other))),
            },
        };
        let cipher = match encryption.content(der::OID)? {
            [prefix @ .., 2] if prefix == AES => Cipher::Aes128,
            [prefix @ .., 22] if prefix == AES => Cipher::Aes192,
            [prefix @ .., 42] if prefix == AES => Cipher::Aes256,
            DES_EDE3_CBC => Cipher::TripleDes,
            other => return Ok(Err(der::dotted(other))),
        };
        let iv = encryption.content(der::OCTET_STRING)?;
        Ok(Ok(Self {
            cipher,
            kdf: Kdf::Pbkdf2 { hash, iv },
            salt,
            rounds,
        }))
    }

    fn parse_pkcs12(kind: u8, reader: &mut Reader<'a>) -> Result<Result<Self, String>, BadDer> {
        let cipher = match kind {
            3 => Cipher::TripleDes,
            4 => Cipher::TripleDesTwoKeys,
            5 => Cipher::Rc2(128),
            6 => Cipher::Rc2(40),
            _ => return Ok(Err("RC4".to_owned())),
        };
        let mut parameters = reader.inside(der::SEQUENCE)?;
        let salt = parameters.content(der::OCTET_STRING)?;
        Ok(Ok(Self {
            cipher,
            kdf: Kdf::Pkcs12,
            salt,
            rounds: rounds(&mut parameters)?,
        }))
    }

    /// Decrypts data of this scheme; the plaintext is one DER SEQUENCE.
    pub(super) fn open(
        &self,
        what: &'static str,
        passphrase: &[u8],
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, IdentityError> {
        let (salt, rounds) = (self.salt, self.rounds);
        let (key, iv) = match self.kdf {
            Kdf::Pbkdf2 { hash, iv } => {
                let key = kdf::pbkdf2(hash, passphrase, salt, rounds, self.cipher.key_len());
                (key, Zeroizing::new(iv.to_vec()))
            }
            Kdf::Pkcs12 => {
                let passphrase = kdf::bmp_passphrase(passphrase);
                let derive =
                    |purpose, len| kdf::pkcs12(Hash::Sha1, purpose, &passphrase, salt, rounds, len);
                let key = derive(Pkcs12Use::Key, self.cipher.key_len());
                (key, derive(Pkcs12Use::Iv, self.cipher.block_len()))
            }
        };
        sane(what, self.cipher.open(&key, &iv, sealed))
    }
}

/// Reads a number of rounds within the limit.
pub(super) fn rounds(reader: &mut Reader<'_>) -> Result<NonZeroU32, BadDer> {
    NonZeroU32::new(reader.number()?)
        .filter(|rounds| rounds.get() <= ROUNDS_MAX)
        .ok_or(BadDer)
}

/// The algorithm (the content of its AlgorithmIdentifier) and the ciphertext of an encrypted PKCS#8 key; `None` if it
/// is not encrypted.
pub(super) fn encrypted_pkcs8(key: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut reader = der::only(key, der::SEQUENCE).ok()?;
    let algorithm = reader.content(der::SEQUENCE).ok()?;
    Some((algorithm, reader.content(der::OCTET_STRING).ok()?))
}

/// Opens a key in OpenSSL's own form; `info` is the value of its `DEK-Info`.
pub(super) fn open_legacy(
    what: &'static str,
    info: &str,
    sealed: &[u8],
    passphrase: &[u8],
) -> Result<Zeroizing<Vec<u8>>, IdentityError> {
    let (name, iv) = info.split_once(',').unwrap_or((info, ""));
    let cipher = match name.trim().to_ascii_uppercase().as_str() {
        "AES-128-CBC" => Cipher::Aes128,
        "AES-192-CBC" => Cipher::Aes192,
        "AES-256-CBC" => Cipher::Aes256,
        "DES-EDE3-CBC" => Cipher::TripleDes,
        "DES-CBC" => Cipher::Des,
        other => {
            let reason = format!("its encryption is not supported ({other}); {REMEDY}");
            return Err(IdentityError::Unsupported { what, reason });
        }
    };
    let iv = unhex(iv.trim())
        .filter(|iv| iv.len() == cipher.block_len())
        .ok_or_else(|| {
            let reason = "the initialization vector in its DEK-Info is damaged; export it again";
            IdentityError::Unreadable {
                what,
                reason: reason.to_owned(),
            }
        })?;
    let key = kdf::bytes_to_key(passphrase, &iv[..8], cipher.key_len());
    sane(what, cipher.open(&key, &iv, sealed))
}

/// Checks that the plaintext is DER: one wrong passphrase in 256 leaves padding that looks right.
fn sane(
    what: &'static str,
    opened: Option<Zeroizing<Vec<u8>>>,
) -> Result<Zeroizing<Vec<u8>>, IdentityError> {
    opened
        .filter(|plain| der::only(plain, der::SEQUENCE).is_ok())
        .ok_or(IdentityError::WrongPassphrase(what))
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    if rest.is_empty() {
        pairs.iter().map(byte).collect()
    } else {
        None
    }
}
