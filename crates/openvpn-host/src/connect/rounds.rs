//! Chooses the next server and the pause before it, without clock or network.
//!
//! Follows OpenVPN: the addresses of one remote, then the next remote, in endless rounds. Pauses begin at
//! `connect-retry` and, after five rounds, double with each round.

use std::net::SocketAddr;
use std::time::Duration;

use openvpn::message::Advance;
use thiserror::Error;

/// Completed rounds over all remotes up to which pauses stay the same; they grow after one more.
const PATIENT_ROUNDS: u32 = 4;

/// Maximum number of doublings of a pause.
const DOUBLINGS_MAX: u32 = 15;

/// Pause after a round in which no name had an address.
const NAMES_PAUSE: Duration = Duration::from_secs(5);

/// Reason for giving up.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum GiveUp {
    /// `connect-retry-max` attempts have failed.
    #[error("All connections have been connect-retry-max ({0}) times unsuccessful, exiting")]
    Tried(u32),
    /// No name was resolved within `resolv-retry`.
    #[error("cannot resolve any remote within resolv-retry: {0}")]
    Names(String),
    /// The configuration has no remote.
    #[error("there is no remote to connect to; add one")]
    NoRemote,
}

/// Pause settings of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pauses {
    /// `connect-retry N`, in seconds.
    pub(crate) first: u32,
    /// `connect-retry N MAX`, in seconds.
    pub(crate) max: u32,
}

/// Next step of the walk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Choice {
    /// Try this address of this connection.
    Address(usize, SocketAddr),
    /// Resolve this connection's name first.
    Resolve(usize),
}

/// The walk over `count` connections.
#[derive(Debug)]
pub(crate) struct Rounds {
    count: usize,
    /// `connect-retry-max`.
    tries_max: Option<u32>,
    current: Option<usize>,
    addresses: Vec<SocketAddr>,
    at: usize,
    /// Try the current server again, once.
    stay: bool,
    /// Skip the remote's other addresses, once.
    next_remote: bool,
    /// Attempts since the last success.
    failed: u32,
    /// Consecutive connections without an address.
    nameless: usize,
    /// Minimum pause that the server requested; used once.
    at_least: Duration,
}

impl Rounds {
    pub(crate) fn new(count: usize, tries_max: Option<u32>) -> Self {
        Self {
            count,
            tries_max,
            current: None,
            addresses: Vec::new(),
            at: 0,
            stay: false,
            next_remote: false,
            failed: 0,
            nameless: 0,
            at_least: Duration::ZERO,
        }
    }

    /// Returns the pause before the next attempt; `pauses` are the last connection's.
    pub(crate) fn pause(&mut self, pauses: Pauses) -> Duration {
        let asked = std::mem::take(&mut self.at_least);
        let all_nameless = self.nameless > 0 && self.nameless.is_multiple_of(self.count.max(1));
        if self.failed == 0 && self.nameless == 0 {
            return asked;
        }
        let count = u32::try_from(self.count.max(1)).unwrap_or(u32::MAX);
        let rounds = self.failed / count;
        let mut seconds = u64::from(pauses.first);
        if rounds > PATIENT_ROUNDS {
            seconds = seconds.max(1) << (rounds - PATIENT_ROUNDS).min(DOUBLINGS_MAX);
        }
        let pause = Duration::from_secs(seconds.min(u64::from(pauses.max)));
        let names = if all_nameless {
            NAMES_PAUSE
        } else {
            Duration::ZERO
        };
        pause.max(asked).max(names)
    }

    /// Makes a choice; an address counts as an attempt.
    pub(crate) fn choose(&mut self) -> Result<Choice, GiveUp> {
        if self.count == 0 {
            return Err(GiveUp::NoRemote);
        }
        let count = u32::try_from(self.count).unwrap_or(u32::MAX);
        if let Some(max) = self.tries_max.filter(|&max| max > 0)
            && self.failed >= max.saturating_mul(count)
        {
            return Err(GiveUp::Tried(max));
        }
        let current = self.advance();
        match self.addresses.get(self.at) {
            Some(&address) => {
                self.failed = self.failed.saturating_add(1);
                Ok(Choice::Address(current, address))
            }
            None => Ok(Choice::Resolve(current)),
        }
    }

    fn advance(&mut self) -> usize {
        let stay = std::mem::take(&mut self.stay);
        let next_remote = std::mem::take(&mut self.next_remote);
        let current = match self.current {
            None => 0,
            Some(current) if stay => current,
            Some(current) if !next_remote && self.at + 1 < self.addresses.len() => {
                self.at += 1;
                current
            }
            Some(current) => {
                self.addresses.clear();
                (current + 1) % self.count
            }
        };
        self.current = Some(current);
        current
    }

    /// Takes the addresses for [`Choice::Resolve`]; the first one is the next choice.
    pub(crate) fn resolved(&mut self, addresses: Vec<SocketAddr>) {
        self.addresses = addresses;
        self.at = 0;
        self.nameless = 0;
        self.stay = true;
    }

