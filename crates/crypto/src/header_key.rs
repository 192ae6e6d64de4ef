//! A ChaCha20 keystream that hides the headers of datagrams.
//!
//! Data packets need only the beginning of one block each, and a batch has many packets. Where vector registers make it
//! faster, each of their lanes computes the block of another packet: eight lanes of AVX2, four of NEON. SSE2 gains
//! nothing: AWS-LC fills its registers with a single block.

use crate::Key;

/// Bytes of the nonce.
pub const NONCE_LEN: usize = 12;

/// Bytes of a keystream's beginning, which hides the header of a data packet.
pub const MASK_LEN: usize = 16;

/// Packets whose masks are computed one by one: so few would leave most lanes idle.
const FEW: usize = 2;

/// A key that hides headers: IETF ChaCha20 from block 0, whose nonce is part of the datagram.
///
/// The keystream authenticates nothing, and a nonce that comes twice shows which headers differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderKey(Key);

impl HeaderKey {
    /// Wraps the key.
    #[must_use]
    pub const fn new(key: Key) -> Self {
        Self(key)
    }

    /// The key.
    #[must_use]
    pub const fn key(&self) -> &Key {
        &self.0
    }

    /// XORs the keystream into `bytes`: hides a header, or shows it again.
    pub fn apply(&self, nonce: &[u8; NONCE_LEN], bytes: &mut [u8]) {
        let (at, len) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: in place is allowed; `bytes` has `len` bytes, the key 32 and the nonce 12.
        unsafe {
            aws_lc_sys::CRYPTO_chacha_20(
                at,
                at,
                len,
                self.0.as_bytes().as_ptr(),
                nonce.as_ptr(),
                0,
            );
        }
    }
}

impl HeaderKey {
    /// Computes the first bytes of the keystream of each nonce. Bytes that are XORed with them are hidden, or shown
    /// again.
    ///
    /// # Panics
    /// If there are fewer masks than nonces.
    pub fn masks(&self, nonces: &[[u8; NONCE_LEN]], masks: &mut [[u8; MASK_LEN]]) {
        let masks = &mut masks[..nonces.len()];
        #[cfg(target_arch = "x86_64")]
        if nonces.len() > FEW && is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU has AVX2.
            return unsafe { lanes::masks(self, nonces, masks) };
        }
        #[cfg(neon)]
        if nonces.len() > FEW && crate::cpu::has_neon() {
            return crate::neon::first_blocks(self.0.as_bytes(), nonces, masks);
        }
        self.each(nonces, masks);
    }

    /// Computes the masks one by one.
    fn each(&self, nonces: &[[u8; NONCE_LEN]], masks: &mut [[u8; MASK_LEN]]) {
        for (nonce, mask) in nonces.iter().zip(masks) {
            *mask = [0; MASK_LEN];
            self.apply(nonce, mask);
        }
    }
}

/// Eight packets at a time, on AVX2: a register holds one word of all their states.
#[cfg(target_arch = "x86_64")]
mod lanes {
    use core::arch::x86_64::*;

    use super::{FEW, HeaderKey, MASK_LEN, NONCE_LEN};

    const LANES: usize = 8;

    /// "expand 32-byte k".
    const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

    /// The 4x4 matrix of words.
    type State = [__m256i; 16];

    /// Computes what [`HeaderKey::masks`] does.
    #[target_feature(enable = "avx2")]
    pub(super) fn masks(key: &HeaderKey, nonces: &[[u8; NONCE_LEN]], masks: &mut [[u8; MASK_LEN]]) {
        let mut start = [_mm256_setzero_si256(); 16];
        for (row, word) in start.iter_mut().zip(CONSTANTS) {
            *row = _mm256_set1_epi32(word as i32);
        }
        for (row, bytes) in start[4..].iter_mut().zip(key.0.as_bytes().as_chunks().0) {
            *row = _mm256_set1_epi32(i32::from_le_bytes(*bytes));
        }
        for (nonces, masks) in nonces.chunks(LANES).zip(masks.chunks_mut(LANES)) {
            if nonces.len() <= FEW {
                return key.each(nonces, masks);
            }
            // Lanes without a packet have a nonce of zeros.
            let mut words = [[0; LANES]; 4];
            for (lane, nonce) in nonces.iter().enumerate() {
                for (word, bytes) in words.iter_mut().zip(nonce.as_chunks().0) {
                    word[lane] = u32::from_le_bytes(*bytes);
                }
            }
            for (row, word) in start[13..].iter_mut().zip(&words) {
                // SAFETY: the words are 32 bytes.
                *row = unsafe { _mm256_loadu_si256(word.as_ptr().cast()) };
            }
            let end = rounds(start);
            for (word, (start, end)) in words.iter_mut().zip(start.iter().zip(end)) {
                let sum = _mm256_add_epi32(*start, end);
                // SAFETY: the words are 32 bytes.
                unsafe { _mm256_storeu_si256(word.as_mut_ptr().cast(), sum) };
            }
            for (lane, mask) in masks.iter_mut().enumerate() {
                for (bytes, word) in mask.as_chunks_mut().0.iter_mut().zip(&words) {
                    *bytes = word[lane].to_le_bytes();
                }
            }
        }
    }

