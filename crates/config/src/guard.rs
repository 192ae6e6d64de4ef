//! The guard's settings: which devices of the LAN leave only through a tunnel.
//!
//! ```toml
//! lan = ["br-lan", "br-guest"]   # packets from these devices leave through a tunnel, or not at all
//! reach = ["br-iot"]             # further devices that the LAN may reach
//! tunnels = ["mr-*", "tun0"]     # devices that are tunnels
//! table = 77                     # the routing table with the default route into the tunnel
//! lead = true                    # the guard makes that route itself when a tunnel is up
//! dns = ["10.8.0.1"]             # name servers behind the tunnel: the router's dnsmasq asks only these
//! dns_names = ["corp.example"]   # ask these servers only for these names
//! dns_redirect = true            # the router answers the LAN's queries to other servers
//! dns_block_tls = true           # no DNS over TLS or QUIC (port 853)
//! masquerade = true              # the LAN's packets leave through a tunnel with the router's address there
//! servers = true                 # clients of servers on this router are guarded like the LAN
//! router = true                  # the router's own connections leave through a tunnel, too
//! router_allow = ["203.0.113.5"] # except those to these addresses
//! ```
//!
//! The names go into a script for `nft`, so that characters with a meaning in `nft` are refused.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use toml::de::DeValue;

use crate::settings::SettingsError;
use crate::settings::reader::{TomlRow, list, parsed, places, put, set_toml, switch, text_of};
use crate::types::{AllowedIp, decimal, is_domain, is_ifname};

mod group;

pub use group::{GROUP_TABLE, GROUP_TABLES, Group, LISTED_MAX, Listed, Part, tables};

/// Default path of the settings.
pub const DEFAULT_PATH: &str = "/etc/millrace/guard.toml";

/// Default pattern of tunnel devices: those that `millrace netifd` creates.
pub const TUNNELS: &str = "mr-*";

/// Default routing table.
pub const TABLE: u32 = 77;

/// The bit of a packet's mark by which the guard asks for the route of a packet from the LAN. It is in no mark of a
/// tunnel, and outside the masks of the policy, mwan3 (0x3f00), pbr and Tailscale (0xff0000), and Kubernetes (0xc000).
pub const ASKING: u32 = 0x80;

/// Maximum number of devices in one list.
pub const DEVICES_MAX: usize = 16;

/// Tables that the kernel reserves: 253 to 255, and 0 for "unspecified".
const KERNEL_TABLES: [u32; 4] = [0, 253, 254, 255];

/// Maximum number of name servers.
pub const SERVERS_MAX: usize = 4;

/// Maximum number of addresses and networks that the router itself may reach without a tunnel.
pub const ALLOWED_MAX: usize = 64;

/// Maximum number of names in `dns_names`.
pub const NAMES_MAX: usize = 64;

pub(crate) const DEVICES: &str = "a list of up to 16 names of devices, such as [\"br-lan\"]";
pub(crate) const PATTERNS: &str = "a list of up to 16 names of devices, each of which may end with an asterisk, such \
                                   as [\"mr-*\"]";
const NUMBER: &str = "the number of a routing table other than 253 to 255";
const SERVERS: &str = "a list of up to 4 addresses of name servers, such as [\"10.8.0.1\"]";
const ALLOWED: &str = "a list of up to 64 addresses and networks, such as [\"203.0.113.5\"]";
const NAMES: &str = "a list of up to 64 domains, such as [\"corp.example\"]";
pub(crate) const SWITCH: &str = "true or false";

