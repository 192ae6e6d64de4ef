//! AES-GCM (NIST SP 800-38D) with portable AES. The counter blocks of a whole batch go through the lanes in one stream,
//! across packets, so that small packets fill them too.

use super::aes::{Aes, Blocks};
use super::ghash::Ghash;
use super::slices::{MAX_BLOCKS, Word};
use super::{Native, erase};
use crate::TAG_LEN;
use crate::implementations::{AeadImplementation, CHUNK, Place, is_right};
use crate::packet_aead::AeadAlgorithm;

/// A key, expanded for use.
pub(crate) struct Gcm {
    aes: Aes<Native>,
    ghash: Ghash,
}

/// The masks added to each packet's hash: the encryption of its first counter block.
type Masks = [[u8; 16]; CHUNK];

impl Gcm {
    /// `None` for another algorithm. The key has the algorithm's length.
    pub(crate) fn new(algorithm: AeadAlgorithm, key: &[u8]) -> Option<Self> {
        if algorithm == AeadAlgorithm::ChaCha20Poly1305 {
            return None;
        }
        let aes = Aes::new(key);
        let mut blocks: Blocks = [[0; 16]; MAX_BLOCKS];
        aes.encrypt(&mut blocks);
        let ghash = Ghash::new(&blocks[0]);
        erase(&mut blocks);
        Some(Self { aes, ghash })
    }

    /// XORs the keystream into every text and returns the masks, which the caller must erase.
    fn apply(&self, memory: &mut [u8], places: &[Place]) -> Masks {
        let mut masks = [[0; 16]; CHUNK];
        let mut stream = Stream {
            aes: &self.aes,
            memory,
            masks: &mut masks,
            blocks: [[0; 16]; MAX_BLOCKS],
            targets: [Target::Mask(0); Native::BLOCKS],
            filled: 0,
        };
        for (number, place) in places.iter().enumerate() {
            stream.push(&place.nonce, 1, Target::Mask(number));
            for (block, at) in place.text.clone().step_by(16).enumerate() {
                let len = (place.text.end - at).min(16);
                stream.push(&place.nonce, block as u32 + 2, Target::Text(at, len));
            }
        }
        stream.run();
        erase(&mut stream.blocks);
        masks
    }

    fn tag(&self, memory: &[u8], place: &Place, mask: &[u8; 16]) -> [u8; TAG_LEN] {
        let mut ghash = self.ghash.fresh();
        ghash.absorb(&memory[place.aad.clone()]);
        ghash.absorb(&memory[place.text.clone()]);
        let mut tag = ghash.finish(place.aad.len(), place.text.len());
        super::cbc::xor(&mut tag, mask);
        tag
    }
}

impl AeadImplementation for Gcm {
    fn seal(&self, memory: &mut [u8], places: &[Place]) {
        let mut masks = self.apply(memory, places);
        for (place, mask) in places.iter().zip(&masks) {
            let tag = self.tag(memory, place, mask);
            memory[place.tag..][..TAG_LEN].copy_from_slice(&tag);
        }
        erase(&mut masks[..places.len()]);
    }

    fn open(&self, memory: &mut [u8], places: &[Place], authentic: &mut [bool]) {
        // Hashes the ciphertext before decrypting replaces it; decrypting also returns the masks.
        let mut hashes = [[0; 16]; CHUNK];
        for (place, hash) in places.iter().zip(&mut hashes) {
            *hash = self.tag(memory, place, &[0; 16]);
        }
        let mut masks = self.apply(memory, places);
        for (number, place) in places.iter().enumerate() {
            let mut tag = hashes[number];
            super::cbc::xor(&mut tag, &masks[number]);
            authentic[number] = is_right(&tag, &memory[place.tag..][..TAG_LEN]);
            if !authentic[number] {
                memory[place.text.clone()].fill(0);
            }
        }
        erase(&mut masks[..places.len()]);
        erase(&mut hashes[..places.len()]);
    }

    fn describe(&self) -> &'static str {
        "own (portable, bit-sliced)"
    }
}

/// The purpose of a block of keystream.
#[derive(Clone, Copy)]
enum Target {
    /// The tag of a packet.
    Mask(usize),
    /// A block of text: its first byte, and its length.
    Text(usize, usize),
}

/// Counter blocks in the lanes.
struct Stream<'a> {
    aes: &'a Aes<Native>,
    memory: &'a mut [u8],
    masks: &'a mut Masks,
    blocks: Blocks,
    targets: [Target; Native::BLOCKS],
    filled: usize,
}

impl Stream<'_> {
    fn push(&mut self, nonce: &[u8; 12], counter: u32, target: Target) {
        let block = &mut self.blocks[self.filled];
        block[..12].copy_from_slice(nonce);
        block[12..].copy_from_slice(&counter.to_be_bytes());
        self.targets[self.filled] = target;
        self.filled += 1;
        if self.filled == Native::BLOCKS {
            self.run();
        }
    }

    /// Encrypts the pushed blocks and XORs them into their targets.
    fn run(&mut self) {
        if self.filled == 0 {
            return;
        }
        self.aes.encrypt(&mut self.blocks);
        for (block, target) in self.blocks.iter().zip(&self.targets[..self.filled]) {
            match *target {
                Target::Mask(number) => self.masks[number] = *block,
                Target::Text(at, len) => {
                    for (byte, key) in self.memory[at..at + len].iter_mut().zip(block) {
                        *byte ^= key;
                    }
                }
            }
        }
        self.filled = 0;
    }
}
