//! One entry of the policy: senders, targets, and the route of their packets.

use std::fmt;
use std::net::IpAddr;

use toml::de::DeValue;

use super::{WORDS_MAX, is_device};
use crate::keys;
use crate::settings::reader::{TomlRow, put, words};
use crate::types::AllowedIp;

/// Longest domain name, in bytes (RFC 1035, section 2.3.4, without the length bytes at both ends).
const DOMAIN_MAX: usize = 253;
/// Longest label of a domain name, in bytes.
const LABEL_MAX: usize = 63;

const NAME: &str = "a name of 1 to 32 letters, digits and `_ . -`";
const WHO: &str =
    "up to 256 hardware addresses, addresses, networks, lease names, or devices of `lan`";
const TO: &str = "up to 256 networks, addresses and domain names; a domain includes its subdomains";
const DEVICE: &str = "the name of a tunnel's device, such as \"mr-office\"";
const WAY: &str = "\"around\" or \"block\"";
const DNS: &str = "an address of a name server behind the tunnel, or one of IPv4 and one of IPv6";
const DOWN: &str = "\"hold\" or \"around\"";

/// Keys of an entry, in TOML.
pub(super) const ROWS: &[TomlRow<Draft>] = &[
    ("name", NAME, |it, v| {
        put(&mut it.name, keys::name(one(v)?).ok())
    }),
    ("who", WHO, |it, v| put(&mut it.who, some(v, who).map(Some))),
    ("to", TO, |it, v| put(&mut it.to, some(v, target).map(Some))),
    ("through", DEVICE, |it, v| {
        let device = one(v).filter(|it| is_device(it));
        put(&mut it.through, device.map(|it| Some(it.to_owned())))
    }),
    ("down", DOWN, |it, v| {
        it.down = Some(match one(v)? {
            "hold" => Down::Hold,
            "around" => Down::Around,
            _ => return None,
        });
        Some(())
    }),
    ("way", WAY, |it, v| {
        it.way = Some(match one(v)? {
            "around" => Way::Around,
            "block" => Way::Block,
            _ => return None,
        });
        Some(())
    }),
    ("dns", DNS, |it, v| {
        let servers = some(v, |it| it.parse().ok());
        put(&mut it.dns, servers.filter(|it| are_servers(it)))
    }),
];

/// The only string of a value.
fn one<'a>(value: &'a DeValue<'_>) -> Option<&'a str> {
    words(value, 1)?.first().copied()
}

/// The strings of a value, at least one.
fn some<T>(value: &DeValue<'_>, read: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    let words = words(value, WORDS_MAX).filter(|it| !it.is_empty())?;
    words.into_iter().map(read).collect()
}

/// One entry: decides about packets from some senders to some targets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// The name in reports.
    pub name: String,
    /// Senders, any of which matches; empty for the whole LAN.
    pub who: Vec<Who>,
    /// Targets, any of which matches; empty for everything outside the LAN.
    pub to: Vec<Target>,
    /// Route of these packets.
    pub way: Way,
    /// Name servers behind the tunnel, at most one of each family. They get the packets to port 53, whichever server
    /// these were sent to.
    pub dns: Vec<IpAddr>,
}

/// Matches the senders of packets.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Who {
    /// Packets from a hardware address.
    Mac(Mac),
    /// Packets from any hardware address with a DHCP lease under this name.
    Lease(String),
    /// Packets from a network or an address.
    Network(AllowedIp),
    /// Packets that come in through a device of the LAN.
    Device(String),
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mac(mac) => write!(f, "{mac}"),
            Self::Lease(name) | Self::Device(name) => f.write_str(name),
            Self::Network(network) => write!(f, "{network}"),
        }
    }
}

/// A hardware address of Ethernet.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Parses six hexadecimal bytes, separated by colons or dashes.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let mut bytes = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut bytes {
            let part = parts.next().filter(|it| it.len() == 2)?;
            let is_hex = part.bytes().all(|it| it.is_ascii_hexdigit());
            *byte = u8::from_str_radix(part, 16).ok().filter(|_| is_hex)?;
        }
        parts.next().is_none().then_some(Self(bytes))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Matches the targets of packets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Target {
    /// Packets to a network or an address.
    Network(AllowedIp),
    /// Packets to addresses that `dnsmasq` resolved for this domain or its subdomains.
    Domain(Domain),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(network) => write!(f, "{network}"),
            Self::Domain(domain) => write!(f, "{domain}"),
        }
    }
}

/// A domain name: lower-case letters, digits, `-` and `_`, in labels separated by dots.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Domain(String);

