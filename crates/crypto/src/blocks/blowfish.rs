//! Blowfish (Schneier, 1993).
//!
//! OpenVPN's default until 2.4, so many old servers still use it. Its rounds are four look-ups in key-dependent tables,
//! each of which waits for the one before; a CPU can do several such chains in the time of one. Because of the tables
//! its time depends on secrets through the cache, as in every fast implementation. That is one more reason why it must
//! be requested explicitly.

use zeroize::Zeroize;

use super::pi::PI;
use super::small::{Halves, SmallBlocks};

/// A key, expanded for use.
pub(crate) struct Blowfish {
    p: [u32; 18],
    s: [[u32; 256]; 4],
}

impl Blowfish {
    /// # Panics
    /// If `key` is empty.
    pub(super) fn new(key: &[u8]) -> Self {
        assert!(!key.is_empty());
        let mut cipher = Self { p: PI.0, s: PI.1 };
        let mut bytes = key.iter().cycle();
        for p in &mut cipher.p {
            for shift in [24, 16, 8, 0] {
                // A cycle over a key with bytes never ends.
                *p ^= u32::from(*bytes.next().unwrap_or(&0)) << shift;
            }
        }
        let mut block = (0, 0);
        for at in (0..cipher.p.len()).step_by(2) {
            [block] = cipher.rounds::<1, true>([block]);
            (cipher.p[at], cipher.p[at + 1]) = block;
        }
        for table in 0..4 {
            for at in (0..256).step_by(2) {
                [block] = cipher.rounds::<1, true>([block]);
                (cipher.s[table][at], cipher.s[table][at + 1]) = block;
            }
        }
        cipher
    }

    #[inline(always)]
    fn mixed(&self, x: u32) -> u32 {
        let [a, b, c, d] = x.to_be_bytes();
        let sum = self.s[0][usize::from(a)].wrapping_add(self.s[1][usize::from(b)]);
        (sum ^ self.s[2][usize::from(c)]).wrapping_add(self.s[3][usize::from(d)])
    }
}

impl SmallBlocks for Blowfish {
    #[inline(always)]
    fn rounds<const N: usize, const ENCRYPT: bool>(&self, blocks: [Halves; N]) -> [Halves; N] {
        let p = |round: usize| self.p[if ENCRYPT { round } else { 17 - round }];
        let mut blocks = blocks;
        for round in (0..16).step_by(2) {
            for (left, right) in &mut blocks {
                *left ^= p(round);
                *right ^= self.mixed(*left);
            }
            for (left, right) in &mut blocks {
                *right ^= p(round + 1);
                *left ^= self.mixed(*right);
            }
        }
        blocks.map(|(left, right)| (right ^ p(17), left ^ p(16)))
    }
}

impl Drop for Blowfish {
    fn drop(&mut self) {
        self.p.zeroize();
        self.s.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use blowfish::Blowfish as Reference;
    use blowfish::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};

    use super::*;
    use crate::blocks::small::load;

    /// Eric Young's vectors for keys of eight bytes: the first, the second and one without a pattern.
    #[test]
    fn published_vectors() {
        let vectors = [
            (0, 0, 0x4ef9_9745_6198_dd78),
            (u64::MAX, u64::MAX, 0x5186_6fd5_b85e_cb8a),
            (
                0x7ca1_1045_4a1a_6e57,
                0x01a1_d6d0_3977_6742,
                0x59c6_8245_eb05_282b,
            ),
        ];
        for (key, text, sealed) in vectors {
            let cipher = Blowfish::new(&u64::to_be_bytes(key));
            let halves = |block: u64| ((block >> 32) as u32, block as u32);
            assert_eq!(cipher.rounds::<1, true>([halves(text)]), [halves(sealed)]);
            assert_eq!(cipher.rounds::<1, false>([halves(sealed)]), [halves(text)]);
        }
    }

    #[test]
    fn random_blocks_match_the_reference() {
        let mut key = [0; 16];
        crate::random(&mut key);
        let cipher = Blowfish::new(&key);
        let reference: Reference = KeyInit::new_from_slice(&key).unwrap();
        for number in 0..1000_u64 {
            let bytes = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
            let mut block = blowfish::cipher::Block::<Reference>::from(bytes);
            reference.encrypt_block(&mut block);
            let [sealed] = cipher.rounds::<1, true>([load(&bytes)]);
            assert_eq!(load(&block), sealed);
            reference.decrypt_block(&mut block);
            assert_eq!(<[u8; 8]>::from(block), bytes);
        }
    }
}
