//! How many handshakes one source may begin while the device is under load.
//!
//! A token bucket for each source: 20 a second, 5 at once. It is used only for sources that have proven their address,
//! so filling the table costs an attacker as many addresses.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// The cost of one message: 20 messages a second.
const COST: Duration = Duration::from_millis(50);
/// The capacity of a bucket: five messages.
const BURST: Duration = Duration::from_millis(250);
/// A source that was silent for this long has a full bucket and need not be remembered.
const IDLE: Duration = Duration::from_secs(1);
/// Maximum number of sources at a time, about 300 KiB, unless there are more peers than half of that. Beyond it,
/// unknown sources are refused until a second has passed.
const MAX_SOURCES: usize = 4096;

#[derive(Debug)]
struct Bucket {
    tokens: Duration,
    filled: Instant,
}

#[derive(Debug)]
pub(crate) struct RateLimiter {
    sources: HashMap<u128, Bucket>,
    /// Bits of an IPv4 address that make a source.
    v4_prefix: u8,
    next_sweep: Option<Instant>,
}

impl RateLimiter {
    pub(crate) fn new() -> Self {
        Self {
            sources: HashMap::new(),
            v4_prefix: 32,
            next_sweep: None,
        }
    }

    /// Counts IPv4 sources by this many leading bits: 32, or less where an attacker has whole networks.
    pub(crate) fn set_v4_prefix(&mut self, bits: u8) {
        self.v4_prefix = bits.clamp(1, 32);
        self.sources.clear();
    }

    /// Frees the table when the load is over. A second has passed without load, so all buckets are full anyway.
    pub(crate) fn forget(&mut self) {
        self.sources = HashMap::new();
    }

    /// Whether a message from this address may cost more work, on a device with this many peers. All peers may begin in
    /// the same second.
    pub(crate) fn allow(&mut self, from: SocketAddr, peers: usize, now: Instant) -> bool {
        self.sweep(now);
        let source = self.source(from.ip());
        let most = MAX_SOURCES.max(peers.saturating_mul(2));
        if !self.sources.contains_key(&source) && self.sources.len() >= most {
            return false;
        }
        let bucket = self.sources.entry(source).or_insert(Bucket {
            tokens: BURST,
            filled: now,
        });
        bucket.tokens = BURST.min(bucket.tokens + now.saturating_duration_since(bucket.filled));
        bucket.filled = now;
        match bucket.tokens.checked_sub(COST) {
            Some(tokens) => {
                bucket.tokens = tokens;
                true
            }
            None => false,
        }
    }

    /// IPv4 by its prefix, IPv6 by /64, the least that a subscriber gets. An IPv4 address is the same source when the
    /// socket shows it mapped into IPv6.
    fn source(&self, ip: IpAddr) -> u128 {
        match ip.to_canonical() {
            IpAddr::V4(ip) => u128::from(u32::from(ip) & (u32::MAX << (32 - self.v4_prefix))),
            // The lower half is free to tell the families apart: ::/64 would otherwise be 0.0.0.0.
            IpAddr::V6(ip) => (u128::from(ip) & (u128::MAX << 64)) | 1 << 63,
        }
    }

    /// Removes idle sources: once a second, and only while messages come.
    fn sweep(&mut self, now: Instant) {
        if self.next_sweep.is_none_or(|at| now >= at) {
            self.sources
                .retain(|_, bucket| now.saturating_duration_since(bucket.filled) < IDLE);
            self.next_sweep = Some(now + IDLE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(limiter: &mut RateLimiter, from: &str, now: Instant, times: usize) -> usize {
        let from = from.parse().unwrap();
        (0..times).filter(|_| limiter.allow(from, 1, now)).count()
    }

    #[test]
    fn five_at_once_then_twenty_a_second() {
        let now = Instant::now();
        let mut limiter = RateLimiter::new();
        assert_eq!(allowed(&mut limiter, "10.0.0.1:1", now, 100), 5);
        assert_eq!(
            allowed(
                &mut limiter,
                "10.0.0.1:2",
                now + Duration::from_millis(49),
                100
            ),
            0
        );
        assert_eq!(
            allowed(
                &mut limiter,
                "10.0.0.1:3",
                now + Duration::from_millis(50),
                100
            ),
            1
        );
        assert_eq!(allowed(&mut limiter, "10.0.0.2:1", now, 100), 5);
        assert_eq!(
            allowed(
                &mut limiter,
                "10.0.0.1:1",
                now + Duration::from_secs(5),
                100
            ),
            5
        );
    }

    #[test]
    fn sources_are_networks() {
        let now = Instant::now();
        let mut limiter = RateLimiter::new();
        assert_eq!(allowed(&mut limiter, "[2001:db8::1]:1", now, 9), 5);
        assert_eq!(allowed(&mut limiter, "[2001:db8::ffff:1]:1", now, 9), 0);
        assert_eq!(allowed(&mut limiter, "[2001:db8:0:1::1]:1", now, 9), 5);
        assert_eq!(allowed(&mut limiter, "10.0.0.1:1", now, 9), 5);
        assert_eq!(allowed(&mut limiter, "[::ffff:10.0.0.1]:1", now, 9), 0);
        assert_eq!(allowed(&mut limiter, "10.0.0.2:1", now, 9), 5);
        limiter.set_v4_prefix(24);
        assert_eq!(allowed(&mut limiter, "10.0.0.1:1", now, 9), 5);
        assert_eq!(allowed(&mut limiter, "10.0.0.2:1", now, 9), 0);
        assert_eq!(allowed(&mut limiter, "10.0.1.2:1", now, 9), 5);
    }

    #[test]
    fn the_table_is_bounded_and_forgets() {
        let now = Instant::now();
        let mut limiter = RateLimiter::new();
        let from = |n: u32| SocketAddr::new(IpAddr::V4(n.into()), 1);
        let mut allowed = |peers| {
            let allow = |&n: &u32| limiter.allow(from(n), peers, now);
            (0..10_000).filter(allow).count()
        };
        assert_eq!(allowed(1), MAX_SOURCES);
        // Known sources may send another four messages.
        assert_eq!(allowed(3000), 6000);
        assert!(limiter.allow(from(0), 1, now));
        assert!(limiter.allow(from(9_999), 1, now + IDLE));
        assert_eq!(limiter.sources.len(), 1);
    }
}
