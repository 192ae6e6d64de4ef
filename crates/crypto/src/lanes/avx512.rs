//! Sixteen lanes of 32 bits, or eight of 64, on AVX-512.

use core::arch::x86_64::*;

use super::routine::{MAX_LANES, Routine, Set, States};
use super::vectors::{compress, sha2_vector, sigmas};
use super::{sha1, sha2};
use crate::avx512::transpose;

/// AVX-512: sixteen lanes, or eight of SHA-512's.
pub(crate) const SET: Set = Set {
    is_present: || is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw"),
    sha1: Routine {
        compress: sha1,
        lanes: 16,
        worth: [3, 5],
        name: "own (avx512, sixteen at once)",
    },
    sha256: Routine {
        compress: sha256,
        lanes: 16,
        worth: [3, 8],
        name: "own (avx512, sixteen at once)",
    },
    sha512: Some(Routine {
        compress: sha512,
        lanes: 8,
        worth: [2, 2],
        name: "own (avx512, eight at once)",
    }),
};

compress! {
    "avx512f,avx512bw", _mm512_loadu_si512, _mm512_storeu_si512;
    sha1: [Words32; 5] of u32, words32, sha1::block;
    sha256: [Words32; 8] of u32, words32, sha2::block;
    sha512: [Words64; 8] of u64, words64, sha2::block;
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

// SAFETY (all functions): the trait asks the caller for the features.
impl sha1::Vector for Words32 {
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: see above.
        unsafe { Self(_mm512_xor_si512(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn xor3(self, x: Self, y: Self) -> Self {
        // SAFETY: see above.
        unsafe { Self(_mm512_ternarylogic_epi32::<XOR3>(self.0, x.0, y.0)) }
    }

    #[inline(always)]
    unsafe fn rotate_left<const LEFT: i32, const RIGHT: i32>(self) -> Self {
        // SAFETY: see above.
        unsafe { Self(_mm512_rol_epi32::<LEFT>(self.0)) }
    }
}

macro_rules! sigma {
    ($x:expr, rotation, $by:tt, $rotate:ident, $shift:ident, $ternary:ident) => {
        sigma!($x, $by, $rotate, $rotate, $ternary)
    };
    ($x:expr, shift, $by:tt, $rotate:ident, $shift:ident, $ternary:ident) => {
        sigma!($x, $by, $rotate, $shift, $ternary)
    };
    ($x:expr, [$a:literal, $b:literal, $c:literal], $rotate:ident, $last:ident, $ternary:ident) => {
        // SAFETY: the trait asks the caller for the features.
        unsafe { $ternary::<XOR3>($rotate::<$a>($x), $rotate::<$b>($x), $last::<$c>($x)) }
    };
}

sha2_vector!(
    Words32,
    u32 as i32,
    _mm512_set1_epi32,
    _mm512_add_epi32,
    _mm512_ternarylogic_epi32::<CHOOSE>,
    _mm512_ternarylogic_epi32::<MAJORITY>,
    sigma(
        _mm512_ror_epi32,
        _mm512_srli_epi32,
        _mm512_ternarylogic_epi32
    )
);
sha2_vector!(
    Words64,
    u64 as i64,
    _mm512_set1_epi64,
    _mm512_add_epi64,
    _mm512_ternarylogic_epi64::<CHOOSE>,
    _mm512_ternarylogic_epi64::<MAJORITY>,
    sigma(
        _mm512_ror_epi64,
        _mm512_srli_epi64,
        _mm512_ternarylogic_epi64
    )
);
