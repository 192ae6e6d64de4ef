//! The policy's settings: which packets of the LAN go through which tunnel, around it, or nowhere.
//!
//! ```toml
//! lan = ["br-lan", "br-guest"]        # the policy decides about packets from these devices
//!
//! [[entry]]
//! who = ["television", "02:00:5e:10:00:01"]
//! to = ["example.org", "203.0.113.0/24"]
//! through = "mr-us"
//! ```
//!
//! The first entry that matches decides. All names go into scripts for `nft` and `dnsmasq`, so that characters with a
//! meaning there are refused.

use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use crate::guard::{ASKING, DEVICES, DEVICES_MAX, PATTERNS, Pattern, SWITCH, devices};
use crate::settings::reader::{
    TomlRow, parsed, path, places, put, set_toml, switch, tables, text_of, words,
};
use crate::settings::{Origin, SettingsError};
use crate::types::is_ifname;

mod entry;

pub use entry::{Domain, Down, Entry, Mac, Target, Way, Who};

/// Default path of the settings.
pub const DEFAULT_PATH: &str = "/etc/millrace/policy.toml";

/// Default bits of a packet's mark that the policy uses.
pub const MASK: u32 = 0xff00_0000;

/// Default number of the policy's first routing table.
pub const TABLE: u32 = 7700;

/// Maximum number of entries.
pub const ENTRIES_MAX: usize = 64;

/// Maximum number of tunnels that entries name, each of which has a routing table.
pub const TUNNELS_MAX: usize = 32;

/// Maximum number of different domains in all entries: each needs two `nft` sets.
pub const DOMAINS_MAX: usize = 512;

/// Maximum number of domains of entries in one chain of subdomains: each is two sets in one line of `dnsmasq`, which
/// reads up to 1024 bytes of a line.
const DEPTH_MAX: usize = 7;

/// Maximum number of values in a list.
const WORDS_MAX: usize = 256;

const BITS: &str = "a mask of at least four consecutive bits, such as 0xff000000";
const NUMBER: &str = "the number of the first of 33 free routing tables, none of them 220 to 255";
const FILE: &str = "the path of a file, such as \"/tmp/dhcp.leases\"";
const DIRECTORY: &str = "the path of a directory, such as \"/etc/dnsmasq.d\"";
const COMMAND: &str = "a program and its arguments, such as [\"/etc/init.d/dnsmasq\", \"restart\"]";
const TABLES: &str = "tables, each of which begins with [[entry]]";

const ROWS: &[TomlRow<Policy>] = &[
    ("lan", DEVICES, |it, v| put(&mut it.lan, devices(v))),
    ("masquerade", SWITCH, |it, v| {
        put(&mut it.masquerade, switch(v))
    }),
    ("tunnels", PATTERNS, |it, v| {
        let patterns = words(v, DEVICES_MAX)?.into_iter().map(Pattern::new);
        put(&mut it.tunnels, patterns.collect())
    }),
    ("mask", BITS, |it, v| put(&mut it.mask, mask(v))),
    ("table", NUMBER, |it, v| put(&mut it.table, table(v))),
    ("leases", FILE, |it, v| {
        put(&mut it.leases, path(v).map(Some))
    }),
    ("dnsmasq", DIRECTORY, |it, v| {
        put(&mut it.dnsmasq, path(v).map(Some))
    }),
    ("restart", COMMAND, |it, v| {
        let words = words(v, 16).filter(|it| !it.is_empty())?;
        put(
            &mut it.restart,
            Some(words.into_iter().map(str::to_owned).collect()),
        )
    }),
    // Read one by one, each with its place.
    ("entry", TABLES, |_, _| None),
];

