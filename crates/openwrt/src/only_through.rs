//! `option only_through` of interfaces with protocol `millrace`: which LAN devices leave only through which tunnel.
//!
//! A word is a netifd interface or a network device. An interface's device is read from the file, as ubus does not
//! run yet when the guard starts at boot. Devices that lead out of the router are refused. Both layers of the guard
//! know a route only by its device, and let the LAN reach the listed devices.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;

use config::guard::Listed;
use config::types::is_ifname;

use crate::device_name;
use crate::network::options::Options;
use crate::network::{Fault, PROTO, device_of_section};
use crate::uci::{self, Package, Section};

/// The option's name.
pub const OPTION: &str = "only_through";

/// Maximum number of interfaces with a list: more than the number of devices that the guard takes.
const LISTS_MAX: usize = 64;

/// Maximum number of words of one list.
const WORDS_MAX: usize = 64;

/// Protocols of interfaces that lead only to their own networks.
const LAN_PROTOCOLS: [&str; 3] = ["", "static", "none"];

/// Options that make a static interface lead out of the router.
const GATEWAYS: [&str; 2] = ["gateway", "ip6gw"];

/// Maximum number of steps from an interface that uses another's device (`@lan`) to that device.
const ALIASES_MAX: usize = 4;

/// A listed LAN device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lan {
    /// The name in the list.
    pub name: String,
    /// The network device.
    pub device: String,
    /// Whether the file has an interface or a device of this name. If not, the name may be a device or a mistake.
    pub is_known: bool,
}

/// All lists of the file `network`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// The list of each interface, in file order.
    pub lists: Vec<Listed>,
    /// Faulty words, for which the guard does nothing.
    pub faults: Vec<Fault>,
    /// For each interface, listed names that are neither an interface nor a device in the file.
    pub unknown: Vec<(String, Lan)>,
}

/// Why the file `network` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ListsError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// The section of a tunnel, or the whole file, is not valid UCI.
    #[error(transparent)]
    Syntax(#[from] uci::Fault),
}

impl Lists {
    /// Reads the file `network` in UCI's directory. A missing file counts as one without lists.
    ///
    /// # Errors
    /// The file cannot be read, or a tunnel's section is wrong.
    pub fn of(configuration: &Path) -> Result<Self, ListsError> {
        let text = match uci::read(&configuration.join("network")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            other => other?,
        };
        Ok(Self::read(&String::from_utf8_lossy(&text))?)
    }

    /// Reads the text of `network`. Wrong lines in other sections are skipped, as netifd does.
    ///
    /// # Errors
    /// The first wrong line in a tunnel's section, or one that makes it unclear which lines belong to which section.
    pub fn read(text: &str) -> Result<Self, uci::Fault> {
        let unknown = uci::Fault {
            line: 0,
            words: "is not UCI".to_owned(),
            section: None,
        };
        let (package, odd) = Package::parse_for(text, |_| false)
            .map_err(|faults| faults.into_iter().next().unwrap_or(unknown))?;
        let is_ours = |fault: &uci::Fault| {
            let section = fault.section.and_then(|at| package.sections.get(at));
            // If the line that begins a section is wrong, its lines count to the section before.
            let before = || {
                let mut before = package.sections.iter().rev();
                before.find(|it| it.line <= fault.line)
            };
            section.or_else(before).is_some_and(is_tunnel)
        };
        if let Some(fault) = odd.into_iter().find(is_ours) {
            return Err(fault);
        }
        let mut all = Self::default();
        let places = Places::of(&package);
        for section in package.sections.iter().filter(|it| is_tunnel(it)) {
            let Some(interface) = &section.name else {
                continue;
            };
            let mut options = Options::new(section, interface);
            if all.lists.len() == LISTS_MAX && section.setting(OPTION).is_some() {
                let words = format!(
                    "at most {LISTS_MAX} interfaces can list; nothing of this and later lists is held back"
                );
                options.warn(OPTION, &words);
                all.faults.append(&mut options.warnings);
                break;
            }
            let lan = listed(&places, &mut options);
            all.faults.append(&mut options.warnings);
            let odd = lan.iter().filter(|it| !it.is_known);
            all.unknown
                .extend(odd.map(|it| (interface.clone(), it.clone())));
            if !lan.is_empty() {
                all.lists.push(Listed {
                    interface: interface.clone(),
                    device: device_name(interface),
                    lan: lan.into_iter().map(|it| it.device).collect(),
                });
            }
        }
        Ok(all)
    }

