//! `millrace status`: shows the state of running tunnels, for people and for programs.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use thiserror::Error;

use service::running;
use service::status::{SOCKET_DIR, Status, socket_path};

mod sockets;
mod text;

use crate::Outcome;
use crate::arguments::{self, flag};
use crate::down::{DownError, process_of};
use text::{Paint, render};
#[cfg(feature = "server")]
pub(crate) use text::{bits, bytes, largest_unit};

/// The time for all daemons together to answer: 10,000 peers on a small router take about a second.
const PATIENCE: Duration = Duration::from_secs(3);

/// The time between the two samples of a rate.
const SAMPLE: Duration = Duration::from_secs(1);

/// The command-line definition of `status`.
#[must_use]
pub(crate) fn command() -> Command {
    Command::new("status")
        .about("Show tunnels, peers, rates and the state of the data plane")
        .arg(Arg::new("NAME").help("Only this tunnel: its name or file, or its interface"))
        .arg(flag("json", "Print a JSON array"))
        .arg(flag("no-rate", "Do not wait a second to measure the rates"))
        .arg(flag("watch", "Repeat every second until interrupted"))
}

/// Why there is no status.
#[derive(Debug, Error)]
pub(crate) enum StatusError {
    #[error(
        "{ifname}: no Millrace tunnel of this name is running; `millrace status` lists the running ones"
    )]
    NotRunning { ifname: String },
    #[error("{ifname}: the tunnel is still starting, and has no status yet; ask again")]
    Starting { ifname: String },
    #[error("{ifname}: this user may not read its status; run this as root")]
    NotAllowed { ifname: String },
    #[error("{directory}: {error}")]
    Directory {
        directory: &'static str,
        error: io::Error,
    },
    #[error("{ifname} does not answer: its process hangs, is stopped, or is overloaded")]
    Silent { ifname: String },
    #[error("{ifname}: its socket: {error}")]
    Socket { ifname: String, error: io::Error },
    #[error("{ifname}: its daemon's status socket returned invalid JSON: {error}")]
    Garbled {
        ifname: String,
        error: serde_json::Error,
    },
    /// Not one tunnel has this name.
    #[error(transparent)]
    Name(#[from] DownError),
}

#[cfg(feature = "monitor")]
impl StatusError {
    /// The interface that cannot be read; `None` if it is all of them.
    pub(crate) fn ifname(&self) -> Option<&str> {
        match self {
            Self::NotRunning { ifname }
            | Self::Starting { ifname }
            | Self::NotAllowed { ifname }
            | Self::Silent { ifname }
            | Self::Socket { ifname, .. }
            | Self::Garbled { ifname, .. } => Some(ifname),
            Self::Directory { .. } | Self::Name(_) => None,
        }
    }
}

/// Runs the command: 0 if it showed all that was requested.
pub(crate) fn run(matches: &ArgMatches) -> Outcome {
    let mut earlier = None;
    loop {
        let statuses = sample(matches, earlier.as_deref())?;
        match show(matches, &statuses) {
            Ok(()) => {}
            // The reader has closed the pipe.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
            Err(error) => return Err(format!("standard output: {error}").into()),
        }
        if !matches.get_flag("watch") {
            break;
        }
        thread::sleep(SAMPLE);
        earlier = Some(statuses);
    }
    Ok(ExitCode::SUCCESS)
}

/// The documents, with rates since `earlier`, or else over one second.
fn sample(matches: &ArgMatches, earlier: Option<&[Status]>) -> Result<Vec<Status>, StatusError> {
    let name = arguments::text(matches, "NAME");
    let first = fetch_all(name)?;
    if matches.get_flag("no-rate") || first.is_empty() {
        return Ok(first);
    }
    let (before, mut now) = match earlier {
        Some(earlier) => (earlier.to_vec(), first),
        None => {
            thread::sleep(SAMPLE);
            // Tunnels that do not answer were reported already, so they are not asked again.
            let names = first.iter().map(|it| it.interface.clone()).collect();
            let (now, hidden) = parted(ask(names));
            match (name.is_some(), hidden) {
                (true, mut hidden) if now.is_empty() && !hidden.is_empty() => {
                    return Err(hidden.remove(0));
                }
                (_, hidden) => hidden.iter().for_each(tell),
            }
            (first, now)
        }
    };
    for status in &mut now {
        let same = before
            .iter()
            .find(|before| before.interface == status.interface);
        if let Some(before) = same {
            status.fill_rates(before);
        }
    }
    Ok(now)
}

/// The documents of all running tunnels, at once and without rates.
pub(crate) fn now() -> Result<Vec<Status>, StatusError> {
    fetch_all(None)
}

fn fetch_all(name: Option<&str>) -> Result<Vec<Status>, StatusError> {
    if let Some(name) = name {
        return named(name).map(|it| vec![it]);
    }
    let (statuses, mut hidden) = all()?;
    // No visible tunnel does not mean that none runs.
    if statuses.is_empty()
        && let Some(last) = hidden.pop()
    {
        hidden.iter().for_each(tell);
        return Err(last);
    }
    hidden.iter().for_each(tell);
    Ok(statuses)
}

