//! ChaCha20 (RFC 8439, section 2.3), and ChaCha20-Poly1305 (section 2.8), one packet after the other.

use zeroize::{Zeroize, Zeroizing};

use crate::TAG_LEN;
use crate::implementations::{AeadImplementation, Place, is_right};
use crate::packet_aead::AeadAlgorithm;
use crate::portable::poly1305::Poly1305;

/// "expand 32-byte k".
const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// A key and a nonce, with the counter of the next block.
struct ChaCha20 {
    state: [u32; 16],
}

impl ChaCha20 {
    /// Begins at block 0.
    fn new(key: &[u32; 8], nonce: &[u8; 12]) -> Self {
        let mut state = [0; 16];
        state[..4].copy_from_slice(&CONSTANTS);
        state[4..12].copy_from_slice(key);
        for (word, bytes) in state[13..].iter_mut().zip(nonce.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        Self { state }
    }

    /// Computes the next block, as little-endian words of four bytes.
    fn block(&mut self) -> [u32; 16] {
        let mut words = self.state;
        for _ in 0..10 {
            for column in 0..4 {
                quarter(&mut words, [column, column + 4, column + 8, column + 12]);
            }
            for column in 0..4 {
                let diagonal = |row: usize| 4 * row + (column + row) % 4;
                quarter(&mut words, [column, diagonal(1), diagonal(2), diagonal(3)]);
            }
        }
        for (word, start) in words.iter_mut().zip(self.state) {
            *word = word.wrapping_add(start);
        }
        self.state[12] = self.state[12].wrapping_add(1);
        words
    }

    /// XORs the following blocks into `text`.
    fn apply(&mut self, text: &mut [u8]) {
        let (blocks, rest) = text.as_chunks_mut::<64>();
        for block in blocks {
            let keystream = self.block();
            for (bytes, word) in block.as_chunks_mut::<4>().0.iter_mut().zip(keystream) {
                *bytes = (u32::from_le_bytes(*bytes) ^ word).to_le_bytes();
            }
        }
        if !rest.is_empty() {
            let keystream = Zeroizing::new(self.block().map(u32::to_le_bytes));
            for (byte, other) in rest.iter_mut().zip(keystream.as_flattened()) {
                *byte ^= other;
            }
        }
    }
}

impl Drop for ChaCha20 {
    fn drop(&mut self) {
        self.state.zeroize();
    }
}

#[inline(always)]
fn quarter(words: &mut [u32; 16], [a, b, c, d]: [usize; 4]) {
    for (first, second) in [(16, 12), (8, 7)] {
        words[a] = words[a].wrapping_add(words[b]);
        words[d] = (words[d] ^ words[a]).rotate_left(first);
        words[c] = words[c].wrapping_add(words[d]);
        words[b] = (words[b] ^ words[c]).rotate_left(second);
    }
}

/// A key, expanded for use.
pub(crate) struct ChaChaPoly {
    key: Zeroizing<[u32; 8]>,
}

impl ChaChaPoly {
    /// `None` for another algorithm.
    pub(crate) fn new(algorithm: AeadAlgorithm, key: &[u8]) -> Option<Self> {
        if algorithm != AeadAlgorithm::ChaCha20Poly1305 {
            return None;
        }
        let mut words = Zeroizing::new([0; 8]);
        for (word, bytes) in words.iter_mut().zip(key.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        Some(Self { key: words })
    }

    /// Turns plaintext into ciphertext (`SEAL`) or back, and returns the tag of the ciphertext.
    fn apply<const SEAL: bool>(&self, memory: &mut [u8], place: &Place) -> [u8; TAG_LEN] {
        let mut chacha20 = ChaCha20::new(&self.key, &place.nonce);
        let mut poly1305 = Poly1305::new(&Zeroizing::new(chacha20.block()));
        poly1305.absorb(&memory[place.aad.clone()]);
        // Works in parts that fit the cache: the second cipher finds there what the first has written.
        for text in memory[place.text.clone()].chunks_mut(4096) {
            if SEAL {
                chacha20.apply(text);
            }
            poly1305.absorb(text);
            if !SEAL {
                chacha20.apply(text);
            }
        }
        let lengths =
            u128::from(place.aad.len() as u64) | u128::from(place.text.len() as u64) << 64;
        poly1305.block(&lengths.to_le_bytes());
        poly1305.finish()
    }
}

impl AeadImplementation for ChaChaPoly {
    fn seal(&self, memory: &mut [u8], places: &[Place]) {
        for place in places {
            let tag = self.apply::<true>(memory, place);
            memory[place.tag..][..TAG_LEN].copy_from_slice(&tag);
        }
    }

    fn open(&self, memory: &mut [u8], places: &[Place], authentic: &mut [bool]) {
        for (place, authentic) in places.iter().zip(authentic) {
            let tag = self.apply::<false>(memory, place);
            *authentic = is_right(&tag, &memory[place.tag..][..TAG_LEN]);
            if !*authentic {
                memory[place.text.clone()].fill(0);
            }
        }
    }

    fn describe(&self) -> &'static str {
        "own (portable)"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8439, section 2.3.2.
    #[test]
    fn the_example_of_the_rfc() {
        let key = core::array::from_fn(|word| {
            u32::from_le_bytes(core::array::from_fn(|byte| (4 * word + byte) as u8))
        });
        let nonce = [0, 0, 0, 9, 0, 0, 0, 0x4a, 0, 0, 0, 0];
        let mut chacha20 = ChaCha20::new(&key, &nonce);
        chacha20.block();
        let block = chacha20.block();
        assert_eq!(
            block[..4],
            [0xe4e7_f110, 0x1559_3bd1, 0x1fdd_0f50, 0xc471_20a3]
        );
        assert_eq!(
            block[12..],
            [0xd19c_12b5, 0xb94e_16de, 0xe883_d0cb, 0x4e3c_50a2]
        );
    }
}
