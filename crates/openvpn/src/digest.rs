//! Message digests as `--auth` names them, and HMAC with them.

use aws_lc_rs::digest::{self as aws, Context};
use aws_lc_rs::hmac;
use blake2::{Blake2b512, Blake2s256};
use md5::Digest as _;
use md5::Md5;
use ripemd::Ripemd160;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Bytes of the longest digest.
pub const MAX_DIGEST_LEN: usize = 64;

/// A message digest that `--auth` can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Digest {
    /// MD5, 16 bytes. Broken as a hash; nothing is known against its HMAC.
    Md5,
    /// SHA-1, 20 bytes: the default.
    Sha1,
    /// SHA-224, 28 bytes.
    Sha224,
    /// SHA-256, 32 bytes.
    Sha256,
    /// SHA-384, 48 bytes.
    Sha384,
    /// SHA-512, 64 bytes.
    Sha512,
    /// SHA-512/256, 32 bytes.
    Sha512_256,
    /// SHA3-256, 32 bytes.
    Sha3_256,
    /// SHA3-384, 48 bytes.
    Sha3_384,
    /// SHA3-512, 64 bytes.
    Sha3_512,
    /// BLAKE2s, 32 bytes.
    Blake2s256,
    /// BLAKE2b, 64 bytes.
    Blake2b512,
    /// RIPEMD-160, 20 bytes.
    Ripemd160,
}

impl Digest {
    /// Every digest, in the order of the names' documentation.
    pub const ALL: [Self; 13] = [
        Self::Md5,
        Self::Sha1,
        Self::Sha224,
        Self::Sha256,
        Self::Sha384,
        Self::Sha512,
        Self::Sha512_256,
        Self::Sha3_256,
        Self::Sha3_384,
        Self::Sha3_512,
        Self::Blake2s256,
        Self::Blake2b512,
        Self::Ripemd160,
    ];

    /// The digest of a name, in any case: OpenVPN's (`SHA256`), or an alias that OpenSSL takes for it (`RSA-SHA256`,
    /// `SHA2-256`, `SHA-256`). `None` for `none`, which is no digest, and for names that are unknown or not offered.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let upper = name.to_ascii_uppercase();
        let plain = upper.strip_prefix("RSA-").unwrap_or(&upper);
        Some(match plain {
            "MD5" | "SSL3-MD5" => Self::Md5,
            "SHA1" | "SHA-1" | "SSL3-SHA1" => Self::Sha1,
            "SHA224" | "SHA2-224" | "SHA-224" | "SHA-2-224" => Self::Sha224,
            "SHA256" | "SHA2-256" | "SHA-256" | "SHA-2-256" => Self::Sha256,
            "SHA384" | "SHA2-384" | "SHA-384" | "SHA-2-384" => Self::Sha384,
            "SHA512" | "SHA2-512" | "SHA-512" | "SHA-2-512" => Self::Sha512,
            "SHA512-256" | "SHA512/256" | "SHA2-512/256" | "SHA-512/256" => Self::Sha512_256,
            "SHA3-256" => Self::Sha3_256,
            "SHA3-384" => Self::Sha3_384,
            "SHA3-512" => Self::Sha3_512,
            "BLAKE2S256" | "BLAKE2S-256" => Self::Blake2s256,
            "BLAKE2B512" | "BLAKE2B-512" => Self::Blake2b512,
            "RIPEMD160" | "RIPEMD-160" | "RIPEMD" | "RMD160" => Self::Ripemd160,
            _ => return None,
        })
    }

    /// OpenVPN's name: as in its log and in the options that the ends compare.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Md5 => "MD5",
            Self::Sha1 => "SHA1",
            Self::Sha224 => "SHA224",
            Self::Sha256 => "SHA256",
            Self::Sha384 => "SHA384",
            Self::Sha512 => "SHA512",
            Self::Sha512_256 => "SHA512-256",
            Self::Sha3_256 => "SHA3-256",
            Self::Sha3_384 => "SHA3-384",
            Self::Sha3_512 => "SHA3-512",
            Self::Blake2s256 => "BLAKE2s256",
            Self::Blake2b512 => "BLAKE2b512",
            Self::Ripemd160 => "RIPEMD160",
        }
    }

    /// Bytes of the digest, of an HMAC with it, and of the part of a key that such an HMAC takes.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub const fn len(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Sha1 | Self::Ripemd160 => 20,
            Self::Sha224 => 28,
            Self::Sha256 | Self::Sha512_256 | Self::Sha3_256 | Self::Blake2s256 => 32,
            Self::Sha384 | Self::Sha3_384 => 48,
            Self::Sha512 | Self::Sha3_512 | Self::Blake2b512 => 64,
        }
    }

    /// Bytes that the digest takes at a time: what HMAC pads its key to.
    const fn block_len(self) -> usize {
        match self {
            Self::Sha384 | Self::Sha512 | Self::Sha512_256 | Self::Blake2b512 => 128,
            Self::Sha3_256 => 136,
            Self::Sha3_384 => 104,
            Self::Sha3_512 => 72,
            _ => 64,
        }
    }
}

