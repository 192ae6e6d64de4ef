//! `millrace down`: ends a tunnel that runs in the background, or at another terminal.

use crate::Outcome;
use crate::arguments::text;
use clap::{Arg, ArgMatches, Command};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::Pid;
use service::running::{self, Running};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};
use thiserror::Error;

/// How long a tunnel may take to end: it restores name servers and runs the user's scripts first.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long to wait before printing a message.
const QUIET: Duration = Duration::from_secs(2);

/// The pause between two checks whether the tunnel has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Directories of the sockets through which daemons' interfaces are configured.
const SOCKETS: [&str; 2] = [service::status::SOCKET_DIR, "/var/run/wireguard"];

/// The command-line definition of `down`.
pub(crate) fn command() -> Command {
    Command::new("down")
        .about("End a tunnel, or clean up after one that was killed")
        .arg(
            Arg::new("NAME")
                .required(true)
                .help("The profile's name or file, or the interface's name"),
        )
}

/// Why a tunnel does not end.
#[derive(Debug, Error)]
pub(crate) enum DownError {
    #[error("{name}: no tunnel of this name is up{}", others(.running))]
    NotRunning { name: String, running: Vec<Running> },
    #[error("{name}: several profiles of that name are up; name one by its path: {}", paths(.running))]
    Several { name: String, running: Vec<Running> },
    #[error(transparent)]
    Hidden(#[from] running::Hidden),
    #[error("{name}: this user may not end the tunnel; run this as root")]
    NotAllowed { name: String },
    #[error("{name}: process {pid}: {error}")]
    Kill {
        name: String,
        pid: i32,
        error: Errno,
    },
    #[error("{name}: process {pid} has not ended within a minute; see its log")]
    Lasts { name: String, pid: i32 },
}

fn others(running: &[Running]) -> String {
    let names: Vec<&str> = running.iter().map(|it| it.name.as_str()).collect();
    match names.is_empty() {
        true => "; no tunnel of `millrace up` is up".to_owned(),
        false => format!("; up are: {}", names.join(", ")),
    }
}

fn paths(running: &[Running]) -> String {
    let paths = running.iter().map(|it| it.path.display().to_string());
    paths.collect::<Vec<_>>().join(", ")
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Outcome {
    let name = text(matches, "NAME").unwrap_or_default();
    match process_of(name, running::all()?) {
        Err(error @ DownError::NotRunning { .. }) => {
            match recover(name) {
                Ok(true) => {}
                // The tunnel left no remains, or a living process owns them.
                Ok(false) | Err(host::ApplyError::Journal(host::JournalError::Running { .. })) => {
                    return Err(error.into());
                }
                // Of remains this user can know nothing.
                Err(host::ApplyError::Journal(host::JournalError::File { error: of, .. }))
                    if of.kind() == io::ErrorKind::PermissionDenied =>
                {
                    return Err(error.into());
                }
                Err(error) => {
                    let why = "cannot undo the changes that a killed process left";
                    return Err(format!("{name}: {why}: {error}").into());
                }
            }
        }
        found => end(name, found?)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Undoes the changes of a killed process, by its interface or its profile. Returns whether there were any.
fn recover(name: &str) -> Result<bool, host::ApplyError> {
    let is_undone = config::types::is_ifname(name) && host::recover(name)?;
    let path = Path::new(name);
    let profile = match name.contains('/') || path.is_file() {
        true => running::name_of(path),
        false => name.to_owned(),
    };
    Ok(is_undone || host::recover_profile(&profile)?)
}

/// Ends the process that has a tunnel up, and waits for its end.
pub(crate) fn end(name: &str, pid: i32) -> Result<(), DownError> {
    signal(name, pid, Signal::SIGTERM)?;
    let begin = Instant::now();
    let mut is_told = false;
    while let Some(state) = state(pid) {
        if !is_told && begin.elapsed() >= QUIET {
            is_told = true;
            let why = match state {
                'T' => format!(", which is stopped; `kill -CONT {pid}` continues it"),
                _ => String::new(),
            };
            host::terminal::note(format_args!(
                "{name}: waiting at most a minute for process {pid} to end{why}"
            ));
        }
        if begin.elapsed() >= PATIENCE {
            return Err(DownError::Lasts {
                name: name.to_owned(),
                pid,
            });
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Sends a signal to a process, which may have ended meanwhile.
pub(crate) fn signal(name: &str, pid: i32, signal: Signal) -> Result<(), DownError> {
    let name = || name.to_owned();
    match kill(Pid::from_raw(pid), signal) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(Errno::EPERM) => Err(DownError::NotAllowed { name: name() }),
        Err(error) => Err(DownError::Kill {
            name: name(),
            pid,
            error,
        }),
    }
}

/// Finds the process that has a tunnel up: by the profile's name or path, or else by the interface.
pub(crate) fn process_of(name: &str, running: Vec<Running>) -> Result<i32, DownError> {
    let path = fs::canonicalize(name).ok();
    let by_path = |it: &&Running| path.as_ref() == Some(&it.path);
    if let Some(found) = running.iter().find(by_path) {
        return Ok(found.pid);
    }
    let mut named: Vec<&Running> = running.iter().filter(|it| it.name == name).collect();
    if named.len() > 1 {
        return Err(DownError::Several {
            name: name.to_owned(),
            running: named.into_iter().cloned().collect(),
        });
    }
    if let Some(found) = named.pop() {
        return Ok(found.pid);
    }
    // An invalid name could lead to the socket of another program.
    let sockets = SOCKETS.map(|directory| Path::new(directory).join(format!("{name}.sock")));
    for socket in sockets.iter().filter(|_| config::types::is_ifname(name)) {
        match owner(socket) {
            Ok(pid) if is_millrace(pid) => return Ok(pid),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(DownError::NotAllowed {
                    name: name.to_owned(),
                });
            }
            _ => {}
        }
    }
    Err(DownError::NotRunning {
        name: name.to_owned(),
        running,
    })
}

/// The words of a process's command line. `process` is its directory in `/proc`.
pub(crate) fn words_of(process: &Path) -> io::Result<Vec<OsString>> {
    let words = fs::read(process.join("cmdline"))?;
    let words = words.strip_suffix(&[0]).unwrap_or(&words);
    let words = words.split(|byte| *byte == 0);
    Ok(words.map(|it| OsString::from_vec(it.to_vec())).collect())
}

/// The process that listens on a socket.
pub(crate) fn owner(socket: &Path) -> io::Result<i32> {
    let stream = UnixStream::connect(socket)?;
    Ok(getsockopt(&stream, PeerCredentials)?.pid())
}

/// Whether the process is Millrace: other programs have sockets in these directories too.
pub(crate) fn is_millrace(pid: i32) -> bool {
    let program = |pid: &str| {
        let path = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let name = path.file_name()?.to_str()?;
        // The kernel adds this if the program's file was replaced while it runs.
        Some(name.strip_suffix(" (deleted)").unwrap_or(name).to_owned())
    };
    program("self").is_some_and(|ours| program(&pid.to_string()) == Some(ours))
}

/// The kernel's state letter of a running process; `None` for a zombie.
fn state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The state follows the name, which may contain anything.
    let state = stat.rsplit(')').next()?.trim_start().chars().next()?;
    (!matches!(state, 'Z' | 'X')).then_some(state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn running(name: &str, path: &str, pid: i32) -> Running {
        Running {
            pid,
            name: name.to_owned(),
            path: PathBuf::from(path),
            started: None,
        }
    }

    #[test]
    fn names_and_paths_lead_to_processes() {
        let all = || {
            vec![
                running("home", "/proc/self/exe-that-is-none", 1),
                running("office", "/a/office.ovpn", 2),
                running("office", "/b/office.ovpn", 3),
            ]
        };
        assert_eq!(process_of("home", all()).unwrap(), 1);
        let several = process_of("office", all()).unwrap_err().to_string();
        assert!(
            several.contains("/a/office.ovpn, /b/office.ovpn"),
            "{several}"
        );
        let none = process_of("../../etc/x", all()).unwrap_err().to_string();
        assert!(none.contains("up are: home, office, office"), "{none}");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("office.ovpn");
        fs::write(&path, "").unwrap();
        let real = fs::canonicalize(&path).unwrap();
        let mut all = all();
        all.push(running("office", real.to_str().unwrap(), 4));
        assert_eq!(process_of(path.to_str().unwrap(), all).unwrap(), 4);
    }

    #[test]
    fn processes_are_alive_until_they_have_ended() {
        assert!(state(std::process::id().cast_signed()).is_some());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(state(child.id().cast_signed()), None);
    }
}
