//! Decides whose password is checked next. A password costs about a quarter of a second, which is all that a stranger
//! can have this processor do: one is checked, few wait, and all others are told at once to come again.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::attempts::{Asker, Attempts, Rank};

/// The number of askers who wait while one password is checked. The second of them waits for two passwords of others:
/// the one that is checked and the first.
const WAITING: usize = 2;

/// When one that has to give way may come again.
const SOON: Duration = Duration::from_secs(1);

/// The turns of all who try a password.
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
    /// The next first.
    waiting: Vec<Waiter>,
    number: u64,
}

/// One who waits. In the order of their turns.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    rank: Rank,
    number: u64,
    asker: Asker,
}

/// The end of a turn, however it comes.
struct End<'a>(&'a Turns);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.lock().now = None;
        self.0.changed.notify_all();
    }
}

impl Turns {
    /// No password is tried.
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

    /// Looks at a password when it is the turn of the one who asks; `look` says whether it is the right one, if that can
    /// be told.
    ///
    /// # Errors
    /// Not now: after so long.
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
        // One at a time: a second that waits would be one that others wait for.
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
        // One of them is about to be looked at where none is.
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

    /// A password that is looked at until it is told to be right or wrong.
    struct Try {
        verdict: Sender<bool>,
        thread: JoinHandle<Result<Result<bool, Infallible>, Duration>>,
    }

    /// Turns, and the order in which passwords were looked at.
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

        /// Begins one, and returns when it waits, is looked at or was refused.
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

        /// A try that fails at once, as the only one.
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

    /// However many guess at once, the owner waits for the one that is looked at and for no other.
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
        // One was looked at, one waited behind the owner.
        assert_eq!(refused, 18);
    }

    /// A browser that is known goes before a flood of networks that have not failed yet.
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

    /// A password that was not checked is no try.
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
