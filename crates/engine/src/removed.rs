//! A flag that tells workers of a session's removal, even while they are about to send with its key.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Set once, never cleared.
#[derive(Debug)]
pub(crate) struct Removed(AtomicBool);

impl Removed {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the flag, then undoes with `undo` what a worker did meanwhile.
    pub(crate) fn set(&self, undo: impl FnOnce()) {
        self.0.store(true, Ordering::SeqCst);
        // The worker acts, then checks the flag. With a fence on both sides, one of the two undoes the action.
        fence(Ordering::SeqCst);
        undo();
    }

    /// Runs `act` if the session still exists, and `undo` if it was removed meanwhile.
    pub(crate) fn unless(&self, act: impl FnOnce(), undo: impl FnOnce()) {
        if self.get() {
            return;
        }
        act();
        fence(Ordering::SeqCst);
        if self.get() {
            undo();
        }
    }
}

/// Model of every interleaving. Run with `make loom`.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;

    /// The sending key of a peer: none, the session's, or another one.
    const NONE: usize = 0;
    const ANSWER: usize = 1;
    const OTHER: usize = 2;

    fn swap(key: &AtomicUsize, from: usize, to: usize) {
        let _ = key.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    }

    #[test]
    fn nothing_is_sent_with_the_key_of_a_session_that_was_removed() {
        for before in [NONE, OTHER] {
            loom::model(move || {
                let (removed, key) = (Arc::new(Removed::new()), Arc::new(AtomicUsize::new(before)));
                let worker = {
                    let (removed, key) = (Arc::clone(&removed), Arc::clone(&key));
                    loom::thread::spawn(move || {
                        removed.unless(|| swap(&key, before, ANSWER), || swap(&key, ANSWER, NONE));
                    })
                };
                removed.set(|| swap(&key, ANSWER, NONE));
                worker.join().unwrap();
                assert_ne!(key.load(Ordering::Relaxed), ANSWER);
            });
        }
    }

    #[test]
    fn a_key_that_control_sets_meanwhile_stays() {
        loom::model(|| {
            let (removed, key) = (Arc::new(Removed::new()), Arc::new(AtomicUsize::new(NONE)));
            let worker = {
                let (removed, key) = (Arc::clone(&removed), Arc::clone(&key));
                loom::thread::spawn(move || {
                    removed.unless(|| swap(&key, NONE, ANSWER), || swap(&key, ANSWER, NONE));
                })
            };
            // Uses the memory order of `ArcSwap::store`.
            key.swap(OTHER, Ordering::AcqRel);
            removed.set(|| swap(&key, ANSWER, NONE));
            worker.join().unwrap();
            assert_eq!(key.load(Ordering::Relaxed), OTHER);
        });
    }
}
