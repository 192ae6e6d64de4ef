//! `millrace alerts`: runs programs and posts to web addresses when something happens.
//!
//! A process of its own, because hooks need privileges that the processes of tunnels and of the page give up.

mod edit;
mod hooks;
mod remains;

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::{Arg, ArgMatches, Command};
use config::alerts::{DEFAULT_PATH, Hook, Kind};
use config::settings::SettingsError;
use monitor::alerts::{Alert, Port, Watcher};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::guard::must_administer;
use crate::monitor::source::brief;
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
        .subcommands(edit::commands())
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
        Some(("add", m)) => edit::add(m),
        Some(("remove", m)) => edit::remove(m),
        Some(("list", m)) => edit::print(m),
        _ => watch(file(matches)),
    }
}

/// Carries out each hook once, one after the other. A signal kills the running program.
fn test(file: &Path) -> Outcome {
    let hooks = config::alerts::read(file).map_err(with_remedy)?;
    let host = host_name();
    let text = format!("a test by `millrace alerts test` on {host}");
    let alert = Alert::new(Kind::Test, "", "", &text, unix());
    let ending = Arc::<Ending>::default();
    let (signals, theirs) = (signals()?, Arc::clone(&ending));
    let end = move || {
        if signals.recv().is_ok() {
            theirs.tell();
        }
    };
    thread::Builder::new()
        .name("ending".to_owned())
        .spawn(end)?;
    let mut is_good = true;
    for (number, hook) in (1..).zip(hooks) {
        if ending.wait(Duration::ZERO) {
            return Ok(ExitCode::FAILURE);
        }
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
            Err(failure) => failure.words.clone(),
        };
        host::terminal::line(format_args!("{number}: {}: {said}", hook.action));
        is_good &= done.is_ok();
    }
    Ok(code(is_good))
}

/// The error for settings that cannot be read, with the command that makes missing ones.
fn with_remedy(error: SettingsError) -> Box<dyn std::error::Error> {
    match error {
        SettingsError::Read { path, error } if error.kind() == ErrorKind::NotFound => format!(
            "{}: there are no settings; make them with `millrace alerts add`",
            path.display()
        )
        .into(),
        error => error.into(),
    }
}

/// Watches until a signal.
fn watch(file: &Path) -> Outcome {
    // Each hook would run twice.
    let _place = steer::claim("alerts")?;
    let signals = signals()?;
    remains::kill_all();
    let mut watcher = Watcher::default();
    follow(file, &signals, || {
        watcher.look(brief().0, refused(), &ports(), unix())
    })
}

/// Tells the hooks of the file each alert of each look, until a signal.
fn follow(file: &Path, signals: &Receiver<i32>, mut look: impl FnMut() -> Vec<Alert>) -> Outcome {
    let Some(first) = first_hooks(file, signals).map_err(with_remedy)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let mut hooks = Hooks::new(host_name(), PATIENCE);
    hooks.replace(first)?;
    // The first look finds ports and ends.
    let mut alerts = look();
    log::info!(
        "watching; events of {} are compared from now on",
        file.display()
    );
    loop {
        for alert in alerts {
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
        alerts = look();
    }
    hooks.end();
    Ok(ExitCode::SUCCESS)
}

/// The hooks of the file; `None` after a signal. Waits while the file is faulty instead of exiting: procd would start
/// the process again and again, and log the same error each time.
fn first_hooks(file: &Path, signals: &Receiver<i32>) -> Result<Option<Vec<Hook>>, SettingsError> {
    let mut said = String::new();
    loop {
        let words = match config::alerts::read(file) {
            Ok(hooks) => return Ok(Some(hooks)),
            Err(SettingsError::Read { path, error }) if error.kind() == ErrorKind::NotFound => {
                return Err(SettingsError::Read { path, error });
            }
            Err(error) => error.to_string(),
        };
        if words != said {
            log::error!("alerts: cannot begin yet; trying again every 5 seconds: {words}");
            said = words;
        }
        match signals.recv_timeout(PERIOD) {
            Ok(SIGHUP) | Err(RecvTimeoutError::Timeout) => {}
            Ok(_) | Err(RecvTimeoutError::Disconnected) => return Ok(None),
        }
    }
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

/// Packets of the LAN that the policy has refused.
fn refused() -> Option<u64> {
    #[cfg(feature = "policy")]
    return crate::policy::brief()?.refused;
    #[cfg(not(feature = "policy"))]
    None
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

#[cfg(test)]
mod tests {
    use monitor::sample::Sample;
    use service::status::Status;

    use super::*;

    #[test]
    fn ends_are_told_at_the_start_once_the_settings_are_valid() {
        let directory = tempfile::tempdir().unwrap();
        let (file, out) = (
            directory.path().join("a.toml"),
            directory.path().join("out"),
        );
        let missing = follow(&file, &mpsc::channel().1, Vec::new);
        let words = missing.unwrap_err().to_string();
        assert!(
            words.ends_with("make them with `millrace alerts add`"),
            "{words}"
        );
        fs::write(&file, "[[on-event]]\n").unwrap();
        let (sender, signals) = mpsc::channel();
        let settings = file.clone();
        let watch = thread::spawn(move || {
            let mut watcher = Watcher::default();
            let end = unix() + 3600;
            let look = || {
                let tunnel = Status {
                    interface: "office".to_owned(),
                    expires_unix: Some(end),
                    ..Status::default()
                };
                let sample = Sample {
                    tunnels: vec![tunnel],
                    ..Sample::default()
                };
                watcher.look(sample, None, &[], unix())
            };
            follow(&settings, &signals, look).is_ok()
        });
        // A faulty file ends nothing: the signal finds the thread.
        sender.send(SIGHUP).unwrap();
        let script = format!("echo $MILLRACE_EVENT >> {}", out.display());
        let hook = format!("[[on-event]]\nrun = [\"/bin/sh\", \"-c\", {script:?}]\n");
        fs::write(&file, hook).unwrap();
        sender.send(SIGHUP).unwrap();
        let end = Instant::now() + Duration::from_secs(600);
        while fs::read_to_string(&out).unwrap_or_default() != "ends-soon\n" {
            assert!(Instant::now() < end, "no end was told");
            thread::sleep(Duration::from_millis(5));
        }
        sender.send(SIGTERM).unwrap();
        assert!(watch.join().unwrap());
        assert_eq!(fs::read_to_string(&out).unwrap(), "ends-soon\n");
    }
}