/// The policy: which packets take which route.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Policy {
    /// LAN devices: the policy decides about packets that come in through them.
    pub lan: Vec<String>,
    /// Packets from the LAN leave through entries' tunnels with the router's own address there.
    pub masquerade: bool,
    /// Tunnel devices besides those that entries name. Uplinks of the router must not be listed.
    pub tunnels: Vec<Pattern>,
    /// The bits of a packet's mark that the policy uses.
    pub mask: u32,
    /// The first routing table, for packets that go around tunnels. The tunnels' tables follow.
    pub table: u32,
    /// The file in which a DHCP server keeps its leases.
    pub leases: Option<PathBuf>,
    /// The directory from which `dnsmasq` reads its settings.
    pub dnsmasq: Option<PathBuf>,
    /// The command that makes `dnsmasq` read its files again; empty for the system's own.
    pub restart: Vec<String>,
    /// The entries; the first that matches decides.
    pub entries: Vec<Entry>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            lan: Vec::new(),
            masquerade: false,
            tunnels: Pattern::new(crate::guard::TUNNELS).into_iter().collect(),
            mask: MASK,
            table: TABLE,
            leases: None,
            dnsmasq: None,
            restart: Vec::new(),
            entries: Vec::new(),
        }
    }
}

impl Policy {
    /// Reads a file.
    ///
    /// # Errors
    /// [`SettingsError::Read`], [`SettingsError::TooLarge`], and the errors of [`Policy::from_toml`].
    pub fn read(path: &Path) -> Result<(Self, String), SettingsError> {
        let text = text_of(path)?;
        Ok((Self::from_toml(&text, path)?, text))
    }

    /// Reads TOML text over the defaults; `path` only names it in errors.
    ///
    /// # Errors
    /// [`SettingsError::Syntax`], [`SettingsError::Unknown`] or [`SettingsError::Value`], each with the line.
    pub fn from_toml(text: &str, path: &Path) -> Result<Self, SettingsError> {
        let place = places(text, path);
        let root = parsed(text, &place)?;
        let mut policy = Self::default();
        for (key, value) in root.get_ref() {
            let (origin, value) = (place(key.span().start), value.get_ref());
            match (key.get_ref().as_ref(), tables(value)) {
                ("entry", Some(tables)) => {
                    for (begin, table) in tables {
                        let number = policy.entries.len() + 1;
                        policy
                            .entries
                            .push(read_entry(table, number, place(begin), &place)?);
                    }
                }
                (key, _) => set_toml(ROWS, &mut policy, key, value, origin)?,
            }
        }
        policy.merge_doubles();
        policy.name_devices();
        Ok(policy)
    }

    /// Removes duplicate devices.
    fn merge_doubles(&mut self) {
        let mut kept: Vec<String> = Vec::new();
        for name in self.lan.drain(..) {
            if !kept.contains(&name) {
                kept.push(name);
            }
        }
        self.lan = kept;
    }

    /// Turns a name that entries use as a lease into a device, if it is the name of a LAN device.
    fn name_devices(&mut self) {
        for who in self.entries.iter_mut().flat_map(|it| &mut it.who) {
            if let Who::Lease(name) = who
                && self.lan.contains(name)
            {
                *who = Who::Device(std::mem::take(name));
            }
        }
    }

    /// Tunnel devices that entries name, without duplicates, in order.
    #[must_use]
    pub fn devices(&self) -> Vec<&str> {
        let mut devices: Vec<&str> = Vec::new();
        for entry in &self.entries {
            if let Way::Through { device, .. } = &entry.way
                && !devices.contains(&device.as_str())
            {
                devices.push(device);
            }
        }
        devices
    }

    /// Whether a device is a tunnel, which packets that go around tunnels must not use.
    #[must_use]
    pub fn is_tunnel(&self, name: &str) -> bool {
        self.tunnels.iter().any(|it| it.matches(name)) || self.devices().contains(&name)
    }

    /// The domains of all entries, sorted, without duplicates.
    #[must_use]
    pub fn domains(&self) -> Vec<&Domain> {
        let targets = self.entries.iter().flat_map(|it| &it.to);
        let mut domains: Vec<&Domain> = targets
            .filter_map(|target| match target {
                Target::Domain(domain) => Some(domain),
                Target::Network(_) => None,
            })
            .collect();
        domains.sort_unstable();
        domains.dedup();
        domains
    }
}

