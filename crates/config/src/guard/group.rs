//! Groups: LAN devices with tunnels of their own, beside those of the guard's file. They come from `only_through` of
//! OpenWrt's interfaces.
//!
//! ```text
//! lists: interface, its device, devices of the LAN ─┐
//! the file's settings (`lan`, `tunnels`)            ├─> one group for all devices that have the same tunnels
//! the groups of before, for their tables ───────────┘
//! ```
//!
//! No device is in two groups, so that each device has one table. A device that the file names too gets the stricter
//! rule: the tunnels that are both in its list and in the file.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::DeValue;

use super::{DEVICES, Guard, NUMBER, PATTERNS, Pattern, devices, number};
use crate::settings::SettingsError;
use crate::settings::reader::{list, places, shown, text_of};

/// Maximum number of LAN devices in all lists together, and of tunnels of one device.
pub const LISTED_MAX: usize = 16;

/// The first routing table of groups, behind the policy's tables.
pub const GROUP_TABLE: u32 = 7740;

/// Number of tables for groups: twice the most groups, so that a new group never gets a table that an old one still
/// has; plus one that may be the file's.
pub const GROUP_TABLES: u32 = 2 * LISTED_MAX as u32 + 1;

/// The `only_through` list of an interface.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Listed {
    /// The interface's name.
    pub interface: String,
    /// Network device of the interface, which is a tunnel.
    pub device: String,
    /// LAN devices that leave through this interface only.
    pub lan: Vec<String>,
}

/// LAN devices that leave only through the same tunnels.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Group {
    /// Devices of the LAN.
    pub lan: Vec<String>,
    /// Tunnels, the preferred first. Empty if lists and file have none in common: then nothing may leave.
    pub tunnels: Vec<Pattern>,
    /// The routing table with the default route into the tunnel, which the guard makes.
    pub table: u32,
}

/// LAN devices, the tunnels that they leave through, and the routing table for them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Part<'a> {
    /// Devices of the LAN.
    pub lan: Vec<&'a str>,
    /// Tunnels, the preferred first.
    pub tunnels: &'a [Pattern],
    /// The routing table.
    pub table: u32,
    /// The guard makes the default route itself.
    pub lead: bool,
}

impl Part<'_> {
    /// Position of the first tunnel pattern that matches this device name; `None` if none matches.
    #[must_use]
    pub fn rank(&self, name: &str) -> Option<usize> {
        self.tunnels.iter().position(|it| it.matches(name))
    }
}