    /// Records that the name has no address. Returns whether that holds for all connections.
    pub(crate) fn unresolved(&mut self) -> bool {
        self.nameless = self.nameless.saturating_add(1);
        self.nameless >= self.count
    }

    /// Resets the counts after a success, and stays with the server if it ends.
    pub(crate) fn succeeded(&mut self) {
        self.failed = 0;
        self.stay = true;
    }

    /// Takes the last attempt back from the count of failures.
    pub(crate) const fn uncount(&mut self) {
        self.failed = self.failed.saturating_sub(1);
    }

    /// Stays with the current server.
    pub(crate) fn stay(&mut self) {
        self.stay = true;
    }

    /// Drops the addresses, so that they are resolved again.
    pub(crate) fn forget(&mut self) {
        self.addresses.clear();
    }

    /// Advances as the server asked.
    pub(crate) fn go(&mut self, advance: Advance) {
        self.stay = advance == Advance::No;
        self.next_remote = advance == Advance::Remote;
    }

    /// Sets a minimum for the next pause.
    pub(crate) fn wait_at_least(&mut self, pause: Duration) {
        self.at_least = pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSES: Pauses = Pauses { first: 1, max: 300 };

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 1194))
    }

    /// Returns the next connection and address; connection `n` has the addresses `10 n` and up.
    fn next(rounds: &mut Rounds, per_name: u8) -> (usize, u8) {
        loop {
            match rounds.choose().unwrap() {
                Choice::Address(index, SocketAddr::V4(addr)) => {
                    return (index, addr.ip().octets()[3]);
                }
                Choice::Address(..) => unreachable!(),
                Choice::Resolve(index) => {
                    let first = 10 * index as u8;
                    rounds.resolved((first..first + per_name).map(address).collect());
                }
            }
        }
    }

    #[test]
    fn addresses_then_remotes_then_again() {
        let mut rounds = Rounds::new(2, None);
        let order: Vec<_> = (0..5).map(|_| next(&mut rounds, 2)).collect();
        assert_eq!(order, [(0, 0), (0, 1), (1, 10), (1, 11), (0, 0)]);
    }

    #[test]
    fn the_server_says_where_to_go_on() {
        let mut rounds = Rounds::new(2, None);
        assert_eq!(next(&mut rounds, 3), (0, 0));
        rounds.go(Advance::No);
        assert_eq!(next(&mut rounds, 3), (0, 0));
        rounds.go(Advance::Addr);
        assert_eq!(next(&mut rounds, 3), (0, 1));
        rounds.go(Advance::Remote);
        assert_eq!(next(&mut rounds, 3), (1, 10));
        rounds.succeeded();
        assert_eq!(next(&mut rounds, 3), (1, 10));
        rounds.succeeded();
        rounds.go(Advance::Remote);
        assert_eq!(next(&mut rounds, 3), (0, 0));
        rounds.stay();
        rounds.forget();
        assert_eq!(rounds.choose(), Ok(Choice::Resolve(0)));
    }

    #[test]
    fn pauses_double_after_five_rounds_up_to_the_limit() {
        let mut rounds = Rounds::new(2, None);
        let mut pauses = Vec::new();
        for _ in 0..40 {
            pauses.push(rounds.pause(PAUSES).as_secs());
            next(&mut rounds, 1);
        }
        assert_eq!(pauses[0], 0);
        assert!(pauses[1..10].iter().all(|&pause| pause == 1));
        assert_eq!(pauses[10..16], [2, 2, 4, 4, 8, 8]);
        assert_eq!(pauses[39], 300);
        rounds.succeeded();
        rounds.wait_at_least(Duration::from_secs(7));
        assert_eq!(rounds.pause(PAUSES).as_secs(), 7);
        assert_eq!(rounds.pause(PAUSES).as_secs(), 0);
    }

    #[test]
    fn tries_are_counted_per_remote() {
        let mut rounds = Rounds::new(2, Some(2));
        for _ in 0..4 {
            next(&mut rounds, 1);
        }
        assert_eq!(rounds.choose(), Err(GiveUp::Tried(2)));
        rounds.succeeded();
        assert!(rounds.choose().is_ok());
        assert_eq!(Rounds::new(0, None).choose(), Err(GiveUp::NoRemote));
    }

    #[test]
    fn names_without_addresses_are_passed_over() {
        let mut rounds = Rounds::new(2, Some(1));
        assert_eq!(rounds.choose(), Ok(Choice::Resolve(0)));
        assert!(!rounds.unresolved());
        assert_eq!(rounds.pause(PAUSES).as_secs(), 1);
        assert_eq!(rounds.choose(), Ok(Choice::Resolve(1)));
        assert!(rounds.unresolved());
        assert_eq!(rounds.pause(PAUSES), NAMES_PAUSE);
        // A look-up does not count as an attempt.
        assert_eq!(next(&mut rounds, 1), (0, 0));
    }
}
