//! Renews the program of a running interface. After an upgrade, a reload makes this process execute the program that lies
//! in its place now. The process keeps its number and hands its device over, so netifd notices nothing, and packets wait
//! in the device's queue. Keys are not handed over: the new program begins with a handshake.

use super::{Outcome, Waiting};
use netio::tun::Kept;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::execv;
use std::ffi::{CString, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The argument that has the new program judge the configuration and end.
pub(super) const JUDGE: &str = "judge";

/// The argument with the device that is handed over.
pub(super) const INHERIT: &str = "inherit";

/// Time limit for the new program's judgement.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often to see whether it has ended.
const LOOK: Duration = Duration::from_millis(10);

/// The running program's file, whatever lies at its path now.
const EXE: &str = "/proc/self/exe";

/// The kernel's words behind the path of a file that was removed.
const DELETED: &[u8] = b" (deleted)";

/// A program's path and file.
#[derive(Clone, Debug)]
pub(super) struct Program {
    path: PathBuf,
    /// Device and inode.
    file: Option<(u64, u64)>,
}

impl Program {
    /// The program that this process runs.
    pub(super) fn running() -> Self {
        let path = fs::read_link(EXE).unwrap_or_default().into_os_string();
        let mut path = path.into_vec();
        if path.ends_with(DELETED) {
            path.truncate(path.len() - DELETED.len());
        }
        Self {
            path: OsString::from_vec(path).into(),
            file: file(Path::new(EXE)),
        }
    }

    /// Whether another file lies in the program's place.
    pub(super) fn is_replaced(&self) -> bool {
        file(&self.path).is_some_and(|now| Some(now) != self.file)
    }

    /// Whether another program has replaced this one and can run the interface. The log says why it cannot.
    pub(super) fn has_successor(&self, interface: &str) -> bool {
        if !self.is_replaced() {
            return false;
        }
        let judged = self.judge();
        if let Err(why) = &judged {
            log::warn!(
                "{interface}: the new {} cannot run this interface: {why}; the old program goes on",
                self.path.display()
            );
        }
        judged.is_ok()
    }

    /// Has the new program judge the interface's configuration. It logs faults itself.
    fn judge(&self) -> Result<(), String> {
        let mut command = Command::new(&self.path);
        command.args(words().skip(1)).arg(format!("--{JUDGE}"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let end = Instant::now() + PATIENCE;
        loop {
            match child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(status.to_string()),
                Ok(None) if Instant::now() < end => thread::sleep(LOOK),
                _ => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err("it did not judge the configuration in time".to_owned());
                }
            }
        }
    }

    /// Executes the new program in place of this one, with the device. Returns if it cannot, or if a signal asks the
    /// process to end.
    pub(super) fn execute(&self, kept: Option<&Kept>, waiting: &Waiting) -> Outcome<ExitCode> {
        // Signals from now on wait until the new program handles them.
        signals().thread_block()?;
        if waiting.is_over() {
            return Ok(ExitCode::SUCCESS);
        }
        let mut words: Vec<OsString> = words().collect();
        if let Some(kept) = kept {
            words.push(format!("--{INHERIT}={}", kept.pass_on()?).into());
        }
        let words: Result<Vec<CString>, _> = words
            .into_iter()
            .map(|it| CString::new(it.into_vec()))
            .collect();
        let path = CString::new(self.path.as_os_str().as_bytes())?;
        let Err(error) = execv(&path, &words?);
        Err(format!("{}: {error}", self.path.display()).into())
    }
}

/// The signals that [`Program::execute`] blocks.
pub(super) fn signals() -> SigSet {
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM]
        .into_iter()
        .collect()
}

/// This process's command line, without a device that was handed over.
fn words() -> impl Iterator<Item = OsString> {
    let inherit = format!("--{INHERIT}=");
    std::env::args_os().filter(move |it| !it.as_bytes().starts_with(inherit.as_bytes()))
}

/// Device and inode of a regular file.
fn file(path: &Path) -> Option<(u64, u64)> {
    let data = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    Some((data.dev(), data.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_file_in_its_place_replaces_a_program() {
        assert!(!Program::running().is_replaced());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        fs::write(&path, "1").unwrap();
        let program = Program {
            file: file(&path),
            path: path.clone(),
        };
        assert!(!program.is_replaced());
        let moved = directory.path().join("moved");
        fs::rename(&path, &moved).unwrap();
        assert!(!program.is_replaced(), "it is missing");
        fs::create_dir(&path).unwrap();
        assert!(!program.is_replaced(), "no file");
        fs::remove_dir(&path).unwrap();
        fs::write(&path, "1").unwrap();
        assert!(program.is_replaced());
        // The new file is not a program.
        assert!(!program.has_successor("office"));
        fs::rename(&moved, &path).unwrap();
        assert!(!program.is_replaced());
    }
}
