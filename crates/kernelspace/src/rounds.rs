//! Checks that a thread still does its rounds.

use std::sync::atomic::{AtomicU32, Ordering};

/// Number of the last requested round, and of the last one done.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    asked: AtomicU32,
    done: AtomicU32,
}

impl Rounds {
    /// Returns whether the last requested round was done. If so, requests another one, and the caller has to wake the
    /// thread.
    pub(crate) fn ask(&self) -> bool {
        let asked = self.asked.load(Ordering::Relaxed);
        let done = self.done.load(Ordering::Relaxed) == asked;
        if done {
            self.asked.store(asked.wrapping_add(1), Ordering::Relaxed);
        }
        done
    }

    /// Notes that the thread has done a round.
    pub(crate) fn come_by(&self) {
        let asked = self.asked.load(Ordering::Relaxed);
        self.done.store(asked, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_hangs_is_noticed_until_it_comes_by() {
        let rounds = Rounds::default();
        assert!(rounds.ask());
        assert!(!rounds.ask());
        assert!(!rounds.ask());
        rounds.come_by();
        assert!(rounds.ask());
        rounds.come_by();
        rounds.come_by();
        assert!(rounds.ask());
        assert!(!rounds.ask());
    }
}
