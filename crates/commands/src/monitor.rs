//! `millrace monitor`: a web page that shows this host's tunnels, and metrics for Prometheus.
//!
//! This process starts a second one, which listens and serves without privileges. This one answers its questions, and
//! keeps the password and the sessions.

mod offered;
pub(crate) mod source;
mod steering;

use crate::Outcome;
use crate::arguments::{flag, list, option, path, path_of, text, values};
use crate::guard::write_text;
use crate::profile::DIRECTORY;
use clap::{ArgMatches, Command};
use monitor::back;
use monitor::front;
use monitor::password::{MOST, Password, PasswordError};
use monitor::question::AtHome;
use monitor::rights::Rights;
use monitor::site::Settings;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use source::Host;
use std::io::{self, ErrorKind, IsTerminal as _, Read as _};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, fs, thread};
use thiserror::Error;
use zeroize::Zeroizing;

/// The file with the password.
const PASSWORD: &str = "/etc/millrace/monitor.password";

/// The file with the token by which programs read the metrics.
const TOKEN: &str = "/etc/millrace/monitor.token";

/// The file with the rates of a day: in memory, so it spares the flash and is lost at a reboot.
const HISTORY: &str = "/run/millrace/monitor.day";

/// Default TCP port of the web page.
const PORT: u16 = 8470;

/// Maximum number of addresses to listen on.
const LISTENERS: usize = 8;

/// Shortest token, in characters.
const TOKEN_LEAST: usize = 16;

/// Longest file of a password or a token, in bytes.
const FILE_MAX: u64 = 4096;

/// The command-line definition of `monitor`.
pub(crate) fn command() -> Command {
    let password = || path("password", "FILE", "Password file").default_value(PASSWORD);
    let front = flag(
        "front",
        "Serve, with data from the process at the other end of standard input",
    );
    Command::new("monitor")
        .about("Serve a web page about the tunnels, and /metrics for Prometheus")
        .args_conflicts_with_subcommands(true)
        .subcommand(
            Command::new("password")
                .about("Set the web page's password, from a prompt or standard input")
                .arg(password()),
        )
        .arg(list(
            "listen",
            "ADDRESS[:PORT]",
            "Address to listen on [default: 127.0.0.1:8470]; may be repeated",
        ))
        .arg(list(
            "name",
            "NAME",
            "A name of this host that browsers may use; may be repeated",
        ))
        .arg(password())
        .arg(
            path(
                "token",
                "FILE",
                "File with the token that /metrics requires, if the file exists",
            )
            .default_value(TOKEN),
        )
        .arg(
            path(
                "history",
                "FILE",
                "File that keeps the rates of the last day",
            )
            .default_value(HISTORY),
        )
        .arg(
            option("user", "USER", "User that the serving process becomes").default_value("nobody"),
        )
        .arg(front.hide(true))
}

