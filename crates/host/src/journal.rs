//! A record on disk of the changes to the host, so that the next process can clean up after a killed daemon.
//!
//! A step is written **before** it is done: a step in the file may not have happened, one that is missing from the file
//! did not. Locks tell a living daemon's file from a dead one's: the kernel drops them however the process ends, and
//! unlike process numbers they cannot be confused.
//!
//! The first line names the host: the boot, the network namespace and the interface. A journal of another host is
//! discarded, because its steps must not be undone on this one.
//!
//! Several tunnels may need one route, rule or setting. Each records it, and the last tunnel removes it. A process that
//! reads other tunnels' journals holds the lock of the [`Directory`], so that no two processes decide at once.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use netio::process::{netns_cookie, netns_inode};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::unistd::Uid;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use super::step::{Step, is_setting_of_ours};
use super::written_file::open_lock;

/// Directory of the journals, one `IFNAME@NAMESPACE.undo` for each interface; empty after a reboot, as the
/// host's state is.
pub(super) const DIRECTORY: &str = "/run/millrace";

/// Largest journal that is read, in bytes; a real one has a few lines.
const SIZE_MAX: u64 = 1 << 20;

/// Longest first line that is read, in bytes.
const LINE_MAX: u64 = 1024;

/// Longest part of a profile's name that a journal has, in characters.
const NAME_MAX: usize = 64;

/// The profile that this process runs.
static PROFILE: OnceLock<String> = OnceLock::new();

/// Names the profile that this process runs, for the journals that it makes.
pub fn name_profile(name: &str) {
    let _ = PROFILE.set(known(name));
}

/// The part of a profile's name that a journal has.
pub(super) fn known(name: &str) -> String {
    name.chars().take(NAME_MAX).collect()
}

/// A number that the kernel chooses at each boot.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// Why a journal cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Another process is running the tunnel on this interface.
    #[error(
        "{ifname}: another millrace process has this tunnel up; end it with `millrace down {ifname}`"
    )]
    Running {
        /// The interface.
        ifname: String,
    },
    /// The file or its directory.
    #[error("{}: {error}; the tunnel cannot start without this record of how to undo its changes", path.display())]
    File {
        /// The journal.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
}

/// Lock file in the directory, held while a process opens, reads or removes other tunnels' journals.
const LOCK: &str = "undo.lock";

/// The locked directory of the journals: no other process opens, reads or removes one meanwhile. Dropping this releases
/// the lock.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    lock: Flock<File>,
}

impl Directory {
    /// Creates the directory if it is missing, and waits for its lock.
    ///
    /// Root undoes the steps in the files there, so only this user or root may be able to write to the directory.
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

    /// The interfaces in this network namespace whose journals no process holds; with `profile` only those of that one.
    /// Removes journals that killed processes left from another boot, or from a namespace that is gone.
    pub(super) fn abandoned(&self, profile: Option<&str>) -> Vec<String> {
        let here = Origin::here(0);
        let mut names = Vec::new();
        for path in journals(Some(&self.path)) {
            let Ok(file) = open_own(&path) else { continue };
            let origin = Origin::of(&file);
            if Flock::lock(file, FlockArg::LockExclusiveNonblock).is_err() {
                continue;
            }
            match origin {
                Some(origin) if origin.is_same_host(&here) => {
                    if profile.is_none() || origin.profile.as_deref() == profile {
                        names.extend(stem(&path));
                    }
                }
                Some(origin) if !origin.is_gone(&here) => {}
                _ => {
                    log::info!(
                        "{}: discarded, as it belongs to an earlier boot or namespace",
                        path.display()
                    );
                    // If this fails, the next start tries again.
                    let _ = fs::remove_file(&path);
                }
            }
        }
        names
    }

    /// The steps in the journal of an interface; empty if it cannot be read.
    pub(super) fn steps(&self, ifname: &str) -> Vec<Step> {
        let file = open_own(&path_of(&self.path, ifname));
        file.and_then(|file| read(&file)).unwrap_or_default()
    }
}

/// An open and locked journal.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: Flock<File>,
    /// The lock file of the directory, kept open for a process that may no longer open it.
    directory: File,
    /// Index of the journal's interface; 0 while there is none.
    interface: u32,
}

/// The steps that a dead daemon did and did not undo.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Left {
    /// The steps, in order.
    pub(super) steps: Vec<Step>,
    /// Index of the daemon's interface, 0 when unknown.
    pub(super) interface: u32,
}

