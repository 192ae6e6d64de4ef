//! Answers of the process with privileges, from this host.

use crate::list;
use crate::peer::{self, PeerError, Wanted, qr};
use crate::server::place::Waits;
use crate::{profile, server, status};
use config::kind::Kind;
use monitor::back::{Servers, Source};
use monitor::day::TEXT_MAX;
use monitor::question::{Change, Server, What};
use monitor::sample::{GuardView, Known, Sample};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use steer::Way;
use steer::guard::{PartReport, Report, State};
use zeroize::Zeroizing;

/// How often to search for tunnels' files.
const FILES: Duration = Duration::from_secs(15);

/// How often to write the day's rates, which change every five minutes.
const WRITE: Duration = Duration::from_secs(15 * 60);

/// The most servers, and the most clients of each, in an answer.
const MOST: usize = 1000;

/// How to make a server with another name: the page has no field for it.
const ANOTHER: &str =
    "move it away, or make one of another name on this host's shell, by `millrace server init`";

/// This host as a source of samples.
pub(super) struct Host {
    known: Vec<Known>,
    looked: Option<Instant>,
    history: PathBuf,
    /// The text of the day's rates, and the time of the last write.
    day: Option<String>,
    written: Instant,
}

impl Host {
    /// Uses this file for the rates of a day.
    pub(super) fn new(history: &Path) -> Self {
        Self {
            known: Vec::new(),
            looked: None,
            history: history.to_owned(),
            day: None,
            written: Instant::now(),
        }
    }

    /// Writes the day's rates to the file, if they have changed.
    pub(super) fn write(&mut self) {
        let Some(day) = self.day.take() else { return };
        self.written = Instant::now();
        // The front's text is parsed and formatted anew, so that it cannot write anything else into the file.
        let day = monitor::day::Day::from_text(&day).to_text();
        let write = || {
            if let Some(directory) = self.history.parent() {
                fs::create_dir_all(directory)?;
            }
            host::written_file::replace_for_now(&self.history, day.as_bytes(), 0o600)
        };
        if let Err(error) = write() {
            log::warn!("{}: {error}", self.history.display());
        }
    }

    fn look_for_files(&mut self) {
        if self.looked.is_some_and(|it| it.elapsed() < FILES) {
            return;
        }
        self.looked = Some(Instant::now());
        let all = list::all().unwrap_or_default();
        let down = all.into_iter().filter(|it| it.pid.is_none());
        let known = down.map(|it| Known {
            protocol: it.protocol.to_owned(),
            name: it.name,
        });
        self.known = known.take(MOST).collect();
    }
}

impl Source for Host {
    fn sample(&mut self) -> Sample {
        self.look_for_files();
        let (tunnels, trouble) = match status::all() {
            Ok((tunnels, hidden)) => (tunnels, hidden.first().map(ToString::to_string)),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        Sample {
            tunnels,
            known: self.known.clone(),
            guard: crate::guard::brief().map(|it| view(&it)),
            trouble,
        }
    }

    fn day(&mut self) -> String {
        let text = config::file::read_text(&self.history, TEXT_MAX as u64);
        text.map(|it| it.to_string()).unwrap_or_default()
    }

    fn keep(&mut self, day: String) {
        self.day = Some(day);
        if self.written.elapsed() >= WRITE {
            self.write();
        }
    }
}

/// The servers at home on this host.
pub(super) struct AtHome;

impl Servers for AtHome {
    fn servers(&mut self) -> Value {
        let server = |path: &PathBuf| {
            let name = path.display().to_string();
            match peer::list(path) {
                Ok(rows) => {
                    // Another client may have a revoked client's name by now.
                    let clients = rows.into_iter().filter(|it| !it.revoked).take(MOST);
                    let client = |it: peer::Row| json!({"name": it.name, "detail": it.detail});
                    json!({"name": name, "clients": clients.map(client).collect::<Vec<_>>()})
                }
                Err(error) => json!({"name": name, "clients": [], "error": error.to_string()}),
            }
        };
        json!(servers().iter().take(MOST).map(server).collect::<Vec<_>>())
    }

    fn change(&mut self, change: &Change) -> Result<Value, String> {
        // Only listed servers can be named: no other path.
        let mut servers = servers().into_iter();
        let server = servers.find(|it| it.display().to_string() == change.server);
        let server = server.ok_or("there is no such server")?;
        // Symbolic links are followed, as in the command.
        let server = fs::canonicalize(&server).map_err(|error| error.to_string())?;
        changed(&server, change).map_err(|error| error.to_string())
    }

