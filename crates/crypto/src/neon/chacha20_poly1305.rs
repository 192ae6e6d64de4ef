//! ChaCha20-Poly1305 for batches of packets of any lengths, on NEON.
//!
//! A library sees one packet at a time. For each it makes the key of Poly1305 separately, finishes the text with
//! narrower code, and finds Poly1305's parallelism inside it, by powers of its key. A batch needs none of that. Four
//! blocks of any packets share a pass of ChaCha20, and two packets share the steps of Poly1305.
//!
//! No branch and no address depends on a key or on a text.

use subtle::ConstantTimeEq;

use super::chacha20::{ChaCha20, Keystream, nonce};
use super::poly1305::{KeyBlock, MAX_AAD, Tag, tags};
use crate::TAG_LEN;
use crate::implementations::{AeadImplementation, AwsLcAead, Place};
use crate::packet_aead::AeadAlgorithm;

/// Packets that go through both ciphers before the next ones do: few enough to stay in the L1 cache between the two.
const GROUP: usize = 16;

/// A key on a machine with NEON. An instance exists only if the CPU has NEON.
pub(crate) struct ChaCha20Poly1305 {
    key: ChaCha20,
    /// For packets with more associated data than the lanes take.
    library: AwsLcAead,
}

impl ChaCha20Poly1305 {
    /// `None` for another algorithm or on a machine without NEON.
    pub(crate) fn new(algorithm: AeadAlgorithm, key: &[u8]) -> Option<Self> {
        if algorithm != AeadAlgorithm::ChaCha20Poly1305 || !crate::cpu::has_neon() {
            return None;
        }
        let library = AwsLcAead::new(algorithm, key);
        let key = key.try_into().ok()?;
        // SAFETY: the lines above have found NEON.
        let key = unsafe { ChaCha20::new(key) };
        Some(Self { key, library })
    }

    /// Computes the tags of a group with encrypted texts, and erases the keys.
    fn tags(&self, memory: &[u8], places: &[Place], keys: &mut [KeyBlock]) -> [Tag; GROUP] {
        let mut all = [[0; 4]; GROUP];
        // SAFETY: there is a key, so there is NEON.
        unsafe { tags(memory, places, keys, &mut all) };
        // Erases all words at once: `zeroize` writes word by word.
        keys.fill([0; 16]);
        zeroize::optimization_barrier(&*keys);
        all
    }
}

impl AeadImplementation for ChaCha20Poly1305 {
    fn seal(&self, memory: &mut [u8], places: &[Place]) {
        if places.iter().any(has_long_aad) {
            return self.library.seal(memory, places);
        }
        for places in places.chunks(GROUP) {
            let mut blocks = [[0; 16]; GROUP];
            let keys = &mut blocks[..places.len()];
            let mut keystream = Keystream::new(&self.key, memory);
            for (place, key) in places.iter().zip(&mut *keys) {
                keystream.first_block(nonce(&place.nonce), key);
            }
            for place in places {
                keystream.text(nonce(&place.nonce), &place.text);
            }
            keystream.flush();
            let tags = self.tags(memory, places, keys);
            for (place, tag) in places.iter().zip(tags) {
                let bytes = tag.map(u32::to_le_bytes);
                memory[place.tag..][..TAG_LEN].copy_from_slice(bytes.as_flattened());
            }
        }
    }

    fn open(&self, memory: &mut [u8], places: &[Place], authentic: &mut [bool]) {
        if places.iter().any(has_long_aad) {
            return self.library.open(memory, places, authentic);
        }
        for (places, authentic) in places.chunks(GROUP).zip(authentic.chunks_mut(GROUP)) {
            let mut blocks = [[0; 16]; GROUP];
            let keys = &mut blocks[..places.len()];
            let mut keystream = Keystream::new(&self.key, memory);
            for (place, key) in places.iter().zip(&mut *keys) {
                keystream.first_block(nonce(&place.nonce), key);
            }
            keystream.flush();
            let tags = self.tags(memory, places, keys);
            for ((place, tag), authentic) in places.iter().zip(tags).zip(&mut *authentic) {
                *authentic = matches(&memory[place.tag..][..TAG_LEN], tag);
                if !*authentic {
                    memory[place.text.clone()].fill(0);
                }
            }
            let mut keystream = Keystream::new(&self.key, memory);
            for (place, &authentic) in places.iter().zip(&*authentic) {
                if authentic {
                    keystream.text(nonce(&place.nonce), &place.text);
                }
            }
            keystream.flush();
        }
    }

    fn describe(&self) -> &'static str {
        "own (neon, four blocks of any packets at once)"
    }
}

/// Whether the packet has more associated data than any protocol uses.
fn has_long_aad(place: &Place) -> bool {
    place.aad.len() > MAX_AAD
}

/// Whether the received bytes equal the tag, in a time that does not depend on either.
fn matches(received: &[u8], tag: Tag) -> bool {
    let words = received.as_chunks::<4>().0;
    let differences = words.iter().zip(tag).fold(0, |all, (bytes, word)| {
        all | (u32::from_le_bytes(*bytes) ^ word)
    });
    differences.ct_eq(&0).into()
}
