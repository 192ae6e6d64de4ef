//! Rates of lines, where packets have to wait for them: told by control, followed by the worker that reads the TUN.

use plane::AtomicU64;
use plane::LINES_MAX;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

/// At which rates packets may leave, in bits a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rates {
    /// Packets do not wait.
    #[default]
    None,
    /// All lines together.
    Together(u64),
    /// Each line by itself, by number; 0 for one by which nothing is to go.
    Each([u64; LINES_MAX]),
}

/// The rates that control told last. What it costs to find that nothing has changed is one relaxed load.
#[derive(Debug, Default)]
pub(crate) struct ToldRates {
    /// 0 where there are none; else how often they were told.
    word: AtomicU64,
    rates: Mutex<Rates>,
    told: AtomicU64,
}

impl ToldRates {
    /// A number that is another when the rates are, and 0 without any.
    pub(crate) fn word(&self) -> u64 {
        self.word.load(Ordering::Relaxed)
    }

    /// The rates, and their number.
    pub(crate) fn get(&self) -> (Rates, u64) {
        let rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        (*rates, self.word())
    }

    /// Returns whether these are others than before.
    pub(crate) fn set(&self, wanted: Rates) -> bool {
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = std::mem::replace(&mut *rates, wanted) != wanted;
        if changed {
            let told = self.told.fetch_add(1, Ordering::Relaxed) + 1;
            let word = if wanted == Rates::None { 0 } else { told };
            self.word.store(word, Ordering::Relaxed);
        }
        changed
    }
}
