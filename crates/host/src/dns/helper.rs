//! Runs a program that may hang, with a time limit.

use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// Maximum output that is read, in bytes.
const MESSAGE_MAX: u64 = 4096;

/// Longest time between two checks whether the program has ended.
const POLL: Duration = Duration::from_millis(50);

/// Runs `command` with `input`, and returns its exit status and the beginning of its standard error. After `limit` it
/// is killed with all processes that it started, and the result is `None`.
///
/// Input and errors are files, not pipes: a daemon that the program starts may keep them open, and this must not wait
/// for it.
///
/// # Errors
/// The program cannot be started.
pub(super) fn run(
    command: &mut Command,
    input: &str,
    limit: Duration,
) -> io::Result<Option<(ExitStatus, String)>> {
    let mut given = tempfile::tempfile()?;
    given.write_all(input.as_bytes())?;
    given.rewind()?;
    let mut said = tempfile::tempfile()?;
    let mut child = command
        .stdin(given)
        .stdout(Stdio::null())
        .stderr(said.try_clone()?)
        .process_group(0)
        .spawn()?;
    let end = Instant::now() + limit;
    let Some(status) = wait(&mut child, || Instant::now() >= end)? else {
        return Ok(None);
    };
    said.rewind()?;
    let mut message = Vec::new();
    said.take(MESSAGE_MAX).read_to_end(&mut message)?;
    let message = String::from_utf8_lossy(&message).into_owned();
    Ok(Some((status, message)))
}

/// Runs `command` and returns the beginning of its output; `None` if it took longer than `limit` and was killed.
///
/// # Errors
/// The program cannot be started.
pub(super) fn printed(command: &mut Command, limit: Duration) -> io::Result<Option<String>> {
    let mut said = tempfile::tempfile()?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(said.try_clone()?)
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    let end = Instant::now() + limit;
    if wait(&mut child, || Instant::now() >= end)?.is_none() {
        return Ok(None);
    }
    said.rewind()?;
    let mut text = Vec::new();
    said.take(MESSAGE_MAX).read_to_end(&mut text)?;
    Ok(Some(String::from_utf8_lossy(&text).into_owned()))
}

/// The exit status of `child`; `None` if it was killed because `is_over` returned true.
fn wait(child: &mut Child, is_over: impl Fn() -> bool) -> io::Result<Option<ExitStatus>> {
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if is_over() {
            // The child is not reaped yet, so its number is still its own. It leads the process group of that number.
            let _ = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(pause);
        pause = (2 * pause).min(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn shell(text: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        command
    }

    #[test]
    fn a_program_gets_its_input_and_its_complaints_are_kept() {
        let mut command = shell("read line; echo \"$line\" >&2; echo more >&2; exit 3");
        let ended = run(&mut command, "hello\n", Duration::from_secs(60)).unwrap();
        let (status, message) = ended.unwrap();
        assert_eq!(
            (status.code(), message.as_str()),
            (Some(3), "hello\nmore\n")
        );
    }

    #[test]
    fn what_a_program_prints_is_kept_and_one_that_hangs_prints_nothing() {
        let text = printed(
            &mut shell("echo 2.90; echo no >&2"),
            Duration::from_secs(60),
        );
        assert_eq!(text.unwrap().as_deref(), Some("2.90\n"));
        let text = printed(&mut shell("echo 2.90; sleep 1000"), Duration::ZERO);
        assert_eq!(text.unwrap(), None);
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_what_it_has_started() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pid");
        let text = format!("sleep 1000 & echo $! > {}; wait", file.display());
        let mut child = shell(&text).process_group(0).spawn().unwrap();
        // The shell never ends by itself. Its time is over when it has started the process that must be killed with it.
        let has_started = || fs::read_to_string(&file).is_ok_and(|pid| pid.ends_with('\n'));
        assert!(wait(&mut child, has_started).unwrap().is_none());
        let pid = fs::read_to_string(&file).unwrap();
        // The signal takes effect when the process runs next. A parent that reaps no orphans leaves a zombie.
        let stat = || fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        let end = Instant::now() + Duration::from_secs(20);
        while !(stat().is_empty() || stat().contains(") Z ")) {
            assert!(Instant::now() < end, "{}", stat());
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_daemon_that_keeps_the_output_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pid");
        let mut command = shell(&format!("sleep 1000 & echo $! > {}", file.display()));
        let ended = run(&mut command, "", Duration::from_secs(600)).unwrap();
        assert!(ended.unwrap().0.success());
        let pid: i32 = fs::read_to_string(file).unwrap().trim().parse().unwrap();
        // The daemon still runs; the test ends it now.
        nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
}
