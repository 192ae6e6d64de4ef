//! How often a task can be done in a second.

use std::sync::Barrier;
use std::thread;

use crypto::Backend;
use crypto::primitives::{Algorithm, Operation, Task, task};

use super::clock::Clock;

/// The subject of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subject {
    pub algorithm: Algorithm,
    pub operation: Operation,
    pub backend: Backend,
    /// Packets at a time.
    pub batch: usize,
    /// Of each.
    pub bytes: usize,
}

/// The task came out wrong: no figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wrong;

/// Turns between two looks at the clock may take so much of the whole time.
const SHARE: f64 = 0.1;

impl Subject {
    /// It, made ready; `None` if this machine has no such back end for it.
    pub(super) fn task(&self) -> Option<Box<dyn Task>> {
        task(
            self.algorithm,
            self.operation,
            self.backend,
            self.batch,
            self.bytes,
        )
    }

    /// Bytes, or operations for what has no length, of each turn.
    fn amount(&self) -> f64 {
        if self.algorithm.is_public_key() {
            1.0
        } else {
            (self.batch * self.bytes) as f64
        }
    }

    /// An accelerator works while the thread sleeps.
    fn clock(&self) -> Clock {
        match self.backend {
            Backend::Accelerator => Clock::Wall,
            Backend::Portable | Backend::Simd => Clock::Thread,
        }
    }

    /// Bytes or operations a second on this thread.
    pub(super) fn rate(&self, task: &mut dyn Task, seconds: f64) -> Result<f64, Wrong> {
        Ok(self.amount() * turns(task, seconds, self.clock())?)
    }

    /// Bytes a second of so many threads together, each with a key and packets of its own.
    pub(super) fn rate_on(&self, threads: usize, seconds: f64) -> Result<f64, Wrong> {
        let start = Barrier::new(threads);
        let one = || {
            let task = self.task();
            // A thread that has nothing to do must not keep the others waiting.
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

/// Turns a second.
fn turns(task: &mut dyn Task, seconds: f64, clock: Clock) -> Result<f64, Wrong> {
    // The first finds caches and branch predictors cold.
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
    // Nothing is free, whatever the clock says of it.
    Ok(turns / (time - preparing).max(time / 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Comes out wrong after so many turns.
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

    /// Counts what was done.
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
