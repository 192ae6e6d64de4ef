//! Import of `wg-quick` files.
//!
//! The grammar is that of `wg` and `wg-quick`: sections and `Key = Value` lines, names in any case, and comments from
//! `#` to the end of the line. The import does not stop at the first fault: it gives every line a [`Verdict`],
//! because a person who moves a provider's file to a router wants to see all faults at once.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::Path;

use crate::clients;
use crate::file;
use crate::home;
use crate::keys::{self, Verdicted, shown};
use crate::lines::{Found, Sections};
use crate::permissions::Permissions;
#[cfg(feature = "postquantum")]
use crate::postquantum;
use crate::report::{Entry, Report, Verdict};
use crate::text::suggest;
use crate::text::{NOT_UTF8, Text};
use crate::tunnel::{Peer, Tunnel};
use crate::types::{AllowedIp, Key32, is_ifname};

mod rows;

use crate::error::ImportError;
use rows::{Clear, Kind, Row};

/// Largest accepted file, in bytes: room for 10,000 peers with every key set.
pub const FILE_MAX: u64 = 4 << 20;

/// Longest accepted line, in bytes; some calculators put hundreds of ranges into one line.
pub const LINE_MAX: usize = 64 << 10;

/// Maximum number of peers in one file.
pub const PEERS_MAX: usize = 1 << 16;

/// Maximum number of faults that a report lists; a file with more is probably not a `wg-quick` file.
pub const FAULTS_MAX: usize = 1000;

/// The result of reading a file, faults included.
#[derive(Clone, Debug)]
pub struct Import {
    tunnel: Tunnel,
    /// The verdict on every line.
    pub report: Report,
    /// First fault that prevents a model, in words, and the number of such faults.
    fault: Option<(String, usize)>,
}

impl Import {
    /// Returns the model, and the report to show beside it.
    ///
    /// A refused line that can be left out does not prevent a model: a script without permission, an unknown key, or
    /// a wrong value of a key that has a default.
    ///
    /// # Errors
    /// [`ImportError::Lines`] when lines are wrong or missing.
    pub fn into_tunnel(self) -> Result<(Tunnel, Report), ImportError> {
        match self.fault {
            None => Ok((self.tunnel, self.report)),
            Some((first, count)) => Err(ImportError::Lines { first, count }),
        }
    }

    /// True when [`Import::into_tunnel`] would succeed.
    #[must_use]
    pub const fn is_usable(&self) -> bool {
        self.fault.is_none()
    }
}

/// Reads a file. `permissions` say whether `PreUp`, `PostUp`, `PreDown` and `PostDown` run, and whether `[Server]` is
/// honoured in a file whose peer has an `Endpoint`. The file itself cannot grant either.
///
/// # Errors
/// The file cannot be read or is not text; faults in the text are in the [`Import`].
pub fn read(path: &Path, permissions: Permissions) -> Result<Import, ImportError> {
    let bytes = file::read(path, FILE_MAX).map_err(|error| {
        let path = path.to_owned();
        match error.kind() {
            ErrorKind::FileTooLarge => ImportError::TooLarge { path },
            _ => ImportError::Read { path, error },
        }
    })?;
    parse_bytes(&bytes, path, permissions)
}

/// Parses the bytes of a file; `path` only names it in the report.
///
/// # Errors
/// [`ImportError::NotText`].
pub fn parse_bytes(
    bytes: &[u8],
    path: &Path,
    permissions: Permissions,
) -> Result<Import, ImportError> {
    let text = Text::new(bytes).map_err(ImportError::not_text(path))?;
    Ok(parse_text(&text, &path.display().to_string(), permissions))
}

/// Parses the text of a file; `file` only names it in the report.
#[must_use]
pub fn parse(text: &str, file: &str, permissions: Permissions) -> Import {
    parse_text(&Text::Whole(text), file, permissions)
}

fn parse_text(text: &Text<'_>, file: &str, permissions: Permissions) -> Import {
    let mut parser = Parser::new(file, permissions);
    #[cfg(feature = "amnezia")]
    if crate::amnezia::link::is_link(text) {
        parser.wrong(0, "", "is a link; run `millrace import` with it");
    }
    // Windows editors put a byte order mark first.
    let lines = text.strip_prefix('\u{feff}').unwrap_or(text).lines();
    for (number, line) in (1..).zip(lines) {
        match text.is_mended(line.split('#').next().unwrap_or_default()) {
            true => parser.wrong(number, "", NOT_UTF8),
            false => parser.line(number, line),
        }
    }
    parser.finish()
}

