//! Whether a thread comes by.

use std::sync::atomic::{AtomicU32, Ordering};

/// The rounds that a thread was asked for, and the last of them that it has done.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    asked: AtomicU32,
    done: AtomicU32,
}

impl Rounds {
    /// Whether the round was done that was asked for last. If so another one is asked for, and the thread has to be woken.
    pub(crate) fn ask(&self) -> bool {
        let asked = self.asked.load(Ordering::Relaxed);
        let done = self.done.load(Ordering::Relaxed) == asked;
        if done {
            self.asked.store(asked.wrapping_add(1), Ordering::Relaxed);
        }
        done
    }

    /// The thread comes by.
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
