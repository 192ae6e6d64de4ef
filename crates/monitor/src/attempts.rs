//! Limits how often a password may be tried, and ranks those who try.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use plane::SourceNetwork;

/// Tries that each asker has at once.
const BURST: u32 = 5;

/// Time until an asker gets one more try.
const EACH: Duration = Duration::from_secs(10);

/// Tries that all unknown askers together have at once: an attacker may have many IPv6 networks.
const BURST_OF_ALL: u32 = 20;

/// Time until all unknown askers together get one more try.
const EACH_OF_ALL: Duration = Duration::from_secs(2);

/// Tries of an asker that ignore the common limit: an owner who mistypes does not wait for an attacker.
const FREE: u32 = 3;

/// How long a failed try is remembered.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// The most askers that are remembered: several times the addresses of a usual LAN. A new asker replaces the one that
/// tried longest ago, and its failures are forgotten; so a full table refuses nobody.
const MOST: usize = 1024;

/// Someone who tries a password.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Asker {
    /// A browser in which somebody has logged in before, by the digest of its token.
    Known([u8; 32]),
    /// Any other client in a network.
    Network(SourceNetwork),
}

/// The order of askers: the lowest rank goes first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Rank(u32);

/// A number of tries that are returned one after the other.
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

    /// Returns the tries that are due by now.
    fn refill(&mut self, each: Duration, now: Instant) {
        while self.used > 0 && now.saturating_duration_since(self.since) >= each {
            self.used -= 1;
            self.since += each;
        }
        if self.used == 0 {
            self.since = now;
        }
    }

    /// How long until a try is available; `None` if one is.
    fn wait(&self, burst: u32, each: Duration, now: Instant) -> Option<Duration> {
        let waited = now.saturating_duration_since(self.since);
        (self.used >= burst).then(|| each.saturating_sub(waited))
    }
}

/// The failures of one asker.
#[derive(Debug)]
struct Entry {
    asker: Asker,
    bucket: Bucket,
    /// Tries that were not confirmed as right.
    tries: u32,
    last: Instant,
}

/// The tries of all askers.
#[derive(Debug)]
pub struct Attempts {
    all: Bucket,
    /// The latest asker is last.
    of: VecDeque<Entry>,
}

