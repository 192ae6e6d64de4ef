//! One lane: plain instructions, in constant time.

use super::routine::{Compress, MAX_LANES, Routine, Set, States};
use super::vectors::sigmas;
use super::{sha1, sha2};

/// One lane, on any machine.
pub(crate) const SET: Set = Set {
    is_present: || true,
    sha1: lane(sha1),
    sha256: lane(sha256),
    sha512: Some(lane(sha512)),
};

const fn lane<W>(compress: Compress<W>) -> Routine<W> {
    Routine {
        compress,
        lanes: 1,
        worth: [0, 0],
        name: "own (portable)",
    }
}

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
    unsafe fn xor(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }

    #[inline(always)]
    unsafe fn rotate_left<const LEFT: i32, const RIGHT: i32>(self) -> Self {
        Self(self.0.rotate_left(LEFT as u32))
    }

    #[inline(always)]
    unsafe fn xor3(self, x: Self, y: Self) -> Self {
        Self(self.0 ^ x.0 ^ y.0)
    }
}

macro_rules! sha2_vector {
    ($vector:ident, $word:ident) => {
        // With one lane, a word is the vector.
        impl sha2::Vector for $vector {
            type Word = $word;

            #[inline(always)]
            unsafe fn splat(word: $word) -> Self {
                Self(word)
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
                // The two products exclude each other, so XOR and OR are equal.
                Self(self.0 & x.0 | y.0 & (self.0 ^ x.0))
            }

            sigmas!($word, sigma());
        }
    };
}

macro_rules! sigma {
    ($x:expr, rotation, [$a:literal, $b:literal, $c:literal],) => {
        $x.rotate_right($a) ^ $x.rotate_right($b) ^ $x.rotate_right($c)
    };
    ($x:expr, shift, [$a:literal, $b:literal, $c:literal],) => {
        $x.rotate_right($a) ^ $x.rotate_right($b) ^ $x >> $c
    };
}

sha2_vector!(Word32, u32);
sha2_vector!(Word64, u64);
