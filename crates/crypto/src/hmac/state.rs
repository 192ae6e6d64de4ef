//! State of an unfinished hash: AWS-LC's contexts of SHA-1 and SHA-2, which can be copied for each packet, and the
//! others. [`sha1`] is SHA-1 of a whole message: old protocols make keys with it. Collisions can be found; nothing new
//! should use it.

use core::ffi::c_void;

use aws_lc_sys::{SHA_CTX, SHA256_CTX, SHA512_CTX};
use zeroize::Zeroize;

use crate::Digest;
use crate::hmac::MAX_LEN;
use crate::hmac::other::Other;

/// State of an unfinished hash. Between blocks, as after a key, only its chaining value is secret.
#[derive(Clone)]
pub(crate) enum State {
    Sha1(SHA_CTX),
    /// The flag means SHA-224, which has other initial values and a shorter hash.
    Sha256(SHA256_CTX, bool),
    /// The flag means SHA-384.
    Sha512(SHA512_CTX, bool),
    Other(Other),
}

impl State {
    pub(crate) fn sha256() -> Self {
        // SAFETY: the context is plain integers, for which zeros are valid, and the call fills it.
        unsafe {
            let mut state = core::mem::zeroed();
            aws_lc_sys::SHA256_Init(&raw mut state);
            Self::Sha256(state, false)
        }
    }

    pub(crate) fn new(digest: Digest) -> Option<Self> {
        // SAFETY: the contexts are plain integers, for which zeros are valid, and the calls fill them.
        unsafe {
            Some(match digest {
                Digest::None => return None,
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
                Digest::Sha256 => Self::sha256(),
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
                _ => Self::Other(Other::new(digest)?),
            })
        }
    }

    /// Bytes of the hash's block, to which an HMAC's key is padded.
    pub(super) fn block_len(&self) -> usize {
        match self {
            Self::Sha1(_) | Self::Sha256(..) => 64,
            Self::Sha512(..) => 128,
            Self::Other(other) => other.block_len(),
        }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        let (data, len) = (bytes.as_ptr().cast::<c_void>(), bytes.len());
        // SAFETY: an initialised context and a slice with its length.
        unsafe {
            match self {
                Self::Other(state) => state.update(bytes),
                Self::Sha1(state) => _ = aws_lc_sys::SHA1_Update(state, data, len),
                Self::Sha256(state, false) => _ = aws_lc_sys::SHA256_Update(state, data, len),
                Self::Sha256(state, true) => _ = aws_lc_sys::SHA224_Update(state, data, len),
                Self::Sha512(state, false) => _ = aws_lc_sys::SHA512_Update(state, data, len),
                Self::Sha512(state, true) => _ = aws_lc_sys::SHA384_Update(state, data, len),
            }
        }
    }

    pub(crate) fn finish(mut self) -> [u8; MAX_LEN] {
        let mut hash = [0; MAX_LEN];
        let out = hash.as_mut_ptr();
        // SAFETY: an initialised context, and room for the longest hash.
        unsafe {
            match &mut self {
                Self::Other(state) => state.finish(&mut hash),
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
            // The other hashes erase themselves.
            Self::Other(_) => {}
            Self::Sha1(state) => state.h.zeroize(),
            Self::Sha256(state, _) => state.h.zeroize(),
            Self::Sha512(state, _) => state.h.zeroize(),
        }
    }
}

/// Bytes of the hash.
pub const SHA1_LEN: usize = 20;

/// The hash of the concatenated parts. No copy stays in memory; the caller erases this one, if it is secret.
#[must_use]
pub fn sha1(parts: &[&[u8]]) -> [u8; SHA1_LEN] {
    let mut hash = [0; SHA1_LEN];
    // Every digest except `None` has a state.
    if let Some(mut state) = State::new(Digest::Sha1) {
        for part in parts {
            state.update(part);
        }
        let mut whole = state.finish();
        hash.copy_from_slice(&whole[..SHA1_LEN]);
        // Erases the copy, since keys are made of the hash; the bytes behind it are zeros.
        whole[..SHA1_LEN].zeroize();
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_rfc_3174() {
        for (parts, expected) in [
            (
                &[&b"a"[..], b"bc"][..],
                "a9993e364706816aba3e25717850c26c9cd0d89d",
            ),
            (
                &[
                    b"abcdbcdecdefdefgefghfghighijhi",
                    b"",
                    b"jkijkljklmklmnlmnomnopnopq",
                ],
                "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
            ),
        ] {
            let found: String = sha1(parts)
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            assert_eq!(found, expected);
        }
    }
}
