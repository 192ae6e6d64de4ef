//! `millrace list`: the tunnels that this host has files of, and which of them are up.

use crate::profile;
use clap::{Arg, ArgAction, ArgMatches, Command};
use config::kind::Kind;
use serde::Serialize;
use service::running::{self, Running};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// One tunnel.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) protocol: &'static str,
    /// The process that has it up.
    pub(crate) pid: Option<i32>,
    path: PathBuf,
}

/// The command's own command line.
pub(crate) fn command() -> Command {
    Command::new("list")
        .about("Show the tunnels that this host has files of, and which are up")
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print an array of JSON documents"),
        )
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    let listed = all();
    let hidden = profile::hidden();
    for directory in &hidden {
        let directory = directory.display();
        terminal::note(format_args!(
            "millrace: {directory}: this user may not look into it; run this as root"
        ));
    }
    // Programs and people would take an incomplete list for "no tunnels".
    if listed.is_empty() && !hidden.is_empty() {
        return ExitCode::FAILURE;
    }
    let shown = match matches.get_flag("json") {
        true => serde_json::to_string_pretty(&listed).map(|text| text + "\n"),
        false => Ok(text(&listed)),
    };
    let written = shown
        .map_err(io::Error::from)
        .and_then(|shown| io::stdout().lock().write_all(shown.as_bytes()));
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            log::error!("cannot write the list: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// All that there are.
pub(crate) fn all() -> Vec<Listed> {
    list(profile::all(), &running::all())
}

/// The files, and what is up from elsewhere.
fn list(files: Vec<PathBuf>, running: &[Running]) -> Vec<Listed> {
    let known = files.into_iter().map(|path| {
        let real = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        let up = running.iter().find(|it| it.path == real);
        (path, real, up)
    });
    let known: Vec<_> = known.collect();
    let elsewhere = running
        .iter()
        .filter(|it| known.iter().all(|(_, real, _)| *real != it.path));
    let elsewhere = elsewhere.map(|it| listed(it.path.clone(), Some(it)));
    let known = known.iter().map(|(path, _, up)| listed(path.clone(), *up));
    let mut all: Vec<Listed> = known.chain(elsewhere).collect();
    all.sort_by(|a, b| (&a.name, &a.path).cmp(&(&b.name, &b.path)));
    all
}

fn listed(path: PathBuf, up: Option<&Running>) -> Listed {
    Listed {
        name: running::name_of(&path),
        protocol: protocol_of(&path),
        pid: up.map(|it| it.pid),
        path,
    }
}

fn protocol_of(path: &Path) -> &'static str {
    match Kind::read(path).map(|it| it.0) {
        Ok(Kind::Pptp) => "PPTP",
        Ok(Kind::OpenVpn) => "OpenVPN",
        Ok(Kind::Relay) => "relay",
        Ok(Kind::WireGuard) | Err(_) => "WireGuard",
    }
}

fn text(listed: &[Listed]) -> String {
    if listed.is_empty() {
        return "no tunnels; `millrace import FILE` keeps one\n".to_owned();
    }
    let width = listed.iter().map(|it| it.name.chars().count()).max();
    let width = width.unwrap_or_default();
    let line = |it: &Listed| {
        let state = if it.pid.is_some() { "up" } else { "down" };
        let (name, protocol, path) = (&it.name, it.protocol, it.path.display());
        format!("{name:width$}  {state:4}  {protocol:9}  {path}\n")
    };
    listed.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_what_is_up_are_listed_once() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            fs::canonicalize(path).unwrap()
        };
        let office = file("office.conf", "[Interface]\n");
        let provider = file("a-provider.ovpn", "client\nremote a.example\n");
        let other = file("other.conf", "[Interface]\n");
        let running = |path: &Path, pid| Running {
            pid,
            name: running::name_of(path),
            path: path.to_owned(),
        };
        let up = [running(&office, 7), running(&other, 8)];
        let shown = text(&list(vec![office.clone(), provider.clone()], &up));
        let expected = format!(
            "a-provider  down  OpenVPN    {}\noffice      up    WireGuard  {}\nother       up    WireGuard  {}\n",
            provider.display(),
            office.display(),
            other.display()
        );
        assert_eq!(shown, expected);
        assert!(text(&[]).contains("millrace import"));
    }
}
