//! A record on disk of the changes to the host, so that a daemon that was killed can be cleaned up after.
//!
//! A step is written **before** it is done: a step in the file may not have happened, one that
//! is not in the file did not. Locks tell a living daemon's file from a dead one's: the kernel
//! drops them however the process ends, and no process number can be taken for another's.
//!
//! The first line says which host the steps were done to: the boot, the network namespace and the
//! interface. What was done to another is not to be undone on this one: such a journal is
//! discarded.
//!
//! Several tunnels may need one route, rule or setting. Each writes it down, and it goes with the
//! last of them. So that no two processes decide at once, a process that reads the journals of others
//! holds the lock of the [`Directory`].

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use netio::namespace;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::unistd::Uid;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::step::{Step, is_setting_of_ours};
use super::written_file::open_lock;

/// Directory of the journals, one `IFNAME@NAMESPACE.undo` for each interface; empty after a reboot, as the
/// host's state is.
pub(super) const DIRECTORY: &str = "/run/millrace";

/// Largest journal that is read, in bytes; a real one has a few lines.
const SIZE_MAX: u64 = 1 << 20;

/// Longest first line that is looked at, in bytes.
const LINE_MAX: u64 = 256;

/// A number that the kernel makes anew at each boot.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// Why a journal cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Another process has the interface up.
    #[error(
        "{ifname}: another millrace process has this tunnel up; `millrace down {ifname}` ends it"
    )]
    Running {
        /// The interface.
        ifname: String,
    },
    /// The file or its directory.
    #[error("{}: {error}; the tunnel cannot be made without a record of how to undo it", path.display())]
    File {
        /// The journal.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
}

/// File in the directory that is locked while a process opens, reads or removes journals of others.
const LOCK: &str = "undo.lock";

/// The directory of the journals, locked: no other process opens, reads or removes one meanwhile. The
/// lock is given back with the value.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    lock: Flock<File>,
}

impl Directory {
    /// Makes the directory if there is none, and waits for its lock.
    ///
    /// Steps are undone as they stand in the files there, by root. So the directory must be one
    /// that only this user, or root, writes to.
    pub(super) fn lock(path: &Path) -> Result<Self, JournalError> {
        let lock = || {
            DirBuilder::new().recursive(true).mode(0o755).create(path)?;
            let options = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
            let directory = OpenOptions::new()
                .read(true)
                .custom_flags(options.bits())
                .open(path)?;
            let data = directory.metadata()?;
            let ours = data.uid() == Uid::effective().as_raw();
            if data.mode() & 0o022 != 0 && ours {
                directory.set_permissions(Permissions::from_mode(0o755))?;
            } else if data.mode() & 0o022 != 0 || !(ours || data.uid() == 0) {
                return Err(io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    "other users may write to this directory; remove it",
                ));
            }
            open_lock(&path.join(LOCK))
        };
        let failed = |error| JournalError::File {
            path: path.to_owned(),
            error,
        };
        Self::locked(path, lock().map_err(failed)?)
    }

    fn locked(path: &Path, file: File) -> Result<Self, JournalError> {
        let lock = Flock::lock(file, FlockArg::LockExclusive);
        let lock = lock.map_err(|(_, errno)| JournalError::File {
            path: path.to_owned(),
            error: errno.into(),
        })?;
        Ok(Self {
            path: path.to_owned(),
            lock,
        })
    }

    /// The interfaces in this network namespace whose journals no process holds. What killed processes left
    /// of another boot, or of a namespace that is gone, is removed.
    pub(super) fn abandoned(&self) -> Vec<String> {
        let here = Origin::here(0);
        let mut names = Vec::new();
        for path in journals(Some(&self.path)) {
            let Ok(file) = open_own(&path) else { continue };
            let origin = Origin::of(&file);
            if Flock::lock(file, FlockArg::LockExclusiveNonblock).is_err() {
                continue;
            }
            match origin {
                Some(origin) if origin.is_same_host(&here) => names.extend(stem(&path)),
                Some(origin) if !origin.is_gone(&here) => {}
                _ => {
                    log::info!("{}: discarded, it is of another time", path.display());
                    // Tried again at the next start.
                    let _ = fs::remove_file(&path);
                }
            }
        }
        names
    }
}