impl Policy {
    /// Why this policy would decide nothing, or cannot work: a sentence. `None` if it is sound.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        if self.lan.is_empty() {
            return Some(
                "no LAN device is named; write `lan = [\"br-lan\"]` before the first entry"
                    .to_owned(),
            );
        }
        if self.entries.is_empty() {
            return Some("there is no entry; begin one with [[entry]]".to_owned());
        }
        if self.lan.iter().any(|name| name == "lo") {
            return Some("lo is the host itself".to_owned());
        }
        if let Some(name) = self.lan.iter().find(|name| self.is_tunnel(name)) {
            return Some(format!(
                "{name} is listed as a LAN device, but `tunnels` or an entry names it as a tunnel"
            ));
        }
        if self.entries.len() > ENTRIES_MAX {
            return Some(format!("more than {ENTRIES_MAX} entries"));
        }
        if self.mask & ASKING != 0 {
            return Some(format!(
                "the bit {ASKING:#x} of `mask` is the guard's; choose other bits, such as {MASK:#x}"
            ));
        }
        // Three mark values mean "around", "blocked" and "answers"; 0 means no mark.
        let room = (self.mask >> self.mask.trailing_zeros()) as usize - 3;
        let ways = self.devices().len() * 2;
        if self.devices().len() > TUNNELS_MAX || ways > room {
            return Some(format!(
                "entries use {} tunnels, but at most {} are possible with this mask",
                self.devices().len(),
                TUNNELS_MAX.min(room / 2)
            ));
        }
        let domains = self.domains();
        if domains.len() > DOMAINS_MAX {
            return Some(format!("more than {DOMAINS_MAX} domain names"));
        }
        let above = |domain: &Domain| domains.iter().filter(|it| domain.is_within(it)).count();
        if let Some(domain) = domains.iter().find(|it| above(it) > DEPTH_MAX) {
            return Some(format!(
                "{domain} is a subdomain of more than {} other domains of entries",
                DEPTH_MAX - 1
            ));
        }
        self.entries.iter().enumerate().find_map(|(place, entry)| {
            let earlier = &self.entries[..place];
            if earlier.iter().any(|it| it.name == entry.name) {
                return Some(format!("two entries have the name {}", entry.name));
            }
            // Blocking everything is the firewall's task.
            let all = |it: &Target| matches!(it, Target::Network(network) if network.is_default());
            let is_all = entry.who.is_empty() && entry.to.iter().any(all);
            (is_all && entry.way == Way::Block)
                .then(|| format!("entry {} would block all traffic of the LAN", entry.name))
        })
    }
}

fn read_entry(
    table: &DeTable<'_>,
    number: usize,
    origin: Origin,
    place: &dyn Fn(usize) -> Origin,
) -> Result<Entry, SettingsError> {
    let mut draft = entry::Draft::new(number);
    for (key, value) in table {
        let origin = place(key.span().start);
        set_toml(
            entry::ROWS,
            &mut draft,
            key.get_ref(),
            value.get_ref(),
            origin,
        )?;
    }
    let entry = draft.finish();
    entry.map_err(|words| SettingsError::Entry { origin, words })
}

fn number(value: &DeValue<'_>) -> Option<u32> {
    match value {
        DeValue::Integer(number) => u32::from_str_radix(number.as_str(), number.radix()).ok(),
        _ => None,
    }
}

fn mask(value: &DeValue<'_>) -> Option<u32> {
    let mask = number(value).filter(|it| *it != 0)?;
    let run = mask >> mask.trailing_zeros();
    // A run of ones plus one is a power of two, which shares no bit with the run.
    (mask.count_ones() >= 4 && run & run.wrapping_add(1) == 0).then_some(mask)
}

fn table(value: &DeValue<'_>) -> Option<u32> {
    let first = number(value).filter(|it| *it != 0)?;
    let last = first.checked_add(TUNNELS_MAX as u32)?;
    (last < 253 || first > 255).then_some(first)
}

/// Whether a word is a valid device name for a tunnel.
fn is_device(word: &str) -> bool {
    is_ifname(word) && word != "lo"
}

#[cfg(test)]
mod tests;