const ROWS: &[TomlRow<Guard>] = &[
    ("lan", DEVICES, |it, v| put(&mut it.lan, devices(v))),
    ("reach", DEVICES, |it, v| put(&mut it.reach, devices(v))),
    ("tunnels", PATTERNS, |it, v| {
        put(&mut it.tunnels, list(v, DEVICES_MAX, Pattern::new))
    }),
    ("table", NUMBER, |it, v| put(&mut it.table, number(v))),
    ("lead", SWITCH, |it, v| put(&mut it.lead, switch(v))),
    ("dns", SERVERS, |it, v| {
        put(&mut it.dns, list(v, SERVERS_MAX, server))
    }),
    ("dns_names", NAMES, |it, v| {
        put(&mut it.dns_names, list(v, NAMES_MAX, domain))
    }),
    ("dns_redirect", SWITCH, |it, v| {
        put(&mut it.dns_redirect, switch(v))
    }),
    ("dns_block_tls", SWITCH, |it, v| {
        put(&mut it.dns_block_tls, switch(v))
    }),
    ("masquerade", SWITCH, |it, v| {
        put(&mut it.masquerade, switch(v))
    }),
    ("servers", SWITCH, |it, v| put(&mut it.servers, switch(v))),
    ("router", SWITCH, |it, v| put(&mut it.router, switch(v))),
    ("router_allow", ALLOWED, |it, v| {
        put(&mut it.router_allow, list(v, ALLOWED_MAX, allowed))
    }),
];

/// The devices whose packets leave only through a tunnel.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Guard {
    /// Devices whose packets leave only through a tunnel; empty if nothing is guarded.
    pub lan: Vec<String>,
    /// Further devices that the LAN may reach.
    pub reach: Vec<String>,
    /// Devices that are tunnels, the preferred one first.
    pub tunnels: Vec<Pattern>,
    /// The routing table that has the default route into the tunnel.
    pub table: u32,
    /// The guard makes that default route itself.
    pub lead: bool,
    /// Name servers behind the tunnel, which the router's `dnsmasq` asks through the tunnel's device only. If empty,
    /// `dnsmasq` stays as it is.
    pub dns: Vec<IpAddr>,
    /// Domains that `dnsmasq` asks these servers for, subdomains included; empty for all names.
    pub dns_names: Vec<String>,
    /// The router answers guarded devices' queries to other servers.
    pub dns_redirect: bool,
    /// DNS over TLS and over QUIC (port 853) are refused.
    pub dns_block_tls: bool,
    /// The LAN's packets leave through a tunnel with the router's own address there.
    pub masquerade: bool,
    /// Packets from clients of servers on this host are guarded like those of the LAN.
    pub servers: bool,
    /// The router's own packets leave through a tunnel as well, except those that the uplink and the tunnel need.
    pub router: bool,
    /// Addresses and networks that the router itself may reach without a tunnel.
    pub router_allow: Vec<AllowedIp>,
    /// Devices with tunnels of their own. They come from OpenWrt's interface lists, never from the file.
    pub groups: Vec<Group>,
}

impl Default for Guard {
    fn default() -> Self {
        Self {
            lan: Vec::new(),
            reach: Vec::new(),
            tunnels: Pattern::new(TUNNELS).into_iter().collect(),
            table: TABLE,
            lead: true,
            dns: Vec::new(),
            dns_names: Vec::new(),
            dns_redirect: false,
            dns_block_tls: false,
            masquerade: true,
            servers: true,
            router: false,
            router_allow: Vec::new(),
            groups: Vec::new(),
        }
    }
}

/// A device's name, or a prefix of names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pattern {
    start: String,
    open: bool,
}

impl Pattern {
    /// Parses `wg0`, or `wg*` for all names with that prefix. `None` for an invalid name, or for one that matches
    /// all.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let (start, open) = match text.strip_suffix('*') {
            Some(start) => (start, true),
            None => (text, false),
        };
        is_ifname(start).then(|| Self {
            start: start.to_owned(),
            open,
        })
    }

    /// The name, or the prefix.
    #[must_use]
    pub fn start(&self) -> &str {
        &self.start
    }

    /// Whether the pattern matches this device name.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        match self.open {
            true => name.starts_with(&self.start),
            false => name == self.start,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.start, if self.open { "*" } else { "" })
    }
}

