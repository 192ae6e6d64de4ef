//! AES in CBC mode on VAES, where an instruction does a round of four blocks. It encrypts sixteen chains at once, and
//! decrypts sixteen blocks of a chain at once.

use core::arch::x86_64::*;

use zeroize::{Zeroize, ZeroizeOnDrop};

use super::aesni::Schedule;
use crate::implementations::{AwsLcAes, CbcImplementation, Chain};
use crate::portable::MAX_ROUNDS;

/// Chains that are processed together.
const LANES: usize = 16;

/// Registers of four blocks.
const QUADS: usize = LANES / 4;

/// A key on a machine with VAES. An instance exists only if the CPU has the instructions.
pub(crate) struct Vaes {
    encrypting: Schedule,
    /// Keys of the inverse cipher, in the order of their use.
    decrypting: Decrypting,
    /// Code for a single packet.
    library: AwsLcAes,
}

/// The keys of the equivalent inverse cipher (FIPS 197, section 5.3.5).
#[derive(Zeroize, ZeroizeOnDrop)]
struct Decrypting([[u8; 16]; MAX_ROUNDS + 1]);

/// Each round's key, repeated for four blocks.
type RoundKeys = [__m512i; MAX_ROUNDS + 1];

impl Vaes {
    /// `None` on a machine that lacks the instructions.
    ///
    /// # Panics
    /// If `key` has not 16, 24 or 32 bytes.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        if !is_x86_feature_detected!("vaes") || !is_x86_feature_detected!("avx512f") {
            return None;
        }
        let encrypting = Schedule::new(key)?;
        // SAFETY: `Schedule::new` has found AES's instructions.
        let decrypting = unsafe { inverted(&encrypting) };
        Some(Self {
            encrypting,
            decrypting,
            library: AwsLcAes::new(key),
        })
    }
}

impl CbcImplementation for Vaes {
    fn encrypt(&self, memory: &mut [u8], chains: &[Chain]) {
        if let [_] = chains {
            self.library.encrypt(memory, chains);
            return;
        }
        for chain in chains {
            assert!(chain.is_within(memory.len(), 16));
        }
        let mut idle = [0; 16];
        let mut work = Work {
            memory: memory.as_mut_ptr(),
            next: chains.iter(),
            previous: Blocks([[0; 16]; LANES]),
            at: [idle.as_mut_ptr(); LANES],
            step: [0; LANES],
            left: [0; LANES],
            idle: idle.as_mut_ptr(),
        };
        // SAFETY: `new` has found the features, and the lines above that the chains lie within the memory.
        unsafe {
            match self.encrypting.rounds {
                10 => work.all::<10>(&self.encrypting.keys),
                12 => work.all::<12>(&self.encrypting.keys),
                _ => work.all::<14>(&self.encrypting.keys),
            }
        }
    }

    fn decrypt(&self, memory: &mut [u8], chains: &[Chain]) {
        for chain in chains {
            let (iv, blocks) = chain.parts::<16>(memory);
            // SAFETY: `new` has found the features.
            unsafe {
                match self.encrypting.rounds {
                    10 => decrypt::<10>(&self.decrypting.0, &iv, blocks),
                    12 => decrypt::<12>(&self.decrypting.0, &iv, blocks),
                    _ => decrypt::<14>(&self.decrypting.0, &iv, blocks),
                }
            }
        }
    }

    fn describe(&self) -> &'static str {
        "own (vaes, sixteen chains at once)"
    }
}

