//! Code that hashes blocks in every lane, and the memory that it works on.

use zeroize::Zeroize;

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
}

impl Word for u32 {
    const LEN: usize = 4;

    fn write(self, bytes: &mut [u8]) {
        bytes[..4].copy_from_slice(&self.to_be_bytes());
    }
}

impl Word for u64 {
    const LEN: usize = 8;

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
    /// The number of lanes it uses, up to [`MAX_LANES`].
    pub(super) lanes: usize,
    /// The number of messages from which it is faster than hashing one after the other: without SHA instructions, and
    /// with them. The second was measured with 1,420 bytes on a Xeon with SHA instructions. The first follows from the
    /// library's published speed without them.
    pub(super) worth: [usize; 2],
    pub(super) name: &'static str,
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