impl Guard {
    /// Reads a file. An empty regular file is an error: a loss of power during a write leaves one.
    ///
    /// # Errors
    /// [`SettingsError::Read`], [`SettingsError::TooLarge`], and the errors of [`Guard::from_toml`].
    pub fn read(path: &Path) -> Result<Self, SettingsError> {
        let text = text_of(path)?;
        // A path that is not a regular file, such as /dev/null, is empty on purpose.
        if text.is_empty() && std::fs::metadata(path).is_ok_and(|it| it.is_file()) {
            let words = "is empty, perhaps after a power failure; write it again, or remove it";
            return Err(SettingsError::Read {
                path: path.to_owned(),
                error: io::Error::new(io::ErrorKind::InvalidData, words),
            });
        }
        Self::from_toml(&text, path)
    }

    /// Reads TOML text over the defaults; `path` only names it in errors.
    ///
    /// # Errors
    /// [`SettingsError::Syntax`], [`SettingsError::Unknown`] or [`SettingsError::Value`], each with the line.
    pub fn from_toml(text: &str, path: &Path) -> Result<Self, SettingsError> {
        Self::of_text(text, path, false)
    }

    /// Reads settings from text. `is_kept` marks a file that this program wrote: it may have groups.
    fn of_text(text: &str, path: &Path, is_kept: bool) -> Result<Self, SettingsError> {
        let place = places(text, path);
        let root = parsed(text, &place)?;
        let mut guard = Self::default();
        for (key, value) in root.get_ref() {
            let (origin, value) = (place(key.span().start), value.get_ref());
            match key.get_ref().as_ref() {
                "group" if is_kept => guard.groups = group::groups(value, text, path)?,
                key => set_toml(ROWS, &mut guard, key, value, origin)?,
            }
        }
        guard.merge_doubles();
        Ok(guard)
    }

    /// Removes duplicate names: the first of a list stays, and one in `lan` takes precedence over `reach`. The kernel
    /// refuses a duplicate rule.
    pub fn merge_doubles(&mut self) {
        fn once<T: Clone + PartialEq>(list: &mut Vec<T>) {
            let mut kept: Vec<T> = Vec::new();
            list.retain(|it| {
                let is_new = !kept.contains(it);
                kept.extend(is_new.then(|| it.clone()));
                is_new
            });
        }
        once(&mut self.lan);
        once(&mut self.reach);
        self.reach.retain(|name| !self.lan.contains(name));
        once(&mut self.tunnels);
        once(&mut self.dns);
        once(&mut self.dns_names);
        once(&mut self.router_allow);
    }

    /// Settings as text that [`Guard::from_toml`] reads back.
    #[must_use]
    pub fn to_toml(&self) -> String {
        // No name contains a character that TOML would escape.
        let list = |names: &[String]| {
            let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
            quoted.join(", ")
        };
        let tunnels: Vec<String> = self.tunnels.iter().map(Pattern::to_string).collect();
        let mut text = format!(
            "lan = [{}]\nreach = [{}]\ntunnels = [{}]\ntable = {}\nlead = {}\n",
            list(&self.lan),
            list(&self.reach),
            list(&tunnels),
            self.table,
            self.lead
        );
        let dns: Vec<String> = self.dns.iter().map(IpAddr::to_string).collect();
        let allowed: Vec<String> = self.router_allow.iter().map(ToString::to_string).collect();
        for (key, names) in [
            ("dns", &dns),
            ("dns_names", &self.dns_names),
            ("router_allow", &allowed),
        ] {
            if !names.is_empty() {
                text += &format!("{key} = [{}]\n", list(names));
            }
        }
        for (key, on) in [
            ("dns_redirect", self.dns_redirect),
            ("dns_block_tls", self.dns_block_tls),
            ("router", self.router),
        ] {
            if on {
                text += &format!("{key} = true\n");
            }
        }
        for (key, on) in [("masquerade", self.masquerade), ("servers", self.servers)] {
            if !on {
                text += &format!("{key} = false\n");
            }
        }
        text
    }

