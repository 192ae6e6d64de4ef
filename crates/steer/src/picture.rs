//! One picture of the policy and the guard: for each device of the LAN, the path of its packets, and who decides it.

use std::net::IpAddr;

use config::guard::Pattern;
use config::policy::{Policy, Way as Meant};
use netio::netlink::Family;

use crate::facts::FAMILIES;
use crate::networks::Network;
use crate::policy::{DEVICES_MAX, Entry, Present, Senders, present};
use crate::report::few;
use crate::system::System;
use crate::{SteerError, Way, guard, policy};
use sender::{Device, Match, covers, within};

mod sender;

/// Addresses on the Internet whose routes are those of the router itself.
const INTERNET: [&str; 2] = ["9.9.9.9", "2620:fe::fe"];

/// Maximum number of rows.
const ROWS_MAX: usize = 512;

/// What happens to packets that leave the LAN. Ordered from least to most protected; a row shows the lesser of IPv4 and
/// IPv6.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Allowed {
    /// They leave through no tunnel.
    Clear,
    /// They leave through a tunnel, or not at all, but without one once this tunnel ends or the router has another
    /// route.
    Loose,
    /// They leave through a tunnel, or not at all.
    Through,
    /// They do not leave until a tunnel is up.
    Held,
    /// They do not leave.
    Blocked,
}

impl Allowed {
    /// The name in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clear => "clear",
            Self::Loose => "loose",
            Self::Through => "through",
            Self::Held => "held",
            Self::Blocked => "blocked",
        }
    }
}

/// A device of the LAN, or all others, and the path of its packets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Row {
    /// The device's name, as it chose it; empty if it has none, or for all other devices.
    pub name: String,
    /// IPv4 address; empty for all other devices, and without a lease.
    pub address: String,
    /// Hardware address; empty for all other devices.
    pub mac: String,
    /// The router's device through which its packets come in; empty if unknown.
    pub lan: String,
    /// Targets of the packets; empty for all others.
    pub to: String,
    /// The path, in words.
    pub path: String,
    /// What happens to the packets.
    pub allowed: Allowed,
    /// Who decides: an entry of the policy, the guard, or the router's routes.
    pub by: String,
}

/// The picture.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Picture {
    /// The policy's report.
    pub policy: policy::Report,
    /// The devices, those of one LAN together.
    pub rows: Vec<Row>,
    /// Faults by which packets may take another path than the owner thinks, one sentence each.
    pub warnings: Vec<String>,
    /// The device through which the router's own IPv4 packets leave.
    pub own: Option<String>,
}

/// Looks at the host. `policy` is that of the file, if it has one; `tunnels` are the tunnels that are up.
///
/// # Errors
/// When the host cannot be inspected.
pub fn picture(
    policy: Option<&Policy>,
    guard: Option<&guard::Report>,
    tunnels: &[&str],
) -> Result<Picture, SteerError> {
    let present = present(policy)?;
    let mut system = System::open()?;
    let own = INTERNET.map(|address| {
        let route = system.netlink.route_get(address.parse().ok()?, 0).ok()?;
        Some(present.facts.link(route.dev)?.name.clone())
    });
    let scene = Scene {
        present: &present,
        guard: guard.filter(|it| it.state != guard::State::Off),
        tunnels,
        own,
    };
    let drawn = scene.draw();
    Ok(Picture {
        warnings: scene.warnings(policy.is_some(), guard, &drawn),
        rows: drawn.rows,
        own: scene.own[0].clone(),
        policy: present.report,
    })
}

/// A picture before it is drawn: all that decides about packets.
struct Scene<'a> {
    present: &'a Present,
    /// The guard, if it is in force.
    guard: Option<&'a guard::Report>,
    tunnels: &'a [&'a str],
    /// The devices through which the router's own packets leave, of IPv4 and of IPv6.
    own: [Option<String>; 2],
}

/// The path of a family's packets.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Path {
    allowed: Allowed,
    words: String,
    /// Who decides.
    by: String,
    /// False if the router has no route of the family now.
    is_routed: bool,
}

/// Rows, and what they cannot show.
#[derive(Default)]
struct Drawn {
    rows: Vec<Row>,
    /// Devices without rows, because there are too many.
    left_out: usize,
}

