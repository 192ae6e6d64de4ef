//! HMAC (RFC 2104) with its key prepared once.
//!
//! A key costs two blocks of hashing, which a packet of 1,400 bytes would notice and one of 60 would pay double for. So the
//! states of the inner and the outer hash behind the key are kept and copied for each message.

use core::ffi::c_void;

use aws_lc_sys::{SHA_CTX, SHA256_CTX, SHA512_CTX};
use md5::Digest as _;
use zeroize::{Zeroize, Zeroizing};

use crate::kernels::are_equal;
use crate::openvpn::Digest;

/// Bytes of the longest MAC.
pub const MAX_LEN: usize = 64;

/// An HMAC with its key.
#[derive(Clone)]
pub struct Hmac {
    digest: Digest,
    inner: State,
    outer: State,
}

/// The key of an HMAC for kernels: each takes what it needs of it.
pub(crate) struct MacKey {
    hmac: Hmac,
    #[allow(dead_code)]
    block: Zeroizing<[u8; 128]>,
}

impl MacKey {
    /// Prepares a key of any length. `None` for [`Digest::None`].
    pub(crate) fn new(digest: Digest, key: &[u8]) -> Option<Self> {
        let block = key_block(digest, key)?;
        let hmac = Hmac::of_block(digest, &block)?;
        Some(Self { hmac, block })
    }

    /// The HMAC, one message at a time, with the chaining values behind the key.
    pub(crate) fn hmac(&self) -> &Hmac {
        &self.hmac
    }

    /// The key as it goes into the hash: a block, 64 or 128 bytes, filled up with zeros. As a key it is the same.
    // For accelerators, which take keys and not what the hash makes of them.
    #[allow(dead_code)]
    pub(crate) fn block(&self) -> &[u8] {
        &self.block[..self.hmac.inner.block_len()]
    }
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

    /// Whether it is `mac`, in a time that does not depend on either's content.
    pub(crate) fn equals(&self, mac: &[u8]) -> bool {
        are_equal(self.as_bytes(), mac).into()
    }

    /// The first `len` bytes of `bytes`.
    pub(crate) fn new(bytes: &[u8], len: usize) -> Self {
        let mut mac = Self { len, ..Self::EMPTY };
        mac.bytes[..len].copy_from_slice(&bytes[..len]);
        mac
    }

    /// The first `len` of `bytes`, of which the others are zeros.
    pub(crate) fn of_array(bytes: [u8; MAX_LEN], len: usize) -> Self {
        Self { bytes, len }
    }

    /// Nothing yet.
    pub(crate) const EMPTY: Self = Self {
        bytes: [0; MAX_LEN],
        len: 0,
    };
}

impl Hmac {
    /// Prepares a key of any length; keys longer than a block are hashed first, as RFC 2104 says. `None` for
    /// [`Digest::None`].
    #[must_use]
    pub fn new(digest: Digest, key: &[u8]) -> Option<Self> {
        Self::of_block(digest, &*key_block(digest, key)?)
    }

    fn of_block(digest: Digest, block: &[u8; 128]) -> Option<Self> {
        let start = State::new(digest)?;
        let block_len = start.block_len();
        let keyed = |pad: u8| {
            let mut state = start.clone();
            state.update(&Zeroizing::new(block.map(|byte| byte ^ pad))[..block_len]);
            state
        };
        Some(Self {
            digest,
            inner: keyed(0x36),
            outer: keyed(0x5c),
        })
    }

    /// The chaining values of the inner and of the outer hash, each behind its block of key.
    pub(crate) fn states(&self) -> (&State, &State) {
        (&self.inner, &self.outer)
    }

