//! `millrace import` of a directory or an archive: a provider's files, one for each server, become one tunnel with a
//! pool of servers.

mod openvpn;
mod unpacked;

use super::ImportingError;
use crate::arguments::{list, option, parsed, text, values};
use crate::up::wireguard::has_much;
use clap::{ArgMatches, Command};
use config::clients::is_name;
use config::file;
use config::kind::Kind;
use config::permissions::Permissions;
use config::pool::{Choose, Pool, Server, country, fits};
use config::tunnel::Tunnel;
use config::wgquick;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;
use unpacked::Unpacked;
use zeroize::Zeroizing;

/// Largest file of a server, in bytes. An OpenVPN file with its keys has ten thousand.
const SIZE_MAX: u64 = 64 << 10;

/// Maximum number of files, and of entries of a directory.
const FILES_MAX: usize = config::pool::SERVERS_MAX;
const ENTRIES_MAX: usize = 20_000;

/// Depth of directories in an archive whose files count.
const DEPTH_MAX: usize = 4;

/// The file of netifd's interfaces, on OpenWrt.
const NETIFD: &str = "/etc/config/network";

/// Number of countries that the result names.
const COUNTRIES_MAX: usize = 5;

/// Why files do not make one pool.
#[derive(Debug, Error)]
pub(crate) enum PoolError {
    #[error("--only and --choose are for a directory or an archive with several files")]
    OneFile,
    #[error("{}: no file in it is called *.conf or *.ovpn", .0.display())]
    Nothing(PathBuf),
    #[error("{}: no file in it fits --only {only}", .at.display())]
    NoneFits { at: PathBuf, only: String },
    #[error("{}: more than {FILES_MAX} files; name some with --only, or unpack it and import a directory with fewer", .0.display())]
    Many(PathBuf),
    #[error("{0}: larger than 64 KiB, so not the file of a server")]
    Large(String),
    #[error("{file}: {error}")]
    File { file: String, error: io::Error },
    #[error("{}: its files have more than 8 MiB; unpack it, and import a directory with fewer", .0.display())]
    Big(PathBuf),
    #[error("{}: cannot be unpacked: it is damaged, a file in it is larger than 64 KiB, or this system's `tar` cannot \
             read it; unpack it yourself and import the directory", .0.display())]
    Damaged(PathBuf),
    #[error(
        "{0} is missing; install the package `{0}`, or unpack the archive elsewhere and import the directory"
    )]
    NoProgram(&'static str),
    #[error("{first} is for {}, {second} is for {}; import them separately", .kinds[0], .kinds[1])]
    Mixed {
        first: String,
        second: String,
        kinds: [&'static str; 2],
    },
    #[error("{0}: a pool is made of WireGuard or OpenVPN files")]
    Kind(String),
    #[error(
        "{first} and {second} differ in {what}, so they are not servers of one account; import them separately"
    )]
    Differ {
        first: String,
        second: String,
        what: String,
    },
    #[error("{file}: {why}")]
    Unfit { file: String, why: String },
    #[error("{0}: two files give this name to a server; rename one")]
    Twice(String),
    #[error("--choose fastest is for WireGuard; choose `order` or `random` for OpenVPN files")]
    Fastest,
}

/// A file of a server.
struct Member {
    /// The server's name: the file's name without its ending.
    name: String,
    /// The file's name, for messages.
    file: String,
    text: Zeroizing<String>,
}

/// The contents of a directory or an archive, as one file.
pub(super) struct Gathered {
    /// The text of one tunnel's file.
    pub(super) text: Zeroizing<String>,
    /// The servers in words.
    pub(super) summary: String,
}

/// How the servers are chosen.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice {
    /// Patterns of names; empty for all servers.
    pub(super) only: Vec<String>,
    pub(super) choose: Choose,
}

/// Adds the options for several files.
pub(super) fn arguments(command: Command) -> Command {
    let patterns = parsed(
        list(
            "only",
            "PATTERN",
            "Of several files, use only these servers: names, countries (`nl`), patterns (`nl-*`)",
        )
        .value_delimiter(','),
        |word| config::pool::is_pattern(word).then(|| word.to_owned()),
        "write a server's name, a country or a pattern such as nl-*",
    );
    let choose = option(
        "choose",
        "WHICH",
        "Of several servers, call first: the first in `order`, any (`random`), or the `fastest` to answer (WireGuard)",
    );
    command
        .arg(patterns)
        .arg(choose.value_parser(Choose::ALL.map(Choose::as_str)))
}

impl From<&ArgMatches> for Choice {
    fn from(matches: &ArgMatches) -> Self {
        let choose = text(matches, "choose").unwrap_or_default();
        let choose = Choose::ALL.into_iter().find(|it| it.as_str() == choose);
        Self {
            only: values(matches, "only").unwrap_or_default(),
            choose: choose.unwrap_or_default(),
        }
    }
}

