//! Goes into the background: the program starts itself again and waits until that child is ready or has failed.
//!
//! A new process instead of a fork keeps threads and safe code possible. The child's standard input is a pipe to the
//! parent. The child moves it to a descriptor that its own programs do not inherit, writes one word when it is ready,
//! and detaches from the terminal.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt as _, parent_id};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, setsid};

/// Holds the parent's process number in the child. Programs that the child runs must not see it, since they may be this
/// program.
pub const CHILD: &str = "MILLRACE_IN_BACKGROUND";

/// The child's word for "ready".
const READY: &str = "ready";

/// The child's words when it stays in the background without being ready.
const NOT_YET: &str = "not yet";

/// Exit status of the parent when the child stays in the background without being ready.
pub const NOT_YET_STATUS: u8 = 3;

/// The pipe to the parent, in the child; `None` once it has been used.
static PARENT: OnceLock<Mutex<Option<File>>> = OnceLock::new();

/// Whether this process is the child in the background. Call it before anything else is started or opened: only then is
/// the standard input still the pipe.
pub fn is_child() -> bool {
    if PARENT.get().is_some() {
        return true;
    }
    // Compares the number: an ancestor further up may have set the variable.
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
            log::warn!("cannot notify the parent process: {error}");
            PARENT.set(Mutex::new(None)).is_ok()
        }
    }
}

/// Starts this program again in the background with the same arguments and waits until it is ready. Its errors until
/// then appear on our standard error.
pub fn spawn() -> ExitCode {
    let start = || -> io::Result<ExitCode> {
        let mut arguments = std::env::args_os();
        let name = arguments.next().unwrap_or_default();
        let (read, write) = io::pipe()?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            // The program's name can select the command.
            .arg0(name)
            .args(arguments)
            .env(CHILD, std::process::id().to_string())
            .stdin(Stdio::from(write));
        let mut child = command.spawn()?;
        // Dropping the command closes our copy of the child's end, so that the child's is the last.
        drop(command);
        let mut word = String::new();
        BufReader::new(read).read_line(&mut word)?;
        match word.trim() {
            READY => return Ok(ExitCode::SUCCESS),
            NOT_YET => return Ok(ExitCode::from(NOT_YET_STATUS)),
            _ => {}
        }
        // The child has printed its error.
        let code = child.wait()?.code().unwrap_or(1);
        Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
    };
    start().unwrap_or_else(|e| {
        log::error!("cannot go into the background: {e} (stay in the foreground with -f)");
        ExitCode::FAILURE
    })
}

/// In the child: detaches from the terminal and tells the parent that the tunnel is up. Log lines are discarded from
/// now on, unless `MILLRACE_LOG` is set.
pub fn ready() -> io::Result<()> {
    let_go(READY)
}

/// The last message on a terminal when the start has waited this long and continues in the background. `traffic` says
/// what happens to the host's packets meanwhile.
pub fn still_trying(name: &str, waited: Duration, traffic: &str) -> String {
    // A configuration from standard input has no name.
    let (subject, end) = match name {
        "" => ("the tunnel", String::new()),
        name => (name, format!(", `millrace down {name}` ends it")),
    };
    format!(
        "{subject} is not up after {} s; it goes on trying in the background (`millrace status` shows its state{end}). \
         {traffic}",
        waited.as_secs()
    )
}

/// The traffic of a start whose routes are set once it is up, for [`still_trying`].
pub const OUTSIDE: &str = "Until it is up, no packets use the tunnel";

/// Called in the child: detaches from the terminal as [`ready`] does, and tells the parent that no tunnel is up yet.
pub fn not_yet() -> io::Result<()> {
    let_go(NOT_YET)
}

fn let_go(word: &str) -> io::Result<()> {
    // Fails only for a group leader, which is already detached.
    let _ = setsid();
    let null = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    if std::env::var_os("MILLRACE_LOG").is_none() {
        dup2_stderr(&null)?;
    }
    // Last, so that the child no longer holds the terminal when the parent ends.
    if let Some(parent) = PARENT.get() {
        let parent = parent.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut pipe) = parent {
            // The parent may have been killed; the tunnel is up all the same.
            let _ = pipe.write_all(word.as_bytes());
        }
    }
    Ok(())
}

/// Releases the code that only set-up needed, some megabytes of RAM. Call it once the tunnel is up.
pub fn start_is_over() {
    if let Err(error) = netio::process::let_go_of_code() {
        log::debug!("cannot free the memory of the start-up code: {error}");
    }
}
