//! Flags and a deadline by which threads tell each other something without a lock. Each side stores, then reads what
//! the other has stored, so that one of the two sees the other's store:
//!
//! - [`Removed`] tells workers of a session's removal, even while they are about to send with its key;
//! - [`Armed`]: whether control watches a peer's activity times itself, or workers must report activity;
//! - [`HeldBack`]: which lines have a congested stream. While the line used for sending has one, the interface is not
//!   read;
//! - [`Alarm`] tells the worker that owns the sockets when to look at held packets, even if no packet arrives.

use crate::clock::Epoch;
#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use plane::AtomicU64;
use plane::LineId;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

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

/// A worker sets a line's bit when it leaves bytes waiting in a stream. The worker that writes those bytes or closes
/// the stream clears the bit.
#[derive(Debug)]
pub(crate) struct HeldBack {
    /// One bit for each line with a congested stream.
    lines: AtomicU32,
    /// The bit of the line whose streams stop the reading.
    used: AtomicU32,
}

impl HeldBack {
    pub(crate) fn new() -> Self {
        Self {
            lines: AtomicU32::new(0),
            used: AtomicU32::new(bit(LineId::FIRST)),
        }
    }

    /// Whether the interface must not be read.
    pub(crate) fn get(&self) -> bool {
        let lines = self.lines.load(Ordering::SeqCst);
        lines != 0 && lines & self.used.load(Ordering::SeqCst) != 0
    }

    /// Sets a line's bit. Returns whether it stays set: if `waits` is false, the bit is cleared again.
    pub(crate) fn set(&self, line: LineId, waits: impl FnOnce() -> bool) -> bool {
        self.lines.fetch_or(bit(line), Ordering::SeqCst);
        // The waiting records may have been written or dropped before the bit was set; then no other thread clears it.
        let stays = waits();
        if !stays {
            self.clear(line);
        }
        stays
    }

    pub(crate) fn clear(&self, line: LineId) {
        self.lines.fetch_and(!bit(line), Ordering::SeqCst);
    }

    /// Counts only streams of this line from now on. Returns whether another line counted before.
    pub(crate) fn look_at(&self, line: LineId) -> bool {
        self.used.swap(bit(line), Ordering::SeqCst) != bit(line)
    }
}

/// A line's bit in a word.
fn bit(line: LineId) -> u32 {
    // There are at most 16 lines.
    1 << (line.0 % 32)
}

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
    use loom::sync::atomic::AtomicUsize;
    use loom::sync::{Arc, Mutex};

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

    /// State shared by the owner of the interface and the owner of the streams.
    struct World {
        held_back: HeldBack,
        /// Bytes waiting in the stream.
        waiting: Mutex<usize>,
        /// The wake-up of the worker that owns the interface.
        woken: AtomicBool,
    }

    impl World {
        fn new() -> Self {
            Self {
                held_back: HeldBack::new(),
                waiting: Mutex::new(0),
                woken: AtomicBool::new(false),
            }
        }

        fn waits(&self) -> bool {
            *self.waiting.lock().unwrap() > 0
        }

        fn wake(&self) {
            self.woken.store(true, Ordering::SeqCst);
        }

        /// Leaves bytes waiting, as `drain` does.
        fn write(&self) {
            *self.waiting.lock().unwrap() += 1;
            if !self.held_back.set(LineId::FIRST, || self.waits()) {
                self.wake();
            }
        }

        /// Empties the stream as `Stream::flush` and `Stream::close` do, with the steps that follow.
        fn empty(&self) {
            *self.waiting.lock().unwrap() = 0;
            if !self.waits() {
                self.held_back.clear(LineId::FIRST);
                self.wake();
            }
        }
    }

    #[test]
    fn an_interface_that_is_not_read_waits_for_a_stream_that_has_something() {
        loom::model(|| {
            let world = Arc::new(World::new());
            let other = {
                let world = Arc::clone(&world);
                loom::thread::spawn(move || world.empty())
            };
            world.write();
            // Does as the worker's loop: it stops reading, then checks again.
            let mut stopped = world.held_back.get();
            if stopped {
                world.wake();
            }
            other.join().unwrap();
            if world.woken.swap(false, Ordering::SeqCst) && stopped && !world.held_back.get() {
                stopped = false;
            }
            assert!(!stopped || world.waits(), "no thread will wake the worker");
        });
    }

    #[test]
    fn the_flag_is_down_once_nothing_waits() {
        loom::model(|| {
            let world = Arc::new(World::new());
            *world.waiting.lock().unwrap() = 1;
            assert!(world.held_back.set(LineId::FIRST, || world.waits()));
            let other = {
                let world = Arc::clone(&world);
                loom::thread::spawn(move || world.empty())
            };
            world.write();
            other.join().unwrap();
            // One more flush empties the stream, if bytes wait.
            if world.waits() {
                world.empty();
            }
            assert!(!world.held_back.get());
        });
    }

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
