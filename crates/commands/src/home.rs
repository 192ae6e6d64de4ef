//! Servers at home for web pages, LuCI's and that of `millrace monitor`: lists, plans and makes them, and changes their
//! clients.

use crate::peer::issue::{Chosen, Issued, Recipient};
use crate::peer::{self, Change, PeerError, Terms, Wanted, qr};
use crate::profile::{self, DIRECTORY};
use crate::server;
use crate::server::place::Waits;
use config::kind::Kind;
use config::types::AllowedIp;
use serde::Deserialize;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The arguments of all methods.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Given {
    /// A server, by the path that `peers` returns.
    server: String,
    /// A client, or a new server.
    name: String,
    /// A client's new name.
    to: String,
    lan_only: bool,
    /// Networks behind a client, separated by spaces or commas.
    behind: String,
    openvpn: bool,
    endpoint: String,
    /// Networks at home, separated by spaces or commas.
    lan: String,
    subnet: String,
    subnet6: String,
}

/// Answers a page; files of new servers go into the directory `keep`.
pub(crate) fn call(method: &str, given: &Given, keep: &Path) -> Result<Value, String> {
    match method {
        "peers" => Ok(servers(keep)),
        "peer_add" => add(given, &named(given, keep)?),
        "peer_set" => {
            let server = named(given, keep)?;
            let behind = peer::networks_of(&given.behind).map_err(|error| error.to_string())?;
            let said = match &behind[..] {
                [] => format!("No network is behind {} now.", given.name),
                all => format!("Behind {} now: {}.", given.name, listed(all)),
            };
            let wanted = Change::behind(behind);
            change(&server, || peer::set(&server, &given.name, &wanted))?;
            Ok(json!({"said": said, "note": notes(peer::others(&server), tell(&server, false)?)}))
        }
        "peer_reissue" => reissue(given, &named(given, keep)?),
        "peer_revoke" => {
            let server = named(given, keep)?;
            change(&server, || peer::revoke(&server, &given.name))?;
            let said = format!("{} can no longer connect.", given.name);
            Ok(json!({"said": said, "note": tell(&server, false)?}))
        }
        "peer_rename" => {
            let server = named(given, keep)?;
            change(&server, || peer::rename(&server, &given.name, &given.to))?;
            tell(&server, false)?;
            Ok(json!({"said": format!("{} is now called {}.", given.name, given.to)}))
        }
        "server_plan" => make(given, keep, false),
        "server_init" => make(given, keep, true),
        _ => Err(format!("unknown method {}", config::shown(method))),
    }
}

/// All servers at home, with the clients of each.
fn servers(keep: &Path) -> Value {
    let server = |path: PathBuf| {
        let name = path.display().to_string();
        // While another command holds the lock, the list is only read.
        let lock = peer::lock(&path, Waits::Short);
        match peer::list(&path, lock.is_ok()) {
            Ok(mut peers) => {
                let why = peer::join(&path, &mut peers, false).err();
                json!({"server": name, "peers": peers, "note": why})
            }
            Err(error) => json!({"server": name, "peers": [], "error": error.to_string()}),
        }
    };
    json!({"servers": files(keep).into_iter().map(server).collect::<Vec<_>>()})
}

/// The servers' files: those that pages have stored, and those in the usual places of tunnels.
fn files(keep: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = match keep == Path::new(DIRECTORY) {
        true => profile::all(),
        false => {
            let entries = fs::read_dir(keep).into_iter().flatten().flatten();
            entries.map(|it| it.path()).collect()
        }
    };
    all.retain(|it| it.is_file() && peer::is_home(it));
    all.sort();
    all
}

/// Finds a server by its listed path; no other path is accepted.
fn named(given: &Given, keep: &Path) -> Result<PathBuf, String> {
    let mut all = files(keep).into_iter();
    let found = all.find(|it| it.display().to_string() == given.server);
    let found = found.ok_or("this server does not exist")?;
    // Symbolic links are followed, as in the command.
    fs::canonicalize(&found).map_err(|error| error.to_string())
}

/// Changes a server's clients under its lock.
fn change(server: &Path, work: impl FnOnce() -> Result<(), PeerError>) -> Result<(), String> {
    let change = || {
        let _lock = peer::lock(server, Waits::Short)?;
        work()
    };
    change().map_err(|error| error.to_string())
}

