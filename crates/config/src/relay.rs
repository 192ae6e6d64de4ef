//! Relay files, in the form of `wg-quick` files, as a checked model.
//!
//! ```text
//! [Relay]
//! Listen = 51821
//! Target = vpn.example.com:51820
//! [Client]
//! Name = branch
//! Key = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=
//! Rate = 50M
//! ```
//!
//! One refused line refuses the whole file: a relay that forwards for the wrong hosts is worse than no relay.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use crate::error::ImportError;
use crate::file;
use crate::keys::{self, Key, shown, some};
use crate::report::{self, Report, Verdict};
use crate::text::suggest;
use crate::text::{NOT_UTF8, Text};
use crate::types::{Endpoint, Host, Key32, decimal};

/// Maximum number of clients of a relay: each needs a socket, and a process may usually have 1,024.
pub const CLIENTS_MAX: usize = 256;

/// The default rate of a client in each direction, in bits a second.
pub const RATE_DEFAULT: u64 = 100_000_000;

/// Largest accepted file, in bytes; a client has about a hundred.
const FILE_MAX: u64 = 256 << 10;

/// Largest accepted `Packets`, in datagrams a second.
const PACKETS_MAX: u64 = 100_000_000;

/// Bits of a small average datagram; a client's default `Packets` is its rate divided by this. Full datagrams have
/// 12,000.
const PACKET_BITS: u64 = 2_000;

/// Lowest default of `Packets`, in datagrams a second, for clients with a low rate.
const PACKETS_LEAST: u64 = 1_000;

/// Keys of `[Relay]`.
const RELAY_KEYS: &[Key<Parser>] = &[
    Key::read("Listen", |relay, value| {
        some(&mut relay.listen, listen(value))
    }),
    Key::read("Target", |relay, value| {
        let target: Endpoint = keys::parsed(&keys::compact(value))?;
        let is_name = matches!(target.host, Host::Name(_));
        relay.target = Some(target);
        let remark = "the relay looks the name up when it starts, and from time to time";
        Ok(if is_name { remark } else { "" }.to_owned())
    }),
];

/// Keys of `[Client]`.
const CLIENT_KEYS: &[Key<Draft>] = &[
    Key::read("Name", |client, value| {
        some(&mut client.name, keys::name(value))
    }),
    Key::read("Key", |client, value| {
        some(&mut client.key, keys::shared_key(value))
    }),
    Key::read("Rate", |client, value| {
        some(&mut client.rate, keys::rate(value))
    }),
    Key::read("Packets", |client, value| {
        let packets = decimal(value).filter(|it| (1..=PACKETS_MAX).contains(it));
        let wanted = "must be datagrams per second, from 1 to 100000000";
        some(&mut client.packets, packets.ok_or(wanted))
    }),
];

/// The error for a relay's file in a program that was built without relays.
pub const NOT_BUILT: &str =
    "this program was built without relays; use a build with the feature `relay`";

/// A checked relay file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Relay {
    /// Where clients reach the relay.
    pub listen: Listen,
    /// Where the relay forwards to.
    pub target: Endpoint,
    /// Clients: at least one and at most [`CLIENTS_MAX`], with different names and different keys.
    pub clients: Vec<Client>,
}

/// Where a relay listens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Listen {
    /// The local address; `None` for all addresses of both families.
    pub address: Option<IpAddr>,
    /// The UDP port, never zero.
    pub port: u16,
}

/// A client that may use a relay.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Client {
    /// The name in logs.
    pub name: String,
    /// The key that the client shares with the relay.
    pub key: Key32,
    /// Rate limit in each direction, in bits a second.
    pub rate: u64,
    /// Rate limit in each direction, in datagrams a second.
    pub packets: u64,
}

/// The model and the report of a file.
pub type Import = report::Import<Relay>;

