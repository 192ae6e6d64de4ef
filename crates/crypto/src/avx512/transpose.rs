//! Transposes between "a register per packet" and "a lane per packet".

use core::arch::x86_64::*;

/// Packets that are processed together.
pub(crate) const LANES: usize = 8;

/// A column of a group: 64 bytes of each packet.
pub(crate) type Rows = [__m512i; LANES];

/// Transposes an 8x8 matrix of 64-bit words, whose rows are the registers.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn words64(rows: [__m512i; 8]) -> [__m512i; 8] {
    // First pairs of rows, then quarters of registers (128 bits, as wide as a pair) at distances 2 and 1.
    let mut pairs = rows;
    for i in [0, 2, 4, 6] {
        pairs[i] = _mm512_unpacklo_epi64(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_epi64(rows[i], rows[i + 1]);
    }
    let [a, b, c, d] = quarters([pairs[0], pairs[2], pairs[4], pairs[6]]);
    let [e, f, g, h] = quarters([pairs[1], pairs[3], pairs[5], pairs[7]]);
    [a, e, b, f, c, g, d, h]
}

/// Transposes a 16x16 matrix of 32-bit words, whose rows are the registers.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn words32(rows: [__m512i; 16]) -> ([__m512i; 8], [__m512i; 8]) {
    let mut fours = rows;
    for i in [0, 4, 8, 12] {
        let (low, high) = (
            [
                _mm512_unpacklo_epi32(rows[i], rows[i + 1]),
                _mm512_unpacklo_epi32(rows[i + 2], rows[i + 3]),
            ],
            [
                _mm512_unpackhi_epi32(rows[i], rows[i + 1]),
                _mm512_unpackhi_epi32(rows[i + 2], rows[i + 3]),
            ],
        );
        // Quarter q of `fours[i + k]` has the words i..i + 4 of column 4q + k.
        fours[i] = _mm512_unpacklo_epi64(low[0], low[1]);
        fours[i + 1] = _mm512_unpackhi_epi64(low[0], low[1]);
        fours[i + 2] = _mm512_unpacklo_epi64(high[0], high[1]);
        fours[i + 3] = _mm512_unpackhi_epi64(high[0], high[1]);
    }
    let [a0, a4, a8, a12] = quarters([fours[0], fours[4], fours[8], fours[12]]);
    let [a1, a5, a9, a13] = quarters([fours[1], fours[5], fours[9], fours[13]]);
    let [a2, a6, a10, a14] = quarters([fours[2], fours[6], fours[10], fours[14]]);
    let [a3, a7, a11, a15] = quarters([fours[3], fours[7], fours[11], fours[15]]);
    (
        [a0, a1, a2, a3, a4, a5, a6, a7],
        [a8, a9, a10, a11, a12, a13, a14, a15],
    )
}

/// Transposes a 4x4 matrix of 128-bit words, whose rows are the registers.
#[inline]
#[target_feature(enable = "avx512f")]
fn quarters([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    // 0x88 takes quarters 0 and 2 of both, 0xdd quarters 1 and 3.
    let ab = [
        _mm512_shuffle_i32x4::<0x88>(a, b),
        _mm512_shuffle_i32x4::<0xdd>(a, b),
    ];
    let cd = [
        _mm512_shuffle_i32x4::<0x88>(c, d),
        _mm512_shuffle_i32x4::<0xdd>(c, d),
    ];
    [
        _mm512_shuffle_i32x4::<0x88>(ab[0], cd[0]),
        _mm512_shuffle_i32x4::<0x88>(ab[1], cd[1]),
        _mm512_shuffle_i32x4::<0xdd>(ab[0], cd[0]),
        _mm512_shuffle_i32x4::<0xdd>(ab[1], cd[1]),
    ]
}