impl Scene<'_> {
    fn draw(&self) -> Drawn {
        let Present {
            leases,
            facts,
            resolved,
            report,
        } = self.present;
        let with_lease = leases.iter().take(DEVICES_MAX);
        let mut devices: Vec<Device<'_>> = with_lease
            .map(|lease| Device::of_lease(lease, facts))
            .collect();
        let guarded = self.guard.into_iter().flat_map(|it| &it.parts);
        let mut lans: Vec<&str> = resolved.policy.lan.iter().map(String::as_str).collect();
        lans.extend(guarded.flat_map(|it| &it.lan).map(String::as_str));
        lans.extend(devices.iter().map(|it| it.lan));
        lans.retain(|it| !it.is_empty());
        lans.sort_unstable();
        lans.dedup();
        devices.extend(lans.into_iter().map(Device::others));
        if report.on {
            let mut macs = resolved.macs(|_| true);
            macs.retain(|mac| !leases.iter().any(|it| it.mac == *mac));
            let without = |mac| Device::without_lease(mac, self.present);
            devices.extend(macs.into_iter().map(without));
        }
        let name = |it: &Device<'_>| it.name.to_ascii_lowercase();
        devices.sort_by_key(|it| {
            let lan = (it.lan.is_empty(), it.lan.to_owned());
            (lan, it.mac.is_none(), name(it))
        });
        let mut drawn = Drawn::default();
        for device in &devices {
            let rows = self.rows_of(device);
            match drawn.left_out == 0 && drawn.rows.len() + rows.len() <= ROWS_MAX {
                true => drawn.rows.extend(rows),
                false => drawn.left_out += 1,
            }
        }
        drawn
    }

    /// The row of a device, then those of its exceptions.
    fn rows_of(&self, device: &Device<'_>) -> Vec<Row> {
        let Present {
            resolved,
            report,
            facts,
            ..
        } = self.present;
        let is_elsewhere = !device.lan.is_empty() && !is_in(&resolved.policy.lan, device.lan);
        let entries: &[Entry] = match report.on && !is_elsewhere {
            true => &resolved.entries,
            false => &[],
        };
        let matches: Vec<[Match; 2]> = entries
            .iter()
            .map(|entry| FAMILIES.map(|family| device.matches(entry, family, self.present)))
            .collect();
        // For each family, the number of entries up to the one that decides about all packets.
        let mut reached = [entries.len(); 2];
        let whole = [0, 1].map(|family| {
            let mut paths = Vec::new();
            for (place, entry) in entries.iter().enumerate() {
                let matched = matches[place][family];
                if entry.is_everywhere() && matched != Match::No {
                    paths.push(self.by_entry(place, family, device.lan));
                    if matched == Match::Yes {
                        reached[family] = place;
                        return either(paths);
                    }
                }
            }
            paths.push(match is_elsewhere {
                true => self.elsewhere(device, family),
                false => self.without(family, device.lan),
            });
            either(paths)
        });
        let lan = facts.networks(&resolved.policy.lan);
        let mut rows = Vec::new();
        for (place, entry) in entries.iter().enumerate() {
            if entry.is_everywhere() {
                continue;
            }
            let aims = FAMILIES.map(|it| entry.aims(it));
            let is_hidden = |family: usize| {
                let mut before = entries[..place].iter().zip(&matches);
                place > reached[family]
                    || before.any(|(it, matched)| {
                        matched[family] == Match::Yes && hides(it, entry, FAMILIES[family], &lan)
                    })
            };
            let matched = |it: usize| aims[it] && matches[place][it] != Match::No && !is_hidden(it);
            if !matched(0) && !matched(1) {
                continue;
            }
            let paths = [0, 1].map(|family| {
                let path = || self.by_entry(place, family, device.lan);
                match matches[place][family] {
                    _ if !aims[family] || is_hidden(family) => None,
                    Match::Yes => Some(path()),
                    Match::Maybe => Some(either(vec![path(), whole[family].clone()])),
                    Match::No => Some(whole[family].clone()),
                }
            });
            let path = exception(paths, aims == [true; 2]);
            rows.extend(path.map(|it| row(device, &report.entries[place].to, it)));
        }
        let [v4, v6] = whole;
        rows.insert(0, row(device, "", together(v4, v6)));
        rows
    }

    /// The path of packets that come in through an interface outside the policy's `lan`.
    fn elsewhere(&self, device: &Device<'_>, family: usize) -> Path {
        let Present {
            resolved, report, ..
        } = self.present;
        let entries = resolved.entries.iter().zip(&report.entries);
        let mut entries = entries
            .filter(|(entry, _)| entry.is_everywhere() && names(entry, device, FAMILIES[family]));
        // Packets with a hardware address that any entry holds are dropped. An address may also be that of an entry
        // before, which lets its packets leave.
        let has_mac = |who: &Senders| device.mac.is_some_and(|it| who.macs.contains(&it));
        let by_mac = entries
            .clone()
            .find(|(entry, _)| entry.holds && entry.who.as_ref().is_some_and(has_mac));
        let holder = by_mac.or_else(|| entries.next().filter(|it| it.0.holds));
        match holder {
            Some((_, entry)) if report.on => Path {
                allowed: Allowed::Blocked,
                words: "blocked, because the policy's lan does not name this interface".to_owned(),
                by: format!("policy entry {}", entry.name),
                is_routed: true,
            },
            _ => self.without(family, device.lan),
        }
    }

    /// The group of the guard that holds packets from this device.
    fn part(&self, lan: &str) -> Option<&guard::PartReport> {
        let mut parts = self.guard?.parts.iter();
        parts.find(|it| it.lan.iter().any(|it| it == lan))
    }

    /// The path by an entry of the policy, and by the guard behind it.
    fn by_entry(&self, place: usize, family: usize, lan: &str) -> Path {
        let Present {
            resolved, report, ..
        } = self.present;
        let (meant, entry) = (&resolved.policy.entries[place].way, &report.entries[place]);
        let part = self.part(lan);
        let path = |allowed, words: String| Path {
            allowed,
            words,
            by: String::new(),
            is_routed: true,
        };
        let (allowed, words) = (entry.allowed[family], entry.ways[family].clone());
        let mut path = match (meant, part) {
            (Meant::Around, Some(_)) => {
                let words = "around tunnels, which the guard blocks";
                path(Allowed::Blocked, words.to_owned())
            }
            // The tunnel is down, and the entry has no effect.
            (Meant::Through { .. }, _) if allowed == Allowed::Clear => self.without(family, lan),
            (Meant::Through { device, .. }, Some(part))
                if matches!(allowed, Allowed::Through | Allowed::Loose) =>
            {
                match counts(&part.tunnels, device) {
                    true => path(Allowed::Through, format!("through {device}")),
                    false => {
                        let words = format!("through {device}, which the guard does not name");
                        path(Allowed::Blocked, words)
                    }
                }
            }
            _ => path(allowed, words),
        };
        path.by = format!("policy entry {}", entry.name);
        path
    }

    /// The path without an entry of the policy: that of the guard, or of the router.
    fn without(&self, family: usize, lan: &str) -> Path {
        if let Some(part) = self.part(lan) {
            let (allowed, words) = match &part.ways[family] {
                Way::Through { device, .. } => (Allowed::Through, format!("through {device}")),
                Way::Held(why) => (Allowed::Held, format!("held: {why}")),
            };
            return Path {
                allowed,
                words,
                by: "the guard".to_owned(),
                is_routed: true,
            };
        }
        let device = self.own[family].as_deref();
        let (allowed, words) = match device {
            Some(device) if self.tunnels.contains(&device) => (
                Allowed::Loose,
                format!("through {device} while it is up, then without it"),
            ),
            Some(device) => (Allowed::Clear, format!("through {device}, unencrypted")),
            None => (
                Allowed::Clear,
                "no route now; unencrypted once there is one".to_owned(),
            ),
        };
        Path {
            allowed,
            words,
            by: "the router's own routes".to_owned(),
            is_routed: device.is_some(),
        }
    }

    fn warnings(
        &self,
        has_file: bool,
        guard: Option<&guard::Report>,
        drawn: &Drawn,
    ) -> Vec<String> {
        let Present {
            resolved, report, ..
        } = self.present;
        let mut all = Vec::new();
        let mut warn = |what: &str, words: String| all.push(format!("{what}: {words}"));
        match (report.on, report.asked) {
            (false, true) => warn("policy", missing("policy")),
            (false, false) if has_file => warn(
                "policy",
                "its file exists, but it is off: devices take the router's own routes; run `millrace policy on`"
                    .to_owned(),
            ),
            _ => {}
        }
        if let Some(lacks) = report.missing() {
            let effect = match (report.is_in_place(), report.is_closed()) {
                (true, _) => "what a tunnel's restart removes stays missing",
                (false, true) => STILL_HELD,
                (false, false) => NOT_HELD,
            };
            warn("policy", format!("{lacks}: {effect}; {}", report.remedy()));
        }
        if report.on || report.asked {
            for words in &report.idle {
                warn("policy", words.clone());
            }
            for (entry, meant) in report.entries.iter().zip(&resolved.policy.entries) {
                let what = format!("policy entry {}", entry.name);
                for name in &entry.unknown {
                    let words = format!(
                        "{name} has no lease, so nothing decides about this device; name its hardware address"
                    );
                    warn(&what, words);
                }
                let is_through = matches!(meant.way, Meant::Through { .. });
                if is_through && entry.allowed == [Allowed::Clear; 2] {
                    warn(&what, entry.ways[0].clone());
                }
                if !entry.gap.is_empty() {
                    warn(&what, entry.gap.clone());
                }
            }
            for (name, words) in report.conflicts() {
                warn(name, words.to_owned());
            }
            if report.on {
                self.warn_elsewhere(&mut warn);
            }
        }
        if let Some(guard) = guard {
            match guard.state {
                guard::State::Off if guard.asked => warn("guard", missing("guard")),
                guard::State::Off => warn(
                    "guard",
                    "settings ask for it, but it is off: its devices may leave unencrypted; run `millrace guard on`"
                        .to_owned(),
                ),
                _ if !guard.is_whole() => warn("guard", partly(guard.is_closed())),
                _ => {}
            }
            for words in &guard.idle {
                warn("guard", words.clone());
            }
        }
        if self.present.leases.len() > DEVICES_MAX || drawn.left_out > 0 {
            let words = match drawn.left_out {
                0 => format!(
                    "only {DEVICES_MAX} devices with leases have rows; the others have none"
                ),
                count => format!("{count} devices have no row, because there are too many"),
            };
            all.push(format!("devices: {words}"));
        }
        all.dedup();
        all
    }

    /// Warns about devices that an entry names, and that are outside the policy's `lan`.
    fn warn_elsewhere(&self, warn: &mut impl FnMut(&str, String)) {
        let Present {
            resolved,
            report,
            facts,
            leases,
        } = self.present;
        let devices = leases.iter().map(|it| Device::of_lease(it, facts));
        let is_elsewhere =
            |it: &Device<'_>| !it.lan.is_empty() && !is_in(&resolved.policy.lan, it.lan);
        let devices: Vec<Device<'_>> = devices.filter(is_elsewhere).collect();
        for (entry, report) in resolved.entries.iter().zip(&report.entries) {
            let is_named =
                |it: &&Device<'_>| FAMILIES.iter().any(|family| names(entry, it, *family));
            let named = devices.iter().filter(is_named);
            let named: Vec<String> = named
                .map(|it| format!("{} in {}", it.words(), it.lan))
                .collect();
            if named.is_empty() {
                continue;
            }
            let effect = match entry.is_everywhere() && entry.holds {
                true => "their packets are dropped there",
                false => "the entry has no effect there",
            };
            let words = format!(
                "`lan` does not name the interface of {}: {effect}",
                few(&named)
            );
            warn(&format!("policy entry {}", report.name), words);
        }
    }
}

