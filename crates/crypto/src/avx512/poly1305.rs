//! Poly1305 of eight messages of one length, one in each 64-bit lane.
//!
//! Numbers are three limbs of 44, 44 and 42 bits, so that IFMA's 52x52-bit products leave room for sums. A step takes
//! up to four blocks: `(h + m0) r^4 + m1 r^3 + m2 r^2 + m3 r`. Only its first product waits for the step before.

use core::arch::x86_64::*;

use super::transpose::LANES;
use crate::TAG_LEN;

type Limbs = [__m512i; 3];

/// A power of r and the multiples of its limbs that wrap around: 2^132 is 20 modulo 2^130 - 5.
#[derive(Clone, Copy)]
struct Power {
    limbs: Limbs,
    /// 20 times the limbs 1 and 2.
    wrapped: [__m512i; 2],
}

/// State of eight unfinished messages.
pub(super) struct Poly1305 {
    /// The accumulator, each limb less than 2^45.
    h: Limbs,
    /// r, r^2, r^3, r^4.
    powers: [Power; 4],
    s: [__m512i; 2],
}

impl Poly1305 {
    /// Takes r and s from the first four 64-bit words of each packet's key block.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn new(key: &[__m512i; 8]) -> Self {
        let low = _mm512_and_si512(key[0], _mm512_set1_epi64(0x0fff_fffc_0fff_ffff));
        let high = _mm512_and_si512(key[1], _mm512_set1_epi64(0x0fff_fffc_0fff_fffc));
        let r = Power::new(limbs([low, high]));
        let r2 = Power::new(product(r.limbs, &r));
        let r3 = Power::new(product(r2.limbs, &r));
        let r4 = Power::new(product(r2.limbs, &r2));
        Self {
            h: [_mm512_setzero_si512(); 3],
            powers: [r, r2, r3, r4],
            s: [key[2], key[3]],
        }
    }

    /// Absorbs `len` bytes of `memory` for each message, from the start of its lane, padded with zeros to whole blocks.
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn absorb(&mut self, memory: &[u8], starts: &[usize; LANES], len: usize) {
        for at in (0..len).step_by(16) {
            let bytes = (len - at).min(16);
            let mut words = [[0_u64; LANES]; 2];
            for (lane, start) in starts.iter().enumerate() {
                let mut block = [0; 16];
                block[..bytes].copy_from_slice(&memory[start + at..][..bytes]);
                let block = u128::from_le_bytes(block);
                words[0][lane] = block as u64;
                words[1][lane] = (block >> 64) as u64;
            }
            // SAFETY: each holds 64 bytes.
            let block = unsafe {
                [
                    _mm512_loadu_si512(words[0].as_ptr().cast()),
                    _mm512_loadu_si512(words[1].as_ptr().cast()),
                ]
            };
            self.step([block]);
        }
    }

    /// Absorbs the next one to four blocks of every message, each as its low and its high 64 bits.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn step<const N: usize>(&mut self, blocks: [[__m512i; 2]; N]) {
        let mut sums = Sums::zero();
        // Backwards: the product that needs `h` comes last, so the others need not wait for it.
        for i in (0..N).rev() {
            let mut m = limbs(blocks[i]);
            // Sets 2^128, the bit after a whole block.
            m[2] = _mm512_or_si512(m[2], _mm512_set1_epi64(1 << 40));
            if i == 0 {
                for (limb, h) in m.iter_mut().zip(self.h) {
                    *limb = _mm512_add_epi64(*limb, h);
                }
            }
            sums.add_product(m, &self.powers[N - 1 - i]);
        }
        self.h = sums.carried();
    }

    /// Ends the computation and returns the tag of each packet.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn finish(self) -> [[u8; TAG_LEN]; LANES] {
        let (mask44, mask42) = (_mm512_set1_epi64(MASK44), _mm512_set1_epi64(MASK42));
        let [mut h0, mut h1, mut h2] = self.h;
        // Carries twice, because a carry that wraps around can run through all limbs again.
        for _ in 0..2 {
            h1 = _mm512_add_epi64(h1, _mm512_srli_epi64::<44>(h0));
            h0 = _mm512_and_si512(h0, mask44);
            h2 = _mm512_add_epi64(h2, _mm512_srli_epi64::<44>(h1));
            h1 = _mm512_and_si512(h1, mask44);
            h0 = _mm512_add_epi64(h0, times5(_mm512_srli_epi64::<42>(h2)));
            h2 = _mm512_and_si512(h2, mask42);
        }
        h1 = _mm512_add_epi64(h1, _mm512_srli_epi64::<44>(h0));
        h0 = _mm512_and_si512(h0, mask44);

        // h - (2^130 - 5), used unless it is negative.
        let g0 = _mm512_add_epi64(h0, _mm512_set1_epi64(5));
        let g1 = _mm512_add_epi64(h1, _mm512_srli_epi64::<44>(g0));
        let g2 = _mm512_add_epi64(h2, _mm512_srli_epi64::<44>(g1));
        let g2 = _mm512_sub_epi64(g2, _mm512_set1_epi64(1 << 42));
        let negative = _mm512_cmplt_epi64_mask(g2, _mm512_setzero_si512());
        h0 = _mm512_mask_mov_epi64(_mm512_and_si512(g0, mask44), negative, h0);
        h1 = _mm512_mask_mov_epi64(_mm512_and_si512(g1, mask44), negative, h1);
        h2 = _mm512_mask_mov_epi64(g2, negative, h2);

        let low = _mm512_or_si512(h0, _mm512_slli_epi64::<44>(h1));
        let high = _mm512_or_si512(_mm512_srli_epi64::<20>(h1), _mm512_slli_epi64::<24>(h2));
        let low = _mm512_add_epi64(low, self.s[0]);
        let carry = _mm512_cmplt_epu64_mask(low, self.s[0]);
        let high = _mm512_add_epi64(high, self.s[1]);
        let high = _mm512_mask_add_epi64(high, carry, high, _mm512_set1_epi64(1));

        let mut words = [[0_u64; LANES]; 2];
        // SAFETY: each holds 64 bytes.
        unsafe {
            _mm512_storeu_si512(words[0].as_mut_ptr().cast(), low);
            _mm512_storeu_si512(words[1].as_mut_ptr().cast(), high);
        }
        let mut tags = [[0; TAG_LEN]; LANES];
        for (lane, tag) in tags.iter_mut().enumerate() {
            tag[..8].copy_from_slice(&words[0][lane].to_le_bytes());
            tag[8..].copy_from_slice(&words[1][lane].to_le_bytes());
        }
        tags
    }
}

