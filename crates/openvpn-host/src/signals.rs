//! Process signals with OpenVPN's meanings.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Action that a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM, SIGINT: leave.
    Exit(&'static str),
    /// SIGHUP: read the configuration again and restart.
    Reload,
    /// SIGUSR1: connect again.
    Restart,
    /// SIGUSR2: print the status.
    Status,
}

const SIGNALS: [i32; 5] = [SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2];

/// The signals caught so far; readable while one waits.
pub struct Signals {
    caught: Arc<AtomicUsize>,
    pipe: UnixStream,
    /// Action raised by the program itself instead of a signal.
    raised: Cell<Option<Signal>>,
    ring: UnixStream,
}

impl Signals {
    /// Catches signals for the life of the program; call it once.
    pub fn catch() -> io::Result<Rc<Self>> {
        let caught = Arc::new(AtomicUsize::new(0));
        let (pipe, write) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        write.set_nonblocking(true)?;
        for signal in SIGNALS {
            // The number is stored first: the thread that the pipe wakes reads it.
            signal_hook::flag::register_usize(signal, Arc::clone(&caught), signal as usize)?;
            signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
        }
        Ok(Rc::new(Self {
            caught,
            pipe,
            raised: Cell::new(None),
            ring: write,
        }))
    }

    /// Acts as if a signal had come.
    pub fn raise(&self, signal: Signal) {
        use std::io::Write as _;
        self.raised.set(Some(signal));
        // A full pipe is readable anyway.
        let _ = (&self.ring).write(&[0]);
    }

    /// Whether a signal waits. If none does, drains the pipe: the byte of a taken signal may come late.
    pub fn is_raised(&self) -> bool {
        self.take().inspect(|signal| self.raise(*signal)).is_some()
    }

    /// Takes the latest signal that was not taken yet.
    pub fn take(&self) -> Option<Signal> {
        use std::io::Read as _;
        let mut bytes = [0; 64];
        while matches!((&self.pipe).read(&mut bytes), Ok(n) if n > 0) {}
        if let Some(signal) = self.raised.take() {
            return Some(signal);
        }
        match self.caught.swap(0, Ordering::Relaxed) as i32 {
            SIGTERM => Some(Signal::Exit("SIGTERM")),
            SIGINT => Some(Signal::Exit("SIGINT")),
            SIGHUP => Some(Signal::Reload),
            SIGUSR1 => Some(Signal::Restart),
            SIGUSR2 => Some(Signal::Status),
            _ => None,
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netio::poll::Poller;
    use std::time::Duration;

    /// All in one test: the process has one set of signal handlers.
    #[test]
    fn a_signal_wakes_the_loop_and_is_taken_once() {
        use nix::sys::signal::{Signal as Number, raise};
        let signals = Signals::catch().unwrap();
        let poller = Poller::new().unwrap();
        poller.add(&*signals, 0).unwrap();
        let wakes = || poller.wait(Some(Duration::ZERO)).unwrap().iter().count() == 1;
        assert!(!wakes() && !signals.is_raised());
        for (number, meaning) in [
            (Number::SIGTERM, Signal::Exit("SIGTERM")),
            (Number::SIGINT, Signal::Exit("SIGINT")),
            (Number::SIGHUP, Signal::Reload),
            (Number::SIGUSR1, Signal::Restart),
            (Number::SIGUSR2, Signal::Status),
        ] {
            raise(number).unwrap();
            assert!(wakes() && signals.is_raised());
            // Asking did not take it.
            assert!(wakes());
            assert_eq!(signals.take(), Some(meaning));
            assert_eq!(signals.take(), None);
            assert!(!wakes());
        }
        // The management port asks for the same.
        signals.raise(Signal::Restart);
        assert!(wakes());
        assert_eq!(signals.take(), Some(Signal::Restart));
        assert!(!wakes() && !signals.is_raised());
    }
}
