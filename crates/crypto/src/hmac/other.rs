//! Hashes for which AWS-LC has no context of a fixed size, or no code at all: one message at a time, never in lanes.

use aws_lc_rs::digest as aws;
use blake2::{Blake2b512, Blake2s256};
use md5::{Digest as _, Md5};
use ripemd::Ripemd160;

use super::MAX_LEN;
use crate::Digest;

/// State of an unfinished hash.
#[derive(Clone)]
pub(crate) enum Other {
    Md5(Md5),
    Ripemd160(Ripemd160),
    Blake2s256(Blake2s256),
    Blake2b512(Box<Blake2b512>),
    /// SHA-512/256 and SHA-3.
    Aws(aws::Context),
}

impl Other {
    /// `None` for [`Digest::None`] and for hashes that [`State`](super::State) handles itself.
    pub(super) fn new(digest: Digest) -> Option<Self> {
        let aws = match digest {
            Digest::Md5 => return Some(Self::Md5(Md5::new())),
            Digest::Ripemd160 => return Some(Self::Ripemd160(Ripemd160::new())),
            Digest::Blake2s256 => return Some(Self::Blake2s256(Blake2s256::new())),
            Digest::Blake2b512 => return Some(Self::Blake2b512(Box::new(Blake2b512::new()))),
            Digest::Sha512_256 => &aws::SHA512_256,
            Digest::Sha3_256 => &aws::SHA3_256,
            Digest::Sha3_384 => &aws::SHA3_384,
            Digest::Sha3_512 => &aws::SHA3_512,
            _ => return None,
        };
        Some(Self::Aws(aws::Context::new(aws)))
    }

    pub(super) fn block_len(&self) -> usize {
        match self {
            Self::Md5(_) | Self::Ripemd160(_) | Self::Blake2s256(_) => 64,
            Self::Blake2b512(_) => 128,
            Self::Aws(state) => state.algorithm().block_len(),
        }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Md5(state) => state.update(bytes),
            Self::Ripemd160(state) => ripemd::Digest::update(state, bytes),
            Self::Blake2s256(state) => state.update(bytes),
            Self::Blake2b512(state) => state.update(bytes),
            Self::Aws(state) => state.update(bytes),
        }
    }

    /// Writes the hash to the beginning of `hash`, and resets the state.
    pub(super) fn finish(&mut self, hash: &mut [u8; MAX_LEN]) {
        match self {
            Self::Md5(state) => hash[..16].copy_from_slice(&state.finalize_reset()),
            Self::Ripemd160(state) => {
                hash[..20].copy_from_slice(&ripemd::Digest::finalize_reset(state));
            }
            Self::Blake2s256(state) => hash[..32].copy_from_slice(&state.finalize_reset()),
            Self::Blake2b512(state) => hash.copy_from_slice(&state.finalize_reset()),
            Self::Aws(state) => {
                let new = aws::Context::new(state.algorithm());
                let hashed = core::mem::replace(state, new).finish();
                hash[..hashed.as_ref().len()].copy_from_slice(hashed.as_ref());
            }
        }
    }
}
