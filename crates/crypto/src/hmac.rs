//! HMAC (RFC 2104) with its key prepared once.
//!
//! Hashing a key takes two blocks: noticeable for a packet of 1,400 bytes, and twice the price for one of 60. So the
//! states of the inner and the outer hash after the key are kept, and copied for each message.
//!
//! [`stretch`] makes passwords costly to guess: PBKDF2 with HMAC-SHA-256 (RFC 8018, section 5.2).

use std::num::NonZeroU32;

use aws_lc_rs::pbkdf2;
use zeroize::Zeroizing;

use crate::Digest;
use crate::random::are_equal;

mod other;
mod state;

pub(crate) use state::State;
pub use state::{SHA1_LEN, sha1};

/// Bytes of the longest MAC.
pub const MAX_LEN: usize = 64;

/// Bytes of the longest block: SHA3-256's.
const MAX_BLOCK: usize = 136;

/// An HMAC with its key.
#[derive(Clone)]
pub struct Hmac {
    digest: Digest,
    inner: State,
    outer: State,
}

/// A message authentication code of up to [`MAX_LEN`] bytes.
#[derive(Clone, Copy)]
pub struct Mac {
    bytes: [u8; MAX_LEN],
    len: usize,
}

impl Mac {
    /// The code.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Whether the code equals `mac`, in a time that does not depend on either's content.
    pub(crate) fn equals(&self, mac: &[u8]) -> bool {
        are_equal(self.as_bytes(), mac).into()
    }

    /// The first `len` bytes of `bytes`.
    pub(crate) fn new(bytes: &[u8], len: usize) -> Self {
        let mut mac = Self { len, ..Self::EMPTY };
        mac.bytes[..len].copy_from_slice(&bytes[..len]);
        mac
    }

    /// The first `len` of `bytes`; the others must be zeros.
    pub(crate) fn of_array(bytes: [u8; MAX_LEN], len: usize) -> Self {
        Self { bytes, len }
    }

    /// Code of length zero.
    pub(crate) const EMPTY: Self = Self {
        bytes: [0; MAX_LEN],
        len: 0,
    };
}

impl AsRef<[u8]> for Mac {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl Hmac {
    /// Prepares a key of any length; keys longer than a block are hashed first, as RFC 2104 says. `None` for
    /// [`Digest::None`].
    #[must_use]
    pub fn new(digest: Digest, key: &[u8]) -> Option<Self> {
        Some(Self::of_start(digest, &State::new(digest)?, key))
    }

    /// HMAC-SHA-256, with a key of any length.
    #[must_use]
    pub fn sha256(key: &[u8]) -> Self {
        Self::of_start(Digest::Sha256, &State::sha256(), key)
    }

    fn of_start(digest: Digest, start: &State, key: &[u8]) -> Self {
        let block_len = start.block_len();
        let mut block = Zeroizing::new([0; MAX_BLOCK]);
        if key.len() > block_len {
            let mut state = start.clone();
            state.update(key);
            let hashed = Zeroizing::new(state.finish());
            block[..digest.len()].copy_from_slice(&hashed[..digest.len()]);
        } else {
            block[..key.len()].copy_from_slice(key);
        }
        let keyed = |pad: u8| {
            let mut state = start.clone();
            state.update(&Zeroizing::new(block.map(|byte| byte ^ pad))[..block_len]);
            state
        };
        Self {
            digest,
            inner: keyed(0x36),
            outer: keyed(0x5c),
        }
    }

    /// The chaining values of the inner and of the outer hash, each after its block of key.
    pub(crate) fn states(&self) -> (&State, &State) {
        (&self.inner, &self.outer)
    }

    /// The hash in use.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// The code of the concatenation of `parts`.
    #[must_use]
    pub fn sign(&self, parts: &[&[u8]]) -> Mac {
        let mut inner = self.inner.clone();
        for part in parts {
            inner.update(part);
        }
        let hash = inner.finish();
        let mut outer = self.outer.clone();
        outer.update(&hash[..self.digest.len()]);
        Mac {
            bytes: outer.finish(),
            len: self.digest.len(),
        }
    }

    /// Whether `mac` is the whole code of the concatenation of `parts`, in a time that depends on neither's content.
    #[must_use]
    pub fn verify(&self, parts: &[&[u8]], mac: &[u8]) -> bool {
        self.sign(parts).equals(mac)
    }
}

impl core::fmt::Debug for Hmac {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Hmac({}, ..)", self.digest)
    }
}

impl Digest {
    /// The plain hash of `message`; empty for [`Digest::None`].
    pub(crate) fn hash(self, message: &[u8]) -> Mac {
        match State::new(self) {
            Some(mut state) => {
                state.update(message);
                Mac::new(&state.finish(), self.len())
            }
            None => Mac::EMPTY,
        }
    }
}

/// Bytes of a stretched password.
pub const STRETCHED_LEN: usize = 32;

