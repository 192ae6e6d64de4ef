//! Waiting that can be broken off.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use netio::poll::Poller;

const STOP: u64 = 0;
const OTHER: u64 = 1;

/// A descriptor that becomes readable when there is something better to do: signals, or an
/// `epoll` set of all that must not wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop<'a>(BorrowedFd<'a>);

/// Why the waiting is over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Woken {
    /// There is something better to do.
    Stop,
    /// What was waited for is there.
    Ready,
    /// The time is up.
    Late,
}

impl<'a> Stop<'a> {
    /// Waiting ends when `fd` is readable; nothing is read from it.
    pub(crate) fn new(fd: &'a impl AsFd) -> Self {
        Self(fd.as_fd())
    }

    /// Waits until `other` is readable.
    pub(super) fn readable(&self, other: impl AsFd, until: Instant) -> io::Result<Woken> {
        self.wait(Some((other.as_fd(), false)), until)
    }

    /// Waits until `other` is writable.
    pub(super) fn writable(&self, other: impl AsFd, until: Instant) -> io::Result<Woken> {
        self.wait(Some((other.as_fd(), true)), until)
    }

    /// Waits for the time alone.
    pub(super) fn until(&self, until: Instant) -> io::Result<Woken> {
        self.wait(None, until)
    }

    fn wait(&self, other: Option<(BorrowedFd<'_>, bool)>, until: Instant) -> io::Result<Woken> {
        let poller = Poller::new()?;
        poller.add(self.0, STOP)?;
        if let Some((fd, writable)) = other {
            poller.add(fd, OTHER)?;
            if writable {
                poller.modify(fd, OTHER, true)?;
            }
        }
        loop {
            let now = Instant::now();
            let ready = poller.wait(Some(until.saturating_duration_since(now)))?;
            let mut woken = None;
            for token in ready.iter() {
                if token == STOP {
                    return Ok(Woken::Stop);
                }
                woken = Some(Woken::Ready);
            }
            match woken {
                Some(woken) => return Ok(woken),
                None if Instant::now() >= until => return Ok(Woken::Late),
                // A signal whose handler has not written to the descriptor yet, or another's.
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use netio::poll::Waker;

    use super::*;

    #[test]
    fn a_stop_goes_before_everything() {
        let (stop, other) = (Waker::new().unwrap(), Waker::new().unwrap());
        let far = Instant::now() + Duration::from_secs(3600);
        let wait = || Stop::new(&stop).readable(&other, far).unwrap();
        other.wake();
        assert_eq!(wait(), Woken::Ready);
        stop.wake();
        assert_eq!(wait(), Woken::Stop);
        stop.clear();
        let late = Stop::new(&stop).until(Instant::now()).unwrap();
        assert_eq!(late, Woken::Late);
    }
}
