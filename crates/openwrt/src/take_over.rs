//! Converts interfaces of OpenWrt's protocols `wireguard` and `amneziawg`, and instances of its OpenVPN service, into `millrace`
//! interfaces.
//!
//! Files are edited line by line: comments, order and everything else stay. The result is read again and compared
//! with the expected settings, so that a file with unusual syntax is refused rather than damaged.

use crate::network::{Fault, Network, PROTO};
use crate::uci::{Package, Section, Value};
use config::permissions::UCI_OPTION;
use std::fmt::Write as _;
use zeroize::Zeroizing;

/// The protocols that are converted.
const THEIRS: [&str; 2] = ["wireguard", "amneziawg"];

/// Options that have no equal here, each with the remedy.
const REPLACED: [(&str, &str); 2] = [
    ("nohostroute", "hostroute 0 does the same as nohostroute 1"),
    ("tunlink", "uplink binds the tunnel to that interface"),
];

/// The new texts of both files, and messages about the changes.
#[derive(Debug, Default)]
pub struct TakenOver {
    /// The whole text of `network`, which holds private keys.
    pub network: Zeroizing<String>,
    /// The whole text of `openvpn`.
    pub openvpn: String,
    /// The changes, one line for each.
    pub changes: Vec<String>,
    /// Settings that are not converted, or change their meaning.
    pub hints: Vec<String>,
}

/// Why nothing was converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TakeOverError {
    /// A file is not valid UCI.
    #[error("{file}: {fault}")]
    Uci {
        /// Name of the UCI file.
        file: &'static str,
        /// The file's first fault.
        fault: crate::uci::Fault,
    },
    /// No interface and no instance has this name.
    #[error(
        "{0}: network has no interface with proto wireguard or amneziawg of this name, and openvpn no instance"
    )]
    Unknown(String),
    /// The file has a syntax that cannot be edited line by line.
    #[error(
        "{0}: is written in an unusual way; rewrite it first: uci set {0}.migrated=1; uci delete {0}.migrated; uci commit {0}"
    )]
    Unusual(&'static str),
    /// The new interface would not work.
    #[error("{0}")]
    Refused(Fault),
}

/// The result of checking an instance's file.
#[derive(Debug, Default)]
pub struct Judged {
    /// Notes on lines that are not honoured.
    pub notes: Vec<String>,
    /// Whether the file names other files that need a permission, which the OpenVPN service did not request.
    pub needs_files: bool,
}

/// Checks an instance's file, or returns the reason why it would not work.
pub type Judge<'a> = dyn Fn(&str) -> Result<Judged, String> + 'a;

