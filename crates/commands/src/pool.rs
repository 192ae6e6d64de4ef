//! `millrace pool`: the servers of a tunnel's pool, and which of them may be used.

use crate::arguments::{flag, text};
use crate::down::{DownError, process_of, signal};
use crate::server::place::{self, Lock, Waits};
use crate::{Outcome, print_json, profile, reload, status};
use clap::{Arg, ArgAction, ArgMatches, Command};
use config::error::ImportError;
use config::kind::Kind;
use config::permissions::Permissions;
use config::pool::{Pool, country, is_pattern};
use config::tunnel::Tunnel;
use config::wgquick;
use nix::sys::signal::Signal;
use serde::Serialize;
use service::running;
use service::status::Status;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use thiserror::Error;
use zeroize::Zeroizing;

/// The command-line definition of `pool`.
pub(crate) fn command() -> Command {
    let patterns = Arg::new("PATTERN")
        .required(true)
        .action(ArgAction::Append)
        .num_args(1..)
        .help("Names, countries (`nl`) or patterns (`nl-*`); `*` for all servers");
    Command::new("pool")
        .about("Show the servers of a tunnel's pool, or use only some of them")
        .arg(
            Arg::new("NAME")
                .required(true)
                .help("The tunnel's name or file"),
        )
        .arg(flag("json", "Print one JSON document"))
        .subcommand(
            Command::new("use")
                .about("Use only servers of these names, at once if the tunnel is up")
                .arg(patterns),
        )
}

/// Why there is no pool to show or to change.
#[derive(Debug, Error)]
enum PoolError {
    #[error("{}: has no [Pool]; `millrace import DIRECTORY` makes one of a provider's files", .0.display())]
    NoPool(PathBuf),
    #[error("{}: an OpenVPN file lists its servers in lines `remote`; `millrace status` shows the one in use", .0.display())]
    OpenVpn(PathBuf),
    #[error("{0}: not a server's name, a country or a pattern such as `nl-*`")]
    Pattern(String),
    #[error("{}: no server fits {patterns}; `millrace pool NAME` lists them", .path.display())]
    NoneFits { path: PathBuf, patterns: String },
    #[error("{0}; the file was not changed")]
    Broken(ImportError),
}

/// A server as the command prints it.
#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    endpoint: String,
    country: String,
    /// Whether the tunnel may use the server.
    chosen: bool,
    in_use: bool,
    /// Seconds since the server did not answer.
    failed_age: Option<u64>,
}

