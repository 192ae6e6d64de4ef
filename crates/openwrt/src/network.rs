//! A section of `/etc/config/network` that is a tunnel of ours, as the checked model of it.
//!
//! ```text
//! config interface 'office'
//!     option proto 'millrace'
//!     option config_file '/etc/millrace/office.ovpn'
//! ```
//! or the keys and addresses as options, with a section of type `millrace_office` for each peer, which has the options of
//! OpenWrt's own WireGuard protocol. A peer that is wrong is left out, and the others work; what the interface cannot be
//! without is a fault.

pub(crate) mod options;
mod peers;

use crate::device_name;
use crate::only_through::{self, Lan};
use crate::uci::{Package, Section};
use crate::update::RouteRules;
use config::lines::{LINES_MAX, LineMode, SharedLines};
use config::permissions::{Permissions, UCI_OPTION};
use config::settings::Settings;
use config::tunnel::Tunnel;
use config::types::{Key32, is_ifname};
use options::Options;
use std::fmt;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

/// The protocol's name.
pub const PROTO: &str = "millrace";

/// Options that netifd reads by itself, whatever the protocol.
const NETIFDS: [&str; 16] = [
    "auto",
    "defaultroute",
    "delegate",
    "disabled",
    "dns",
    "dns_metric",
    "dns_search",
    "force_link",
    "ip4table",
    "ip6assign",
    "ip6class",
    "ip6hint",
    "ip6ifaceid",
    "ip6table",
    "metric",
    "peerdns",
];

/// Options of ours, beside those for keys and addresses.
const OURS: [&str; 10] = [
    "authfail",
    "proto",
    "config_file",
    UCI_OPTION,
    "line",
    "mode",
    only_through::OPTION,
    "mtu",
    "hostroute",
    "ip6prefix",
];

/// Options that stand in place of a file.
const KEYS: [&str; 4] = ["private_key", "listen_port", "addresses", "fwmark"];

/// Most prefixes of one interface.
const PREFIXES_MAX: usize = 16;

/// A fault of an option or a section.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Fault {
    /// The line, from 1; 0 where there is none.
    pub line: usize,
    /// The section as people call it.
    pub section: String,
    /// The option, if it is one.
    pub option: Option<String>,
    /// The fault.
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

/// Where keys, peers and servers are written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In a file: `.conf`, `.ovpn` or `.toml`.
    File(PathBuf),
    /// In UCI.
    Options {
        /// The tunnel.
        tunnel: Box<Tunnel>,
        /// Peers whose `allowed_ips` get no routes, as `route_allowed_ips` does not say so.
        unrouted: Vec<Key32>,
    },
}

/// An interface of netifd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Its name in UCI.
    pub interface: String,
    /// Where keys, peers and servers are written down.
    pub source: Source,
    /// The owner permits the file to name files that are written, sent or read as configuration.
    pub allow_files: bool,
    /// Interfaces of netifd that are lines, in the order of preference.
    pub lines: Vec<String>,
    /// How lines are used.
    pub mode: Option<LineMode>,
    /// Devices of the LAN whose packets leave by this tunnel only, which is the guard's to see to.
    pub only_through: Vec<Lan>,
    /// Prefixes of IPv6 that are led to this host by the tunnel: netifd hands them out to its other interfaces.
    pub prefixes: Vec<(Ipv6Addr, u8)>,
    /// MTU in bytes; `None` derives it from the way to the peers.
    pub mtu: Option<u32>,
    /// The options about routes.
    pub routes: RouteRules,
    /// The endpoint gets a route past the tunnel where a route of the tunnel covers it.
    pub host_route: bool,
    /// Credentials that were refused are not tried again before the interface is asked for (`ifup`).
    pub auth_fail: bool,
    /// Options that were left out.
    pub warnings: Vec<Fault>,
}

