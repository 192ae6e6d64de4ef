//! ChaCha20's keystream: 16 blocks at a time, two of each packet of a group.

use core::arch::x86_64::*;

use super::transpose::{self, LANES, Rows};

/// "expand 32-byte k".
const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// A key and the nonces of a group, or of two.
pub(super) struct ChaCha20<'a> {
    key: &'a [u32; 8],
    /// The words 13 to 15 of the state.
    nonces: [__m512i; 3],
    /// How far the counters of lanes 8 to 15 are ahead of the others.
    ahead: __m512i,
}

impl<'a> ChaCha20<'a> {
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn new(key: &'a [u32; 8], nonces: &[[u8; 12]; LANES]) -> Self {
        let second = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
        Self::with(key, [nonces, nonces], second)
    }

    /// For two groups, whose blocks come in pairs with equal counters.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn of_two(key: &'a [u32; 8], nonces: [&[[u8; 12]; LANES]; 2]) -> Self {
        Self::with(key, nonces, _mm512_setzero_si512())
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn with(key: &'a [u32; 8], nonces: [&[[u8; 12]; LANES]; 2], ahead: __m512i) -> Self {
        let mut words = [[0_u32; 2 * LANES]; 3];
        for (lane, nonce) in nonces.into_iter().flatten().enumerate() {
            for (word, bytes) in nonce.as_chunks::<4>().0.iter().enumerate() {
                words[word][lane] = u32::from_le_bytes(*bytes);
            }
        }
        // SAFETY: each of `words` holds 64 bytes.
        let nonces = unsafe {
            [
                _mm512_loadu_si512(words[0].as_ptr().cast()),
                _mm512_loadu_si512(words[1].as_ptr().cast()),
                _mm512_loadu_si512(words[2].as_ptr().cast()),
            ]
        };
        Self { key, nonces, ahead }
    }

    /// The blocks `counter` and `counter + 1` of each packet; for two groups, the block `counter` of the first and of
    /// the second.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn blocks(&self, counter: u32) -> (Rows, Rows) {
        let mut start = [_mm512_setzero_si512(); 16];
        for i in 0..4 {
            start[i] = _mm512_set1_epi32(CONSTANTS[i] as i32);
        }
        for i in 0..8 {
            start[4 + i] = _mm512_set1_epi32(self.key[i] as i32);
        }
        start[12] = _mm512_add_epi32(_mm512_set1_epi32(counter as i32), self.ahead);
        start[13] = self.nonces[0];
        start[14] = self.nonces[1];
        start[15] = self.nonces[2];

        let [
            a0,
            a1,
            a2,
            a3,
            b0,
            b1,
            b2,
            b3,
            c0,
            c1,
            c2,
            c3,
            d0,
            d1,
            d2,
            d3,
        ] = start;
        let mut state = State {
            a: [a0, a1, a2, a3],
            b: [b0, b1, b2, b3],
            c: [c0, c1, c2, c3],
            d: [d0, d1, d2, d3],
        };
        for _ in 0..10 {
            state = state.round().turned().round().turned_back();
        }
        let State { a, b, c, d } = state;
        let mut end = [
            a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3], c[0], c[1], c[2], c[3], d[0], d[1],
            d[2], d[3],
        ];
        for i in 0..16 {
            end[i] = _mm512_add_epi32(end[i], start[i]);
        }
        transpose::words32(end)
    }
}

/// The 4x4 matrix of 32-bit words, by rows: 16 matrices, one in each lane.
///
/// Functions pass it by value so that it stays in registers.
struct State {
    a: [__m512i; 4],
    b: [__m512i; 4],
    c: [__m512i; 4],
    d: [__m512i; 4],
}

impl State {
    /// A quarter round on each column. The four run interleaved because each is one long dependency chain.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn round(self) -> Self {
        let Self { a, b, c, d } = self;
        let (a, d) = half_turn::<16>(a, b, d);
        let (c, b) = half_turn::<12>(c, d, b);
        let (a, d) = half_turn::<8>(a, b, d);
        let (c, b) = half_turn::<7>(c, d, b);
        Self { a, b, c, d }
    }

    /// Makes diagonals into columns, by renaming only.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn turned(self) -> Self {
        let Self { a, b, c, d } = self;
        Self {
            a,
            b: [b[1], b[2], b[3], b[0]],
            c: [c[2], c[3], c[0], c[1]],
            d: [d[3], d[0], d[1], d[2]],
        }
    }

    /// The reverse of `turned`.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn turned_back(self) -> Self {
        let Self { a, b, c, d } = self;
        Self {
            a,
            b: [b[3], b[0], b[1], b[2]],
            c: [c[2], c[3], c[0], c[1]],
            d: [d[1], d[2], d[3], d[0]],
        }
    }
}

/// `x += y; z = (z ^ x) <<< BITS` in every column; returns `x` and `z`.
#[inline]
#[target_feature(enable = "avx512f")]
fn half_turn<const BITS: i32>(
    mut x: [__m512i; 4],
    y: [__m512i; 4],
    mut z: [__m512i; 4],
) -> ([__m512i; 4], [__m512i; 4]) {
    for i in 0..4 {
        x[i] = _mm512_add_epi32(x[i], y[i]);
    }
    for i in 0..4 {
        z[i] = _mm512_rol_epi32::<BITS>(_mm512_xor_si512(z[i], x[i]));
    }
    (x, z)
}
