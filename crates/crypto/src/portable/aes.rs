//! AES (FIPS 197) on as many blocks at once as a word has lanes.

use zeroize::{Zeroize, Zeroizing};

use super::sbox::{substitute, substitute_back};
use super::slices::{MAX_BLOCKS, Row, Rows, Word, pack, unpack};

/// Rounds of the longest key.
pub(crate) const MAX_ROUNDS: usize = 14;

/// The key before the first round, and the key of each round.
pub(crate) type RoundKeys = Zeroizing<[[u8; 16]; MAX_ROUNDS + 1]>;

/// Some blocks; only as many as the word has lanes are processed, and the others stay unchanged.
pub(super) type Blocks = [[u8; 16]; MAX_BLOCKS];

/// A key, expanded for use.
pub(super) struct Aes<W: Word> {
    /// The key of each round, in all lanes. All keys except the first include the S-box's constant.
    keys: [Rows<W>; MAX_ROUNDS + 1],
    rounds: usize,
}

impl<W: Word> Aes<W> {
    /// # Panics
    /// If `key` has not 16, 24 or 32 bytes.
    pub(super) fn new(key: &[u8]) -> Self {
        let bytes = expand(key);
        let rounds = rounds(key.len());
        let mut keys = [[[W::default(); 8]; 4]; MAX_ROUNDS + 1];
        for (round, (bytes, key)) in bytes.iter().zip(&mut keys).enumerate() {
            let constant = if round == 0 { 0 } else { 0x63 };
            let blocks = Zeroizing::new([bytes.map(|byte| byte ^ constant); MAX_BLOCKS]);
            *key = pack(&blocks);
        }
        Self { keys, rounds }
    }

    /// Encrypts the blocks.
    pub(super) fn encrypt(&self, blocks: &mut Blocks) {
        let mut rows = pack::<W>(blocks);
        add(&mut rows, &self.keys[0]);
        for key in &self.keys[1..self.rounds] {
            rows.iter_mut().for_each(substitute);
            rows = mixed(shifted(rows));
            add(&mut rows, key);
        }
        rows.iter_mut().for_each(substitute);
        rows = shifted(rows);
        add(&mut rows, &self.keys[self.rounds]);
        unpack(rows, blocks);
    }

    /// Decrypts the blocks.
    pub(super) fn decrypt(&self, blocks: &mut Blocks) {
        let mut rows = pack::<W>(blocks);
        add(&mut rows, &self.keys[self.rounds]);
        for key in self.keys[1..self.rounds].iter().rev() {
            rows = shifted_back(rows);
            rows.iter_mut().for_each(substitute_back);
            add(&mut rows, key);
            mix_back(&mut rows);
            rows = mixed(rows);
        }
        rows = shifted_back(rows);
        rows.iter_mut().for_each(substitute_back);
        add(&mut rows, &self.keys[0]);
        unpack(rows, blocks);
    }
}

impl<W: Word> Drop for Aes<W> {
    fn drop(&mut self) {
        self.keys.zeroize();
    }
}

/// The number of rounds with a key of this many bytes.
pub(crate) const fn rounds(key_len: usize) -> usize {
    key_len / 4 + 6
}

/// The key schedule (FIPS 197, section 5.2), in constant time; the first `rounds + 1` keys are used.
///
/// # Panics
/// If `key` has not 16, 24 or 32 bytes.
pub(crate) fn expand(key: &[u8]) -> RoundKeys {
    assert!(matches!(key.len(), 16 | 24 | 32));
    let words = key.len() / 4;
    let mut keys = RoundKeys::default();
    let all = keys.as_flattened_mut().as_chunks_mut::<4>().0;
    all[..words].copy_from_slice(key.as_chunks().0);
    let mut constant = 1_u32;
    for at in words..4 * (rounds(key.len()) + 1) {
        let mut next = u32::from_le_bytes(all[at - 1]);
        if at % words == 0 {
            next = substituted(next.rotate_right(8)) ^ constant;
            constant = (constant << 1) ^ ((constant >> 7) * 0x11b);
        } else if words == 8 && at % words == 4 {
            next = substituted(next);
        }
        all[at] = (next ^ u32::from_le_bytes(all[at - words])).to_le_bytes();
    }
    keys
}

/// The S-box on each byte of a word.
pub(crate) fn substituted(word: u32) -> u32 {
    let mut row: Row<u32> = core::array::from_fn(|bit| word >> bit & 0x0101_0101);
    substitute(&mut row);
    row.iter()
        .enumerate()
        .fold(0x6363_6363, |sum, (bit, plane)| {
            sum ^ (plane & 0x0101_0101) << bit
        })
}

