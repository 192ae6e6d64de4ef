//! Measures how often a task can run per second, by a thread's processor time or by the wall clock.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crypto::Backend;
use crypto::primitives::{Algorithm, Operation, Task, task};
use nix::time::ClockId;

/// The subject of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subject {
    pub algorithm: Algorithm,
    pub operation: Operation,
    pub backend: Backend,
    /// Packets at a time.
    pub batch: usize,
    /// Bytes of each packet.
    pub bytes: usize,
}

/// The task produced a wrong result, so there is no figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wrong;

/// Runs between two reads of the clock may take this fraction of the measuring time.
const SHARE: f64 = 0.1;

impl Subject {
    /// Prepares the task; `None` if this machine has no such back end.
    pub(super) fn task(&self) -> Option<Box<dyn Task>> {
        task(
            self.algorithm,
            self.operation,
            self.backend,
            self.batch,
            self.bytes,
        )
    }

    /// Bytes that each run processes; for public keys, 1 operation.
    fn amount(&self) -> f64 {
        if self.algorithm.is_public_key() {
            1.0
        } else {
            (self.batch * self.bytes) as f64
        }
    }

    /// Wall time for an accelerator, which works while the thread sleeps.
    fn clock(&self) -> Clock {
        match self.backend {
            Backend::Accelerator => Clock::Wall,
            Backend::Portable | Backend::Simd => Clock::Thread,
        }
    }

    /// Bytes or operations per second on this thread.
    pub(super) fn rate(&self, task: &mut dyn Task, seconds: f64) -> Result<f64, Wrong> {
        Ok(self.amount() * turns(task, seconds, self.clock())?)
    }

    /// Bytes per second of `threads` threads together, each with its own key and packets.
    pub(super) fn rate_on(&self, threads: usize, seconds: f64) -> Result<f64, Wrong> {
        let start = Barrier::new(threads);
        let one = || {
            let task = self.task();
            // Reach the barrier even without a task, or the other threads would wait forever.
            start.wait();
            turns(&mut *task.ok_or(Wrong)?, seconds, self.clock())
        };
        let sum: Result<f64, Wrong> = thread::scope(|scope| {
            let all: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
            all.into_iter()
                .map(|one| one.join().unwrap_or(Err(Wrong)))
                .sum()
        });
        Ok(self.amount() * sum?)
    }
}

/// Runs per second.
fn turns(task: &mut dyn Task, seconds: f64, clock: Clock) -> Result<f64, Wrong> {
    // The first run, with cold caches and branch predictors, does not count.
    task.prepare();
    if !task.run() {
        return Err(Wrong);
    }
    let (mut turns, mut time) = (0.0, 0.0);
    let mut chunk = 1_u64;
    while time < seconds {
        let from = clock.now();
        for _ in 0..chunk {
            task.prepare();
            if !task.run() {
                return Err(Wrong);
            }
        }
        let passed = from.seconds();
        turns += chunk as f64;
        time += passed;
        if passed < seconds * SHARE / 2.0 {
            chunk *= 2;
        }
    }
    if !task.is_prepared() {
        return Ok(turns / time);
    }
    let from = clock.now();
    let preparations = (turns as u64).max(1);
    for _ in 0..preparations {
        task.prepare();
    }
    let preparing = from.seconds();
    // Guards against a division by zero: count at least 1 % of the time.
    Ok(turns / (time - preparing).max(time / 100.0))
}

/// The clock to measure by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clock {
    /// The processor time of this thread, which other processes hardly disturb.
    Thread,
    /// The time that passes, whichever thread runs.
    Wall,
}

/// A point in time.
#[derive(Debug, Clone, Copy)]
pub(super) enum Moment {
    Thread(Duration),
    Wall(Instant),
}

impl Clock {
    /// Returns the current time. Falls back to the wall clock where the kernel has no thread times.
    pub(super) fn now(self) -> Moment {
        if self == Self::Thread
            && let Ok(time) = ClockId::CLOCK_THREAD_CPUTIME_ID.now()
        {
            return Moment::Thread(Duration::from(time));
        }
        Moment::Wall(Instant::now())
    }
}

impl Moment {
    /// Seconds since this moment, by the same clock.
    pub(super) fn seconds(self) -> f64 {
        let passed = match self {
            Self::Wall(then) => then.elapsed(),
            Self::Thread(then) => match Clock::Thread.now() {
                Self::Thread(now) => now.saturating_sub(then),
                Self::Wall(_) => Duration::ZERO,
            },
        };
        passed.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A task that produces a wrong result after a given number of runs.
    struct Failing(u32);

    impl Task for Failing {
        fn run(&mut self) -> bool {
            self.0 = self.0.saturating_sub(1);
            self.0 > 0
        }

        fn implementation(&self) -> &'static str {
            "failing"
        }
    }

    #[test]
    fn what_comes_out_wrong_has_no_figure() {
        for right in [1, 2, 1000] {
            assert_eq!(turns(&mut Failing(right), 0.001, Clock::Wall), Err(Wrong));
        }
    }

    /// Counts preparations and runs.
    #[derive(Default)]
    struct Counting {
        prepared: u64,
        run: u64,
    }

    impl Task for Counting {
        fn prepare(&mut self) {
            self.prepared += 1;
        }

        fn is_prepared(&self) -> bool {
            true
        }

        fn run(&mut self) -> bool {
            self.run += 1;
            self.prepared == self.run
        }

        fn implementation(&self) -> &'static str {
            "counting"
        }
    }

    #[test]
    fn each_turn_is_prepared_and_preparing_is_measured_as_often() {
        for clock in [Clock::Thread, Clock::Wall] {
            let mut task = Counting::default();
            let rate = turns(&mut task, 0.001, clock).unwrap();
            assert!(rate.is_finite() && rate > 0.0);
            // The first turn does not count.
            assert_eq!(task.prepared, 2 * task.run - 1);
        }
    }
}