/// Whether a text is a relay's file, by its first section head.
pub(crate) fn is_relay_text(text: &str) -> bool {
    let mut lines = text.trim_start_matches('\u{feff}').lines().map(words);
    let head = lines.find(|line| line.starts_with('['));
    head.is_some_and(|head| {
        head.eq_ignore_ascii_case("[Relay]") || head.eq_ignore_ascii_case("[Client]")
    })
}

/// Reads a file.
///
/// # Errors
/// The file cannot be read, or is not text. Faults in its lines are in the report.
pub fn read(path: &Path) -> Result<Import, ImportError> {
    read_bytes(
        &file::read(path, FILE_MAX).map_err(ImportError::read(path))?,
        path,
    )
}

/// Reads a file with this content as [`read`] does.
///
/// # Errors
/// The bytes are not text.
pub fn read_bytes(bytes: &[u8], path: &Path) -> Result<Import, ImportError> {
    let text = Text::new(bytes).map_err(ImportError::not_text(path))?;
    Ok(parse_text(&text, &path.display().to_string()))
}

/// Parses the text of a file; `file` only names it in the report.
#[must_use]
pub fn parse(text: &str, file: &str) -> Import {
    parse_text(&Text::Whole(text), file)
}

fn parse_text(text: &Text<'_>, file: &str) -> Import {
    let mut parser = Parser {
        report: Report {
            file: file.to_owned(),
            entries: Vec::new(),
        },
        section: Section::None,
        seen: Vec::new(),
        relay_head: None,
        listen: None,
        target: None,
        clients: Vec::new(),
    };
    let lines = text.strip_prefix('\u{feff}').unwrap_or(text).lines();
    for (number, line) in (1..).zip(lines) {
        let line = words(line);
        match text.is_mended(line) {
            true => parser.wrong(number, "", NOT_UTF8),
            false => parser.line(number, line),
        }
    }
    parser.finish()
}