impl Choice {
    fn takes(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|it| fits(it, name))
    }
}

/// Makes one tunnel's file of the files in a directory or an archive; `None` if `source` is a single file. Archives are
/// unpacked in a new directory in `scratch`, which is removed again.
pub(super) fn gather(
    source: &Path,
    choice: &Choice,
    scratch: &Path,
) -> Result<Option<Gathered>, ImportingError> {
    let unpacked = match source.is_dir() {
        true => None,
        false => match Unpacked::new(source, scratch)? {
            Some(unpacked) => Some(unpacked),
            None if choice.only.is_empty() && choice.choose == Choose::default() => {
                return Ok(None);
            }
            None => return Err(PoolError::OneFile.into()),
        },
    };
    let directory = unpacked.as_ref().map_or(source, |it| it.directory());
    let depth = unpacked.as_ref().map_or(0, |_| DEPTH_MAX);
    let members = members(source, directory, depth, choice)?;
    let kind = |it: &Member| Kind::of(Path::new(&it.file), it.text.as_bytes());
    let Some(first) = members.first() else {
        return Err(PoolError::Nothing(source.to_owned()).into());
    };
    if let Some(second) = members.iter().find(|it| kind(it) != kind(first)) {
        return Err(PoolError::Mixed {
            first: first.file.clone(),
            second: second.file.clone(),
            kinds: [kind(first).as_str(), kind(second).as_str()],
        }
        .into());
    }
    let used: Vec<&Member> = members.iter().filter(|it| choice.takes(&it.name)).collect();
    let Some(leader) = used.first() else {
        return Err(PoolError::NoneFits {
            at: source.to_owned(),
            only: choice.only.join(","),
        }
        .into());
    };
    let text = match kind(first) {
        Kind::WireGuard => wireguard(&members, leader, choice)?,
        Kind::OpenVpn => openvpn::joined(&used, choice.choose)?,
        _ => return Err(PoolError::Kind(first.file.clone()).into()),
    };
    let names: Vec<&str> = used.iter().map(|it| it.name.as_str()).collect();
    let summary = summary(&names, choice.choose);
    Ok(Some(Gathered { text, summary }))
}

/// Reads the servers' files, in the order of their names.
fn members(
    source: &Path,
    directory: &Path,
    depth: usize,
    choice: &Choice,
) -> Result<Vec<Member>, PoolError> {
    let mut paths = Vec::new();
    collect(directory, depth, &mut paths).map_err(|error| PoolError::File {
        file: directory.display().to_string(),
        error,
    })?;
    paths.sort();
    let name = |path: &PathBuf| name_of(&path.file_stem().unwrap_or_default().to_string_lossy());
    if paths.len() > FILES_MAX {
        paths.retain(|path| choice.takes(&name(path)));
    }
    if paths.len() > FILES_MAX {
        return Err(PoolError::Many(source.to_owned()));
    }
    let mut members: Vec<Member> = Vec::with_capacity(paths.len());
    for path in paths {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let (name, file) = (name(&path), config::shown(&file));
        let text = file::read_text(&path, SIZE_MAX).map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge => PoolError::Large(file.clone()),
            _ => PoolError::File {
                file: file.clone(),
                error,
            },
        })?;
        if members.iter().any(|it| it.name == name) {
            return Err(PoolError::Twice(name));
        }
        members.push(Member { name, file, text });
    }
    Ok(members)
}

/// Finds the files that may be servers' down to this depth. Links are left out: they could lead anywhere.
fn collect(directory: &Path, depth: usize, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    for (number, entry) in fs::read_dir(directory)?.enumerate() {
        if number == ENTRIES_MAX {
            let words = "too many files; move those of the servers into a directory of their own";
            return Err(io::Error::other(words));
        }
        let path = entry?.path();
        let data = fs::symlink_metadata(&path)?;
        if data.is_dir() && depth > 0 {
            collect(&path, depth - 1, paths)?;
        }
        let ending = path.extension().and_then(|it| it.to_str());
        if data.is_file() && data.nlink() == 1 && matches!(ending, Some("conf" | "ovpn")) {
            paths.push(path);
        }
    }
    Ok(())
}

/// The name of a server whose file has this name.
fn name_of(stem: &str) -> String {
    let plain = |c: char| match c {
        c if c.is_ascii_alphanumeric() || "-_.".contains(c) => c,
        _ => '-',
    };
    let name: String = stem.chars().map(plain).take(63).collect();
    match is_name(&name) {
        true => name,
        false => format!("server{}", name.get(..57).unwrap_or(&name)),
    }
}

