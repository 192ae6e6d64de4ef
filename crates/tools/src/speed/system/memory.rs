//! Two blocks of memory, one written, copied into the other with a change, and that one read.

use std::collections::TryReserveError;
use std::hint::black_box;

/// Between words, so that no two of them are alike.
const STEP: u32 = 0x9e37_79b1;

/// The difference between a copied word and its source: a plain copy would be the C library's work.
const CHANGE: u32 = 0x5bd1_e995;

/// The two blocks, of words of 32 bits.
pub(super) struct Blocks {
    from: Vec<u32>,
    to: Vec<u32>,
}

impl Blocks {
    /// Blocks of so many words that the kernel has given already.
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

    /// So many rounds of three passes: the sum of all words that were read.
    pub(super) fn rounds(&mut self, rounds: u32) -> u32 {
        let mut sum = 0_u32;
        for round in 0..rounds {
            let mut value = round;
            for word in &mut self.from {
                *word = value;
                value = value.wrapping_add(STEP);
            }
            // Each pass goes over all of the memory: none may be joined with the one before.
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

    /// The result of [`Self::rounds`], without any memory.
    pub(super) fn expected(&self, rounds: u32) -> u32 {
        let (words, rounds) = (self.from.len() as u64, u64::from(rounds));
        let places = words * words.saturating_sub(1) / 2 * rounds;
        let turns = rounds * rounds.saturating_sub(1) / 2 * words;
        let sum = places
            .wrapping_mul(u64::from(STEP))
            .wrapping_add(turns)
            .wrapping_add((words * rounds).wrapping_mul(u64::from(CHANGE)));
        // The sum of words is kept modulo 2^32, and so is this.
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
