//! Token buckets, which limit how much one client may send and be sent.
//!
//! A bucket is stored as one moment: when it would be full again if nothing more were taken out. This is the "virtual
//! scheduling" form of the leaky bucket (ITU-T I.371), which needs neither a timer nor fractions of tokens.

use std::time::{Duration, Instant};

/// Bytes counted for IP and UDP headers of each datagram: those of IPv6, so IPv4 counts a little too much.
const HEADERS: u64 = 48;

/// The content of a full bucket: traffic for this long, and at least the largest train.
const BURST: Duration = Duration::from_millis(100);

/// The largest train that a socket delivers: 64 KiB and 64 datagrams, with their headers.
const TRAIN_BYTES: u64 = (64 << 10) + 64 * HEADERS;
const TRAIN_PACKETS: u64 = 64;

const SECOND: u64 = 1_000_000_000;

/// The rates in each direction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rates {
    /// Bits a second, IP and UDP headers included. Not 0.
    bits: u64,
    /// Datagrams a second. Not 0.
    packets: u64,
}

impl Rates {
    /// Makes a rate of `bits` and `packets` a second; 0 counts as 1.
    #[must_use]
    pub const fn of(bits: u64, packets: u64) -> Self {
        Self {
            bits: if bits == 0 { 1 } else { bits },
            packets: if packets == 0 { 1 } else { packets },
        }
    }

    /// Nanoseconds that `bytes` take.
    fn of_bytes(self, bytes: u64) -> u64 {
        bytes.saturating_mul(8 * SECOND) / self.bits
    }

    /// Nanoseconds that `packets` take.
    fn of_packets(self, packets: u64) -> u64 {
        packets.saturating_mul(SECOND) / self.packets
    }
}

/// The buckets of one direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    rates: Rates,
    start: Instant,
    /// Nanoseconds after `start` at which each bucket is full.
    bytes_full: u64,
    packets_full: u64,
}

impl Limit {
    /// Makes full buckets.
    pub(super) const fn new(rates: Rates, now: Instant) -> Self {
        Self {
            rates,
            start: now,
            bytes_full: 0,
            packets_full: 0,
        }
    }

    /// Takes out `count` datagrams of `bytes` each, or as many as fit. Returns how many.
    pub(super) fn take(&mut self, count: u32, bytes: u32, now: Instant) -> u32 {
        let now = now.saturating_duration_since(self.start).as_nanos();
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        let burst = u64::try_from(BURST.as_nanos()).unwrap_or(u64::MAX);
        let fit = |full: u64, cost: u64, train: u64| {
            let left = burst.max(train).saturating_sub(full.saturating_sub(now));
            // A cost below a nanosecond sets no limit.
            left.checked_div(cost).unwrap_or(u64::MAX)
        };
        let rates = self.rates;
        let bytes = u64::from(bytes) + HEADERS;
        let by_bytes = fit(
            self.bytes_full,
            rates.of_bytes(bytes),
            rates.of_bytes(TRAIN_BYTES),
        );
        let by_packets = fit(
            self.packets_full,
            rates.of_packets(1),
            rates.of_packets(TRAIN_PACKETS),
        );
        let taken = by_bytes.min(by_packets).min(u64::from(count));
        let later = |full: u64, cost: u64| full.max(now).saturating_add(cost);
        self.bytes_full = later(self.bytes_full, rates.of_bytes(bytes.saturating_mul(taken)));
        self.packets_full = later(self.packets_full, rates.of_packets(taken));
        u32::try_from(taken).unwrap_or(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Sends trains of `count` datagrams of 1,352 bytes, one each millisecond, for ten seconds. Returns the bytes and
    /// the datagrams that pass.
    fn ten_seconds(rates: Rates, count: u32) -> (u64, u64) {
        let start = Instant::now();
        let mut limit = Limit::new(rates, start);
        let passed: u64 = (0..10_000)
            .map(|ms| limit.take(count, 1352, start + Duration::from_millis(ms)))
            .map(u64::from)
            .sum();
        (passed * 1400, passed)
    }

    #[test]
    fn no_more_than_the_rate_passes_and_not_much_less() {
        for (bits, count) in [(1_000_000, 1), (50_000_000, 40), (1_000_000_000, 40)] {
            let (bytes, _) = ten_seconds(Rates::of(bits, u64::MAX), count);
            let least = (bits / 8 * 10).min(u64::from(count) * 10_000 * 1400);
            let burst = (bits / 80).max(TRAIN_BYTES);
            assert!(
                (least / 100 * 99..=least + burst).contains(&bytes),
                "{bits}: {bytes}"
            );
        }
        let (_, packets) = ten_seconds(Rates::of(u64::MAX, 500), 3);
        assert!((4950..=5064).contains(&packets), "{packets}");
    }

    #[test]
    fn what_is_within_the_rates_is_never_held_back() {
        let start = Instant::now();
        let mut limit = Limit::new(Rates::of(12_000_000, 1_000), start);
        for ms in 0..100_000 {
            let now = start + Duration::from_millis(ms);
            assert_eq!(limit.take(1, 1452, now), 1, "{ms}");
        }
    }

    #[test]
    fn a_whole_train_passes_at_any_rate_once_and_the_next_when_its_time_has_come() {
        let start = Instant::now();
        let mut limit = Limit::new(Rates::of(1_000_000, 100), start);
        assert_eq!(limit.take(45, 1400, start), 45);
        assert!(limit.take(45, 1400, start) < 3);
        assert_eq!(limit.take(45, 1400, start + Duration::from_secs(1)), 45);
        assert_eq!(limit.take(0, 1400, start), 0);
    }

    proptest! {
        #[test]
        fn no_numbers_overflow(
            bits: u64, packets: u64, count: u32, bytes: u32, after in 0..u64::MAX / 4,
        ) {
            let start = Instant::now();
            let mut limit = Limit::new(Rates::of(bits, packets), start);
            let later = start.checked_add(Duration::from_nanos(after)).unwrap_or(start);
            for now in [start, later, start] {
                prop_assert!(limit.take(count, bytes, now) <= count);
            }
        }
    }
}
