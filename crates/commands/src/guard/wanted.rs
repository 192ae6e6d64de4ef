//! Gathers the settings: the file, the command line in its place, and the lists of OpenWrt's interfaces.
//!
//! | source | settings | if it is faulty |
//! |---|---|---|
//! | file, command line | `lan`, `tunnels` and the rest | its part in force, or else its last valid text |
//! | `only_through` in UCI | groups | the groups in force, or else the last valid ones |
//!
//! The sources are independent: an error in one releases no device of the other.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command};
use config::guard::{DEFAULT_PATH, Group, Guard};
use config::settings::SettingsError;
use openwrt::only_through::Lists;
use steer::SteerError;

use super::CommandError;
use crate::arguments::{self, devices, flag, list, option, parsed, path, tunnels, values};

/// The directory of UCI's files.
pub(super) const UCI: &str = "/etc/config";

pub(super) fn file_argument() -> Arg {
    path(
        "settings",
        "FILE",
        "Settings [default: /etc/millrace/guard.toml, if it is there]",
    )
}

pub(super) fn uci_argument() -> Arg {
    path(
        "uci",
        "DIRECTORY",
        "Where OpenWrt's file `network` is, for only_through",
    )
    .default_value(UCI)
}

pub(super) fn arguments(command: Command) -> Command {
    command
        .arg(file_argument())
        .arg(uci_argument())
        .arg(devices(
            "lan",
            "A guarded device, instead of the file's; may be repeated",
        ))
        .arg(devices("reach", "A further device that those may reach"))
        .arg(tunnels("A tunnel's device, or mr-* for all that begin so"))
        .arg(parsed(
            option("table", "NUMBER", "The guard's routing table [default: 77]"),
            config::guard::table,
            "write the number of a routing table other than 253 to 255",
        ))
        .arg(flag(
            "no-lead",
            "Make no default route in the table; the tunnels do",
        ))
        .arg(parsed(
            list(
                "dns",
                "ADDRESS",
                "A name server behind the tunnel: the router's dnsmasq asks only it, by the tunnel",
            ),
            config::guard::server,
            "write the address of a name server behind the tunnel",
        ))
        .arg(parsed(
            list(
                "dns-name",
                "DOMAIN",
                "Ask it for this domain only; others as before",
            ),
            config::guard::domain,
            "write a domain, such as corp.example",
        ))
        .arg(flag(
            "dns-redirect",
            "Have queries of the LAN to other servers (port 53) come to the router",
        ))
        .arg(flag(
            "dns-block-tls",
            "Refuse DNS over TLS and QUIC of the LAN (port 853)",
        ))
        .arg(flag(
            "no-masquerade",
            "Do not masquerade the LAN's packets into tunnels: the firewall does, or nobody",
        ))
        .arg(flag(
            "router",
            "Hold the router's own packets, too, except DHCP, NTP and the tunnel's own",
        ))
        .arg(parsed(
            list(
                "router-allow",
                "ADDRESS",
                "An address or network that the router itself may reach without a tunnel",
            ),
            config::guard::allowed,
            "write an address or a network, but not all addresses",
        ))
}

/// The settings to set.
pub(super) struct Wanted {
    /// Settings to install as firewall rules.
    pub(super) guard: Guard,
    /// Errors that did not stop the reading.
    pub(super) errors: Vec<CommandError>,
    /// Devices that interfaces list, but that are not guarded.
    pub(super) unheld: Vec<String>,
    /// The settings in the files, to be kept for a later start that finds an error; `None` if the lists cannot be read.
    pub(super) written: Option<Guard>,
}

