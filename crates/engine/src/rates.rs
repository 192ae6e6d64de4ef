//! Rates of lines for which packets must wait: set by control, followed by the worker that reads the TUN.

use plane::AtomicU64;
use plane::LINES_MAX;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

/// Rates at which packets may leave, in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rates {
    /// Packets do not wait.
    #[default]
    None,
    /// One rate for all lines together.
    Together(u64),
    /// One rate for each line, by number; 0 for a line that must not be used.
    Each([u64; LINES_MAX]),
}

/// The rates that control set last. Finding that nothing has changed costs one relaxed load.
#[derive(Debug, Default)]
pub(crate) struct ToldRates {
    /// 0 if there are no rates; otherwise a count of changes.
    word: AtomicU64,
    rates: Mutex<Rates>,
    told: AtomicU64,
}

impl ToldRates {
    /// A number that changes with the rates; 0 if there are none.
    pub(crate) fn word(&self) -> u64 {
        self.word.load(Ordering::Relaxed)
    }

    /// The rates and their number.
    pub(crate) fn get(&self) -> (Rates, u64) {
        let rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        (*rates, self.word())
    }

    /// Sets the rates. Returns whether they changed.
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