impl Network {
    /// Reads the section of an interface, and those of its peers.
    ///
    /// # Errors
    /// Faults without whose repair there is no tunnel.
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
            return Err(vec![fault("there is no such interface")]);
        };
        let mut options = Options::new(section, interface);
        if section.text("proto") != Some(PROTO) {
            options.refuse("proto", "is not `millrace`");
        }
        let known = NETIFDS.iter().chain(&OURS).chain(&KEYS);
        options.warn_of_others(known.copied());
        let source = match options.text("config_file") {
            Some(file) => {
                for key in KEYS.iter().filter(|key| section.setting(key).is_some()) {
                    options.warn(key, "is not used, as there is a config_file");
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
            lines: names(&mut options, "line", LINES_MAX),
            mode: mode(&mut options),
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

    /// The network device that it has.
    #[must_use]
    pub fn device(&self) -> String {
        device_name(&self.interface)
    }

    /// The permissions of this interface's file beside its tunnel. Scripts run for no interface: hotplug has others.
    #[must_use]
    pub const fn permissions(&self) -> Permissions {
        Permissions::new(self.allow_files, false)
    }

    /// The lines that it names, by the devices that they have now; `None` where it says nothing of lines. Returns beside
    /// them the names of those without a device.
    pub fn lines_by(
        &self,
        mut device: impl FnMut(&str) -> Option<String>,
    ) -> (Option<SharedLines>, Vec<String>) {
        let mut unknown = Vec::new();
        if self.lines.is_empty() && self.mode.is_none() {
            return (None, unknown);
        }
        let mode = self.mode.unwrap_or_default();
        // The lines are written as in a settings file, and checked where those are.
        let mut text = format!("[lines]\nmode = \"{}\"\n", mode.as_str());
        let mut priority = 10;
        for name in &self.lines {
            let Some(device) = device(name).filter(|it| is_ifname(it)) else {
                unknown.push(name.clone());
                continue;
            };
            text += &format!(
                "[[line]]\nname = \"{name}\"\ninterface = \"{device}\"\npriority = {priority}\n"
            );
            // The first is preferred, where not all are used.
            priority += i32::from(!mode.spreads());
        }
        let settings = Settings::from_toml(&text, Path::new("/etc/config/network"));
        let settings = settings.inspect_err(|error| log::warn!("{error}"));
        (settings.ok().and_then(|it| it.lines), unknown)
    }

    /// Whether the other one needs the network device made anew: lines are made with it.
    #[must_use]
    pub fn needs_new_device(&self, other: &Self) -> bool {
        (&self.lines, self.mode) != (&other.lines, other.mode)
    }
}

/// The network device that an interface of netifd will have, as far as its section says; `None` for one that is known
/// only when it is up.
#[must_use]
pub fn device_of(package: &Package, interface: &str) -> Option<String> {
    device_of_section(package.section(interface)?)
}

/// The device of an interface's section, which has a name.
pub(crate) fn device_of_section(section: &Section) -> Option<String> {
    let interface = section.name.as_deref()?;
    let proto = section.text("proto").unwrap_or_default();
    let device = match proto {
        "pppoe" | "pppoa" | "pptp" | "l2tp" | "3g" | "ppp" => format!("{proto}-{interface}"),
        PROTO => device_name(interface),
        "wireguard" => interface.to_owned(),
        _ if section.text("type") == Some("bridge") => format!("br-{interface}"),
        _ => first_device(section)?,
    };
    is_ifname(&device).then_some(device)
}

fn first_device(section: &Section) -> Option<String> {
    let setting = section.setting("device");
    let setting = setting.or_else(|| section.setting("ifname"))?;
    // `@wan` is another interface's device, and a path is a modem's.
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

/// Prefixes to be handed out: networks have 64 bits, so that a longer one has none to give.
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
            None => options.warn("ip6prefix", "must be prefixes of IPv6 with 1 to 64 bits"),
            Some(_) if found.len() == PREFIXES_MAX => {
                options.warn("ip6prefix", &format!("at most {PREFIXES_MAX} are used"));
                break;
            }
            Some(prefix) if found.contains(&prefix) => {}
            Some(prefix) => found.push(prefix),
        }
    }
    found
}

/// Names of interfaces.
fn names(options: &mut Options<'_>, option: &str, most: usize) -> Vec<String> {
    let fits = |it: &str| {
        let name = |it: u8| it.is_ascii_alphanumeric() || b"_.-".contains(&it);
        it.len() <= 32 && it.bytes().all(name)
    };
    let mut found: Vec<String> = Vec::new();
    for name in options.values(option) {
        if !fits(name) {
            options.warn(option, "must be names of interfaces");
        } else if found.len() == most {
            options.warn(option, &format!("at most {most} are used"));
            break;
        } else if !found.iter().any(|it| it == name) {
            found.push(name.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests;
