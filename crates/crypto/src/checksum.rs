//! Sums of 32-bit words, for the Internet checksum (RFC 1071).
//!
//! Not cryptography, but here for the same reason: the loop is as fast as the machine's vector
//! registers are wide, and this is the crate that looks at what the machine has.

/// The sum of the native-endian 32-bit words of `bytes`, and of what remains behind the last whole
/// one padded with zero bytes.
///
/// Folding the sum to 16 bits with end-around carry gives the Internet checksum's sum in native
/// byte order (RFC 1071, section 2 B). 64 bits cannot overflow for less than 16 GiB.
#[inline]
#[must_use]
pub fn sum(bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // Short headers are not worth a call that cannot be inlined.
        if bytes.len() >= 128 && std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the feature has just been found.
            return unsafe { sum_avx2(bytes) };
        }
    }
    sum_lanes(bytes)
}

/// The same loop, compiled for twice the register width.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_avx2(bytes: &[u8]) -> u64 {
    sum_lanes(bytes)
}

/// Independent accumulators, which the compiler turns into vector additions on every target that has them. On 32 bits they
/// are pairs of ordinary registers, and more than two would live in memory.
const LANES: usize = if cfg!(target_pointer_width = "32") {
    2
} else {
    16
};

#[inline(always)]
fn sum_lanes(bytes: &[u8]) -> u64 {
    let mut lanes = [0_u64; LANES];
    let (blocks, rest) = bytes.as_chunks::<64>();
    for block in blocks {
        for (at, word) in block.as_chunks::<4>().0.iter().enumerate() {
            lanes[at % LANES] += u64::from(u32::from_ne_bytes(*word));
        }
    }
    let mut sum: u64 = lanes.iter().sum();
    let (words, rest) = rest.as_chunks::<4>();
    for word in words {
        sum += u64::from(u32::from_ne_bytes(*word));
    }
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_ne_bytes(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_both_ways_agree_with_a_word_at_a_time() {
        let bytes: Vec<u8> = (0..1600_u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        for len in 0..bytes.len() {
            let naive = bytes[..len]
                .chunks(4)
                .map(|word| {
                    let mut padded = [0; 4];
                    padded[..word.len()].copy_from_slice(word);
                    u64::from(u32::from_ne_bytes(padded))
                })
                .sum::<u64>();
            assert_eq!(sum(&bytes[..len]), naive, "{len} bytes");
            assert_eq!(sum_lanes(&bytes[..len]), naive, "{len} bytes, portable");
        }
    }
}
