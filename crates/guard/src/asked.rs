//! The record of what was asked for: the settings in force, until `off` or the next boot.
//!
//! It tells a process that sets the guard again whether it still shall. Its lock keeps such a process from setting what
//! another is taking away. What holds does not depend on it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use config::guard::Guard;
use netio::namespace;
use nix::fcntl::{Flock, FlockArg, OFlag};

use crate::GuardError;

/// Where it is, as all that the program knows of the host as it is.
const DIRECTORY: &str = "/run/millrace";

/// A number that the kernel makes anew at each boot.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The record, locked: no other process reads or writes it, or sets the guard by it, meanwhile.
#[derive(Debug)]
pub(crate) struct Asked {
    directory: PathBuf,
    _lock: Flock<File>,
}

impl Asked {
    /// Waits for the lock.
    pub(crate) fn lock() -> Result<Self, GuardError> {
        Self::lock_in(Path::new(DIRECTORY))
    }

    fn lock_in(directory: &Path) -> Result<Self, GuardError> {
        let path = path_of(directory, "lock");
        let lock = || {
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(directory)?;
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(OFlag::O_NOFOLLOW.bits())
                .open(&path)?;
            Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| errno.into())
        };
        let lock = lock().map_err(|error: io::Error| GuardError::Record { path, error })?;
        Ok(Self {
            directory: directory.to_owned(),
            _lock: lock,
        })
    }

    /// The settings in force, if the guard shall be on.
    pub(crate) fn read(&self) -> Option<Guard> {
        read(&self.directory)
    }

    /// Says that it shall be on.
    pub(crate) fn write(&self, guard: &Guard) -> Result<(), GuardError> {
        let path = path_of(&self.directory, "toml");
        let new = path_of(&self.directory, "new");
        let write = || {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o644)
                .custom_flags(OFlag::O_NOFOLLOW.bits())
                .open(&new)?;
            file.write_all(format!("{}\n{}", first_line(), guard.to_toml()).as_bytes())?;
            fs::rename(&new, &path)
        };
        write().map_err(|error| GuardError::Record { path, error })
    }

    /// Says that it shall be off.
    pub(crate) fn remove(&self) -> Result<(), GuardError> {
        let path = path_of(&self.directory, "toml");
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(|error| GuardError::Record { path, error }),
        }
    }
}

/// The settings in force, without waiting for the lock.
pub(crate) fn peek() -> Option<Guard> {
    read(Path::new(DIRECTORY))
}

/// Each network namespace has a guard of its own, and `/run` may be one for all.
fn path_of(directory: &Path, suffix: &str) -> PathBuf {
    let namespace = namespace::inode().unwrap_or(0);
    directory.join(format!("guard@{namespace}.{suffix}"))
}

/// Which boot it is, as a comment: `/run` outlives a boot where it is no file system of its own.
fn first_line() -> String {
    let boot = fs::read_to_string(BOOT).unwrap_or_default();
    format!("# boot {}", boot.trim())
}

fn read(directory: &Path) -> Option<Guard> {
    let path = path_of(directory, "toml");
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            log::warn!("{}: {error}", path.display());
            return None;
        }
        Ok(text) => text,
    };
    if text.lines().next() != Some(first_line().as_str()) {
        return None;
    }
    Guard::from_toml(&text, &path)
        .map_err(|error| log::warn!("{error}"))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::guard;

    #[test]
    fn what_was_asked_for_is_known_until_it_is_taken_back() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("millrace");
        let asked = Asked::lock_in(&directory).unwrap();
        assert_eq!(asked.read(), None);
        asked.write(&guard()).unwrap();
        assert_eq!(asked.read(), Some(guard()));
        // A name for each network namespace.
        let inode = namespace::inode().unwrap();
        assert!(directory.join(format!("guard@{inode}.toml")).exists());
        asked.remove().unwrap();
        assert_eq!(asked.read(), None);
        asked.remove().unwrap();
    }

    #[test]
    fn a_record_of_another_boot_is_none() {
        let place = tempfile::tempdir().unwrap();
        let asked = Asked::lock_in(place.path()).unwrap();
        asked.write(&guard()).unwrap();
        let path = path_of(place.path(), "toml");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replacen("# boot ", "# boot 0", 1)).unwrap();
        assert_eq!(asked.read(), None);
    }

    #[test]
    fn what_cannot_be_recorded_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Asked::lock_in(&file).unwrap_err();
        assert!(matches!(error, GuardError::Record { .. }), "{error}");
    }
}