const MASK44: i64 = (1 << 44) - 1;
const MASK42: i64 = (1 << 42) - 1;

/// Splits 128 bits into limbs.
#[inline]
#[target_feature(enable = "avx512f")]
fn limbs([low, high]: [__m512i; 2]) -> Limbs {
    let mask44 = _mm512_set1_epi64(MASK44);
    let middle = _mm512_or_si512(_mm512_srli_epi64::<44>(low), _mm512_slli_epi64::<20>(high));
    [
        _mm512_and_si512(low, mask44),
        _mm512_and_si512(middle, mask44),
        _mm512_srli_epi64::<24>(high),
    ]
}

#[inline]
#[target_feature(enable = "avx512f")]
fn times5(x: __m512i) -> __m512i {
    _mm512_add_epi64(x, _mm512_slli_epi64::<2>(x))
}

#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn product(a: Limbs, b: &Power) -> Limbs {
    let mut sums = Sums::zero();
    sums.add_product(a, b);
    sums.carried()
}

impl Power {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new(limbs: Limbs) -> Self {
        Self {
            limbs,
            wrapped: [
                _mm512_slli_epi64::<2>(times5(limbs[1])),
                _mm512_slli_epi64::<2>(times5(limbs[2])),
            ],
        }
    }
}

/// Sums of products by limb. As the instructions make them, the products' low 52 bits and the bits above are separate.
/// At most twelve products are added to each sum, so it stays below 2^56.
struct Sums {
    low: Limbs,
    high: Limbs,
}

impl Sums {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn zero() -> Self {
        Self {
            low: [_mm512_setzero_si512(); 3],
            high: [_mm512_setzero_si512(); 3],
        }
    }

