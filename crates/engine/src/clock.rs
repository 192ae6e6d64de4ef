//! The data plane's time: milliseconds since the tunnel was made, in an atomic.

use plane::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Where time starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Epoch(Instant);

impl Epoch {
    /// Starts time a little before now, so that no moment is ever zero.
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self(now.checked_sub(Duration::from_secs(1)).unwrap_or(now))
    }

    /// `at` in milliseconds, at least 1.
    pub(crate) fn millis(self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.0);
        // `as_millis` would calculate in 128 bits.
        (since.as_secs() * 1000 + u64::from(since.subsec_millis())).max(1)
    }

    /// `at` in microseconds, at least 1.
    pub(crate) fn micros(self, at: Instant) -> u64 {
        (at.saturating_duration_since(self.0).as_micros() as u64).max(1)
    }

    /// The moment at `millis`; `None` for 0, which stands for "never".
    pub(crate) fn instant(self, millis: u64) -> Option<Instant> {
        if millis == 0 {
            None
        } else {
            self.0.checked_add(Duration::from_millis(millis))
        }
    }
}

/// A moment that workers set and control reads; 0 means "never".
#[derive(Debug, Default)]
pub(crate) struct Moment(AtomicU64);

impl Moment {
    pub(crate) fn set(&self, millis: u64) {
        self.0.store(millis, Ordering::Relaxed);
    }

    pub(crate) fn clear(&self) {
        // Reading first keeps the cache line shared when there is nothing to clear.
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.store(0, Ordering::Relaxed);
        }
    }

    /// Sets the moment unless it is set.
    pub(crate) fn set_first(&self, millis: u64) {
        if self.0.load(Ordering::Relaxed) == 0 {
            self.0.store(millis, Ordering::Relaxed);
        }
    }

    pub(crate) fn millis(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
