//! The numbers that have come: a ring of bits for the last ones.

use super::WINDOW;

const WORD: u64 = u64::BITS as u64;

/// Numbers that are remembered, including those of the window.
pub(super) const REMEMBERED: u64 = 16 * WINDOW;
const _: () = assert!(REMEMBERED.is_power_of_two() && REMEMBERED.is_multiple_of(WORD));

/// Bit `n % REMEMBERED` is set if number `n` has come. Only the last [`REMEMBERED`] numbers up to the greatest one are
/// valid; the owner clears numbers before they enter that range.
///
/// One bit a number tells late packets from duplicates, because each number below the window's limit has either come or
/// been given up. A packet whose number was given up is late the first time, and a duplicate from then on.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// Empty until the first change: a window that sees packets in order only needs no memory.
    words: Vec<u64>,
}

impl History {
    pub(super) fn get(&self, number: u64) -> bool {
        self.words
            .get(word_of(number))
            .is_some_and(|word| word & bit_of(number) != 0)
    }

    pub(super) fn set(&mut self, number: u64) {
        self.words()[word_of(number)] |= bit_of(number);
    }

    /// Sets the numbers of `from..to`.
    #[inline]
    pub(super) fn set_range(&mut self, from: u64, to: u64) {
        self.change(from, to, |word, mask| *word |= mask);
    }

    /// Clears the numbers of `from..to`.
    #[inline]
    pub(super) fn clear_range(&mut self, from: u64, to: u64) {
        self.change(from, to, |word, mask| *word &= !mask);
    }

    /// The lowest number of `from..to` that has come. The range must not be longer than [`REMEMBERED`].
    #[inline]
    pub(super) fn next(&self, from: u64, to: u64) -> Option<u64> {
        if self.words.is_empty() {
            return None;
        }
        let mut at = from;
        while at < to {
            let rest = self.words[word_of(at)] >> (at % WORD);
            if rest != 0 {
                let found = at + u64::from(rest.trailing_zeros());
                return (found < to).then_some(found);
            }
            at = at.saturating_add(WORD - at % WORD);
        }
        None
    }

    fn change(&mut self, from: u64, to: u64, change: impl Fn(&mut u64, u64)) {
        if from >= to {
            return;
        }
        let words = self.words();
        // In a range longer than the ring, only the last [`REMEMBERED`] numbers matter.
        let mut at = from.max(to.saturating_sub(REMEMBERED));
        while at < to {
            let count = (WORD - at % WORD).min(to - at);
            let mask = (u64::MAX >> (WORD - count)) << (at % WORD);
            change(&mut words[word_of(at)], mask);
            at += count;
        }
    }

    fn words(&mut self) -> &mut [u64] {
        if self.words.is_empty() {
            self.words = vec![0; (REMEMBERED / WORD) as usize];
        }
        &mut self.words
    }
}

const fn word_of(number: u64) -> usize {
    ((number % REMEMBERED) / WORD) as usize
}

const fn bit_of(number: u64) -> u64 {
    1 << (number % WORD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_set_of_numbers(
            base in 0..u64::MAX / 2,
            steps in prop::collection::vec((0_u8..4, 0..REMEMBERED, 0..300_u64), 1..60),
        ) {
            let mut history = History::default();
            let mut set = BTreeSet::new();
            for (kind, offset, length) in steps {
                let from = base + offset;
                let to = (from + length).min(base + REMEMBERED);
                match kind {
                    0 => {
                        history.set(from);
                        set.insert(from);
                    }
                    1 => {
                        history.set_range(from, to);
                        set.extend(from..to);
                    }
                    2 => {
                        history.clear_range(from, to);
                        set.retain(|number| !(from..to).contains(number));
                    }
                    _ => prop_assert_eq!(history.next(from, to), set.range(from..to).next().copied()),
                }
                prop_assert_eq!(history.get(from), set.contains(&from));
            }
        }
    }

    #[test]
    fn a_range_longer_than_the_ring_costs_one_turn() {
        let mut history = History::default();
        history.set_range(3, u64::MAX - 5);
        assert!(history.get(u64::MAX - 6));
        assert!(history.get(u64::MAX - 5 - REMEMBERED));
        history.clear_range(0, u64::MAX);
        assert_eq!(history.next(u64::MAX - 5 - REMEMBERED, u64::MAX - 5), None);
    }
}
