//! How often a password may be tried.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Tries that an address has at once.
const BURST: u32 = 5;

/// The time after which an address has one more.
const EACH: Duration = Duration::from_secs(10);

/// Tries that all addresses together have at once: an attacker may have many of IPv6.
const BURST_OF_ALL: u32 = 20;

/// The time after which all together have one more.
const EACH_OF_ALL: Duration = Duration::from_secs(2);

/// Addresses that are remembered.
const REMEMBERED: usize = 64;

/// So many tries, which come back one after the other.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    used: u32,
    since: Instant,
}

impl Bucket {
    fn new(now: Instant) -> Self {
        Self {
            used: 0,
            since: now,
        }
    }

    /// Gives back what has come back since. True when nothing is used.
    fn refill(&mut self, each: Duration, now: Instant) -> bool {
        while self.used > 0 && now.saturating_duration_since(self.since) >= each {
            self.used -= 1;
            self.since += each;
        }
        if self.used == 0 {
            self.since = now;
        }
        self.used == 0
    }

    /// How long until there is one.
    fn wait(&self, burst: u32, each: Duration, now: Instant) -> Option<Duration> {
        let waited = now.saturating_duration_since(self.since);
        (self.used >= burst).then(|| each.saturating_sub(waited))
    }
}

/// The tries of all addresses.
#[derive(Debug)]
pub struct Attempts {
    all: Bucket,
    /// The latest last.
    of: VecDeque<(IpAddr, Bucket)>,
}

impl Attempts {
    /// None so far.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            all: Bucket::new(now),
            of: VecDeque::new(),
        }
    }

    /// One more try of an address: a success gives it back ([`Attempts::forgive`]).
    ///
    /// # Errors
    /// Not now: after so long.
    pub fn begin(&mut self, address: IpAddr, now: Instant) -> Result<(), Duration> {
        let address = network(address);
        self.all.refill(EACH_OF_ALL, now);
        self.of.retain_mut(|(_, it)| !it.refill(EACH, now));
        if let Some(wait) = self.all.wait(BURST_OF_ALL, EACH_OF_ALL, now) {
            return Err(wait);
        }
        let known = self.of.iter().position(|(it, _)| *it == address);
        let known = known.and_then(|place| self.of.remove(place));
        let (_, mut bucket) = known.unwrap_or_else(|| (address, Bucket::new(now)));
        let wait = bucket.wait(BURST, EACH, now);
        if wait.is_none() {
            bucket.used += 1;
            self.all.used += 1;
        }
        // What is forgotten for room is still among those of all.
        if self.of.len() >= REMEMBERED {
            self.of.pop_front();
        }
        self.of.push_back((address, bucket));
        wait.map_or(Ok(()), Err)
    }

    /// It was the password.
    pub fn forgive(&mut self, address: IpAddr) {
        let address = network(address);
        self.of.retain(|(it, _)| *it != address);
        self.all.used = self.all.used.saturating_sub(1);
    }
}

/// A host has a network of IPv6 to itself.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) => IpAddr::V6((u128::from(six) >> 64 << 64).into()),
        four => four,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_few_tries_and_one_more_after_a_while() {
        let begin = Instant::now();
        let mut attempts = Attempts::new(begin);
        for _ in 0..BURST {
            assert_eq!(attempts.begin(ip("10.0.0.1"), begin), Ok(()));
        }
        assert_eq!(attempts.begin(ip("10.0.0.1"), begin), Err(EACH));
        assert_eq!(attempts.begin(ip("::ffff:10.0.0.1"), begin), Err(EACH));
        assert_eq!(attempts.begin(ip("10.0.0.2"), begin), Ok(()));
        let later = begin + EACH;
        assert_eq!(attempts.begin(ip("10.0.0.1"), later), Ok(()));
        assert!(attempts.begin(ip("10.0.0.1"), later).is_err());
        attempts.forgive(ip("10.0.0.1"));
        assert_eq!(attempts.begin(ip("10.0.0.1"), later), Ok(()));
    }

    #[test]
    fn many_addresses_have_not_many_more() {
        let begin = Instant::now();
        let mut attempts = Attempts::new(begin);
        let mut tried = 0;
        for number in 0..10_000_u32 {
            let address = IpAddr::V6((u128::from(number) << 64).into());
            tried += u32::from(attempts.begin(address, begin).is_ok());
        }
        assert_eq!(tried, BURST_OF_ALL);
        assert!(attempts.of.len() <= REMEMBERED);
        // Of one network, all are one.
        let mut attempts = Attempts::new(begin);
        for number in 0..BURST {
            assert_eq!(
                attempts.begin(ip(&format!("fd00::{number}")), begin),
                Ok(())
            );
        }
        assert!(attempts.begin(ip("fd00::ffff"), begin).is_err());
    }
}