impl Guard {
    /// The file's own part, without the devices that are in a group.
    #[must_use]
    pub fn own(&self) -> Part<'_> {
        let is_grouped = |name: &&str| {
            let mut grouped = self.groups.iter().flat_map(|it| &it.lan);
            grouped.any(|it| it == name)
        };
        let lan = self.lan.iter().map(String::as_str);
        Part {
            lan: lan.filter(|it| !is_grouped(it)).collect(),
            tunnels: &self.tunnels,
            table: self.table,
            lead: self.lead,
        }
    }

    /// All parts: the file's own, and one for each group.
    #[must_use]
    pub fn parts(&self) -> Vec<Part<'_>> {
        let groups = self.groups.iter().map(|group| Part {
            lan: group.lan.iter().map(String::as_str).collect(),
            tunnels: &group.tunnels,
            table: group.table,
            lead: true,
        });
        // The file's part stays even if groups have all its devices: name servers are asked through its table.
        let own = (!self.lan.is_empty()).then(|| self.own());
        own.into_iter().chain(groups).collect()
    }

    /// Every guarded device, without duplicates.
    #[must_use]
    pub fn guarded(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self.lan.iter().map(String::as_str).collect();
        for name in self.groups.iter().flat_map(|it| &it.lan) {
            if !all.contains(&name.as_str()) {
                all.push(name);
            }
        }
        all
    }

    /// Every device that guarded ones may reach: the guarded devices and those of `reach`.
    #[must_use]
    pub fn within(&self) -> Vec<&str> {
        let mut all = self.guarded();
        let further = self.reach.iter().map(String::as_str);
        let new: Vec<&str> = further.filter(|it| !all.contains(it)).collect();
        all.extend(new);
        all
    }

    /// Whether nothing is guarded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lan.is_empty() && self.groups.is_empty()
    }

    /// These settings, with their groups replaced by groups for `lists`. A group that is in `before` keeps its table.
    /// Also returns a sentence for each entry that is not guarded.
    #[must_use]
    pub fn with_lists(mut self, lists: &[Listed], before: &[Group]) -> (Self, Vec<String>) {
        let mut left = Vec::new();
        let mut lans: Vec<(&String, Vec<Pattern>)> = Vec::new();
        for list in lists {
            let Some(tunnel) = Pattern::new(&list.device).filter(|it| !it.open) else {
                left.push(format!(
                    "{}: no device can have the name {:?}",
                    list.interface, list.device
                ));
                continue;
            };
            if self.lan.contains(&list.device) || self.reach.contains(&list.device) {
                left.push(format!(
                    "{}: the guard's file says that {} is of the LAN; nothing is held for this list",
                    list.interface, list.device
                ));
                continue;
            }
            for name in &list.lan {
                let has_room = lans.len() < LISTED_MAX;
                let why = match lans.iter_mut().find(|it| it.0 == name) {
                    _ if !crate::types::is_ifname(name) => "is no name of a device",
                    _ if name == "lo" => "is the host itself",
                    _ if lists.iter().any(|it| it.device == *name) || self.is_lent(name) => {
                        "is a tunnel itself"
                    }
                    Some((_, tunnels)) if tunnels.contains(&tunnel) => continue,
                    Some((_, tunnels)) if tunnels.len() < LISTED_MAX => {
                        tunnels.push(tunnel.clone());
                        continue;
                    }
                    None if has_room => {
                        lans.push((name, vec![tunnel.clone()]));
                        continue;
                    }
                    Some(_) => "has tunnels enough",
                    None => "is one too many: 16 devices can be listed",
                };
                left.push(format!(
                    "{}: {name} {why}; nothing of it is held for this list",
                    list.interface
                ));
            }
        }
        let mut groups: Vec<Group> = Vec::new();
        for (name, mut tunnels) in lans {
            if self.lan.contains(name) {
                tunnels.retain(|it| self.rank(it.start()).is_some());
            }
            match groups.iter_mut().find(|it| it.tunnels == tunnels) {
                Some(group) => group.lan.push(name.clone()),
                None => groups.push(Group {
                    lan: vec![name.clone()],
                    tunnels,
                    table: 0,
                }),
            }
        }
        let kept = |group: &Group| {
            before
                .iter()
                .find(|it| it.tunnels == group.tunnels)
                .map(|it| it.table)
        };
        for place in 0..groups.len() {
            let taken = |table: &u32| {
                *table == self.table
                    || groups.iter().any(|it| it.table == *table)
                    || before.iter().any(|it| it.table == *table)
            };
            let mut free = tables().filter(|it| !taken(it));
            let of_before = kept(&groups[place]).filter(|it| *it != self.table);
            groups[place].table = of_before.or_else(|| free.next()).unwrap_or(GROUP_TABLE);
        }
        self.groups = groups;
        (self, left)
    }

    /// These settings with the groups of other settings, for when the present lists are unknown. The result is at
    /// least as strict as before.
    #[must_use]
    pub fn with_groups(mut self, groups: &[Group]) -> Self {
        self.groups = groups.to_vec();
        for group in &mut self.groups {
            if group.lan.iter().any(|it| self.lan.contains(it)) {
                let tunnels = &self.tunnels;
                group
                    .tunnels
                    .retain(|it| tunnels.iter().any(|tunnel| tunnel.matches(it.start())));
            }
            if group.table == self.table {
                let is_free = |table: &u32| groups.iter().all(|it| it.table != *table);
                group.table = tables().find(is_free).unwrap_or(GROUP_TABLE);
            }
        }
        self
    }

    /// Whether the file names this device as a tunnel rather than as a LAN device.
    fn is_lent(&self, name: &str) -> bool {
        !self.lan.is_empty() && self.rank(name).is_some()
    }

    /// A sentence about groups that contradict each other. Groups made by [`Guard::with_lists`] never do.
    pub(super) fn fault_of_groups(&self) -> Option<String> {
        let names: Vec<&String> = self.groups.iter().flat_map(|it| &it.lan).collect();
        let tunnels = || self.groups.iter().flat_map(|it| &it.tunnels);
        for (place, name) in names.iter().enumerate() {
            if names[..place].contains(name) {
                return Some(format!("{name} is in two groups"));
            }
            if *name == "lo" || tunnels().any(|it| it.matches(name)) {
                return Some(format!("{name} is no device of the LAN"));
            }
        }
        let all: Vec<u32> = self.parts().iter().map(|it| it.table).collect();
        let is_double = |(place, table): (usize, &u32)| all[..place].contains(table);
        if names.len() > LISTED_MAX || all.iter().enumerate().any(is_double) {
            return Some("groups that are too many, or share a table".to_owned());
        }
        None
    }

    /// The settings and their groups as text for [`Guard::from_kept`].
    #[must_use]
    pub fn to_kept(&self) -> String {
        let mut text = self.to_toml();
        for group in &self.groups {
            let list = |names: Vec<String>| {
                let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
                quoted.join(", ")
            };
            let tunnels = group.tunnels.iter().map(Pattern::to_string).collect();
            text += &format!(
                "\n[[group]]\nlan = [{}]\ntunnels = [{}]\ntable = {}\n",
                list(group.lan.clone()),
                list(tunnels),
                group.table
            );
        }
        text
    }

    /// Reads a file that [`Guard::to_kept`] wrote.
    ///
    /// # Errors
    /// The errors of [`Guard::read`].
    pub fn read_kept(path: &Path) -> Result<Self, SettingsError> {
        Self::from_kept(&text_of(path)?, path)
    }

    /// Reads text that [`Guard::to_kept`] wrote.
    ///
    /// # Errors
    /// The errors of [`Guard::from_toml`].
    pub fn from_kept(text: &str, path: &Path) -> Result<Self, SettingsError> {
        Self::of_text(text, path, true)
    }
}

