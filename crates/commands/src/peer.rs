//! `millrace peer`: manages the clients of a server at home.

mod behind;
mod ccd;
mod chain;
mod change;
mod elsewhere;
mod file;
mod from;
pub(crate) mod issue;
mod list;
mod notes;
pub(crate) mod openvpn;
pub(crate) mod qr;
mod settle;
mod tar;
mod wanted;
mod wireguard;

use crate::arguments::{self, flag, list as values, option};
use crate::down::{DownError, signal};
use crate::profile::DIRECTORY;
use crate::server::NAME;
use crate::server::place::{self, Lock, PlaceError, Waits};
use crate::{Outcome, status};
use change::{keepalive, networks, note};
use clap::{Arg, ArgMatches, Command};
use config::clients::is_name;
pub(crate) use config::clients::joined as secret;
use config::error::ImportError;
use config::kind::Kind;
use config::types::AddressError;
use config::wgquick;
use from::{NOTE_MAX, Table};
use issue::{New, Recipient};
use list::{Filter, Live};
use netio::netlink::NetlinkError;
use nix::sys::signal::Signal;
use serde::Serialize;
use service::running;
use service::status::Status;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use thiserror::Error;

pub(crate) use behind::{check_dns, check_lan, tunnel_networks};
#[cfg(any(feature = "monitor", feature = "openwrt"))]
pub(crate) use change::networks_of;
pub(crate) use change::{Change, seconds};
pub(crate) use issue::{Chosen, Directory, Terms, options};
pub(crate) use notes::{not_up, others, outdated};
pub(crate) use wanted::{Wanted, added};
pub(crate) use wireguard::list_of;

/// The command-line definition of `peer`.
pub(crate) fn command() -> Command {
    let server = || option("server", "SERVER", "The server's name or file").default_value(NAME);
    let name = |id: &'static str, help: &'static str| Arg::new(id).required(true).help(help);
    let about =
        |name: &'static str, about: &'static str| Command::new(name).about(about).arg(server());
    Command::new("peer")
        .about("Add, list, revoke or rename the clients of a server at home")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            about(
                "add",
                "Add a client to a server: make its keys, and print its file",
            )
            .arg(
                name("NAME", "Letters, digits, `-`, `_` and `.`, at most 63")
                    .required(false)
                    .required_unless_present("from"),
            )
            .arg(flag(
                "qr",
                "Print the file as a QR code, for a phone's camera",
            ))
            .arg(
                flag(
                    "json",
                    "Print the file and its QR code as one JSON document",
                )
                .conflicts_with_all(["qr", "file"]),
            )
            .arg(arguments::path(
                "file",
                "OUT",
                "Write the client's file here; it must not exist yet",
            ))
            .arg(flag(
                "full-tunnel",
                "Route all of the client's traffic through the server (the default)",
            ))
            .arg(
                flag(
                    "lan-only",
                    "Route only the client's traffic to the networks at home through the server",
                )
                .conflicts_with("full-tunnel"),
            )
            .arg(option(
                "endpoint",
                "HOST:PORT",
                "Server address for this client, if it differs from the other clients'",
            ))
            .arg(values(
                "behind",
                "PREFIX",
                "A network behind this client, which all others reach; may be given again",
            ))
            .arg(option("note", "TEXT", "A note about this client, for you"))
            .arg(keepalive())
            .arg(
                arguments::path(
                    "from",
                    "TABLE",
                    "Add all clients of a CSV file (name,networks,note), or of - (stdin)",
                )
                .requires("to")
                .conflicts_with_all(["NAME", "qr", "file", "endpoint", "behind", "note"]),
            )
            .args(options().map(|it| it.requires("from")))
            .args(wanted::options()),
        )
        .subcommand(change::command(Command::new("set").arg(server())))
        .subcommand(issue::command(Command::new("reissue").arg(server())))
        .subcommand(
            about("list", "List the clients, and which are connected")
                .arg(flag("all", "Print every client, however many there are"))
                .arg(flag(
                    "down",
                    "Only clients that are not connected, or whose state is unknown",
                ))
                .arg(flag("up", "Only clients that are connected").conflicts_with("down"))
                .arg(flag(
                    "outdated",
                    "Only clients that need a new file, or have not used it yet",
                ))
                .arg(values(
                    "name",
                    "PATTERN",
                    "Only clients with such names: `store-*`, `store-?`; may be given again",
                ))
                .arg(flag("rates", "Wait a second to measure the rates"))
                .arg(flag("json", "Print a JSON array"))
                .arg(flag("csv", "Print a table for other programs").conflicts_with("json")),
        )
        .subcommand(
            about(
                "revoke",
                "Revoke a client; it can no longer connect, at once if the server is up",
            )
            .arg(name(
                "NAME",
                "The client's name, or its public key (WireGuard)",
            )),
        )
        .subcommand(
            about("rename", "Rename a client")
                .arg(name("OLD", "Its name"))
                .arg(name("NEW", "Its new name")),
        )
}

