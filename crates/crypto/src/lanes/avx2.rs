//! Eight lanes of 32 bits, or four of 64, on AVX2.

use core::arch::x86_64::*;

use super::{MAX_LANES, Routine, States, sha1, sha2};

/// SHA-1.
pub(super) const SHA1: Routine<u32> = Routine {
    compress: sha1,
    lanes: 8,
    worth: [3, 5],
    name: "own (avx2, eight at once)",
};

/// SHA-224 and SHA-256.
pub(super) const SHA256: Routine<u32> = Routine {
    compress: sha256,
    lanes: 8,
    worth: [3, 8],
    name: "own (avx2, eight at once)",
};

/// SHA-384 and SHA-512.
pub(super) const SHA512: Routine<u64> = Routine {
    compress: sha512,
    lanes: 4,
    worth: [3, 3],
    name: "own (avx2, four at once)",
};

macro_rules! compress {
    ($name:ident, $word:ty, $vector:ident, $words:expr, $block:path, $load:ident) => {
        #[target_feature(enable = "avx2")]
        unsafe extern "C" fn $name(
            states: &mut States<$word>,
            at: &mut [*const u8; MAX_LANES],
            step: &[usize; MAX_LANES],
            blocks: usize,
        ) {
            // SAFETY: the features are the caller's, each row of the states has at least 64 bytes, and the blocks can be read.
            unsafe {
                let mut state: [$vector; $words] = core::array::from_fn(|word| {
                    $vector(_mm256_load_si256(states.0[word].as_ptr().cast()))
                });
                for _ in 0..blocks {
                    $block(&mut state, &mut $load(at));
                    for (at, step) in at.iter_mut().zip(step) {
                        *at = at.wrapping_add(*step);
                    }
                }
                for (word, row) in state.iter().zip(&mut states.0) {
                    _mm256_store_si256(row.as_mut_ptr().cast(), word.0);
                }
            }
        }
    };
}

compress!(sha1, u32, Words32, 5, sha1::block, words32);
compress!(sha256, u32, Words32, 8, sha2::block, words32);
compress!(sha512, u64, Words64, 8, sha2::block, words64);

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

// SAFETY (all functions): the traits ask the caller for the features.
impl sha1::Vector for Words32 {
    #[inline(always)]
    unsafe fn splat(word: u32) -> Self {
        // SAFETY: see above.
        unsafe { Self(_mm256_set1_epi32(word as i32)) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: see above.
        unsafe { Self(_mm256_add_epi32(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: see above.
        unsafe { Self(_mm256_xor_si256(self.0, other.0)) }
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

    #[inline(always)]
    unsafe fn choose(self, x: Self, y: Self) -> Self {
        // SAFETY: see above.
        unsafe { Self(choose(self.0, x.0, y.0)) }
    }

    #[inline(always)]
    unsafe fn majority(self, x: Self, y: Self) -> Self {
        // SAFETY: see above.
        unsafe { Self(majority(self.0, x.0, y.0)) }
    }

    #[inline(always)]
    unsafe fn xor3(self, x: Self, y: Self) -> Self {
        // SAFETY: see above.
        unsafe { Self(xor3(self.0, x.0, y.0)) }
    }
}

macro_rules! sha2_vector {
    (
        $vector:ident, $word:ty, $rounds:literal, $bits:literal, $shift:literal, $splat:ident, $signed:ty, $add:ident,
        $left:ident, $right:ident, $big0:expr, $big1:expr, $small0:expr, $small1:expr
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
                unsafe { Self(choose(self.0, x.0, y.0)) }
            }

            #[inline(always)]
            unsafe fn majority(self, x: Self, y: Self) -> Self {
                // SAFETY: see above.
                unsafe { Self(majority(self.0, x.0, y.0)) }
            }

            sha2_vector!(@sigma big0, $bits, $left, $right, $big0, true);
            sha2_vector!(@sigma big1, $bits, $left, $right, $big1, true);
            sha2_vector!(@sigma small0, $bits, $left, $right, $small0, false);
            sha2_vector!(@sigma small1, $bits, $left, $right, $small1, false);
        }
    };
    // Three rotations; or two rotations and a shift.
    (@sigma $name:ident, $bits:literal, $left:ident, $right:ident, $by:expr, $rotates:literal) => {
        #[inline(always)]
        unsafe fn $name(self) -> Self {
            let x = self.0;
            // SAFETY: see above.
            unsafe {
                let right = xor3(
                    $right::<{ $by[0] }>(x),
                    $right::<{ $by[1] }>(x),
                    $right::<{ $by[2] }>(x),
                );
                let left = _mm256_xor_si256(
                    $left::<{ $bits - $by[0] }>(x),
                    $left::<{ $bits - $by[1] }>(x),
                );
                let both = _mm256_xor_si256(left, right);
                if $rotates {
                    Self(_mm256_xor_si256(both, $left::<{ $bits - $by[2] }>(x)))
                } else {
                    Self(both)
                }
            }
        }
    };
}

#[rustfmt::skip]
sha2_vector!(
    Words32, u32, 64, 32, 32, _mm256_set1_epi32, i32, _mm256_add_epi32, _mm256_slli_epi32,
    _mm256_srli_epi32, [2, 13, 22], [6, 11, 25], [7, 18, 3], [17, 19, 10]
);

#[rustfmt::skip]
sha2_vector!(
    Words64, u64, 80, 64, 0, _mm256_set1_epi64x, i64, _mm256_add_epi64, _mm256_slli_epi64,
    _mm256_srli_epi64, [28, 34, 39], [14, 18, 41], [1, 8, 7], [19, 61, 6]
);
