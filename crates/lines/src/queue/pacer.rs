//! Computes when a line of a given rate has sent everything that it was given.

use std::time::{Duration, Instant};

/// Paces the packets sent by one line. Time lost to a late timer may be made up for, up to a bound.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    /// The rate in bits a second; `None` means no limit.
    rate: Option<u64>,
    burst: Duration,
    /// When the line has sent what it was given, and when it began with the last packet.
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

    /// Sets another rate of the line, and forgets how long the line is busy at the old one.
    pub const fn set_rate(&mut self, rate: Option<u64>) {
        self.rate = rate;
        (self.idle_at, self.began) = (None, None);
    }

    /// When the line can send again; `None` if it was never busy.
    #[must_use]
    pub const fn idle_at(&self) -> Option<Instant> {
        self.idle_at
    }

    /// Whether the line can send now.
    #[must_use]
    pub fn is_idle(&self, now: Instant) -> bool {
        self.idle_at.is_none_or(|idle| idle <= now)
    }

    /// Makes the line busy with this many more bytes.
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
