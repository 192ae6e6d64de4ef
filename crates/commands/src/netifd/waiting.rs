//! Handles signals while no service does.

use netio::poll::Poller;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The event that ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// The time is over, or SIGHUP asks to read the configuration again.
    Nothing,
    /// A signal asks the process to end.
    End,
}

/// The signals that this process handles during all its life.
pub(super) struct Waiting {
    pipe: UnixStream,
    poller: Poller,
    end: Arc<AtomicBool>,
}

impl Waiting {
    /// Starts to catch the signals.
    pub(super) fn catch() -> io::Result<Self> {
        let (pipe, write) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        write.set_nonblocking(true)?;
        let end = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            // The flag is set first, so that the thread woken by the pipe finds it set.
            if signal != SIGHUP {
                signal_hook::flag::register(signal, Arc::clone(&end))?;
            }
            signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
        }
        let poller = Poller::new()?;
        poller.add(&pipe, 0)?;
        Ok(Self { pipe, poller, end })
    }

    /// Whether a signal has asked the process to end.
    pub(super) fn is_over(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }

    /// The flag that tells other threads of the end.
    pub(super) fn end(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.end)
    }

    /// Waits until a signal comes, for at most this long.
    pub(super) fn wait(&mut self, patience: Duration) -> Heard {
        if !self.is_over()
            && let Err(error) = self.poller.wait(Some(patience))
        {
            log::warn!("{error}");
        }
        let mut bytes = [0; 64];
        while matches!(self.pipe.read(&mut bytes), Ok(count) if count > 0) {}
        match self.is_over() {
            true => Heard::End,
            false => Heard::Nothing,
        }
    }
}
