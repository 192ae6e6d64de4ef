//! A record of what was asked for, in force until it is taken back or until the next boot.
//!
//! Its lock keeps a process that sets something again from setting what another is taking away.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use host::written_file::open_lock;
use netio::namespace;
use nix::fcntl::{Flock, FlockArg, OFlag};

use crate::GuardError;

/// Where records are, as all that the program knows of the host as it is.
pub const DIRECTORY: &str = "/run/millrace";

/// How long a report waits for a change to be over, which takes longer only where `dnsmasq` is started anew.
const SETTLE: Duration = Duration::from_secs(3);

/// A number that the kernel makes anew at each boot.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// A record, locked: no other process reads or writes it, or sets anything by it, meanwhile.
#[derive(Debug)]
pub struct Record {
    directory: PathBuf,
    name: &'static str,
    _lock: Flock<File>,
}

impl Record {
    /// Waits for the lock of the record of this name.
    ///
    /// # Errors
    /// [`GuardError::Record`].
    pub fn lock(name: &'static str) -> Result<Self, GuardError> {
        Self::lock_in(Path::new(DIRECTORY), name)
    }

    /// Locks the record in another directory.
    ///
    /// # Errors
    /// [`GuardError::Record`].
    pub fn lock_in(directory: &Path, name: &'static str) -> Result<Self, GuardError> {
        let path = path_of(directory, name, "lock");
        let lock = || {
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(directory)?;
            Flock::lock(open_lock(&path)?, FlockArg::LockExclusive)
                .map_err(|(_, errno)| errno.into())
        };
        let lock = lock().map_err(|error: io::Error| GuardError::Record { path, error })?;
        Ok(Self {
            directory: directory.to_owned(),
            name,
            _lock: lock,
        })
    }

    /// The recorded settings.
    #[must_use]
    pub fn read(&self) -> Option<String> {
        read(&self.directory, self.name)
    }

    /// Says what is asked for.
    ///
    /// # Errors
    /// [`GuardError::Record`].
    pub fn write(&self, text: &str) -> Result<(), GuardError> {
        let path = path_of(&self.directory, self.name, "toml");
        let new = path_of(&self.directory, self.name, "new");
        let write = || {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o644)
                .custom_flags(OFlag::O_NOFOLLOW.bits())
                .open(&new)?;
            file.write_all(format!("{}\n{text}", first_line()).as_bytes())?;
            fs::rename(&new, &path)
        };
        write().map_err(|error| GuardError::Record { path, error })
    }

    /// Says that nothing is asked for.
    ///
    /// # Errors
    /// [`GuardError::Record`].
    pub fn remove(&self) -> Result<(), GuardError> {
        let path = path_of(&self.directory, self.name, "toml");
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(|error| GuardError::Record { path, error }),
        }
    }
}

/// The settings in the record of this name, without waiting for the lock.
#[must_use]
pub fn peek(name: &str) -> Option<String> {
    read(Path::new(DIRECTORY), name)
}

/// Waits until no other process sets anything by the record of this name, and keeps them from it until what is returned is
/// dropped: a report looks between two changes. `None` for a user who may not, and where a change takes too long.
#[must_use]
pub fn settle(name: &str) -> Option<Flock<File>> {
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

/// Tells [`is_taken`] that this process does what the name says, until what is returned is dropped. `None` where another does,
/// or no file can be made.
#[must_use]
pub fn take(name: &str) -> Option<Flock<File>> {
    let file = open_lock(&path_of(Path::new(DIRECTORY), name, "lock")).ok()?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).ok()
}

/// Whether a process has taken the name. True where that cannot be known, as for a user who may not look.
#[must_use]
pub fn is_taken(name: &str) -> bool {
    match File::open(path_of(Path::new(DIRECTORY), name, "lock")) {
        Ok(file) => Flock::lock(file, FlockArg::LockSharedNonblock).is_err(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// The file of a record. Each network namespace has records of its own, and `/run` may be one for all.
#[must_use]
pub fn path_of(directory: &Path, name: &str, suffix: &str) -> PathBuf {
    let namespace = namespace::inode().unwrap_or(0);
    directory.join(format!("{name}@{namespace}.{suffix}"))
}

/// Which boot it is, as a comment: `/run` outlives a boot where it is no file system of its own.
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