/// The file of one member, with the servers of all of them in a section `[Pool]`.
fn wireguard(
    members: &[Member],
    leader: &Member,
    choice: &Choice,
) -> Result<Zeroizing<String>, PoolError> {
    let mut first: Option<Tunnel> = None;
    let mut servers = Vec::with_capacity(members.len());
    for member in members {
        let unfit = |why: String| PoolError::Unfit {
            file: member.file.clone(),
            why,
        };
        let import = wgquick::parse(&member.text, &member.file, Permissions::NONE);
        let tunnel = import
            .into_tunnel()
            .map_err(|error| unfit(error.to_string()));
        let (mut tunnel, _) = tunnel?;
        let [peer] = &mut tunnel.peers[..] else {
            return Err(unfit("needs exactly one [Peer]".to_owned()));
        };
        let Some(endpoint) = peer.endpoint.take() else {
            return Err(unfit("its [Peer] has no Endpoint".to_owned()));
        };
        let key = std::mem::take(&mut peer.public_key);
        peer.name = None;
        servers.push(Server {
            name: member.name.clone(),
            endpoint,
            public_key: Some(key),
        });
        let first = first.get_or_insert_with(|| tunnel.clone());
        if let Some(what) = difference(first, &tunnel) {
            return Err(PoolError::Differ {
                first: members[0].file.clone(),
                second: member.file.clone(),
                what: what.to_owned(),
            });
        }
    }
    if first.as_ref().is_some_and(|it| it.pool.is_some()) {
        let (file, why) = (leader.file.clone(), "has a pool already".to_owned());
        return Err(PoolError::Unfit { file, why });
    }
    let named = servers
        .iter()
        .find(|it| it.endpoint.socket_addr().is_none());
    if let Some(server) = named
        && first.is_some_and(|it| it.peers.iter().any(has_much))
        && Path::new(NETIFD).exists()
    {
        host::terminal::note(format_args!(
            "{}: its endpoint is a host name; as an interface of netifd, this tunnel for everything could not look it up \
             after another server has failed: use addresses, or set `list uplink`",
            server.name
        ));
    }
    let pool = Pool {
        wanted: choice.only.clone(),
        choose: choice.choose,
        servers,
    };
    let (pool, own) = (
        pool.to_comments(),
        leader.text.trim_start_matches('\u{feff}'),
    );
    let mut text = Zeroizing::new(String::with_capacity(pool.len() + own.len() + 1));
    for part in [pool.as_str(), "\n", own] {
        text.push_str(part);
    }
    Ok(text)
}

/// The setting in which two files without their servers differ.
fn difference(one: &Tunnel, other: &Tunnel) -> Option<&'static str> {
    let (here, there) = (&one.interface, &other.interface);
    Some(match () {
        () if one == other => return None,
        () if here.private_key != there.private_key => "PrivateKey",
        () if here.addresses != there.addresses => "Address",
        () if (&here.dns, &here.dns_search) != (&there.dns, &there.dns_search) => "DNS",
        () if here != there => "their [Interface]",
        () if one.peers[0].preshared_key != other.peers[0].preshared_key => "PresharedKey",
        () if one.peers[0].allowed_ips != other.peers[0].allowed_ips => "AllowedIPs",
        () if one.peers != other.peers => "PersistentKeepalive",
        () => "their `#!` comments",
    })
}

/// The servers in words: their number, their countries, and which is called first.
fn summary(names: &[&str], choose: Choose) -> String {
    let mut countries: BTreeMap<String, usize> = BTreeMap::new();
    for name in names {
        let country = country(name).to_ascii_lowercase();
        if country.len() == 2 {
            *countries.entry(country).or_default() += 1;
        }
    }
    let mut most: Vec<_> = countries.iter().collect();
    most.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let mut listed: Vec<String> = most
        .iter()
        .take(COUNTRIES_MAX)
        .map(|(country, count)| format!("{country} {count}"))
        .collect();
    let more = most.len().saturating_sub(COUNTRIES_MAX);
    if more > 0 {
        listed.push(format!("{more} more"));
    }
    let plural = |count: usize, one: &str, many: &str| match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {many}"),
    };
    let countries = match most.len() {
        0 => String::new(),
        count => format!(
            " of {} ({})",
            plural(count, "country", "countries"),
            listed.join(", ")
        ),
    };
    let order = match (choose, names.first()) {
        (Choose::Order, Some(first)) => format!("{first} first"),
        (Choose::Random | Choose::Order, _) => "in any order".to_owned(),
        (Choose::Fastest, _) => "the fastest first".to_owned(),
    };
    let servers = plural(names.len(), "server", "servers");
    format!("{servers}{countries}, {order}")
}

#[cfg(test)]
mod tests;
