//! The record of settings in force, until they are withdrawn or the next boot.
//!
//! The record's lock keeps one process from setting what another one is removing.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
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

/// A command that this process runs, and no other of the same network namespace, while this is held.
#[derive(Debug)]
pub struct Claim {
    _lock: Option<Flock<File>>,
}

/// Claims a command for this process. Waits a moment for a process that is ending. Claims nothing if the lock's file
/// cannot be made: the command matters more.
///
/// # Errors
/// [`SteerError::Runs`] if another process runs the command.
pub fn claim(name: &'static str) -> Result<Claim, SteerError> {
    claim_in(Path::new(DIRECTORY), name)
}

fn claim_in(directory: &Path, name: &'static str) -> Result<Claim, SteerError> {
    // The directory may exist, and may belong to others in a container.
    let _ = fs::create_dir_all(directory);
    let Ok(mut file) = open_lock(&path_of(directory, name, "lock")) else {
        return Ok(Claim { _lock: None });
    };
    let end = Instant::now() + SETTLE;
    loop {
        file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => {
                let pid = std::process::id().to_string();
                // Only the words of a refusal depend on it.
                let _ = lock
                    .set_len(0)
                    .and_then(|()| (&*lock).write_all(pid.as_bytes()));
                return Ok(Claim { _lock: Some(lock) });
            }
            // [`is_taken`] holds the lock for a moment, too.
            Err((file, _)) if Instant::now() < end => file,
            Err((mut file, _)) => {
                let mut pid = String::new();
                let _ = file.read_to_string(&mut pid);
                let pid = pid.parse().unwrap_or_default();
                return Err(SteerError::Runs { name, pid });
            }
        };
        thread::sleep(Duration::from_millis(5));
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_runs_once() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("millrace");
        let claim = |name| claim_in(&directory, name);
        let first = claim("guard-watch").unwrap();
        let _other = claim("alerts").unwrap();
        let words = claim("guard-watch").unwrap_err().to_string();
        let pid = std::process::id();
        assert_eq!(
            words,
            format!("guard watch: process {pid} runs it already; end that one first")
        );
        drop(first);
        claim("guard-watch").unwrap();
        // Where no file can be made, nothing is refused.
        fs::write(place.path().join("file"), "").unwrap();
        let nowhere = place.path().join("file/millrace");
        let both = [0, 1].map(|_| claim_in(&nowhere, "alerts").unwrap());
        drop(both);
    }
}