    /// Why these settings would guard nothing, or block too much: a sentence. `None` if they are sound.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        if self.is_empty() {
            return Some("no LAN device is named".to_owned());
        }
        if self.tunnels.is_empty() && !self.lan.is_empty() {
            return Some("no device is named as a tunnel".to_owned());
        }
        let lists = [&self.lan, &self.reach];
        if lists.iter().any(|list| list.len() > DEVICES_MAX) || self.tunnels.len() > DEVICES_MAX {
            return Some(format!("more than {DEVICES_MAX} devices in one list"));
        }
        let all = || self.lan.iter().chain(&self.reach);
        if self.dns.len() > SERVERS_MAX || self.dns_names.len() > NAMES_MAX {
            return Some("too many name servers, or too many domains for them".to_owned());
        }
        if self.dns.is_empty() && !self.dns_names.is_empty() {
            return Some("domains are listed, but no name server for them; set `dns`".to_owned());
        }
        if all().any(|name| name == "lo") {
            return Some("lo is the host itself".to_owned());
        }
        for pattern in self.tunnels.iter().filter(|_| !self.lan.is_empty()) {
            // A device in `reach` is not a tunnel, even if a tunnel pattern matches its name.
            let is_meant = |name: &&String| !pattern.open || !self.reach.contains(name);
            let mut all = all().filter(is_meant);
            if let Some(name) = all.find(|name| pattern.matches(name)) {
                return Some(format!(
                    "{name} is listed as a LAN device, but {pattern} matches it as a tunnel"
                ));
            }
        }
        self.fault_of_groups()
    }

    /// Whether the file or a group names a tunnel by exactly this name.
    #[must_use]
    pub fn names_tunnel(&self, name: &str) -> bool {
        let groups = self.groups.iter().flat_map(|it| &it.tunnels);
        let mut all = self.tunnels.iter().chain(groups);
        all.any(|it| !it.open && it.matches(name))
    }

    /// Position of the first tunnel pattern that matches this device, the most preferred being 0; `None` if none
    /// matches.
    #[must_use]
    pub fn rank(&self, name: &str) -> Option<usize> {
        self.tunnels.iter().position(|it| it.matches(name))
    }
}

/// Parses the number of a routing table that the guard may use.
#[must_use]
pub fn table(text: &str) -> Option<u32> {
    let number = decimal(text).and_then(|number| u32::try_from(number).ok())?;
    (!KERNEL_TABLES.contains(&number)).then_some(number)
}

/// Parses the address of a name server behind a tunnel; refuses addresses of this host or link.
#[must_use]
pub fn server(text: &str) -> Option<IpAddr> {
    let ip: IpAddr = text.parse().ok()?;
    let is_local = match ip {
        IpAddr::V4(ip) => ip.is_broadcast() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let is_one = !is_local && !ip.is_loopback() && !ip.is_multicast() && !ip.is_unspecified();
    is_one.then_some(ip)
}

/// Parses a network or address that the router may reach; refuses a range of all addresses.
#[must_use]
pub fn allowed(text: &str) -> Option<AllowedIp> {
    let network: AllowedIp = text.parse().ok()?;
    (!network.is_default()).then_some(network)
}

/// Parses a domain; a dot at its end is dropped.
#[must_use]
pub fn domain(text: &str) -> Option<String> {
    let plain = text.strip_suffix('.').unwrap_or(text);
    is_domain(plain).then(|| plain.to_ascii_lowercase())
}

pub(crate) fn devices(value: &DeValue<'_>) -> Option<Vec<String>> {
    list(value, DEVICES_MAX, |it| {
        is_ifname(it).then(|| it.to_owned())
    })
}

fn number(value: &DeValue<'_>) -> Option<u32> {
    match value {
        DeValue::Integer(number) if number.radix() == 10 => table(number.as_str()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
