//! Which tunnels `millrace up` runs: a locked file for each profile, so that none runs twice and each can be ended by
//! its name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Where the files are. Empty after a reboot.
const DIRECTORY: &str = "/run/millrace";

/// How their names end.
const SUFFIX: &str = "up";

/// Between two looks whether a file that nobody writes is free, and how many there are.
const LOOK: Duration = Duration::from_millis(5);
const LOOKS: u32 = 40;

/// Largest file that is read, in bytes; one has a path in it.
const SIZE_MAX: u64 = 16 << 10;

/// A tunnel that runs.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Running {
    /// The process that has it up.
    pub pid: i32,
    /// Its profile's name: the file's, without what follows the last dot.
    pub name: String,
    /// The profile, as an absolute path without links.
    pub path: PathBuf,
}

/// Why a profile is not brought up.
#[derive(Debug, Error)]
pub enum ClaimError {
    /// It is up.
    #[error("{name}: this profile is up already, by process {pid}; `millrace down {name}` ends it")]
    Running {
        /// The profile's name.
        name: String,
        /// The process.
        pid: i32,
    },
    /// No file can be made.
    #[error("{}: {error} (run as root)", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
}

/// Tunnels that this user may not be told of.
#[derive(Debug, Error)]
#[error("{}: this user may not read it, so which tunnels are up is not known; run this as root", .0.display())]
pub struct Hidden(PathBuf);

/// A profile that this process has up, until it is dropped.
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
    _file: Flock<File>,
}

impl Claim {
    /// Makes a profile this process's own.
    ///
    /// # Errors
    /// It is another's, or no file can be made.
    pub fn new(profile: &Path) -> Result<Self, ClaimError> {
        Self::new_in(Path::new(DIRECTORY), profile)
    }

    fn new_in(directory: &Path, profile: &Path) -> Result<Self, ClaimError> {
        let running = Running {
            pid: std::process::id().cast_signed(),
            name: name_of(profile),
            path: fs::canonicalize(profile).unwrap_or_else(|_| profile.to_owned()),
        };
        let path = directory.join(file_name(&running));
        let failed = |error| ClaimError::File {
            path: path.clone(),
            error,
        };
        fs::create_dir_all(directory).map_err(failed)?;
        // Removes files that killed processes have left.
        let _ = all_in(directory);
        let mut looks = LOOKS;
        loop {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o644)
                .open(&path)
                .map_err(failed)?;
            let file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(file) => file,
                Err((file, _)) => match read(&file).map(|other| other.pid) {
                    // Another process looks whether the dead one's file is held.
                    pid if looks > 0 && !pid.is_some_and(is_alive) => {
                        looks -= 1;
                        thread::sleep(LOOK);
                        continue;
                    }
                    pid => {
                        return Err(ClaimError::Running {
                            pid: pid.unwrap_or(0),
                            name: running.name,
                        });
                    }
                },
            };
            // Its last owner may have removed it between the two calls.
            if file.metadata().map_err(failed)?.nlink() == 0 {
                continue;
            }
            let text = serde_json::to_string(&running).map_err(|e| failed(e.into()))?;
            file.set_len(0).map_err(failed)?;
            (&*file).write_all(text.as_bytes()).map_err(failed)?;
            return Ok(Self { path, _file: file });
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // A process that may not remove it any more leaves a file that no process holds.
        let _ = fs::remove_file(&self.path);
    }
}

/// The tunnels that run.
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
    let mut found: Vec<Running> = Vec::new();
    for path in paths.filter(|path| path.extension().is_some_and(|it| it == SUFFIX)) {
        let file = match File::open(&path) {
            Err(error) if hides(&error) => return Err(Hidden(path)),
            Err(_) => continue,
            Ok(file) => file,
        };
        let running = read(&file);
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Err(_) => found.extend(running.filter(|it| is_alive(it.pid))),
            // Free: the process that wrote it was killed. One that has just made it has written nothing yet.
            Ok(file) if running.is_some() && file.metadata().is_ok_and(|it| it.nlink() > 0) => {
                let _ = fs::remove_file(&path);
            }
            Ok(_) => {}
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

fn is_alive(pid: i32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

fn read(file: &File) -> Option<Running> {
    let mut text = Vec::new();
    file.take(SIZE_MAX).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// A profile's name, by which people call it.
pub fn name_of(profile: &Path) -> String {
    let stem = profile.file_stem().unwrap_or(profile.as_os_str());
    stem.to_string_lossy().into_owned()
}

/// Profiles of one name in different places, and of one place in different network namespaces, are different tunnels.
fn file_name(running: &Running) -> String {
    let namespace = fs::metadata("/proc/thread-self/ns/net").map_or(0, |it| it.ino());
    let path = running.path.as_os_str().as_bytes();
    let digest = crypto::blake2s::hash(&[path, &namespace.to_be_bytes()]);
    let digest: String = digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
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
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        claim("/nonexistent/a/office.ovpn").unwrap();
    }

    #[test]
    fn what_a_killed_process_left_is_not_running() {
        let directory = tempfile::tempdir().unwrap();
        let claim = Claim::new_in(directory.path(), Path::new("/nonexistent/x.conf")).unwrap();
        let (path, text) = (claim.path.clone(), fs::read(&claim.path).unwrap());
        drop(claim);
        fs::write(&path, text).unwrap();
        assert_eq!(all_in(directory.path()).unwrap(), []);
        assert!(!path.exists());
    }
}
