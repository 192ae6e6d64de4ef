//! Imports files of pppd that call pptp-linux (`/etc/ppp/peers/NAME`), and `pptpd.conf`.
//!
//! These programs have no option that allows insecure settings. A comment does: `#! allow-insecure = pptp`.

mod client;
mod collected;
mod options;
mod secrets;
mod server;
mod words;

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::{Auth, FILE_MAX, Import, Mppe, MppeMode, PROTECTS_NOTHING, exact_text};
use crate::file;
use crate::permissions::{ALLOW_FILES, Permissions};
use crate::report::{Report, Verdict};
use crate::text::Text;
use crate::types::{decimal, is_ifname};
use collected::Given;
use secrets::{Secret, secrets};

/// The file of user names and passwords.
pub(super) const SECRETS: &str = "/etc/ppp/chap-secrets";
/// The directory of client files.
const PEERS: &str = "/etc/ppp/peers";

/// Reads a file that another one names; tests keep their files in memory.
pub(super) type Read<'r> = dyn Fn(&Path) -> Result<Zeroizing<Vec<u8>>, String> + 'r;

/// The program that a file belongs to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// pppd's, with a call of pptp-linux: a client.
    Peer,
    /// pptpd's: a server.
    Daemon,
}

/// The program that a text belongs to; `None` for other files.
fn kind(text: &str) -> Option<Kind> {
    if text.lines().any(|line| line.trim_start().starts_with('[')) {
        return None;
    }
    let mut lines = text.lines().filter_map(server::line_of);
    if lines.any(|(word, value)| matches!(word, "localip" | "remoteip") && !value.is_empty()) {
        return Some(Kind::Daemon);
    }
    let words = words::words(text).ok()?;
    let mut pairs = words.iter().zip(words.iter().skip(1));
    let peer = pairs.any(|(word, value)| match word.text.as_str() {
        "pty" => {
            let program = value.text.split_whitespace().next().unwrap_or_default();
            program.rsplit('/').next() == Some("pptp")
        }
        "plugin" => value.text.rsplit('/').next() == Some("pptp.so"),
        _ => false,
    });
    peer.then_some(Kind::Peer)
}

/// Whether a text is a file of pppd or pptpd.
pub(super) fn is_options(text: &str) -> bool {
    text.len() as u64 <= FILE_MAX && kind(text).is_some()
}

/// Returns the function that reads the files that this one names, `chap-secrets` included. Without a permission it
/// reads none.
pub(super) fn reader(path: &Path, permissions: Permissions) -> &'static Read<'static> {
    match permissions.with_place(path).files() {
        true => &of_host,
        false => &refused,
    }
}

fn of_host(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    file::read(path, FILE_MAX).map_err(|error| error.to_string())
}

fn refused(_: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    Err(format!(
        "a file from elsewhere names no other file of this machine, whose passwords would be used: write what is in it into \
         this one, or {ALLOW_FILES}"
    ))
}

/// Files that are read for this one and may hold a password, itself included.
pub(super) fn secrets_of(path: &Path, bytes: &[u8], read: &Read<'_>) -> Vec<PathBuf> {
    let found = RefCell::new(Vec::new());
    let note = |path: &Path, bytes: &[u8]| {
        let mut found = found.borrow_mut();
        let holds = path == Path::new(SECRETS) || has_password(bytes);
        if holds && !found.iter().any(|it| it == path) {
            found.push(path.to_owned());
        }
    };
    let reads = |path: &Path| {
        let bytes = read(path)?;
        note(path, &bytes);
        Ok(bytes)
    };
    note(path, bytes);
    if let Ok(text) = Text::new(bytes) {
        parse(&text, path, false, &reads);
    }
    found.into_inner()
}

/// Whether a file's options may include a password. Most have none and are readable by all users.
fn has_password(bytes: &[u8]) -> bool {
    let Ok(text) = Text::new(bytes) else {
        return false;
    };
    match words::words(&text) {
        Ok(words) => words.iter().any(|word| *word.text == "password"),
        Err(_) => text.contains("password"),
    }
}