/// Stretches the password by so many `rounds`, which cost the owner as much as someone who guesses.
#[must_use]
pub fn stretch(password: &[u8], salt: &[u8], rounds: NonZeroU32) -> Zeroizing<[u8; STRETCHED_LEN]> {
    let mut out = Zeroizing::new([0; STRETCHED_LEN]);
    pbkdf2::derive(
        pbkdf2::PBKDF2_HMAC_SHA256,
        rounds,
        salt,
        password,
        &mut *out,
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// RFC 2202 and RFC 4231, test case 2: key "Jefe".
    #[test]
    fn the_examples_of_the_rfcs() {
        let expected = [
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
                "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e8e2240ca5e69e2c78b3239ecfab21649",
            ),
            (
                Digest::Sha512,
                "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
            ),
        ];
        for (digest, mac) in expected {
            let hmac = Hmac::new(digest, b"Jefe").unwrap();
            let message: [&[u8]; 3] = [b"what do ya want ", b"", b"for nothing?"];
            assert_eq!(hex(hmac.sign(&message).as_bytes()), mac, "{digest}");
            let right = hmac.sign(&message);
            assert!(hmac.verify(&message, right.as_bytes()));
            assert!(!hmac.verify(&message, &right.as_bytes()[1..]));
            assert!(!hmac.verify(&message[1..], right.as_bytes()));
        }
        assert!(Hmac::new(Digest::None, b"Jefe").is_none());
    }

    /// One message with the digests that the RFCs leave out, by `openssl mac`.
    #[test]
    fn the_rarer_digests_are_those_of_openssl() {
        let expected = [
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
                "f1101f8cbf9766fd6764d2ed61903f21ca9b18f57cf3e1a23ca13508a93243ce48c045dc007f26a21b3f5e0e9df4c20a",
            ),
            (
                Digest::Sha3_512,
                "5a4bfeab6166427c7a3647b747292b8384537cdb89afb3bf5665e4c5e709350b287baec921fd7ca0ee7a0c31d022a95e1fc92ba9d77df883960275beb4e62024",
            ),
            (
                Digest::Blake2s256,
                "90b6281e2f3038c9056af0b4a7e763cae6fe5d9eb4386a0ec95237890c104ff0",
            ),
            (
                Digest::Blake2b512,
                "6ff884f8ddc2a6586b3c98a4cd6ebdf14ec10204b6710073eb5865ade37a2643b8807c1335d107ecdb9ffeaeb6828c4625ba172c66379efcd222c2de11727ab4",
            ),
            (
                Digest::Ripemd160,
                "dda6c0213a485a9e24f4742064a7f033b43c4069",
            ),
        ];
        for (digest, mac) in expected {
            let hmac = Hmac::new(digest, b"Jefe").unwrap();
            // Twice, because the next message must not begin with a finished state.
            for _ in 0..2 {
                let message: [&[u8]; 2] = [b"what do ya want ", b"for nothing?"];
                assert_eq!(hex(hmac.sign(&message).as_bytes()), mac, "{digest}");
            }
        }
    }

    #[test]
    fn every_digest_but_none_has_an_hmac_of_its_length() {
        for digest in Digest::ALL {
            for len in [0, 1, 64, 65, 136, 137, 300] {
                let hmac = Hmac::new(digest, &vec![0xa7; len]);
                assert_eq!(hmac.is_none(), digest == Digest::None, "{digest}");
                let Some(hmac) = hmac else { continue };
                assert_eq!(hmac.sign(&[]).as_bytes().len(), digest.len(), "{digest}");
            }
        }
        let (general, sha256) = (Hmac::new(Digest::Sha256, b"k"), Hmac::sha256(b"k"));
        let mac = general.unwrap().sign(&[b"m"]);
        assert!(sha256.verify(&[b"m"], mac.as_bytes()));
    }

    /// RFC 2202 and RFC 4231, test case 6: a key longer than a block.
    #[test]
    fn long_keys_are_hashed_first() {
        let message: [&[u8]; 1] = [b"Test Using Larger Than Block-Size Key - Hash Key First"];
        let sha1 = Hmac::new(Digest::Sha1, &[0xaa; 80]).unwrap();
        assert_eq!(
            hex(sha1.sign(&message).as_bytes()),
            "aa4ae5e15272d00e95705637ce8a3b55ed402112"
        );
        let sha256 = Hmac::new(Digest::Sha256, &[0xaa; 131]).unwrap();
        assert_eq!(
            hex(sha256.sign(&message).as_bytes()),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    #[test]
    fn answers_of_rfc_7914() {
        let rounds = NonZeroU32::new(80_000).unwrap();
        let stretched = stretch(b"Password", b"NaCl", rounds);
        let hex: String = stretched.iter().map(|it| format!("{it:02x}")).collect();
        assert_eq!(
            hex,
            "4ddcd8f60b98be21830cee5ef22701f9641a4418d04c0414aeff08876b34ab56"
        );
    }
}
