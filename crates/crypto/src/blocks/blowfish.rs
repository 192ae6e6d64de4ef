//! Blowfish (Schneier, 1993) in CBC mode, several chains at once.
//!
//! OpenVPN's default until 2.4, hence in the configuration of many an old server. Its rounds are four look-ups in tables of
//! the key, each of which waits for the one before; a CPU can do several such chains in the time of one. The tables
//! make its time depend on secrets through the cache, as every fast implementation's does: one more reason that it has to be
//! asked for.

use zeroize::Zeroize;

use super::Chain;
use super::pi::PI;

/// Chains that are worked on together. Eight are more than fit into registers, and still faster than six.
const LANES: usize = 8;

/// A key.
pub(crate) struct Blowfish {
    p: [u32; 18],
    s: [[u32; 256]; 4],
}

type Halves = (u32, u32);

impl Blowfish {
    /// # Panics
    /// If `key` is empty.
    pub(super) fn new(key: &[u8]) -> Self {
        assert!(!key.is_empty());
        let mut cipher = Self { p: PI.0, s: PI.1 };
        let mut bytes = key.iter().cycle();
        for p in &mut cipher.p {
            for shift in [24, 16, 8, 0] {
                // A cycle over something does not end.
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

    /// Encrypts or decrypts a block of each lane.
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

    #[inline(always)]
    fn mixed(&self, x: u32) -> u32 {
        let [a, b, c, d] = x.to_be_bytes();
        let sum = self.s[0][usize::from(a)].wrapping_add(self.s[1][usize::from(b)]);
        (sum ^ self.s[2][usize::from(c)]).wrapping_add(self.s[3][usize::from(d)])
    }

    pub(super) fn encrypt(&self, memory: &mut [u8], chains: &[Chain]) {
        let mut lanes = [Lane::default(); LANES];
        let mut next = chains.iter();
        loop {
            // A lane whose chain has ended takes the next one. When there is none left, the chains that are under way end
            // one by one: the last of a batch are not worth more code.
            for lane in &mut lanes {
                while lane.at == lane.end
                    && let Some(chain) = next.next()
                {
                    *lane = Lane::new(memory, chain);
                }
            }
            let steps = lanes.iter().map(|lane| lane.end - lane.at).min();
            let steps = steps.unwrap_or(0) / 8;
            if steps == 0 {
                break;
            }
            self.encrypt_together(memory, &mut lanes, steps);
        }
        for lane in &mut lanes {
            let steps = (lane.end - lane.at) / 8;
            self.encrypt_together(memory, core::array::from_mut(lane), steps);
        }
    }

    #[inline(always)]
    fn encrypt_together<const N: usize>(
        &self,
        memory: &mut [u8],
        lanes: &mut [Lane; N],
        steps: usize,
    ) {
        let mut previous = lanes.map(|lane| lane.previous);
        let starts = lanes.map(|lane| lane.at);
        for step in 0..steps {
            let mut blocks = previous;
            for lane in 0..N {
                let text = load(&memory[starts[lane] + step * 8..]);
                blocks[lane].0 ^= text.0;
                blocks[lane].1 ^= text.1;
            }
            previous = self.rounds::<N, true>(blocks);
            for lane in 0..N {
                store(&mut memory[starts[lane] + step * 8..], previous[lane]);
            }
        }
        for (lane, previous) in lanes.iter_mut().zip(previous) {
            lane.previous = previous;
            lane.at += steps * 8;
        }
    }

    pub(super) fn decrypt(&self, memory: &mut [u8], chains: &[Chain]) {
        for chain in chains {
            let (iv, blocks) = chain.parts::<8>(memory);
            let mut previous = load(&iv);
            // Decrypting, no block waits for another.
            let (fours, rest) = blocks.as_chunks_mut::<LANES>();
            for four in fours {
                self.decrypt_together(four, &mut previous);
            }
            for block in rest {
                self.decrypt_together(core::array::from_mut(block), &mut previous);
            }
        }
    }

    #[inline(always)]
    fn decrypt_together<const N: usize>(&self, bytes: &mut [[u8; 8]; N], previous: &mut Halves) {
        let sealed: [Halves; N] = core::array::from_fn(|at| load(&bytes[at]));
        let opened = self.rounds::<N, false>(sealed);
        for at in 0..N {
            let text = (opened[at].0 ^ previous.0, opened[at].1 ^ previous.1);
            store(&mut bytes[at], text);
            *previous = sealed[at];
        }
    }
}

/// A chain under way.
#[derive(Clone, Copy, Default)]
struct Lane {
    at: usize,
    end: usize,
    previous: Halves,
}

impl Lane {
    fn new(memory: &mut [u8], chain: &Chain) -> Self {
        let (iv, blocks) = chain.parts::<8>(memory);
        Self {
            at: chain.start,
            end: chain.start + blocks.len() * 8,
            previous: load(&iv),
        }
    }
}

#[inline(always)]
fn load(bytes: &[u8]) -> Halves {
    let [a, b, c, d, e, f, g, h] = *bytes.first_chunk().unwrap_or(&[0; 8]);
    (
        u32::from_be_bytes([a, b, c, d]),
        u32::from_be_bytes([e, f, g, h]),
    )
}

#[inline(always)]
fn store(bytes: &mut [u8], (left, right): Halves) {
    bytes[..4].copy_from_slice(&left.to_be_bytes());
    bytes[4..8].copy_from_slice(&right.to_be_bytes());
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

    /// Of Eric Young's vectors for keys of eight bytes, the first, the second and one without a pattern.
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
