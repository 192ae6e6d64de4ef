//! A section of `/etc/config/network` with protocol `millrace`, as a checked model.
//!
//! ```text
//! config interface 'office'
//!     option proto 'millrace'
//!     option config_file '/etc/millrace/office.ovpn'
//! ```
//! Instead of a file, keys and addresses may be options, with a section of type `millrace_office` for each peer.
//! These have the options of OpenWrt's own WireGuard protocol and of the protocol `amneziawg`. A faulty peer is left
//! out and the others work; an option that the interface cannot do without is a fault.

#[cfg(feature = "amnezia")]
mod amnezia;
pub(crate) mod options;
mod peers;

use crate::device_name;
use crate::only_through::{self, Lan};
use crate::uci::{Package, Section};
use crate::update::RouteRules;
use config::lines::{LINES_MAX, LineMode, SharedLines};
use config::permissions::{Permissions, UCI_OPTION};
use config::settings::{Kind as DataplaneKind, Settings};
use config::tunnel::Tunnel;
use config::types::{Key32, is_ifname};
use options::Options;
use std::fmt;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

/// The protocol's name.
pub const PROTO: &str = "millrace";

/// Options that netifd itself reads for every protocol, and `multipath`, which LuCI writes. Later versions have more.
const NETIFDS: [&str; 29] = [
    "auto",
    "carrier_loss_delay",
    "defaultroute",
    "delegate",
    "device",
    "disabled",
    "dns",
    "dns_metric",
    "dns_search",
    "force_link",
    "host_device",
    "ifname",
    "interface",
    "ip4table",
    "ip6assign",
    "ip6class",
    "ip6hint",
    "ip6ifaceid",
    "ip6table",
    "ip6weight",
    "jail",
    "jail_device",
    "jail_ifname",
    "metric",
    "multipath",
    "peerdns",
    "renew",
    "tags",
    "zone",
];

/// Options of the `millrace` protocol, besides those for keys and addresses.
const OURS: [&str; 11] = [
    "authfail",
    "proto",
    "config_file",
    UCI_OPTION,
    "uplink",
    "mode",
    "dataplane",
    only_through::OPTION,
    "mtu",
    "hostroute",
    "ip6prefix",
];

/// Options that replace a file, besides AmneziaWG's.
const KEYS: [&str; 4] = ["private_key", "listen_port", "addresses", "fwmark"];

/// Maximum number of prefixes of one interface.
const PREFIXES_MAX: usize = 16;

/// A fault of an option or a section.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Fault {
    /// The line, counted from 1; 0 if there is none.
    pub line: usize,
    /// The section's name for messages.
    pub section: String,
    /// The option, if the fault is in one.
    pub option: Option<String>,
    /// Fault in one sentence.
    pub words: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { section, words, .. } = self;
        f.write_str("network")?;
        if self.line != 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {section}")?;
        if let Some(option) = &self.option {
            write!(f, ".{option}")?;
        }
        write!(f, ": {words}")
    }
}

/// Source of keys, peers and servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file: `.conf`, `.ovpn` or `.toml`.
    File(PathBuf),
    /// UCI options.
    Options {
        /// The tunnel.
        tunnel: Box<Tunnel>,
        /// Peers without `route_allowed_ips`, so that their `allowed_ips` get no routes.
        unrouted: Vec<Key32>,
    },
}

/// A netifd interface with protocol `millrace`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// The interface's name in UCI.
    pub interface: String,
    /// Source of keys, peers and servers.
    pub source: Source,
    /// Whether the owner lets the file name files to write, send or read as configuration.
    pub allow_files: bool,
    /// Netifd interfaces that are the tunnel's lines (uplinks), the preferred first.
    pub lines: Vec<String>,
    /// How the tunnel uses its lines.
    pub mode: Option<LineMode>,
    /// Which data plane moves OpenVPN's packets; `None` leaves it to the settings file.
    pub dataplane: Option<DataplaneKind>,
    /// LAN devices whose packets leave only through this tunnel, which the guard enforces.
    pub only_through: Vec<Lan>,
    /// IPv6 prefixes that are routed to this host through the tunnel: netifd hands them out to its other interfaces.
    pub prefixes: Vec<(Ipv6Addr, u8)>,
    /// MTU in bytes; `None` derives it from the path to the peers.
    pub mtu: Option<u32>,
    /// Options about routes.
    pub routes: RouteRules,
    /// Whether the endpoint gets a route past the tunnel if a route of the tunnel covers it.
    pub host_route: bool,
    /// Whether refused credentials stop further attempts until `ifup`.
    pub auth_fail: bool,
    /// Options that were left out.
    pub warnings: Vec<Fault>,
}

