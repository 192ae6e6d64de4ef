//! Tunnels that `millrace up` runs: a file for each profile prevents a second start, and lets a tunnel be stopped by
//! name.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use host::written_file;
use netio::process::started;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Directory of the files. Empty after a reboot.
const DIRECTORY: &str = "/run/millrace";

/// Suffix of the files' names.
const SUFFIX: &str = "up";

/// File that is locked while another file is made or removed.
const LOCK: &str = "up.lock";

/// Largest file that is read, in bytes; a record holds a path.
const SIZE_MAX: u64 = 16 << 10;

/// A running tunnel, as recorded in its file.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Running {
    /// The process that runs the tunnel.
    pub pid: i32,
    /// The profile's name: the file's name without its last suffix.
    pub name: String,
    /// The profile's absolute path, with symbolic links resolved.
    pub path: PathBuf,
    /// Start time of the process, as another process may get its number later. Version 0.1 did not write it.
    pub started: Option<u64>,
}

impl Running {
    fn is_alive(&self) -> bool {
        let now = started(self.pid.cast_unsigned());
        now.is_some() && self.started.is_none_or(|at| now == Some(at))
    }
}

/// Why a profile cannot be brought up.
#[derive(Debug, Error)]
pub enum ClaimError {
    /// The profile is up already.
    #[error(
        "{name}: process {pid} has this profile up already; end it with `millrace down {name}`"
    )]
    Running {
        /// Name of the profile.
        name: String,
        /// The process that runs the tunnel.
        pid: i32,
    },
    /// The profile's file cannot be made.
    #[error("{}: {error} (run as root)", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
}

/// Running tunnels exist that this user may not see.
#[derive(Debug, Error)]
#[error("{}: this user may not read it, so the tunnels that are up are unknown; run this as root", .0.display())]
pub struct Hidden(PathBuf);

/// A profile that this process runs, until it is dropped.
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
}

impl Claim {
    /// Claims a profile for this process.
    ///
    /// # Errors
    /// Another process runs the profile, or the file cannot be made.
    pub fn new(profile: &Path) -> Result<Self, ClaimError> {
        Self::new_in(Path::new(DIRECTORY), profile)
    }

    fn new_in(directory: &Path, profile: &Path) -> Result<Self, ClaimError> {
        let running = Running {
            pid: std::process::id().cast_signed(),
            name: name_of(profile),
            path: fs::canonicalize(profile).unwrap_or_else(|_| profile.to_owned()),
            started: started(std::process::id()),
        };
        let path = directory.join(file_name(&running));
        let failed = |error| ClaimError::File {
            path: path.clone(),
            error,
        };
        fs::create_dir_all(directory).map_err(failed)?;
        // Removes the files of killed processes.
        let _ = all_in(directory);
        let _lock = lock(directory).map_err(failed)?;
        match File::open(&path).ok().and_then(|file| read(&file)) {
            Some(other) if other.is_alive() => {
                return Err(ClaimError::Running {
                    pid: other.pid,
                    name: running.name,
                });
            }
            _ => {}
        }
        host::name_profile(&running.name);
        let text = serde_json::to_string(&running).map_err(|e| failed(e.into()))?;
        written_file::replace_for_now(&path, text.as_bytes(), 0o644).map_err(failed)?;
        Ok(Self { path })
    }
}

/// Waits for the lock that guards making and removing files here. Other users cannot hold it.
fn lock(directory: &Path) -> io::Result<Flock<File>> {
    let file = written_file::open_lock(&directory.join(LOCK))?;
    Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| errno.into())
}

