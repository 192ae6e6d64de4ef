//! Tells the worker that owns the sockets when to look at held packets, even if no packet arrives.

use crate::clock::Epoch;
#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use plane::AtomicU64;
#[cfg(not(loom))]
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

/// No deadline.
const NEVER: u64 = u64::MAX;
/// The worker is awake, and checks the deadline before it sleeps.
const AWAKE: u64 = 0;

/// A deadline that any worker sets and one worker sleeps by, in microseconds of the tunnel's clock.
///
/// The setter stores the deadline, then reads the sleeper's wake-up time. The sleeper stores its wake-up time, then
/// reads the deadline again. A fence (sequential consistency) between the two steps of each ensures that one sees the
/// other's store. These numbers hand over no other data.
#[derive(Debug)]
pub(crate) struct Alarm {
    deadline: AtomicU64,
    sleeps_until: AtomicU64,
}

impl Alarm {
    pub(crate) fn new() -> Self {
        Self {
            deadline: AtomicU64::new(NEVER),
            sleeps_until: AtomicU64::new(AWAKE),
        }
    }

    /// Sets the deadline. Returns whether the worker sleeps beyond it and must be woken.
    pub(crate) fn set(&self, deadline: Option<Instant>, epoch: Epoch) -> bool {
        self.set_micros(deadline.map_or(NEVER, |at| epoch.micros(at)))
    }

    fn set_micros(&self, deadline: u64) -> bool {
        self.deadline.store(deadline, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        deadline < self.sleeps_until.load(Ordering::Relaxed)
    }

    /// Whether the deadline has come. Reads the clock only if there is a deadline.
    pub(crate) fn is_due(&self, epoch: Epoch) -> bool {
        let deadline = self.deadline.load(Ordering::Relaxed);
        deadline != NEVER && epoch.micros(Instant::now()) >= deadline
    }

    #[cfg(test)]
    pub(crate) fn is_set(&self) -> bool {
        self.deadline.load(Ordering::Relaxed) != NEVER
    }

    /// Marks the caller as asleep. Returns how long it may sleep; `None` is for ever. Reads the clock only if there is
    /// a deadline.
    pub(crate) fn sleep(&self, epoch: Epoch) -> Option<Duration> {
        let until = self.sleep_until();
        (until != NEVER).then(|| {
            let now = epoch.micros(Instant::now());
            Duration::from_micros(until.saturating_sub(now))
        })
    }

    fn sleep_until(&self) -> u64 {
        loop {
            let deadline = self.deadline.load(Ordering::Relaxed);
            self.sleeps_until.store(deadline, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if self.deadline.load(Ordering::Relaxed) >= deadline {
                return deadline;
            }
        }
    }

    /// Marks the caller as awake.
    pub(crate) fn awake(&self) {
        self.sleeps_until.store(AWAKE, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_woken_only_where_it_would_sleep_too_long() {
        let (alarm, epoch) = (Alarm::new(), Epoch::new());
        let at = |secs| Some(Instant::now() + Duration::from_secs(secs));
        assert!(!alarm.set(at(20), epoch), "it is awake");
        assert!(alarm.sleep(epoch).unwrap() > Duration::from_secs(10));
        assert!(alarm.set(at(5), epoch));
        assert!(!alarm.set(at(60), epoch));
        alarm.awake();
        assert!(alarm.is_set() && !alarm.set(None, epoch));
        assert_eq!(alarm.sleep(epoch), None);
        assert!(alarm.set(at(60), epoch));
    }
}

/// Model of every interleaving. Run with `make loom`.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;

    #[test]
    fn a_worker_never_sleeps_beyond_a_deadline_unless_it_is_woken() {
        loom::model(|| {
            let alarm = Arc::new(Alarm::new());
            let other = {
                let alarm = Arc::clone(&alarm);
                loom::thread::spawn(move || alarm.set_micros(7))
            };
            let until = alarm.sleep_until();
            let woken = other.join().unwrap();
            assert!(until <= 7 || woken);
        });
    }
}