/// Why the page cannot be served.
#[derive(Debug, Error)]
enum MonitorError {
    #[error("--listen {0}: not an address; write ADDRESS or ADDRESS:PORT")]
    Address(String),
    #[error("--listen: at most {LISTENERS} addresses are possible")]
    Many,
    #[error(
        "{0}: without a password the monitor listens only on loopback addresses; set one with `millrace monitor \
         password`"
    )]
    Open(SocketAddr),
    #[error("cannot listen on {address}: {error}")]
    Listen {
        address: SocketAddr,
        error: io::Error,
    },
    #[error("{}: {error}", .path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{}: {error}", .path.display())]
    Password { path: PathBuf, error: PasswordError },
    #[error("{}: the token is too short; it needs at least {TOKEN_LEAST} characters", .0.display())]
    Token(PathBuf),
    #[error("the two passwords differ")]
    Differ,
    #[error("no password was given")]
    NoPassword,
    #[error("--user {0}")]
    User(#[from] host::privileges::UserError),
    #[error(transparent)]
    Start(#[from] io::Error),
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Outcome {
    Ok(match matches.subcommand() {
        Some(("password", m)) => set_password(path_of(m, "password")).map(|()| ExitCode::SUCCESS),
        _ if matches.get_flag("front") => serve(matches),
        _ => answer(matches),
    }?)
}

/// Asks for the password, or reads the first line of standard input if that is not a terminal. Writes the file.
fn set_password(path: &Path) -> Result<(), MonitorError> {
    let text = match io::stdin().is_terminal() {
        true => asked()?,
        false => first_line()?,
    };
    if text.is_empty() {
        return Err(MonitorError::NoPassword);
    }
    let password = Password::new(&text).map_err(|error| MonitorError::Password {
        path: path.to_owned(),
        error,
    })?;
    write_text(&password.to_text(), path, 0o600).map_err(|error| MonitorError::File {
        path: path.to_owned(),
        error,
    })?;
    host::terminal::note(format_args!(
        "{} is written; restart a running monitor to use the new password",
        path.display()
    ));
    Ok(())
}

fn asked() -> Result<Zeroizing<String>, MonitorError> {
    let once = service::openvpn::ask_at_terminal("Password of the page: ")?;
    let again = service::openvpn::ask_at_terminal("Repeat the password: ")?;
    match once == again {
        true => Ok(once),
        false => Err(MonitorError::Differ),
    }
}

fn first_line() -> Result<Zeroizing<String>, MonitorError> {
    let mut text = Zeroizing::new(String::new());
    io::stdin()
        .take(MOST as u64 + 2)
        .read_to_string(&mut text)?;
    let line = text.lines().next().unwrap_or_default();
    Ok(Zeroizing::new(line.to_owned()))
}

/// Runs the process that keeps its privileges.
fn answer(matches: &ArgMatches) -> Result<ExitCode, MonitorError> {
    let password = read(path_of(matches, "password"))?;
    let password = password.map(|text| {
        Password::from_text(&text).map_err(|error| MonitorError::Password {
            path: path_of(matches, "password").to_owned(),
            error,
        })
    });
    let password = password.transpose()?;
    let addresses = addresses(matches)?;
    if password.is_none()
        && let Some(open) = addresses
            .into_iter()
            .find(|it| !it.ip().to_canonical().is_loopback())
    {
        return Err(MonitorError::Open(open));
    }
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = std::process::Command::new(env::current_exe()?);
    command
        .args(env::args_os().skip(1))
        .arg("--front")
        .stdin(Stdio::from(OwnedFd::from(theirs)));
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let mut child = command.spawn()?;
    // The command holds a copy of the child's end, which would hide the child's exit from this process.
    drop(command);
    host::privileges::drop_privileges();
    let told = Arc::new(AtomicBool::new(false));
    end_at_signal(signals, ours.try_clone()?, Arc::clone(&told))?;
    let mut host = Host::new(path_of(matches, "history"));
    let answered = back::answer(&ours, &Rights::new(password), &mut host, at_home);
    host.write();
    // The child ends when its connection closes.
    let _ = ours.shutdown(Shutdown::Both);
    drop(ours);
    let status = child.wait()?;
    if told.load(Ordering::Relaxed) {
        return Ok(ExitCode::SUCCESS);
    }
    if status.success() {
        answered?;
    }
    // The child has reported the fault itself.
    Ok(ExitCode::FAILURE)
}

/// Answers questions about the servers at home, and takes files and rules.
fn at_home(asked: AtHome) -> Result<serde_json::Value, String> {
    let unknown = |_| "not understood";
    if let Some(method) = offered::Method::new(&asked.method) {
        return method.call(&serde_json::from_value(asked.given).map_err(unknown)?);
    }
    let given = serde_json::from_value(asked.given).map_err(unknown)?;
    crate::home::call(&asked.method, &given, Path::new(DIRECTORY))
}

/// Closes the connection on a signal; both processes then end.
fn end_at_signal(
    mut signals: Signals,
    stream: UnixStream,
    told: Arc<AtomicBool>,
) -> io::Result<()> {
    let wait = move || {
        if signals.forever().next().is_some() {
            told.store(true, Ordering::Relaxed);
            let _ = stream.shutdown(Shutdown::Both);
        }
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait)
        .map(drop)
}

/// Runs the process that listens and serves.
fn serve(matches: &ArgMatches) -> Result<ExitCode, MonitorError> {
    let link = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let token = read(path_of(matches, "token"))?.map(|it| Zeroizing::new(it.trim().to_owned()));
    if token
        .as_ref()
        .is_some_and(|it| it.chars().count() < TOKEN_LEAST)
    {
        return Err(MonitorError::Token(path_of(matches, "token").to_owned()));
    }
    let addresses = addresses(matches)?;
    let mut listeners = Vec::new();
    for address in addresses {
        let listener = TcpListener::bind(address);
        listeners.push(listener.map_err(|error| MonitorError::Listen { address, error })?);
    }
    let user = text(matches, "user");
    // Only root can change its user; another user has no more rights than it was given.
    if nix::unistd::geteuid().is_root() {
        host::privileges::become_user(user, None)?;
        host::privileges::confine_this_thread();
        // Other processes of that user must not read this one's memory.
        if let Err(error) = nix::sys::prctl::set_dumpable(false) {
            log::debug!("processes of the same user can read this process's memory: {error}");
        }
    }
    for listener in &listeners {
        host::terminal::say(format_args!(
            "the page is at http://{}/",
            listener.local_addr()?
        ));
    }
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim().to_owned();
    let mut names = values(matches, "name").unwrap_or_default();
    names.extend(["", ".lan", ".local", ".home.arpa"].map(|end| format!("{host}{end}")));
    let settings = Settings { names, token, host };
    front::run(listeners, settings, link)?;
    Ok(ExitCode::SUCCESS)
}

fn addresses(matches: &ArgMatches) -> Result<Vec<SocketAddr>, MonitorError> {
    let Some(words) = matches.get_many::<String>("listen") else {
        return Ok(vec![(IpAddr::from([127, 0, 0, 1]), PORT).into()]);
    };
    let addresses = words.map(|it| address(it).ok_or_else(|| MonitorError::Address(it.clone())));
    let addresses: Vec<_> = addresses.collect::<Result<_, _>>()?;
    match addresses.len() {
        0..=LISTENERS => Ok(addresses),
        _ => Err(MonitorError::Many),
    }
}

/// An address; its port may be missing.
fn address(word: &str) -> Option<SocketAddr> {
    if let Ok(address) = word.parse::<SocketAddr>() {
        return Some(address);
    }
    let bare = word.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let bare = bare
        .and_then(|it| it.parse::<Ipv6Addr>().ok())
        .map(IpAddr::from);
    Some((bare.or_else(|| word.parse().ok())?, PORT).into())
}

/// Reads a file with a secret; `None` if it does not exist.
fn read(path: &Path) -> Result<Option<Zeroizing<String>>, MonitorError> {
    match config::file::read_text(path, FILE_MAX) {
        Ok(text) => Ok(Some(text)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound) => Ok(None),
        Err(error) => Err(MonitorError::File {
            path: path.to_owned(),
            error,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opening a FIFO would block.
    #[test]
    fn only_regular_files_hold_a_password() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(matches!(read(&fifo), Err(MonitorError::File { .. })));
        assert!(matches!(read(&directory.path().join("none")), Ok(None)));
    }

    #[test]
    fn ports_may_be_left_out() {
        for (word, wanted) in [
            ("192.168.1.1", "192.168.1.1:8470"),
            ("192.168.1.1:80", "192.168.1.1:80"),
            ("::1", "[::1]:8470"),
            ("[fd00::1]", "[fd00::1]:8470"),
            ("[fd00::1]:1", "[fd00::1]:1"),
        ] {
            assert_eq!(address(word).unwrap().to_string(), wanted);
        }
        for wrong in ["", "router", "1.2.3", "1.2.3.4:", "1.2.3.4:99999", "[::1"] {
            assert!(address(wrong).is_none(), "{wrong}");
        }
    }
}
