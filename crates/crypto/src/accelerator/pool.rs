//! An accelerator and its driver threads, for all keys of the process.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::thread::{DriverThread, SessionCell};
use super::{Accelerator, Fault, Task};

/// Operations under way at once. Four keep the units busy of which figures are known (a hash unit, a cipher unit, one
/// packet on its way in and one on its way out), and are four threads.
const THREADS: usize = 4;

/// Keys that have sessions at once; further ones do without. Each has a session in every driver thread, and a
/// session is a descriptor or memory of the kernel. A router's own tunnels need two keys each, four while they are renewed.
const KEYS: usize = 16;

/// How long a batch may take. The slowest accelerators known (6 MB/s with small packets) need 20 ms for 64 KiB, and a thread
/// may have to wait for a busy CPU. Tests run in machines that are emulated on busy ones.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 60_000 } else { 500 });

/// An accelerator in use.
pub(crate) struct Pool {
    accelerator: Box<dyn Accelerator>,
    threads: Vec<DriverThread>,
    keys: AtomicUsize,
    /// It has failed, and is not used any more.
    dropped: AtomicBool,
    patience: Duration,
}

impl Pool {
    /// `None` if no thread could be started.
    pub(crate) fn new(accelerator: Box<dyn Accelerator>) -> Option<Arc<Self>> {
        Self::with(accelerator, PATIENCE)
    }

    /// With another patience: for tests.
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

    /// The name.
    pub(crate) fn name(&self) -> &'static str {
        self.accelerator.name()
    }

    pub(super) fn threads(&self) -> &[DriverThread] {
        &self.threads
    }

    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// Whether it is still used.
    pub(crate) fn is_alive(&self) -> bool {
        !self.dropped.load(Ordering::Relaxed)
    }

    /// Never to use it again, with one line in the log.
    pub(super) fn give_up(&self, driver: &str, why: core::fmt::Arguments<'_>) {
        if !self.dropped.swap(true, Ordering::Relaxed) {
            log::warn!(
                "{} ({driver}) is not used any more: {why}; the CPU encrypts instead, and no packet was lost",
                self.name()
            );
        }
    }

    /// A session of the key for each driver thread.
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

    /// To be called once for each that [`sessions`](Self::sessions) has made.
    pub(super) fn forget_key(&self) {
        self.keys.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A key's sessions, in the order of the driver threads.
pub(super) struct Sessions {
    pub(super) cells: Box<[SessionCell]>,
    pub(super) driver: String,
}