/// Parses a file of either kind. With `starts`, the file must allow insecure settings.
pub(super) fn parse(text: &str, path: &Path, starts: bool, read: &Read<'_>) -> Import {
    let mut report = Report {
        file: path.display().to_string(),
        ..Report::default()
    };
    let kind = kind(text);
    if starts && kind.is_some() {
        allowed(text, &mut report);
    }
    let model = match kind {
        Some(Kind::Peer) => client::model(text, path, read, &mut report),
        Some(Kind::Daemon) => server::model(text, path, read, &mut report),
        None => {
            let reason = "neither a file of pppd's that calls pptp, nor pptpd.conf";
            report.push(0, "", Verdict::Refused, reason);
            None
        }
    };
    Import::new(report, model)
}

/// Looks for the comment that allows insecure settings.
fn allowed(text: &str, report: &mut Report) {
    let comment = |line: &str| {
        let rest = line.trim().strip_prefix("#!")?.trim();
        let value = rest.strip_prefix("allow-insecure")?.trim_start();
        Some(value.strip_prefix('=')?.trim().trim_matches('"') == "pptp")
    };
    let mut lines = text.lines().enumerate();
    match lines.find_map(|(at, line)| Some((at + 1, comment(line)?))) {
        Some((line, true)) => report.push(line, "allow-insecure", Verdict::Honoured, ""),
        Some((line, false)) => report.push(line, "allow-insecure", Verdict::Refused, insecure()),
        None => report.push(0, "allow-insecure", Verdict::Refused, insecure()),
    }
}

fn insecure() -> String {
    format!(
        "{PROTECTS_NOTHING}If it has to be PPTP, write the line `#! allow-insecure = pptp` into the file, and use a password \
         that is used for nothing else"
    )
}

/// The lines of `chap-secrets`.
fn read_secrets(read: &Read<'_>) -> Result<Vec<Secret>, String> {
    let bytes = read(Path::new(SECRETS))?;
    let text = exact_text(&bytes).map_err(|line| format!("line {line}: not UTF-8"))?;
    secrets(&text).map_err(|fault| {
        let (line, reason) = fault.describe();
        format!("line {line}: {reason}")
    })
}

/// Options that both clients and servers have.
#[derive(Default)]
struct Common {
    /// Lengths of required keys, in bits.
    bits: Vec<u8>,
    required: bool,
    none: bool,
    stateful: bool,
    no_ccp: bool,
    refused: Vec<&'static str>,
    /// Whether clients log in to this host.
    server: bool,
    interface: Option<String>,
    mtu: Option<u16>,
}

impl Common {
    /// Takes an option, if clients and servers share it.
    fn take(&mut self, option: &Given, report: &mut Report) -> bool {
        let mut verdict = Verdict::Honoured;
        let mut reason = "";
        match option.name {
            "require-mppe" => {
                self.required = true;
                reason = "with keys of 128 bits";
            }
            "mppe" => match self.take_mppe(&option.value) {
                Ok(words) => reason = words,
                Err(fault) => {
                    verdict = Verdict::Refused;
                    reason = fault;
                }
            },
            "require-mppe-128" => self.bits.push(128),
            "require-mppe-40" => self.bits.push(40),
            "nomppe" => self.none = true,
            "nomppe-40" => self.bits.retain(|&bits| bits != 40),
            "nomppe-128" => {
                verdict = Verdict::Refused;
                reason =
                    "only keys of 40 bits, which are found at once, would be left: leave it out";
            }
            "nomppe-stateful" => self.stateful = false,
            "mppe-stateful" => self.stateful = true,
            "noccp" => self.no_ccp = true,
            "refuse-pap" | "refuse-chap" | "refuse-mschap" | "refuse-mschap-v2" | "refuse-eap" => {
                self.refused.push(option.name);
            }
            "mtu" | "mru" => match decimal(&option.value) {
                Some(bytes @ 576..=1456) => {
                    // Both directions get the smaller value.
                    let bytes = u16::try_from(bytes).unwrap_or(576);
                    self.mtu = Some(self.mtu.map_or(bytes, |mtu| mtu.min(bytes)));
                }
                Some(1457..) => {
                    verdict = Verdict::Ignored;
                    reason = "does not fit through: what both ends agree on";
                }
                _ => {
                    verdict = Verdict::Refused;
                    reason = "write a number of bytes from 576";
                }
            },
            "unit" if decimal(&option.value).is_some_and(|it| it < 10_000) => {
                self.interface = Some(format!("ppp{}", option.value.as_str()));
            }
            "ifname" if is_ifname(&option.value) => {
                self.interface = Some(option.value.to_string());
            }
            "unit" | "ifname" => {
                verdict = Verdict::Refused;
                reason = "gives no name of an interface";
            }
            _ => return false,
        }
        option.judge(report, verdict, reason);
        true
    }

