//! CBC with portable AES. Encrypting, each lane has a chain; decrypting, each lane has the batch's next block, of any
//! packet.

use super::aes::{Aes, Blocks};
use super::slices::{MAX_BLOCKS, Word};
use super::{Native, erase};
use crate::implementations::{CbcImplementation, Chain};

/// A key, for both directions.
pub(crate) struct Cbc(Aes<Native>);

impl Cbc {
    /// # Panics
    /// If `key` has not 16, 24 or 32 bytes.
    pub(crate) fn new(key: &[u8]) -> Self {
        Self(Aes::new(key))
    }
}

/// The next block of a chain and the chain's end; equal if no block is left.
#[derive(Clone, Copy, Default)]
struct Lane {
    at: usize,
    end: usize,
}

impl CbcImplementation for Cbc {
    fn encrypt(&self, memory: &mut [u8], chains: &[Chain]) {
        let mut next = chains.iter().filter(|chain| chain.len >= 16);
        let mut lanes = [Lane::default(); Native::BLOCKS];
        let mut blocks: Blocks = [[0; 16]; MAX_BLOCKS];
        loop {
            // A lane whose chain has ended takes the next one.
            for (lane, block) in lanes.iter_mut().zip(&mut blocks) {
                if lane.at == lane.end
                    && let Some(chain) = next.next()
                {
                    let (iv, text) = chain.parts::<16>(memory);
                    *block = iv;
                    lane.at = chain.start;
                    lane.end = chain.start + text.len() * 16;
                }
            }
            let left = lanes.iter().map(|lane| lane.end - lane.at);
            let Some(steps) = left.filter(|&left| left > 0).min() else {
                erase(&mut blocks);
                return;
            };
            for _ in 0..steps / 16 {
                for (lane, block) in lanes.iter().zip(&mut blocks) {
                    if lane.at < lane.end {
                        xor(block, &memory[lane.at..]);
                    }
                }
                self.0.encrypt(&mut blocks);
                for (lane, block) in lanes.iter_mut().zip(&blocks) {
                    if lane.at < lane.end {
                        memory[lane.at..][..16].copy_from_slice(block);
                        lane.at += 16;
                    }
                }
            }
        }
    }

    fn decrypt(&self, memory: &mut [u8], chains: &[Chain]) {
        let mut places = [0; Native::BLOCKS];
        let mut filled = 0;
        // The ciphertext block in front of each block, saved before anything is decrypted.
        let mut before: Blocks = [[0; 16]; MAX_BLOCKS];
        let mut sealed: Blocks = [[0; 16]; MAX_BLOCKS];
        // The lanes' output, which is text and must be erased.
        let mut blocks: Blocks = [[0; 16]; MAX_BLOCKS];
        let mut run = |memory: &mut [u8], places: &[usize], before: &Blocks, sealed: &Blocks| {
            blocks = *sealed;
            self.0.decrypt(&mut blocks);
            for (at, (block, before)) in places.iter().zip(blocks.iter_mut().zip(before)) {
                xor(block, before);
                memory[*at..][..16].copy_from_slice(block);
            }
        };
        for chain in chains {
            let (mut previous, text) = chain.parts::<16>(memory);
            for number in 0..text.len() {
                let at = chain.start + number * 16;
                places[filled] = at;
                before[filled] = previous;
                previous.copy_from_slice(&memory[at..at + 16]);
                sealed[filled] = previous;
                filled += 1;
                if filled == Native::BLOCKS {
                    run(memory, &places, &before, &sealed);
                    filled = 0;
                }
            }
        }
        if filled > 0 {
            run(memory, &places[..filled], &before, &sealed);
        }
        erase(&mut blocks);
    }

    fn describe(&self) -> &'static str {
        "own (portable, bit-sliced)"
    }
}

/// XORs the first 16 bytes of `bytes` into `block`.
#[inline(always)]
pub(super) fn xor(block: &mut [u8; 16], bytes: &[u8]) {
    for (byte, other) in block.iter_mut().zip(&bytes[..16]) {
        *byte ^= other;
    }
}