/// The document of the interface or of the tunnel with this name.
fn named(name: &str) -> Result<Status, StatusError> {
    // An invalid name could lead to the socket of another program.
    if config::types::is_ifname(name) {
        match ask(vec![name.to_owned()]).pop() {
            None | Some(Err(StatusError::NotRunning { .. })) => {}
            Some(answer) => return answer,
        }
    }
    let ifname = config::shown(name);
    match process_of(name, running::all().map_err(DownError::from)?) {
        Ok(pid) => ask_process(pid)?.ok_or(StatusError::Starting { ifname }),
        Err(DownError::NotRunning { .. }) => Err(StatusError::NotRunning { ifname }),
        Err(error) => Err(error.into()),
    }
}

fn tell(error: &StatusError) {
    log::error!("{error}");
}

/// All readable documents, and the errors of the others.
pub(crate) fn all() -> Result<(Vec<Status>, Vec<StatusError>), StatusError> {
    Ok(parted(ask(interfaces()?)))
}

fn interfaces() -> Result<Vec<String>, StatusError> {
    sockets_in(Path::new(SOCKET_DIR)).map_err(|error| StatusError::Directory {
        directory: SOCKET_DIR,
        error,
    })
}

/// The document of the tunnel that a process runs, with `rates` over one second; `None` while it has no status socket.
pub(crate) fn of_process(pid: i32, rates: bool) -> Result<Option<Status>, StatusError> {
    let first = ask_process(pid)?;
    let Some(first) = first else {
        return Ok(None);
    };
    if !rates {
        return Ok(Some(first));
    }
    thread::sleep(SAMPLE);
    let mut now = ask_process(pid)?;
    if let Some(now) = &mut now {
        now.fill_rates(&first);
    }
    Ok(now)
}

fn ask_process(pid: i32) -> Result<Option<Status>, StatusError> {
    let answers = sockets::ask_process(interfaces()?, socket_path, PATIENCE, pid);
    let (mut statuses, mut hidden) = parted(answers);
    match (statuses.pop(), hidden.pop()) {
        (None, Some(error)) => Err(error),
        (status, _) => Ok(status),
    }
}

fn parted(answers: Vec<Result<Status, StatusError>>) -> (Vec<Status>, Vec<StatusError>) {
    let (mut statuses, mut hidden) = (Vec::new(), Vec::new());
    for answer in answers {
        match answer {
            Ok(status) => statuses.push(status),
            // A killed daemon has left its socket file.
            Err(StatusError::NotRunning { .. }) => {}
            // A daemon that hangs must not hide the others.
            Err(error) => hidden.push(error),
        }
    }
    (statuses, hidden)
}

/// Names of the interfaces that have a socket, sorted.
fn sockets_in(directory: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(directory) {
        // No daemon has run since the machine started.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".sock").map(str::to_owned))
        .collect();
    names.sort();
    Ok(names)
}

fn ask(names: Vec<String>) -> Vec<Result<Status, StatusError>> {
    sockets::ask(names, socket_path, PATIENCE)
}

fn show(matches: &ArgMatches, statuses: &[Status]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if matches.get_flag("json") {
        let mut text = serde_json::to_vec_pretty(statuses)?;
        text.push(b'\n');
        out.write_all(&text)?;
        return out.flush();
    }
    let terminal = out.is_terminal();
    let escapes = host::terminal::escapes(&out);
    // https://no-color.org
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty());
    if matches.get_flag("watch") && escapes {
        // Cursor home, and clear to the end: no flicker, and no remains of a longer list.
        write!(out, "\x1b[H\x1b[J")?;
    }
    if statuses.is_empty() {
        writeln!(out, "No Millrace tunnel is running.")?;
    }
    for (position, status) in statuses.iter().enumerate() {
        if position > 0 {
            writeln!(out)?;
        }
        let paint = Paint {
            on: escapes && !no_colour,
            wraps: terminal,
        };
        out.write_all(render(status, paint).as_bytes())?;
    }
    if arguments::text(matches, "NAME").is_some() {
        return out.flush();
    }
    if let Some(report) = crate::guard::brief() {
        write!(out, "\n{}", crate::guard::render(&report))?;
    }
    for (name, path) in [
        ("guard", config::guard::DEFAULT_PATH),
        ("policy", config::policy::DEFAULT_PATH),
    ] {
        if !host::privileges::administers() && Path::new(path).exists() {
            let why = "this user may not read its status; run this as root";
            writeln!(out, "\n{name}: {why}")?;
        }
    }
    #[cfg(feature = "policy")]
    if let Some(report) = crate::policy::brief() {
        write!(out, "\n{}", crate::policy::render_brief(&report))?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_paths_are_not_followed() {
        assert!(matches!(
            fetch_all(Some("../x")),
            Err(StatusError::NotRunning { .. })
        ));
    }
}
