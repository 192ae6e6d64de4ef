//! Measures time by a thread's processor time or by the wall clock.

use std::time::{Duration, Instant};

use nix::time::ClockId;

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
