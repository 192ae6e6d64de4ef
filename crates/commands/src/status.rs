//! `millrace status`: what the running tunnels do, for people and for programs.

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use thiserror::Error;

use service::status::{SOCKET_DIR, Status, socket_path};

mod text;

use text::{Paint, render};

/// Largest document that is read, in bytes: 10,000 peers take about 4 MiB.
const DOCUMENT_MAX: u64 = 64 << 20;

/// How long a daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Between the two samples that a rate is computed from.
const SAMPLE: Duration = Duration::from_secs(1);

/// What the user asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arguments {
    /// One interface; otherwise all.
    pub ifname: Option<String>,
    /// JSON, an array of documents, instead of text.
    pub json: bool,
    /// One sample only, at once, without rates.
    pub no_rate: bool,
    /// Show it again every second until interrupted.
    pub watch: bool,
}

/// The command's own command line.
#[must_use]
pub(crate) fn command() -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .action(ArgAction::SetTrue)
            .help(help)
    };
    Command::new("status")
        .about("Show tunnels, peers, rates and what the data plane does")
        .arg(Arg::new("IFNAME").help("Only this interface"))
        .arg(flag("json", "Print an array of JSON documents"))
        .arg(flag("no-rate", "Do not wait a second to measure the rates"))
        .arg(flag(
            "watch",
            "Show it again every second until interrupted",
        ))
}

impl From<&ArgMatches> for Arguments {
    fn from(matches: &ArgMatches) -> Self {
        Self {
            ifname: matches.get_one("IFNAME").cloned(),
            json: matches.get_flag("json"),
            no_rate: matches.get_flag("no-rate"),
            watch: matches.get_flag("watch"),
        }
    }
}

/// Why there is no status.
#[derive(Debug, Error)]
pub(crate) enum StatusError {
    #[error(
        "{ifname}: no Millrace tunnel of this name runs; `millrace status` lists those that do"
    )]
    NotRunning { ifname: String },
    #[error("{ifname}: this user may not look at it; run this as root")]
    NotAllowed { ifname: String },
    #[error("{directory}: {error}")]
    Directory {
        directory: &'static str,
        error: io::Error,
    },
    #[error("{ifname}: its daemon does not answer: {error}")]
    Silent { ifname: String, error: io::Error },
    #[error("{ifname}: its daemon answers what is no status: {error}")]
    Garbled {
        ifname: String,
        error: serde_json::Error,
    },
}

/// Runs the command: 0 when it showed what was asked for, 1 otherwise.
#[must_use]
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let mut earlier = None;
    loop {
        let statuses = match sample(arguments, earlier.as_deref()) {
            Ok(statuses) => statuses,
            Err(error) => {
                terminal::note(format_args!("millrace: {error}"));
                return ExitCode::FAILURE;
            }
        };
        // A reader that stops has seen enough.
        if show(arguments, &statuses).is_err() {
            return ExitCode::SUCCESS;
        }
        if !arguments.watch {
            return ExitCode::SUCCESS;
        }
        thread::sleep(SAMPLE);
        earlier = Some(statuses);
    }
}

/// The documents, with rates since `earlier`, or over one second when there is no earlier.
fn sample(arguments: &Arguments, earlier: Option<&[Status]>) -> Result<Vec<Status>, StatusError> {
    let first = fetch_all(arguments.ifname.as_deref())?;
    if arguments.no_rate || first.is_empty() {
        return Ok(first);
    }
    let (before, mut now) = match earlier {
        Some(earlier) => (earlier.to_vec(), first),
        None => {
            thread::sleep(SAMPLE);
            let now = fetch_all(arguments.ifname.as_deref())?;
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

/// The documents of all that run, at once and without rates.
pub(crate) fn now() -> Result<Vec<Status>, StatusError> {
    fetch_all(None)
}

fn fetch_all(ifname: Option<&str>) -> Result<Vec<Status>, StatusError> {
    if let Some(ifname) = ifname {
        // A name that is none would be a path to the socket of another program.
        if !config::types::is_ifname(ifname) {
            return Err(StatusError::NotRunning {
                ifname: ifname.escape_debug().to_string(),
            });
        }
        return Ok(vec![fetch(ifname)?]);
    }
    let (statuses, mut hidden) = all()?;
    // That none can be seen does not mean that none runs.
    if statuses.is_empty()
        && let Some(last) = hidden.pop()
    {
        hidden.iter().for_each(tell);
        return Err(last);
    }
    hidden.iter().for_each(tell);
    Ok(statuses)
}

fn tell(error: &StatusError) {
    terminal::note(format_args!("millrace: {error}"));
}

/// All that can be seen, and why others cannot.
pub(crate) fn all() -> Result<(Vec<Status>, Vec<StatusError>), StatusError> {
    let (mut statuses, mut hidden) = (Vec::new(), Vec::new());
    for ifname in running(Path::new(SOCKET_DIR)).map_err(|error| StatusError::Directory {
        directory: SOCKET_DIR,
        error,
    })? {
        match fetch(&ifname) {
            Ok(status) => statuses.push(status),
            // The socket file of a daemon that was killed.
            Err(StatusError::NotRunning { .. }) => {}
            // One that hangs must not hide the others.
            Err(error) => hidden.push(error),
        }
    }
    Ok((statuses, hidden))
}

/// Names of the interfaces that have a socket, sorted.
fn running(directory: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(directory) {
        // There was none since the machine started.
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

fn fetch(ifname: &str) -> Result<Status, StatusError> {
    let stream = UnixStream::connect(socket_path(ifname)).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => StatusError::NotRunning {
            ifname: ifname.to_owned(),
        },
        io::ErrorKind::PermissionDenied => StatusError::NotAllowed {
            ifname: ifname.to_owned(),
        },
        _ => silent(ifname, error),
    })?;
    let mut document = Vec::new();
    stream
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| stream.take(DOCUMENT_MAX).read_to_end(&mut document))
        .map_err(|error| silent(ifname, error))?;
    serde_json::from_slice(&document).map_err(|error| StatusError::Garbled {
        ifname: ifname.to_owned(),
        error,
    })
}

fn silent(ifname: &str, error: io::Error) -> StatusError {
    StatusError::Silent {
        ifname: ifname.to_owned(),
        error,
    }
}

fn show(arguments: &Arguments, statuses: &[Status]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if arguments.json {
        let mut text = serde_json::to_vec_pretty(statuses)?;
        text.push(b'\n');
        out.write_all(&text)?;
        return out.flush();
    }
    let terminal = out.is_terminal();
    // https://no-color.org
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty());
    if arguments.watch && terminal {
        // Home, and clear to the end: no flicker, and nothing left of a longer list.
        write!(out, "\x1b[H\x1b[J")?;
    }
    if statuses.is_empty() {
        writeln!(out, "No Millrace tunnel runs.")?;
    }
    for (position, status) in statuses.iter().enumerate() {
        if position > 0 {
            writeln!(out)?;
        }
        let paint = Paint {
            on: terminal && !no_colour,
            wraps: terminal,
        };
        out.write_all(render(status, paint).as_bytes())?;
    }
    if arguments.ifname.is_none()
        && let Some(report) = crate::guard::brief()
    {
        write!(out, "\n{}", crate::guard::render(&report))?;
    }
    if arguments.ifname.is_none()
        && let Some(report) = crate::policy::brief()
    {
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