/// A pool as the command prints it.
#[derive(Debug, Serialize)]
struct Document {
    name: String,
    up: bool,
    choose: &'static str,
    #[serde(rename = "use")]
    wanted: Vec<String>,
    servers: Vec<Listed>,
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Outcome {
    let name = text(matches, "NAME").unwrap_or_default();
    let path = profile::find(Path::new(name))?;
    if let Some(("use", matches)) = matches.subcommand() {
        let patterns = matches.get_many::<String>("PATTERN").unwrap_or_default();
        let patterns: Vec<&str> = patterns.flat_map(|it| it.split(',')).collect();
        return choose(&path, &patterns);
    }
    let tunnel = read(&path, &place::read(&path)?)?;
    let name = wgquick::interface_name(&path)?;
    let running = status::now().unwrap_or_default();
    // A user who may not see all processes sees the tunnels of `millrace up`.
    let of_netifd = of_netifd(&path).ok().flatten();
    let interface = of_netifd.map_or_else(|| name.clone(), |(_, device)| device);
    let running = running.iter().find(|it| it.interface == interface);
    let Some(document) = document(&name, &tunnel, running) else {
        return Err(PoolError::NoPool(path).into());
    };
    match matches.get_flag("json") {
        true => print_json(&document)?,
        false => host::terminal::print(document.text())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The tunnel of a file with this text.
fn read(path: &Path, text: &str) -> Result<Tunnel, PoolError> {
    if Kind::of(path, text.as_bytes()) == Kind::OpenVpn {
        return Err(PoolError::OpenVpn(path.to_owned()));
    }
    // Whether scripts may run does not matter here.
    let import = wgquick::parse(text, &path.display().to_string(), Permissions::ALL);
    let (tunnel, _) = import.into_tunnel().map_err(PoolError::Broken)?;
    Ok(tunnel)
}

fn document(name: &str, tunnel: &Tunnel, running: Option<&Status>) -> Option<Document> {
    let Pool { wanted, choose, .. } = tunnel.pool.clone()?;
    let in_use = |name: &String| {
        let mut peers = running.iter().flat_map(|it| &it.peers);
        peers.any(|it| it.name.as_ref() == Some(name))
    };
    let chosen = tunnel.servers();
    let mut all = tunnel.clone();
    if let Some(pool) = &mut all.pool {
        pool.wanted.clear();
    }
    let listed = all.servers().into_iter().map(|server| Listed {
        endpoint: server.endpoint.to_string(),
        country: country(&server.name).to_ascii_lowercase(),
        chosen: chosen.contains(&server),
        in_use: in_use(&server.name),
        failed_age: running.and_then(|it| it.failed_servers.get(&server.name).copied()),
        name: server.name,
    });
    Some(Document {
        name: name.to_owned(),
        up: running.is_some(),
        choose: choose.as_str(),
        wanted,
        servers: listed.collect(),
    })
}

impl Document {
    fn text(&self) -> String {
        let chosen = self.servers.iter().filter(|it| it.chosen).count();
        let patterns = match self.wanted.is_empty() {
            true => String::new(),
            false => format!(" ({})", self.wanted.join(", ")),
        };
        let state = if self.up {
            ""
        } else {
            "; the tunnel is not up"
        };
        let mut out = format!(
            "{}: uses {chosen} of {} servers{patterns}, {}{state}\n",
            self.name,
            self.servers.len(),
            self.choose
        );
        let width = |of: fn(&Listed) -> &str| self.servers.iter().map(|it| of(it).len()).max();
        let name = width(|it| &it.name).unwrap_or(0);
        let endpoint = width(|it| &it.endpoint).unwrap_or(0);
        for it in &self.servers {
            let state = match it.failed_age {
                _ if it.in_use => "in use".to_owned(),
                _ if !it.chosen => "left out".to_owned(),
                Some(age) => format!("did not answer {age} s ago"),
                None => String::new(),
            };
            let line = format!("  {:name$}  {:endpoint$}  {state}", it.name, it.endpoint);
            let _ = writeln!(out, "{}", line.trim_end());
        }
        out
    }
}

/// Writes which servers may be used into the file, and has a running tunnel read it.
fn choose(path: &Path, patterns: &[&str]) -> Outcome {
    if let Some(wrong) = patterns.iter().find(|it| !is_pattern(it)) {
        return Err(PoolError::Pattern(config::shown(wrong)).into());
    }
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
    let _lock = Lock::of(directory.unwrap_or_else(|| Path::new(".")), Waits::Long)?;
    let text = place::read(path)?;
    let tunnel = read(path, &text)?;
    let Some(pool) = &tunnel.pool else {
        return Err(PoolError::NoPool(path.to_owned()).into());
    };
    let patterns = patterns.join(", ");
    let changed = with_use(&text, &patterns);
    let fits = |name: &str| patterns.split(", ").any(|it| config::pool::fits(it, name));
    if !pool.servers.iter().any(|it| fits(&it.name)) {
        let path = path.to_owned();
        return Err(PoolError::NoneFits { path, patterns }.into());
    }
    read(path, &changed)?;
    place::replace(path, changed.as_bytes())?;
    let name = path.display().to_string();
    let process = match of_netifd(path)? {
        Some((pid, _)) => Ok(pid),
        None => process_of(&name, running::all()?),
    };
    match process {
        Ok(pid) => {
            // This changes to the directory of the process, so it comes last.
            reload::judge_process(pid)?;
            signal(&name, pid, Signal::SIGHUP)?;
        }
        Err(DownError::NotRunning { .. }) => {
            let when = "the tunnel is not up; this takes effect when it starts";
            host::terminal::note(format_args!("{name}: {when}"));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// The process and the device of the netifd interface whose section names a file.
#[cfg(feature = "openwrt")]
fn of_netifd(path: &Path) -> Result<Option<(i32, String)>, running::Hidden> {
    let Ok(file) = std::fs::canonicalize(path) else {
        return Ok(None);
    };
    let of = |it: &running::Running| Some((it.pid, crate::netifd::device_with(&file, it)?));
    Ok(running::all()?.iter().find_map(of))
}

/// This build runs no tunnels of netifd.
#[cfg(not(feature = "openwrt"))]
const fn of_netifd(_: &Path) -> Result<Option<(i32, String)>, running::Hidden> {
    Ok(None)
}

/// The text of a file with another `Use` in its pool.
fn with_use(text: &str, patterns: &str) -> Zeroizing<String> {
    let mut out = Zeroizing::new(String::with_capacity(text.len() + patterns.len() + 16));
    let mut is_in_pool = false;
    for line in text.split_inclusive('\n') {
        let comment = line.trim().strip_prefix("#!").map(str::trim);
        let key = comment.and_then(|it| it.split_once('='));
        let is_use = key.is_some_and(|(key, _)| key.trim().eq_ignore_ascii_case("Use"));
        if !(is_in_pool && is_use) {
            out.push_str(line);
        }
        // A section ends at the next head, in comments or not.
        let is_head = |it: &str| it.trim_start().starts_with('[');
        if comment.is_some_and(|it| it.eq_ignore_ascii_case("[Pool]")) {
            is_in_pool = true;
            if patterns != "*" {
                for part in ["#! Use = ", patterns, "\n"] {
                    out.push_str(part);
                }
            }
        } else if is_head(comment.unwrap_or(line)) {
            is_in_pool = false;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "#! [Uplink]\n#! Name = a\n#! Interface = e\n#! [Pool]\n#! use = nl\n#! Server = nl-1 192.0.2.1:1\n\
        #! Server = se-1 192.0.2.2:1\n[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n\
        [Peer]\nPublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\nEndpoint = 192.0.2.1:1\n";

    #[test]
    fn servers_are_listed_with_their_states() {
        let tunnel = read(Path::new("a.conf"), FILE).unwrap();
        let mut status = Status {
            interface: "a".to_owned(),
            ..Status::default()
        };
        status.peers.push(service::status::PeerStatus {
            name: Some("nl-1".to_owned()),
            ..Default::default()
        });
        let shown = document("a", &tunnel, Some(&status)).unwrap().text();
        assert_eq!(
            shown,
            "a: uses 1 of 2 servers (nl), order\n  nl-1  192.0.2.1:1  in use\n  se-1  192.0.2.2:1  left out\n"
        );
        let all = read(Path::new("a.conf"), &with_use(FILE, "*")).unwrap();
        status.failed_servers.insert("se-1".to_owned(), 7);
        let shown = document("a", &all, Some(&status)).unwrap();
        let json = serde_json::to_value(&shown).unwrap();
        assert_eq!(json["servers"][1]["failed_age"], 7);
        let some = document("a", &tunnel, None).unwrap();
        let some = serde_json::to_value(some).unwrap();
        crate::tests::assert_documented("pool", &[json.clone(), some]);
        assert_eq!(json["servers"][0]["country"], "nl");
        assert!(shown.text().contains("uses 2 of 2 servers, order\n"));
        assert!(shown.text().ends_with("  did not answer 7 s ago\n"));
        let down = document("a", &all, None).unwrap().text();
        assert!(down.contains("; the tunnel is not up\n"), "{down}");
    }

    #[test]
    fn the_choice_is_written_into_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.conf");
        std::fs::write(&path, FILE).unwrap();
        let text = || std::fs::read_to_string(&path).unwrap();
        choose(&path, &["se", "nl-*"]).unwrap();
        let expected = FILE.replace("#! use = nl\n", "#! Use = se, nl-*\n");
        assert_eq!(text(), expected);
        choose(&path, &["*"]).unwrap();
        assert_eq!(text(), FILE.replace("#! use = nl\n", ""));
        for (patterns, words) in [("us", "no server fits us"), ("a b", "not a server's name")] {
            let error = choose(&path, &[patterns]).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        assert_eq!(text(), FILE.replace("#! use = nl\n", ""));
        let plain = FILE.split_once("[Interface]").unwrap().1;
        std::fs::write(&path, format!("[Interface]{plain}")).unwrap();
        let error = choose(&path, &["nl"]).unwrap_err().to_string();
        assert!(error.contains("has no [Pool]"), "{error}");
    }
}
