//! Code that hashes blocks in every lane, and the memory that it works on.

use zeroize::Zeroize;

use crate::hmac::State;

/// Lanes of the widest routine. On ARM the routines in assembly and C rely on this number.
pub(super) const MAX_LANES: usize = if cfg!(neon) { 4 } else { 16 };

/// Words of the longest chaining value.
pub(super) const MAX_WORDS: usize = 8;

/// A word of a hash: 32 or 64 bits.
pub(super) trait Word: Copy + Default + Zeroize {
    /// Bytes of the word.
    const LEN: usize;

    /// Writes the word, big-endian.
    fn write(self, bytes: &mut [u8]);

    /// The highest bits of `bits`.
    fn high(bits: u64) -> Self;

    /// The chaining value of a hash with words of this length: five words for SHA-1, eight for SHA-2.
    fn words(state: &State) -> Option<&[Self]>;
}

impl Word for u32 {
    const LEN: usize = 4;

    #[inline(always)]
    fn high(bits: u64) -> Self {
        (bits >> 32) as Self
    }

    fn words(state: &State) -> Option<&[Self]> {
        match state {
            State::Sha1(state) => Some(&state.h),
            State::Sha256(state, _) => Some(&state.h),
            State::Other(_) | State::Sha512(..) => None,
        }
    }

    fn write(self, bytes: &mut [u8]) {
        bytes[..4].copy_from_slice(&self.to_be_bytes());
    }
}

impl Word for u64 {
    const LEN: usize = 8;

    #[inline(always)]
    fn high(bits: u64) -> Self {
        bits
    }

    fn words(state: &State) -> Option<&[Self]> {
        match state {
            State::Sha512(state, _) => Some(&state.h),
            State::Other(_) | State::Sha1(_) | State::Sha256(..) => None,
        }
    }

    fn write(self, bytes: &mut [u8]) {
        bytes[..8].copy_from_slice(&self.to_be_bytes());
    }
}

/// The chaining values of all lanes, by word.
#[repr(C, align(64))]
pub(super) struct States<W>(pub(super) [[W; MAX_LANES]; MAX_WORDS]);

/// Hashes a number of blocks in every lane: each lane's blocks begin at its pointer in `at`, which advances by its
/// `step` for each block.
///
/// # Safety
/// The CPU has the instructions, and the blocks are in memory that can be read.
pub(super) type Compress<W> = unsafe extern "C" fn(
    states: &mut States<W>,
    at: &mut [*const u8; MAX_LANES],
    step: &[usize; MAX_LANES],
    blocks: usize,
);

/// Code for one hash on this machine.
#[derive(Clone, Copy)]
pub(super) struct Routine<W> {
    pub(super) compress: Compress<W>,
    /// The number of lanes that the routine uses, up to [`MAX_LANES`].
    pub(super) lanes: usize,
    /// The number of messages from which it is faster than hashing one after the other: without SHA instructions, and
    /// with them. The second was measured with 1,420 bytes on a Xeon with SHA instructions. The first follows from the
    /// library's published speed without them.
    pub(super) worth: [usize; 2],
    pub(super) name: &'static str,
}

/// The routines of one instruction set.
pub(crate) struct Set {
    /// Whether the machine has the instructions.
    pub(super) is_present: fn() -> bool,
    pub(super) sha1: Routine<u32>,
    /// SHA-224 and SHA-256.
    pub(super) sha256: Routine<u32>,
    /// SHA-384 and SHA-512, if the set has instructions for them.
    pub(super) sha512: Option<Routine<u64>>,
}

impl<W> Routine<W> {
    /// How many of `messages`, from the first, this routine should take: all, except a rest that would leave most lanes
    /// empty.
    pub(super) fn share(&self, messages: usize) -> usize {
        let rest = messages % self.lanes;
        if rest < self.worth[usize::from(has_sha())] {
            messages - rest
        } else {
            messages
        }
    }
}

/// Whether the CPU has instructions for SHA-1 and SHA-256.
pub(super) fn has_sha() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("sha");
    #[cfg(target_arch = "aarch64")]
    return crate::cpu::has_sha();
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    false
}