/// The interface name that a file gives: its file name without `.conf`, as with `wg-quick`.
///
/// # Errors
/// [`ImportError::Name`].
pub fn interface_name(path: &Path) -> Result<String, ImportError> {
    path.file_name()
        .and_then(|name| name.to_str())
        .and_then(|name| name.strip_suffix(".conf"))
        .filter(|name| is_ifname(name))
        .map(str::to_owned)
        .ok_or_else(|| ImportError::Name {
            path: path.to_owned(),
        })
}

/// Whether the text behind a `#!` asks for packets under post-quantum keys only.
#[cfg(not(feature = "postquantum"))]
fn requires_post_quantum(comment: &str) -> bool {
    let setting = comment.split_once('=');
    let is = |text: &str, wanted: &str| text.trim().eq_ignore_ascii_case(wanted);
    setting.is_some_and(|(key, value)| is(key, "PostQuantum") && is(value, "require"))
}

#[derive(Clone, Copy, PartialEq)]
enum Section {
    /// Lines before the first section head.
    None,
    Interface,
    Peer,
    /// Lines below a refused section head: the report has the head, and the keys are skipped.
    Refused,
}

struct Parser {
    permissions: Permissions,
    tunnel: Tunnel,
    report: Report,
    fault: Option<(String, usize)>,
    /// Number of refused lines that do not prevent a model.
    left_out: usize,
    section: Section,
    /// Line of the current section's head.
    head: usize,
    interface_head: Option<usize>,
    lines: Sections,
    /// The current section has a valid `PublicKey`, or a wrong one that was already refused.
    has_public_key: bool,
    /// Single-value keys of the current section, and where their verdicts are.
    seen: Vec<(&'static str, usize)>,
    public_keys: HashMap<Key32, usize>,
    /// For each range, the line that last gave it to a peer, and that peer.
    ranges: HashMap<AllowedIp, (usize, usize)>,
}

impl Parser {
    fn new(file: &str, permissions: Permissions) -> Self {
        Self {
            permissions,
            tunnel: Tunnel::default(),
            report: Report {
                file: file.to_owned(),
                entries: Vec::new(),
            },
            fault: None,
            left_out: 0,
            section: Section::None,
            head: 0,
            interface_head: None,
            lines: Sections::default(),
            has_public_key: false,
            seen: Vec::new(),
            public_keys: HashMap::new(),
            ranges: HashMap::new(),
        }
    }

    fn line(&mut self, number: usize, line: &str) {
        if line.len() > LINE_MAX {
            let reason = format!("longer than {LINE_MAX} bytes; split it into several lines");
            return self.wrong(number, "", reason);
        }
        if let Some(comment) = line.trim_start().strip_prefix("#!") {
            return self.comment(number, comment);
        }
        let text = line.split('#').next().unwrap_or("").trim();
        if text.is_empty() {
            return;
        }
        if text.starts_with('[') {
            return self.head(number, text);
        }
        if text.starts_with(';') {
            return self.wrong(number, "", "a comment begins with `#`, not with `;`");
        }
        let Some((key, value)) = text.split_once('=') else {
            return self.wrong(number, "", "the line is not of the form `Key = Value`");
        };
        let (key, value) = (key.trim(), value.trim());
        match self.section {
            Section::None => {
                // The file may be nothing but a private key, so the message names only known words.
                let key = rows::find(key).map_or("", |row| row.name);
                self.wrong(number, key, "comes before any [Interface] or [Peer]");
            }
            Section::Refused => {}
            Section::Interface | Section::Peer => self.setting(number, key, value),
        }
    }

    /// Takes a `#!` comment: sections of lines, and names of peers, stand in comments, which other programs skip.
    fn comment(&mut self, number: usize, text: &str) {
        match self.lines.comment(number, text) {
            Found::Nothing => self.peer_comment(number, text),
            Found::Key(key) => self.report.push(number, key, Verdict::Honoured, ""),
            Found::Fault(key, reason) => self.wrong(number, &key, reason),
        }
    }