#[target_feature(enable = "aes")]
fn inverted(schedule: &Schedule) -> Decrypting {
    let mut keys = [[0; 16]; MAX_ROUNDS + 1];
    let last = schedule.rounds;
    let backwards = schedule.keys[..=last].iter().rev();
    for (round, (inverted, key)) in keys.iter_mut().zip(backwards).enumerate() {
        if round == 0 || round == last {
            *inverted = *key;
            continue;
        }
        // SAFETY: 16 bytes each.
        unsafe {
            let key = _mm_loadu_si128(key.as_ptr().cast());
            _mm_storeu_si128(inverted.as_mut_ptr().cast(), _mm_aesimc_si128(key));
        }
    }
    Decrypting(keys)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn spread(keys: &[[u8; 16]; MAX_ROUNDS + 1]) -> RoundKeys {
    let mut spread = [_mm512_setzero_si512(); MAX_ROUNDS + 1];
    for (four, key) in spread.iter_mut().zip(keys) {
        // SAFETY: 16 bytes.
        *four = _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(key.as_ptr().cast()) });
    }
    spread
}

/// Decrypts a chain in place.
#[target_feature(enable = "vaes,avx512f")]
fn decrypt<const ROUNDS: usize>(
    keys: &[[u8; 16]; MAX_ROUNDS + 1],
    iv: &[u8; 16],
    blocks: &mut [[u8; 16]],
) {
    let keys = spread(keys);
    // SAFETY: 16 bytes.
    let mut before = _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(iv.as_ptr().cast()) });
    let (groups, rest) = blocks.as_chunks_mut::<LANES>();
    for group in groups {
        let at = group.as_mut_ptr().cast::<__m512i>();
        let mut quads = [_mm512_setzero_si512(); QUADS];
        let mut masks = quads;
        for quad in 0..QUADS {
            // SAFETY: a group has so many times 64 bytes.
            let sealed = unsafe { _mm512_loadu_si512(at.add(quad)) };
            // Each block's left neighbour: the last block of the previous quad, and three of this one.
            masks[quad] = _mm512_alignr_epi64::<6>(sealed, before);
            quads[quad] = _mm512_xor_si512(sealed, keys[0]);
            before = sealed;
        }
        for key in &keys[1..ROUNDS] {
            for quad in &mut quads {
                *quad = _mm512_aesdec_epi128(*quad, *key);
            }
        }
        for quad in 0..QUADS {
            let last = _mm512_xor_si512(keys[ROUNDS], masks[quad]);
            // SAFETY: as above.
            unsafe {
                _mm512_storeu_si512(at.add(quad), _mm512_aesdeclast_epi128(quads[quad], last));
            }
        }
    }
    for four in rest.chunks_mut(4) {
        // Two words for each remaining block.
        let there = ((1_u16 << (2 * four.len())) - 1) as u8;
        // SAFETY: the mask has as many words as the blocks have.
        let sealed = unsafe { _mm512_maskz_loadu_epi64(there, four.as_ptr().cast()) };
        let mask = _mm512_alignr_epi64::<6>(sealed, before);
        before = sealed;
        let mut quad = _mm512_xor_si512(sealed, keys[0]);
        for key in &keys[1..ROUNDS] {
            quad = _mm512_aesdec_epi128(quad, *key);
        }
        let last = _mm512_xor_si512(keys[ROUNDS], mask);
        let text = _mm512_aesdeclast_epi128(quad, last);
        // SAFETY: as above.
        unsafe { _mm512_mask_storeu_epi64(four.as_mut_ptr().cast(), there, text) };
    }
}

/// One block for each lane.
#[repr(align(64))]
struct Blocks([[u8; 16]; LANES]);

/// State of the lanes.
struct Work<'a> {
    memory: *mut u8,
    next: core::slice::Iter<'a, Chain>,
    /// The last ciphertext of each lane.
    previous: Blocks,
    /// For each lane the next block, the distance to the following one, and the number of blocks left. An idle lane
    /// works on `idle` only.
    at: [*mut u8; LANES],
    step: [usize; LANES],
    left: [usize; LANES],
    idle: *mut u8,
}