/// A line without its comment.
fn words(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Section {
    /// Lines before the first section head.
    None,
    Relay,
    Client,
    /// Lines below a section head that was refused.
    Refused,
}

/// A client whose section is still being read.
#[derive(Default)]
struct Draft {
    head: usize,
    name: Option<String>,
    key: Option<Key32>,
    rate: Option<u64>,
    packets: Option<u64>,
    /// Keys with a wrong value, which the report must not call missing as well.
    refused: Vec<&'static str>,
}

struct Parser {
    report: Report,
    section: Section,
    /// Keys that the current section already has.
    seen: Vec<&'static str>,
    relay_head: Option<usize>,
    listen: Option<Listen>,
    target: Option<Endpoint>,
    clients: Vec<Draft>,
}

impl Parser {
    fn wrong(&mut self, line: usize, key: &str, reason: impl Into<String>) {
        self.report.push(line, key, Verdict::Refused, reason);
    }

    fn line(&mut self, number: usize, line: &str) {
        if line.is_empty() {
            return;
        }
        if line.starts_with('[') {
            return self.head(number, line);
        }
        let Some((key, value)) = line.split_once('=') else {
            return self.wrong(number, "", "the line is not of the form `Key = Value`");
        };
        let (key, value) = (key.trim(), value.trim());
        let outcome = match self.section {
            Section::None => Err("comes before any [Relay] or [Client]".to_owned()),
            Section::Refused => return,
            Section::Relay => keys::set(RELAY_KEYS, self, key, value),
            Section::Client => match self.clients.last_mut() {
                Some(client) => client.set(key, value),
                None => return,
            },
        };
        match outcome {
            Err(reason) => self.wrong(number, &shown(key), reason),
            Ok((name, _)) if self.seen.contains(&name) => {
                self.wrong(number, name, "is set twice; remove one");
            }
            Ok((name, remark)) => {
                self.seen.push(name);
                self.report.push(number, name, Verdict::Honoured, remark);
            }
        }
    }

    fn head(&mut self, number: usize, text: &str) {
        self.seen.clear();
        self.section = Section::Refused;
        if text.eq_ignore_ascii_case("[Client]") {
            if self.clients.len() == CLIENTS_MAX {
                let reason = format!("more than {CLIENTS_MAX} clients for one relay");
                return self.wrong(number, "", reason);
            }
            self.clients.push(Draft {
                head: number,
                ..Draft::default()
            });
            self.section = Section::Client;
        } else if !text.eq_ignore_ascii_case("[Relay]") {
            let known = suggest(text, &["[Relay]", "[Client]"]);
            self.wrong(number, "", format!("unknown section; {known}"));
        } else if let Some(first) = self.relay_head {
            let reason = format!("a second [Relay], after that of line {first}; join them");
            self.wrong(number, "", reason);
        } else {
            self.relay_head = Some(number);
            self.section = Section::Relay;
        }
    }

    fn finish(mut self) -> Import {
        match self.relay_head {
            None => self.wrong(0, "", "has no [Relay] section; is it a relay's file?"),
            Some(head) => {
                for (name, found) in [
                    ("Listen", self.listen.is_some()),
                    ("Target", self.target.is_some()),
                ] {
                    if !found && !self.is_told(name) {
                        self.wrong(head, name, "is missing");
                    }
                }
            }
        }
        if self.clients.is_empty() {
            self.wrong(
                0,
                "",
                "has no [Client], so the relay would forward nothing; add one",
            );
        }
        let mut clients = Vec::new();
        let mut names = HashMap::new();
        let mut keys = HashMap::new();
        for draft in std::mem::take(&mut self.clients) {
            let head = draft.head;
            for (name, found) in [("Name", draft.name.is_some()), ("Key", draft.key.is_some())] {
                if !found && !draft.refused.contains(&name) {
                    self.wrong(head, name, "is missing");
                }
            }
            let (Some(name), Some(key)) = (draft.name, draft.key) else {
                continue;
            };
            if let Some(first) = names.insert(name.clone(), head) {
                let reason = format!("the [Client] at line {first} has the same name; change one");
                self.wrong(head, "Name", reason);
            }
            if let Some(first) = keys.insert(key.clone(), head) {
                let reason = format!(
                    "the [Client] at line {first} has the same key, so the relay cannot tell the two clients from one \
                     that roams; give each its own key"
                );
                self.wrong(head, "Key", reason);
            }
            let rate = draft.rate.unwrap_or(RATE_DEFAULT);
            let usual = (rate / PACKET_BITS).max(PACKETS_LEAST);
            clients.push(Client {
                name,
                key,
                rate,
                packets: draft.packets.unwrap_or(usual),
            });
        }
        let model = self.listen.zip(self.target);
        let model = model.map(|(listen, target)| Relay {
            listen,
            target,
            clients,
        });
        Import::new(self.report, model)
    }

    /// Whether the report already has a fault of this key.
    fn is_told(&self, key: &str) -> bool {
        let mut refused = self.report.with(Verdict::Refused);
        refused.any(|entry| entry.key.eq_ignore_ascii_case(key))
    }
}

impl Draft {
    /// Sets a key of `[Client]`. Returns its usual spelling, and a remark for the report.
    fn set(&mut self, key: &str, value: &str) -> Result<(&'static str, String), String> {
        let name = keys::find(CLIENT_KEYS, key)?.name;
        let outcome = keys::set(CLIENT_KEYS, self, name, value);
        if outcome.is_err() {
            self.refused.push(name);
        }
        outcome
    }
}

/// Parses a port, or an address and a port.
fn listen(value: &str) -> Result<Listen, String> {
    let (address, port) = match value.parse::<SocketAddr>() {
        Ok(addr) => (Some(addr.ip()), Some(addr.port())),
        Err(_) => (None, decimal(value).and_then(|it| u16::try_from(it).ok())),
    };
    let port = port.filter(|&port| port != 0);
    let port =
        port.ok_or("must be a port from 1 to 65535, or ADDRESS:PORT, and [ADDRESS]:PORT for IPv6")?;
    let address = address.filter(|it| !it.is_unspecified());
    Ok(Listen { address, port })
}

#[cfg(test)]
mod tests;