    /// Takes `#! Name = NAME`, `#! Replaces = KEY` or `#! PostQuantum = POLICY` of a peer. Anything else is a comment.
    fn peer_comment(&mut self, number: usize, text: &str) {
        if !self.lines.is_outside() {
            return;
        }
        #[cfg(feature = "postquantum")]
        if let Some(found) = postquantum::find(text) {
            return self.post_quantum(number, found);
        }
        #[cfg(not(feature = "postquantum"))]
        if requires_post_quantum(text) {
            let reason = "this program has no post-quantum keys; install the package `millrace`";
            return self.wrong(number, "PostQuantum", reason);
        }
        if self.section != Section::Peer {
            return;
        }
        let Some(peer) = self.tunnel.peers.last_mut() else {
            return;
        };
        if let Some(name) = clients::name_in(text) {
            peer.name = Some(name.into());
        } else if let Some((key, value)) = text.split_once('=')
            && key.trim().eq_ignore_ascii_case("Replaces")
            && let Ok(key) = keys::key(value.trim())
        {
            peer.replaces = Some(Box::new(key));
        }
    }

    /// Takes a key of the post-quantum exchange. A fault refuses the tunnel: ignored, the line would leave it without.
    #[cfg(feature = "postquantum")]
    fn post_quantum(&mut self, number: usize, found: postquantum::Found<'_>) {
        let peer = self.tunnel.peers.last_mut();
        match (peer.filter(|_| self.section == Section::Peer), found) {
            (_, Err((name, suggestion))) => self.wrong(number, &name, suggestion),
            (None, Ok((key, _))) => {
                self.wrong(number, key.name, "belongs in [Peer]; move it there");
            }
            (Some(peer), Ok((key, value))) => match postquantum::set(peer, key, value) {
                Ok(remark) => self
                    .report
                    .push(number, key.name, Verdict::Honoured, remark),
                Err(reason) => self.wrong(number, key.name, reason),
            },
        }
    }

    fn head(&mut self, number: usize, text: &str) {
        self.lines.end();
        self.end_section();
        self.head = number;
        self.seen.clear();
        self.section = if text.eq_ignore_ascii_case("[Peer]") {
            if self.tunnel.peers.len() == PEERS_MAX {
                self.section = Section::Refused;
                let reason = format!("more than {PEERS_MAX} peers on one interface");
                return self.wrong(number, "", reason);
            }
            self.has_public_key = false;
            self.tunnel.peers.push(Peer::default());
            Section::Peer
        } else if !text.eq_ignore_ascii_case("[Interface]") {
            let known = suggest(text, &["[Interface]", "[Peer]"]);
            self.wrong(number, "", format!("unknown section; {known}"));
            Section::Refused
        } else if let Some(first) = self.interface_head {
            let reason = format!("a second [Interface], after that of line {first}; join them");
            self.wrong(number, "", reason);
            Section::Refused
        } else {
            self.interface_head = Some(number);
            Section::Interface
        };
    }

    fn setting(&mut self, number: usize, key: &str, value: &str) {
        let Some(row) = rows::find(key) else {
            return self.unknown(number, key);
        };
        let name = row.name;
        if row.is_of_peer() != (self.section == Section::Peer) {
            let place = if row.is_of_peer() {
                "[Peer]"
            } else {
                "[Interface]"
            };
            return self.leave_out(number, name, format!("belongs in {place}; move it there"));
        }
        if let Some(clear) = row.clear.filter(|_| value.is_empty()) {
            return self.empty(number, row, clear);
        }
        // An empty list is the one empty value with a meaning.
        if value.is_empty() && !row.list {
            return self.wrong(number, name, "has no value; remove the line or complete it");
        }
        let interface = &mut self.tunnel.interface;
        let outcome = match (&row.kind, self.tunnel.peers.last_mut()) {
            (Kind::Script(place), _) => {
                place(&mut interface.scripts).push(value.to_owned());
                return self.script(number, name);
            }
            (Kind::Interface(set, _), _) => set(interface, value),
            #[cfg(feature = "amnezia")]
            (Kind::Amnezia, _) => crate::amnezia::set(&mut interface.amnezia, name, value),
            (Kind::OfPeers(set, _), _) => set(self, number, value),
            (Kind::Peer(set, _), Some(peer)) => set(peer, value),
            (Kind::Peer(..), None) => return,
        };
        match outcome {
            Ok(remark) => self.honoured(number, row, remark),
            Err(reason) if row.dispensable => self.leave_out(number, name, reason),
            Err(reason) => self.wrong(number, name, reason),
        }
    }

