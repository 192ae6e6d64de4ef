//! AES-GCM on NEON, for batches of packets.

use zeroize::{Zeroize, ZeroizeOnDrop};

use super::bitsliced::Keys;
#[cfg(target_arch = "arm")]
use super::counters::Counters;
use crate::TAG_LEN;
use crate::implementations::{AeadImplementation, CHUNK, List, Place};
use crate::packet_aead::AeadAlgorithm;

/// A packet: `struct gcm_packet` in aes_gcm.h.
#[repr(C)]
pub(super) struct RawPacket {
    aad: *const u8,
    text: *mut u8,
    tag: *mut u8,
    aad_len: usize,
    text_len: usize,
    nonce: [u8; 12],
}

/// The packets in C's form, up to [`CHUNK`].
///
/// # Panics
/// If a part of a packet does not lie within `memory`, or there are more packets than [`CHUNK`].
pub(super) fn raw(memory: &mut [u8], places: &[Place]) -> List<RawPacket> {
    let len = memory.len();
    let start = memory.as_mut_ptr();
    let mut packets = List::new();
    for place in places {
        assert!(place.aad.start <= place.aad.end && place.aad.end <= len);
        assert!(place.text.start <= place.text.end && place.text.end <= len);
        assert!(place.tag <= len && len - place.tag >= TAG_LEN);
        packets.push(RawPacket {
            aad: start.wrapping_add(place.aad.start),
            text: start.wrapping_add(place.text.start),
            tag: start.wrapping_add(place.tag),
            aad_len: place.aad.len(),
            text_len: place.text.len(),
            nonce: place.nonce,
        });
    }
    packets
}

/// Whether the algorithm is AES-GCM, and not another AEAD.
pub(super) fn knows(algorithm: AeadAlgorithm) -> bool {
    match algorithm {
        AeadAlgorithm::Aes128Gcm | AeadAlgorithm::Aes192Gcm | AeadAlgorithm::Aes256Gcm => true,
        AeadAlgorithm::ChaCha20Poly1305 => false,
    }
}

/// Bytes of the powers of the hash key, in a form for each architecture: `struct ghash_key` in ghash.h.
const HASH_KEY: usize = if cfg!(target_arch = "arm") {
    9 * 12 * 9 * 8
} else {
    3 * 16 * 8 * 8
};

/// `struct ghash_key` in ghash.h.
#[derive(Zeroize, ZeroizeOnDrop)]
#[repr(C, align(16))]
struct HashKey {
    powers: [u8; HASH_KEY],
}

/// `struct gcm_key` in aes_gcm.c.
#[derive(Zeroize, ZeroizeOnDrop)]
#[repr(C)]
struct Key {
    cipher: Keys,
    hash: HashKey,
    #[cfg(target_arch = "arm")]
    counters: Counters,
}

unsafe extern "C" {
    fn millrace_gcm_key(key: *mut Key);
    fn millrace_gcm_seal(key: *const Key, packets: *const RawPacket, count: usize);
    fn millrace_gcm_open(
        key: *const Key,
        packets: *const RawPacket,
        count: usize,
        authentic: *mut bool,
    );
}

/// AES-GCM on NEON without AES instructions. An instance exists only if the CPU has NEON.
pub(crate) struct BitSlicedGcm {
    key: Box<Key>,
}

impl BitSlicedGcm {
    /// `None` on a CPU without NEON, or for another algorithm.
    ///
    /// # Panics
    /// If `key` has not the algorithm's length.
    pub(crate) fn new(algorithm: AeadAlgorithm, key: &[u8]) -> Option<Self> {
        if !knows(algorithm) || !crate::cpu::has_neon() {
            return None;
        }
        assert_eq!(key.len(), algorithm.key_len());
        let mut out = Box::new(Key {
            cipher: Keys::empty(),
            hash: HashKey {
                powers: [0; HASH_KEY],
            },
            #[cfg(target_arch = "arm")]
            counters: Counters::empty(),
        });
        out.cipher.set(key);
        #[cfg(target_arch = "arm")]
        out.counters.set(key);
        // SAFETY: the CPU has NEON, and the cipher's part is set.
        unsafe { millrace_gcm_key(&raw mut *out) }
        Some(Self { key: out })
    }
}

impl AeadImplementation for BitSlicedGcm {
    fn seal(&self, memory: &mut [u8], places: &[Place]) {
        for places in places.chunks(CHUNK) {
            let packets = raw(memory, places);
            // SAFETY: the CPU has NEON, and all parts lie within the memory.
            unsafe { millrace_gcm_seal(&raw const *self.key, packets.as_ptr(), packets.len()) }
        }
    }

    fn open(&self, memory: &mut [u8], places: &[Place], authentic: &mut [bool]) {
        for (places, authentic) in places.chunks(CHUNK).zip(authentic.chunks_mut(CHUNK)) {
            let packets = raw(memory, places);
            assert_eq!(packets.len(), authentic.len());
            // SAFETY: as above, and there is one answer for each packet, which is 0 or 1.
            unsafe {
                millrace_gcm_open(
                    &raw const *self.key,
                    packets.as_ptr(),
                    packets.len(),
                    authentic.as_mut_ptr(),
                );
            }
        }
    }

    fn describe(&self) -> &'static str {
        "own (bit-sliced neon, packets side by side)"
    }
}
