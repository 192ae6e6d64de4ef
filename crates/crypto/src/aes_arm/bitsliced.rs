//! AES on eight blocks at once, without AES instructions.

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::implementations::{CHUNK, CbcImplementation, Chain, List};
use crate::portable::{self, MAX_ROUNDS};

/// Bytes of a round key: eight registers, one for each bit of a byte.
pub(super) const KEY: usize = 128;

/// A key in the core's form: `struct aes_keys` in aes_bitsliced.h.
#[derive(Zeroize, ZeroizeOnDrop)]
#[repr(C, align(16))]
pub(super) struct Keys {
    bits: [[u8; KEY]; MAX_ROUNDS + 1],
    rounds: u32,
}

impl Keys {
    pub(super) fn empty() -> Self {
        Self {
            bits: [[0; KEY]; MAX_ROUNDS + 1],
            rounds: 0,
        }
    }

    /// # Panics
    /// If `key` has not 16, 24 or 32 bytes.
    pub(super) fn set(&mut self, key: &[u8]) {
        let round_keys = portable::expand(key);
        let rounds = portable::rounds(key.len());
        self.rounds = rounds as u32;
        for round in 0..=rounds {
            // The core leaves out the constant that SubBytes adds to each byte and MixColumns keeps, so it goes into
            // the round keys.
            let constant = if round == 0 { 0 } else { 0x63 };
            for (at, byte) in round_keys[round].into_iter().enumerate() {
                let place = place(round, at);
                for bit in 0..8 {
                    let set = ((byte ^ constant) >> (7 - bit)) & 1;
                    self.bits[round][16 * bit + place] = set.wrapping_neg();
                }
            }
        }
    }
}

/// The core's place for byte `at` of a block after this many rounds; the core shifts no rows.
pub(super) fn place(round: usize, at: usize) -> usize {
    let (row, column) = (at % 4, at / 4);
    let column = (column + round * row) % 4;
    if cfg!(target_arch = "arm") {
        4 * ((row + column) % 4) + column
    } else {
        4 * column + row
    }
}

/// Whole blocks: `struct chain` in aes_cbc.c.
#[repr(C)]
pub(super) struct RawChain {
    at: *mut u8,
    blocks: usize,
}

unsafe extern "C" {
    fn millrace_aes_cbc_encrypt(keys: *const Keys, chains: *const RawChain, count: usize);
    fn millrace_aes_cbc_decrypt(keys: *const Keys, chains: *const RawChain, count: usize);
}

/// AES in CBC mode on NEON. An instance exists only if the CPU has NEON.
pub(crate) struct BitSliced {
    keys: Box<Keys>,
}

impl BitSliced {
    /// `None` on a CPU without NEON.
    ///
    /// # Panics
    /// If `key` has not 16, 24 or 32 bytes.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        crate::cpu::has_neon().then(|| {
            let mut keys = Box::new(Keys::empty());
            keys.set(key);
            Self { keys }
        })
    }
}

/// The chains in C's form, up to [`CHUNK`].
///
/// # Panics
/// If a chain does not lie within `memory`, or there are more than [`CHUNK`].
pub(super) fn raw(memory: &mut [u8], chains: &[Chain]) -> List<RawChain> {
    let mut raw = List::new();
    let len = memory.len();
    let start = memory.as_mut_ptr();
    for chain in chains {
        assert!(chain.is_within(len, 16));
        raw.push(RawChain {
            at: start.wrapping_add(chain.start),
            blocks: chain.len / 16,
        });
    }
    raw
}

impl CbcImplementation for BitSliced {
    fn encrypt(&self, memory: &mut [u8], chains: &[Chain]) {
        for chains in chains.chunks(CHUNK) {
            let raw = raw(memory, chains);
            // SAFETY: the CPU has NEON, and each chain lies within the memory with a block in front of it.
            unsafe { millrace_aes_cbc_encrypt(&raw const *self.keys, raw.as_ptr(), raw.len()) }
        }
    }

    fn decrypt(&self, memory: &mut [u8], chains: &[Chain]) {
        for chains in chains.chunks(CHUNK) {
            let raw = raw(memory, chains);
            // SAFETY: as above.
            unsafe { millrace_aes_cbc_decrypt(&raw const *self.keys, raw.as_ptr(), raw.len()) }
        }
    }

    fn describe(&self) -> &'static str {
        "own (bit-sliced neon, eight packets at once)"
    }
}
