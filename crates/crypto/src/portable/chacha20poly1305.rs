//! ChaCha20-Poly1305 (RFC 8439, section 2.8), one packet after the other.

use zeroize::Zeroizing;

use super::chacha20::ChaCha20;
use super::poly1305::Poly1305;
use crate::TAG_LEN;
use crate::implementations::{AeadImplementation, Place, is_right};
use crate::packet_aead::AeadAlgorithm;

/// A key.
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
