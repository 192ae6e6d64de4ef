//! AES in CBC mode on AES-NI, eight chains at once.
//!
//! A round of AES has a latency of a few cycles, and a CPU can begin one or two rounds in each cycle. So a single chain
//! leaves most of that unused. A lane whose chain has ended takes the next one, so that packets of all lengths are
//! processed together.

use core::arch::x86_64::*;

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::implementations::{AwsLcAes, CbcImplementation, Chain};
use crate::portable::{self, MAX_ROUNDS};

/// Chains that are processed together.
const LANES: usize = 8;

/// AES-CBC of batches. The library does work without parallel chains: single packets, and all decryption.
pub(crate) struct AesNi {
    schedule: Schedule,
    library: AwsLcAes,
}

impl AesNi {
    /// `None` on a machine that lacks the instructions.
    ///
    /// # Panics
    /// If `key` has not 16, 24 or 32 bytes.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        Some(Self {
            schedule: Schedule::new(key)?,
            library: AwsLcAes::new(key),
        })
    }
}

impl CbcImplementation for AesNi {
    fn encrypt(&self, memory: &mut [u8], chains: &[Chain]) {
        match chains {
            [_] => self.library.encrypt(memory, chains),
            _ => self.schedule.encrypt(memory, chains),
        }
    }

    fn decrypt(&self, memory: &mut [u8], chains: &[Chain]) {
        self.library.decrypt(memory, chains);
    }

    fn describe(&self) -> &'static str {
        "own (aes-ni, eight chains at once) to seal, aws-lc to open"
    }
}

/// The round keys, on a machine with AES-NI. An instance exists only if the CPU has the instructions.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(super) struct Schedule {
    /// The key before the first round, and the key of each round.
    pub(super) keys: [[u8; 16]; MAX_ROUNDS + 1],
    pub(super) rounds: usize,
}

impl Schedule {
    /// `None` on a machine that lacks the instructions.
    ///
    /// # Panics
    /// If `key` has not 16, 24 or 32 bytes.
    pub(super) fn new(key: &[u8]) -> Option<Self> {
        if !is_x86_feature_detected!("aes") || !is_x86_feature_detected!("avx") {
            return None;
        }
        Some(Self {
            keys: *portable::expand(key),
            rounds: portable::rounds(key.len()),
        })
    }

    /// Encrypts the chains in place.
    ///
    /// # Panics
    /// If a chain does not lie within `memory`.
    fn encrypt(&self, memory: &mut [u8], chains: &[Chain]) {
        for chain in chains {
            assert!(chain.is_within(memory.len(), 16));
        }
        let mut idle = [0; 16];
        let mut work = Work::new(memory.as_mut_ptr(), idle.as_mut_ptr(), chains);
        // SAFETY: `new` has found the features, and the lines above that the chains lie within the memory.
        unsafe {
            match self.rounds {
                10 => work.all::<10>(&self.keys),
                12 => work.all::<12>(&self.keys),
                _ => work.all::<14>(&self.keys),
            }
        }
    }
}

/// State of the lanes.
struct Work<'a> {
    memory: *mut u8,
    next: core::slice::Iter<'a, Chain>,
    /// For each lane the next block, the distance to the following one, and the number of blocks left. An idle lane
    /// works on `idle` only.
    at: [*mut u8; LANES],
    step: [usize; LANES],
    left: [usize; LANES],
    idle: *mut u8,
}

impl<'a> Work<'a> {
    fn new(memory: *mut u8, idle: *mut u8, chains: &'a [Chain]) -> Self {
        Self {
            memory,
            next: chains.iter(),
            at: [memory; LANES],
            step: [0; LANES],
            left: [0; LANES],
            idle,
        }
    }

    /// # Safety
    /// The chains lie within the memory, with their initialisation vectors.
    #[target_feature(enable = "aes,avx")]
    unsafe fn all<const ROUNDS: usize>(&mut self, keys: &[[u8; 16]; MAX_ROUNDS + 1]) {
        let mut round_keys = [_mm_setzero_si128(); MAX_ROUNDS + 1];
        for (key, bytes) in round_keys.iter_mut().zip(keys) {
            // SAFETY: 16 bytes each.
            *key = unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
        }
        let mut previous = [_mm_setzero_si128(); LANES];
        loop {
            for (lane, previous) in previous.iter_mut().enumerate() {
                if self.left[lane] == 0 {
                    // SAFETY: the caller's promise.
                    *previous = unsafe { self.refill(lane) };
                }
            }
            let steps = self.left.into_iter().min().unwrap_or(usize::MAX);
            if steps == usize::MAX {
                return;
            }
            // SAFETY: no lane has fewer blocks left.
            previous = unsafe { self.run::<ROUNDS>(&round_keys, previous, steps) };
            for left in &mut self.left {
                // Idle lanes stay idle.
                if *left != usize::MAX {
                    *left -= steps;
                }
            }
        }
    }

    /// Starts the next chain in the lane, and returns its initialisation vector. If no chain is left, the lane becomes
    /// idle.
    ///
    /// # Safety
    /// The conditions of `all`.
    #[target_feature(enable = "aes,avx")]
    unsafe fn refill(&mut self, lane: usize) -> __m128i {
        let chain = self.next.find(|chain| chain.len >= 16);
        let Some(chain) = chain else {
            self.at[lane] = self.idle;
            self.step[lane] = 0;
            self.left[lane] = usize::MAX;
            return _mm_setzero_si128();
        };
        // SAFETY: the chain and 16 bytes in front of it lie within the memory.
        unsafe {
            self.at[lane] = self.memory.add(chain.start);
            self.step[lane] = 16;
            self.left[lane] = chain.len / 16;
            _mm_loadu_si128(self.at[lane].sub(16).cast())
        }
    }

    /// # Safety
    /// Each lane has at least `steps` blocks left, or is idle.
    #[target_feature(enable = "aes,avx")]
    unsafe fn run<const ROUNDS: usize>(
        &mut self,
        keys: &[__m128i; MAX_ROUNDS + 1],
        mut previous: [__m128i; LANES],
        steps: usize,
    ) -> [__m128i; LANES] {
        let mut at = self.at;
        let step = self.step;
        for _ in 0..steps {
            for lane in 0..LANES {
                // SAFETY: the caller's promise.
                let text = unsafe { _mm_loadu_si128(at[lane].cast()) };
                previous[lane] = _mm_xor_si128(previous[lane], _mm_xor_si128(text, keys[0]));
            }
            for key in &keys[1..ROUNDS] {
                for block in &mut previous {
                    *block = _mm_aesenc_si128(*block, *key);
                }
            }
            for lane in 0..LANES {
                previous[lane] = _mm_aesenclast_si128(previous[lane], keys[ROUNDS]);
                // SAFETY: as above. No pointer is used after its last block.
                unsafe {
                    _mm_storeu_si128(at[lane].cast(), previous[lane]);
                    at[lane] = at[lane].wrapping_add(step[lane]);
                }
            }
        }
        self.at = at;
        previous
    }
}
