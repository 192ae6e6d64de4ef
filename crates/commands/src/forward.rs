//! `millrace forward`: asks providers for ports through their tunnels, and leads the packets to devices of the LAN.

mod edit;

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Arg, ArgMatches, Command};
use config::forward::DEFAULT_PATH;
use config::settings::SettingsError;
use netio::poll::Waker;
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use steer::forward::Report;

use crate::arguments::{self, flag};
use crate::guard::{must_administer, until_held};
use crate::{Outcome, print_json};

/// The file with the state, for `status`, alerts and the page.
const STATE: &str = "/run/millrace/forward.json";

/// Maximum size of that file, in bytes.
const STATE_MAX: u64 = 64 * 1024;

/// Exit code of `status` while no process forwards ports, as for services that do not run.
const OFF: u8 = 3;

/// Precedes the reason why nothing is forwarded yet.
const NOT_YET: &str = "forward: cannot begin yet; trying again each second";

/// The command-line definition of `forward`.
pub(crate) fn command() -> Command {
    Command::new("forward")
        .about("Ask providers for open ports, and lead them to devices")
        .args_conflicts_with_subcommands(true)
        .subcommand(
            Command::new("status")
                .about("Show the ports that the running `millrace forward` has")
                .arg(flag("json", "Print a JSON document")),
        )
        .subcommands(edit::commands())
        .arg(file_argument())
}

fn file_argument() -> Arg {
    arguments::path(
        "settings",
        "FILE",
        "Settings [default: /etc/millrace/forward.toml]",
    )
}

fn file(matches: &ArgMatches) -> &Path {
    arguments::file(matches, "settings").unwrap_or_else(|| Path::new(DEFAULT_PATH))
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Outcome {
    match matches.subcommand() {
        Some(("status", m)) => status(m.get_flag("json")),
        Some(("add", m)) => edit::add(m),
        Some(("remove", m)) => edit::remove(m),
        Some(("list", m)) => edit::print(m),
        _ => forward(matches),
    }
}

/// Forwards ports until a signal.
fn forward(matches: &ArgMatches) -> Outcome {
    must_administer("forward")?;
    let _place = steer::claim("forward")?;
    let file = file(matches);
    let state = Path::new(STATE);
    let mut is_clear = false;
    // Retries instead of exiting: procd would start the process again and again, and log the same error each time.
    let forwards = until_held(NOT_YET, || {
        let forwards = config::forward::read(file);
        let kind = |error: &SettingsError| match error {
            SettingsError::Read { error, .. } => Some(error.kind()),
            _ => None,
        };
        if forwards.as_ref().err().and_then(kind) == Some(ErrorKind::NotFound) {
            return Ok(forwards);
        }
        // A process that was killed has left rules and reports, which end even if the settings are faulty now.
        if !is_clear {
            let _ = fs::remove_file(state);
            steer::forward::clear().map_err(|error| error.to_string())?;
            is_clear = true;
        }
        forwards.map(Ok).map_err(|error| error.to_string())
    })?;
    let stop = Arc::new(Waker::new()?);
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let theirs = Arc::clone(&stop);
    let wait = move || {
        if signals.forever().next().is_some() {
            theirs.wake();
        }
    };
    let thread = thread::Builder::new().name("signals".to_owned());
    thread.spawn(wait)?;
    let done = steer::forward::run(&forwards, &stop, |reports| {
        if let Err(error) = keep(reports, state) {
            log::warn!("{STATE}: {error}");
        }
    });
    // The ports are closed, or will end by themselves.
    let _ = fs::remove_file(state);
    done?;
    Ok(ExitCode::SUCCESS)
}

fn keep(reports: &[Report], path: &Path) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    host::written_file::replace_for_now(path, document(reports).to_string().as_bytes(), 0o644)
}

fn document(reports: &[Report]) -> Value {
    let one = |it: &Report| {
        let protocols: Vec<&str> = it.protocols.iter().map(|it| it.name()).collect();
        json!({
            "through": it.through,
            "to": it.to,
            "protocols": protocols,
            "gateway": it.gateway,
            "state": it.state,
            "port": it.port,
            "device_port": it.device_port,
            "until_unix": it.until_unix,
            "reason": it.reason,
            "text": it.to_string(),
        })
    };
    reports.iter().map(one).collect()
}

/// The reports that still hold: a process that was killed leaves a file, but renews no port.
fn current(mut reports: Vec<Value>, now: u64) -> Vec<Value> {
    reports.retain(|it| it["until_unix"].as_u64().is_none_or(|until| until > now));
    reports
}

/// Shows the state file.
fn status(json: bool) -> Outcome {
    let reports: Vec<Value> = match config::file::read_text(Path::new(STATE), STATE_MAX) {
        Ok(text) => serde_json::from_str(&text)?,
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(format!("{STATE}: {error}").into()),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let reports = current(reports, now);
    if json {
        print_json(&reports)?;
    }
    if reports.is_empty() {
        if !json {
            host::terminal::line(
                "no ports are forwarded: `millrace forward` is not running, or its log says why",
            );
        }
        return Ok(ExitCode::from(OFF));
    }
    for report in reports.iter().filter(|_| !json) {
        host::terminal::line(report["text"].as_str().unwrap_or_default());
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use config::forward::Protocol;

    use super::*;

    #[test]
    fn the_state_is_as_documented() {
        let open = Report {
            through: "mr-us".to_owned(),
            to: "192.168.1.20".to_owned(),
            protocols: vec![Protocol::Udp, Protocol::Tcp],
            gateway: Some([10, 2, 0, 1].into()),
            state: "open",
            port: Some(40123),
            device_port: Some(40123),
            until_unix: Some(1_900_000_000),
            reason: String::new(),
        };
        let lost = Report {
            gateway: None,
            state: "asking",
            port: None,
            device_port: None,
            until_unix: None,
            reason: "mr-us is not up".to_owned(),
            ..open.clone()
        };
        let Value::Array(samples) = document(&[open, lost.clone()]) else {
            panic!("not a list");
        };
        assert_eq!(
            samples[1]["text"],
            "mr-us: asking for a port (udp, tcp) for 192.168.1.20: mr-us is not up"
        );
        let fixed = Report {
            device_port: Some(3074),
            ..lost
        };
        assert!(
            fixed
                .to_string()
                .contains("for 192.168.1.20, port 3074: mr-us")
        );
        crate::tests::assert_documented("forward status", &samples);
        // An open port ends; asking has no end.
        for (now, wanted) in [
            (1_899_999_999, &samples[..]),
            (1_900_000_000, &samples[1..]),
        ] {
            assert_eq!(current(samples.clone(), now), wanted);
        }
    }
}