/// HMAC (RFC 2104) with a key that is prepared once: two states that have taken the padded key.
#[derive(Clone)]
pub struct Hmac {
    digest: Digest,
    inner: Inner,
}

#[derive(Clone)]
enum Inner {
    /// What AWS-LC has an HMAC for.
    Whole(Box<hmac::Key>),
    /// What has only a hash: the states after the inner and the outer pad.
    Parts(Box<(Hash, Hash)>),
}

impl Hmac {
    /// Prepares a key. `key` is of any length; OpenVPN takes as many bytes as the digest has.
    #[must_use]
    pub fn new(digest: Digest, key: &[u8]) -> Self {
        let whole = match digest {
            Digest::Sha1 => Some(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
            Digest::Sha224 => Some(hmac::HMAC_SHA224),
            Digest::Sha256 => Some(hmac::HMAC_SHA256),
            Digest::Sha384 => Some(hmac::HMAC_SHA384),
            Digest::Sha512 => Some(hmac::HMAC_SHA512),
            _ => None,
        };
        let inner = match whole {
            Some(algorithm) => Inner::Whole(Box::new(hmac::Key::new(algorithm, key))),
            None => Inner::Parts(Box::new(padded(digest, key))),
        };
        Self { digest, inner }
    }

    /// Which digest it is with.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// The HMAC of the concatenation of `parts`.
    #[must_use]
    pub fn sign(&self, parts: &[&[u8]]) -> Tag {
        match &self.inner {
            Inner::Whole(key) => {
                let mut context = hmac::Context::with_key(key);
                for part in parts {
                    context.update(part);
                }
                Tag::new(context.sign().as_ref())
            }
            Inner::Parts(pads) => {
                let (mut inner, mut outer) = (**pads).clone();
                for part in parts {
                    inner.update(part);
                }
                outer.update(inner.finish().as_ref());
                outer.finish()
            }
        }
    }

    /// Whether `tag` is the HMAC of the concatenation of `parts`; in constant time.
    #[must_use]
    pub fn verify(&self, parts: &[&[u8]], tag: &[u8]) -> bool {
        self.sign(parts).as_ref().ct_eq(tag).into()
    }
}

/// The key is not shown.
impl std::fmt::Debug for Hmac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hmac({})", self.digest.name())
    }
}

/// The two states of an HMAC whose digest is only a hash.
fn padded(digest: Digest, key: &[u8]) -> (Hash, Hash) {
    let mut block = Zeroizing::new([0; 136]);
    let block = &mut block[..digest.block_len()];
    if key.len() <= block.len() {
        block[..key.len()].copy_from_slice(key);
    } else {
        let mut short = Hash::new(digest);
        short.update(key);
        let short = short.finish();
        block[..digest.len()].copy_from_slice(short.as_ref());
    }
    let (mut inner, mut outer) = (Hash::new(digest), Hash::new(digest));
    block.iter_mut().for_each(|byte| *byte ^= 0x36);
    inner.update(block);
    block.iter_mut().for_each(|byte| *byte ^= 0x36 ^ 0x5c);
    outer.update(block);
    (inner, outer)
}

/// A digest or an HMAC: up to 64 bytes. Not for comparing; that is [`Hmac::verify`].
#[derive(Clone, Copy)]
pub struct Tag {
    bytes: [u8; MAX_DIGEST_LEN],
    len: usize,
}

impl Tag {
    fn new(tag: &[u8]) -> Self {
        let mut bytes = [0; MAX_DIGEST_LEN];
        let len = tag.len().min(MAX_DIGEST_LEN);
        bytes[..len].copy_from_slice(&tag[..len]);
        Self { bytes, len }
    }
}

impl AsRef<[u8]> for Tag {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A hash under way.
#[derive(Clone)]
enum Hash {
    Aws(Context),
    Md5(Md5),
    Ripemd160(Ripemd160),
    Blake2s256(Blake2s256),
    Blake2b512(Blake2b512),
}

impl Hash {
    fn new(digest: Digest) -> Self {
        let algorithm = match digest {
            Digest::Md5 => return Self::Md5(Md5::new()),
            Digest::Ripemd160 => return Self::Ripemd160(Ripemd160::new()),
            Digest::Blake2s256 => return Self::Blake2s256(Blake2s256::new()),
            Digest::Blake2b512 => return Self::Blake2b512(Blake2b512::new()),
            Digest::Sha1 => &aws::SHA1_FOR_LEGACY_USE_ONLY,
            Digest::Sha224 => &aws::SHA224,
            Digest::Sha256 => &aws::SHA256,
            Digest::Sha384 => &aws::SHA384,
            Digest::Sha512 => &aws::SHA512,
            Digest::Sha512_256 => &aws::SHA512_256,
            Digest::Sha3_256 => &aws::SHA3_256,
            Digest::Sha3_384 => &aws::SHA3_384,
            Digest::Sha3_512 => &aws::SHA3_512,
        };
        Self::Aws(Context::new(algorithm))
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Aws(state) => state.update(bytes),
            Self::Md5(state) => state.update(bytes),
            Self::Ripemd160(state) => state.update(bytes),
            Self::Blake2s256(state) => state.update(bytes),
            Self::Blake2b512(state) => state.update(bytes),
        }
    }

