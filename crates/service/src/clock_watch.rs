//! Notices when the host's clock is set: by NTP after a start without a clock, or by hand.

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// A time to which no clock is set: the last second of 32 bits, the range of `time_t` on many small routers.
const NEVER: Duration = Duration::from_secs(i32::MAX as u64);

/// Readable after the clock was set. A clock that only runs faster or slower for a while raises no event.
#[derive(Debug)]
pub(crate) struct ClockWatch(TimerFd);

impl ClockWatch {
    /// # Errors
    /// Descriptor limits.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let watch = Self(TimerFd::new(ClockId::CLOCK_REALTIME, flags)?);
        watch.arm()?;
        Ok(watch)
    }

    /// Sets a timer to a time of day; the kernel cancels it when the clock is set.
    fn arm(&self) -> io::Result<()> {
        let flags =
            TimerSetTimeFlags::TFD_TIMER_ABSTIME | TimerSetTimeFlags::TFD_TIMER_CANCEL_ON_SET;
        let never = Expiration::OneShot(TimeSpec::from_duration(NEVER));
        Ok(self.0.set(never, flags)?)
    }

    /// Whether the clock was set since the last call.
    pub(crate) fn take(&self) -> bool {
        let was_set = self.0.wait() == Err(Errno::ECANCELED);
        if was_set && let Err(error) = self.arm() {
            log::debug!("the clock: {error}");
        }
        was_set
    }
}

impl AsFd for ClockWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_not_set_is_not_heard_of() {
        assert!(!ClockWatch::new().unwrap().take());
    }
}
