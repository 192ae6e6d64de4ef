//! Chooses the code that hashes in lanes on this machine.

use core::ops::Range;

use super::routine::Routine;
#[cfg(all(neon, target_arch = "aarch64"))]
use super::routine::has_sha;
use super::scalar;
use super::work::{Keys, Work};
use crate::hmac::{Mac, State};

#[cfg(neon)]
use super::neon;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};

/// The code for an HMAC's hash on this machine.
#[derive(Clone, Copy)]
pub(super) enum Lanes {
    Sha1(Routine32),
    Sha256(Routine32),
    Sha512(Routine64),
}

/// A routine over words of 32 bits.
#[derive(Clone, Copy)]
pub(super) struct Routine32(Routine<u32>);

/// A routine over words of 64 bits.
#[derive(Clone, Copy)]
pub(super) struct Routine64(Routine<u64>);

/// The instructions to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(neon)]
    Neon,
    #[cfg(all(neon, target_arch = "aarch64"))]
    Sha,
}

impl Lanes {
    /// The code of one width, if the machine has the instructions.
    pub(super) fn of_width(hash: &State, width: Width) -> Option<Self> {
        let present = match width {
            Width::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Width::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Width::Avx512 => {
                is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
            }
            #[cfg(neon)]
            Width::Neon => crate::cpu::has_neon(),
            #[cfg(all(neon, target_arch = "aarch64"))]
            Width::Sha => has_sha(),
        };
        if !present {
            return None;
        }
        Some(match (hash, width) {
            (State::Sha1(_), Width::Scalar) => Self::Sha1(Routine32(scalar::SHA1)),
            (State::Sha256(..), Width::Scalar) => Self::Sha256(Routine32(scalar::SHA256)),
            (State::Sha512(..), Width::Scalar) => Self::Sha512(Routine64(scalar::SHA512)),
            #[cfg(target_arch = "x86_64")]
            (State::Sha1(_), Width::Avx2) => Self::Sha1(Routine32(avx2::SHA1)),
            #[cfg(target_arch = "x86_64")]
            (State::Sha256(..), Width::Avx2) => Self::Sha256(Routine32(avx2::SHA256)),
            #[cfg(target_arch = "x86_64")]
            (State::Sha512(..), Width::Avx2) => Self::Sha512(Routine64(avx2::SHA512)),
            #[cfg(target_arch = "x86_64")]
            (State::Sha1(_), Width::Avx512) => Self::Sha1(Routine32(avx512::SHA1)),
            #[cfg(target_arch = "x86_64")]
            (State::Sha256(..), Width::Avx512) => Self::Sha256(Routine32(avx512::SHA256)),
            #[cfg(target_arch = "x86_64")]
            (State::Sha512(..), Width::Avx512) => Self::Sha512(Routine64(avx512::SHA512)),
            #[cfg(neon)]
            (State::Sha1(_), Width::Neon) => Self::Sha1(Routine32(neon::SHA1)),
            #[cfg(neon)]
            (State::Sha256(..), Width::Neon) => Self::Sha256(Routine32(neon::SHA256)),
            #[cfg(neon)]
            (State::Sha512(..), Width::Neon) => Self::Sha512(Routine64(neon::SHA512)),
            #[cfg(all(neon, target_arch = "aarch64"))]
            (State::Sha1(_), Width::Sha) => Self::Sha1(Routine32(neon::SHA1_INSTRUCTIONS)),
            #[cfg(all(neon, target_arch = "aarch64"))]
            (State::Sha256(..), Width::Sha) => Self::Sha256(Routine32(neon::SHA256_INSTRUCTIONS)),
            #[cfg(all(neon, target_arch = "aarch64"))]
            (State::Sha512(..), Width::Sha) => return None,
            (State::Other(_), _) => return None,
        })
    }

    /// How many of `messages`, from the first, this code should take: all, except a rest that would leave most lanes
    /// empty.
    pub(super) fn share(&self, messages: usize) -> usize {
        match self {
            Self::Sha1(routine) | Self::Sha256(routine) => routine.0.share(messages),
            Self::Sha512(routine) => routine.0.share(messages),
        }
    }

    /// The code's name, with its instructions.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Sha1(routine) | Self::Sha256(routine) => routine.0.name,
            Self::Sha512(routine) => routine.0.name,
        }
    }

    /// Signs each message; without an outer state, hashes it.
    ///
    /// # Panics
    /// If a message does not lie within `memory`, or there are more messages than `macs`.
    pub(super) fn sign(
        &self,
        (inner, outer): (&State, Option<&State>),
        mac_len: usize,
        memory: &[u8],
        messages: &[Range<usize>],
        macs: &mut [Mac],
    ) {
        match self {
            Self::Sha1(routine) | Self::Sha256(routine) => {
                if let Some(inner) = inner.words32() {
                    let keys = Keys {
                        inner,
                        outer: outer.and_then(State::words32),
                        mac_len,
                    };
                    Work::new(routine.0, keys, memory, messages).all(macs);
                }
            }
            Self::Sha512(routine) => {
                if let Some(inner) = inner.words64() {
                    let keys = Keys {
                        inner,
                        outer: outer.and_then(State::words64),
                        mac_len,
                    };
                    Work::new(routine.0, keys, memory, messages).all(macs);
                }
            }
        }
    }
}