/// Has the server's process apply the change; returns a note if no process runs the server.
fn tell(server: &Path, is_list: bool) -> Result<Option<String>, String> {
    match peer::tell(server, is_list) {
        Ok(true) => Ok(None),
        Ok(false) => Ok(Some(peer::not_up(server))),
        Err(error) => Err(error.to_string()),
    }
}

fn listed(networks: &[AllowedIp]) -> String {
    let words: Vec<String> = networks.iter().map(ToString::to_string).collect();
    words.join(", ")
}

/// Two notes as one.
fn notes(one: Option<String>, other: Option<String>) -> Option<String> {
    let all: Vec<String> = one.into_iter().chain(other).collect();
    (!all.is_empty()).then(|| all.join(". "))
}

fn add(given: &Given, server: &Path) -> Result<Value, String> {
    let file = RefCell::default();
    let wanted = Wanted {
        name: &given.name,
        terms: Terms {
            lan_only: given.lan_only,
            endpoint: None,
        },
        file: None,
        qr: false,
        #[cfg(feature = "amnezia")]
        link: false,
        behind: peer::networks_of(&given.behind).map_err(|error| error.to_string())?,
        note: None,
        keepalive: None,
        shown: &file,
    };
    change(server, || peer::add(server, &wanted))?;
    // The answer has the only copy of the client's file, so it is shown even if telling the server fails.
    let is_plain = wanted.behind.is_empty();
    let others = if is_plain { None } else { peer::others(server) };
    let note = notes(others, tell(server, is_plain).unwrap_or_else(Some));
    let said = format!("{} can now connect.", given.name);
    Ok(handed(
        given,
        server,
        &file.borrow(),
        &said,
        note.as_deref(),
    ))
}

/// A client's new file; the server admits the old one too, until the new one is used.
#[derive(Default)]
struct NewFile(RefCell<Zeroizing<String>>);

impl Recipient for NewFile {
    fn check(&self, _: Kind, _: &mut dyn Iterator<Item = &str>) -> Result<(), PeerError> {
        Ok(())
    }

    fn take(&self, files: &[Issued]) -> Result<(), PeerError> {
        if let Some(file) = files.first() {
            self.0.replace(file.text.clone());
        }
        Ok(())
    }

    fn give_back(&self) {
        self.0.take();
    }
}

fn reissue(given: &Given, server: &Path) -> Result<Value, String> {
    let file = NewFile::default();
    let made = || {
        let _lock = peer::lock(server, Waits::Short)?;
        peer::reissue(server, &Chosen::one(&given.name), &file)
    };
    made().map_err(|error| match error {
        PeerError::Unknown(name) => format!(
            "this server does not know whether the file of {name} is for all traffic; run millrace peer reissue {name} \
             on the router's shell, with --lan-only or --full-tunnel"
        ),
        error => error.to_string(),
    })?;
    let note = tell(server, false).unwrap_or_else(Some);
    let said = format!(
        "{} has a new file; its old one is good until the new one is used.",
        given.name
    );
    Ok(handed(
        given,
        server,
        &file.0.borrow(),
        &said,
        note.as_deref(),
    ))
}

/// The answer with a client's file.
fn handed(given: &Given, server: &Path, file: &str, said: &str, note: Option<&str>) -> Value {
    let code = qr::rows(file);
    let ending = match Kind::at(server) {
        Kind::OpenVpn => ".ovpn",
        _ => ".conf",
    };
    json!({
        "said": said,
        "name": given.name,
        "file": file,
        "ending": ending,
        "qr": code.as_deref().map(Vec::as_slice),
        "note": note,
    })
}

/// Shows the plan of a server, with the chosen client networks; or makes the server.
fn make(given: &Given, keep: &Path, make: bool) -> Result<Value, String> {
    let text = |it: &str| Some(it.trim().to_owned()).filter(|it| !it.is_empty());
    let lan = given.lan.split([' ', ',']).filter(|it| !it.is_empty());
    let wanted = server::Wanted {
        openvpn: given.openvpn,
        name: text(&given.name),
        directory: Some(keep.to_owned()),
        endpoint: text(&given.endpoint),
        lan: lan.map(str::to_owned).collect(),
        subnet: text(&given.subnet),
        subnet6: text(&given.subnet6),
        ..server::Wanted::default()
    };
    let words = |error: server::InitError| error.on_page();
    let plan = server::plan(&wanted).map_err(words)?;
    let [subnet, subnet6] = plan.subnets();
    let said = match make {
        true => plan.make(Waits::Short).map_err(words)?,
        false => plan.words(),
    };
    Ok(json!({"said": said, "subnet": subnet, "subnet6": subnet6}))
}
