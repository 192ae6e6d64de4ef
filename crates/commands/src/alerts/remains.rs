//! Running programs of hooks, on file: a service that is killed leaves programs, which the next one kills.
//!
//! Each program has a file, named by its process number: its start, the number of the service, and the service's start.
//! The starts tell processes from later ones with the same number.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use netio::process::{group, started};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, geteuid};

/// The directory of these files.
const DIRECTORY: &str = "/run/millrace/alerts";

/// Maximum number of files to look at; a service runs a program for each of at most eight hooks.
const MOST: usize = 64;

/// The file of a running program, until dropped.
pub(super) struct Running(PathBuf);

impl Running {
    /// Notes a program that leads a process group.
    pub(super) fn note(pid: u32) -> Option<Self> {
        Self::note_in(Path::new(DIRECTORY), pid)
            .inspect_err(|error| log::debug!("{DIRECTORY}: {error}"))
            .ok()
    }

    fn note_in(directory: &Path, pid: u32) -> io::Result<Self> {
        let own = std::process::id();
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let start = started(pid).ok_or_else(gone)?;
        let since = started(own).ok_or_else(gone)?;
        if let Some(above) = directory.parent() {
            fs::create_dir_all(above)?;
        }
        let made = DirBuilder::new().mode(0o700).create(directory);
        made.or_else(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => check(directory),
            _ => Err(error),
        })?;
        let path = directory.join(pid.to_string());
        let text = format!("{start} {own} {since}");
        host::written_file::replace_for_now(&path, text.as_bytes(), 0o600)?;
        Ok(Self(path))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Refuses a directory in which other users can put files: these would name processes to kill.
fn check(directory: &Path) -> io::Result<()> {
    let data = fs::symlink_metadata(directory)?;
    match data.is_dir() && data.uid() == geteuid().as_raw() && data.mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err(io::Error::other("other users can change it; remove it")),
    }
}

/// Kills the programs, with their process groups, of services that have ended without ending them.
pub(super) fn kill_all() {
    kill_in(Path::new(DIRECTORY));
}

fn kill_in(directory: &Path) {
    match check(directory) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => return log::warn!("{}: {error}", directory.display()),
    }
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for path in entries.take(MOST).map(|it| it.path()) {
        let text = config::file::read_text(&path, 64);
        let numbers = text.iter().flat_map(|it| it.split(' '));
        let numbers: Vec<u64> = numbers.filter_map(|it| it.parse().ok()).collect();
        let pid = path.file_name().and_then(|it| it.to_str()?.parse().ok());
        if let (Some(pid), &[start, own, since]) = (pid, &numbers[..]) {
            if u32::try_from(own).is_ok_and(|own| started(own) == Some(since)) {
                continue;
            }
            let is_left = match started(pid) {
                Some(now) => now == start,
                // The program has ended, but its children may go on.
                None => group(pid).is_some_and(|first| first >= start),
            };
            if is_left {
                log::warn!("killing program {pid} of a hook, whose service was killed");
                let _ = killpg(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
            }
        }
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::io::Read as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn children_of_a_program_that_has_ended_are_killed() {
        let place = tempfile::tempdir().unwrap();
        let mut child = Command::new("sh")
            .args(["-c", "(sleep 60; echo late) & read line"])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (pid, own) = (child.id(), std::process::id());
        let (start, since) = (started(pid).unwrap(), started(own).unwrap());
        let mut output = child.stdout.take().unwrap();
        child.wait().unwrap();
        let path = place.path().join(pid.to_string());
        // The service has ended.
        let text = |start| format!("{start} {own} {}", since + 1);
        fs::write(&path, text(start + 1000)).unwrap();
        kill_in(place.path());
        assert!(group(pid).is_some(), "another group has the number");
        fs::write(&path, text(start)).unwrap();
        kill_in(place.path());
        // The pipe ends with its last process.
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        assert_eq!(text, "");
    }

    #[test]
    fn a_directory_of_others_names_no_processes() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("alerts");
        let note = Running::note_in(&directory, std::process::id()).unwrap();
        let mode = || fs::metadata(&directory).unwrap().mode() & 0o777;
        assert_eq!(mode(), 0o700);
        drop(note);
        let file = directory.join("1");
        for (mode, is_read) in [(0o722, false), (0o702, false), (0o755, true)] {
            fs::set_permissions(&directory, Permissions::from_mode(mode)).unwrap();
            fs::write(&file, "0 0 0").unwrap();
            kill_in(&directory);
            assert_eq!(!file.exists(), is_read, "{mode:o}");
            let note = Running::note_in(&directory, std::process::id());
            assert_eq!(note.is_ok(), is_read, "{mode:o}");
        }
    }

    #[test]
    fn only_programs_whose_service_has_ended_are_killed() {
        let place = tempfile::tempdir().unwrap();
        let mut child = Command::new("sleep")
            .arg("1000")
            .process_group(0)
            .spawn()
            .unwrap();
        let own = std::process::id();
        let (start, since) = (started(child.id()).unwrap(), started(own).unwrap());
        let note = Running::note_in(place.path(), child.id()).unwrap();
        let path = note.0.clone();
        for (text, is_kept) in [
            (format!("{start} {own} {since}"), true),
            // Another process has the number now.
            (format!("{} {own} {}", start + 1, since + 1), false),
            ("what".to_owned(), false),
        ] {
            fs::write(&path, text).unwrap();
            kill_in(place.path());
            assert_eq!(path.exists(), is_kept);
            assert!(started(child.id()).is_some());
        }
        fs::write(&path, format!("{start} {own} {}", since + 1)).unwrap();
        kill_in(place.path());
        assert!(!child.wait().unwrap().success() && !path.exists());
        drop(note);
        // Without files there is nothing to do.
        kill_in(&place.path().join("none"));
    }
}
