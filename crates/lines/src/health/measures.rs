//! Measures a line: round trips, loss, rates.

use std::time::{Duration, Instant};

/// Seconds over which rates and losses are kept.
const SECONDS: usize = 10;

/// Round trips: smoothed and their deviation as in RFC 6298, jitter as in RFC 3550 section 6.4.1, and the least recent
/// value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrips {
    smoothed: Option<Duration>,
    deviation: Duration,
    jitter: Duration,
    last: Duration,
    least: Duration,
}

impl RoundTrips {
    pub(super) fn sample(&mut self, sample: Duration) {
        let Some(smoothed) = self.smoothed else {
            *self = Self {
                smoothed: Some(sample),
                deviation: sample / 2,
                jitter: Duration::ZERO,
                last: sample,
                least: sample,
            };
            return;
        };
        self.deviation = (self.deviation * 3 + sample.abs_diff(smoothed)) / 4;
        self.smoothed = Some((smoothed * 7 + sample) / 8);
        self.jitter = (self.jitter * 15 + sample.abs_diff(self.last)) / 16;
        self.last = sample;
        // The least value rises by a 256th of the difference, or a path that has become longer would look slow for
        // ever.
        let risen = self.least + sample.saturating_sub(self.least) / 256;
        self.least = risen.min(sample);
    }

    pub(super) const fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    pub(super) const fn jitter(&self) -> Duration {
        self.jitter
    }

    pub(super) const fn least(&self) -> Duration {
        self.least
    }

    /// The time after which an answer counts as lost.
    pub(super) fn timeout(&self) -> Option<Duration> {
        self.smoothed.map(|smoothed| smoothed + self.deviation * 4)
    }
}

/// Sums over the last ten seconds, a second at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastSeconds {
    sums: [u64; SECONDS],
    /// The second of the newest sum.
    second: u64,
    begun: Option<Instant>,
}

impl LastSeconds {
    pub(super) fn add(&mut self, value: u64, now: Instant) {
        let second = self.turn_to(now);
        self.sums[second as usize % SECONDS] += value;
    }

    /// The sum of the last ten seconds, including the one that has just begun.
    pub(super) fn sum(&mut self, now: Instant) -> u64 {
        self.turn_to(now);
        self.sums.iter().sum()
    }

    /// The mean and the maximum of the whole seconds among the last ten.
    pub(super) fn mean_and_greatest(&mut self, now: Instant) -> (u64, u64) {
        let second = self.turn_to(now);
        let whole = second.min(SECONDS as u64 - 1);
        if whole == 0 {
            return (0, 0);
        }
        let sums = (1..=whole).map(|back| self.sums[(second - back) as usize % SECONDS]);
        (sums.clone().sum::<u64>() / whole, sums.max().unwrap_or(0))
    }

    pub(super) fn clear(&mut self) {
        self.sums = [0; SECONDS];
    }

    fn turn_to(&mut self, now: Instant) -> u64 {
        let begun = *self.begun.get_or_insert(now);
        let second = now.saturating_duration_since(begun).as_secs();
        let passed = second.saturating_sub(self.second).min(SECONDS as u64);
        for step in 0..passed {
            self.sums[(second - step) as usize % SECONDS] = 0;
        }
        self.second = self.second.max(second);
        self.second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn round_trips_are_smoothed() {
        let mut trips = RoundTrips::default();
        for _ in 0..100 {
            trips.sample(MS * 40);
            trips.sample(MS * 60);
        }
        let smoothed = trips.smoothed().unwrap();
        assert!((MS * 48..MS * 53).contains(&smoothed), "{smoothed:?}");
        assert!((MS * 18..MS * 21).contains(&trips.jitter()));
        assert!((MS * 40..MS * 41).contains(&trips.least()));
        assert!(trips.timeout().unwrap() > MS * 80);
    }

    #[test]
    fn seconds_are_forgotten_after_ten() {
        let start = Instant::now();
        let mut seconds = LastSeconds::default();
        for second in 0..30 {
            seconds.add(100, start + MS * 1000 * second);
            seconds.add(
                50 * u64::from(second % 2),
                start + MS * (1000 * second + 500),
            );
        }
        let now = start + MS * 29_900;
        assert_eq!(seconds.sum(now), 1250);
        assert_eq!(
            seconds.mean_and_greatest(now),
            ((4 * 150 + 5 * 100) / 9, 150)
        );
        assert_eq!(seconds.sum(now + MS * 3000), 900);
        assert_eq!(seconds.sum(now + MS * 60_000), 0);
    }
}
