//! Finds and writes a server's file: never over another file, and atomically.

use super::NAME;
use crate::profile::{DIRECTORY, paths};
use config::file;
use config::openvpn::FILE_MAX;
use config::types::is_ifname;
use host::written_file;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use thiserror::Error;
use zeroize::Zeroizing;

/// The directory of `wg-quick`'s files.
const WG_QUICK: &str = "/etc/wireguard";

/// Why a server's file cannot be read or written.
#[derive(Debug, Error)]
pub(crate) enum PlaceError {
    #[error("{name}: no server has this name: neither {} exists; `millrace server init` makes a \
             server", paths(.looked, " nor "))]
    Absent { name: String, looked: Vec<PathBuf> },
    #[error(
        "{0:?}: no server has this name, and no file is there; give a server's name, or the path of its file"
    )]
    Name(String),
    #[error("{name}: this user may not read {}; run this as root", .path.display())]
    Hidden { name: String, path: PathBuf },
    #[error("{}: this user may not change the server there; run this as root", .0.display())]
    Denied(PathBuf),
    #[error("{}: another process is changing a server there; try again", .0.display())]
    Busy(PathBuf),
    #[error(
        "{}: it would have {bytes} bytes, and {FILE_MAX} are the most that can be read; nothing was changed. Divide the \
         clients between two servers", .path.display()
    )]
    Large { path: PathBuf, bytes: usize },
    #[error("{}: {error}", .path.display())]
    File { path: PathBuf, error: io::Error },
}

/// The error for a file or a directory.
pub(crate) fn failed(path: &Path) -> impl FnOnce(io::Error) -> PlaceError {
    let path = path.to_owned();
    |error| PlaceError::File { path, error }
}

/// The file of a server, named by its path, or as `millrace up` names it.
pub(crate) fn find(name: &str, directory: &Path) -> Result<PathBuf, PlaceError> {
    let path = Path::new(name);
    if path.components().count() > 1 || path.is_file() {
        // For a symbolic link, its target is changed.
        return fs::canonicalize(path).map_err(failed(path));
    }
    let mut looked = Vec::new();
    if is_ifname(name) {
        looked.extend(["conf", "ovpn"].map(|end| directory.join(format!("{name}.{end}"))));
        looked.push(Path::new(WG_QUICK).join(format!("{name}.conf")));
    }
    match looked.iter().find(|it| it.is_file()) {
        Some(found) => fs::canonicalize(found).map_err(failed(found)),
        None => {
            let name = name.to_owned();
            let denied = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
            let mut hidden = looked
                .iter()
                .filter(|it| fs::metadata(it).is_err_and(denied));
            Err(match hidden.next().cloned() {
                Some(path) => PlaceError::Hidden { name, path },
                None if looked.is_empty() => PlaceError::Name(name),
                None => PlaceError::Absent { name, looked },
            })
        }
    }
}

/// The option that names the server of this file, for a command in a message: ` --server office`, and nothing for the
/// server of the default name.
pub(crate) fn option(path: &Path) -> String {
    let name = service::running::name_of(path);
    let is_found = find(&name, Path::new(DIRECTORY)).is_ok_and(|it| it == path);
    match is_found {
        true if name == NAME => String::new(),
        true => format!(" --server {name}"),
        false => format!(" --server {}", path.display()),
    }
}

/// A lock on the directory of a server's files, against our other processes.
#[derive(Debug)]
pub(crate) struct Lock {
    _held: Flock<File>,
}

/// The name of the lock's file.
const LOCK: &str = ".millrace.lock";

/// How long to wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// Without a limit; a message tells what the command waits for.
    Long,
    /// Two seconds, as others wait for the answer.
    Short,
}

/// How long to wait without a message; with [`Waits::Short`], the limit.
const PATIENCE: Duration = Duration::from_secs(2);

/// The pause between two attempts.
const LOOK: Duration = Duration::from_millis(20);