/// An open and locked journal.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: Flock<File>,
    /// The file of the directory's lock, for a process that may not open it any more.
    directory: File,
    /// Index of the interface that it is about, 0 while there is none.
    interface: u32,
}

/// The steps that a dead daemon did and did not undo.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Left {
    /// The steps, in order.
    pub(super) steps: Vec<Step>,
    /// Index of the interface that it had, 0 when unknown.
    pub(super) interface: u32,
}

impl Journal {
    /// Opens the journal of an interface, and gives what a dead daemon left in it.
    pub(super) fn open(directory: &Directory, ifname: &str) -> Result<(Self, Left), JournalError> {
        let path = path_of(&directory.path, ifname);
        let failed = |error| JournalError::File {
            path: path.clone(),
            error,
        };
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(OFlag::O_NOFOLLOW.bits())
            .open(&path)
            .map_err(failed)?;
        require_own(&file).map_err(failed)?;
        let file =
            Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(
                |(_, errno)| match errno {
                    Errno::EWOULDBLOCK => JournalError::Running {
                        ifname: ifname.to_owned(),
                    },
                    errno => failed(errno.into()),
                },
            )?;
        let origin = Origin::of(&file);
        let steps = read(&file).map_err(failed)?;
        let journal = Self {
            path: path.clone(),
            file,
            directory: directory.lock.try_clone().map_err(failed)?,
            interface: 0,
        };
        let left = match origin {
            Some(origin) if origin.is_same_host(&Origin::here(0)) => Left {
                steps,
                interface: origin.interface,
            },
            // A reboot or the end of a namespace has undone these steps already.
            _ => {
                if !steps.is_empty() {
                    log::info!("{}: discarded, it is of another time", path.display());
                }
                Left::default()
            }
        };
        Ok((journal, left))
    }

    /// Says which interface the steps from now on are about.
    pub(super) const fn set_interface(&mut self, index: u32) {
        self.interface = index;
    }

    /// Writes down that a step is about to be done. Returns what [`Journal::retract`] needs.
    pub(super) fn record(&mut self, step: &Step) -> Result<u64, JournalError> {
        let write = || {
            let mut mark = self.file.metadata()?.len();
            if mark == 0 {
                self.write(&Origin::here(self.interface))?;
                mark = self.file.metadata()?.len();
            }
            self.write(step)?;
            Ok(mark)
        };
        write().map_err(|error| self.failed(error))
    }

    /// Takes back what was written since a record gave this mark: it was not done.
    pub(super) fn retract(&mut self, mark: u64) -> Result<(), JournalError> {
        self.file.set_len(mark).map_err(|error| self.failed(error))
    }

    fn write(&self, line: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        // In one call, so that a line is whole or torn but never mixed with another.
        (&*self.file).write_all(text.as_bytes())
    }

    /// Empties the file: its steps have been undone.
    pub(super) fn clear(&mut self) -> Result<(), JournalError> {
        self.file.set_len(0).map_err(|error| self.failed(error))
    }

    /// Removes the file, which nothing must be undone of any more. A process that may not remove it
    /// any more leaves it empty.
    pub(super) fn remove(mut self) -> Result<(), JournalError> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => self.clear(),
            outcome => outcome.map_err(|error| self.failed(error)),
        }
    }

    /// The other journals of this namespace.
    pub(super) fn others(&self) -> Vec<Other> {
        let here = Origin::here(0);
        let mut others = Vec::new();
        for path in self.other_paths() {
            // Gone meanwhile, or about to go.
            let Ok(file) = open_own(&path) else {
                continue;
            };
            if !Origin::of(&file).is_some_and(|origin| origin.is_same_host(&here)) {
                continue;
            }
            others.push(Other {
                ifname: stem(&path).unwrap_or_default(),
                steps: read(&file).unwrap_or_default(),
                alive: Flock::lock(file, FlockArg::LockSharedNonblock).is_err(),
            });
        }
        others
    }

    /// The directory, locked.
    pub(super) fn directory(&self) -> Result<Directory, JournalError> {
        let path = self.path.parent().unwrap_or_else(|| Path::new(DIRECTORY));
        let file = self.directory.try_clone();
        Directory::locked(path, file.map_err(|error| self.failed(error))?)
    }

    fn other_paths(&self) -> Vec<PathBuf> {
        let mut paths = journals(self.path.parent());
        paths.retain(|path| *path != self.path);
        paths
    }

    fn failed(&self, error: io::Error) -> JournalError {
        JournalError::File {
            path: self.path.clone(),
            error,
        }
    }
}

