//! The replay window of a key: a ring of bits, after RFC 6479.
//!
//! The ring is cleared a word at a time as the greatest counter moves on, so that accepting a packet touches one word.
//! One word of the ring is always only partly in use; the other words hold the window.

use crate::{ReplayCheck, Window};

const WORDS: usize = 128;
const WORD_BITS: u64 = u64::BITS as u64;

/// Remembers which of the last counters of a key were seen.
///
/// 8192 bits, of which 8128 are always window, as in the kernel. Counters have 64 bits on every machine.
#[derive(Clone, Debug)]
pub struct ReplayWindow {
    /// One more than the greatest counter accepted; 0 before the first.
    next: u64,
    /// Bit `c % 8192` is set if counter `c` was accepted. Invariant: words that no counter of the window has are stale
    /// until the window reaches them.
    bits: [u64; WORDS],
}

impl ReplayWindow {
    /// Counters below the greatest one that can still be accepted.
    pub const SIZE: u64 = (WORDS as u64 - 1) * WORD_BITS;

    /// Counters from here on are never accepted: 2^64 - 2^13 - 1, WireGuard's `REJECT_AFTER_MESSAGES` (white paper,
    /// section 6.1), which no key of any protocol comes near.
    pub const LIMIT: u64 = u64::MAX - (1 << 13);

    /// A window that has seen nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            next: 0,
            bits: [0; WORDS],
        }
    }

    /// Accepts `counter` if it is new, and remembers it. Call this for authentic packets only.
    ///
    /// Refuses counters seen before, counters older than the window, and those of [`ReplayWindow::LIMIT`] or more.
    pub fn accept(&mut self, counter: u64) -> bool {
        self.check(counter) == ReplayCheck::New
    }

    /// Checks a counter, and says why it is refused.
    pub fn check(&mut self, counter: u64) -> ReplayCheck {
        if counter >= Self::LIMIT {
            return ReplayCheck::TooOld;
        }
        if counter >= self.next {
            self.advance(counter);
        } else if self.next - 1 - counter > Self::SIZE {
            return ReplayCheck::TooOld;
        }
        let word = &mut self.bits[word_of(counter)];
        let bit = 1 << (counter % WORD_BITS);
        let seen = *word & bit != 0;
        *word |= bit;
        if seen {
            ReplayCheck::Duplicate
        } else {
            ReplayCheck::New
        }
    }

    /// Makes `counter` the greatest and clears the words that lie between.
    fn advance(&mut self, counter: u64) {
        let first = self.next.div_ceil(WORD_BITS);
        let last = counter / WORD_BITS;
        // Words from `first` on have no counter below `next`. Beyond a whole turn every word is stale.
        for word in first..=last.min(first.saturating_add(WORDS as u64 - 1)) {
            self.bits[word_of(word * WORD_BITS)] = 0;
        }
        self.next = counter + 1;
    }
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self::new()
    }
}

impl Window for ReplayWindow {
    fn accept(&mut self, counter: u64) -> ReplayCheck {
        self.check(counter)
    }
}

/// The index of the ring's word that has the bit of `counter`.
const fn word_of(counter: u64) -> usize {
    // The index is less than `WORDS`, so it fits.
    ((counter / WORD_BITS) % WORDS as u64) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// A reference window: slow and obvious.
    #[derive(Default)]
    struct Model {
        seen: HashSet<u64>,
        greatest: u64,
    }

    impl Model {
        fn accept(&mut self, counter: u64) -> bool {
            let fits = counter < ReplayWindow::LIMIT
                && counter.saturating_add(ReplayWindow::SIZE) >= self.greatest;
            if !fits || !self.seen.insert(counter) {
                return false;
            }
            self.greatest = self.greatest.max(counter);
            true
        }
    }

    /// The sequence with which the kernel and wireguard-go test: counters, and whether each is accepted.
    #[test]
    fn the_sequence_of_the_kernels_selftest() {
        const LIMIT: u64 = ReplayWindow::SIZE + 1;
        const LAST: u64 = ReplayWindow::LIMIT;
        let sequence = [
            (0, true),
            (1, true),
            (1, false),
            (9, true),
            (8, true),
            (7, true),
            (7, false),
            (LIMIT, true),
            (LIMIT - 1, true),
            (LIMIT - 1, false),
            (LIMIT - 2, true),
            (2, true),
            (2, false),
            (LIMIT + 16, true),
            (3, false),
            (LIMIT + 16, false),
            (LIMIT * 4, true),
            (LIMIT * 4 - (LIMIT - 1), true),
            (10, false),
            (LIMIT * 4 - LIMIT, false),
            (LIMIT * 4 - (LIMIT + 1), false),
            (LIMIT * 4 - (LIMIT - 2), true),
            (LIMIT * 4 + 1 - LIMIT, false),
            (0, false),
            (LAST, false),
            (LAST - 1, true),
            (LAST, false),
            (LAST - 1, false),
            (LAST - 2, true),
            (LAST + 1, false),
            (LAST + 2, false),
            (LAST - 2, false),
            (LAST - 3, true),
            (0, false),
        ];
        let mut window = ReplayWindow::new();
        for (number, (counter, taken)) in sequence.into_iter().enumerate() {
            assert_eq!(
                window.accept(counter),
                taken,
                "step {} with {counter}",
                number + 1
            );
        }
    }

    #[test]
    fn every_order_of_a_full_window() {
        const SIZE: u64 = ReplayWindow::SIZE;
        let mut window = ReplayWindow::new();
        assert!((0..=SIZE).rev().all(|counter| window.accept(counter)));
        assert!(!(0..=SIZE).any(|counter| window.accept(counter)));
        let mut window = ReplayWindow::new();
        assert!((1..=SIZE).all(|counter| window.accept(counter)));
        assert!(window.accept(0));
        assert!(window.accept(SIZE + 1));
        assert!(!window.accept(0));
    }

    #[test]
    fn a_duplicate_is_told_from_a_packet_that_is_too_old() {
        let mut window = ReplayWindow::new();
        assert_eq!(window.check(5), ReplayCheck::New);
        assert_eq!(window.check(5), ReplayCheck::Duplicate);
        assert_eq!(window.check(5 + ReplayWindow::SIZE), ReplayCheck::New);
        assert_eq!(window.check(5), ReplayCheck::Duplicate, "just within");
        assert_eq!(window.check(4), ReplayCheck::TooOld, "never seen");
        assert_eq!(window.check(ReplayWindow::LIMIT), ReplayCheck::TooOld);
    }

    proptest! {
        #[test]
        fn agrees_with_the_model(steps in prop::collection::vec((any::<u8>(), 0_u64..20_000, any::<u64>()), 1..400)) {
            let mut window = ReplayWindow::new();
            let mut model = Model::default();
            for (kind, small, any) in steps {
                let around = model.greatest;
                let counter = match kind {
                    0..=90 => around.saturating_sub(small % 200),
                    91..=160 => around.saturating_add(small % 200),
                    161..=200 => around.saturating_sub(small),
                    201..=240 => around.saturating_add(small),
                    241..=243 => any,
                    _ => ReplayWindow::SIZE.wrapping_add(small % 3).wrapping_add(around).wrapping_sub(1),
                };
                prop_assert_eq!(window.accept(counter), model.accept(counter), "counter {}", counter);
            }
        }
    }
}