    /// Treats a key without a value as absent.
    fn empty(&mut self, number: usize, row: &Row, clear: Clear) {
        clear(&mut self.tunnel.interface, row.name);
        match row.kind {
            Kind::Script(_) => self.report.push(number, row.name, Verdict::Honoured, ""),
            _ => self.honoured(number, row, String::new()),
        }
        if let Some(entry) = self.report.entries.last_mut() {
            entry.verdict = Verdict::Ignored;
            entry.reason = "has no value and is ignored".to_owned();
        }
    }

    fn public_key(&mut self, _: usize, value: &str) -> Verdicted {
        // A wrong key also counts, so that the report does not call it missing as well.
        self.has_public_key = true;
        let key = keys::key(value)?;
        if key.is_zero() {
            return Err(
                "an all-zero key is not a public key; ask the peer for its public key".to_owned(),
            );
        }
        if let Some(first) = self.public_keys.get(&key)
            && *first != self.head
        {
            return Err(format!(
                "the same key as that of the [Peer] at line {first}; join the two sections"
            ));
        }
        self.public_keys.insert(key.clone(), self.head);
        if let Some(peer) = self.tunnel.peers.last_mut() {
            peer.public_key = key;
        }
        Ok(String::new())
    }

    fn allowed_ips(&mut self, number: usize, value: &str) -> Verdicted {
        if value.is_empty() {
            return Ok("is an empty list and adds nothing".to_owned());
        }
        let current = self.tunnel.peers.len().saturating_sub(1);
        let mut remark = String::new();
        for range in rows::ranges(value) {
            let (range, masked) = range?;
            remark = masked.unwrap_or(remark);
            match self.ranges.insert(range, (number, current)) {
                // A range belongs to the last peer that names it, as in the kernel. The other peers lose it at the
                // end, all at once.
                Some((line, owner)) if owner != current => {
                    let reason =
                        format!("{range} is assigned to the peer that lists it at line {number}");
                    self.report
                        .push(line, "AllowedIPs", Verdict::Ignored, reason);
                }
                // The same section names the range twice.
                Some(_) => continue,
                None => {}
            }
            if let Some(peer) = self.tunnel.peers.get_mut(current) {
                peer.allowed_ips.push(range);
            }
        }
        Ok(remark)
    }

    fn script(&mut self, number: usize, name: &str) {
        if self.permissions.scripts() {
            return self.report.push(number, name, Verdict::Honoured, "");
        }
        let reason = "shell commands run only with --allow-scripts; read the command first";
        self.report.push(number, name, Verdict::Refused, reason);
    }

    fn unknown(&mut self, number: usize, key: &str) {
        if let Some(reason) = rows::harmless(key) {
            return self
                .report
                .push(number, &shown(key), Verdict::Ignored, reason);
        }
        #[cfg(not(feature = "amnezia"))]
        if rows::is_amnezia(key) {
            let reason = "an AmneziaWG setting, which this program is built without; install the package `millrace`, \
                          or ask the server's owner for a plain WireGuard file";
            return self.wrong(number, &shown(key), reason);
        }
        #[cfg(feature = "postquantum")]
        if postquantum::is_key(key) {
            let reason =
                "must be a comment, as other programs refuse it; write `#!` in front of it";
            return self.wrong(number, &shown(key), reason);
        }
        let here = |row: &&Row| row.is_of_peer() == (self.section == Section::Peer);
        let known: Vec<&str> = rows::all().filter(here).map(|row| row.name).collect();
        let reason = format!("unknown key; {}", suggest(key, &known));
        // An unknown word may be part of a secret, so the report quotes it only if it looks like a key's name.
        let is_like_one = key.len() <= 24 && key.bytes().all(|it| it.is_ascii_alphabetic());
        let key = if is_like_one { key } else { "" };
        self.leave_out(number, key, reason);
    }

