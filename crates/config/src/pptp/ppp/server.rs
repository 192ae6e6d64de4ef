//! Server: `pptpd.conf`, the pppd options file that it names, and the users of `chap-secrets`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::path::Path;

use zeroize::Zeroizing;

use super::collected::collect_file;
use super::wanted::{Common, Judged, OfServer, honoured, ignored, put, refused};
use super::{Read, SECRETS, Secret, read_secrets};
use crate::keys::up_to;
use crate::lines::Lines;
use crate::pptp::{POOL_MAX, PORT, Pptp, Role, Server, values};
use crate::report::{Report, Verdict};
use crate::text::suggest;
use crate::types::AllowedIp;

/// Options file that pptpd uses if its file names none.
const OPTIONS: &str = "/etc/ppp/pptpd-options";

const RANGES: &str =
    "write IPv4 addresses and ranges, separated by commas: 10.9.0.10-99,10.9.0.120";
const SPAWNED: &str = "no program is started for a client";

/// Treatment of a setting of pptpd.
enum Meaning {
    /// The setting's argument is the file of pppd's options.
    Options,
    /// This function applies the setting.
    Taken(fn(&mut Daemon, &str) -> Judged),
    /// Accepted without effect, for this reason.
    Nothing(&'static str),
    /// Refused, without a hint.
    Refused(&'static str),
}

use Meaning::{Nothing, Options, Refused, Taken};

/// Settings of pptpd.
const KEYS: &[(&str, Meaning)] = &[
    ("option", Options),
    (
        "localip",
        Taken(|daemon, value| match ranges(value) {
            Ok(found) => {
                daemon.local = found.first().copied();
                honoured(match found.len() {
                    1 => "",
                    _ => "only the first is used; one address is enough for all clients",
                })
            }
            Err(fault) => (Verdict::Refused, fault.into()),
        }),
    ),
    (
        "remoteip",
        Taken(|daemon, value| put(&mut daemon.remote, ranges(value).map(Some))),
    ),
    (
        "listen",
        Taken(|daemon, value| {
            let wanted = "write an IPv4 address of this host";
            put(
                &mut daemon.listen,
                value.parse().map(Some).map_err(|_| wanted),
            )
        }),
    ),
    (
        "connections",
        Taken(|daemon, value| {
            let number = up_to(value, POOL_MAX as u64).filter(|it: &u16| *it > 0);
            let number = number.map(|it| Some(it.into()));
            put(
                &mut daemon.connections,
                number.ok_or("write a number from 1 to 1024"),
            )
        }),
    ),
    ("speed", Nothing("PPTP uses no serial line")),
    ("debug", Nothing("set logging with -v and --log FILE")),
    (
        "stimeout",
        Nothing("clients that do not begin are disconnected after some seconds"),
    ),
    ("noipparam", Nothing("scripts of /etc/ppp do not run")),
    (
        "logwtmp",
        Nothing("the log and the status show who is connected"),
    ),
    ("ppp", Nothing(SPAWNED)),
    ("pidfile", Nothing("the status shows the process")),
    ("keep", Nothing(SPAWNED)),
    (
        "bcrelay",
        Refused("broadcasts are not relayed; remove the line"),
    ),
    (
        "delegate",
        Refused("addresses come only from remoteip; write that instead"),
    ),
    ("vrf", Refused("use --bind-device instead")),
];

/// The settings of `pptpd.conf`.
#[derive(Default)]
struct Daemon {
    options: Option<(String, usize)>,
    local: Option<Ipv4Addr>,
    remote: Option<Vec<Ipv4Addr>>,
    listen: Option<Ipv4Addr>,
    connections: Option<usize>,
}

/// Splits a line into its word and value; `None` for a comment or an empty line.
pub(super) fn line_of(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let (word, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    Some((word, value.trim()))
}

/// Builds the model of a server's file. `None` if a required setting is missing.
pub(super) fn model(text: &str, path: &Path, read: &Read<'_>, report: &mut Report) -> Option<Pptp> {
    let mut daemon = Daemon::default();
    for (at, line) in text.lines().enumerate() {
        if let Some((word, value)) = line_of(line) {
            take(&mut daemon, (at + 1, word, value), report);
        }
    }
    let mut common = Common {
        server: true,
        ..Common::default()
    };
    let mut own = OfServer::default();
    let (file, line) = match &daemon.options {
        Some((file, line)) => (file.as_str(), *line),
        None => (OPTIONS, 0),
    };
    for option in collect_file(file, line, read, report) {
        option.of_server(&mut common, &mut own, report);
    }
    if own.dns.len() > 2 {
        let reason = "PPTP can send at most two name servers to a client";
        report.push(line, "ms-dns", Verdict::Refused, reason);
    }
    let (mppe, auth) = common.protection(report);
    let interface = common.interface(path, report);
    for (there, key) in [
        (daemon.local.is_some(), "localip"),
        (daemon.remote.is_some(), "remoteip"),
    ] {
        if !there {
            let reason = "is missing; write it, as Millrace does not make addresses up";
            report.push(0, key, Verdict::Refused, reason);
        }
    }
    let users = users(own.name.as_deref(), read, report);
    let (local, mut pool) = (daemon.local?, daemon.remote?);
    pool.retain(|&address| address != local);
    pool.truncate(daemon.connections.unwrap_or(POOL_MAX));
    if pool.is_empty() {
        report.push(
            0,
            "remoteip",
            Verdict::Refused,
            "no address is left for clients",
        );
    }
    Some(Pptp {
        interface: interface?,
        role: Role::Server(Server {
            listen: SocketAddrV4::new(daemon.listen.unwrap_or(Ipv4Addr::UNSPECIFIED), PORT),
            address: (local, values::common_bits(local, &pool)),
            routes: networks(&pool),
            pool,
            dns: own.dns,
            users: users?,
        }),
        mppe: mppe?,
        auth,
        mtu: common.mtu,
        reorder: None,
        lines: Lines::default(),
    })
}

/// Takes a line of `pptpd.conf`.
fn take(daemon: &mut Daemon, (line, word, value): (usize, &str, &str), report: &mut Report) {
    let (verdict, reason) = match KEYS.iter().find(|(key, _)| *key == word) {
        // The file gets its verdict when it is read.
        Some((_, Options)) => {
            daemon.options = Some((value.to_owned(), line));
            return;
        }
        Some((_, Taken(take))) => take(daemon, value),
        Some((_, Nothing(reason))) => ignored(reason),
        Some((_, Refused(reason))) => refused(reason),
        None => {
            let known = KEYS.iter().filter(|(_, it)| !matches!(it, Refused(_)));
            let known: Vec<&str> = known.map(|(key, _)| *key).collect();
            let short = word.len() <= 32 && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
            let key = if short { word } else { "" };
            let reason = format!("unknown setting of pptpd; {}", suggest(key, &known));
            return report.push(line, key, Verdict::Refused, reason);
        }
    };
    report.push(line, word, verdict, reason);
}

/// Parses `192.168.0.234-238,192.168.0.245`; both ends of a range may be whole addresses.
fn ranges(text: &str) -> Result<Vec<Ipv4Addr>, String> {
    let mut all = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (first, last) = match part.split_once('-') {
            None => (part.parse().ok(), part.parse().ok()),
            Some((first, last)) => {
                let first: Option<Ipv4Addr> = first.trim().parse().ok();
                let last = last.trim();
                let short = || {
                    let [a, b, c, _] = first?.octets();
                    Some(Ipv4Addr::new(a, b, c, last.parse().ok()?))
                };
                (first, last.parse().ok().or_else(short))
            }
        };
        let (Some(first), Some(last)) = (first, last) else {
            return Err(RANGES.to_owned());
        };
        let (first, last) = (u32::from(first), u32::from(last));
        if first > last || (last - first) as usize >= POOL_MAX || all.len() > POOL_MAX {
            return Err(format!("{RANGES}; at most {POOL_MAX} addresses"));
        }
        for address in (first..=last).map(Ipv4Addr::from) {
            if !all.contains(&address) {
                all.push(address);
            }
        }
    }
    if all.len() > POOL_MAX {
        return Err(format!("has more than {POOL_MAX} addresses"));
    }
    Ok(all)
}

/// The fewest networks that hold exactly these addresses.
fn networks(pool: &[Ipv4Addr]) -> Vec<AllowedIp> {
    let mut addresses: Vec<u32> = pool.iter().copied().map(u32::from).collect();
    addresses.sort_unstable();
    let mut networks = Vec::new();
    let mut rest = &addresses[..];
    while let Some(&first) = rest.first() {
        // The largest aligned network whose addresses are all in the pool.
        let fits = |bits: u8| {
            let size = 1_usize << bits;
            first.is_multiple_of(1 << bits)
                && rest.len() >= size
                && (rest[size - 1] - first) as usize == size - 1
        };
        let bits = (0..=10).rev().find(|&bits| fits(bits)).unwrap_or(0);
        networks.extend(AllowedIp::new(IpAddr::V4(first.into()), 32 - bits));
        rest = &rest[1 << bits..];
    }
    networks
}

/// The users of the server with this name.
fn users(
    server: Option<&str>,
    read: &Read<'_>,
    report: &mut Report,
) -> Option<Vec<(String, Zeroizing<String>)>> {
    let secrets = match read_secrets(read) {
        Ok(secrets) => secrets,
        Err(error) => {
            let reason = format!("{SECRETS}: {error}");
            report.push(0, "users", Verdict::Refused, reason);
            return None;
        }
    };
    // Without a name, pppd uses the host's, which this file does not give.
    let matches = |it: &Secret| it.is_for(server) && it.client != "*";
    // The line that pppd uses for each user; other lines let no client in.
    let mut taken: BTreeMap<&str, &Secret> = BTreeMap::new();
    for secret in secrets.iter().filter(|it| matches(it)) {
        let first = taken.entry(&secret.client).or_insert(secret);
        if secret.names(server) && !first.names(server) {
            *first = secret;
        }
    }
    let mut users: Vec<(String, Zeroizing<String>)> = Vec::new();
    for secret in &secrets {
        let first = taken.get(secret.client.as_str());
        let other = first.filter(|it| it.line != secret.line);
        let place = format!("{SECRETS}, line {}", secret.line);
        let (verdict, reason) = match secret.fault() {
            _ if !matches(secret) => (
                Verdict::Ignored,
                format!("{place}: is not for this server, or not for one user"),
            ),
            Some(fault) => (Verdict::Refused, format!("{place}: {fault}")),
            None => match (other, secret.shut()) {
                (Some(other), _) => (
                    Verdict::Ignored,
                    format!("{place}: line {} is used for this user", other.line),
                ),
                (None, Some(reason)) => (Verdict::Ignored, format!("{place}: {reason}")),
                (None, None) => {
                    users.push((secret.client.clone(), secret.password.clone()));
                    let reason = match secret.has_address() {
                        true => {
                            format!(
                                "{place}: its address is ignored: clients get addresses from remoteip"
                            )
                        }
                        false => place,
                    };
                    (Verdict::Honoured, reason)
                }
            },
        };
        report.push(0, "users", verdict, reason);
    }
    if users.is_empty() {
        let reason =
            format!("{SECRETS} has no user of this server: write lines `alice pptpd \"...\" *`");
        report.push(0, "users", Verdict::Refused, reason);
        return None;
    }
    Some(users)
}