impl Lock {
    /// Waits for the lock.
    pub(crate) fn of(directory: &Path, waits: Waits) -> Result<Self, PlaceError> {
        let path = directory.join(LOCK);
        let opened = written_file::open_lock(&path);
        let mut file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => PlaceError::Denied(directory.to_owned()),
            _ => failed(&path)(error),
        })?;
        let wrong = |errno: Errno| failed(directory)(errno.into());
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(held) => return Ok(Self { _held: held }),
                Err((again, Errno::EWOULDBLOCK)) => file = again,
                Err((_, errno)) => return Err(wrong(errno)),
            }
            thread::sleep(LOOK);
        }
        if waits == Waits::Short {
            return Err(PlaceError::Busy(directory.to_owned()));
        }
        host::terminal::note(format_args!(
            "{}: waiting for another process that is changing a server there",
            directory.display()
        ));
        let held = Flock::lock(file, FlockArg::LockExclusive);
        let held = held.map_err(|(_, errno)| wrong(errno))?;
        Ok(Self { _held: held })
    }
}

/// Writes a new file, readable only by this user; fails if it exists.
pub(crate) fn write_new(path: &Path, text: &str) -> Result<(), PlaceError> {
    written_file::write_new(path, text.as_bytes()).map_err(failed(path))
}

/// The text of a file with secrets.
pub(crate) fn read(path: &Path) -> Result<Zeroizing<String>, PlaceError> {
    file::read_text(path, FILE_MAX).map_err(failed(path))
}

/// Refuses a text that is longer than [`read`] takes.
pub(crate) fn check_size(path: &Path, bytes: usize) -> Result<(), PlaceError> {
    let path = path.to_owned();
    match bytes as u64 > FILE_MAX {
        true => Err(PlaceError::Large { path, bytes }),
        false => Ok(()),
    }
}

/// Replaces a file's text. The old file stays until the new one is on disk; owner and mode are kept.
pub(crate) fn replace(path: &Path, text: &(impl AsRef<[u8]> + ?Sized)) -> Result<(), PlaceError> {
    check_size(path, text.as_ref().len())?;
    // The file must exist: if it was removed meanwhile, it is not made again.
    let there = fs::metadata(path);
    there
        .and_then(|_| written_file::replace(path, text.as_ref(), 0o600))
        .map_err(failed(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// Opening a FIFO would block.
    #[test]
    fn only_regular_files_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let error = read(&fifo).unwrap_err().to_string();
        assert!(error.contains("is not a regular file"), "{error}");
    }

    #[test]
    fn files_are_replaced_whole_and_made_only_where_none_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("home.conf");
        write_new(&path, "one").unwrap();
        assert!(
            write_new(&path, "two")
                .unwrap_err()
                .to_string()
                .contains("home.conf")
        );
        assert_eq!(*read(&path).unwrap(), "one");
        fs::write(directory.path().join(".home.conf.new"), "left by a crash").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        replace(&path, "two").unwrap();
        assert_eq!(*read(&path).unwrap(), "two");
        let long = " ".repeat(FILE_MAX as usize);
        let error = replace(&path, &format!("{long} ")).unwrap_err().to_string();
        assert!(error.contains("4194305 bytes"), "{error}");
        assert_eq!(*read(&path).unwrap(), "two");
        replace(&path, &long).unwrap();
        assert_eq!(*read(&path).unwrap(), long);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_lock_that_another_holds_is_waited_for_shortly_and_told_in_words() {
        let directory = tempfile::tempdir().unwrap();
        let held = Lock::of(directory.path(), Waits::Short).unwrap();
        let error = Lock::of(directory.path(), Waits::Short).unwrap_err();
        assert!(error.to_string().contains("another process"), "{error}");
        drop(held);
        assert!(Lock::of(directory.path(), Waits::Short).is_ok());
    }

    #[test]
    fn servers_are_found_by_name_and_by_path() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let error = find("house", at).unwrap_err().to_string();
        assert!(
            error.contains("server init") && error.contains("house.ovpn"),
            "{error}"
        );
        for name in ["", "no interface has such a long name"] {
            let error = find(name, at).unwrap_err().to_string();
            assert!(
                error.contains("give a server's name, or the path"),
                "{error}"
            );
        }
        write_new(&at.join("house.ovpn"), "").unwrap();
        assert!(find("house", at).unwrap().ends_with("house.ovpn"));
        write_new(&at.join("house.conf"), "").unwrap();
        assert!(find("house", at).unwrap().ends_with("house.conf"));
        let path = at.join("house.conf").display().to_string();
        assert!(find(&path, Path::new("/nonexistent")).is_ok());
        assert!(find("../house", at).is_err());
    }
}
