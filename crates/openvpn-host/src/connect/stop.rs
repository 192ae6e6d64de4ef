//! Waits that can be interrupted.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use netio::poll::Poller;

const STOP: u64 = 0;
const OTHER: u64 = 1;

/// A descriptor whose readability interrupts a wait: signals, or an `epoll` set of all urgent sources.
#[derive(Clone, Copy)]
pub struct Stop<'a> {
    fd: BorrowedFd<'a>,
    /// Handles what it can without ending the wait.
    attendant: Option<&'a dyn Attend>,
}

/// Handles events during a wait.
pub trait Attend {
    /// Handles the event behind the descriptor. Returns whether the wait may continue.
    fn attend(&self) -> bool;
}

/// Reason for the end of a wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Woken {
    /// The stop descriptor is readable.
    Stop,
    /// The awaited descriptor is ready.
    Ready,
    /// The time limit has passed.
    Late,
}

impl<'a> Stop<'a> {
    /// A wait ends when `fd` is readable; `fd` itself is not read.
    pub fn new(fd: &'a impl AsFd) -> Self {
        Self {
            fd: fd.as_fd(),
            attendant: None,
        }
    }

    /// When `fd` is readable, the attendant handles the event; the wait ends if it returns false.
    pub fn serving(fd: &'a impl AsFd, attendant: &'a dyn Attend) -> Self {
        Self {
            fd: fd.as_fd(),
            attendant: Some(attendant),
        }
    }

    /// Waits until `other` is readable.
    pub(crate) fn readable(&self, other: impl AsFd, until: Instant) -> io::Result<Woken> {
        self.wait(other.as_fd(), false, until)
    }

    /// Waits until `other` is writable.
    pub(crate) fn writable(&self, other: impl AsFd, until: Instant) -> io::Result<Woken> {
        self.wait(other.as_fd(), true, until)
    }

    fn wait(&self, fd: BorrowedFd<'_>, writable: bool, until: Instant) -> io::Result<Woken> {
        let poller = Poller::new()?;
        poller.add(self.fd, STOP)?;
        poller.add(fd, OTHER)?;
        if writable {
            poller.modify(fd, OTHER, true)?;
        }
        loop {
            let now = Instant::now();
            let ready = poller.wait(Some(until.saturating_duration_since(now)))?;
            let mut woken = None;
            for token in ready.iter() {
                if token != STOP {
                    woken = Some(Woken::Ready);
                } else if !self.attendant.is_some_and(Attend::attend) {
                    return Ok(Woken::Stop);
                }
            }
            match woken {
                Some(woken) => return Ok(woken),
                None if Instant::now() >= until => return Ok(Woken::Late),
                // A signal's handler has not written to the descriptor yet, or the signal was not meant for it.
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use netio::poll::Waker;

    use super::*;

    #[test]
    fn a_stop_goes_before_everything() {
        let (stop, other, never) = (
            Waker::new().unwrap(),
            Waker::new().unwrap(),
            Waker::new().unwrap(),
        );
        let far = Instant::now() + Duration::from_secs(3600);
        let wait = || Stop::new(&stop).readable(&other, far).unwrap();
        other.wake();
        assert_eq!(wait(), Woken::Ready);
        stop.wake();
        assert_eq!(wait(), Woken::Stop);
        stop.clear();
        let late = Stop::new(&stop).readable(&never, Instant::now()).unwrap();
        assert_eq!(late, Woken::Late);
    }

    #[test]
    fn what_an_attendant_can_do_does_not_break_the_waiting_off() {
        struct Once<'a>(&'a Waker, Cell<u32>);
        impl Attend for Once<'_> {
            fn attend(&self) -> bool {
                self.0.clear();
                self.1.set(self.1.get() + 1);
                self.1.get() == 1
            }
        }
        let (stop, other) = (Waker::new().unwrap(), Waker::new().unwrap());
        let far = Instant::now() + Duration::from_secs(3600);
        let once = Once(&stop, Cell::new(0));
        let wait = || Stop::serving(&stop, &once).readable(&other, far).unwrap();
        stop.wake();
        other.wake();
        assert_eq!((wait(), once.1.get()), (Woken::Ready, 1));
        stop.wake();
        assert_eq!((wait(), once.1.get()), (Woken::Stop, 2));
    }
}
