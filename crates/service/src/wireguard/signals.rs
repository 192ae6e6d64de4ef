//! Signals to the program of a WireGuard interface, of a PPTP client or server, or of a relay.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The signals that a daemon handles. A reload never hides a signal to end.
pub(crate) struct Signals {
    pub(crate) pipe: UnixStream,
    end: Arc<AtomicUsize>,
    reload: Arc<AtomicBool>,
    #[cfg(feature = "relay")]
    write: UnixStream,
}

impl Signals {
    pub(crate) fn catch() -> io::Result<Self> {
        let (pipe, write) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        write.set_nonblocking(true)?;
        let signals = Self {
            pipe,
            end: Arc::default(),
            reload: Arc::default(),
            #[cfg(feature = "relay")]
            write: write.try_clone()?,
        };
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            // Registers the flag before the pipe, so the thread that the pipe wakes finds it set.
            if signal == SIGHUP {
                signal_hook::flag::register(signal, Arc::clone(&signals.reload))?;
            } else {
                signal_hook::flag::register_usize(
                    signal,
                    Arc::clone(&signals.end),
                    signal as usize,
                )?;
            }
            signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
        }
        Ok(signals)
    }

    /// Has another signal set a flag, and wake the same thread through the pipe.
    #[cfg(feature = "relay")]
    pub(crate) fn also(&self, signal: i32) -> io::Result<Arc<AtomicBool>> {
        let flag = Arc::default();
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
        signal_hook::low_level::pipe::register(signal, self.write.try_clone()?)?;
        Ok(flag)
    }

    pub(crate) fn drain(&self) {
        let mut bytes = [0; 64];
        while matches!((&self.pipe).read(&mut bytes), Ok(n) if n > 0) {}
    }

    /// The signal to end, if one came.
    pub(crate) fn end(&self) -> Option<i32> {
        match self.end.load(Ordering::Relaxed) {
            0 => None,
            signal => Some(signal as i32),
        }
    }

    pub(crate) fn take_reload(&self) -> bool {
        self.reload.swap(false, Ordering::Relaxed)
    }
}
