//! When a line that carries so much has sent what it was given.

use std::time::{Duration, Instant};

/// Paces what is sent by one line. What a late timer has let pass may be made up for, up to a bound.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    /// Bits a second; `None` is more than ever comes.
    rate: Option<u64>,
    burst: Duration,
    /// When the line has sent what it was given, and when it began with the last of it.
    idle_at: Option<Instant>,
    began: Option<Instant>,
}

impl Pacer {
    /// A line that is idle.
    #[must_use]
    pub const fn new(rate: Option<u64>, burst: Duration) -> Self {
        Self {
            rate,
            burst,
            idle_at: None,
            began: None,
        }
    }

    /// Bits a second.
    #[must_use]
    pub const fn rate(&self) -> Option<u64> {
        self.rate
    }

    /// The line has another rate. For how long it was busy at the last one says nothing.
    pub const fn set_rate(&mut self, rate: Option<u64>) {
        self.rate = rate;
        (self.idle_at, self.began) = (None, None);
    }

    /// When the line can send again; `None` if it never was busy.
    #[must_use]
    pub const fn idle_at(&self) -> Option<Instant> {
        self.idle_at
    }

    /// Whether the line can send.
    #[must_use]
    pub fn is_idle(&self, now: Instant) -> bool {
        self.idle_at.is_none_or(|idle| idle <= now)
    }

    /// The line is busy with this many bytes more.
    pub fn occupy(&mut self, bytes: usize, now: Instant) {
        if self.rate.is_none_or(|rate| rate == 0) {
            (self.idle_at, self.began) = (None, None);
            return;
        }
        let earliest = now.checked_sub(self.burst).unwrap_or(now);
        let from = self.idle_at.map_or(now, |idle| idle.max(earliest));
        self.began = Some(from);
        self.idle_at = Some(from + self.takes(bytes));
    }

    /// Corrects the size of the last packet to so many bytes.
    pub fn settle(&mut self, bytes: usize) {
        if let Some(began) = self.began {
            self.idle_at = Some(began + self.takes(bytes));
        }
    }

    /// How long the line takes for so many bytes.
    fn takes(&self, bytes: usize) -> Duration {
        let rate = self.rate.unwrap_or(0).max(1);
        Duration::from_nanos((bytes as u64).saturating_mul(8_000_000_000) / rate)
    }
}
