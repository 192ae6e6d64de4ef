//! Whether control watches a peer's activity times itself, or workers must report activity.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// True while control watches by itself. A worker notes a time, then calls [`Armed::arm`]; control calls
/// [`Armed::disarm`], then reads the times. So one of the two sees what the other did.
#[derive(Debug)]
pub(crate) struct Armed(AtomicBool);

impl Armed {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Arms. Returns whether this call changed the flag.
    pub(crate) fn arm(&self) -> bool {
        // Control reads the times after it has disarmed, and a worker checks the flag after it has noted a time. With a
        // fence on both sides, one sees the other's store.
        fence(Ordering::SeqCst);
        !self.0.load(Ordering::SeqCst) && !self.0.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn disarm(&self) {
        self.0.store(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }
}

/// Model of every interleaving. Run with `make loom`.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64;

    #[test]
    fn a_moment_is_seen_by_control_or_told_by_the_worker() {
        loom::model(|| {
            let (armed, moment) = (Arc::new(Armed::new()), Arc::new(AtomicU64::new(0)));
            assert!(armed.arm());
            let worker = {
                let (armed, moment) = (Arc::clone(&armed), Arc::clone(&moment));
                loom::thread::spawn(move || {
                    moment.store(1, Ordering::Relaxed);
                    armed.arm()
                })
            };
            armed.disarm();
            let seen = moment.load(Ordering::Relaxed) == 1;
            let told = worker.join().unwrap();
            assert!(seen || told);
        });
    }

    #[test]
    fn one_of_two_workers_tells() {
        loom::model(|| {
            let armed = Arc::new(Armed::new());
            let other = Arc::clone(&armed);
            let worker = loom::thread::spawn(move || other.arm());
            let here = armed.arm();
            assert!(here != worker.join().unwrap());
        });
    }
}
