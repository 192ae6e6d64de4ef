//! Decides who may try a password, and whose is checked next. A check costs about a quarter of a second, and is the
//! only load that a stranger can cause. So each asker has few tries; one password is checked, few wait, and all other
//! askers are told at once to come again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use plane::SourceNetwork;

/// Number of askers who wait during a check. The second waits for two checks: the running one and the first waiter's.
const WAITING: usize = 2;

/// When an asker who had to give way may come again.
const SOON: Duration = Duration::from_secs(1);

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

/// Maximum number of askers that are remembered: several times the addresses of a usual LAN. A new asker replaces the
/// one that tried longest ago, and its failures are forgotten; so a full table refuses nobody.
const MOST: usize = 1024;

/// Someone who tries a password.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Asker {
    /// A browser in which somebody has logged in before, by the digest of its token.
    Known([u8; 32]),
    /// Any other client in a network.
    Network(SourceNetwork),
}

/// The queue of all who try a password.
#[derive(Debug)]
pub struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    attempts: Attempts,
    /// The asker whose password is being checked.
    now: Option<Asker>,
    /// The waiting askers by their ranks and numbers, the next first.
    waiting: BTreeMap<(u32, u64), Asker>,
    number: u64,
}

/// Ends the turn when dropped, even after a panic.
struct End<'a>(&'a Turns);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.lock().now = None;
        self.0.changed.notify_all();
    }
}

