//! Poly1305 (RFC 8439, section 2.5) in words of 32 bits.
//!
//! The sum modulo 2^130 - 5 is four words and a few bits. Because r's upper words are multiples of four, `5 r / 4` is
//! an integer. A product that would be at 2^128 or higher uses it, because 2^128 times a multiple of four equals 5/4 of
//! it.

use core::num::Wrapping;

use subtle::{Choice, ConditionallySelectable};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::TAG_LEN;

/// State of an unfinished message.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(super) struct Poly1305 {
    r: [u32; 4],
    /// 5/4 of r's upper three words.
    wrapped: [u32; 3],
    s: [u32; 4],
    /// The last word has only a few bits.
    h: [u32; 5],
}

impl Poly1305 {
    /// Takes r and s from the first eight words of the key block.
    pub(super) fn new(key: &[u32; 16]) -> Self {
        let r = [
            key[0] & 0x0fff_ffff,
            key[1] & 0x0fff_fffc,
            key[2] & 0x0fff_fffc,
            key[3] & 0x0fff_fffc,
        ];
        Self {
            r,
            wrapped: [r[1], r[2], r[3]].map(|word| word.wrapping_add(word >> 2)),
            s: [key[4], key[5], key[6], key[7]],
            h: [0; 5],
        }
    }

    /// Absorbs the bytes, padded with zeros to whole blocks.
    pub(super) fn absorb(&mut self, bytes: &[u8]) {
        let (blocks, rest) = bytes.as_chunks::<16>();
        for block in blocks {
            self.block(block);
        }
        if !rest.is_empty() {
            let mut block = [0; 16];
            block[..rest.len()].copy_from_slice(rest);
            self.block(&block);
        }
    }

    /// Absorbs a whole block: its bytes and the bit after them.
    pub(super) fn block(&mut self, block: &[u8; 16]) {
        // Nothing overflows; `Wrapping` avoids a debug build's overflow checks, which would branch on a secret.
        let wide = |a: u32, b: u32| Wrapping(u64::from(a)) * Wrapping(u64::from(b));
        let mut h = self.h;
        let mut carry = Wrapping(0_u64);
        for (word, bytes) in h.iter_mut().zip(block.as_chunks::<4>().0) {
            carry += u64::from(*word);
            carry += u64::from(u32::from_le_bytes(*bytes));
            *word = carry.0 as u32;
            carry >>= 32;
        }
        // `h[4]` had at most three bits so far, so its product with a word of r fits in 32.
        h[4] = h[4].wrapping_add(carry.0 as u32).wrapping_add(1);

        let [r0, r1, r2, r3] = self.r;
        let [w1, w2, w3] = self.wrapped;
        // Words of r have 28 bits and 5/4 of them a little more: five products fit in 64.
        let d0 = wide(h[0], r0) + wide(h[1], w3) + wide(h[2], w2) + wide(h[3], w1);
        let d1 = wide(h[0], r1) + wide(h[1], r0) + wide(h[2], w3) + wide(h[3], w2) + wide(h[4], w1);
        let d2 = wide(h[0], r2) + wide(h[1], r1) + wide(h[2], r0) + wide(h[3], w3) + wide(h[4], w2);
        let d3 = wide(h[0], r3) + wide(h[1], r2) + wide(h[2], r1) + wide(h[3], r0) + wide(h[4], w3);
        let d1 = d1 + (d0 >> 32);
        let d2 = d2 + (d1 >> 32);
        let d3 = d3 + (d2 >> 32);
        let d4 = h[4].wrapping_mul(r0).wrapping_add((d3 >> 32).0 as u32);

        // The bits above 2^130 are added back five times: four times and once.
        let mut carry = Wrapping(u64::from((d4 >> 2).wrapping_add(d4 & !3)));
        self.h[4] = d4 & 3;
        for (word, d) in self.h.iter_mut().zip([d0, d1, d2, d3]) {
            carry += u64::from(d.0 as u32);
            *word = carry.0 as u32;
            carry >>= 32;
        }
        self.h[4] = self.h[4].wrapping_add(carry.0 as u32);
    }

    /// Ends the computation and returns the tag.
    pub(super) fn finish(self) -> [u8; TAG_LEN] {
        // h + 5 has its bit 130 set if and only if h is not less than 2^130 - 5.
        let mut reduced = self.h;
        let mut carry = Wrapping(5_u64);
        for word in &mut reduced {
            carry += u64::from(*word);
            *word = carry.0 as u32;
            carry >>= 32;
        }
        // The optimiser would recognise a mask made from the bit here, and turn it into a choice between two addresses.
        let take = Choice::from((reduced[4] >> 2 & 1) as u8);
        let mut tag = [0; TAG_LEN];
        let mut carry = Wrapping(0_u64);
        for (word, bytes) in tag.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let chosen = u32::conditional_select(&self.h[word], &reduced[word], take);
            carry += u64::from(chosen);
            carry += u64::from(self.s[word]);
            *bytes = (carry.0 as u32).to_le_bytes();
            carry >>= 32;
        }
        tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8439, appendix A.3, vectors 7 to 11: sums at the very edge of the modulus.
    #[test]
    fn the_edges_of_the_modulus() {
        const ONES: u128 = u128::MAX;
        let fb = u128::from_le_bytes([
            0xfb, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe,
            0xfe, 0xfe,
        ]);
        let cases: [(u32, u128, &[u128], u128); 5] = [
            (2, 0, &[ONES], 3),
            (2, ONES, &[2], 3),
            (1, 0, &[ONES, ONES - 0x0f, 0x11], 5),
            (1, 0, &[ONES, fb, u128::from_le_bytes([1; 16])], 0),
            (2, 0, &[ONES - 2], ONES - 5),
        ];
        for (r, s, blocks, tag) in cases {
            let mut key = [0; 16];
            key[0] = r;
            for (word, shift) in key[4..8].iter_mut().zip([0, 32, 64, 96]) {
                *word = (s >> shift) as u32;
            }
            let mut poly1305 = Poly1305::new(&key);
            for block in blocks {
                poly1305.block(&block.to_le_bytes());
            }
            assert_eq!(poly1305.finish(), tag.to_le_bytes(), "{blocks:x?}");
        }
    }
}