impl Journal {
    /// Opens the journal of an interface, and returns the steps that a dead daemon left in it.
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
            // A reboot or the end of the namespace has undone these steps already.
            _ => {
                if !steps.is_empty() {
                    log::info!(
                        "{}: discarded, as it belongs to an earlier boot or namespace",
                        path.display()
                    );
                }
                Left::default()
            }
        };
        Ok((journal, left))
    }

    /// Sets the interface of all steps that follow.
    pub(super) const fn set_interface(&mut self, index: u32) {
        self.interface = index;
    }

    /// Records that a step is about to be done. Returns the mark for [`Journal::retract`].
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

    /// Removes everything recorded since [`Journal::record`] returned this mark: the step was not done.
    pub(super) fn retract(&mut self, mark: u64) -> Result<(), JournalError> {
        self.file.set_len(mark).map_err(|error| self.failed(error))
    }

    fn write(&self, line: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        // One write call: a line may be cut off, but never mixed with another.
        (&*self.file).write_all(text.as_bytes())
    }

    /// Empties the file: its steps have been undone.
    pub(super) fn clear(&mut self) -> Result<(), JournalError> {
        self.file.set_len(0).map_err(|error| self.failed(error))
    }

    /// Removes the file once all its steps are undone. A process that may no longer remove it leaves it empty.
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
            // The file is gone, or about to go.
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
    /// The steps that were done for the tunnel.
    pub(super) steps: Vec<Step>,
    /// Whether the tunnel's daemon runs.
    pub(super) alive: bool,
}

/// The first line of a journal: the host and interface of its steps. Interfaces of one name in two network namespaces
/// are unrelated, but both namespaces share `/run`, which may also outlive a boot.
#[derive(Debug, Deserialize, Eq, PartialEq, Serialize)]
struct Origin {
    /// Inode number of the namespace, 0 when unknown. The kernel reuses it when the namespace is gone.
    namespace: u64,
    /// The namespace's number, which the kernel never reuses; 0 before Linux 5.14.
    cookie: u64,
    /// Boot id of the kernel.
    boot: String,
    /// Index of the interface.
    interface: u32,
    /// Name of the tunnel's profile. Version 0.2 did not write it.
    profile: Option<String>,
}

impl Origin {
    fn here(interface: u32) -> Self {
        let boot = fs::read_to_string(BOOT).unwrap_or_default();
        Self {
            namespace: netns_inode().unwrap_or(0),
            cookie: netns_cookie().unwrap_or(0),
            boot: boot.trim().to_owned(),
            interface,
            profile: PROFILE.get().cloned(),
        }
    }

    fn of(file: &File) -> Option<Self> {
        let mut line = String::new();
        let read = BufReader::new(file.take(LINE_MAX)).read_line(&mut line);
        let _ = (read, (&*file).rewind());
        serde_json::from_value(serde_json::from_slice(line.as_bytes()).ok()?).ok()
    }

    /// True when the namespace is the same one.
    fn is_same_host(&self, here: &Self) -> bool {
        (self.namespace, self.cookie, &self.boot) == (here.namespace, here.cookie, &here.boot)
    }

    /// True when the namespace no longer exists.
    fn is_gone(&self, here: &Self) -> bool {
        self.boot != here.boot || (self.namespace == here.namespace && self.cookie != here.cookie)
    }
}

/// Opens another tunnel's journal for reading, if only this user or root can have written it.
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
        "the file is not regular, belongs to another user, or others may write to it; remove it",
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

/// The journal's path for an interface of this network namespace: other namespaces may have interfaces of that name.
pub(super) fn path_of(directory: &Path, ifname: &str) -> PathBuf {
    let namespace = netns_inode().unwrap_or(0);
    directory.join(format!("{ifname}@{namespace}.undo"))
}

/// The interface that a journal's name gives.
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
        let written = serde_json::from_slice::<Value>(line.as_bytes());
        // The first line, an [`Origin`].
        if written.as_ref().is_ok_and(|it| it.get("boot").is_some()) {
            continue;
        }
        match written.and_then(serde_json::from_value) {
            // Root writes this value below `/proc/sys`, so the key must be one of ours.
            Ok(Step::Sysctl { key, .. }) if !is_setting_of_ours(&key) => {
                log::warn!(
                    "skipped a line of the undo journal: {key} is not a setting of Millrace"
                );
            }
            Ok(step) => steps.push(step),
            // The last line of a daemon that was killed while writing, or a line of another version.
            Err(error) => log::warn!("skipped a line of the undo journal: {error}"),
        }
    }
    Ok(steps)
}

#[cfg(test)]
mod tests;
