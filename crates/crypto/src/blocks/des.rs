//! DES and Triple DES (FIPS 46-3).
//!
//! A few old servers support nothing else. DES's tables, like Blowfish's, leak secrets through the cache; its users
//! have larger worries.

use zeroize::{Zeroize, ZeroizeOnDrop};

use super::small::{Halves, SmallBlocks};

/// DES with a key of 56 bits and 8 of parity, which are ignored.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(crate) struct Des {
    /// For each round the six-bit parts of its key that meet the even substitutions, and those that meet the odd ones.
    keys: [[u32; 2]; 16],
}

/// DES, encrypting, decrypting and encrypting with three keys.
pub(crate) struct TripleDes([Des; 3]);

impl Des {
    /// # Panics
    /// If `key` is shorter than 8 bytes.
    pub(super) fn new(key: &[u8]) -> Self {
        let key = key[..8]
            .iter()
            .fold(0, |key, &byte| key << 8 | u64::from(byte));
        let chosen = permuted(key, 64, &CHOICE1);
        let (mut c, mut d) = ((chosen >> 28) as u32, chosen as u32 & HALF);
        let mut keys = [[0; 2]; 16];
        for (round, keys) in keys.iter_mut().enumerate() {
            let by = if matches!(round, 0 | 1 | 8 | 15) {
                1
            } else {
                2
            };
            c = (c << by | c >> (28 - by)) & HALF;
            d = (d << by | d >> (28 - by)) & HALF;
            let key = permuted(u64::from(c) << 28 | u64::from(d), 56, &CHOICE2);
            for part in 0..8 {
                let bits = (key >> (42 - 6 * part)) as u32 & 63;
                keys[part % 2] |= bits << (26 - 8 * (part / 2));
            }
        }
        Self { keys }
    }

    /// The sixteen rounds between the two permutations. The halves are rotated right by one bit, so that the bits of
    /// each substitution are adjacent. The substitutions' results are rotated the same way.
    // Not inlined: eight copies would be 6 KB of an ARMv7 program, and a call is nothing beside sixteen rounds.
    #[inline(never)]
    fn middle<const N: usize, const ENCRYPT: bool>(&self, blocks: &mut [Halves; N]) {
        for round in 0..16 {
            let [even, odd] = self.keys[if ENCRYPT { round } else { 15 - round }];
            for (left, right) in &mut *blocks {
                let (x, y) = (*right ^ even, right.rotate_left(4) ^ odd);
                let part = |table: usize, word: u32, shift: u32| {
                    SUBSTITUTED[table][(word >> shift) as usize & 63]
                };
                let mixed = part(0, x, 26)
                    ^ part(2, x, 18)
                    ^ part(4, x, 10)
                    ^ part(6, x, 2)
                    ^ (part(1, y, 26) ^ part(3, y, 18) ^ part(5, y, 10) ^ part(7, y, 2));
                (*left, *right) = (*right, *left ^ mixed);
            }
        }
        // The last round does not swap.
        for (left, right) in blocks {
            core::mem::swap(left, right);
        }
    }
}

impl TripleDes {
    /// # Panics
    /// If `key` is shorter than 24 bytes.
    pub(super) fn new(key: &[u8]) -> Self {
        Self([
            Des::new(&key[..8]),
            Des::new(&key[8..16]),
            Des::new(&key[16..24]),
        ])
    }
}

impl SmallBlocks for Des {
    #[inline(always)]
    fn rounds<const N: usize, const ENCRYPT: bool>(&self, blocks: [Halves; N]) -> [Halves; N] {
        let mut blocks = blocks.map(initial);
        self.middle::<N, ENCRYPT>(&mut blocks);
        blocks.map(last)
    }
}

impl SmallBlocks for TripleDes {
    // The final permutation of one DES and the initial one of the next cancel out.
    #[inline(always)]
    fn rounds<const N: usize, const ENCRYPT: bool>(&self, blocks: [Halves; N]) -> [Halves; N] {
        let mut blocks = blocks.map(initial);
        let [a, b, c] = &self.0;
        if ENCRYPT {
            a.middle::<N, true>(&mut blocks);
            b.middle::<N, false>(&mut blocks);
            c.middle::<N, true>(&mut blocks);
        } else {
            c.middle::<N, false>(&mut blocks);
            b.middle::<N, true>(&mut blocks);
            a.middle::<N, false>(&mut blocks);
        }
        blocks.map(last)
    }
}

/// Swaps the bits of `b` under `mask` with the bits of `a` that are `shift` higher.
#[inline(always)]
fn exchange(a: &mut u32, b: &mut u32, shift: u32, mask: u32) {
    let differing = (*a >> shift ^ *b) & mask;
    *b ^= differing;
    *a ^= differing << shift;
}

