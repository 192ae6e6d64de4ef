//! Signals, while there is no service that minds them.

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
    /// Time is over, or the configuration is to be read again.
    Nothing,
    /// The process is to end.
    End,
}

/// The signals that this process minds, from its first moment to its last.
pub(super) struct Waiting {
    pipe: UnixStream,
    poller: Poller,
    end: Arc<AtomicBool>,
}

impl Waiting {
    /// Catches them.
    pub(super) fn catch() -> io::Result<Self> {
        let (pipe, write) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        write.set_nonblocking(true)?;
        let end = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            // The flag first: whom the pipe wakes finds it there.
            if signal != SIGHUP {
                signal_hook::flag::register(signal, Arc::clone(&end))?;
            }
            signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
        }
        let poller = Poller::new()?;
        poller.add(&pipe, 0)?;
        Ok(Self { pipe, poller, end })
    }

    /// Whether the process is to end.
    pub(super) fn is_over(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }

    /// The flag by which other threads learn of the end.
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
