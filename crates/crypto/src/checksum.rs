//! Sums of 32-bit words, for the Internet checksum (RFC 1071).
//!
//! Not cryptography, but here for the same reason: the loop is as fast as the machine's vector registers are wide, and
//! this crate detects what the CPU has.

use std::ops::Range;

/// Minimum number of bytes for which a call is worthwhile: headers are shorter.
const LONG: usize = if cfg!(target_arch = "x86_64") {
    128
} else {
    64
};

/// The sum of the native-endian 32-bit words of `bytes`. Zero bytes fill up a last partial word.
///
/// Folding the sum to 16 bits with end-around carry gives the Internet checksum's sum in native
/// byte order (RFC 1071, section 2 B). 64 bits cannot overflow for less than 16 GiB.
#[inline]
#[must_use]
pub fn sum(bytes: &[u8]) -> u64 {
    if bytes.len() < LONG {
        return sum_rest(0, bytes);
    }
    sum_long(bytes)
}

#[inline(never)]
fn sum_long(bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the feature has just been found.
        return unsafe { sum_avx2(bytes) };
    }
    #[cfg(neon)]
    if crate::cpu::has_neon() {
        // SAFETY: the line above has found NEON.
        return unsafe { crate::neon::checksum::sum(bytes) };
    }
    sum_words(bytes)
}

/// Moves `memory[from]` to `to`, which must not be in front of it, and returns its [`sum`]: in one pass if the CPU has
/// NEON.
///
/// # Panics
/// If the new place does not lie within `memory`, or lies in front of the old one.
pub fn move_up(memory: &mut [u8], from: Range<usize>, to: usize) -> u64 {
    assert!(from.start <= to, "moved down");
    let len = from.len();
    #[cfg(neon)]
    if len >= LONG && crate::cpu::has_neon() {
        // The old place ends before the new one does.
        assert!(to <= memory.len() && len <= memory.len() - to);
        // SAFETY: the CPU has NEON, and the lines above have checked the places.
        return unsafe { crate::neon::checksum::move_up(memory, from.start, len, to) };
    }
    memory.copy_within(from, to);
    sum(&memory[to..to + len])
}

/// The loop compiled for twice the register width.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_avx2(bytes: &[u8]) -> u64 {
    sum_words(bytes)
}

/// Independent accumulators, which the compiler turns into vector additions on every target that has them. On 32 bits
/// they are pairs of ordinary registers, and more than two would live in memory.
const LANES: usize = if cfg!(target_pointer_width = "32") {
    2
} else {
    16
};

/// The sum by vector instructions that the compiler generates.
#[inline(always)]
fn sum_words(bytes: &[u8]) -> u64 {
    let mut lanes = [0_u64; LANES];
    let (blocks, rest) = bytes.as_chunks::<64>();
    for block in blocks {
        for (at, word) in block.as_chunks::<4>().0.iter().enumerate() {
            lanes[at % LANES] += u64::from(u32::from_ne_bytes(*word));
        }
    }
    sum_rest(lanes.iter().sum(), rest)
}

/// Adds a word at a time.
#[inline(always)]
pub(crate) fn sum_rest(mut sum: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        sum += u64::from(u32::from_ne_bytes(*word));
    }
    let last = match *rest {
        [] => return sum,
        [a] => [a, 0, 0, 0],
        [a, b] => [a, b, 0, 0],
        [a, b, c, ..] => [a, b, c, 0],
    };
    sum + u64::from(u32::from_ne_bytes(last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes in a pattern that repeats only at long distances.
    fn bytes(len: usize) -> Vec<u8> {
        (0..len as u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect()
    }

    fn naive(bytes: &[u8]) -> u64 {
        let word = |word: &[u8]| {
            let mut padded = [0; 4];
            padded[..word.len()].copy_from_slice(word);
            u64::from(u32::from_ne_bytes(padded))
        };
        bytes.chunks(4).map(word).sum()
    }

    #[test]
    fn every_length_at_every_alignment_agrees_with_a_word_at_a_time() {
        let bytes = bytes(1600);
        for len in 0..bytes.len() - 16 {
            for start in [0, 1, 2, 3, 4, 8, 15] {
                let bytes = &bytes[start..start + len];
                assert_eq!(sum(bytes), naive(bytes), "{len} bytes from {start}");
                assert_eq!(sum_words(bytes), naive(bytes), "{len} bytes, portable");
            }
        }
    }

    #[test]
    fn the_largest_words_do_not_overflow_a_lane() {
        let bytes = [0xff; 65_535];
        assert_eq!(sum(&bytes), naive(&bytes));
    }

    #[test]
    fn what_is_moved_arrives_and_is_summed_whatever_its_length_and_distance() {
        let original = bytes(1024);
        for len in (0..300).chain([448, 511, 512, 513]) {
            for distance in (0..70).chain([127, 128, 129, 500]) {
                let start = (len + distance) % 7;
                let mut memory = original.clone();
                let mut expected = original.clone();
                expected.copy_within(start..start + len, start + distance);
                let sum = move_up(&mut memory, start..start + len, start + distance);
                assert!(memory == expected, "{len} bytes by {distance}");
                assert_eq!(
                    sum,
                    naive(&original[start..start + len]),
                    "{len} by {distance}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn any_packet_is_moved_and_summed(
            len in 0..3000_usize,
            start in 0..64_usize,
            distance in 0..3000_usize,
            seed in any::<u8>(),
        ) {
            let mut memory: Vec<u8> = bytes(6200).iter().map(|byte| byte ^ seed).collect();
            let mut expected = memory.clone();
            expected.copy_within(start..start + len, start + distance);
            let words = naive(&memory[start..start + len]);
            prop_assert_eq!(move_up(&mut memory, start..start + len, start + distance), words);
            prop_assert!(memory == expected);
        }
    }
}