/// Whether an entry names a device, rather than its interface.
fn names(entry: &Entry, device: &Device<'_>, family: Family) -> bool {
    let Some(who) = &entry.who else { return false };
    let is_of = |address: IpAddr| {
        let mut networks = who.networks.iter();
        Family::of(address) == family && networks.any(|it| within(address, *it))
    };
    device.mac.is_some_and(|it| who.macs.contains(&it)) || device.address.is_some_and(is_of)
}

/// Whether an entry takes all packets of a family that a later one has targets for.
fn hides(first: &Entry, later: &Entry, family: Family, lan: &[Network]) -> bool {
    let networks = later.networks.iter();
    let mut networks = networks.filter(|it| Family::of(it.0) == family);
    // Packets within the LAN pass an entry that does not block.
    let is_inside = |network: &Network| {
        let mut lan = lan.iter();
        lan.any(|it| covers(*it, *network) || covers(*network, *it))
    };
    let is_hidden = |network: &Network| {
        let mut first_ones = first.networks.iter();
        (first.blocks || !later.blocks || !is_inside(network))
            && first_ones.any(|it| covers(*it, *network))
    };
    !first.is_everywhere()
        && networks.all(is_hidden)
        && later.domains.iter().all(|it| first.domains.contains(it))
}

fn row(device: &Device<'_>, to: &str, path: Path) -> Row {
    let words = match path.allowed {
        // The state says that it is held.
        Allowed::Held => path.words.strip_prefix("held: ").unwrap_or(&path.words),
        _ => &path.words,
    };
    Row {
        name: device.name.to_owned(),
        address: device.address.map(|it| it.to_string()).unwrap_or_default(),
        mac: device.mac.map(|it| it.to_string()).unwrap_or_default(),
        lan: device.lan.to_owned(),
        to: to.to_owned(),
        path: words.to_owned(),
        allowed: path.allowed,
        by: path.by,
    }
}