/// Converts the interface or instance `only`, or all of them. The texts are those of `/etc/config/network` and
/// `/etc/config/openvpn`; pass an empty text if the latter is missing. `judge` checks an instance's file: an instance
/// whose file would not work stays as it is.
///
/// # Errors
/// [`TakeOverError`]; write nothing then.
pub fn take_over(
    network: &str,
    openvpn: &str,
    only: Option<&str>,
    judge: &Judge<'_>,
) -> Result<TakenOver, TakeOverError> {
    let mut taken = TakenOver::default();
    let package = read("network", network)?;
    let instances = read("openvpn", openvpn)?;
    let wanted = |name: &str| only.is_none_or(|only| only == name);
    let mut found = false;

    let mut lines = Lines::new(network);
    let mut expected = package.clone();
    let mut names = Vec::new();
    for section in &package.sections {
        let Some(name) = section.name.as_deref().filter(|it| wanted(it)) else {
            continue;
        };
        let proto = THEIRS.iter().find(|it| section.text("proto") == Some(it));
        let Some(proto) = proto.filter(|_| section.kind == "interface") else {
            continue;
        };
        found = true;
        interface(
            &package,
            (section, proto),
            name,
            &mut lines,
            &mut expected,
            &mut taken,
        )?;
        names.push(name.to_owned());
    }
    let mut others = Lines::new(openvpn);
    let mut expected_others = instances.clone();
    let mut added = String::new();
    for section in &instances.sections {
        let Some(name) = section.name.as_deref().filter(|it| wanted(it)) else {
            continue;
        };
        if section.kind != "openvpn" {
            continue;
        }
        found = true;
        if let Some((file, needs_files)) = instance(&package, section, name, judge, &mut taken) {
            off(section, name, &mut others, &mut expected_others, &mut taken)?;
            // `instance` made sure that the path has no quotes and no line breaks.
            let _ = write!(
                added,
                "\nconfig interface '{name}'\n\toption proto '{PROTO}'\n\toption config_file '{file}'\n"
            );
            if needs_files {
                let _ = writeln!(added, "\toption {UCI_OPTION} '1'");
            }
            names.push(name.to_owned());
        }
    }
    if let (false, Some(only)) = (found, only) {
        return Err(TakeOverError::Unknown(only.to_owned()));
    }
    taken.network = Zeroizing::new(lines.text() + &added);
    taken.openvpn = others.text();
    let after = read("network", &taken.network)?;
    let kept = after.sections.iter().take(expected.sections.len());
    if !kept.map(said).eq(expected.sections.iter().map(said)) {
        return Err(TakeOverError::Unusual("network"));
    }
    let after_others = read("openvpn", &taken.openvpn)?;
    if !after_others
        .sections
        .iter()
        .map(said)
        .eq(expected_others.sections.iter().map(said))
    {
        return Err(TakeOverError::Unusual("openvpn"));
    }
    for name in names {
        let network = Network::read(&after, &name).map_err(|faults| {
            let mut faults = faults.into_iter();
            faults
                .next()
                .map_or(TakeOverError::Unusual("network"), TakeOverError::Refused)
        })?;
        taken
            .hints
            .extend(network.warnings.iter().map(ToString::to_string));
    }
    Ok(taken)
}

/// Everything in a section except its position.
fn said(section: &Section) -> (&str, Option<&str>, Vec<(&str, &Value)>) {
    let settings = section
        .settings
        .iter()
        .map(|it| (it.name.as_str(), &it.value));
    (&section.kind, section.name.as_deref(), settings.collect())
}

fn read(file: &'static str, text: &str) -> Result<Package, TakeOverError> {
    Package::parse(text).map_err(|faults| {
        let fault = faults.into_iter().next();
        fault.map_or(TakeOverError::Unusual(file), |fault| TakeOverError::Uci {
            file,
            fault,
        })
    })
}

/// Converts an interface of the protocol `theirs` and its peers.
fn interface(
    package: &Package,
    (section, theirs): (&Section, &str),
    name: &str,
    lines: &mut Lines<'_>,
    expected: &mut Package,
    taken: &mut TakenOver,
) -> Result<(), TakeOverError> {
    let unusual = || TakeOverError::Unusual("network");
    let proto = section.setting("proto").ok_or_else(unusual)?;
    lines
        .replace(proto.line, theirs, PROTO)
        .ok_or_else(unusual)?;
    set(expected, section.line, |it| change(it, "proto", PROTO));
    taken.changes.push(format!(
        "network:{}: {name}.proto: {theirs} -> {PROTO}",
        proto.line
    ));
    for (option, remedy) in REPLACED {
        if let Some(setting) = section.setting(option) {
            taken.hints.push(format!(
                "network:{}: {name}.{option} is not supported; {remedy}",
                setting.line
            ));
        }
    }
    let theirs = format!("{theirs}_{name}");
    let ours = format!("{PROTO}_{name}");
    for peer in package.of_kind(&theirs) {
        lines
            .replace(peer.line, &theirs, &ours)
            .ok_or_else(unusual)?;
        set(expected, peer.line, |it| it.kind.clone_from(&ours));
        taken
            .changes
            .push(format!("network:{}: {theirs} -> {ours}", peer.line));
    }
    taken.hints.push(format!(
        "the network device of {name} will be called {}: change settings that name the device {name} (firewall rules \
         by device, other programs); zones by network stay valid",
        crate::device_name(name)
    ));
    Ok(())
}

