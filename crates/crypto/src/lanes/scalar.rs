//! One lane: plain instructions, in constant time.

use super::{MAX_LANES, Routine, States, sha1, sha2};

/// SHA-1.
pub(super) const SHA1: Routine<u32> = Routine {
    compress: sha1,
    lanes: 1,
    worth: [0, 0],
    name: "own (portable)",
};

/// SHA-224 and SHA-256.
pub(super) const SHA256: Routine<u32> = Routine {
    compress: sha256,
    lanes: 1,
    worth: [0, 0],
    name: "own (portable)",
};

/// SHA-384 and SHA-512.
pub(super) const SHA512: Routine<u64> = Routine {
    compress: sha512,
    lanes: 1,
    worth: [0, 0],
    name: "own (portable)",
};

macro_rules! compress {
    ($name:ident, $word:ty, $vector:ident, $words:expr, $block:path) => {
        unsafe extern "C" fn $name(
            states: &mut States<$word>,
            at: &mut [*const u8; MAX_LANES],
            step: &[usize; MAX_LANES],
            blocks: usize,
        ) {
            const LEN: usize = size_of::<$word>();
            let mut state: [$vector; $words] =
                core::array::from_fn(|word| $vector(states.0[word][0]));
            for _ in 0..blocks {
                // SAFETY: the blocks can be read, and bytes have no alignment.
                let bytes = unsafe { &*at[0].cast::<[[u8; LEN]; 16]>() };
                let mut words = bytes.map(|bytes| $vector(<$word>::from_be_bytes(bytes)));
                // SAFETY: every CPU has these instructions.
                unsafe { $block(&mut state, &mut words) };
                at[0] = at[0].wrapping_add(step[0]);
            }
            for (word, row) in state.iter().zip(&mut states.0) {
                row[0] = word.0;
            }
        }
    };
}

compress!(sha1, u32, Word32, 5, sha1::block);
compress!(sha256, u32, Word32, 8, sha2::block);
compress!(sha512, u64, Word64, 8, sha2::block);

/// A word, with the functions of SHA-1 and SHA-256.
#[derive(Clone, Copy)]
struct Word32(u32);

/// A word, with the functions of SHA-512.
#[derive(Clone, Copy)]
struct Word64(u64);

// The functions are unsafe because those of vectors are; these have no conditions.
impl sha1::Vector for Word32 {
    #[inline(always)]
    unsafe fn splat(word: u32) -> Self {
        Self(word)
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }

    #[inline(always)]
    unsafe fn rotate_left<const LEFT: i32, const RIGHT: i32>(self) -> Self {
        Self(self.0.rotate_left(LEFT as u32))
    }

    #[inline(always)]
    unsafe fn choose(self, x: Self, y: Self) -> Self {
        Self(y.0 ^ self.0 & (x.0 ^ y.0))
    }

    #[inline(always)]
    unsafe fn majority(self, x: Self, y: Self) -> Self {
        // The two products exclude each other, so XOR and OR are equal.
        Self(self.0 & x.0 | y.0 & (self.0 ^ x.0))
    }

    #[inline(always)]
    unsafe fn xor3(self, x: Self, y: Self) -> Self {
        Self(self.0 ^ x.0 ^ y.0)
    }
}

macro_rules! sha2_vector {
    ($vector:ident, $word:ty, $rounds:literal, $shift:literal, $big0:expr, $big1:expr, $small0:expr, $small1:expr) => {
        // With one lane, a word is the vector.
        impl sha2::Vector for $vector {
            const ROUNDS: usize = $rounds;

            #[inline(always)]
            // With words as long as the constants this cast is trivial.
            #[allow(trivial_numeric_casts)]
            unsafe fn constant(round: usize) -> Self {
                Self((sha2::CONSTANTS[round] >> $shift) as $word)
            }

            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                Self(self.0.wrapping_add(other.0))
            }

            #[inline(always)]
            unsafe fn choose(self, x: Self, y: Self) -> Self {
                Self(y.0 ^ self.0 & (x.0 ^ y.0))
            }

            #[inline(always)]
            unsafe fn majority(self, x: Self, y: Self) -> Self {
                Self(self.0 & x.0 | y.0 & (self.0 ^ x.0))
            }

            #[inline(always)]
            unsafe fn big0(self) -> Self {
                let [a, b, c]: [u32; 3] = $big0;
                Self(self.0.rotate_right(a) ^ self.0.rotate_right(b) ^ self.0.rotate_right(c))
            }

            #[inline(always)]
            unsafe fn big1(self) -> Self {
                let [a, b, c]: [u32; 3] = $big1;
                Self(self.0.rotate_right(a) ^ self.0.rotate_right(b) ^ self.0.rotate_right(c))
            }

            #[inline(always)]
            unsafe fn small0(self) -> Self {
                let [a, b, shift]: [u32; 3] = $small0;
                Self(self.0.rotate_right(a) ^ self.0.rotate_right(b) ^ self.0 >> shift)
            }

            #[inline(always)]
            unsafe fn small1(self) -> Self {
                let [a, b, shift]: [u32; 3] = $small1;
                Self(self.0.rotate_right(a) ^ self.0.rotate_right(b) ^ self.0 >> shift)
            }
        }
    };
}

#[rustfmt::skip]
sha2_vector!(Word32, u32, 64, 32, [2, 13, 22], [6, 11, 25], [7, 18, 3], [17, 19, 10]);

#[rustfmt::skip]
sha2_vector!(Word64, u64, 80, 0, [28, 34, 39], [14, 18, 41], [1, 8, 7], [19, 61, 6]);