    /// The limbs of `a` must be less than 2^52.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn add_product(&mut self, a: Limbs, b: &Power) {
        let [r0, r1, r2] = b.limbs;
        let [w1, w2] = b.wrapped;
        let factors = [[r0, w2, w1], [r1, r0, w2], [r2, r1, r0]];
        for i in 0..3 {
            for (limb, factors) in factors.iter().enumerate() {
                self.low[limb] = _mm512_madd52lo_epu64(self.low[limb], a[i], factors[i]);
                self.high[limb] = _mm512_madd52hi_epu64(self.high[limb], a[i], factors[i]);
            }
        }
    }

    /// The sum modulo 2^130 - 5 with limbs of 44, 44 (and a little more) and 42 bits.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn carried(self) -> Limbs {
        let (mask44, mask42) = (_mm512_set1_epi64(MASK44), _mm512_set1_epi64(MASK42));
        let [d0, d1, d2] = self.low;
        // A high part weighs 2^52 of its own limb, which is 2^8 of the next of 44 bits and 2^10 beyond one of 42.
        let [up0, up1, up2] = [
            _mm512_slli_epi64::<8>(self.high[0]),
            _mm512_slli_epi64::<8>(self.high[1]),
            _mm512_slli_epi64::<10>(self.high[2]),
        ];
        let d1 = _mm512_add_epi64(_mm512_add_epi64(d1, up0), _mm512_srli_epi64::<44>(d0));
        let d2 = _mm512_add_epi64(_mm512_add_epi64(d2, up1), _mm512_srli_epi64::<44>(d1));
        let around = _mm512_add_epi64(up2, _mm512_srli_epi64::<42>(d2));
        let d0 = _mm512_add_epi64(_mm512_and_si512(d0, mask44), times5(around));
        let d1 = _mm512_add_epi64(_mm512_and_si512(d1, mask44), _mm512_srli_epi64::<44>(d0));
        [
            _mm512_and_si512(d0, mask44),
            d1,
            _mm512_and_si512(d2, mask42),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8439, appendix A.3, vectors 7 to 11: sums at the edge of the modulus, which random texts never reach. Each
    /// is tested in all lanes, block by block and in one step.
    #[test]
    fn the_edges_of_the_modulus() {
        const ONES: u128 = u128::MAX;
        let fb = u128::from_le_bytes([
            0xfb, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe,
            0xfe, 0xfe,
        ]);
        let cases: [(u128, u128, &[u128], u128); 5] = [
            (2, 0, &[ONES], 3),
            (2, ONES, &[2], 3),
            (1, 0, &[ONES, ONES - 0x0f, 0x11], 5),
            (1, 0, &[ONES, fb, u128::from_le_bytes([1; 16])], 0),
            (2, 0, &[ONES - 2], ONES - 5),
        ];
        // A processor without IFMA uses other code, so it leaves nothing untested.
        if !is_x86_feature_detected!("avx512ifma") {
            lab::met("no AVX512-IFMA in this processor");
            return;
        }
        for (r, s, blocks, tag) in cases {
            for together in [false, true] {
                // SAFETY: the feature has just been found, and AVX512F is part of it.
                let tags = unsafe { tags(r, s, blocks, together) };
                assert_eq!(tags, [tag.to_le_bytes(); LANES], "{blocks:x?}");
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512ifma")]
    fn tags(r: u128, s: u128, blocks: &[u128], together: bool) -> [[u8; TAG_LEN]; LANES] {
        let mut key = [_mm512_setzero_si512(); 8];
        [key[0], key[1]] = words(r);
        [key[2], key[3]] = words(s);
        let mut poly1305 = Poly1305::new(&key);
        match *blocks {
            [a, b, c] if together => poly1305.step([words(a), words(b), words(c)]),
            _ => blocks
                .iter()
                .for_each(|&block| poly1305.step([words(block)])),
        }
        poly1305.finish()
    }

    #[target_feature(enable = "avx512f")]
    fn words(x: u128) -> [__m512i; 2] {
        [
            _mm512_set1_epi64(x as i64),
            _mm512_set1_epi64((x >> 64) as i64),
        ]
    }
}
