//! The record of the policy's settings in force, with the names and addresses known by then.

use std::path::{Path, PathBuf};

use crate::guard::GuardError;
use crate::guard::networks::{KNOWN, Known};
use crate::guard::record::{self, Record};
use config::policy::{Mac, Policy};

use crate::policy::leases::Names;
use crate::policy::second::Near;

/// The name of the record's file.
const NAME: &str = "policy";

/// Begins a line with a name and its hardware addresses, which is a comment in TOML.
const LEASE: &str = "#lease ";

/// Begins a line with a hardware address and one of its IP addresses.
const NEAR: &str = "#near ";

/// Begins the line with the path of the file that outlives a boot.
const KEPT: &str = "#kept ";

/// The recorded settings.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    pub(crate) policy: Policy,
    /// The text that the settings were read from.
    pub(crate) text: String,
    pub(crate) names: Names,
    /// IP addresses that devices had.
    pub(crate) near: Near,
    /// Networks, ports and indices that devices of the LAN had.
    pub(crate) known: Known,
    /// The file in which names outlive a boot.
    pub(crate) kept: Option<PathBuf>,
}

pub(crate) fn lock() -> Result<Record, GuardError> {
    Record::lock(NAME)
}

pub(crate) fn read(record: &Record) -> Option<Asked> {
    asked(&record.read()?)
}

/// Waits until no process is setting the policy; see [`record::settle`].
pub(crate) fn settle() -> impl Sized {
    record::settle(NAME)
}

/// Reads the record without waiting for the lock.
pub(crate) fn peek() -> Option<Asked> {
    asked(&record::peek(NAME)?)
}

pub(crate) fn write(record: &Record, asked: &Asked) -> Result<(), GuardError> {
    record.write(&in_text(asked))
}

fn in_text(asked: &Asked) -> String {
    let kept = asked.kept.iter().filter_map(|it| it.to_str());
    let mut text: String = kept
        .filter(|it| !it.contains('\n'))
        .map(|it| format!("{KEPT}{it}\n"))
        .collect();
    for (name, macs) in &asked.names {
        let macs: Vec<String> = macs.iter().map(ToString::to_string).collect();
        text += &format!("{LEASE}{name} {}\n", macs.join(" "));
    }
    for (mac, ip) in &asked.near {
        text += &format!("{NEAR}{mac} {ip}\n");
    }
    text + &asked.known.text() + &asked.text
}

fn asked(whole: &str) -> Option<Asked> {
    let (mut names, mut rest, mut kept) = (Names::new(), whole, None);
    if let Some((line, behind)) = rest.strip_prefix(KEPT).and_then(|it| it.split_once('\n')) {
        (kept, rest) = (Some(line.into()), behind);
    }
    while let Some(line) = rest.strip_prefix(LEASE) {
        let (line, behind) = line.split_once('\n')?;
        let mut words = line.split(' ');
        let name = words.next()?.to_owned();
        names.insert(name, words.filter_map(Mac::new).collect());
        rest = behind;
    }
    let mut near = Near::new();
    while let Some(line) = rest.strip_prefix(NEAR) {
        let (line, behind) = line.split_once('\n')?;
        let (mac, ip) = line.split_once(' ')?;
        near.push((Mac::new(mac)?, ip.parse().ok()?));
        rest = behind;
    }
    let known = rest
        .split_inclusive('\n')
        .take_while(|it| it.starts_with(KNOWN));
    let (known, rest) = rest.split_at(known.map(str::len).sum());
    let policy = Policy::from_toml(rest, Path::new(record::DIRECTORY))
        .map_err(|error| log::warn!("{error}"))
        .ok()?;
    Some(Asked {
        policy,
        text: rest.to_owned(),
        names,
        near,
        known: Known::of_text(known),
        kept,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::fixture::{TEXT, names, policy};

    #[test]
    fn settings_and_names_survive_being_written() {
        let it = Asked {
            policy: policy(),
            text: TEXT.to_owned(),
            names: names(),
            near: vec![(
                Mac([2, 0, 0x5e, 0x10, 0, 2]),
                crate::policy::fixture::ip("fd00::7"),
            )],
            known: Known {
                ports: vec!["lan1".to_owned()],
                ..Known::default()
            },
            kept: Some("/etc/millrace/policy.toml.leases".into()),
        };
        assert_eq!(asked(&in_text(&it)), Some(it));
        assert_eq!(asked("lan = ["), None);
    }
}
