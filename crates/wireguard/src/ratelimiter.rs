//! How many handshakes one source may begin while the device is under load.
//!
//! A token bucket for each source: 20 a second, 5 at once. Sources have proven their address by a cookie, so filling the
//! table costs an attacker as many addresses.
//!
//! AmneziaWG can do without cookies. Then an address proves nothing: the addresses of peers have buckets that
//! no flood from other addresses empties, and all other sources share 1,000 messages a second.

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

/// The cost of one message that comes from no peer's address, if there are no cookies: 1,000 messages a second from all
/// of them, a quarter of what a small core serves.
const STRANGER_COST: Duration = Duration::from_millis(1);

#[derive(Debug)]
struct Bucket {
    tokens: Duration,
    filled: Instant,
}

impl Bucket {
    const fn full(now: Instant) -> Self {
        Self {
            tokens: BURST,
            filled: now,
        }
    }

    /// Takes the tokens that a message costs, if there are enough.
    fn take(&mut self, cost: Duration, now: Instant) -> bool {
        self.tokens = BURST.min(self.tokens + now.saturating_duration_since(self.filled));
        self.filled = now;
        let left = self.tokens.checked_sub(cost);
        self.tokens = left.unwrap_or(self.tokens);
        left.is_some()
    }
}

/// The limits without cookies.
#[derive(Debug)]
struct Unproven {
    /// The sources where peers are, as they were at the time `since`.
    peers: HashMap<u128, Bucket>,
    since: Instant,
    strangers: Bucket,
}

#[derive(Debug)]
pub(crate) struct RateLimiter {
    sources: HashMap<u128, Bucket>,
    unproven: Option<Unproven>,
    /// Bits of an IPv4 address that make a source.
    v4_prefix: u8,
    next_sweep: Option<Instant>,
}

impl RateLimiter {
    pub(crate) fn new() -> Self {
        Self {
            sources: HashMap::new(),
            unproven: None,
            v4_prefix: 32,
            next_sweep: None,
        }
    }

    /// Counts IPv4 sources by this many leading bits: 32, or less where an attacker has whole networks.
    pub(crate) fn set_v4_prefix(&mut self, bits: u8) {
        self.v4_prefix = bits.clamp(1, 32);
        self.forget();
    }

    /// Frees the table when the load is over. A second has passed without load, so all buckets are full anyway.
    pub(crate) fn forget(&mut self) {
        self.sources = HashMap::new();
        self.unproven = None;
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
        let bucket = self.sources.entry(source);
        bucket.or_insert_with(|| Bucket::full(now)).take(COST, now)
    }

    /// Whether a message from this address, which it has not proven, may cost more work. `endpoints` are the addresses
    /// of all peers; they are read once a second.
    pub(crate) fn allow_unproven<I: Iterator<Item = SocketAddr>>(
        &mut self,
        from: SocketAddr,
        endpoints: impl FnOnce() -> I,
        now: Instant,
    ) -> bool {
        self.sweep(now);
        let outdated = |it: &Unproven| now.saturating_duration_since(it.since) >= IDLE;
        if self.unproven.as_ref().is_none_or(outdated) {
            let sources = endpoints().map(|at| (self.source(at.ip()), Bucket::full(now)));
            let peers = sources.collect();
            let strangers = self.unproven.take().map(|it| it.strangers);
            self.unproven = Some(Unproven {
                peers,
                since: now,
                strangers: strangers.unwrap_or_else(|| Bucket::full(now)),
            });
        }
        let source = self.source(from.ip());
        let Some(unproven) = &mut self.unproven else {
            return false;
        };
        if let Some(bucket) = unproven.peers.get_mut(&source) {
            return bucket.take(COST, now);
        }
        // Once forged addresses have filled the table, it tells nothing.
        let counts = self.sources.len() < MAX_SOURCES || self.sources.contains_key(&source);
        let bucket = counts.then(|| {
            self.sources
                .entry(source)
                .or_insert_with(|| Bucket::full(now))
        });
        bucket.is_none_or(|bucket| bucket.take(COST, now))
            && unproven.strangers.take(STRANGER_COST, now)
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
    fn without_cookies_a_flood_leaves_the_peers_their_share() {
        let now = Instant::now();
        let mut limiter = RateLimiter::new();
        let from = |n: u32| SocketAddr::new(IpAddr::V4(n.into()), 1);
        let mut allowed = |sources: std::ops::Range<u32>, times: usize, now| {
            let allow = |&n: &u32| limiter.allow_unproven(from(n), || [from(7)].into_iter(), now);
            let sources = sources.flat_map(|n| std::iter::repeat_n(n, times));
            sources.filter(allow).count()
        };
        assert_eq!(allowed(8..9, 10, now), 5);
        for second in 1..4 {
            let now = now + Duration::from_secs(second);
            assert_eq!(allowed(100..100_000, 1, now), 250);
            assert_eq!(allowed(7..8, 10, now), 5);
        }
        let later = now + Duration::from_millis(3_100);
        assert_eq!(allowed(100..100_000, 1, later), 100);
        assert_eq!(allowed(7..8, 10, later), 2);
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
