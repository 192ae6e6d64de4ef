//! Tracks which lines have a congested stream. While the line used for sending has one, the interface is not read.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering};
use plane::LineId;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering};

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

/// Model of every interleaving. Run with `make loom`.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::atomic::AtomicBool;
    use loom::sync::{Arc, Mutex};

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
}
