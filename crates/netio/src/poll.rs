//! Waiting for descriptors: `epoll` and the `eventfd` that interrupts it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Maximum number of descriptors reported by one wait.
const EVENTS: usize = 8;

/// An `epoll` set, level-triggered. It reports readability only, unless [`Poller::modify`] adds writability.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
}

/// The descriptors that became readable (or writable): the tokens given to [`Poller::add`].
#[derive(Debug, Default, Clone, Copy)]
pub struct Ready {
    tokens: [u64; EVENTS],
    count: usize,
}

impl Ready {
    /// The tokens of the ready descriptors.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.tokens[..self.count].iter().copied()
    }

    /// Whether no descriptor became ready before the timeout.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl Poller {
    /// An empty set.
    ///
    /// # Errors
    /// The error of `epoll_create1` (descriptor limits).
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers are passed; the result is checked before it is owned.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: `fd` is a fresh descriptor that nothing else owns.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { epoll })
    }

    /// Watches `fd` for readability and reports it as `token`.
    ///
    /// # Errors
    /// The error of `epoll_ctl`; `EEXIST` when the descriptor is already in the set.
    pub fn add(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: token,
        };
        // SAFETY: `event` lives through the call and both descriptors are open.
        check(unsafe {
            libc::epoll_ctl(
                self.epoll.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                fd.as_fd().as_raw_fd(),
                &raw mut event,
            )
        })?;
        Ok(())
    }

    /// Sets whether `fd`, which is in the set, is also watched for writability. [`Ready`] does not tell the two apart.
    ///
    /// # Errors
    /// The error of `epoll_ctl`; `ENOENT` when the descriptor is not in the set.
    pub fn modify(&self, fd: impl AsFd, token: u64, writable: bool) -> io::Result<()> {
        let out = if writable { libc::EPOLLOUT } else { 0 };
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | out) as u32,
            u64: token,
        };
        // SAFETY: `event` lives through the call and both descriptors are open.
        check(unsafe {
            libc::epoll_ctl(
                self.epoll.as_raw_fd(),
                libc::EPOLL_CTL_MOD,
                fd.as_fd().as_raw_fd(),
                &raw mut event,
            )
        })?;
        Ok(())
    }

    /// Stops watching `fd`.
    ///
    /// # Errors
    /// The error of `epoll_ctl`; `ENOENT` when the descriptor is not in the set.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        // SAFETY: EPOLL_CTL_DEL ignores the event pointer.
        check(unsafe {
            libc::epoll_ctl(
                self.epoll.as_raw_fd(),
                libc::EPOLL_CTL_DEL,
                fd.as_fd().as_raw_fd(),
                std::ptr::null_mut(),
            )
        })?;
        Ok(())
    }

    /// Waits until a descriptor is ready or `timeout` has passed (`None`: for ever). A signal counts as an empty
    /// result.
    ///
    /// # Errors
    /// The error of `epoll_wait`, except `EINTR`.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Ready> {
        // Rounded up, so that a short timeout does not become zero and poll in a loop.
        let millis = timeout.map_or(-1, |t| {
            i32::try_from(t.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
        });
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        // SAFETY: the array outlives the call and its length is the one passed.
        let n = unsafe {
            libc::epoll_wait(
                self.epoll.as_raw_fd(),
                events.as_mut_ptr(),
                EVENTS as i32,
                millis,
            )
        };
        let n = match check(n) {
            Ok(n) => n as usize,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => 0,
            Err(e) => return Err(e),
        };
        let mut ready = Ready {
            count: n,
            ..Ready::default()
        };
        for (token, event) in ready.tokens.iter_mut().zip(&events[..n]) {
            *token = event.u64;
        }
        Ok(ready)
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Wakes a thread that waits in a [`Poller`]: an `eventfd`.
#[derive(Debug)]
pub struct Waker {
    fd: OwnedFd,
}

impl Waker {
    /// An unused waker.
    ///
    /// # Errors
    /// The error of `eventfd` (descriptor limits).
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers are passed; the result is checked before it is owned.
        let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: `fd` is a fresh descriptor that nothing else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd })
    }

    /// Makes the descriptor readable. Cannot block: a counter at its maximum is already readable.
    pub fn wake(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: eight bytes are passed with their length.
        let _ = unsafe { libc::write(self.fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Waits until `time` (below a second) has passed or the waker is woken. The descriptor stays readable.
    pub fn pause(&self, time: Duration) {
        is_readable(&self.fd, time);
    }

    /// Makes the descriptor unreadable again.
    pub fn clear(&self) {
        let mut count = [0_u8; 8];
        // SAFETY: eight bytes are passed with their length.
        let _ = unsafe { libc::read(self.fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether a descriptor is readable, or has an error to report, within a time below a second (zero: now).
pub(crate) fn is_readable(fd: impl AsFd, within: Duration) -> bool {
    let mut poll = libc::pollfd {
        fd: fd.as_fd().as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: within.subsec_nanos() as libc::c_long,
    };
    // SAFETY: one descriptor is passed, both structures outlive the call, and no signal mask is.
    unsafe { libc::ppoll(&raw mut poll, 1, &raw const time, std::ptr::null()) > 0 }
}

/// Whether the kernel has timers more precise than its ticks of 1 to 10 ms (`CONFIG_HIGH_RES_TIMERS`).
#[must_use]
pub fn has_exact_timers() -> bool {
    let mut resolution = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure outlives the call.
    let result = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC, &raw mut resolution) };
    result == 0 && resolution.tv_sec == 0 && resolution.tv_nsec < 1_000
}

/// Makes this thread's waits end on time: by default the kernel extends them by up to 50 µs, to save wake-ups.
pub fn end_waits_in_time() {
    const NANOSECOND: libc::c_ulong = 1;
    // SAFETY: no pointers are passed.
    let _ = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, NANOSECOND) };
}

/// Turns a C result into an `io::Result`.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Turns a C size into an `io::Result`.
pub(crate) fn check_len(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_ends_by_itself_and_leaves_a_waker_readable() {
        let waker = Waker::new().unwrap();
        waker.pause(Duration::from_micros(50));
        waker.wake();
        waker.pause(Duration::from_millis(999));
        let poller = Poller::new().unwrap();
        poller.add(&waker, 7).unwrap();
        assert!(!poller.wait(Some(Duration::ZERO)).unwrap().is_empty());
    }

    #[test]
    fn a_waker_is_readable_from_wake_to_clear() {
        let poller = Poller::new().unwrap();
        let waker = Waker::new().unwrap();
        poller.add(&waker, 7).unwrap();
        assert!(poller.wait(Some(Duration::ZERO)).unwrap().is_empty());
        waker.wake();
        waker.wake();
        assert_eq!(poller.wait(None).unwrap().iter().collect::<Vec<_>>(), [7]);
        waker.clear();
        assert!(poller.wait(Some(Duration::ZERO)).unwrap().is_empty());
        poller.remove(&waker).unwrap();
        waker.wake();
        assert!(poller.wait(Some(Duration::ZERO)).unwrap().is_empty());
    }
}
