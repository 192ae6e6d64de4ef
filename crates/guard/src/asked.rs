//! The record of what was asked for: the settings in force, until `off` or the next boot.
//!
//! It tells a process that sets the guard again whether it still shall. Its lock keeps such a process from setting what
//! another is taking away.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use config::guard::Guard;
use nix::fcntl::{Flock, FlockArg, OFlag};

use crate::GuardError;

/// Where it is; the second where the first is not, as in older OpenWrt.
const DIRECTORIES: [&str; 2] = ["/run", "/var/run"];

/// The settings in force.
const FILE: &str = "guard.toml";
/// The file with the lock.
const LOCK: &str = "guard.lock";

/// The record, locked: no other process reads or writes it, or sets the guard by it, meanwhile.
#[derive(Debug)]
pub(crate) struct Asked {
    directory: PathBuf,
    _lock: Flock<File>,
}

fn directory() -> PathBuf {
    let mut all = DIRECTORIES.iter().map(Path::new);
    let found = all
        .find(|it| it.is_dir())
        .unwrap_or_else(|| Path::new(DIRECTORIES[1]));
    found.join("millrace")
}

impl Asked {
    /// Waits for the lock.
    pub(crate) fn lock() -> Result<Self, GuardError> {
        let directory = directory();
        let path = directory.join(LOCK);
        let lock = || {
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(&directory)?;
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
            directory,
            _lock: lock,
        })
    }

    /// The settings in force, if the guard shall be on.
    pub(crate) fn read(&self) -> Option<Guard> {
        read(&self.directory)
    }

    /// Says that it shall be on.
    pub(crate) fn write(&self, guard: &Guard) -> Result<(), GuardError> {
        let path = self.directory.join(FILE);
        let new = self.directory.join("guard.new");
        let write = || {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o644)
                .custom_flags(OFlag::O_NOFOLLOW.bits())
                .open(&new)?;
            file.write_all(guard.to_toml().as_bytes())?;
            fs::rename(&new, &path)
        };
        write().map_err(|error| GuardError::Record { path, error })
    }

    /// Says that it shall be off.
    pub(crate) fn remove(&self) -> Result<(), GuardError> {
        let path = self.directory.join(FILE);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(|error| GuardError::Record { path, error }),
        }
    }
}

/// The settings in force, without waiting for the lock.
pub(crate) fn peek() -> Option<Guard> {
    read(&directory())
}

fn read(directory: &Path) -> Option<Guard> {
    match Guard::read(&directory.join(FILE)) {
        Ok(guard) => Some(guard),
        Err(config::settings::SettingsError::Read { error, .. })
            if error.kind() == io::ErrorKind::NotFound =>
        {
            None
        }
        Err(error) => {
            log::warn!("{error}");
            None
        }
    }
}
