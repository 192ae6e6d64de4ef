//! Sums of 32-bit words with NEON: assembly for ARMv7, intrinsics for AArch64. The results equal those of the portable
//! code in [`crate::checksum`].

/// The sum of the words of `bytes`.
///
/// # Safety
/// The CPU has NEON.
pub(crate) unsafe fn sum(bytes: &[u8]) -> u64 {
    // SAFETY: the caller promises NEON, and the slice's bytes may be read.
    unsafe { routine::sum(bytes.as_ptr(), bytes.len()) }
}

/// Moves `memory[from..from + len]` to `to`, which must not be in front of it, and adds up its words at the same time.
///
/// # Safety
/// The CPU has NEON. Both ranges lie within `memory`, and `from <= to`.
pub(crate) unsafe fn move_up(memory: &mut [u8], from: usize, len: usize, to: usize) -> u64 {
    let memory = memory.as_mut_ptr();
    // SAFETY: the caller promises NEON, and that so many bytes may be read and written at these places.
    unsafe { routine::move_up(memory.add(to), memory.add(from), len) }
}

/// The routines of `checksum_arm.S`.
#[cfg(target_arch = "arm")]
mod routine {
    unsafe extern "C" {
        #[link_name = "millrace_sum"]
        pub(super) fn sum(bytes: *const u8, len: usize) -> u64;
        #[link_name = "millrace_move_up"]
        pub(super) fn move_up(to: *mut u8, from: *const u8, len: usize) -> u64;
    }
}

#[cfg(target_arch = "aarch64")]
mod routine {
    use core::arch::aarch64::{
        uint8x16x4_t, uint64x2_t, vaddq_u64, vaddvq_u64, vdupq_n_u64, vld1q_u8_x4, vpadalq_u32,
        vreinterpretq_u32_u8, vst1q_u8_x4,
    };

    /// Bytes in a step.
    const STEP: usize = 64;

    /// Adds a step's words, in pairs.
    fn add(sums: [uint64x2_t; 2], step: uint8x16x4_t) -> [uint64x2_t; 2] {
        let [mut first, mut second] = sums;
        // SAFETY: AArch64 has NEON.
        unsafe {
            first = vpadalq_u32(first, vreinterpretq_u32_u8(step.0));
            second = vpadalq_u32(second, vreinterpretq_u32_u8(step.1));
            first = vpadalq_u32(first, vreinterpretq_u32_u8(step.2));
            second = vpadalq_u32(second, vreinterpretq_u32_u8(step.3));
        }
        [first, second]
    }

    pub(super) unsafe fn sum(bytes: *const u8, len: usize) -> u64 {
        let (steps, rest) = (len / STEP, len % STEP);
        // SAFETY: the caller guarantees that `len` bytes may be read.
        unsafe {
            let mut sums = [vdupq_n_u64(0); 2];
            for at in 0..steps {
                sums = add(sums, vld1q_u8_x4(bytes.add(at * STEP)));
            }
            let rest = core::slice::from_raw_parts(bytes.add(steps * STEP), rest);
            vaddvq_u64(vaddq_u64(sums[0], sums[1])) + crate::checksum::sum_rest(0, rest)
        }
    }

    pub(super) unsafe fn move_up(to: *mut u8, from: *const u8, len: usize) -> u64 {
        let (steps, rest) = (len / STEP, len % STEP);
        // SAFETY: the caller guarantees that `len` bytes may be read and written; from the last byte to the first, no
        // byte is overwritten before it is read.
        unsafe {
            let behind = steps * STEP;
            core::ptr::copy(from.add(behind), to.add(behind), rest);
            let rest = core::slice::from_raw_parts(to.add(behind), rest);
            let rest = crate::checksum::sum_rest(0, rest);
            let mut sums = [vdupq_n_u64(0); 2];
            for at in (0..steps).rev() {
                let step = vld1q_u8_x4(from.add(at * STEP));
                vst1q_u8_x4(to.add(at * STEP), step);
                sums = add(sums, step);
            }
            vaddvq_u64(vaddq_u64(sums[0], sums[1])) + rest
        }
    }
}
