//! Going into the background: the program starts itself once more and waits until that one is
//! ready or has failed.
//!
//! Starting anew instead of forking keeps threads and safe code. The child finds a pipe in the place
//! of its standard input, moves it to a descriptor that no program of its own inherits, says one
//! word there when it is ready, and lets go of the terminal.

use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, setsid};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt as _, parent_id};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Holds the parent's process number in the child. Programs that the child runs must not see it:
/// they may be this one.
pub const CHILD: &str = "MILLRACE_IN_BACKGROUND";

/// The child's word for "ready".
const READY: &str = "ready";

/// The child's words when it goes on in the background without being ready.
const NOT_YET: &str = "not yet";

/// Exit status of the parent where the child goes on without being ready.
pub const NOT_YET_STATUS: u8 = 3;

/// The way to the parent, in the child, until it was told.
static PARENT: OnceLock<Mutex<Option<File>>> = OnceLock::new();

/// Whether this process is the one in the background. To be asked first before anything else is
/// started or opened: only then is the standard input still the pipe.
pub fn is_child() -> bool {
    if PARENT.get().is_some() {
        return true;
    }
    // The number is compared: a variable that a process further up has set says nothing.
    let told = std::env::var(CHILD).ok();
    if told.and_then(|text| text.parse().ok()) != Some(parent_id()) {
        return false;
    }
    let adopt = || -> io::Result<File> {
        let pipe = io::stdin().as_fd().try_clone_to_owned()?;
        dup2_stdin(File::open("/dev/null")?)?;
        Ok(File::from(pipe))
    };
    match adopt() {
        Ok(pipe) => PARENT.set(Mutex::new(Some(pipe))).is_ok(),
        Err(error) => {
            log::warn!("the parent cannot be told: {error}");
            PARENT.set(Mutex::new(None)).is_ok()
        }
    }
}

/// Starts this program again in the background with the same arguments and waits until it is
/// ready. Errors that it meets before appear on our standard error.
pub fn spawn() -> ExitCode {
    let start = || -> io::Result<ExitCode> {
        let mut arguments = std::env::args_os();
        let name = arguments.next().unwrap_or_default();
        let (read, write) = io::pipe()?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            // The name can say which command this is.
            .arg0(name)
            .args(arguments)
            .env(CHILD, std::process::id().to_string())
            .stdin(Stdio::from(write));
        let mut child = command.spawn()?;
        // Our copy of the child's end goes with it, so that the child's is the last.
        drop(command);
        let mut word = String::new();
        BufReader::new(read).read_line(&mut word)?;
        match word.trim() {
            READY => return Ok(ExitCode::SUCCESS),
            NOT_YET => return Ok(ExitCode::from(NOT_YET_STATUS)),
            _ => {}
        }
        // It has said on standard error what was wrong.
        let code = child.wait()?.code().unwrap_or(1);
        Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
    };
    start().unwrap_or_else(|e| {
        log::error!("cannot go into the background: {e} (stay in the foreground with -f)");
        ExitCode::FAILURE
    })
}

/// In the child: lets go of the terminal and tells the parent that all is well. What is logged
/// from now on goes nowhere, unless `MILLRACE_LOG` is set.
pub fn ready() -> io::Result<()> {
    let_go(READY)
}

/// The last words to a terminal of a start that goes on in the background after it has waited for so long.
pub fn still_trying(name: &str, waited: Duration) -> String {
    format!(
        "{name} is not up after {} s; it goes on trying in the background (`millrace status` shows how it stands, \
         `millrace down` ends it)",
        waited.as_secs()
    )
}

/// In the child: lets go of the terminal as [`ready`] does, and tells the parent that the tunnel is not up yet.
pub fn not_yet() -> io::Result<()> {
    let_go(NOT_YET)
}

fn let_go(word: &str) -> io::Result<()> {
    // Fails only for a group leader, which has let go already.
    let _ = setsid();
    let null = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    if std::env::var_os("MILLRACE_LOG").is_none() {
        dup2_stderr(&null)?;
    }
    // Last, so that nothing of the terminal is held when the parent goes.
    if let Some(parent) = PARENT.get() {
        let parent = parent.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut pipe) = parent {
            // It may have been killed; the tunnel is up all the same.
            let _ = pipe.write_all(word.as_bytes());
        }
    }
    Ok(())
}