impl Network {
    /// Reads an interface's section and its peers' sections.
    ///
    /// # Errors
    /// The faults without whose repair there is no tunnel.
    pub fn read(package: &Package, interface: &str) -> Result<Self, Vec<Fault>> {
        let fault = |words: &str| Fault {
            line: 0,
            section: interface.to_owned(),
            option: None,
            words: words.to_owned(),
        };
        let section = package.section(interface);
        let section = section.filter(|it| it.kind == "interface");
        let Some(section) = section else {
            return Err(vec![fault("this interface does not exist")]);
        };
        let mut options = Options::new(section, interface);
        if section.text("proto") != Some(PROTO) {
            options.refuse("proto", "is not `millrace`");
        }
        let replacing = replacing();
        options.warn_of_typos(&[&OURS[..], &replacing].concat(), &NETIFDS);
        let source = match options.text("config_file") {
            Some(file) => {
                for key in replacing
                    .iter()
                    .filter(|key| section.setting(key).is_some())
                {
                    options.warn(key, "is ignored, as config_file is set");
                }
                file_of(file, &mut options)
            }
            None => peers::read(package, interface, &mut options),
        };
        let routes = RouteRules {
            own_table_v4: section.text("ip4table").is_some(),
            own_table_v6: section.text("ip6table").is_some(),
            no_default: !options.flag("defaultroute", true),
        };
        let network = Self {
            interface: interface.to_owned(),
            allow_files: options.flag(UCI_OPTION, false),
            lines: names(&mut options, "uplink", LINES_MAX),
            mode: mode(&mut options),
            dataplane: dataplane(&mut options),
            only_through: only_through::lan(package, &mut options),
            prefixes: prefixes(&mut options),
            mtu: options.number("mtu", 68..=65535),
            routes,
            host_route: options.flag("hostroute", true),
            auth_fail: options.flag("authfail", true),
            warnings: Vec::new(),
            source: source.unwrap_or(Source::File(PathBuf::new())),
        };
        let Options {
            faults, warnings, ..
        } = options;
        match faults.is_empty() {
            true => Ok(Self {
                warnings,
                ..network
            }),
            false => Err(faults),
        }
    }

    /// The interface's network device.
    #[must_use]
    pub fn device(&self) -> String {
        device_name(&self.interface)
    }

    /// Permissions of this interface's file. Interfaces never run scripts, as OpenWrt has hotplug scripts.
    #[must_use]
    pub const fn permissions(&self) -> Permissions {
        Permissions::new(self.allow_files, false)
    }

    /// The lines on the devices that their interfaces have now; `None` if the section sets neither lines nor a mode.
    /// Also returns the names of interfaces without a device.
    pub fn lines_by(
        &self,
        mut device: impl FnMut(&str) -> Option<String>,
    ) -> (Option<SharedLines>, Vec<String>) {
        let mut unknown = Vec::new();
        if self.lines.is_empty() && self.mode.is_none() {
            return (None, unknown);
        }
        let mode = self.mode.unwrap_or_default();
        // Build the text of a settings file, so that the checks for those apply.
        let mut text = format!("[uplinks]\nmode = \"{}\"\n", mode.as_str());
        let mut priority = 10;
        for name in &self.lines {
            let Some(device) = device(name).filter(|it| is_ifname(it)) else {
                unknown.push(name.clone());
                continue;
            };
            text += &format!(
                "[[uplink]]\nname = \"{name}\"\ninterface = \"{device}\"\npriority = {priority}\n"
            );
            // If only one line is used at a time, the first is preferred.
            priority += i32::from(!mode.spreads());
        }
        let settings = Settings::from_toml(&text, Path::new("/etc/config/network"));
        let settings = settings.inspect_err(|error| log::warn!("{error}"));
        (settings.ok().and_then(|it| it.lines), unknown)
    }

    /// Whether `other` needs a new network device: lines are created together with the device.
    #[must_use]
    pub fn needs_new_device(&self, other: &Self) -> bool {
        (&self.lines, self.mode) != (&other.lines, other.mode)
    }
}

