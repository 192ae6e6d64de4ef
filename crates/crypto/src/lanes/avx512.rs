//! Sixteen lanes of 32 bits, or eight of 64, on AVX-512.

use core::arch::x86_64::*;

use super::{MAX_LANES, Routine, States, sha1, sha2};
use crate::avx512::transpose;

/// SHA-1.
pub(super) const SHA1: Routine<u32> = Routine {
    compress: sha1,
    lanes: 16,
    worth: [3, 5],
    name: "own (avx512, sixteen at once)",
};

/// SHA-224 and SHA-256.
pub(super) const SHA256: Routine<u32> = Routine {
    compress: sha256,
    lanes: 16,
    worth: [3, 8],
    name: "own (avx512, sixteen at once)",
};

/// SHA-384 and SHA-512.
pub(super) const SHA512: Routine<u64> = Routine {
    compress: sha512,
    lanes: 8,
    worth: [2, 2],
    name: "own (avx512, eight at once)",
};

#[target_feature(enable = "avx512f,avx512bw")]
unsafe extern "C" fn sha1(
    states: &mut States<u32>,
    at: &mut [*const u8; MAX_LANES],
    step: &[usize; MAX_LANES],
    blocks: usize,
) {
    // SAFETY: the features are the caller's, each row of the states has 64 bytes, and the blocks can be read.
    unsafe {
        let mut state: [Words32; 5] = core::array::from_fn(|word| Words32::load(&states.0[word]));
        for _ in 0..blocks {
            sha1::block(&mut state, &mut words32(at));
            advance(at, step);
        }
        for (word, row) in state.iter().zip(&mut states.0) {
            _mm512_storeu_si512(row.as_mut_ptr().cast(), word.0);
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
unsafe extern "C" fn sha256(
    states: &mut States<u32>,
    at: &mut [*const u8; MAX_LANES],
    step: &[usize; MAX_LANES],
    blocks: usize,
) {
    // SAFETY: the features are the caller's, each row of the states has 64 bytes, and the blocks can be read.
    unsafe {
        let mut state: [Words32; 8] = core::array::from_fn(|word| Words32::load(&states.0[word]));
        for _ in 0..blocks {
            sha2::block(&mut state, &mut words32(at));
            advance(at, step);
        }
        for (word, row) in state.iter().zip(&mut states.0) {
            _mm512_storeu_si512(row.as_mut_ptr().cast(), word.0);
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
unsafe extern "C" fn sha512(
    states: &mut States<u64>,
    at: &mut [*const u8; MAX_LANES],
    step: &[usize; MAX_LANES],
    blocks: usize,
) {
    // SAFETY: the features are the caller's, each row of the states has 128 bytes, and the blocks can be read.
    unsafe {
        let mut state: [Words64; 8] = core::array::from_fn(|word| {
            Words64(_mm512_loadu_si512(states.0[word].as_ptr().cast()))
        });
        for _ in 0..blocks {
            sha2::block(&mut state, &mut words64(at));
            advance(at, step);
        }
        for (word, row) in state.iter().zip(&mut states.0) {
            _mm512_storeu_si512(row.as_mut_ptr().cast(), word.0);
        }
    }
}

#[inline(always)]
fn advance(at: &mut [*const u8; MAX_LANES], step: &[usize; MAX_LANES]) {
    for (at, step) in at.iter_mut().zip(step) {
        *at = at.wrapping_add(*step);
    }
}

/// Loads a block for each lane, one register for each word.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn words32(at: &[*const u8; MAX_LANES]) -> [Words32; 16] {
    let mut rows = [_mm512_setzero_si512(); 16];
    for (row, at) in rows.iter_mut().zip(at) {
        // SAFETY: the caller's promise: blocks have 64 bytes.
        *row = unsafe { _mm512_loadu_si512(at.cast()) };
    }
    let (low, high) = transpose::words32(rows);
    let swap = _mm512_broadcast_i32x4(_mm_set_epi8(
        12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3,
    ));
    let mut words = [Words32(swap); 16];
    for word in 0..8 {
        words[word] = Words32(_mm512_shuffle_epi8(low[word], swap));
        words[word + 8] = Words32(_mm512_shuffle_epi8(high[word], swap));
    }
    words
}

/// Loads blocks of 128 bytes as words of 64 bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn words64(at: &[*const u8; MAX_LANES]) -> [Words64; 16] {
    let swap = _mm512_broadcast_i32x4(_mm_set_epi8(
        8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7,
    ));
    let mut words = [Words64(swap); 16];
    for half in 0..2 {
        let mut rows = [swap; 8];
        for (row, at) in rows.iter_mut().zip(at) {
            // SAFETY: the caller's promise.
            *row = unsafe { _mm512_loadu_si512(at.add(64 * half).cast()) };
        }
        for (word, row) in words[8 * half..].iter_mut().zip(transpose::words64(rows)) {
            *word = Words64(_mm512_shuffle_epi8(row, swap));
        }
    }
    words
}

/// Sixteen lanes, with the functions of SHA-1 and SHA-256.
#[derive(Clone, Copy)]
struct Words32(__m512i);

/// Eight lanes, with the functions of SHA-512.
#[derive(Clone, Copy)]
struct Words64(__m512i);

/// The truth tables of `vpternlog`, with the first operand as its highest bit.
const CHOOSE: i32 = 0xca;
const MAJORITY: i32 = 0xe8;
const XOR3: i32 = 0x96;

impl Words32 {
    #[inline(always)]
    unsafe fn load(row: &[u32; 16]) -> Self {
        // SAFETY: the caller has the features, and the row 64 bytes.
        unsafe { Self(_mm512_loadu_si512(row.as_ptr().cast())) }
    }
}

// SAFETY (all functions): the traits ask the caller for the features.
impl sha1::Vector for Words32 {
    #[inline(always)]
    unsafe fn splat(word: u32) -> Self {
        // SAFETY: see above.
        unsafe { Self(_mm512_set1_epi32(word as i32)) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: see above.
        unsafe { Self(_mm512_add_epi32(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: see above.
        unsafe { Self(_mm512_xor_si512(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn rotate_left<const LEFT: i32, const RIGHT: i32>(self) -> Self {
        // SAFETY: see above.
        unsafe { Self(_mm512_rol_epi32::<LEFT>(self.0)) }
    }

    #[inline(always)]
    unsafe fn choose(self, x: Self, y: Self) -> Self {
        // SAFETY: see above.
        unsafe { Self(_mm512_ternarylogic_epi32::<CHOOSE>(self.0, x.0, y.0)) }
    }

    #[inline(always)]
    unsafe fn majority(self, x: Self, y: Self) -> Self {
        // SAFETY: see above.
        unsafe { Self(_mm512_ternarylogic_epi32::<MAJORITY>(self.0, x.0, y.0)) }
    }

    #[inline(always)]
    unsafe fn xor3(self, x: Self, y: Self) -> Self {
        // SAFETY: see above.
        unsafe { Self(_mm512_ternarylogic_epi32::<XOR3>(self.0, x.0, y.0)) }
    }
}

macro_rules! sha2_vector {
    (
        $vector:ident, $word:ty, $rounds:literal, $shift:literal, $splat:ident, $signed:ty, $add:ident, $rotate:ident,
        $right:ident, $ternary:ident, $big0:expr, $big1:expr, $small0:expr, $small1:expr
    ) => {
        // SAFETY (all functions): the trait asks the caller for the features.
        impl sha2::Vector for $vector {
            const ROUNDS: usize = $rounds;

            #[inline(always)]
            // With words as long as the constants this cast is trivial.
            #[allow(trivial_numeric_casts)]
            unsafe fn constant(round: usize) -> Self {
                let word = (sha2::CONSTANTS[round] >> $shift) as $word;
                // SAFETY: see above.
                unsafe { Self($splat(word as $signed)) }
            }

            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                // SAFETY: see above.
                unsafe { Self($add(self.0, other.0)) }
            }

            #[inline(always)]
            unsafe fn choose(self, x: Self, y: Self) -> Self {
                // SAFETY: see above.
                unsafe { Self($ternary::<CHOOSE>(self.0, x.0, y.0)) }
            }

            #[inline(always)]
            unsafe fn majority(self, x: Self, y: Self) -> Self {
                // SAFETY: see above.
                unsafe { Self($ternary::<MAJORITY>(self.0, x.0, y.0)) }
            }

            #[inline(always)]
            unsafe fn big0(self) -> Self {
                let x = self.0;
                // SAFETY: see above.
                unsafe {
                    Self($ternary::<XOR3>(
                        $rotate::<{ $big0[0] }>(x),
                        $rotate::<{ $big0[1] }>(x),
                        $rotate::<{ $big0[2] }>(x),
                    ))
                }
            }

            #[inline(always)]
            unsafe fn big1(self) -> Self {
                let x = self.0;
                // SAFETY: see above.
                unsafe {
                    Self($ternary::<XOR3>(
                        $rotate::<{ $big1[0] }>(x),
                        $rotate::<{ $big1[1] }>(x),
                        $rotate::<{ $big1[2] }>(x),
                    ))
                }
            }

            #[inline(always)]
            unsafe fn small0(self) -> Self {
                let x = self.0;
                // SAFETY: see above.
                unsafe {
                    Self($ternary::<XOR3>(
                        $rotate::<{ $small0[0] }>(x),
                        $rotate::<{ $small0[1] }>(x),
                        $right::<{ $small0[2] as u32 }>(x),
                    ))
                }
            }

            #[inline(always)]
            unsafe fn small1(self) -> Self {
                let x = self.0;
                // SAFETY: see above.
                unsafe {
                    Self($ternary::<XOR3>(
                        $rotate::<{ $small1[0] }>(x),
                        $rotate::<{ $small1[1] }>(x),
                        $right::<{ $small1[2] as u32 }>(x),
                    ))
                }
            }
        }
    };
}

#[rustfmt::skip]
sha2_vector!(
    Words32, u32, 64, 32, _mm512_set1_epi32, i32, _mm512_add_epi32, _mm512_ror_epi32,
    _mm512_srli_epi32, _mm512_ternarylogic_epi32, [2, 13, 22], [6, 11, 25], [7, 18, 3], [17, 19, 10]
);

#[rustfmt::skip]
sha2_vector!(
    Words64, u64, 80, 0, _mm512_set1_epi64, i64, _mm512_add_epi64, _mm512_ror_epi64,
    _mm512_srli_epi64, _mm512_ternarylogic_epi64, [28, 34, 39], [14, 18, 41], [1, 8, 7], [19, 61, 6]
);
