//! The Internet checksum (RFC 1071), kept as an unfolded sum of native-endian words.
//!
//! Byte order does not affect a ones'-complement sum if all reads and the write use the same order (RFC 1071 section 2
//! B). So no bytes are swapped.

use std::ops::Range;

/// An unfolded sum; fold it with [`fold`].
pub(crate) type Sum = u64;

/// Adds `bytes`, the last word padded with zero bytes.
///
/// Only the last part of a checksummed range may have an odd length.
#[inline]
pub(crate) fn add(sum: Sum, bytes: &[u8]) -> Sum {
    sum + crypto::checksum::sum(bytes)
}

/// Moves `memory[from]` to `to`, which is at or after it, and returns the sum of the moved bytes as [`add`] would.
#[inline]
pub(crate) fn move_up(memory: &mut [u8], from: Range<usize>, to: usize) -> Sum {
    crypto::checksum::move_up(memory, from, to)
}

/// Folds a sum to 16 bits, native-endian, not complemented.
#[inline]
pub(crate) fn fold(sum: Sum) -> u16 {
    // 32 bits as early as possible: on a 32-bit machine each step in 64 bits takes several instructions.
    let (sum, carry) = (sum as u32).overflowing_add((sum >> 32) as u32);
    let sum = sum + u32::from(carry);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    sum as u16
}

/// The sum of the pseudo-header of TCP and UDP (RFC 9293 section 3.1, RFC 8200 section 8.1).
#[inline]
pub(crate) fn pseudo_header(addresses: &[u8], protocol: u8, len: usize) -> Sum {
    let sum = add(0, addresses);
    let len = len as u32;
    sum + u64::from(u16::from_ne_bytes([0, protocol]))
        + u64::from(u16::from_ne_bytes(((len >> 16) as u16).to_be_bytes()))
        + u64::from(u16::from_ne_bytes((len as u16).to_be_bytes()))
}

/// Writes the checksum of an IPv4 header into it. `header` is the whole header.
#[inline]
pub(crate) fn write_ipv4(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum = !fold(add(0, header));
    header[10..12].copy_from_slice(&sum.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(bytes: &[u8]) -> u16 {
        let mut sum = 0_u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(u16::from_be(fold(add(0, &bytes))), 0xddf2);
    }

    proptest! {
        #[test]
        fn agrees_with_a_word_at_a_time(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
            prop_assert_eq!(u16::from_be(fold(add(0, &bytes))), naive(&bytes));
        }
    }
}
