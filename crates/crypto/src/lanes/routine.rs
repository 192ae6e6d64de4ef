//! Code that hashes blocks in every lane, and the memory that it works on.

use zeroize::Zeroize;

/// Lanes of the widest. On ARM the routines in assembly and C rely on it.
pub(super) const MAX_LANES: usize = if cfg!(neon) { 4 } else { 16 };

/// Words of the longest chaining value.
pub(super) const MAX_WORDS: usize = 8;

/// A word of a hash: 32 or 64 bits.
pub(super) trait Word: Copy + Default + Zeroize {
    /// Bytes of it.
    const LEN: usize;

    /// Writes it, big-endian.
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

/// Hashes a number of blocks in every lane: the blocks at `at`, which goes on by `step` for each.
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
    /// How many of [`MAX_LANES`] it uses.
    pub(super) lanes: usize,
    /// Messages from which on it is faster than hashing one after the other, without SHA's own instructions and with them.
    /// The second was measured with 1,420 bytes on a Xeon that has them, the first follows from what the library is said to
    /// do without.
    pub(super) worth: [usize; 2],
    pub(super) name: &'static str,
}

impl<W> Routine<W> {
    /// How many of `messages`, from the first, are for it: all, but for what would leave most lanes empty.
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
