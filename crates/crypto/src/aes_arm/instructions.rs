//! AES with the instructions of ARMv8, on AArch64, for batches of packets.

use zeroize::{Zeroize, ZeroizeOnDrop};

use super::bitsliced::{RawChain, raw as raw_chains};
use super::gcm::{RawPacket, knows, raw as raw_packets};
use crate::implementations::{AeadImplementation, CHUNK, CbcImplementation, Chain, Place};
use crate::packet_aead::AeadAlgorithm;
use crate::portable::{self, MAX_ROUNDS};

/// Whether the CPU has instructions for AES and for carry-less multiplication.
fn are_there() -> bool {
    crate::cpu::has_aes()
}

/// The round keys: `struct round_keys` in aes_instructions.h.
#[derive(Zeroize, ZeroizeOnDrop)]
#[repr(C, align(16))]
struct RoundKeys {
    keys: [[u8; 16]; MAX_ROUNDS + 1],
    rounds: u32,
}

impl RoundKeys {
    fn empty() -> Self {
        Self {
            keys: [[0; 16]; MAX_ROUNDS + 1],
            rounds: 0,
        }
    }

    /// # Panics
    /// If `key` has not 16, 24 or 32 bytes.
    fn set(&mut self, key: &[u8]) {
        self.keys = *portable::expand(key);
        self.rounds = portable::rounds(key.len()) as u32;
    }
}

/// Round keys for both directions.
struct CbcKeys {
    encrypting: RoundKeys,
    decrypting: RoundKeys,
}

/// Powers of the hash key multiplied before one reduction: `LANES` in aes_instructions_gcm.c.
const POWERS: usize = 8;

/// `struct instructions_gcm_key` in aes_instructions_gcm.c.
#[derive(Zeroize, ZeroizeOnDrop)]
#[repr(C, align(16))]
struct GcmKey {
    cipher: RoundKeys,
    powers: [[u64; 2]; POWERS],
    sums: [u64; POWERS],
}

unsafe extern "C" {
    fn millrace_aes_instructions_invert(keys: *const RoundKeys, inverse: *mut RoundKeys);
    fn millrace_aes_instructions_cbc_encrypt(
        keys: *const RoundKeys,
        chains: *const RawChain,
        count: usize,
    );
    fn millrace_aes_instructions_cbc_decrypt(
        keys: *const RoundKeys,
        chains: *const RawChain,
        count: usize,
    );
    fn millrace_aes_instructions_gcm_key(key: *mut GcmKey);
    fn millrace_aes_instructions_gcm_seal(
        key: *const GcmKey,
        packets: *const RawPacket,
        count: usize,
    );
    fn millrace_aes_instructions_gcm_open(
        key: *const GcmKey,
        packets: *const RawPacket,
        count: usize,
        authentic: *mut bool,
    );
}

/// AES in CBC mode. An instance exists only if the CPU has the instructions.
pub(crate) struct InstructionsCbc {
    keys: Box<CbcKeys>,
}

impl InstructionsCbc {
    /// `None` on a CPU without the instructions.
    ///
    /// # Panics
    /// If `key` has not 16, 24 or 32 bytes.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        if !are_there() {
            return None;
        }
        let mut keys = Box::new(CbcKeys {
            encrypting: RoundKeys::empty(),
            decrypting: RoundKeys::empty(),
        });
        keys.encrypting.set(key);
        // SAFETY: the CPU has the instructions.
        unsafe {
            millrace_aes_instructions_invert(&raw const keys.encrypting, &raw mut keys.decrypting);
        }
        Some(Self { keys })
    }
}

impl CbcImplementation for InstructionsCbc {
    fn encrypt(&self, memory: &mut [u8], chains: &[Chain]) {
        for chains in chains.chunks(CHUNK) {
            let raw = raw_chains(memory, chains);
            let keys = &raw const self.keys.encrypting;
            // SAFETY: the CPU has the instructions, and each chain lies within the memory with a block in front of it.
            unsafe { millrace_aes_instructions_cbc_encrypt(keys, raw.as_ptr(), raw.len()) }
        }
    }

    fn decrypt(&self, memory: &mut [u8], chains: &[Chain]) {
        for chains in chains.chunks(CHUNK) {
            let raw = raw_chains(memory, chains);
            let keys = &raw const self.keys.decrypting;
            // SAFETY: as above.
            unsafe { millrace_aes_instructions_cbc_decrypt(keys, raw.as_ptr(), raw.len()) }
        }
    }

    fn describe(&self) -> &'static str {
        "own (aes instructions, eight packets at once)"
    }
}

/// AES-GCM. An instance exists only if the CPU has the instructions.
pub(crate) struct InstructionsGcm {
    key: Box<GcmKey>,
}

impl InstructionsGcm {
    /// `None` on a CPU without the instructions, or for another algorithm.
    ///
    /// # Panics
    /// If `key` has not the algorithm's length.
    pub(crate) fn new(algorithm: AeadAlgorithm, key: &[u8]) -> Option<Self> {
        if !knows(algorithm) || !are_there() {
            return None;
        }
        assert_eq!(key.len(), algorithm.key_len());
        let mut out = Box::new(GcmKey {
            cipher: RoundKeys::empty(),
            powers: [[0; 2]; POWERS],
            sums: [0; POWERS],
        });
        out.cipher.set(key);
        // SAFETY: the CPU has the instructions, and the cipher's part is set.
        unsafe { millrace_aes_instructions_gcm_key(&raw mut *out) }
        Some(Self { key: out })
    }
}

impl AeadImplementation for InstructionsGcm {
    fn seal(&self, memory: &mut [u8], places: &[Place]) {
        for places in places.chunks(CHUNK) {
            let packets = raw_packets(memory, places);
            let key = &raw const *self.key;
            // SAFETY: the CPU has the instructions, and all parts lie within the memory.
            unsafe { millrace_aes_instructions_gcm_seal(key, packets.as_ptr(), packets.len()) }
        }
    }

    fn open(&self, memory: &mut [u8], places: &[Place], authentic: &mut [bool]) {
        for (places, authentic) in places.chunks(CHUNK).zip(authentic.chunks_mut(CHUNK)) {
            let packets = raw_packets(memory, places);
            assert_eq!(packets.len(), authentic.len());
            // SAFETY: as above, and there is one answer for each packet, which is 0 or 1.
            unsafe {
                millrace_aes_instructions_gcm_open(
                    &raw const *self.key,
                    packets.as_ptr(),
                    packets.len(),
                    authentic.as_mut_ptr(),
                );
            }
        }
    }

    fn describe(&self) -> &'static str {
        "own (aes instructions, eight blocks at once)"
    }
}