impl Wanted {
    /// Reads all sources. A faulty source is replaced by its settings in force, or by its last valid ones.
    ///
    /// # Errors
    /// The settings guard nothing.
    pub(super) fn read(matches: &ArgMatches) -> Result<Self, CommandError> {
        let in_force = steer::guard::in_force();
        let kept = || read_copy(file(matches));
        let mut errors = Vec::new();
        let mut base = match base(matches) {
            Ok(base) => base,
            Err(error) => {
                errors.push(error);
                instead(in_force.as_ref(), matches).unwrap_or_default()
            }
        };
        let lists = Lists::of(uci(matches));
        if base.lan.is_empty()
            && errors.is_empty()
            && let Some(lists) = lists.as_ref().ok().filter(|it| it.is_empty())
        {
            return Err(nothing(unheld_of(lists)));
        }
        // A file that names no devices, or a missing file, releases no device.
        if base.lan.is_empty()
            && let Some(guard) = in_force.as_ref().filter(|it| !it.lan.is_empty())
        {
            let further = std::mem::take(&mut base.reach);
            base = guard.clone();
            base.reach.extend(further);
            base.merge_doubles();
        }
        let before = in_force.as_ref().map_or(&[][..], |it| &it.groups);
        let written = lists.as_ref().ok();
        let written = written.map(|it| written_in(matches, it, before));
        let mut unheld = Vec::new();
        let mut guard = match lists {
            Ok(lists) => {
                let (guard, left) = base.with_lists(&lists.lists, before);
                unheld = unheld_of(&lists);
                unheld.extend(left);
                guard
            }
            Err(error) => {
                let path = uci(matches).join("network");
                errors.push(CommandError::Lists { path, error });
                let groups = match &in_force {
                    Some(guard) => guard.groups.clone(),
                    None => kept().map(|it| it.groups).unwrap_or_default(),
                };
                base.with_groups(&groups)
            }
        };
        if let Some(fault) = guard
            .fault()
            .filter(|_| guard.lan.is_empty() && !guard.is_empty())
        {
            // An error in the file's settings must not affect the groups.
            errors.push(SteerError::Settings(fault).into());
            let groups = std::mem::take(&mut guard.groups);
            guard = Guard::default();
            guard.groups = groups;
        }
        match guard.is_empty() {
            true if errors.is_empty() => Err(nothing(unheld)),
            true => Err(errors.remove(0)),
            false => Ok(Self {
                guard,
                written,
                errors,
                unheld,
            }),
        }
    }
}

/// The error if no device is left to hold.
fn nothing(unheld: Vec<String>) -> CommandError {
    match unheld.is_empty() {
        true => CommandError::Nothing,
        false => CommandError::Refused(unheld),
    }
}

/// The settings in the files, without the command line and the state in force. A faulty settings file counts with its
/// last valid text.
fn written_in(matches: &ArgMatches, lists: &Lists, before: &[Group]) -> Guard {
    let is_well = |it: &Guard| it.lan.is_empty() || it.fault().is_none();
    let file = from_file(matches).map(Option::unwrap_or_default).ok();
    let own = file
        .filter(is_well)
        .or_else(|| read_copy(self::file(matches)));
    let (guard, _) = own.unwrap_or_default().with_lists(&lists.lists, before);
    match guard.fault() {
        Some(_) => Guard::default().with_groups(&guard.groups),
        None => guard,
    }
}

/// The settings that replace those of a faulty file: those in force, or the last valid text.
fn instead(in_force: Option<&Guard>, matches: &ArgMatches) -> Option<Guard> {
    if let Some(guard) = in_force {
        log::warn!("what the guard was switched on with is still in force");
        return Some(guard.clone());
    }
    let kept = read_copy(file(matches))?;
    let path = copy_of(file(matches));
    log::warn!(
        "the guard is set by the last settings that were good, {}",
        path.display()
    );
    Some(kept)
}

/// A sentence for each listed device that is not guarded.
pub(super) fn unheld_of(lists: &Lists) -> Vec<String> {
    let faults = lists.faults.iter().map(ToString::to_string);
    let is_there = |device: &str| Path::new("/sys/class/net").join(device).exists();
    let unknown = lists
        .unknown
        .iter()
        .filter(|(_, lan)| !is_there(&lan.device));
    let unknown = unknown.map(|(interface, lan)| {
        format!(
            "network: {interface}.only_through: {}",
            unknown_words(&lan.name)
        )
    });
    faults.chain(unknown).collect()
}

/// The warning about a word that names neither an interface nor a device of this host.
pub(crate) fn unknown_words(name: &str) -> String {
    format!("there is no interface and no device {name}; nothing of it is held back")
}

/// The path of the settings file.
pub(super) fn file(matches: &ArgMatches) -> &Path {
    arguments::file(matches, "settings").unwrap_or_else(|| Path::new(DEFAULT_PATH))
}

/// The path of UCI's directory.
pub(super) fn uci(matches: &ArgMatches) -> &Path {
    arguments::path_of(matches, "uci")
}

/// The settings in the file; `None` if the default file does not exist.
pub(super) fn from_file(matches: &ArgMatches) -> Result<Option<Guard>, SettingsError> {
    let is_named = matches.contains_id("settings");
    match Guard::read(file(matches)) {
        Err(SettingsError::Read { error, .. })
            if !is_named && error.kind() == io::ErrorKind::NotFound =>
        {
            Ok(None)
        }
        other => other.map(Some),
    }
}

