//! Signals, as OpenVPN gives them meaning.

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
pub(super) enum Signal {
    /// SIGTERM, SIGINT: leave.
    Exit(&'static str),
    /// SIGHUP: read the configuration again and start anew.
    Reload,
    /// SIGUSR1: connect again.
    Restart,
    /// SIGUSR2: print the status.
    Status,
}

const SIGNALS: [i32; 5] = [SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2];

/// The signals caught so far; readable when there is one.
pub(super) struct Signals {
    caught: Arc<AtomicUsize>,
    pipe: UnixStream,
    /// Action raised by other means than a signal.
    raised: Cell<Option<Signal>>,
    ring: UnixStream,
}

impl Signals {
    /// Catches signals from now on, for the life of the program: to be called once.
    pub(super) fn catch() -> io::Result<Rc<Self>> {
        let caught = Arc::new(AtomicUsize::new(0));
        let (pipe, write) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        write.set_nonblocking(true)?;
        for signal in SIGNALS {
            // The number first: the thread that the pipe wakes finds it there.
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
    pub(super) fn raise(&self, signal: Signal) {
        use std::io::Write as _;
        self.raised.set(Some(signal));
        // Full: then it is readable anyway.
        let _ = (&self.ring).write(&[0]);
    }

    /// Whether there is one to take. If not, nothing is readable either: the byte of one that was
    /// taken may come late.
    pub(super) fn is_raised(&self) -> bool {
        self.take().inspect(|signal| self.raise(*signal)).is_some()
    }

    /// The last signal that was not taken yet.
    pub(super) fn take(&self) -> Option<Signal> {
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
