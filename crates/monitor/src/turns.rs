//! Decides whose password is checked next. A check costs about a quarter of a second, and is the only load that a
//! stranger can cause. So one password is checked, few wait, and all other askers are told at once to come again.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::attempts::{Asker, Attempts, Rank};

/// Number of askers who wait during a check. The second waits for two checks: the running one and the first waiter's.
const WAITING: usize = 2;

/// When an asker who had to give way may come again.
const SOON: Duration = Duration::from_secs(1);

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
    /// The waiting askers, the next first.
    waiting: Vec<Waiter>,
    number: u64,
}

/// A waiting asker.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    rank: Rank,
    number: u64,
    asker: Asker,
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
                waiting: Vec::new(),
                number: 0,
            }),
            changed: Condvar::new(),
        }
    }

    /// Checks a password when it is the asker's turn. `look` tells whether it is right, or fails if it cannot tell.
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
        if state.now == Some(asker) || state.waiting.iter().any(|it| it.asker == asker) {
            return Err(SOON);
        }
        let rank = state.attempts.begin(asker, now)?;
        let number = state.number;
        state.number += 1;
        let own = Waiter {
            rank,
            number,
            asker,
        };
        state.waiting.push(own);
        state.waiting.sort_by_key(|it| (it.rank, it.number));
        // If no check is running, the first waiter is about to start one.
        let most = WAITING + usize::from(state.now.is_none());
        if state.waiting.len() > most {
            state.waiting.truncate(most);
            self.changed.notify_all();
        }
        loop {
            let place = state.waiting.iter().position(|it| it.number == number);
            match place {
                None => {
                    state.attempts.undo(asker);
                    return Err(SOON);
                }
                Some(0) if state.now.is_none() => {
                    state.waiting.remove(0);
                    state.now = Some(asker);
                    return Ok(());
                }
                Some(_) => {}
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plane::SourceNetwork;
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
                state.now == Some(asker) || state.waiting.iter().any(|it| it.asker == asker)
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
}