/// The initial permutation: transposes the block as a matrix of 8 by 8 bits, and reorders its rows.
#[inline(always)]
fn initial((mut left, mut right): Halves) -> Halves {
    exchange(&mut left, &mut right, 4, 0x0f0f_0f0f);
    exchange(&mut left, &mut right, 16, 0x0000_ffff);
    exchange(&mut right, &mut left, 2, 0x3333_3333);
    exchange(&mut right, &mut left, 8, 0x00ff_00ff);
    exchange(&mut left, &mut right, 1, 0x5555_5555);
    (left.rotate_right(1), right.rotate_right(1))
}

/// The final permutation, which undoes the initial one.
#[inline(always)]
fn last((left, right): Halves) -> Halves {
    let (mut left, mut right) = (left.rotate_left(1), right.rotate_left(1));
    exchange(&mut left, &mut right, 1, 0x5555_5555);
    exchange(&mut right, &mut left, 8, 0x00ff_00ff);
    exchange(&mut right, &mut left, 2, 0x3333_3333);
    exchange(&mut left, &mut right, 16, 0x0000_ffff);
    exchange(&mut left, &mut right, 4, 0x0f0f_0f0f);
    (left, right)
}

/// The bits of a word of `bits` bits in the order of `places`, which count from 1 at the highest.
const fn permuted(word: u64, bits: u32, places: &[u8]) -> u64 {
    let mut out = 0;
    let mut at = 0;
    while at < places.len() {
        out = out << 1 | (word >> (bits - places[at] as u32) & 1);
        at += 1;
    }
    out
}

/// The low 28 bits.
const HALF: u32 = (1 << 28) - 1;

/// Each substitution's result for its six bits: in its place, permuted, and rotated as the halves are.
static SUBSTITUTED: [[u32; 64]; 8] = {
    let mut tables = [[0; 64]; 8];
    let mut table = 0;
    while table < 8 {
        let mut bits = 0;
        while bits < 64 {
            // The outer two bits choose the row.
            let row = (bits >> 4 & 2) | (bits & 1);
            let four = SUBSTITUTIONS[table][16 * row + (bits >> 1 & 15)] as u64;
            let word = permuted(four << (28 - 4 * table), 32, &PERMUTATION) as u32;
            tables[table][bits] = word.rotate_right(1);
            bits += 1;
        }
        table += 1;
    }
    tables
};

#[rustfmt::skip]
const SUBSTITUTIONS: [[u8; 64]; 8] = [
    [
        14, 4, 13, 1, 2, 15, 11, 8, 3, 10, 6, 12, 5, 9, 0, 7,
        0, 15, 7, 4, 14, 2, 13, 1, 10, 6, 12, 11, 9, 5, 3, 8,
        4, 1, 14, 8, 13, 6, 2, 11, 15, 12, 9, 7, 3, 10, 5, 0,
        15, 12, 8, 2, 4, 9, 1, 7, 5, 11, 3, 14, 10, 0, 6, 13,
    ],
    [
        15, 1, 8, 14, 6, 11, 3, 4, 9, 7, 2, 13, 12, 0, 5, 10,
        3, 13, 4, 7, 15, 2, 8, 14, 12, 0, 1, 10, 6, 9, 11, 5,
        0, 14, 7, 11, 10, 4, 13, 1, 5, 8, 12, 6, 9, 3, 2, 15,
        13, 8, 10, 1, 3, 15, 4, 2, 11, 6, 7, 12, 0, 5, 14, 9,
    ],
    [
        10, 0, 9, 14, 6, 3, 15, 5, 1, 13, 12, 7, 11, 4, 2, 8,
        13, 7, 0, 9, 3, 4, 6, 10, 2, 8, 5, 14, 12, 11, 15, 1,
        13, 6, 4, 9, 8, 15, 3, 0, 11, 1, 2, 12, 5, 10, 14, 7,
        1, 10, 13, 0, 6, 9, 8, 7, 4, 15, 14, 3, 11, 5, 2, 12,
    ],
    [
        7, 13, 14, 3, 0, 6, 9, 10, 1, 2, 8, 5, 11, 12, 4, 15,
        13, 8, 11, 5, 6, 15, 0, 3, 4, 7, 2, 12, 1, 10, 14, 9,
        10, 6, 9, 0, 12, 11, 7, 13, 15, 1, 3, 14, 5, 2, 8, 4,
        3, 15, 0, 6, 10, 1, 13, 8, 9, 4, 5, 11, 12, 7, 2, 14,
    ],
    [
        2, 12, 4, 1, 7, 10, 11, 6, 8, 5, 3, 15, 13, 0, 14, 9,
        14, 11, 2, 12, 4, 7, 13, 1, 5, 0, 15, 10, 3, 9, 8, 6,
        4, 2, 1, 11, 10, 13, 7, 8, 15, 9, 12, 5, 6, 3, 0, 14,
        11, 8, 12, 7, 1, 14, 2, 13, 6, 15, 0, 9, 10, 4, 5, 3,
    ],
    [
        12, 1, 10, 15, 9, 2, 6, 8, 0, 13, 3, 4, 14, 7, 5, 11,
        10, 15, 4, 2, 7, 12, 9, 5, 6, 1, 13, 14, 0, 11, 3, 8,
        9, 14, 15, 5, 2, 8, 12, 3, 7, 0, 4, 10, 1, 13, 11, 6,
        4, 3, 2, 12, 9, 5, 15, 10, 11, 14, 1, 7, 6, 0, 8, 13,
    ],
    [
        4, 11, 2, 14, 15, 0, 8, 13, 3, 12, 9, 7, 5, 10, 6, 1,
        13, 0, 11, 7, 4, 9, 1, 10, 14, 3, 5, 12, 2, 15, 8, 6,
        1, 4, 11, 13, 12, 3, 7, 14, 10, 15, 6, 8, 0, 5, 9, 2,
        6, 11, 13, 8, 1, 4, 10, 7, 9, 5, 0, 15, 14, 2, 3, 12,
    ],
    [
        13, 2, 8, 4, 6, 15, 11, 1, 10, 9, 3, 14, 5, 0, 12, 7,
        1, 15, 13, 8, 10, 3, 7, 4, 12, 5, 6, 11, 0, 14, 9, 2,
        7, 11, 4, 1, 9, 12, 14, 2, 0, 6, 10, 13, 15, 3, 5, 8,
        2, 1, 14, 7, 4, 10, 8, 13, 15, 12, 9, 0, 3, 5, 6, 11,
    ],
];

