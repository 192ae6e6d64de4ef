//! `millrace alerts`: runs programs and posts to web addresses when something happens.
//!
//! A process of its own, because hooks need privileges that the processes of tunnels and of the page give up.

mod hooks;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::{Arg, ArgMatches, Command};
use config::alerts::{DEFAULT_PATH, Kind};
use monitor::alerts::{Alert, Port, Watcher};
use monitor::back::Source as _;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::guard::must_administer;
use crate::monitor::source::Host;
use crate::{Outcome, arguments, code};
use hooks::{Ending, Hooks, Output, carry_out};

/// Time between two looks.
const PERIOD: Duration = Duration::from_secs(5);

/// Time limit of a hook.
const PATIENCE: Duration = Duration::from_secs(30);

/// The file with the forwarded ports.
const PORTS: &str = "/run/millrace/forward.json";

/// Maximum size of that file, in bytes.
const PORTS_MAX: u64 = 64 * 1024;

/// The command-line definition of `alerts`.
pub(crate) fn command() -> Command {
    Command::new("alerts")
        .about("Run programs or post to the web when tunnels or uplinks fail")
        .args_conflicts_with_subcommands(true)
        .subcommand(
            Command::new("test")
                .about("Send a test event to each hook, and say how it went")
                .arg(file_argument()),
        )
        .arg(file_argument())
}

fn file_argument() -> Arg {
    arguments::path(
        "settings",
        "FILE",
        "Settings [default: /etc/millrace/alerts.toml]",
    )
}

fn file(matches: &ArgMatches) -> &Path {
    arguments::file(matches, "settings").unwrap_or_else(|| Path::new(DEFAULT_PATH))
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Outcome {
    must_administer("alerts")?;
    match matches.subcommand() {
        Some(("test", m)) => test(file(m)),
        _ => watch(file(matches)),
    }
}

/// Carries out each hook once, one after the other.
fn test(file: &Path) -> Outcome {
    let hooks = config::alerts::read(file)?;
    let host = host_name();
    let text = format!("a test by `millrace alerts test` on {host}");
    let alert = Alert::new(Kind::Test, "", "", &text, unix());
    let ending = Ending::default();
    let mut is_good = true;
    for hook in hooks {
        let begin = Instant::now();
        let done = carry_out(
            &hook.action,
            &alert,
            &host,
            PATIENCE,
            &ending,
            Output::Shown,
        );
        let said = match &done {
            Ok(()) => format!("ok in {:.1} s", begin.elapsed().as_secs_f64()),
            Err(why) => why.clone(),
        };
        host::terminal::line(format_args!("{}: {said}", hook.action));
        is_good &= done.is_ok();
    }
    Ok(code(is_good))
}

/// Watches until a signal.
fn watch(file: &Path) -> Outcome {
    let signals = signals()?;
    let mut hooks = Hooks::new(host_name(), PATIENCE);
    hooks.replace(config::alerts::read(file)?)?;
    let mut host = Host::new(Path::new(""));
    let mut watcher = Watcher::default();
    watcher.look(host.sample(), refused(), &[], unix());
    log::info!(
        "watching; events of {} are compared from now on",
        file.display()
    );
    loop {
        for alert in watcher.look(host.sample(), refused(), &ports(), unix()) {
            log::info!("{}: {}", alert.kind.name(), alert.text);
            hooks.tell(&alert);
        }
        match signals.recv_timeout(PERIOD) {
            Err(RecvTimeoutError::Timeout) => {}
            // A faulty file leaves the old hooks in force.
            Ok(SIGHUP) => match config::alerts::read(file) {
                Ok(new) => hooks.replace(new)?,
                Err(error) => log::error!("{error}; the earlier hooks stay in force"),
            },
            Ok(_) | Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    hooks.end();
    Ok(ExitCode::SUCCESS)
}

/// The signals that arrive from now on.
fn signals() -> std::io::Result<Receiver<i32>> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let (sender, receiver) = mpsc::channel();
    let pass_on = move || {
        for signal in signals.forever() {
            if sender.send(signal).is_err() {
                break;
            }
        }
    };
    let thread = thread::Builder::new().name("signals".to_owned());
    thread.spawn(pass_on)?;
    Ok(receiver)
}

/// Packets of the LAN that guard and policy have refused.
fn refused() -> Option<u64> {
    let guard = crate::guard::brief().and_then(|it| it.refused);
    #[cfg(feature = "policy")]
    let guard = match crate::policy::brief().and_then(|it| it.refused) {
        Some(count) => Some(guard.unwrap_or_default() + count),
        None => guard,
    };
    guard
}

/// The forwarded ports; none if nothing forwards ports.
fn ports() -> Vec<Port> {
    let text = config::file::read_text(Path::new(PORTS), PORTS_MAX);
    let ports = text.ok().and_then(|it| serde_json::from_str(&it).ok());
    ports.unwrap_or_default()
}

fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// Seconds since 1970.
fn unix() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |it| it.as_secs())
}