fn missing(what: &str) -> String {
    format!(
        "it is switched on, but its rules are missing: packets leave unencrypted; run `millrace {what} refresh`"
    )
}

/// The effects of missing parts, while the others are in place, and else.
const STILL_HELD: &str = "the others still hold packets";
const NOT_HELD: &str = "packets may leave unencrypted";

fn partly(is_closed: bool) -> String {
    let effect = if is_closed { STILL_HELD } else { NOT_HELD };
    format!("some of its rules are missing, {effect}; run `millrace guard refresh`")
}

/// One of these paths; the least protected one gives the state.
fn either(mut paths: Vec<Path>) -> Path {
    let mut all = paths.remove(0);
    for path in paths {
        if path.words != all.words {
            all.words += &format!(", or {}", path.words);
        }
        if path.by != all.by {
            all.by += &format!(", or {}", path.by);
        }
        all.allowed = all.allowed.min(path.allowed);
        all.is_routed |= path.is_routed;
    }
    all
}

/// The path of an exception. `is_part` if the path that is missing stands in another row.
fn exception(paths: [Option<Path>; 2], is_part: bool) -> Option<Path> {
    let only = |path: Path, number: u8| match is_part {
        true => Path {
            words: format!("IPv{number} {}", path.words),
            ..path
        },
        false => path,
    };
    match paths {
        [Some(v4), Some(v6)] => Some(together(v4, v6)),
        [Some(path), None] => Some(only(path, 4)),
        [None, Some(path)] => Some(only(path, 6)),
        [None, None] => None,
    }
}

