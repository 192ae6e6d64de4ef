//! The frame of the back ends for vector registers: AVX2 and AVX-512 fill in their instructions.
//!
//! Macros, because the counts of rotations are constants within instructions, and a generic function cannot subtract
//! from its constant parameters.

/// Defines functions of the type [`Compress`](super::routine::Compress) from the functions that load a block of each
/// lane, `$load_block`, and hash it, `$block`.
#[cfg(target_arch = "x86_64")]
macro_rules! compress {
    (
        $features:literal, $load:ident, $store:ident;
        $($name:ident: [$vector:ident; $words:literal] of $word:ty, $load_block:ident, $block:path;)*
    ) => {
        $(
            #[target_feature(enable = $features)]
            unsafe extern "C" fn $name(
                states: &mut States<$word>,
                at: &mut [*const u8; MAX_LANES],
                step: &[usize; MAX_LANES],
                blocks: usize,
            ) {
                // SAFETY: the features are the caller's, each row of the states has at least 64 bytes, and the blocks
                // can be read.
                unsafe {
                    let mut state: [$vector; $words] = core::array::from_fn(|word| {
                        $vector($load(states.0[word].as_ptr().cast()))
                    });
                    for _ in 0..blocks {
                        $block(&mut state, &mut $load_block(at));
                        for (at, step) in at.iter_mut().zip(step) {
                            *at = at.wrapping_add(*step);
                        }
                    }
                    for (word, row) in state.iter().zip(&mut states.0) {
                        $store(row.as_mut_ptr().cast(), word.0);
                    }
                }
            }
        )*
    };
}

/// Implements [`sha2::Vector`](super::sha2::Vector) for a register by the instructions' names.
#[cfg(target_arch = "x86_64")]
macro_rules! sha2_vector {
    (
        $vector:ident, $word:ident as $signed:ty, $splat:ident, $add:ident, $choose:path, $majority:path,
        $sigma:ident($($instructions:tt)*)
    ) => {
        // SAFETY (all functions): the trait asks the caller for the features.
        impl sha2::Vector for $vector {
            type Word = $word;

            #[inline(always)]
            unsafe fn splat(word: $word) -> Self {
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
                unsafe { Self($choose(self.0, x.0, y.0)) }
            }

            #[inline(always)]
            unsafe fn majority(self, x: Self, y: Self) -> Self {
                // SAFETY: see above.
                unsafe { Self($majority(self.0, x.0, y.0)) }
            }

            sigmas!($word, $sigma($($instructions)*));
        }
    };
}

/// The standard's sigma functions for words of 32 and 64 bits. `$sigma` gets a register, two counts of rotations and
/// how the third number is used: by a `rotation` or a `shift`.
macro_rules! sigmas {
    (u32, $($sigma:tt)*) => {
        sigmas!(big0, rotation, [2, 13, 22], $($sigma)*);
        sigmas!(big1, rotation, [6, 11, 25], $($sigma)*);
        sigmas!(small0, shift, [7, 18, 3], $($sigma)*);
        sigmas!(small1, shift, [17, 19, 10], $($sigma)*);
    };
    (u64, $($sigma:tt)*) => {
        sigmas!(big0, rotation, [28, 34, 39], $($sigma)*);
        sigmas!(big1, rotation, [14, 18, 41], $($sigma)*);
        sigmas!(small0, shift, [1, 8, 7], $($sigma)*);
        sigmas!(small1, shift, [19, 61, 6], $($sigma)*);
    };
    ($name:ident, $last:tt, $by:tt, $sigma:ident($($instructions:tt)*)) => {
        #[inline(always)]
        unsafe fn $name(self) -> Self {
            Self($sigma!(self.0, $last, $by, $($instructions)*))
        }
    };
}

pub(super) use sigmas;
#[cfg(target_arch = "x86_64")]
pub(super) use {compress, sha2_vector};