    /// The twenty rounds.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn rounds(mut state: State) -> State {
        for _ in 0..10 {
            quarters(&mut state, [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]);
            quarters(&mut state, [5, 6, 7, 4], [10, 11, 8, 9], [15, 12, 13, 14]);
        }
        state
    }

    /// Four quarter rounds side by side, because each is one long chain. The first words are 0 to 3.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn quarters(state: &mut State, b: [usize; 4], c: [usize; 4], d: [usize; 4]) {
        let a = [0, 1, 2, 3];
        step::<16>(state, a, b, d);
        step::<12>(state, c, d, b);
        step::<8>(state, a, b, d);
        step::<7>(state, c, d, b);
    }

    /// Adds `y` to `x`, XORs that into `z`, and rotates `z` to the left.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn step<const BITS: i32>(state: &mut State, x: [usize; 4], y: [usize; 4], z: [usize; 4]) {
        for at in 0..4 {
            let (x, y, z) = (x[at], y[at], z[at]);
            state[x] = _mm256_add_epi32(state[x], state[y]);
            state[z] = _mm256_xor_si256(state[z], state[x]);
        }
        for z in z {
            state[z] = rotated::<BITS>(state[z]);
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn rotated<const BITS: i32>(word: __m256i) -> __m256i {
        let bytes = match BITS {
            16 => _mm_set_epi8(13, 12, 15, 14, 9, 8, 11, 10, 5, 4, 7, 6, 1, 0, 3, 2),
            8 => _mm_set_epi8(14, 13, 12, 15, 10, 9, 8, 11, 6, 5, 4, 7, 2, 1, 0, 3),
            _ => {
                let left = _mm256_sll_epi32(word, _mm_cvtsi32_si128(BITS));
                let right = _mm256_srl_epi32(word, _mm_cvtsi32_si128(32 - BITS));
                return _mm256_or_si256(left, right);
            }
        };
        _mm256_shuffle_epi8(word, _mm256_broadcastsi128_si256(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8439, appendix A.1: test vectors 1 and 5.
    #[test]
    fn the_keystream_is_that_of_the_rfc() {
        let mut nonce = [0; NONCE_LEN];
        let key = HeaderKey::new(Key::ZERO);
        let mut bytes = [0; 16];
        key.apply(&nonce, &mut bytes);
        let first = [
            0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90, 0x40, 0x5d, 0x6a, 0xe5, 0x53, 0x86,
            0xbd, 0x28,
        ];
        assert_eq!(bytes, first);
        key.apply(&nonce, &mut bytes);
        assert_eq!(bytes, [0; 16]);
        nonce[11] = 2;
        key.apply(&nonce, &mut bytes);
        assert_eq!(bytes[..4], [0xc2, 0xc6, 0x4d, 0x37]);
    }

    #[test]
    fn a_prefix_of_the_keystream_does_not_depend_on_the_length() {
        let key = HeaderKey::new(Key::from([7; 32]));
        let mut long = [0; 148];
        key.apply(&[3; NONCE_LEN], &mut long);
        for len in 0..148 {
            let mut bytes = vec![0; len];
            key.apply(&[3; NONCE_LEN], &mut bytes);
            assert_eq!(bytes, long[..len]);
        }
    }

    #[test]
    fn a_batch_has_the_masks_of_its_packets() {
        let key = HeaderKey::new(Key::from(core::array::from_fn(|at| 0x40 + at as u8)));
        for count in 0..40 {
            let mut nonces = vec![[0; NONCE_LEN]; count];
            nonces.iter_mut().for_each(|nonce| crate::random(nonce));
            let (mut batch, mut single) =
                (vec![[9; MASK_LEN]; count + 1], vec![[7; MASK_LEN]; count]);
            key.masks(&nonces, &mut batch);
            key.each(&nonces, &mut single);
            assert_eq!(batch[..count], single);
            assert_eq!(
                batch[count], [9; MASK_LEN],
                "only the masks of the nonces are written"
            );
        }
    }
}
