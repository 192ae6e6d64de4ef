//! Memory test: writes one block, copies it into another with a change, and reads the copy.

use std::collections::TryReserveError;
use std::hint::black_box;

/// Difference between adjacent words, so that no two words are equal.
const STEP: u32 = 0x9e37_79b1;

/// Change of a copied word; a plain copy would become a call of the C library.
const CHANGE: u32 = 0x5bd1_e995;

/// Two blocks of 32-bit words.
pub(super) struct Blocks {
    from: Vec<u32>,
    to: Vec<u32>,
}

impl Blocks {
    /// Allocates blocks of `words` words and touches every page.
    pub(super) fn new(words: usize) -> Result<Self, TryReserveError> {
        let block = || {
            let mut block = Vec::new();
            block.try_reserve_exact(words)?;
            block.resize(words, 1);
            Ok::<_, TryReserveError>(block)
        };
        Ok(Self {
            from: block()?,
            to: block()?,
        })
    }

    /// Runs `rounds` rounds of three passes and returns the sum of all words read.
    pub(super) fn rounds(&mut self, rounds: u32) -> u32 {
        let mut sum = 0_u32;
        for round in 0..rounds {
            let mut value = round;
            for word in &mut self.from {
                *word = value;
                value = value.wrapping_add(STEP);
            }
            // Keeps the compiler from merging passes: each must go through all of the memory.
            let from = black_box(&self.from);
            for (to, from) in self.to.iter_mut().zip(from) {
                *to = from.wrapping_add(CHANGE);
            }
            for word in black_box(&self.to) {
                sum = sum.wrapping_add(*word);
            }
        }
        sum
    }

    /// Computes the result of [`Self::rounds`] without using memory.
    pub(super) fn expected(&self, rounds: u32) -> u32 {
        let (words, rounds) = (self.from.len() as u64, u64::from(rounds));
        let places = words * words.saturating_sub(1) / 2 * rounds;
        let turns = rounds * rounds.saturating_sub(1) / 2 * words;
        let sum = places
            .wrapping_mul(u64::from(STEP))
            .wrapping_add(turns)
            .wrapping_add((words * rounds).wrapping_mul(u64::from(CHANGE)));
        // Sums are modulo 2^32.
        sum as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_was_written_and_changed() {
        for (words, rounds) in [(0, 3), (1, 1), (1, 4), (1000, 0), (4096, 3), (100_003, 10)] {
            let mut blocks = Blocks::new(words).unwrap();
            let sum = blocks.rounds(rounds);
            assert_eq!(
                sum,
                blocks.expected(rounds),
                "{words} words, {rounds} rounds"
            );
        }
        let mut two = Blocks::new(2).unwrap();
        assert_eq!(two.rounds(1), STEP.wrapping_add(CHANGE.wrapping_mul(2)));
    }

    #[test]
    fn memory_that_no_machine_has_is_refused() {
        assert!(Blocks::new(usize::MAX / 4).is_err());
    }
}