/// Another tunnel's journal.
#[derive(Debug)]
pub(super) struct Other {
    /// The interface.
    pub(super) ifname: String,
    /// The steps that were done for it.
    pub(super) steps: Vec<Step>,
    /// Its daemon runs.
    pub(super) alive: bool,
}

/// The first line of a journal: what it is about. Interfaces of the same name in two network
/// namespaces have nothing to do with each other, but `/run` is the same for both, and may outlive a
/// boot.
#[derive(Debug, Deserialize, Eq, PartialEq, Serialize)]
struct Origin {
    /// Inode of the namespace, 0 when unknown. Used again when the namespace is gone.
    namespace: u64,
    /// The namespace's number, which is never used again; 0 before Linux 5.14.
    cookie: u64,
    /// The boot.
    boot: String,
    /// Index of the interface.
    interface: u32,
}

impl Origin {
    fn here(interface: u32) -> Self {
        let boot = fs::read_to_string(BOOT).unwrap_or_default();
        Self {
            namespace: namespace::inode().unwrap_or(0),
            cookie: namespace::cookie().unwrap_or(0),
            boot: boot.trim().to_owned(),
            interface,
        }
    }

    fn of(file: &File) -> Option<Self> {
        let mut line = String::new();
        let read = BufReader::new(file.take(LINE_MAX)).read_line(&mut line);
        let _ = (read, (&*file).rewind());
        serde_json::from_slice(line.as_bytes()).ok()
    }

    /// True when the namespace is the same one.
    fn is_same_host(&self, here: &Self) -> bool {
        (self.namespace, self.cookie, &self.boot) == (here.namespace, here.cookie, &here.boot)
    }

    /// True when the namespace is none of those that there are.
    fn is_gone(&self, here: &Self) -> bool {
        self.boot != here.boot || (self.namespace == here.namespace && self.cookie != here.cookie)
    }
}

/// Opens a journal of another tunnel to read it, if only this user or root can have written it.
fn open_own(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(path)?;
    require_own(&file)?;
    Ok(file)
}

fn require_own(file: &File) -> io::Result<()> {
    let data = file.metadata()?;
    let own = data.uid() == 0 || data.uid() == Uid::effective().as_raw();
    if own && data.is_file() && data.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        "no file that only its owner and root can have written; remove it",
    ))
}

pub(super) fn journals(directory: Option<&Path>) -> Vec<PathBuf> {
    let entries = directory.map(fs::read_dir).into_iter().flatten().flatten();
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "undo")
        })
        .collect()
}

/// The journal of an interface of this network namespace: others may have interfaces of that name.
pub(super) fn path_of(directory: &Path, ifname: &str) -> PathBuf {
    let namespace = namespace::inode().unwrap_or(0);
    directory.join(format!("{ifname}@{namespace}.undo"))
}

/// The interface of a journal.
fn stem(path: &Path) -> Option<String> {
    let stem = path.file_stem()?.to_str()?;
    Some(
        stem.rsplit_once('@')
            .map_or(stem, |(name, _)| name)
            .to_owned(),
    )
}

fn read(file: &File) -> io::Result<Vec<Step>> {
    let mut steps = Vec::new();
    for line in BufReader::new(file.take(SIZE_MAX)).lines() {
        let line = line?;
        if serde_json::from_slice::<Origin>(line.as_bytes()).is_ok() {
            continue;
        }
        match serde_json::from_slice(line.as_bytes()) {
            // Written to below `/proc/sys`, by root.
            Ok(Step::Sysctl { key, .. }) if !is_setting_of_ours(&key) => {
                log::warn!("a line of the undo journal is passed over: no setting of ours: {key}");
            }
            Ok(step) => steps.push(step),
            // The last line of a daemon that was killed while writing, or of another version.
            Err(error) => log::warn!("a line of the undo journal is passed over: {error}"),
        }
    }
    Ok(steps)
}

#[cfg(test)]
mod tests;