    /// Takes OpenWrt's encryption option: words separated by commas. Returns a remark.
    fn take_mppe(&mut self, value: &str) -> Result<&'static str, &'static str> {
        let mut bits = vec![128, 56, 40];
        for word in value.split(',').map(str::trim) {
            match word {
                // Encryption is always required; there is no "if possible" here.
                "required" | "optional" | "" => {}
                "stateless" => self.stateful = false,
                "stateful" => self.stateful = true,
                "no128" => bits.retain(|it| *it != 128),
                "no56" => bits.retain(|it| *it != 56),
                "no40" => bits.retain(|it| *it != 40),
                _ => return Err("write required,no40,no56,stateless"),
            }
        }
        if bits.contains(&128) {
            self.bits.push(128);
            return Ok("required, with keys of 128 bits");
        }
        let none_left = bits.is_empty();
        self.bits.append(&mut bits);
        match none_left {
            true => Err("no length of keys is left: leave no128 out"),
            false => Ok("required; without no128 the keys would be longer"),
        }
    }

    /// The encryption and the login methods. `None` if they are not given, or contradict each other.
    fn protection(&mut self, report: &mut Report) -> (Option<Mppe>, Vec<Auth>) {
        let wanted = self.required || !self.bits.is_empty();
        let mut refuse = |reason: &str| report.push(0, "require-mppe", Verdict::Refused, reason);
        let mppe = match (wanted, self.none) {
            (true, true) => {
                refuse("nomppe is there too: one of both");
                None
            }
            (false, false) => {
                refuse(
                    "the file does not say that packets have to be encrypted: write require-mppe-128",
                );
                None
            }
            (false, true) => Some(Mppe::None),
            (true, false) => {
                if self.no_ccp {
                    refuse("with noccp nothing can be agreed on: leave that out");
                }
                if self.required {
                    self.bits.push(128);
                }
                self.bits.sort_unstable_by(|a, b| b.cmp(a));
                self.bits.dedup();
                Some(Mppe::Required {
                    bits: self.bits.clone(),
                    mode: match self.stateful {
                        true => MppeMode::Either,
                        false => MppeMode::Stateless,
                    },
                })
            }
        };
        let mut auth = vec![
            (Auth::MsChapV2, "refuse-mschap-v2"),
            (Auth::Chap, "refuse-chap"),
            (Auth::Pap, "refuse-pap"),
        ];
        if self.server || mppe != Some(Mppe::None) {
            // Only MS-CHAPv2 gives keys. A server takes nothing else even without keys, so that no client sends it a
            // readable password.
            auth.truncate(1);
        }
        auth.retain(|(_, option)| !self.refused.contains(option));
        if auth.is_empty() {
            let reason = match self.server {
                true => "clients log in by MS-CHAPv2, and by nothing else",
                false => "no way to log in is left: keys come from MS-CHAPv2",
            };
            report.push(0, "refuse-mschap-v2", Verdict::Refused, reason);
        }
        (mppe, auth.into_iter().map(|(auth, _)| auth).collect())
    }

    /// The interface's name: from an option, or the file's name.
    fn interface(&mut self, path: &Path, report: &mut Report) -> Option<String> {
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let stem = stem.filter(|stem| is_ifname(stem)).map(str::to_owned);
        let interface = self.interface.take().or(stem);
        if interface.is_none() {
            let reason = "the file's name is no name for an interface: write ifname, and 1 to 15 letters and digits";
            report.push(0, "ifname", Verdict::Refused, reason);
        }
        interface
    }
}

/// Entry point for a fuzzer: every file that the text names, `chap-secrets` included, is the text itself.
#[doc(hidden)]
#[must_use]
pub fn parse_alone(text: &str) -> Import {
    let bytes = || Ok(Zeroizing::new(text.as_bytes().to_vec()));
    parse(text, Path::new("office"), true, &|_| bytes())
}

#[cfg(test)]
mod tests;
