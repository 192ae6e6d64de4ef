//! Running programs of hooks, on file: a service that is killed leaves programs, which the next one kills.
//!
//! Each program has a file, named by its process number: its start, the number of the service, and the service's start.
//! The starts tell processes from later ones with the same number.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use netio::process::started;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

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
        fs::create_dir_all(directory)?;
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

/// Kills the programs, with their process groups, of services that have ended without ending them.
pub(super) fn kill_all() {
    kill_in(Path::new(DIRECTORY));
}

fn kill_in(directory: &Path) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for path in entries.take(MOST).map(|it| it.path()) {
        let text = config::file::read_text(&path, 64);
        let numbers = text.iter().flat_map(|it| it.split(' '));
        let numbers: Vec<u64> = numbers.filter_map(|it| it.parse().ok()).collect();
        let pid = path.file_name().and_then(|it| it.to_str()?.parse().ok());
        if let (Some(pid), &[start, own, since]) = (pid, &numbers[..]) {
            let is = |pid: u32, start| started(pid) == Some(start);
            if u32::try_from(own).is_ok_and(|own| is(own, since)) {
                continue;
            }
            if is(pid, start) {
                log::warn!("killing program {pid} of a hook, whose service was killed");
                let _ = killpg(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
            }
        }
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use super::*;

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