#[inline(always)]
fn add<W: Word>(rows: &mut Rows<W>, key: &Rows<W>) {
    for (row, key) in rows.iter_mut().zip(key) {
        for (word, key) in row.iter_mut().zip(key) {
            *word = *word ^ *key;
        }
    }
}

/// `ShiftRows`.
#[inline(always)]
fn shifted<W: Word>([a, b, c, d]: Rows<W>) -> Rows<W> {
    [
        a,
        b.map(W::turned::<1>),
        c.map(W::turned::<2>),
        d.map(W::turned::<3>),
    ]
}

/// `InvShiftRows`.
#[inline(always)]
fn shifted_back<W: Word>([a, b, c, d]: Rows<W>) -> Rows<W> {
    [
        a,
        b.map(W::turned::<3>),
        c.map(W::turned::<2>),
        d.map(W::turned::<1>),
    ]
}

/// `MixColumns`: each byte `a` becomes `2 (a + b) + b + c + d`, where `b`, `c` and `d` are the three below it.
#[inline(always)]
fn mixed<W: Word>(rows: Rows<W>) -> Rows<W> {
    let mut sums = rows;
    for r in 0..4 {
        for i in 0..8 {
            sums[r][i] = rows[r][i] ^ rows[(r + 1) % 4][i];
        }
    }
    let mut mixed = rows;
    for r in 0..4 {
        let double = doubled(&sums[r]);
        for i in 0..8 {
            mixed[r][i] = double[i] ^ rows[(r + 1) % 4][i] ^ sums[(r + 2) % 4][i];
        }
    }
    mixed
}

/// The step that turns `MixColumns` after it into `InvMixColumns`: each byte becomes `a + 4 (a + c)`.
#[inline(always)]
fn mix_back<W: Word>(rows: &mut Rows<W>) {
    for r in 0..2 {
        let sum: Row<W> = core::array::from_fn(|i| rows[r][i] ^ rows[r + 2][i]);
        let four = doubled(&doubled(&sum));
        for i in 0..8 {
            rows[r][i] = rows[r][i] ^ four[i];
            rows[r + 2][i] = rows[r + 2][i] ^ four[i];
        }
    }
}

/// Each byte times x, modulo x^8 + x^4 + x^3 + x + 1.
#[inline(always)]
fn doubled<W: Word>(x: &Row<W>) -> Row<W> {
    [
        x[7],
        x[0] ^ x[7],
        x[1],
        x[2] ^ x[7],
        x[3] ^ x[7],
        x[4],
        x[5],
        x[6],
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 197, appendices C.1 to C.3.
    fn the_examples_of_the_standard<W: Word>() {
        let bytes = |text: u128| text.to_be_bytes();
        let key: [u8; 32] = core::array::from_fn(|at| at as u8);
        let text = bytes(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
        for (len, sealed) in [
            (16, 0x69c4_e0d8_6a7b_0430_d8cd_b780_70b4_c55a),
            (24, 0xdda9_7ca4_864c_dfe0_6eaf_70a0_ec0d_7191),
            (32, 0x8ea2_b7ca_5167_45bf_eafc_4990_4b49_6089),
        ] {
            let aes = Aes::<W>::new(&key[..len]);
            for lane in 0..W::BLOCKS {
                let mut blocks = [[lane as u8; 16]; MAX_BLOCKS];
                blocks[lane] = text;
                aes.encrypt(&mut blocks);
                assert_eq!(blocks[lane], bytes(sealed), "lane {lane}");
                aes.decrypt(&mut blocks);
                assert_eq!(blocks[lane], text);
                assert_eq!(blocks[(lane + 1) % W::BLOCKS], [lane as u8; 16]);
            }
        }
    }

    #[test]
    fn words_of_both_widths_agree_with_the_standard() {
        the_examples_of_the_standard::<u32>();
        the_examples_of_the_standard::<u64>();
    }

    fn key(len: usize) -> Vec<u8> {
        let bytes = "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4";
        (0..len)
            .map(|at| u8::from_str_radix(&bytes[2 * at..2 * at + 2], 16).unwrap())
            .collect()
    }

    /// FIPS 197, appendix A.
    #[test]
    fn the_last_words_are_those_of_the_standard() {
        let from = |hex: &str| -> Vec<u8> {
            (0..hex.len() / 2)
                .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
                .collect()
        };
        let short = from("2b7e151628aed2a6abf7158809cf4f3c");
        assert_eq!(expand(&short)[10][12..], from("b6630ca6"));
        let middle = from("8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b");
        assert_eq!(expand(&middle)[12][12..], from("01002202"));
        assert_eq!(expand(&key(32))[14][12..], from("706c631e"));
    }
}