impl Work<'_> {
    /// # Safety
    /// The chains lie within the memory, with their initialisation vectors.
    #[target_feature(enable = "vaes,avx512f")]
    unsafe fn all<const ROUNDS: usize>(&mut self, keys: &[[u8; 16]; MAX_ROUNDS + 1]) {
        let keys = spread(keys);
        loop {
            for lane in 0..LANES {
                if self.left[lane] == 0 {
                    // SAFETY: the caller's promise.
                    unsafe { self.refill(lane) };
                }
            }
            let steps = self.left.into_iter().min().unwrap_or(usize::MAX);
            if steps == usize::MAX {
                return;
            }
            // SAFETY: no lane has fewer blocks left.
            unsafe { self.run::<ROUNDS>(&keys, steps) };
            for left in &mut self.left {
                // Idle lanes stay idle.
                if *left != usize::MAX {
                    *left -= steps;
                }
            }
        }
    }

    /// Starts the next chain in the lane, with its initialisation vector. If no chain is left, the lane becomes idle.
    ///
    /// # Safety
    /// The conditions of `all`.
    unsafe fn refill(&mut self, lane: usize) {
        let Some(chain) = self.next.find(|chain| chain.len >= 16) else {
            self.at[lane] = self.idle;
            self.step[lane] = 0;
            self.left[lane] = usize::MAX;
            return;
        };
        // SAFETY: the chain and 16 bytes in front of it lie within the memory.
        unsafe {
            self.at[lane] = self.memory.add(chain.start);
            self.previous.0[lane] = self.at[lane].sub(16).cast::<[u8; 16]>().read();
        }
        self.step[lane] = 16;
        self.left[lane] = chain.len / 16;
    }

    /// # Safety
    /// Each lane has at least `steps` blocks left, or is idle.
    #[target_feature(enable = "vaes,avx512f")]
    unsafe fn run<const ROUNDS: usize>(&mut self, keys: &RoundKeys, steps: usize) {
        let mut at = self.at;
        let step = self.step;
        let quads = self.previous.0.as_mut_ptr().cast::<__m512i>();
        // SAFETY: aligned, and 64 bytes each.
        let mut previous: [__m512i; QUADS] =
            core::array::from_fn(|quad| unsafe { _mm512_load_si512(quads.add(quad)) });
        for _ in 0..steps {
            for quad in 0..QUADS {
                // SAFETY: the caller's promise: 16 bytes each.
                let text = unsafe {
                    let block = |lane: usize| _mm_loadu_si128(at[4 * quad + lane].cast());
                    let four = _mm512_castsi128_si512(block(0));
                    let four = _mm512_inserti32x4::<1>(four, block(1));
                    let four = _mm512_inserti32x4::<2>(four, block(2));
                    _mm512_inserti32x4::<3>(four, block(3))
                };
                previous[quad] = _mm512_xor_si512(previous[quad], _mm512_xor_si512(text, keys[0]));
            }
            for key in &keys[1..ROUNDS] {
                for quad in &mut previous {
                    *quad = _mm512_aesenc_epi128(*quad, *key);
                }
            }
            for quad in 0..QUADS {
                let sealed = _mm512_aesenclast_epi128(previous[quad], keys[ROUNDS]);
                previous[quad] = sealed;
                // SAFETY: as above. No pointer is used after its last block.
                unsafe {
                    let at = &at[4 * quad..4 * quad + 4];
                    _mm_storeu_si128(at[0].cast(), _mm512_castsi512_si128(sealed));
                    _mm_storeu_si128(at[1].cast(), _mm512_extracti32x4_epi32::<1>(sealed));
                    _mm_storeu_si128(at[2].cast(), _mm512_extracti32x4_epi32::<2>(sealed));
                    _mm_storeu_si128(at[3].cast(), _mm512_extracti32x4_epi32::<3>(sealed));
                }
            }
            for (at, step) in at.iter_mut().zip(step) {
                *at = at.wrapping_add(step);
            }
        }
        self.at = at;
        for (quad, previous) in previous.into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { _mm512_store_si512(quads.add(quad), previous) };
        }
    }
}
