//! The record of settings in force, until they are withdrawn or the next boot.
//!
//! The record's lock keeps one process from setting what another one is removing.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use host::written_file::{open_lock, replace_for_now};
use netio::process::netns_inode;
use nix::fcntl::{Flock, FlockArg};

use crate::SteerError;

/// The directory of records, as of all the program's runtime state.
pub(crate) const DIRECTORY: &str = "/run/millrace";

/// How long a report waits for a running change; only a restart of `dnsmasq` takes longer.
const SETTLE: Duration = Duration::from_secs(3);

/// The kernel's random identifier of the current boot.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// A locked record: no other process reads or writes it, or applies its settings, meanwhile.
#[derive(Debug)]
pub(crate) struct Record {
    directory: PathBuf,
    name: &'static str,
    _lock: Flock<File>,
}

impl Record {
    /// Waits for the lock of the record of this name.
    pub(crate) fn lock(name: &'static str) -> Result<Self, SteerError> {
        Self::lock_in(Path::new(DIRECTORY), name)
    }

    /// Locks the record in another directory.
    pub(crate) fn lock_in(directory: &Path, name: &'static str) -> Result<Self, SteerError> {
        let path = path_of(directory, name, "lock");
        let lock = || {
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(directory)?;
            Flock::lock(open_lock(&path)?, FlockArg::LockExclusive)
                .map_err(|(_, errno)| errno.into())
        };
        let lock = lock().map_err(|error: io::Error| SteerError::Record { path, error })?;
        Ok(Self {
            directory: directory.to_owned(),
            name,
            _lock: lock,
        })
    }

    /// The recorded settings.
    pub(crate) fn read(&self) -> Option<String> {
        read(&self.directory, self.name)
    }

    /// Records these settings.
    pub(crate) fn write(&self, text: &str) -> Result<(), SteerError> {
        let path = path_of(&self.directory, self.name, "toml");
        let text = format!("{}\n{text}", first_line());
        // The record is useless after a reboot.
        replace_for_now(&path, text.as_bytes(), 0o644)
            .map_err(|error| SteerError::Record { path, error })
    }

    /// Removes the settings from the record.
    pub(crate) fn remove(&self) -> Result<(), SteerError> {
        let path = path_of(&self.directory, self.name, "toml");
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(|error| SteerError::Record { path, error }),
        }
    }
}

/// The settings in the record of this name, without waiting for the lock.
pub(crate) fn peek(name: &str) -> Option<String> {
    read(Path::new(DIRECTORY), name)
}

/// Waits until no other process is applying the settings of this record, and blocks new changes while the result is
/// held. A report can then look between two changes. `None` without permission, or when a change takes too long.
pub(crate) fn settle(name: &str) -> Option<Flock<File>> {
    let mut file = File::open(path_of(Path::new(DIRECTORY), name, "lock")).ok()?;
    let end = Instant::now() + SETTLE;
    loop {
        file = match Flock::lock(file, FlockArg::LockSharedNonblock) {
            Ok(lock) => return Some(lock),
            Err((file, _)) if Instant::now() < end => file,
            Err(_) => return None,
        };
        thread::sleep(Duration::from_millis(5));
    }
}

/// Claims this name for the process, for [`is_taken`], while the result is held. `None` if another process has it, or
/// the file cannot be created.
pub(crate) fn take(name: &str) -> Option<Flock<File>> {
    let file = open_lock(&path_of(Path::new(DIRECTORY), name, "lock")).ok()?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).ok()
}

/// Whether a process has claimed the name. True if this user cannot tell.
pub(crate) fn is_taken(name: &str) -> bool {
    match File::open(path_of(Path::new(DIRECTORY), name, "lock")) {
        Ok(file) => Flock::lock(file, FlockArg::LockSharedNonblock).is_err(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// The file of a record. Each network namespace has its own, as namespaces may share one `/run`.
pub(crate) fn path_of(directory: &Path, name: &str, suffix: &str) -> PathBuf {
    let namespace = netns_inode().unwrap_or(0);
    directory.join(format!("{name}@{namespace}.{suffix}"))
}

/// The boot's identifier, as a comment: `/run` survives a boot where it is on disk.
fn first_line() -> String {
    let boot = fs::read_to_string(BOOT).unwrap_or_default();
    format!("# boot {}", boot.trim())
}

fn read(directory: &Path, name: &str) -> Option<String> {
    let path = path_of(directory, name, "toml");
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            log::warn!("{}: {error}", path.display());
            return None;
        }
        Ok(text) => text,
    };
    let rest = text.strip_prefix(first_line().as_str())?;
    rest.strip_prefix('\n').map(str::to_owned)
}