    /// Which hash it is.
    #[must_use]
    pub fn digest(&self) -> Digest {
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

    /// Whether `mac` is the whole code of the concatenation of `parts`, in a time that does not depend on either's content.
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
    /// The plain hash of `message`; nothing for [`Digest::None`].
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

/// A key as a block, hashed first if it is longer than one.
fn key_block(digest: Digest, key: &[u8]) -> Option<Zeroizing<[u8; 128]>> {
    let mut state = State::new(digest)?;
    let mut block = Zeroizing::new([0; 128]);
    if key.len() > state.block_len() {
        state.update(key);
        let hashed = Zeroizing::new(state.finish());
        block[..digest.len()].copy_from_slice(&hashed[..digest.len()]);
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    Some(block)
}

/// A hash under way. Between blocks, as those of a key are, only its chaining value is secret.
#[derive(Clone)]
pub(crate) enum State {
    Md5(md5::Md5),
    Sha1(SHA_CTX),
    /// The flag: SHA-224, which has another start and a shorter end.
    Sha256(SHA256_CTX, bool),
    /// The flag: SHA-384.
    Sha512(SHA512_CTX, bool),
}

impl State {
    pub(crate) fn new(digest: Digest) -> Option<Self> {
        // SAFETY: the contexts are plain integers, for which zeros are valid, and the calls fill them.
        unsafe {
            Some(match digest {
                Digest::None => return None,
                Digest::Md5 => Self::Md5(md5::Md5::new()),
                Digest::Sha1 => {
                    let mut state = core::mem::zeroed();
                    aws_lc_sys::SHA1_Init(&raw mut state);
                    Self::Sha1(state)
                }
                Digest::Sha224 => {
                    let mut state = core::mem::zeroed();
                    aws_lc_sys::SHA224_Init(&raw mut state);
                    Self::Sha256(state, true)
                }
                Digest::Sha256 => {
                    let mut state = core::mem::zeroed();
                    aws_lc_sys::SHA256_Init(&raw mut state);
                    Self::Sha256(state, false)
                }
                Digest::Sha384 => {
                    let mut state = core::mem::zeroed();
                    aws_lc_sys::SHA384_Init(&raw mut state);
                    Self::Sha512(state, true)
                }
                Digest::Sha512 => {
                    let mut state = core::mem::zeroed();
                    aws_lc_sys::SHA512_Init(&raw mut state);
                    Self::Sha512(state, false)
                }
            })
        }
    }

    /// The chaining value of a hash with words of 32 bits: five words of SHA-1's, eight of SHA-256's.
    pub(crate) fn words32(&self) -> Option<&[u32]> {
        match self {
            Self::Sha1(state) => Some(&state.h),
            Self::Sha256(state, _) => Some(&state.h),
            Self::Md5(_) | Self::Sha512(..) => None,
        }
    }

    /// The chaining value of SHA-512 and SHA-384.
    pub(crate) fn words64(&self) -> Option<&[u64]> {
        match self {
            Self::Sha512(state, _) => Some(&state.h),
            Self::Md5(_) | Self::Sha1(_) | Self::Sha256(..) => None,
        }
    }

    fn block_len(&self) -> usize {
        match self {
            Self::Md5(_) | Self::Sha1(_) | Self::Sha256(..) => 64,
            Self::Sha512(..) => 128,
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        let (data, len) = (bytes.as_ptr().cast::<c_void>(), bytes.len());
        // SAFETY: an initialised context and a slice with its length.
        unsafe {
            match self {
                Self::Md5(state) => state.update(bytes),
                Self::Sha1(state) => _ = aws_lc_sys::SHA1_Update(state, data, len),
                Self::Sha256(state, false) => _ = aws_lc_sys::SHA256_Update(state, data, len),
                Self::Sha256(state, true) => _ = aws_lc_sys::SHA224_Update(state, data, len),
                Self::Sha512(state, false) => _ = aws_lc_sys::SHA512_Update(state, data, len),
                Self::Sha512(state, true) => _ = aws_lc_sys::SHA384_Update(state, data, len),
            }
        }
    }

    fn finish(mut self) -> [u8; MAX_LEN] {
        let mut hash = [0; MAX_LEN];
        let out = hash.as_mut_ptr();
        // SAFETY: an initialised context, and room for the longest hash.
        unsafe {
            match &mut self {
                Self::Md5(state) => hash[..16].copy_from_slice(&state.finalize_reset()),
                Self::Sha1(state) => _ = aws_lc_sys::SHA1_Final(out, state),
                Self::Sha256(state, false) => _ = aws_lc_sys::SHA256_Final(out, state),
                Self::Sha256(state, true) => _ = aws_lc_sys::SHA224_Final(out, state),
                Self::Sha512(state, false) => _ = aws_lc_sys::SHA512_Final(out, state),
                Self::Sha512(state, true) => _ = aws_lc_sys::SHA384_Final(out, state),
            }
        }
        hash
    }
}

impl Drop for State {
    fn drop(&mut self) {
        match self {
            // Erases itself.
            Self::Md5(_) => {}
            Self::Sha1(state) => state.h.zeroize(),
            Self::Sha256(state, _) => state.h.zeroize(),
            Self::Sha512(state, _) => state.h.zeroize(),
        }
    }
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
}
