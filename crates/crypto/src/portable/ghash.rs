//! GHASH (NIST SP 800-38D, section 6.4) with ordinary multiplications.
//!
//! A carry-less product is an ordinary product without its carries. If only every fourth bit of both factors can be
//! set, a sum of up to eight products of bits fits in four bits. Its lowest bit, the sum without carry, stays in place.
//! So each factor is split into four parts with such holes, and sixteen products make one.
//!
//! Bits are in GHASH's order, the highest of the first byte for x^0. The product of two such numbers has 255 bits and
//! is one place too low.

use zeroize::{Zeroize, ZeroizeOnDrop};

/// State of an unfinished hash.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(super) struct Ghash {
    key: Factor,
    sum: [u32; 4],
}

/// A factor of four words, lowest first, and the sums of them that Karatsuba's method needs.
#[derive(Clone, Copy, Zeroize)]
struct Factor([[u32; 4]; 9]);

/// Every fourth bit.
const HOLES: [u32; 4] = [0x1111_1111, 0x2222_2222, 0x4444_4444, 0x8888_8888];

impl Ghash {
    /// Takes the hash's key, which is the encryption of zeros.
    pub(super) fn new(key: &[u8; 16]) -> Self {
        Self {
            key: Factor::new(words(key)),
            sum: [0; 4],
        }
    }

    /// A state with the key, and nothing hashed yet.
    pub(super) fn fresh(&self) -> Self {
        Self {
            key: self.key,
            sum: [0; 4],
        }
    }

    /// Absorbs the bytes, padded with zeros to whole blocks.
    pub(super) fn absorb(&mut self, bytes: &[u8]) {
        let (blocks, rest) = bytes.as_chunks::<16>();
        for block in blocks {
            self.block(block);
        }
        if !rest.is_empty() {
            let mut block = [0; 16];
            block[..rest.len()].copy_from_slice(rest);
            self.block(&block);
        }
    }

    /// The hash, including the block of the two lengths; they are given in bytes.
    pub(super) fn finish(mut self, aad_len: usize, text_len: usize) -> [u8; 16] {
        let lengths = u128::from(aad_len as u64 * 8) << 64 | u128::from(text_len as u64 * 8);
        self.block(&lengths.to_be_bytes());
        let [a, b, c, d] = self.sum;
        (u128::from(d) << 96 | u128::from(c) << 64 | u128::from(b) << 32 | u128::from(a))
            .to_be_bytes()
    }

    fn block(&mut self, block: &[u8; 16]) {
        for (sum, word) in self.sum.iter_mut().zip(words(block)) {
            *sum ^= word;
        }
        self.sum = reduced(Factor::new(self.sum).product(&self.key));
    }
}

/// A block as four words, the lowest first.
fn words(block: &[u8; 16]) -> [u32; 4] {
    let number = u128::from_be_bytes(*block);
    [0, 32, 64, 96].map(|shift| (number >> shift) as u32)
}

impl Factor {
    #[inline(always)]
    fn new([a, b, c, d]: [u32; 4]) -> Self {
        let sums = [a, b, c, d, a ^ b, c ^ d, a ^ c, b ^ d, a ^ b ^ c ^ d];
        Self(sums.map(|word| HOLES.map(|holes| word & holes)))
    }

    /// The product, eight words. Applies Karatsuba twice: nine products of words instead of sixteen.
    #[inline(always)]
    fn product(&self, other: &Self) -> [u32; 8] {
        let of = |at: usize| carryless(&self.0[at], &other.0[at]);
        let two = |low: u64, high: u64, sums: u64| {
            let middle = sums ^ low ^ high;
            [
                low as u32,
                (low >> 32) as u32 ^ middle as u32,
                high as u32 ^ (middle >> 32) as u32,
                (high >> 32) as u32,
            ]
        };
        let low = two(of(0), of(1), of(4));
        let high = two(of(2), of(3), of(5));
        let mut middle = two(of(6), of(7), of(8));
        for (middle, (low, high)) in middle.iter_mut().zip(low.iter().zip(&high)) {
            *middle ^= low ^ high;
        }
        [
            low[0],
            low[1],
            low[2] ^ middle[0],
            low[3] ^ middle[1],
            high[0] ^ middle[2],
            high[1] ^ middle[3],
            high[2],
            high[3],
        ]
    }
}

/// The carry-less product of two words, each split into four parts that keep every fourth bit.
#[inline(always)]
fn carryless(a: &[u32; 4], b: &[u32; 4]) -> u64 {
    let product = |i: usize, j: usize| u64::from(a[i]).wrapping_mul(u64::from(b[j]));
    let mut sum = 0;
    for (bit, holes) in HOLES.iter().enumerate() {
        // The pairs whose products have this bit of each four.
        let place = (0..4).fold(0, |sum, i| sum ^ product(i, (4 + bit - i) % 4));
        sum |= place & (u64::from(*holes) << 32 | u64::from(*holes));
    }
    sum
}

/// Reduces modulo x^128 + x^7 + x^2 + x + 1, in GHASH's order of bits.
#[inline(always)]
fn reduced(mut product: [u32; 8]) -> [u32; 4] {
    // Shifts by one place: the 255 bits become 256 with the lowest empty.
    for at in (1..8).rev() {
        product[at] = product[at] << 1 | product[at - 1] >> 31;
    }
    product[0] <<= 1;
    // The lower half has the high powers: each word counts 128 places higher, times 1 + x + x^2 + x^7.
    for at in 0..4 {
        let word = product[at];
        product[at + 4] ^= word ^ word >> 1 ^ word >> 2 ^ word >> 7;
        product[at + 3] ^= word << 31 ^ word << 30 ^ word << 25;
    }
    [product[4], product[5], product[6], product[7]]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The product by its definition, bit by bit.
    fn slow(x: u128, y: u128) -> u128 {
        let (mut sum, mut v) = (0, y);
        for bit in (0..128).rev() {
            if x >> bit & 1 == 1 {
                sum ^= v;
            }
            v = v >> 1 ^ if v & 1 == 1 { 0xe1 << 120 } else { 0 };
        }
        sum
    }

    #[test]
    fn products_are_those_of_the_definition() {
        let mut number = 0x1234_5678_9abc_def0_u128;
        let mut next = || {
            number = number
                .wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645)
                .wrapping_add(0x5851_f42d_4c95_7f2d);
            number ^ number >> 67
        };
        let edges = [0, 1, 1 << 127, u128::MAX, 0x8888_8888 << 64];
        let pairs = (0..200).map(|_| (next(), next()));
        let pairs: Vec<_> = edges
            .iter()
            .flat_map(|&x| edges.map(|y| (x, y)))
            .chain(pairs)
            .collect();
        for (x, y) in pairs {
            let mut hash = Ghash::new(&y.to_be_bytes());
            hash.block(&x.to_be_bytes());
            let sum = hash
                .sum
                .iter()
                .rev()
                .fold(0, |n, &w| n << 32 | u128::from(w));
            assert_eq!(sum, slow(x, y), "{x:x} {y:x}");
        }
    }
}
