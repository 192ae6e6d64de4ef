//! HMAC (RFC 2104) with its key prepared once.
//!
//! A key costs two blocks of hashing, which a packet of 1,400 bytes would notice and one of 60 would pay double for. So the
//! states of the inner and the outer hash behind the key are kept and copied for each message.

use core::ffi::c_void;
use core::ops::Range;

use aws_lc_sys::{SHA_CTX, SHA256_CTX, SHA512_CTX};
use md5::Digest as _;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

#[cfg(target_arch = "x86_64")]
use crate::lanes::Lanes;
use crate::openvpn::Digest;

/// Bytes of the longest MAC.
pub const MAX_LEN: usize = 64;

/// An HMAC with its key.
pub struct Hmac {
    digest: Digest,
    inner: State,
    outer: State,
    /// For many messages at once.
    #[cfg(target_arch = "x86_64")]
    lanes: Option<Lanes>,
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
        self.as_bytes().ct_eq(mac).into()
    }

    /// The first `len` bytes of `bytes`.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn new(bytes: &[u8], len: usize) -> Self {
        let mut mac = Self { len, ..Self::EMPTY };
        mac.bytes[..len].copy_from_slice(&bytes[..len]);
        mac
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
        let start = State::new(digest)?;
        let block_len = start.block_len();
        let mut block = Zeroizing::new([0; 128]);
        if key.len() > block_len {
            let mut state = start.clone();
            state.update(key);
            let hashed = state.finish();
            block[..digest.len()].copy_from_slice(&hashed[..digest.len()]);
        } else {
            block[..key.len()].copy_from_slice(key);
        }
        let keyed = |pad: u8| {
            let mut state = start.clone();
            state.update(&Zeroizing::new(block.map(|byte| byte ^ pad))[..block_len]);
            state
        };
        Some(Self {
            digest,
            inner: keyed(0x36),
            outer: keyed(0x5c),
            #[cfg(target_arch = "x86_64")]
            lanes: Lanes::new(&start),
        })
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

    /// The code of each of `messages`, which are places in `memory`, in the same order.
    ///
    /// # Panics
    /// If a message does not lie within `memory`, or there are more messages than `macs`.
    pub(crate) fn sign_each(&self, memory: &[u8], messages: &[Range<usize>], macs: &mut [Mac]) {
        let macs = &mut macs[..messages.len()];
        #[cfg(target_arch = "x86_64")]
        let (messages, macs) = match &self.lanes {
            Some(lanes) => {
                let (many, few) = messages.split_at(lanes.share(messages.len()));
                let (many_macs, few_macs) = macs.split_at_mut(many.len());
                let states = (&self.inner, &self.outer);
                lanes.sign(states, self.digest.len(), memory, many, many_macs);
                (few, few_macs)
            }
            None => (messages, macs),
        };
        for (message, mac) in messages.iter().zip(macs) {
            *mac = self.sign(&[&memory[message.clone()]]);
        }
    }

    /// Whose code hashes.
    pub(crate) fn backend(&self) -> &'static str {
        #[cfg(target_arch = "x86_64")]
        if let Some(lanes) = &self.lanes {
            return lanes.name();
        }
        "aws-lc"
    }

    /// For tests: gives up the code that hashes several messages at once.
    #[cfg(test)]
    pub(crate) fn make_portable(&mut self) {
        #[cfg(target_arch = "x86_64")]
        {
            self.lanes = None;
        }
    }

    /// For tests: the code of one width, whether it is the best or not; `false` if there is none.
    #[cfg(all(test, target_arch = "x86_64"))]
    pub(crate) fn choose_width(&mut self, width: crate::lanes::Width) -> bool {
        self.lanes = Lanes::of_width(&self.inner, width);
        self.lanes.is_some()
    }
}

impl core::fmt::Debug for Hmac {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Hmac({}, ..)", self.digest)
    }
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
    fn new(digest: Digest) -> Option<Self> {
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

    /// Every length around the ends of blocks, in batches of all sizes, on every width that the machine has.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn many_at_once_are_the_same_as_one_by_one() {
        use crate::lanes::Width;

        let memory: Vec<u8> = (0..20_000_u32)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8)
            .collect();
        let mut tried = 0;
        for digest in Digest::ALL {
            let Some(mut hmac) = Hmac::new(digest, b"a key") else {
                continue;
            };
            for width in [Width::Avx2, Width::Avx512] {
                if !hmac.choose_width(width) {
                    continue;
                }
                tried += 1;
                let mut lens: Vec<_> = (0..600).collect();
                // Long and short in turn, so that lanes end at different times.
                lens.extend((0..300).map(|at| if at % 7 == 0 { 9000 - at } else { at % 5 }));
                let messages: Vec<_> = lens
                    .iter()
                    .enumerate()
                    .map(|(number, len)| number..number + len)
                    .collect();
                for count in [900, 64, 17, 5, 4] {
                    for messages in messages.chunks(count) {
                        let mut macs = vec![Mac::EMPTY; messages.len()];
                        hmac.sign_each(&memory, messages, &mut macs);
                        for (message, mac) in messages.iter().zip(macs) {
                            let alone = hmac.sign(&[&memory[message.clone()]]);
                            assert!(mac.equals(alone.as_bytes()), "{digest} {message:?}");
                        }
                    }
                }
            }
        }
        println!("{tried} combinations of hash and width");
    }
}
