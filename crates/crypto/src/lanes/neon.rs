//! Four lanes of 32 bits, or two of 64, on NEON; and on AArch64 SHA's own instructions, for two messages in parallel.
//!
//! The code is in assembly for ARMv7 and in C for AArch64, beside this crate's other routines for NEON.

use super::routine::{Compress, MAX_LANES, Routine, Set, States};

/// NEON: four lanes, or two of SHA-512's.
pub(crate) const SET: Set = Set {
    is_present: crate::cpu::has_neon,
    sha1: lanes(4, millrace_sha1_x4, "own (neon, four at once)"),
    sha256: lanes(4, millrace_sha256_x4, "own (neon, four at once)"),
    sha512: Some(lanes(2, millrace_sha512_x2, "own (neon, two at once)")),
};

/// Two lanes by the CPU's instructions for SHA-1 and SHA-256.
#[cfg(target_arch = "aarch64")]
pub(crate) const SHA: Set = Set {
    is_present: crate::cpu::has_sha,
    sha1: lanes(2, millrace_sha1_instructions_x2, INSTRUCTIONS),
    sha256: lanes(2, millrace_sha256_instructions_x2, INSTRUCTIONS),
    sha512: None,
};

#[cfg(target_arch = "aarch64")]
const INSTRUCTIONS: &str = "own (sha instructions, two at once)";

const fn lanes<W>(lanes: usize, compress: Compress<W>, name: &'static str) -> Routine<W> {
    Routine {
        compress,
        lanes,
        worth: WORTH,
        name,
    }
}

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