/// Why the change failed.
#[derive(Debug, Error)]
pub(crate) enum PeerError {
    #[error(
        "{0:?} is not a valid name; use at most 63 letters, digits, `-`, `_` and `.`, with a letter or digit first"
    )]
    Name(String),
    #[error(
        "{0}: the file of this name in `client-config-dir` is for all clients without their own; choose another name"
    )]
    Reserved(String),
    #[error("{0}: a client of this name exists; choose another name")]
    Taken(String),
    #[error("{0}: no client has this name; `millrace peer list` shows the names")]
    Absent(String),
    #[error("{}: the server's public address is missing; give --endpoint HOST:PORT, or write `#! [Server]` and `#! \
             Endpoint = HOST:PORT` under its [Interface]", .0.display())]
    NoEndpoint(PathBuf),
    #[error("--endpoint {value}: {error}")]
    Endpoint { value: String, error: AddressError },
    #[error("--behind {value}: {why}")]
    Behind { value: String, why: String },
    #[error("--note: a note has at most {NOTE_MAX} bytes, and no control characters")]
    Note,
    #[error("{0}")]
    Table(String),
    /// Faults of single clients, by their numbers in the command; there is at least one.
    #[error("{}", .0.iter().map(|(_, it)| it.to_string()).collect::<Vec<_>>().join("\n"))]
    Several(Vec<(usize, Self)>),
    #[error("{}: already exists; choose another place, or remove the file", .0.display())]
    Exists(PathBuf),
    #[error("{}: an archive is written without compression; name it FILE.tar", .0.display())]
    Archive(PathBuf),
    #[error(
        "{0}: this server does not know whether the client's file is for all traffic; give --lan-only or --full-tunnel"
    )]
    Unknown(String),
    #[error(
        "{0}: this client has no address of its own in the tunnel, which its file would name; write one into its AllowedIPs"
    )]
    Addressless(String),
    #[cfg(feature = "openwrt")]
    #[error("{name}: {why}")]
    Format { name: String, why: String },
    #[error("{}: {why}", .path.display())]
    Unfit { path: PathBuf, why: &'static str },
    #[error("{}: no address is free for a new client; enlarge the network in `Address`", .0.display())]
    Full(PathBuf),
    #[error(
        "the file has {0} bytes, too many for a QR code that a camera can read; write the file with --file OUT, or --format \
         file, and send it"
    )]
    TooLong(usize),
    #[error(
        "an OpenVPN file is too long for a QR code that a camera can read; write the file with --file OUT.ovpn, or \
         --format file, and send it"
    )]
    OpenVpnCode,
    #[cfg(feature = "amnezia")]
    #[error(
        "a vpn:// link is for clients of WireGuard and AmneziaWG; write the file with --file OUT.ovpn, and send it"
    )]
    OpenVpnLink,
    #[cfg(feature = "openwrt")]
    #[error(
        "OpenWrt has no options for an OpenVPN client: leave --format out, copy the file to /etc/millrace there, and name \
         it in the option `config_file`"
    )]
    OpenVpnOptions,
    #[error("the change is saved, but the running server did not load it: {0}")]
    Signal(DownError),
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error(transparent)]
    Host(#[from] NetlinkError),
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error("the change is saved, but whether a running server must reload is unknown: {0}")]
    Hidden(#[from] running::Hidden),
    #[error(transparent)]
    Authority(#[from] service::openvpn::authority::AuthorityError),
    #[error(transparent)]
    Key(#[from] service::openvpn::authority::KeyFileError),
}

/// A client, active or revoked.
#[derive(Default, Serialize)]
pub(crate) struct Row {
    /// The client's name; `-` for none.
    pub(crate) name: String,
    pub(crate) note: Option<String>,
    /// The client's identity, which never changes: a public key, or a certificate's serial number.
    pub(crate) id: String,
    /// The name in the client's certificate, by which an OpenVPN server knows the client.
    #[serde(skip)]
    pub(crate) common_name: Option<String>,
    /// The identity and other facts, in words.
    pub(crate) detail: String,
    /// The client's addresses in the tunnel; with OpenVPN only of connected clients.
    pub(crate) addresses: Vec<String>,
    /// The networks behind the client.
    pub(crate) behind: Vec<String>,
    /// Whether the client would get the same file today: [`file::CURRENT`], [`file::OUTDATED`], [`file::PENDING`] or
    /// [`file::UNKNOWN`].
    pub(crate) file: &'static str,
    pub(crate) revoked: bool,
    #[serde(flatten)]
    pub(crate) live: Live,
}

/// The JSON document about clients' files in a directory.
#[derive(Serialize)]
struct Written {
    files: Vec<WrittenFile>,
}

/// A client's file in a directory.
#[derive(Serialize)]
struct WrittenFile {
    /// The client's name.
    name: String,
    path: PathBuf,
}

/// Prints which files are in a directory now.
fn tell_written(directory: &Directory<'_>, json: bool) {
    let files = directory.written().into_iter();
    let files: Vec<_> = files
        .map(|(name, path)| WrittenFile { name, path })
        .collect();
    let count = files.len();
    if json {
        let json = serde_json::to_string(&Written { files }).unwrap_or_default();
        host::terminal::line(json);
    }
    let at = directory.path().display();
    host::terminal::note(match count {
        0 => "no client needs a new file".to_owned(),
        _ => format!(
            "clients' files in {at}: {count}. Send each to its client over a confidential channel, then delete it here"
        ),
    });
    let paths = directory.written().into_iter().map(|(_, path)| path);
    tell_long(&paths.collect::<Vec<_>>());
    let uncoded = directory.uncoded();
    if !uncoded.is_empty() {
        host::terminal::note(format_args!(
            "too long for a QR code that a camera can read, and written as files (.conf): {}",
            uncoded.join(", ")
        ));
    }
}

/// Names files of WireGuard clients whose names are too long for the interface at the client.
fn tell_long(files: &[PathBuf]) {
    let is_long = |it: &&PathBuf| {
        let is_plain = it.extension().is_some_and(|it| it == "conf");
        is_plain && wgquick::interface_name(it).is_err()
    };
    let long = files.iter().filter(is_long);
    let long: Vec<String> = long.map(|it| it.display().to_string()).collect();
    if !long.is_empty() {
        host::terminal::note(format_args!(
            "a client's interface gets the name of its file, with at most 15 characters: rename at the client: {}",
            long.join(", ")
        ));
    }
}

fn checked(name: &str) -> Result<&str, PeerError> {
    match is_name(name) {
        true => Ok(name),
        false => Err(PeerError::Name(name.to_owned())),
    }
}

/// Runs a subcommand. It prints only after all work, as a slow reader must not hold up the lock.
pub(crate) fn run(matches: &ArgMatches) -> Outcome {
    let Some((command, matches)) = matches.subcommand() else {
        return Ok(ExitCode::from(2));
    };
    let text = |id: &str| arguments::text(matches, id).unwrap_or_default();
    let path = place::find(text("server"), Path::new(DIRECTORY))?;
    // Before the lock, as the standard input may be slow.
    let table = match command {
        "add" => arguments::file(matches, "from").map(Table::read),
        _ => None,
    };
    let table = table.transpose()?;
    let lock = lock(&path, Waits::Long)?;
    if let Some(table) = table {
        from_table(&path, table, matches, lock)?;
        return Ok(ExitCode::SUCCESS);
    }
    match command {
        "list" => {
            let mut rows = list(&path, true)?;
            drop(lock);
            if let Err(why) = join(&path, &mut rows, matches.get_flag("rates")) {
                let words = format_args!("cannot tell who is connected: {why}");
                host::terminal::note(words);
            }
            let filter = Filter {
                all: matches.get_flag("all"),
                down: matches.get_flag("down"),
                up: matches.get_flag("up"),
                outdated: matches.get_flag("outdated"),
                names: arguments::values(matches, "name").unwrap_or_default(),
            };
            let (json, csv) = (matches.get_flag("json"), matches.get_flag("csv"));
            if json || csv {
                filter.apply(&mut rows);
            }
            host::terminal::text(match (json, csv) {
                (true, _) => serde_json::to_string(&rows).unwrap_or_default() + "\n",
                (_, true) => list::csv(&rows),
                _ => list::text(&running::name_of(&path), rows, &filter),
            });
        }
        "add" => {
            let endpoint = arguments::text(matches, "endpoint").map(|value| {
                value.parse().map_err(|error| PeerError::Endpoint {
                    value: value.to_owned(),
                    error,
                })
            });
            let shown = RefCell::default();
            let wanted = Wanted {
                name: checked(text("NAME"))?,
                terms: Terms {
                    lan_only: matches.get_flag("lan-only"),
                    endpoint: endpoint.transpose()?,
                },
                file: arguments::file(matches, "file"),
                qr: matches.get_flag("qr"),
                #[cfg(feature = "amnezia")]
                link: matches.get_flag("link"),
                behind: networks(matches)?,
                note: note(matches)?.flatten(),
                keepalive: matches.get_one::<u16>("keepalive").copied(),
                shown: &shown,
            };
            add(&path, &wanted)?;
            let is_plain = wanted.behind.is_empty();
            let others = if is_plain { None } else { others(&path) };
            drop(lock);
            let told = tell(&path, is_plain);
            let shown = shown.borrow();
            match matches.get_flag("json") {
                true => host::terminal::say(added(wanted.name, &shown).as_str()),
                false if shown.is_empty() => {}
                false => host::terminal::say(shown.trim_end_matches('\n')),
            }
            if let Some(file) = wanted.file {
                host::terminal::note(format_args!(
                    "{} is for {}: send it over a confidential channel, then delete it here",
                    file.display(),
                    wanted.name
                ));
                tell_long(&[file.to_owned()]);
            }
            others.into_iter().for_each(host::terminal::note);
            if !told? {
                host::terminal::note(not_up(&path));
            }
        }
        "set" => {
            let change = Change::of(matches)?;
            set(&path, text("NAME"), &change)?;
            let is_plain = change.behind.is_none();
            let others = if is_plain { None } else { others(&path) };
            drop(lock);
            let told = tell(&path, is_plain);
            others.into_iter().for_each(host::terminal::note);
            if !told? {
                host::terminal::note(not_up(&path));
            }
        }
        "reissue" => {
            let directory = Directory::of(matches, &path);
            let left = reissue(&path, &Chosen::of(matches), &directory)?;
            drop(lock);
            tell_reissued(&path, &left, &directory, matches.get_flag("json"))?;
        }
        "revoke" => {
            let name = text("NAME");
            let rows = list(&path, false)?.into_iter();
            let mut rows = rows.filter(|it| !it.revoked && (it.name == name || it.id == name));
            let is_plain = rows.all(|it| it.behind.is_empty());
            revoke(&path, name)?;
            let others = if is_plain { None } else { others(&path) };
            drop(lock);
            host::terminal::note(format_args!("{name} is revoked: it can no longer connect"));
            others.into_iter().for_each(host::terminal::note);
            match tell(&path, false)? {
                true => notes::hung(&path)
                    .into_iter()
                    .for_each(host::terminal::note),
                false => host::terminal::note(not_up(&path)),
            }
        }
        _ => {
            let (old, new) = (text("OLD"), text("NEW"));
            rename(&path, old, new)?;
            drop(lock);
            host::terminal::note(format_args!("{old} is now called {new}"));
            // A server shows the name.
            tell(&path, false)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes new files for clients of the server at `path`. Returns clients that were left out.
pub(crate) fn reissue(
    path: &Path,
    chosen: &Chosen,
    files: &dyn Recipient,
) -> Result<Vec<String>, PeerError> {
    match Kind::at(path) {
        Kind::OpenVpn => openvpn::reissue(path, chosen, files),
        _ => wireguard::reissue(path, chosen, files),
    }
}

/// Tells the server of new files, and the user where they are. `left` has the clients that were left out.
pub(crate) fn tell_reissued(
    path: &Path,
    left: &[String],
    directory: &Directory<'_>,
    json: bool,
) -> Result<(), PeerError> {
    let told = tell(path, false);
    tell_written(directory, json);
    if !left.is_empty() {
        host::terminal::note(format_args!(
            "left out, as this server does not know their files: {}. Name each, with --lan-only or --full-tunnel",
            left.join(", ")
        ));
    }
    if !told? {
        host::terminal::note(not_up(path));
    }
    Ok(())
}

/// Adds the clients of a table.
fn from_table(
    path: &Path,
    table: Table,
    matches: &ArgMatches,
    lock: Lock,
) -> Result<(), PeerError> {
    let table = table.sound(|new| behind::faults(path, new))?;
    let directory = Directory::of(matches, path);
    let terms = Terms {
        lan_only: matches.get_flag("lan-only"),
        endpoint: None,
    };
    let clients = table.clients(matches.get_one::<u16>("keepalive").copied());
    let networks: Vec<_> = clients.iter().map(|it| it.behind).collect();
    let added = behind::check_outside(path, &networks);
    let added = added.and_then(|()| add_all(path, &terms, &clients, &directory));
    added.map_err(|it| table.explain(it))?;
    let is_plain = clients.iter().all(|it| it.behind.is_empty());
    let others = if is_plain { None } else { others(path) };
    drop(lock);
    let told = tell(path, is_plain);
    tell_written(&directory, matches.get_flag("json"));
    others.into_iter().for_each(host::terminal::note);
    if !told? {
        host::terminal::note(not_up(path));
    }
    Ok(())
}

/// Whether a file is a server's, in the form that `millrace server init` writes.
pub(crate) fn is_home(path: &Path) -> bool {
    match path.extension().and_then(|it| it.to_str()) {
        Some("ovpn") => openvpn::Store::of(path).list().is_file(),
        Some("conf") => wireguard::is_home(path),
        _ => false,
    }
}

/// Locks the server's files against other processes.
pub(crate) fn lock(path: &Path, waits: Waits) -> Result<Lock, PeerError> {
    Ok(Lock::of(path.parent().unwrap_or(path), waits)?)
}

/// Adds a client.
pub(crate) fn add(path: &Path, wanted: &Wanted<'_>) -> Result<(), PeerError> {
    let new = New {
        name: checked(wanted.name)?,
        behind: &wanted.behind,
        note: wanted.note.as_deref(),
        keepalive: wanted.keepalive,
    };
    behind::check_outside(path, &[&wanted.behind])?;
    add_all(path, &wanted.terms, &[new], wanted)
}

/// Adds clients: all, or none after an error.
fn add_all(
    path: &Path,
    terms: &Terms,
    new: &[New<'_>],
    files: &dyn Recipient,
) -> Result<(), PeerError> {
    let kind = Kind::at(path);
    files.check(kind, &mut new.iter().map(|it| it.name))?;
    match kind {
        Kind::OpenVpn => openvpn::add(path, terms, new, files),
        _ => wireguard::add(path, terms, new, files),
    }
}

/// Lists the clients. With `settles`, which needs the [`lock`], old files end whose clients use new ones.
pub(crate) fn list(path: &Path, settles: bool) -> Result<Vec<Row>, PeerError> {
    match Kind::at(path) {
        Kind::OpenVpn => openvpn::list(path, settles),
        _ => wireguard::list(path, settles),
    }
}

/// Changes a client.
pub(crate) fn set(path: &Path, name: &str, change: &Change) -> Result<(), PeerError> {
    if let Some(behind) = &change.behind {
        behind::check_outside(path, &[behind])?;
    }
    match Kind::at(path) {
        Kind::OpenVpn => openvpn::set(path, name, change),
        _ => wireguard::set(path, name, change),
    }
}

/// Revokes a client.
pub(crate) fn revoke(path: &Path, name: &str) -> Result<(), PeerError> {
    match Kind::at(path) {
        Kind::OpenVpn => openvpn::revoke(path, name),
        _ => wireguard::revoke(path, name),
    }
}

/// Renames a client.
pub(crate) fn rename(path: &Path, old: &str, new: &str) -> Result<(), PeerError> {
    checked(new)?;
    match Kind::at(path) {
        Kind::OpenVpn => openvpn::rename(path, old, new),
        _ => wireguard::rename(path, old, new),
    }
}

/// Whether a netifd interface uses a file.
#[cfg(feature = "openwrt")]
fn interface_has(interface: &Path, file: &Path) -> bool {
    crate::netifd::file_of(interface).is_some_and(|it| it == file)
}

#[cfg(not(feature = "openwrt"))]
const fn interface_has(_: &Path, _: &Path) -> bool {
    false
}

/// The process that runs a server.
fn process(path: &Path) -> Result<Option<running::Running>, running::Hidden> {
    let runs = |it: &running::Running| it.path == path || interface_has(&it.path, path);
    Ok(running::all()?.into_iter().find(runs))
}

/// Adds to the clients which of them are connected. Returns the reason if that cannot be told.
pub(crate) fn join(path: &Path, rows: &mut [Row], rates: bool) -> Result<(), String> {
    list::join(rows, &live(path, rates)?);
    Ok(())
}

/// The status of a running server, or why there is none.
fn live(path: &Path, rates: bool) -> Result<Status, String> {
    let found = process(path).map_err(|error| error.to_string())?;
    let name = running::name_of(path);
    let Some(found) = found else {
        return Err(notes::not_running(&name));
    };
    let status = status::of_process(found.pid, rates).map_err(|error| error.to_string())?;
    status.ok_or_else(|| format!("{name} is still starting"))
}

/// Has the server's process read its file again, without disturbing clients. Returns false if no process runs it. With
/// `is_list` only the list of clients has changed, which an OpenVPN server does not read.
pub(crate) fn tell(path: &Path, is_list: bool) -> Result<bool, PeerError> {
    let Some(found) = process(path)? else {
        return Ok(false);
    };
    if is_list && Kind::at(path) == Kind::OpenVpn {
        return Ok(true);
    }
    signal(&found.name, found.pid, Signal::SIGHUP).map_err(PeerError::Signal)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_without_a_choice_names_all_choices() {
        for (words, choices) in [
            (
                &["peer", "set", "a"][..],
                ["--behind", "--note", "--keepalive"],
            ),
            (
                &["peer", "reissue", "--to", "z"],
                ["NAME", "--outdated", "--all"],
            ),
        ] {
            let error = command().try_get_matches_from(words).unwrap_err();
            let error = error.to_string();
            assert!(choices.iter().all(|it| error.contains(it)), "{error}");
        }
        for words in [
            &["peer", "set", "a", "--note", "x", "--behind", "none"][..],
            &["peer", "reissue", "a", "b", "--to", "z"],
        ] {
            assert!(command().try_get_matches_from(words).is_ok(), "{words:?}");
        }
        let both = ["peer", "reissue", "a", "--all", "--to", "z"];
        assert!(command().try_get_matches_from(both).is_err());
    }

    #[test]
    fn the_json_is_documented() {
        let plain = || Row {
            name: "phone".to_owned(),
            note: Some("for tests".to_owned()),
            id: "key".to_owned(),
            detail: "key  10.7.0.2/32".to_owned(),
            addresses: vec!["10.7.0.2/32".to_owned()],
            behind: vec!["192.168.7.0/24".to_owned()],
            file: file::CURRENT,
            ..Row::default()
        };
        let row = |row| serde_json::to_value(row).unwrap();
        let rows = [
            row(list::tests::full(plain())),
            row(Row {
                note: None,
                ..plain()
            }),
        ];
        crate::tests::assert_documented("peer list", &rows);
        let written = Written {
            files: vec![WrittenFile {
                name: "phone".to_owned(),
                path: "to/phone.conf".into(),
            }],
        };
        let written = serde_json::to_value(written).unwrap();
        crate::tests::assert_documented("peer add --from` and `peer reissue", &[written]);
        let added = ["short", &"long".repeat(1000)].map(|it| added("phone", it));
        let added = added.map(|it| serde_json::from_str(&it).unwrap());
        crate::tests::assert_documented("peer add", &added);
    }
}