    fn finish(self) -> Tag {
        match self {
            Self::Aws(state) => Tag::new(state.finish().as_ref()),
            Self::Md5(state) => Tag::new(&state.finalize()),
            Self::Ripemd160(state) => Tag::new(&state.finalize()),
            Self::Blake2s256(state) => Tag::new(&state.finalize()),
            Self::Blake2b512(state) => Tag::new(&state.finalize()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(tag: &[u8]) -> String {
        tag.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The message of RFC 2202 and RFC 4231, test case 2; the digests that they do not have are by `openssl mac`.
    #[test]
    fn known_answers() {
        let known = [
            (Digest::Md5, "750c783e6ab0b503eaa86e310a5db738"),
            (Digest::Sha1, "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"),
            (
                Digest::Sha224,
                "a30e01098bc6dbbf45690f3a7e9e6d0f8bbea2a39e6148008fd05e44",
            ),
            (
                Digest::Sha256,
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                Digest::Sha384,
                "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e\
                 8e2240ca5e69e2c78b3239ecfab21649",
            ),
            (
                Digest::Sha512,
                "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554\
                 9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
            ),
            (
                Digest::Sha512_256,
                "6df7b24630d5ccb2ee335407081a87188c221489768fa2020513b2d593359456",
            ),
            (
                Digest::Sha3_256,
                "c7d4072e788877ae3596bbb0da73b887c9171f93095b294ae857fbe2645e1ba5",
            ),
            (
                Digest::Sha3_384,
                "f1101f8cbf9766fd6764d2ed61903f21ca9b18f57cf3e1a23ca13508a93243ce\
                 48c045dc007f26a21b3f5e0e9df4c20a",
            ),
            (
                Digest::Sha3_512,
                "5a4bfeab6166427c7a3647b747292b8384537cdb89afb3bf5665e4c5e709350b\
                 287baec921fd7ca0ee7a0c31d022a95e1fc92ba9d77df883960275beb4e62024",
            ),
            (
                Digest::Blake2s256,
                "90b6281e2f3038c9056af0b4a7e763cae6fe5d9eb4386a0ec95237890c104ff0",
            ),
            (
                Digest::Blake2b512,
                "6ff884f8ddc2a6586b3c98a4cd6ebdf14ec10204b6710073eb5865ade37a2643\
                 b8807c1335d107ecdb9ffeaeb6828c4625ba172c66379efcd222c2de11727ab4",
            ),
            (
                Digest::Ripemd160,
                "dda6c0213a485a9e24f4742064a7f033b43c4069",
            ),
        ];
        assert_eq!(known.len(), Digest::ALL.len());
        for (digest, expected) in known {
            let hmac = Hmac::new(digest, b"Jefe");
            let tag = hmac.sign(&[b"what do ya want ", b"for nothing?"]);
            assert_eq!(hex(tag.as_ref()), expected, "{digest:?}");
        }
    }

    #[test]
    fn names_come_back() {
        for digest in Digest::ALL {
            assert_eq!(Digest::from_name(digest.name()), Some(digest));
            assert_eq!(
                Digest::from_name(&digest.name().to_lowercase()),
                Some(digest)
            );
            assert_eq!(Hash::new(digest).finish().as_ref().len(), digest.len());
            assert_eq!(
                Hmac::new(digest, b"k").sign(&[]).as_ref().len(),
                digest.len()
            );
        }
        assert_eq!(Digest::from_name("RSA-SHA256"), Some(Digest::Sha256));
        assert_eq!(Digest::from_name("none"), None);
        assert_eq!(Digest::from_name("WHIRLPOOL"), None);
    }

    /// A key longer than a block is hashed first, in either implementation.
    #[test]
    fn both_ways_to_an_hmac_agree() {
        for digest in [
            Digest::Sha1,
            Digest::Sha224,
            Digest::Sha256,
            Digest::Sha384,
            Digest::Sha512,
        ] {
            for len in [0, 1, 20, 64, 65, 128, 129, 300] {
                let key = vec![0xa7; len];
                let parts = Hmac {
                    digest,
                    inner: Inner::Parts(Box::new(padded(digest, &key))),
                };
                let whole = Hmac::new(digest, &key);
                let message: [&[u8]; 2] = [b"one", b"two"];
                assert_eq!(whole.sign(&message).as_ref(), parts.sign(&message).as_ref());
                assert!(parts.verify(&[b"onetwo"], whole.sign(&message).as_ref()));
                assert!(!parts.verify(&[b"onetwo!"], whole.sign(&message).as_ref()));
            }
        }
    }

    #[test]
    fn debug_shows_no_key() {
        assert_eq!(
            format!("{:?}", Hmac::new(Digest::Sha1, b"secret")),
            "Hmac(SHA1)"
        );
    }
}