/// The settings in the file, overridden by the command line. They may guard nothing.
pub(super) fn base(matches: &ArgMatches) -> Result<Guard, CommandError> {
    let mut guard = from_file(matches)?.unwrap_or_default();
    let over = |matches, name, setting: &mut Vec<String>| {
        if let Some(given) = values(matches, name) {
            *setting = given;
        }
    };
    over(matches, "lan", &mut guard.lan);
    over(matches, "reach", &mut guard.reach);
    over(matches, "dns-name", &mut guard.dns_names);
    if let Some(patterns) = values(matches, "tunnel") {
        guard.tunnels = patterns;
    }
    if let Some(table) = matches.get_one("table") {
        guard.table = *table;
    }
    guard.lead &= !matches.get_flag("no-lead");
    if let Some(servers) = values(matches, "dns") {
        guard.dns = servers;
    }
    guard.dns_redirect |= matches.get_flag("dns-redirect");
    guard.dns_block_tls |= matches.get_flag("dns-block-tls");
    guard.masquerade &= !matches.get_flag("no-masquerade");
    guard.router |= matches.get_flag("router");
    if let Some(networks) = values(matches, "router-allow") {
        guard.router_allow = networks;
    }
    guard.merge_doubles();
    match guard.fault().filter(|_| !guard.lan.is_empty()) {
        Some(fault) => Err(SteerError::Settings(fault).into()),
        None => Ok(guard),
    }
}

/// The path of the copy of the last valid settings, beside their file: with it the guard holds despite an error in the
/// file or in the interfaces' lists.
pub(crate) fn copy_of(file: &Path) -> PathBuf {
    let mut name = OsString::from(file);
    name.push(".valid");
    PathBuf::from(name)
}

/// Writes the copy, unless it is up to date. Settings that guard nothing have no copy.
pub(super) fn keep(guard: &Guard, file: &Path) {
    if guard.is_empty() {
        return forget(file);
    }
    let path = copy_of(file);
    if Guard::read_kept(&path).is_ok_and(|kept| kept == *guard) {
        return;
    }
    // The guard works without the copy.
    if let Err(error) = write_text(&guard.to_kept(), &path, 0o600) {
        log::debug!("{}: {error}", path.display());
    }
}

/// Removes the copy, so that a later error does not bring back old settings.
pub(super) fn forget(file: &Path) {
    let path = copy_of(file);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            log::warn!("{}: {error}", path.display());
        }
        _ => {}
    }
}

/// Reads the copy.
fn read_copy(file: &Path) -> Option<Guard> {
    let kept = Guard::read_kept(&copy_of(file)).ok()?;
    kept.fault().is_none().then_some(kept)
}

/// Writes a text to a file, atomically.
pub(crate) fn write_text(text: &str, path: &Path, mode: u32) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    host::written_file::replace(path, text.as_bytes(), mode)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    pub(in crate::guard) fn read(words: &[&str]) -> Result<Guard, CommandError> {
        let words = ["on", "--settings", "/dev/null"].iter().chain(words);
        base(&matches(words).unwrap())
    }

    fn matches<'a>(
        words: impl Iterator<Item = &'a &'a str>,
    ) -> Result<ArgMatches, clap::error::Error> {
        arguments(Command::new("on")).try_get_matches_from(words)
    }

    #[test]
    fn the_command_line_says_all_that_the_file_does() {
        let words = "--lan br-lan --lan br-guest --reach br-iot --tunnel mr-* --table 99 --no-lead";
        let guard = read(&words.split(' ').collect::<Vec<_>>()).unwrap();
        assert_eq!(
            guard.to_toml(),
            "lan = [\"br-lan\", \"br-guest\"]\nreach = [\"br-iot\"]\ntunnels = [\"mr-*\"]\ntable = 99\nlead = false\n"
        );
        assert!(read(&[]).unwrap().is_empty());
        let twice = read(&["--lan", "a", "--lan", "a", "--reach", "a"]).unwrap();
        assert_eq!((twice.lan.len(), twice.reach.len()), (1, 0));
        for wrong in [
            ["--lan", "a b"],
            ["--lan", "x\" } accept; #"],
            ["--tunnel", "*"],
            ["--table", "254"],
        ] {
            let error = matches(["on"].iter().chain(&wrong)).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{error}");
            assert!(error.to_string().contains("write the "), "{error}");
        }
    }

    #[test]
    fn the_copy_is_of_the_last_that_were_good() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("guard.toml");
        assert_eq!(read_copy(&file), None);
        let mut guard = Guard::default();
        guard.lan = vec!["br-lan".to_owned()];
        keep(&guard, &file);
        assert_eq!(read_copy(&file), Some(guard.clone()));
        guard.table = 99;
        let list = config::guard::Listed {
            interface: "office".to_owned(),
            device: "mr-office".to_owned(),
            lan: vec!["br-guest".to_owned()],
        };
        let (guard, _) = guard.with_lists(&[list], &[]);
        keep(&guard, &file);
        assert_eq!(read_copy(&file), Some(guard));
        let path = directory.path().join("guard.toml.valid");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(&path, "lan = []").unwrap();
        assert_eq!(read_copy(&file), None);
        keep(&Guard::default(), &file);
        assert!(!path.exists());
    }
}
