//! Four lanes of 32 bits, or two of 64, on NEON; and on AArch64 SHA's own instructions, for two messages in parallel.
//!
//! The code is in assembly for ARMv7 and in C for AArch64, beside this crate's other routines for NEON.

use super::{MAX_LANES, Routine, States};

/// SHA-1.
pub(super) const SHA1: Routine<u32> = Routine {
    compress: millrace_sha1_x4,
    lanes: 4,
    worth: WORTH,
    name: "own (neon, four at once)",
};

/// SHA-224 and SHA-256.
pub(super) const SHA256: Routine<u32> = Routine {
    compress: millrace_sha256_x4,
    ..SHA1
};

/// SHA-384 and SHA-512.
pub(super) const SHA512: Routine<u64> = Routine {
    compress: millrace_sha512_x2,
    lanes: 2,
    worth: WORTH,
    name: "own (neon, two at once)",
};

/// SHA-1 by the CPU's SHA-1 instructions.
#[cfg(target_arch = "aarch64")]
pub(super) const SHA1_INSTRUCTIONS: Routine<u32> = Routine {
    compress: millrace_sha1_instructions_x2,
    lanes: 2,
    worth: WORTH,
    name: "own (sha instructions, two at once)",
};

/// SHA-224 and SHA-256 by the CPU's SHA-256 instructions.
#[cfg(target_arch = "aarch64")]
pub(super) const SHA256_INSTRUCTIONS: Routine<u32> = Routine {
    compress: millrace_sha256_instructions_x2,
    ..SHA1_INSTRUCTIONS
};

/// By instruction counts for 1,408 bytes, the library needs a little less for a single message than all lanes do, or as
/// much. For two messages it needs more.
const WORTH: [usize; 2] = [2, 2];

// Each routine hashes `blocks` blocks of as many messages as it has lanes. The rows of the states have room for
// MAX_LANES.
unsafe extern "C" {
    fn millrace_sha1_x4(
        states: &mut States<u32>,
        at: &mut [*const u8; MAX_LANES],
        step: &[usize; MAX_LANES],
        blocks: usize,
    );
    fn millrace_sha256_x4(
        states: &mut States<u32>,
        at: &mut [*const u8; MAX_LANES],
        step: &[usize; MAX_LANES],
        blocks: usize,
    );
    fn millrace_sha512_x2(
        states: &mut States<u64>,
        at: &mut [*const u8; MAX_LANES],
        step: &[usize; MAX_LANES],
        blocks: usize,
    );
    #[cfg(target_arch = "aarch64")]
    fn millrace_sha1_instructions_x2(
        states: &mut States<u32>,
        at: &mut [*const u8; MAX_LANES],
        step: &[usize; MAX_LANES],
        blocks: usize,
    );
    #[cfg(target_arch = "aarch64")]
    fn millrace_sha256_instructions_x2(
        states: &mut States<u32>,
        at: &mut [*const u8; MAX_LANES],
        step: &[usize; MAX_LANES],
        blocks: usize,
    );
}