    /// Whether no interface has a list.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }
}

fn is_tunnel(section: &Section) -> bool {
    section.kind == "interface" && section.text("proto") == Some(PROTO)
}

/// The LAN devices that an interface lists, without duplicates. Words that cannot be used become warnings.
pub(crate) fn lan(package: &Package, options: &mut Options<'_>) -> Vec<Lan> {
    match options.values(OPTION).next() {
        Some(_) => listed(&Places::of(package), options),
        None => Vec::new(),
    }
}

fn listed(places: &Places<'_>, options: &mut Options<'_>) -> Vec<Lan> {
    let mut found: Vec<Lan> = Vec::new();
    for (place, name) in options.values(OPTION).enumerate() {
        if place == WORDS_MAX {
            options.warn(OPTION, &format!("at most {WORDS_MAX} are used"));
            break;
        }
        match places.lan(name) {
            Err(words) => {
                let words = format!("{name}: {words}; nothing of it is held back");
                options.warn(OPTION, &words);
            }
            Ok(lan) if found.iter().any(|it| it.device == lan.device) => {}
            Ok(lan) => found.push(lan),
        }
    }
    found
}

/// Interfaces and devices of a file by name, indexed once: a file may have thousands.
struct Places<'a> {
    interfaces: HashMap<&'a str, &'a Section>,
    /// Each interface's device, if the file names it.
    devices: HashMap<&'a str, String>,
    /// Sections of the interfaces on each device.
    on: HashMap<String, Vec<&'a Section>>,
    /// Names of device sections.
    named: HashSet<&'a str>,
}

impl<'a> Places<'a> {
    fn of(package: &'a Package) -> Self {
        let mut places = Self {
            interfaces: HashMap::new(),
            devices: HashMap::new(),
            on: HashMap::new(),
            named: HashSet::new(),
        };
        for section in &package.sections {
            match (section.kind.as_str(), &section.name) {
                ("interface", Some(name)) => {
                    places.interfaces.insert(name, section);
                }
                ("device", _) => places.named.extend(section.text("name")),
                _ => {}
            }
        }
        for (&name, &section) in &places.interfaces {
            if let Some(device) = places.device_behind(section) {
                places.devices.insert(name, device.clone());
            }
        }
        // In file order.
        for section in package.of_kind("interface") {
            let device = section
                .name
                .as_deref()
                .and_then(|it| places.devices.get(it));
            if let Some(device) = device {
                places.on.entry(device.clone()).or_default().push(section);
            }
        }
        places
    }

    /// The device of an interface, or of the interface that it refers to (`option device '@lan'`).
    fn device_behind(&self, interface: &'a Section) -> Option<String> {
        let mut section = interface;
        for _ in 0..ALIASES_MAX {
            if let Some(device) = device_of_section(section) {
                return Some(device);
            }
            let name = section.text("device")?.strip_prefix('@')?;
            section = self.interfaces.get(name)?;
        }
        None
    }

    /// The device that a word of a list stands for.
    fn lan(&self, name: &str) -> Result<Lan, String> {
        let own = self.interfaces.get(name).copied();
        let device = match own {
            Some(_) => self
                .devices
                .get(name)
                .cloned()
                .ok_or("its device is not in the file: write the network device in its place")?,
            None if is_ifname(name) => name.to_owned(),
            None => {
                return Err("there is no such interface, and no device can be called so".to_owned());
            }
        };
        if device == "lo" {
            return Err("it is the router itself".to_owned());
        }
        let on_it = self.on.get(&device).map_or(&[][..], Vec::as_slice);
        for section in on_it.iter().copied().chain(own) {
            let proto = section.text("proto").unwrap_or_default();
            let called = section.name.as_deref().unwrap_or_default();
            if proto == PROTO {
                return Err("it is a tunnel itself".to_owned());
            }
            if !LAN_PROTOCOLS.contains(&proto) {
                return Err(format!(
                    "it is no network of the LAN, as interface {called} has protocol {proto}"
                ));
            }
            if GATEWAYS
                .iter()
                .any(|it| section.text(it).is_some_and(|it| !it.is_empty()))
            {
                return Err(format!(
                    "it leads out of the router, as interface {called} has a gateway"
                ));
            }
        }
        let is_known = !on_it.is_empty() || self.named.contains(device.as_str());
        Ok(Lan {
            name: name.to_owned(),
            device,
            is_known,
        })
    }
}

#[cfg(test)]
mod tests;
