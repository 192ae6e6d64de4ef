//! SHA-1's rounds (FIPS 180-4, section 6.1.2), for any width of lanes.

use super::sha2;

/// A register of 32-bit lanes, with the functions that SHA-2 does not need.
///
/// # Safety
/// Every function needs the CPU to have the implementing type's instructions.
pub(super) trait Vector: sha2::Vector<Word = u32> {
    unsafe fn xor(self, other: Self) -> Self;
    unsafe fn xor3(self, x: Self, y: Self) -> Self;
    /// `RIGHT` is 32 - `LEFT`.
    unsafe fn rotate_left<const LEFT: i32, const RIGHT: i32>(self) -> Self;
}

/// Hashes a block.
///
/// # Safety
/// The CPU has the vector's instructions.
#[inline(always)]
pub(super) unsafe fn block<V: Vector>(state: &mut [V; 5], words: &mut [V; 16]) {
    let start = *state;
    macro_rules! rounds {
        ($($tens:literal)*) => {
            $(
                round::<V, { $tens }>(state, words);
                round::<V, { $tens + 1 }>(state, words);
                round::<V, { $tens + 2 }>(state, words);
                round::<V, { $tens + 3 }>(state, words);
                round::<V, { $tens + 4 }>(state, words);
                round::<V, { $tens + 5 }>(state, words);
                round::<V, { $tens + 6 }>(state, words);
                round::<V, { $tens + 7 }>(state, words);
                round::<V, { $tens + 8 }>(state, words);
                round::<V, { $tens + 9 }>(state, words);
            )*
        };
    }
    // SAFETY: the caller's promise.
    unsafe {
        rounds!(0 10 20 30 40 50 60 70);
        for (word, start) in state.iter_mut().zip(start) {
            *word = word.add(start);
        }
    }
}

/// Round `T`. The five words rotate by their indices, so that none is moved.
#[inline(always)]
unsafe fn round<V: Vector, const T: usize>(state: &mut [V; 5], words: &mut [V; 16]) {
    let at = |letter: usize| (letter + 80 - T) % 5;
    let [a, b, c, d, e] = [at(0), at(1), at(2), at(3), at(4)];
    // SAFETY: the caller's promise.
    unsafe {
        if T >= 16 {
            let mixed = words[(T - 3) % 16].xor3(words[(T - 8) % 16], words[(T - 14) % 16]);
            words[T % 16] = mixed.xor(words[T % 16]).rotate_left::<1, 31>();
        }
        let (function, constant) = match T / 20 {
            0 => (state[b].choose(state[c], state[d]), 0x5a82_7999),
            1 => (state[b].xor3(state[c], state[d]), 0x6ed9_eba1),
            2 => (state[b].majority(state[c], state[d]), 0x8f1b_bcdc),
            _ => (state[b].xor3(state[c], state[d]), 0xca62_c1d6),
        };
        // The sum that does not depend on the previous round comes first.
        let early = state[e].add(words[T % 16].add(V::splat(constant)));
        state[e] = early.add(function).add(state[a].rotate_left::<5, 27>());
        state[b] = state[b].rotate_left::<30, 2>();
    }
}
