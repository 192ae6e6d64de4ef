//! An accelerator and its driver threads, for all keys of the process.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::job::{Accelerator, Fault};
use super::task::Task;
use super::thread::{DriverThread, SessionCell};

/// Maximum number of concurrent operations, one in each thread. Four keep the units busy, as far as figures are known:
/// a hash unit, a cipher unit, a packet being copied in and one being copied out.
const THREADS: usize = 4;

/// Maximum keys with sessions at once; further keys use the CPU. Each key has a session in every driver thread, and a
/// session takes a descriptor or kernel memory. A router's own tunnels need two keys each, four during renewal.
const KEYS: usize = 16;

/// Maximum time of a batch. The slowest accelerators known (6 MB/s with small packets) need 20 ms for 64 KiB, and a
/// thread may have to wait for a busy CPU. Tests run in emulated machines on busy ones.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 60_000 } else { 500 });

/// An accelerator in use.
pub(crate) struct Pool {
    accelerator: Box<dyn Accelerator>,
    threads: Vec<DriverThread>,
    keys: AtomicUsize,
    /// Whether the accelerator has failed, and is no longer used.
    dropped: AtomicBool,
    patience: Duration,
}

impl Pool {
    /// Starts the driver threads; `None` if no thread could be started.
    pub(crate) fn new(accelerator: Box<dyn Accelerator>) -> Option<Arc<Self>> {
        Self::with(accelerator, PATIENCE)
    }

    /// Makes a pool with another patience: for tests.
    pub(super) fn with(accelerator: Box<dyn Accelerator>, patience: Duration) -> Option<Arc<Self>> {
        let threads: Vec<_> = (0..THREADS).map_while(|_| DriverThread::start()).collect();
        (!threads.is_empty()).then(|| {
            Arc::new(Self {
                accelerator,
                threads,
                keys: AtomicUsize::new(0),
                dropped: AtomicBool::new(false),
                patience,
            })
        })
    }

    /// The accelerator's name.
    pub(crate) fn name(&self) -> &'static str {
        self.accelerator.name()
    }

    pub(super) fn threads(&self) -> &[DriverThread] {
        &self.threads
    }

    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// Whether the accelerator is still in use.
    pub(crate) fn is_alive(&self) -> bool {
        !self.dropped.load(Ordering::Relaxed)
    }

    /// Stops using the accelerator for good, with one line in the log.
    pub(super) fn give_up(&self, driver: &str, why: core::fmt::Arguments<'_>) {
        if !self.dropped.swap(true, Ordering::Relaxed) {
            log::warn!(
                "{} ({driver}) is not used any more: {why}; the CPU encrypts instead, and no packet was lost",
                self.name()
            );
        }
    }

    /// Opens a session of the key for each driver thread.
    pub(super) fn sessions(&self, task: Task, key: &[u8]) -> Result<Sessions, Fault> {
        if !self.is_alive() {
            return Err(Fault::Unsupported);
        }
        if self.keys.fetch_add(1, Ordering::Relaxed) >= KEYS {
            self.keys.fetch_sub(1, Ordering::Relaxed);
            return Err(Fault::Crowded);
        }
        let open = |_| self.accelerator.open(task, key);
        let sessions: Result<Vec<_>, Fault> = (0..self.threads.len()).map(open).collect();
        if sessions.is_err() {
            self.forget_key();
        }
        let sessions = sessions?;
        let driver = sessions[0].driver().to_owned();
        let cells = sessions
            .into_iter()
            .map(|session| Arc::new(Mutex::new(session)))
            .collect();
        Ok(Sessions { cells, driver })
    }

    /// Frees a key's place. Call it once for each result of [`sessions`](Self::sessions).
    pub(super) fn forget_key(&self) {
        self.keys.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A key's sessions, in the order of the driver threads.
pub(super) struct Sessions {
    pub(super) cells: Box<[SessionCell]>,
    pub(super) driver: String,
}
