//! Random numbers for simulations, repeatable by seed.

use std::time::Duration;

/// The xorshift64* generator.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        // Scrambles the seed: similar seeds must differ from the start, and zero would stay zero.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }

    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns a random duration up to `time`, in whole milliseconds.
    pub(crate) fn within(&mut self, time: Duration) -> Duration {
        Duration::from_millis(self.below(time.as_millis().max(1) as u64))
    }
}
