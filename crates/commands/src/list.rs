//! `millrace list`: the tunnels that have files on this host, and whether they are up.

use crate::arguments::flag;
use crate::{Outcome, down, print_json, profile, status};
use clap::{ArgMatches, Command};
use config::kind::Kind;
use serde::Serialize;
use service::running::{self, Hidden, Running};
use service::status::{Status, socket_path};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Protocol of an unreadable file, and state of a process that this user may not ask.
const UNKNOWN: &str = "unknown";

/// A tunnel as `list` prints it.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) protocol: &'static str,
    /// The process that runs the tunnel.
    pub(crate) pid: Option<i32>,
    /// `down` or `up`; for a running tunnel that is not up, its status, or `starting`.
    state: String,
    path: PathBuf,
}

/// The command-line definition of `list`.
pub(crate) fn command() -> Command {
    Command::new("list")
        .about("List the tunnels whose files this host has, and which are up")
        .arg(flag("json", "Print a JSON array"))
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Outcome {
    let mut listed = all()?;
    let hidden = profile::hidden();
    for directory in &hidden {
        let directory = directory.display();
        log::error!("{directory}: this user may not read it; run this as root");
    }
    // Users would read an incomplete list as "no tunnels".
    if listed.is_empty() && !hidden.is_empty() {
        return Ok(ExitCode::FAILURE);
    }
    let mut code = ExitCode::SUCCESS;
    for error in listed.iter().filter_map(|it| Kind::read(&it.path).err()) {
        let remedy = match host::privileges::administers() {
            true => "",
            false => "; run this as root",
        };
        log::error!("{error}{remedy}");
        code = ExitCode::FAILURE;
    }
    if listed.iter().any(|it| it.pid.is_some()) && !tell_states(&mut listed) {
        code = ExitCode::FAILURE;
    }
    match matches.get_flag("json") {
        true => print_json(&listed)?,
        false => host::terminal::print(text(&listed))?,
    }
    Ok(code)
}

/// Fills in the states that running tunnels report. Returns false if this user may not ask some of them.
fn tell_states(listed: &mut [Listed]) -> bool {
    let (statuses, hidden) = match status::all() {
        Ok(all) => all,
        Err(error) => (Vec::new(), vec![error]),
    };
    for error in &hidden {
        log::error!("{error}");
    }
    let of = |status: Status| {
        let pid = down::owner(&socket_path(&status.interface)).ok()?;
        Some((pid, status.state.unwrap_or_default()))
    };
    let states: Vec<(i32, String)> = statuses.into_iter().filter_map(of).collect();
    for it in listed {
        let Some(pid) = it.pid else { continue };
        let state = states.iter().find(|(of, _)| *of == pid);
        it.state = match state.map(|(_, state)| state.as_str()) {
            Some("" | "connected") => "up",
            Some(state) => state,
            None if hidden.is_empty() => "starting",
            None => UNKNOWN,
        }
        .to_owned();
    }
    hidden.is_empty()
}

/// All tunnels; running ones have the state `up`.
pub(crate) fn all() -> Result<Vec<Listed>, Hidden> {
    Ok(list(profile::all(), &running::all()?))
}

/// Lists the files, and running tunnels without a file there.
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
        state: if up.is_some() { "up" } else { "down" }.to_owned(),
        path,
    }
}

fn protocol_of(path: &Path) -> &'static str {
    match Kind::read(path) {
        Ok((Kind::Pptp, _)) => "PPTP",
        Ok((Kind::OpenVpn, _)) => "OpenVPN",
        Ok((Kind::Relay, _)) => "relay",
        #[cfg(feature = "amnezia")]
        Ok((Kind::WireGuard, text)) => with_generation(&text),
        #[cfg(not(feature = "amnezia"))]
        Ok((Kind::WireGuard, _)) => "WireGuard",
        Err(_) => UNKNOWN,
    }
}

/// The protocol of a WireGuard file: `WireGuard`, or `AmneziaWG 2.0`.
#[cfg(feature = "amnezia")]
fn with_generation(text: &[u8]) -> &'static str {
    let text = String::from_utf8_lossy(text);
    let import = config::wgquick::parse(&text, "", config::permissions::Permissions::NONE);
    let tunnel = import.into_tunnel();
    tunnel.map_or("WireGuard", |it| it.0.interface.amnezia.protocol())
}

fn text(listed: &[Listed]) -> String {
    if listed.is_empty() {
        return "no tunnels; `millrace import FILE` adds one\n".to_owned();
    }
    let width = listed.iter().map(|it| it.name.chars().count()).max();
    let width = width.unwrap_or_default();
    let states = listed.iter().map(|it| it.state.len()).max();
    let states = states.unwrap_or_default();
    // `AmneziaWG 2.0` is longer than other names.
    let protocols = match cfg!(feature = "amnezia") {
        true => listed.iter().map(|it| it.protocol.len().max(9)).max(),
        false => Some(9),
    };
    let protocols = protocols.unwrap_or_default();
    let line = |it: &Listed| {
        let (name, state, path) = (&it.name, &it.state, it.path.display());
        format!(
            "{name:width$}  {state:states$}  {:protocols$}  {path}\n",
            it.protocol
        )
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
            started: None,
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

    #[test]
    #[cfg(feature = "amnezia")]
    fn files_of_amneziawg_are_listed_with_their_generation() {
        let directory = tempfile::tempdir().unwrap();
        let key = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
        for (lines, protocol) in [
            ("", "WireGuard"),
            ("Jc = 3\n", "AmneziaWG 1.0"),
            ("H1 = 100-200\n", "AmneziaWG 2.0"),
        ] {
            let path = directory.path().join("office.conf");
            fs::write(&path, format!("[Interface]\nPrivateKey = {key}\n{lines}")).unwrap();
            let shown = text(&list(vec![path.clone()], &[]));
            let expected = format!("office  down  {protocol:9}  {}\n", path.display());
            assert_eq!(shown, expected);
        }
    }

    #[test]
    fn the_json_is_documented() {
        let path = Path::new("/etc/millrace/office.conf");
        let running = Running {
            pid: 7,
            name: "office".to_owned(),
            path: path.to_owned(),
            started: None,
        };
        let samples = [Some(&running), None].map(|up| listed(path.to_owned(), up));
        crate::tests::assert_documented(
            "list",
            &samples.map(|it| serde_json::to_value(it).unwrap()),
        );
    }
}