impl Turns {
    /// No password is being checked.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            state: Mutex::new(State {
                attempts: Attempts::new(now),
                now: None,
                waiting: BTreeMap::new(),
                number: 0,
            }),
            changed: Condvar::new(),
        }
    }

    /// Checks a password when it is the asker's turn. `look` tells whether it is correct, or fails if that is unknown.
    ///
    /// # Errors
    /// The asker must wait for this long.
    pub fn take<E>(
        &self,
        asker: Asker,
        now: Instant,
        look: impl FnOnce() -> Result<bool, E>,
    ) -> Result<Result<bool, E>, Duration> {
        self.wait(asker, now)?;
        let end = End(self);
        let told = look();
        match told {
            Ok(true) => self.lock().attempts.forgive(asker),
            Ok(false) => {}
            Err(_) => self.lock().attempts.undo(asker),
        }
        drop(end);
        Ok(told)
    }

    /// Waits for a turn.
    fn wait(&self, asker: Asker, now: Instant) -> Result<(), Duration> {
        let mut state = self.lock();
        // Each asker has one turn at a time: with a second one, others would wait for both.
        if state.now == Some(asker) || state.waiting.values().any(|it| *it == asker) {
            return Err(SOON);
        }
        let rank = state.attempts.begin(asker, now)?;
        let own = (rank, state.number);
        state.number += 1;
        state.waiting.insert(own, asker);
        // If no check is running, the first waiter is about to start one.
        if state.waiting.len() > WAITING + usize::from(state.now.is_none()) {
            state.waiting.pop_last();
            self.changed.notify_all();
        }
        while state.waiting.contains_key(&own) {
            if state.now.is_none() && state.waiting.keys().next() == Some(&own) {
                state.waiting.remove(&own);
                state.now = Some(asker);
                return Ok(());
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.attempts.undo(asker);
        Err(SOON)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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
    /// Tries that were not confirmed as correct.
    tries: u32,
    last: Instant,
}

/// The tries of all askers.
#[derive(Debug)]
struct Attempts {
    all: Bucket,
    /// The latest asker is last.
    of: VecDeque<Entry>,
}

impl Attempts {
    /// No asker has tried yet.
    fn new(now: Instant) -> Self {
        Self {
            all: Bucket::new(now),
            of: VecDeque::new(),
        }
    }

    /// Counts one more try, and returns the asker's rank: the lowest goes first. An error says how long the asker must
    /// wait. [`Attempts::forgive`] returns the try after a success, [`Attempts::undo`] if the password was not checked.
    fn begin(&mut self, asker: Asker, now: Instant) -> Result<u32, Duration> {
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
            true => 0,
            false => entry.tries.saturating_add(1),
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

    /// Forgets the asker's failures: the password was correct.
    fn forgive(&mut self, asker: Asker) {
        self.of.retain(|it| it.asker != asker);
        self.give_back(asker);
    }

    /// Returns the try: the password was not checked.
    fn undo(&mut self, asker: Asker) {
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
    use std::convert::Infallible;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, Mutex as Lock};
    use std::thread::{self, JoinHandle};

    fn asker(last: u8) -> Asker {
        Asker::Network(SourceNetwork::of([10, 0, 0, last].into()))
    }

    /// A check that runs until the test ends it.
    struct Try {
        verdict: Sender<bool>,
        thread: JoinHandle<Result<Result<bool, Infallible>, Duration>>,
    }

    /// The turns, and the order in which passwords were checked.
    struct World {
        turns: Arc<Turns>,
        order: Arc<Lock<Vec<Asker>>>,
        begin: Instant,
        looked: Sender<Asker>,
        looks: Receiver<Asker>,
    }

    impl World {
        fn new() -> Self {
            let begin = Instant::now();
            let (looked, looks) = channel();
            Self {
                turns: Arc::new(Turns::new(begin)),
                order: Arc::default(),
                begin,
                looked,
                looks,
            }
        }

        /// Starts a try, and returns once it waits, is being checked or was refused.
        fn begin(&self, asker: Asker) -> Try {
            let (verdict, told) = channel();
            let (turns, order) = (Arc::clone(&self.turns), Arc::clone(&self.order));
            let (begin, looked) = (self.begin, self.looked.clone());
            let thread = thread::spawn(move || {
                turns.take(asker, begin, || {
                    order.lock().unwrap().push(asker);
                    let _ = looked.send(asker);
                    Ok(told.recv().unwrap_or(false))
                })
            });
            let is_there = |state: &State| {
                state.now == Some(asker) || state.waiting.values().any(|it| *it == asker)
            };
            while !thread.is_finished() && !is_there(&self.turns.lock()) {
                thread::yield_now();
            }
            Try { verdict, thread }
        }

        /// Makes a try that fails at once, while no other waits.
        fn fails(&self, asker: Asker) {
            let it = self.begin(asker);
            assert_eq!(self.looks.recv().unwrap(), asker);
            it.verdict.send(false).unwrap();
            assert_eq!(it.thread.join().unwrap(), Ok(Ok(false)));
        }
    }

    #[test]
    fn one_is_looked_at_and_one_who_asks_has_one() {
        let world = World::new();
        let first = world.begin(asker(1));
        assert_eq!(world.looks.recv().unwrap(), asker(1));
        assert_eq!(world.begin(asker(1)).thread.join().unwrap(), Err(SOON));
        let second = world.begin(asker(2));
        assert_eq!(world.begin(asker(2)).thread.join().unwrap(), Err(SOON));
        assert_eq!(*world.order.lock().unwrap(), [asker(1)]);
        first.verdict.send(true).unwrap();
        second.verdict.send(false).unwrap();
        assert_eq!(first.thread.join().unwrap(), Ok(Ok(true)));
        assert_eq!(second.thread.join().unwrap(), Ok(Ok(false)));
    }

    /// However many guess at once, the owner waits only for the running check.
    #[test]
    fn an_owner_goes_before_those_who_have_failed() {
        let world = World::new();
        for number in 1..=20 {
            world.fails(asker(number));
        }
        let guesses: Vec<Try> = (1..=20).map(|it| world.begin(asker(it))).collect();
        assert_eq!(world.looks.recv().unwrap(), asker(1));
        let owner = world.begin(asker(100));
        guesses[0].verdict.send(false).unwrap();
        assert_eq!(world.looks.recv().unwrap(), asker(100));
        owner.verdict.send(true).unwrap();
        assert_eq!(owner.thread.join().unwrap(), Ok(Ok(true)));
        let mut refused = 0;
        for guess in guesses {
            drop(guess.verdict);
            refused += usize::from(guess.thread.join().unwrap() == Err(SOON));
        }
        // One was checked, and one waited behind the owner.
        assert_eq!(refused, 18);
    }

    /// A known browser goes before many networks that have not failed yet.
    #[test]
    fn a_browser_that_is_known_goes_first() {
        let world = World::new();
        let guesses: Vec<Try> = (1..=20).map(|it| world.begin(asker(it))).collect();
        assert_eq!(world.looks.recv().unwrap(), asker(1));
        let known = Asker::Known([1; 32]);
        let owner = world.begin(known);
        guesses[0].verdict.send(false).unwrap();
        assert_eq!(world.looks.recv().unwrap(), known);
        owner.verdict.send(true).unwrap();
        assert_eq!(owner.thread.join().unwrap(), Ok(Ok(true)));
        for guess in guesses {
            drop(guess.verdict);
            let _ = guess.thread.join().unwrap();
        }
    }

    /// A password that was not checked does not count as a try.
    #[test]
    fn those_who_are_sent_away_may_come_again() {
        let world = World::new();
        let first = world.begin(asker(1));
        assert_eq!(world.looks.recv().unwrap(), asker(1));
        let waiting = [world.begin(asker(2)), world.begin(asker(3))];
        for _ in 0..50 {
            assert_eq!(world.begin(asker(4)).thread.join().unwrap(), Err(SOON));
        }
        for it in [first].into_iter().chain(waiting) {
            drop(it.verdict);
            assert_eq!(it.thread.join().unwrap(), Ok(Ok(false)));
        }
        let mut state = world.turns.lock();
        let again = state.attempts.begin(asker(4), world.begin);
        assert_eq!(
            again,
            Attempts::new(world.begin).begin(asker(4), world.begin)
        );
    }

    fn from(text: &str) -> Asker {
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
            assert_eq!(attempts.begin(from("10.0.0.1"), begin), Ok(number + 1));
        }
        assert_eq!(attempts.begin(from("10.0.0.1"), begin), Err(EACH));
        assert_eq!(attempts.begin(from("::ffff:10.0.0.1"), begin), Err(EACH));
        assert_eq!(attempts.begin(from("10.0.0.2"), begin), Ok(1));
        let later = begin + EACH;
        assert!(attempts.begin(from("10.0.0.1"), later).is_ok());
        assert!(attempts.begin(from("10.0.0.1"), later).is_err());
        attempts.undo(from("10.0.0.1"));
        assert_eq!(attempts.begin(from("10.0.0.1"), later), Ok(BURST + 1));
        attempts.forgive(from("10.0.0.1"));
        assert_eq!(attempts.begin(from("10.0.0.1"), later), Ok(1));
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
            assert_eq!(attempts.begin(from("10.0.0.1"), begin), Ok(mistyped + 1));
        }
        assert!(attempts.begin(nth(200), begin).unwrap() < FREE);
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
            let of_one = from(&format!("fd00::{number}"));
            assert!(attempts.begin(of_one, begin).is_ok());
        }
        assert!(attempts.begin(from("fd00::ffff"), begin).is_err());
        let known = Asker::Known([7; 32]);
        for _ in 0..BURST {
            assert_eq!(attempts.begin(known, begin), Ok(0));
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
        assert_eq!(attempts.begin(nth(4999), begin), Ok(2));
        assert!(attempts.begin(from("10.0.0.1"), begin + REMEMBERED).is_ok());
        assert_eq!(attempts.of.len(), 1);
    }
}