impl Attempts {
    /// No asker has tried yet.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            all: Bucket::new(now),
            of: VecDeque::new(),
        }
    }

    /// Counts one more try. [`Attempts::forgive`] returns it after a success, [`Attempts::undo`] if the password was
    /// not checked.
    ///
    /// # Errors
    /// The asker must wait for this long.
    pub fn begin(&mut self, asker: Asker, now: Instant) -> Result<Rank, Duration> {
        let recent = |it: &Entry| now.saturating_duration_since(it.last) < REMEMBERED;
        self.of.retain(recent);
        self.all.refill(EACH_OF_ALL, now);
        let known = self.of.iter().position(|it| it.asker == asker);
        let known = known.and_then(|place| self.of.remove(place));
        let mut entry = known.unwrap_or_else(|| Entry {
            asker,
            bucket: Bucket::new(now),
            tries: 0,
            last: now,
        });
        entry.bucket.refill(EACH, now);
        let is_known = matches!(asker, Asker::Known(_));
        let own = entry.bucket.wait(BURST, EACH, now);
        let of_all = match is_known || entry.tries < FREE {
            true => None,
            false => self.all.wait(BURST_OF_ALL, EACH_OF_ALL, now),
        };
        let wait = own.max(of_all);
        let rank = match is_known {
            true => Rank(0),
            false => Rank(entry.tries.saturating_add(1)),
        };
        if wait.is_none() {
            entry.bucket.used += 1;
            entry.tries = entry.tries.saturating_add(1);
            entry.last = now;
            if !is_known {
                // The count stops at the limit: free tries do not make others wait longer.
                self.all.used = BURST_OF_ALL.min(self.all.used + 1);
            }
        }
        if self.of.len() >= MOST {
            self.of.pop_front();
        }
        self.of.push_back(entry);
        wait.map_or(Ok(rank), Err)
    }

    /// Forgets the asker's failures: the password was right.
    pub fn forgive(&mut self, asker: Asker) {
        self.of.retain(|it| it.asker != asker);
        self.give_back(asker);
    }

    /// Returns the try: the password was not checked.
    pub fn undo(&mut self, asker: Asker) {
        if let Some(entry) = self.of.iter_mut().find(|it| it.asker == asker) {
            entry.tries = entry.tries.saturating_sub(1);
            entry.bucket.used = entry.bucket.used.saturating_sub(1);
        }
        self.give_back(asker);
    }

    fn give_back(&mut self, asker: Asker) {
        if matches!(asker, Asker::Network(_)) {
            self.all.used = self.all.used.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asker(text: &str) -> Asker {
        Asker::Network(SourceNetwork::of(text.parse().unwrap()))
    }

    /// The asker from one of many networks.
    fn nth(number: u32) -> Asker {
        Asker::Network(SourceNetwork::of(std::net::IpAddr::V6(
            (u128::from(number) << 64).into(),
        )))
    }

    #[test]
    fn one_who_asks_has_few_tries_and_one_more_after_a_while() {
        let begin = Instant::now();
        let mut attempts = Attempts::new(begin);
        for number in 0..BURST {
            assert_eq!(
                attempts.begin(asker("10.0.0.1"), begin),
                Ok(Rank(number + 1))
            );
        }
        assert_eq!(attempts.begin(asker("10.0.0.1"), begin), Err(EACH));
        assert_eq!(attempts.begin(asker("::ffff:10.0.0.1"), begin), Err(EACH));
        assert_eq!(attempts.begin(asker("10.0.0.2"), begin), Ok(Rank(1)));
        let later = begin + EACH;
        assert!(attempts.begin(asker("10.0.0.1"), later).is_ok());
        assert!(attempts.begin(asker("10.0.0.1"), later).is_err());
        attempts.undo(asker("10.0.0.1"));
        assert_eq!(
            attempts.begin(asker("10.0.0.1"), later),
            Ok(Rank(BURST + 1))
        );
        attempts.forgive(asker("10.0.0.1"));
        assert_eq!(attempts.begin(asker("10.0.0.1"), later), Ok(Rank(1)));
    }

    /// However many networks an attacker has: an asker without failures, or with two, is not refused, and goes before
    /// all that have failed.
    #[test]
    fn an_attacker_with_many_networks_keeps_no_other_out() {
        let begin = Instant::now();
        let mut attempts = Attempts::new(begin);
        let mut tried = 0;
        for round in 0..20 {
            for number in 0..200 {
                let passed = attempts.begin(nth(number), begin).is_ok();
                assert!(passed || round > 0, "{number}");
                tried += u32::from(passed);
            }
        }
        // Each network has its free tries; the last of these also use up the common ones.
        assert_eq!(tried, 200 * FREE);
        assert!(attempts.begin(nth(0), begin).is_err());
        for mistyped in 0..FREE {
            assert_eq!(
                attempts.begin(asker("10.0.0.1"), begin),
                Ok(Rank(mistyped + 1))
            );
        }
        assert!(attempts.begin(nth(200), begin).unwrap() < Rank(FREE));
        // Afterwards all networks together get one try every two seconds.
        let later = begin + EACH_OF_ALL;
        let passed = (0..200).filter(|it| attempts.begin(nth(*it), later).is_ok());
        assert_eq!(passed.count(), 1);
    }

    /// All askers of one network share its tries, but a known browser has its own, and goes first.
    #[test]
    fn a_browser_that_is_known_is_not_taken_for_its_network() {
        let begin = Instant::now();
        let mut attempts = Attempts::new(begin);
        for number in 0..BURST {
            let of_one = asker(&format!("fd00::{number}"));
            assert!(attempts.begin(of_one, begin).is_ok());
        }
        assert!(attempts.begin(asker("fd00::ffff"), begin).is_err());
        let known = Asker::Known([7; 32]);
        for _ in 0..BURST {
            assert_eq!(attempts.begin(known, begin), Ok(Rank(0)));
        }
        assert!(attempts.begin(known, begin).is_err());
    }

    #[test]
    fn those_who_are_remembered_are_bounded_and_forgotten_in_the_end() {
        let begin = Instant::now();
        let mut attempts = Attempts::new(begin);
        for number in 0..5000 {
            assert!(attempts.begin(nth(number), begin).is_ok());
        }
        assert_eq!(attempts.of.len(), MOST);
        assert_eq!(attempts.begin(nth(4999), begin), Ok(Rank(2)));
        assert!(
            attempts
                .begin(asker("10.0.0.1"), begin + REMEMBERED)
                .is_ok()
        );
        assert_eq!(attempts.of.len(), 1);
    }
}