/// The file of an OpenVPN instance, if it can become an interface.
fn instance(
    package: &Package,
    section: &Section,
    name: &str,
    judge: &Judge<'_>,
    taken: &mut TakenOver,
) -> Option<(String, bool)> {
    let mut leave = |words: &str| {
        let line = section.line;
        taken
            .hints
            .push(format!("openvpn:{line}: {name} is not taken over: {words}"));
    };
    if !matches!(
        section.text("enabled"),
        Some("1" | "on" | "true" | "yes" | "enabled")
    ) {
        leave("it is not enabled");
        return None;
    }
    let Some(file) = section.text("config") else {
        leave("it has no file (option config); write its options into a file, and import that");
        return None;
    };
    if !file.starts_with('/') || file.contains(['\'', '\n', '\r']) {
        leave("its option config is not an absolute path without quotes");
        return None;
    }
    if package.section(name).is_some() {
        leave(
            "network already has a section of that name; give it proto millrace and this config_file",
        );
        return None;
    }
    let judged = match judge(file) {
        Ok(judged) => judged,
        Err(why) => {
            leave(&why);
            return None;
        }
    };
    taken.hints.extend(judged.notes);
    let permitted = match judged.needs_files {
        true => {
            format!(", {UCI_OPTION} 1, as its file names other files to write, send or read")
        }
        false => String::new(),
    };
    taken.changes.push(format!(
        "network: new interface {name}: proto {PROTO}, config_file {file}{permitted}"
    ));
    taken.hints.push(format!(
        "the network device of {name} will be called {}, whatever its file says: change settings that name the old \
         device (firewall zones and rules by device, other programs)",
        crate::device_name(name)
    ));
    Some((file.to_owned(), judged.needs_files))
}

/// Disables an instance of the OpenVPN service.
fn off(
    section: &Section,
    name: &str,
    lines: &mut Lines<'_>,
    expected: &mut Package,
    taken: &mut TakenOver,
) -> Result<(), TakeOverError> {
    let unusual = || TakeOverError::Unusual("openvpn");
    let setting = section.setting("enabled").ok_or_else(unusual)?;
    let value = section.text("enabled").ok_or_else(unusual)?;
    lines
        .replace_last(setting.line, value, "0")
        .ok_or_else(unusual)?;
    set(expected, section.line, |it| change(it, "enabled", "0"));
    taken.changes.push(format!(
        "openvpn:{}: {name}.enabled: {value} -> 0",
        setting.line
    ));
    Ok(())
}

fn set(package: &mut Package, line: usize, change: impl FnOnce(&mut Section)) {
    if let Some(section) = package.sections.iter_mut().find(|it| it.line == line) {
        change(section);
    }
}

fn change(section: &mut Section, option: &str, value: &str) {
    if let Some(setting) = section.settings.iter_mut().find(|it| it.name == option) {
        setting.value = Value::Text(Zeroizing::new(value.to_owned()));
    }
}

/// A text whose lines can be edited one by one.
struct Lines<'t>(Vec<std::borrow::Cow<'t, str>>);

impl<'t> Lines<'t> {
    fn new(text: &'t str) -> Self {
        Self(text.split_inclusive('\n').map(Into::into).collect())
    }

    /// Replaces the first occurrence of a word in a line, counted from 1.
    fn replace(&mut self, line: usize, word: &str, by: &str) -> Option<()> {
        let text = self.0.get_mut(line.checked_sub(1)?)?;
        let at = text.find(word)?;
        text.to_mut().replace_range(at..at + word.len(), by);
        Some(())
    }

    /// Replaces the last occurrence of a word; see [`replace`](Self::replace).
    fn replace_last(&mut self, line: usize, word: &str, by: &str) -> Option<()> {
        let text = self.0.get_mut(line.checked_sub(1)?)?;
        let at = text.rfind(word)?;
        text.to_mut().replace_range(at..at + word.len(), by);
        Some(())
    }

    fn text(&self) -> String {
        self.0.concat()
    }
}

#[cfg(test)]
mod tests;