#[rustfmt::skip]
const PERMUTATION: [u8; 32] = [
    16, 7, 20, 21, 29, 12, 28, 17, 1, 15, 23, 26, 5, 18, 31, 10,
    2, 8, 24, 14, 32, 27, 3, 9, 19, 13, 30, 6, 22, 11, 4, 25,
];

/// Permuted choice 1, which leaves the parity out.
#[rustfmt::skip]
const CHOICE1: [u8; 56] = [
    57, 49, 41, 33, 25, 17, 9, 1, 58, 50, 42, 34, 26, 18,
    10, 2, 59, 51, 43, 35, 27, 19, 11, 3, 60, 52, 44, 36,
    63, 55, 47, 39, 31, 23, 15, 7, 62, 54, 46, 38, 30, 22,
    14, 6, 61, 53, 45, 37, 29, 21, 13, 5, 28, 20, 12, 4,
];

/// Permuted choice 2.
#[rustfmt::skip]
const CHOICE2: [u8; 48] = [
    14, 17, 11, 24, 1, 5, 3, 28, 15, 6, 21, 10,
    23, 19, 12, 4, 26, 8, 16, 7, 27, 20, 13, 2,
    41, 52, 31, 37, 47, 55, 30, 40, 51, 45, 33, 48,
    44, 49, 39, 56, 34, 53, 46, 42, 50, 36, 29, 32,
];

#[cfg(test)]
mod tests {
    use ::des::cipher::{Block, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};

    use super::*;
    use crate::blocks::small::load;

    fn agree<R>(ours: &impl SmallBlocks, key: &[u8])
    where
        R: KeyInit + BlockCipherEncrypt + BlockCipherDecrypt,
        Block<R>: From<[u8; 8]>,
    {
        let reference = R::new_from_slice(key).unwrap();
        for number in 0..1000_u64 {
            let bytes = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
            let mut block = Block::<R>::from(bytes);
            reference.encrypt_block(&mut block);
            assert_eq!(ours.rounds::<1, true>([load(&bytes)]), [load(&block)]);
            assert_eq!(ours.rounds::<1, false>([load(&block)]), [load(&bytes)]);
        }
    }

    #[test]
    fn random_blocks_match_the_reference() {
        for _ in 0..20 {
            let mut key = [0; 24];
            crate::random(&mut key);
            agree::<::des::Des>(&Des::new(&key[..8]), &key[..8]);
            agree::<::des::TdesEde3>(&TripleDes::new(&key), &key);
        }
    }

    /// FIPS 81, table C1: the cipher's example.
    #[test]
    fn a_published_vector() {
        let cipher = Des::new(&0x0123_4567_89ab_cdef_u64.to_be_bytes());
        let [sealed] = cipher.rounds::<1, true>([load(b"Now is t")]);
        assert_eq!(sealed, (0x3fa4_0e8a, 0x984d_4815));
    }
}