impl Domain {
    /// Parses a name. Drops `*.` or a dot in front, and a dot at the end.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let name = text.strip_prefix("*.").unwrap_or(text);
        let name = name.strip_prefix('.').unwrap_or(name);
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let is_plain = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
        let is_label = |label: &str| {
            (1..=LABEL_MAX).contains(&label.len())
                && label.bytes().all(is_plain)
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        // A name that ends with a number is a mistyped address.
        let last = name.rsplit('.').next().unwrap_or_default();
        let is_name = last.bytes().any(|c| !c.is_ascii_digit());
        (name.len() <= DOMAIN_MAX && name.split('.').all(is_label) && is_name).then_some(Self(name))
    }

    /// Name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this name is `other` or a subdomain of it.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        let rest = self.0.strip_suffix(other.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Route of the packets of an entry.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Way {
    /// Through a tunnel.
    Through {
        /// Interface name of the tunnel.
        device: String,
        /// The treatment of the packets while the tunnel is not up.
        down: Down,
    },
    /// Packets leave through the router's uplink, past any tunnel that has the default route.
    Around,
    /// Drop the packets.
    Block,
}

/// Treatment of packets whose tunnel is down.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Down {
    /// The packets are refused.
    #[default]
    Hold,
    /// The packets go as if the entry did not exist.
    Around,
}

/// An entry whose keys are still being read.
pub(super) struct Draft {
    name: String,
    who: Option<Vec<Who>>,
    to: Option<Vec<Target>>,
    through: Option<String>,
    down: Option<Down>,
    way: Option<Way>,
    dns: Vec<IpAddr>,
}

impl Draft {
    pub(super) fn new(number: usize) -> Self {
        Self {
            name: number.to_string(),
            who: None,
            to: None,
            through: None,
            down: None,
            way: None,
            dns: Vec::new(),
        }
    }

    /// The finished entry, or a sentence about a key that is missing or does not fit.
    pub(super) fn finish(self) -> Result<Entry, String> {
        let name = self.name;
        let way = match (self.through, self.way, self.down) {
            (Some(device), None, down) => Way::Through {
                device,
                down: down.unwrap_or_default(),
            },
            (None, Some(way), None) => way,
            (None, Some(_), Some(_)) => {
                return Err(format!(
                    "entry {name}: `down` works only with `through`; remove one of them"
                ));
            }
            (Some(_), Some(_), _) => {
                return Err(format!(
                    "entry {name} has both `through` and `way`; remove one of them"
                ));
            }
            (None, None, _) => {
                return Err(format!(
                    "entry {name} does not say which way its packets go; write `through = \"DEVICE\"`, `way = \
                     \"around\"` or `way = \"block\"`"
                ));
            }
        };
        if self.who.is_none() && self.to.is_none() {
            return Err(format!(
                "entry {name} has neither `who` (senders) nor `to` (destinations); to match all traffic of a LAN \
                 device, name the device in `who`"
            ));
        }
        // If only some packets use the tunnel, queries would go to an address that exists only behind it.
        let is_all = matches!(
            way,
            Way::Through {
                down: Down::Hold,
                ..
            }
        ) && self.to.is_none();
        if !self.dns.is_empty() && !is_all {
            return Err(format!(
                "entry {name}: `dns` is only for devices whose whole traffic uses a tunnel or is blocked; set `who` \
                 and `through`, and remove `to` and `down`"
            ));
        }
        let mut to: Vec<Target> = Vec::new();
        for target in self.to.unwrap_or_default() {
            if !to.contains(&target) {
                to.push(target);
            }
        }
        Ok(Entry {
            name,
            who: self.who.unwrap_or_default(),
            to,
            way,
            dns: self.dns,
        })
    }
}

/// Whether these are one name server, or one of each family.
fn are_servers(servers: &[IpAddr]) -> bool {
    let is_server = |it: &IpAddr| !it.is_unspecified() && !it.is_loopback() && !it.is_multicast();
    let is_one_each = match servers {
        [_] => true,
        [a, b] => a.is_ipv4() != b.is_ipv4(),
        _ => false,
    };
    is_one_each && servers.iter().all(is_server)
}

fn who(word: &str) -> Option<Who> {
    if let Some(mac) = Mac::new(word) {
        return Some(Who::Mac(mac));
    }
    if let Ok(network) = word.parse::<AllowedIp>() {
        return Some(Who::Network(network));
    }
    // The word may be a device, or a host name from DHCP.
    let is_name = |it: Domain| it.as_str().eq_ignore_ascii_case(word);
    let is_word = is_device(word) || Domain::new(word).is_some_and(is_name);
    is_word.then(|| Who::Lease(word.to_owned()))
}

fn target(word: &str) -> Option<Target> {
    match word.parse::<AllowedIp>() {
        Ok(network) => Some(Target::Network(network)),
        Err(_) => Domain::new(word).map(Target::Domain),
    }
}