/// Options that have no effect beside a file.
fn replacing() -> Vec<&'static str> {
    #[cfg(feature = "amnezia")]
    return KEYS.into_iter().chain(amnezia::names()).collect();
    #[cfg(not(feature = "amnezia"))]
    KEYS.to_vec()
}

/// The network device that a netifd interface will have, according to its section; `None` if only netifd knows it,
/// once it is up.
#[must_use]
pub fn device_of(package: &Package, interface: &str) -> Option<String> {
    device_of_section(package.section(interface)?)
}

/// The device of a named interface section.
pub(crate) fn device_of_section(section: &Section) -> Option<String> {
    let interface = section.name.as_deref()?;
    let proto = section.text("proto").unwrap_or_default();
    let device = match proto {
        "pppoe" | "pppoa" | "pptp" | "l2tp" | "3g" | "ppp" => format!("{proto}-{interface}"),
        PROTO => device_name(interface),
        "wireguard" | "amneziawg" => interface.to_owned(),
        _ if section.text("type") == Some("bridge") => format!("br-{interface}"),
        _ => first_device(section)?,
    };
    is_ifname(&device).then_some(device)
}

fn first_device(section: &Section) -> Option<String> {
    let setting = section.setting("device");
    let setting = setting.or_else(|| section.setting("ifname"))?;
    // `@wan` stands for another interface's device, and a path for a modem.
    let mut values = setting.values();
    let fits = |it: &&str| !it.starts_with('@') && !it.starts_with('/');
    values.find(fits).map(str::to_owned)
}

fn file_of(file: &str, options: &mut Options<'_>) -> Option<Source> {
    let path = PathBuf::from(file);
    if !path.is_absolute() {
        options.refuse("config_file", "must be an absolute path");
        return None;
    }
    Some(Source::File(path))
}

fn mode(options: &mut Options<'_>) -> Option<LineMode> {
    let word = options.text("mode")?;
    let found = LineMode::ALL.into_iter().find(|it| it.as_str() == word);
    if found.is_none() {
        let names = LineMode::ALL.map(|it| format!("`{}`", it.as_str()));
        options.warn("mode", &format!("must be {}", names.join(", ")));
    }
    found
}

fn dataplane(options: &mut Options<'_>) -> Option<DataplaneKind> {
    let word = options.text("dataplane")?;
    let found = DataplaneKind::NAMES.iter().find(|(name, _)| *name == word);
    if found.is_none() {
        options.warn("dataplane", "must be `auto`, `user` or `kernel`");
    }
    found.map(|(_, kind)| *kind)
}

/// Prefixes to hand out. Networks have 64 bits, so that a longer prefix has none to give.
fn prefixes(options: &mut Options<'_>) -> Vec<(Ipv6Addr, u8)> {
    let mut found = Vec::new();
    for word in options.values("ip6prefix") {
        let parsed = word.split_once('/').and_then(|(address, bits)| {
            let address: Ipv6Addr = address.parse().ok()?;
            let bits = bits.parse().ok().filter(|it| (1..=64).contains(it))?;
            let host = u128::MAX.checked_shr(u32::from(bits)).unwrap_or(0);
            (address.to_bits() & host == 0).then_some((address, bits))
        });
        match parsed {
            None => options.warn("ip6prefix", "must be IPv6 prefixes of 1 to 64 bits"),
            Some(_) if found.len() == PREFIXES_MAX => {
                options.warn(
                    "ip6prefix",
                    &format!("only the first {PREFIXES_MAX} prefixes are used"),
                );
                break;
            }
            Some(prefix) if found.contains(&prefix) => {}
            Some(prefix) => found.push(prefix),
        }
    }
    found
}

/// Reads interface names, at most `most`.
fn names(options: &mut Options<'_>, option: &str, most: usize) -> Vec<String> {
    let fits = |it: &str| {
        let name = |it: u8| it.is_ascii_alphanumeric() || b"_.-".contains(&it);
        it.len() <= 32 && it.bytes().all(name)
    };
    let mut found: Vec<String> = Vec::new();
    for name in options.values(option) {
        if !fits(name) {
            options.warn(option, "must be interface names");
        } else if found.len() == most {
            options.warn(option, &format!("only the first {most} are used"));
            break;
        } else if !found.iter().any(|it| it == name) {
            found.push(name.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests;