    fn server(&mut self, wanted: &Server) -> Result<Value, String> {
        let make = wanted.make;
        let (subnet, subnet6) = match wanted.subnets.clone() {
            Some([subnet, subnet6]) => (Some(subnet), Some(subnet6)),
            None => (None, None),
        };
        let wanted = server::Wanted {
            openvpn: wanted.openvpn,
            endpoint: Some(wanted.endpoint.clone()).filter(|it| !it.is_empty()),
            lan: wanted.lan.clone(),
            subnet,
            subnet6,
            ..server::Wanted::default()
        };
        let words = |error: server::InitError| error.on_page(ANOTHER);
        let plan = server::plan(&wanted).map_err(words)?;
        let said = match make {
            true => plan.make(Waits::Short).map_err(words)?,
            false => plan.words(),
        };
        Ok(json!({"said": said, "subnets": plan.subnets()}))
    }
}

/// The files of the servers at home.
fn servers() -> Vec<PathBuf> {
    profile::all()
        .into_iter()
        .filter(|it| peer::is_home(it))
        .collect()
}

fn changed(server: &Path, change: &Change) -> Result<Value, PeerError> {
    let lock = peer::lock(server, Waits::Short)?;
    let name = change.name.as_str();
    let mut answer = json!({});
    let said = match &change.what {
        What::Add { lan_only } => {
            let text = RefCell::new(Zeroizing::new(String::new()));
            let wanted = Wanted {
                name,
                lan_only: *lan_only,
                endpoint: None,
                file: None,
                qr: false,
                shown: &text,
            };
            peer::add(server, &wanted)?;
            let is_openvpn = Kind::at(server) == Kind::OpenVpn;
            let text = text.borrow();
            answer["file"] = text.as_str().into();
            answer["ending"] = if is_openvpn { ".ovpn" } else { ".conf" }.into();
            // An OpenVPN file is too long for a QR code that a camera reads.
            let code = if is_openvpn { None } else { qr::rows(&text) };
            answer["code"] = json!(code.as_deref().map(Vec::as_slice));
            format!("{name} may call.")
        }
        What::Revoke => {
            peer::revoke(server, name)?;
            format!("{name} is kept out.")
        }
        What::Rename { to } => {
            peer::rename(server, name, to)?;
            format!("{name} is called {to} now.")
        }
    };
    drop(lock);
    let is_name_only = matches!(change.what, What::Rename { .. });
    let is_told = is_name_only || peer::tell(server, matches!(change.what, What::Add { .. }))?;
    answer["said"] = match is_told {
        true => said,
        false => format!("{said} {}", peer::not_up(server)),
    }
    .into();
    Ok(answer)
}

/// The guard, as the page shows it.
fn view(report: &Report) -> GuardView {
    let held = |part: &PartReport| {
        let why = part.ways.iter().find_map(|way| match way {
            Way::Held(why) => Some(why.to_string()),
            Way::Through { .. } => None,
        })?;
        Some(match report.parts.len() {
            1 => why,
            _ => format!("{}: {why}", part.lan.join(", ")),
        })
    };
    let (why, about) = match report.state {
        State::Off => (String::new(), "It was asked for, and is not in force."),
        State::Held => (
            report
                .held()
                .filter_map(held)
                .collect::<Vec<_>>()
                .join("; "),
            match report.held().count() == report.parts.len() {
                true => "Nothing of the guarded devices leaves the LAN until a tunnel is up.",
                false => {
                    "Nothing of some guarded devices leaves the LAN until a tunnel of theirs is up."
                }
            },
        ),
        State::Through => (
            String::new(),
            "What the guarded devices send leaves by a tunnel or not at all.",
        ),
    };
    let mut rows = crate::guard::rows(report);
    // The page needs unique row names.
    for (place, (name, _)) in rows.iter_mut().enumerate() {
        if name == "note" {
            *name = format!("note {place}");
        }
    }
    GuardView {
        state: report.state.name().to_owned(),
        why,
        about: about.to_owned(),
        rows,
        groups: (report.parts.iter().filter(|_| report.state != State::Off))
            .map(|it| {
                let state = crate::guard::state_of(it).name().to_owned();
                (it.lan.join(","), state)
            })
            .collect(),
        refused: report.refused,
    }
}
