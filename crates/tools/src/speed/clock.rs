//! Time as it is charged: to a thread, or by the clock on the wall.

use std::time::{Duration, Instant};

use nix::time::ClockId;

/// Which time counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clock {
    /// The processor time of this thread, so that other users of the processor disturb little.
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
    /// Now. Falls back to the wall where the kernel does not count threads.
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
    /// Seconds since then, by the same clock.
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