/// The paths of both families in one line.
fn together(v4: Path, v6: Path) -> Path {
    let is_kept = |it: &Path| it.allowed > Allowed::Through;
    let by = match v4.by == v6.by {
        true => v4.by.clone(),
        false => format!("IPv4: {}; IPv6: {}", v4.by, v6.by),
    };
    let lesser = v4.allowed.min(v6.allowed);
    let (allowed, words) = match (v4, v6) {
        (v4, v6) if v4.words == v6.words => (lesser, v4.words),
        (v4, v6) if !(v4.is_routed && v6.is_routed) => {
            let (path, number) = match v4.is_routed {
                true => (v4, 6),
                false => (v6, 4),
            };
            if path.allowed <= Allowed::Loose {
                return path;
            }
            let words = format!(
                "{}; IPv{number} leaves unencrypted once the router has a route",
                path.words
            );
            (Allowed::Loose, words)
        }
        (v4, v6) if v4.allowed == v6.allowed && is_kept(&v4) => (lesser, v4.words),
        (v4, v6) if is_kept(&v6) && !is_kept(&v4) => {
            (v4.allowed, format!("{}; IPv6 is blocked", v4.words))
        }
        (v4, v6) if is_kept(&v4) && !is_kept(&v6) => {
            (v6.allowed, format!("{}; IPv4 is blocked", v6.words))
        }
        (v4, v6) => (lesser, format!("IPv4 {}; IPv6 {}", v4.words, v6.words)),
    };
    Path {
        allowed,
        words,
        by,
        is_routed: true,
    }
}

fn is_in(lan: &[String], device: &str) -> bool {
    lan.iter().any(|it| it == device)
}

/// Whether the guard counts a device as a tunnel by one of these patterns.
fn counts(patterns: &[String], device: &str) -> bool {
    let mut patterns = patterns.iter().filter_map(|it| Pattern::new(it));
    patterns.any(|it| it.matches(device))
}

#[cfg(test)]
mod tests;
