//! Going into the background: the program starts itself once more and waits until that one is
//! ready or has failed.
//!
//! Starting anew instead of forking keeps threads and safe code; the child inherits a pipe as its
//! standard output, says one word when it is ready, and lets go of the terminal.

use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, setsid};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};

/// Set in the child.
const CHILD: &str = "MILLRACE_IN_BACKGROUND";

/// What the child says when it is ready.
const READY: &str = "ready";

/// Whether this process is the one in the background.
pub(crate) fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Starts this program again in the background with the same arguments and waits until it is
/// ready. Errors that it meets before appear on our standard error.
pub(crate) fn spawn() -> ExitCode {
    let start = || -> io::Result<ExitCode> {
        let mut arguments = std::env::args_os();
        let name = arguments.next().unwrap_or_default();
        let mut child = Command::new(std::env::current_exe()?)
            // The name can say which command this is.
            .arg0(name)
            .args(arguments)
            .env(CHILD, "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut word = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut word)?;
        }
        if word.trim() == READY {
            return Ok(ExitCode::SUCCESS);
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

/// In the child: tells the parent that all is well and lets go of the terminal. What is logged
/// from now on goes nowhere, unless `MILLRACE_LOG` is set.
pub(crate) fn ready() -> io::Result<()> {
    // Fails only for a group leader, which has let go already.
    let _ = setsid();
    let null = File::options().read(true).write(true).open("/dev/null")?;
    println!("{READY}");
    io::stdout().flush()?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    if std::env::var_os("MILLRACE_LOG").is_none() {
        dup2_stderr(&null)?;
    }
    Ok(())
}
