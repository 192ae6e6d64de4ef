//! Eight lanes of 32 bits, or four of 64, on AVX2.

use core::arch::x86_64::*;

use super::routine::{MAX_LANES, Routine, Set, States};
use super::vectors::{compress, sha2_vector, sigmas};
use super::{sha1, sha2};

/// AVX2: eight lanes, or four of SHA-512's.
pub(crate) const SET: Set = Set {
    is_present: || is_x86_feature_detected!("avx2"),
    sha1: Routine {
        compress: sha1,
        lanes: 8,
        worth: [3, 5],
        name: "own (avx2, eight at once)",
    },
    sha256: Routine {
        compress: sha256,
        lanes: 8,
        worth: [3, 8],
        name: "own (avx2, eight at once)",
    },
    sha512: Some(Routine {
        compress: sha512,
        lanes: 4,
        worth: [3, 3],
        name: "own (avx2, four at once)",
    }),
};

compress! {
    "avx2", _mm256_load_si256, _mm256_store_si256;
    sha1: [Words32; 5] of u32, words32, sha1::block;
    sha256: [Words32; 8] of u32, words32, sha2::block;
    sha512: [Words64; 8] of u64, words64, sha2::block;
}

/// Loads a block for each of eight lanes, one register for each word.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn words32(at: &[*const u8; MAX_LANES]) -> [Words32; 16] {
    let swap = _mm256_broadcastsi128_si256(_mm_set_epi8(
        12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3,
    ));
    let mut words = [Words32(swap); 16];
    for half in 0..2 {
        let mut rows = [swap; 8];
        for (row, at) in rows.iter_mut().zip(at) {
            // SAFETY: the caller's promise: blocks have 64 bytes.
            *row = unsafe { _mm256_loadu_si256(at.add(32 * half).cast()) };
        }
        // Transposes pairs of rows, then pairs of pairs, then halves of registers.
        let mut fours = rows;
        for i in [0, 4] {
            let low = [
                _mm256_unpacklo_epi32(rows[i], rows[i + 1]),
                _mm256_unpacklo_epi32(rows[i + 2], rows[i + 3]),
            ];
            let high = [
                _mm256_unpackhi_epi32(rows[i], rows[i + 1]),
                _mm256_unpackhi_epi32(rows[i + 2], rows[i + 3]),
            ];
            fours[i] = _mm256_unpacklo_epi64(low[0], low[1]);
            fours[i + 1] = _mm256_unpackhi_epi64(low[0], low[1]);
            fours[i + 2] = _mm256_unpacklo_epi64(high[0], high[1]);
            fours[i + 3] = _mm256_unpackhi_epi64(high[0], high[1]);
        }
        for i in 0..4 {
            let low = _mm256_permute2x128_si256::<0x20>(fours[i], fours[i + 4]);
            let high = _mm256_permute2x128_si256::<0x31>(fours[i], fours[i + 4]);
            words[8 * half + i] = Words32(_mm256_shuffle_epi8(low, swap));
            words[8 * half + 4 + i] = Words32(_mm256_shuffle_epi8(high, swap));
        }
    }
    words
}

/// Loads words of 64 bits, four lanes and blocks of 128 bytes.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn words64(at: &[*const u8; MAX_LANES]) -> [Words64; 16] {
    let swap = _mm256_broadcastsi128_si256(_mm_set_epi8(
        8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7,
    ));
    let mut words = [Words64(swap); 16];
    for quarter in 0..4 {
        let mut rows = [swap; 4];
        for (row, at) in rows.iter_mut().zip(at) {
            // SAFETY: the caller's promise.
            *row = unsafe { _mm256_loadu_si256(at.add(32 * quarter).cast()) };
        }
        let [a, b, c, d] = rows;
        let (ab, cd) = (_mm256_unpacklo_epi64(a, b), _mm256_unpacklo_epi64(c, d));
        let (ab2, cd2) = (_mm256_unpackhi_epi64(a, b), _mm256_unpackhi_epi64(c, d));
        let columns = [
            _mm256_permute2x128_si256::<0x20>(ab, cd),
            _mm256_permute2x128_si256::<0x20>(ab2, cd2),
            _mm256_permute2x128_si256::<0x31>(ab, cd),
            _mm256_permute2x128_si256::<0x31>(ab2, cd2),
        ];
        for (word, column) in words[4 * quarter..].iter_mut().zip(columns) {
            *word = Words64(_mm256_shuffle_epi8(column, swap));
        }
    }
    words
}

/// Eight lanes, with the functions of SHA-1 and SHA-256.
#[derive(Clone, Copy)]
struct Words32(__m256i);

/// Four lanes, with the functions of SHA-512.
#[derive(Clone, Copy)]
struct Words64(__m256i);

#[inline]
#[target_feature(enable = "avx2")]
fn choose(bits: __m256i, x: __m256i, y: __m256i) -> __m256i {
    _mm256_xor_si256(y, _mm256_and_si256(bits, _mm256_xor_si256(x, y)))
}

#[inline]
#[target_feature(enable = "avx2")]
fn majority(x: __m256i, y: __m256i, z: __m256i) -> __m256i {
    // The two products exclude each other, so OR, XOR and addition give equal results.
    _mm256_or_si256(
        _mm256_and_si256(x, y),
        _mm256_and_si256(z, _mm256_xor_si256(x, y)),
    )
}

#[inline]
#[target_feature(enable = "avx2")]
fn xor3(x: __m256i, y: __m256i, z: __m256i) -> __m256i {
    _mm256_xor_si256(_mm256_xor_si256(x, y), z)
}

// SAFETY (all functions): the trait asks the caller for the features.
impl sha1::Vector for Words32 {
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: see above.
        unsafe { Self(_mm256_xor_si256(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn xor3(self, x: Self, y: Self) -> Self {
        // SAFETY: see above.
        unsafe { Self(xor3(self.0, x.0, y.0)) }
    }

    #[inline(always)]
    unsafe fn rotate_left<const LEFT: i32, const RIGHT: i32>(self) -> Self {
        // SAFETY: see above.
        unsafe {
            Self(_mm256_or_si256(
                _mm256_slli_epi32::<LEFT>(self.0),
                _mm256_srli_epi32::<RIGHT>(self.0),
            ))
        }
    }
}

macro_rules! sigma {
    ($x:expr, $last:ident, [$a:literal, $b:literal, $c:literal], $bits:literal, $left:ident, $right:ident) => {
        // SAFETY: the trait asks the caller for the features.
        unsafe {
            let right = xor3($right::<$a>($x), $right::<$b>($x), $right::<$c>($x));
            let left = _mm256_xor_si256($left::<{ $bits - $a }>($x), $left::<{ $bits - $b }>($x));
            let both = _mm256_xor_si256(left, right);
            sigma!(@$last both, $left::<{ $bits - $c }>($x))
        }
    };
    (@rotation $both:expr, $left:expr) => {
        _mm256_xor_si256($both, $left)
    };
    (@shift $both:expr, $left:expr) => {
        $both
    };
}

sha2_vector!(
    Words32,
    u32 as i32,
    _mm256_set1_epi32,
    _mm256_add_epi32,
    choose,
    majority,
    sigma(32, _mm256_slli_epi32, _mm256_srli_epi32)
);
sha2_vector!(
    Words64,
    u64 as i64,
    _mm256_set1_epi64x,
    _mm256_add_epi64,
    choose,
    majority,
    sigma(64, _mm256_slli_epi64, _mm256_srli_epi64)
);