/// Range of the routing tables for groups.
#[must_use]
pub fn tables() -> Range<u32> {
    GROUP_TABLE..GROUP_TABLE + GROUP_TABLES
}

/// Parses `[[group]]`.
pub(super) fn groups(
    value: &DeValue<'_>,
    text: &str,
    path: &Path,
) -> Result<Vec<Group>, SettingsError> {
    let place = places(text, path);
    let refused = |offset: usize, key: &str, found: String, wanted| SettingsError::Value {
        origin: place(offset),
        key: key.to_owned(),
        found,
        wanted,
    };
    let DeValue::Array(entries) = value else {
        return Err(refused(0, "group", shown(value), "tables"));
    };
    let group = |entry: &Spanned<DeValue<'_>>| {
        let (start, value) = (entry.span().start, entry.get_ref());
        let DeValue::Table(table) = value else {
            return Err(refused(start, "group", shown(value), "a table"));
        };
        let value = |key: &str| table.get(key).map(Spanned::get_ref);
        let wrong = |key: &str, wanted| {
            refused(
                start,
                key,
                value(key).map_or_else(String::new, shown),
                wanted,
            )
        };
        let patterns = |it| list(it, LISTED_MAX, Pattern::new);
        let tunnels = value("tunnels").and_then(patterns);
        Ok(Group {
            lan: value("lan")
                .and_then(devices)
                .ok_or_else(|| wrong("lan", DEVICES))?,
            tunnels: tunnels.ok_or_else(|| wrong("tunnels", PATTERNS))?,
            table: value("table")
                .and_then(number)
                .ok_or_else(|| wrong("table", NUMBER))?,
        })
    };
    entries.iter().map(group).collect()
}

#[cfg(test)]
mod tests;