impl Drop for Claim {
    fn drop(&mut self) {
        // A process without the privilege to remove the file leaves it behind.
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns all running tunnels.
///
/// # Errors
/// The directory or a file in it is hidden from this user.
pub fn all() -> Result<Vec<Running>, Hidden> {
    all_in(Path::new(DIRECTORY))
}

fn all_in(directory: &Path) -> Result<Vec<Running>, Hidden> {
    let hides = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    let entries = match fs::read_dir(directory) {
        Err(error) if hides(&error) => return Err(Hidden(directory.to_owned())),
        entries => entries.into_iter().flatten().flatten(),
    };
    let paths = entries.map(|entry| entry.path());
    let (mut found, mut dead) = (Vec::new(), Vec::new());
    for path in paths.filter(|path| path.extension().is_some_and(|it| it == SUFFIX)) {
        let file = match File::open(&path) {
            Err(error) if hides(&error) => return Err(Hidden(path)),
            Err(_) => continue,
            Ok(file) => file,
        };
        match read(&file) {
            Some(running) if running.is_alive() => found.push(running),
            _ => dead.push(path),
        }
    }
    // Killed processes left these files, and only root may remove them.
    if !dead.is_empty()
        && let Ok(_lock) = lock(directory)
    {
        let is_dead = |path: &PathBuf| {
            let file = File::open(path).ok();
            file.is_some_and(|file| !read(&file).is_some_and(|it| it.is_alive()))
        };
        for path in dead.into_iter().filter(is_dead) {
            let _ = fs::remove_file(path);
        }
    }
    found.sort_by(|a: &Running, b| a.name.cmp(&b.name));
    Ok(found)
}

fn read(file: &File) -> Option<Running> {
    let mut text = Vec::new();
    file.take(SIZE_MAX).read_to_end(&mut text).ok()?;
    serde_json::from_value(serde_json::from_slice(&text).ok()?).ok()
}

/// A profile's name, as users call it.
pub fn name_of(profile: &Path) -> String {
    let stem = profile.file_stem().unwrap_or(profile.as_os_str());
    stem.to_string_lossy().into_owned()
}

/// Name of a tunnel's file. Profiles with one name in different places, or one profile in different network
/// namespaces, are different tunnels.
fn file_name(running: &Running) -> String {
    let namespace = fs::metadata("/proc/thread-self/ns/net").map_or(0, |it| it.ino());
    let path = running.path.as_os_str().as_bytes();
    let digest = crypto::blake2s::hash(&[path, &namespace.to_be_bytes()]);
    let digest = crypto::hex(&digest[..8]);
    let name: String = running.name.chars().take(64).collect();
    format!("{name}-{digest}.{SUFFIX}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_claimed_once_and_free_when_its_claim_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let claim = |profile: &str| Claim::new_in(directory.path(), Path::new(profile));
        let first = claim("/nonexistent/a/office.ovpn").unwrap();
        let error = claim("/nonexistent/a/office.ovpn").unwrap_err();
        let pid = std::process::id();
        assert!(
            error.to_string().contains("millrace down office")
                && error.to_string().contains(&pid.to_string()),
            "{error}"
        );
        let other = claim("/nonexistent/b/office.ovpn").unwrap();
        let names: Vec<String> = all_in(directory.path())
            .unwrap()
            .into_iter()
            .map(|it| it.name)
            .collect();
        assert_eq!(names, ["office", "office"]);
        drop((first, other));
        assert_eq!(all_in(directory.path()).unwrap(), []);
        let left = fs::read_dir(directory.path()).unwrap().flatten();
        assert!(left.map(|it| it.file_name()).eq([LOCK]));
        claim("/nonexistent/a/office.ovpn").unwrap();
    }

    fn write(path: &Path, record: &Running) {
        fs::write(path, serde_json::to_string(record).unwrap()).unwrap();
    }

    #[test]
    fn a_process_with_the_same_number_is_another() {
        let directory = tempfile::tempdir().unwrap();
        let profile = Path::new("/nonexistent/x.conf");
        let claim = Claim::new_in(directory.path(), profile).unwrap();
        let mut record = read(&File::open(&claim.path).unwrap()).unwrap();
        let at = record.started.take().unwrap();
        // Version 0.1 wrote no start time.
        write(&claim.path, &record);
        assert_eq!(all_in(directory.path()).unwrap().len(), 1);
        Claim::new_in(directory.path(), profile).unwrap_err();
        record.started = Some(at - 1);
        write(&claim.path, &record);
        assert_eq!(all_in(directory.path()).unwrap(), []);
        assert!(!claim.path.exists());
        // The start of any tunnel removes files of killed ones.
        write(&claim.path, &record);
        let _other = Claim::new_in(directory.path(), Path::new("/nonexistent/y.conf")).unwrap();
        assert!(!claim.path.exists());
    }

    /// Every user may read the list, and only its owner may hold the lock.
    #[test]
    fn others_can_read_what_runs_and_lock_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let claim = Claim::new_in(directory.path(), Path::new("/nonexistent/x.conf")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(&claim.path), 0o644);
        assert_eq!(mode(&directory.path().join(LOCK)), 0o600);
        // Another user's lock on a file blocks no process.
        let file = File::open(&claim.path).unwrap();
        let _held = Flock::lock(file, FlockArg::LockExclusive).unwrap();
        assert_eq!(all_in(directory.path()).unwrap().len(), 1);
        drop(claim);
        Claim::new_in(directory.path(), Path::new("/nonexistent/x.conf")).unwrap();
    }
}