    fn honoured(&mut self, number: usize, row: &Row, remark: String) {
        let name = row.name;
        if !row.list {
            let here = self.report.entries.len();
            match self.seen.iter_mut().find(|(key, _)| *key == name) {
                Some((_, earlier)) => {
                    let entry = &mut self.report.entries[*earlier];
                    entry.verdict = Verdict::Ignored;
                    entry.reason = format!("overridden at line {number}");
                    *earlier = here;
                }
                None => self.seen.push((name, here)),
            }
        }
        self.report.push(number, name, Verdict::Honoured, remark);
    }

    /// Refuses a line that the tunnel can do without.
    fn leave_out(&mut self, number: usize, key: &str, reason: String) {
        self.left_out += 1;
        if self.left_out <= FAULTS_MAX {
            self.report.push(number, key, Verdict::Refused, reason);
        }
    }

    /// Refuses a line, and with it the whole tunnel.
    fn wrong(&mut self, number: usize, key: &str, reason: impl Into<String>) {
        let entry = Entry {
            line: number,
            key: key.to_owned(),
            verdict: Verdict::Refused,
            reason: reason.into(),
        };
        let (_, count) = self
            .fault
            .get_or_insert_with(|| (self.report.describe(&entry), 0));
        *count += 1;
        if *count <= FAULTS_MAX {
            self.report.entries.push(entry);
        }
    }

    fn end_section(&mut self) {
        if self.section == Section::Peer && !self.has_public_key {
            let reason = "this [Peer] has no PublicKey; add the one that its owner gave you";
            self.wrong(self.head, "", reason);
        }
    }

    fn finish(mut self) -> Import {
        self.end_section();
        let interface = &self.tunnel.interface;
        let script_may_set = self.permissions.scripts() && !interface.scripts.is_empty();
        // A wrong `PublicKey` is already a fault. A key in the wrong section can be left out, unless it is the only
        // one.
        let told = self.fault.is_some()
            && self
                .report
                .entries
                .iter()
                .any(|entry| entry.verdict == Verdict::Refused && entry.key == "PrivateKey");
        if self.interface_head.is_none() {
            self.wrong(0, "", "has no [Interface] section; is it a wg-quick file?");
        } else if interface.private_key.is_none() && !script_may_set && !told {
            let line = self.interface_head.unwrap_or(0);
            self.wrong(line, "PrivateKey", "is missing; make one with `wg genkey`");
        }
        #[cfg(feature = "amnezia")]
        if let Err(fault) = self.tunnel.interface.amnezia.check() {
            self.wrong(self.interface_head.unwrap_or(0), "", fault.to_string());
        }
        for (index, peer) in self.tunnel.peers.iter_mut().enumerate() {
            let owned = |range: &AllowedIp| self.ranges.get(range).map(|(_, peer)| *peer);
            peer.allowed_ips.retain(|range| owned(range) == Some(index));
        }
        if let Some((head, pool)) = self.lines.take_pool() {
            if let Some(reason) = pool.fault(&self.tunnel) {
                self.wrong(head, "", reason);
            }
            self.tunnel.pool = Some(pool);
        }
        let (full, called) = (self.tunnel.takes_its_own(), self.tunnel.called());
        let whole = std::mem::take(&mut self.lines).finish(full, called);
        (self.tunnel.lines, self.tunnel.home) = (whole.lines, whole.home);
        if let [head, keys @ ..] = &*whole.home_lines {
            let permitted = called == 0 || self.permissions.forwarding();
            let (verdict, reason) = match permitted {
                true => (Verdict::Honoured, home::ROUTES),
                false => (Verdict::Refused, home::CALLS_TOO),
            };
            self.report.judge_again(&[*head], verdict, reason);
            if !permitted {
                self.tunnel.home = None;
                let reason = "its [Server] is refused";
                self.report.judge_again(keys, Verdict::Ignored, reason);
            }
        }
        for (line, reason) in whole.faults {
            self.wrong(line, "", reason);
        }
        for (line, reason) in whole.idle {
            self.report.ignore(line, reason);
        }
        // Later lines add notes on earlier ones.
        self.report.entries.sort_by_key(|entry| entry.line);
        Import {
            tunnel: self.tunnel,
            report: self.report,
            fault: self.fault,
        }
    }
}
