//! Imports files of pppd that call pptp-linux (`/etc/ppp/peers/NAME`), and `pptpd.conf`.
//!
//! These programs have no option that allows insecure settings. A comment does: `#! allow-insecure = pptp`.

mod client;
mod collected;
mod options;
mod secrets;
mod server;
mod wanted;
mod words;

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::{FILE_MAX, Import, PROTECTS_NOTHING, exact_text};
use crate::file;
use crate::permissions::{ALLOW_FILES, Permissions};
use crate::report::{Report, Verdict};
use crate::text::Text;
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
        "an imported file must not name other files of this machine, as it would use their passwords; copy their \
         lines into this file, or {ALLOW_FILES}"
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
            let reason = "neither a pppd options file that runs pptp, nor pptpd.conf";
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
        "{PROTECTS_NOTHING}If it has to be PPTP, write the line `#! allow-insecure = pptp` into the file, and choose \
         a password that you use nowhere else"
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

/// Entry point for a fuzzer: every file that the text names, `chap-secrets` included, is the text itself.
#[doc(hidden)]
#[must_use]
pub fn parse_alone(text: &str) -> Import {
    let bytes = || Ok(Zeroizing::new(text.as_bytes().to_vec()));
    parse(text, Path::new("office"), true, &|_| bytes())
}

#[cfg(test)]
mod tests;
