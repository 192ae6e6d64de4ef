//! One picture of the policy and the guard: for each device of the LAN, the path of its packets, and who decides it.

use std::net::IpAddr;

use config::guard::Pattern;
use config::policy::{Policy, Way as Meant};
use netio::netlink::Family;

use crate::facts::Facts;
use crate::networks::Network;
use crate::policy::{EntryReport, Lease, Present, Senders, present};
use crate::report::idle;
use crate::system::System;
use crate::{SteerError, Way, guard, policy};

/// Addresses on the Internet whose routes are those of the router itself.
const INTERNET: [&str; 2] = ["9.9.9.9", "2620:fe::fe"];

/// Maximum number of rows.
const ROWS_MAX: usize = 512;

/// What happens to packets that leave the LAN. In order: an earlier one decides about a device with several.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Allowed {
    /// They leave through no tunnel.
    Clear,
    /// They leave through a tunnel, and without it once it ends.
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
    /// IPv4 address; empty for all other devices.
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
    Ok(Picture {
        rows: scene.rows(),
        warnings: scene.warnings(policy.is_some(), guard),
        policy: present.report,
    })
}

/// A sender of packets.
struct Device<'a> {
    lease: Option<&'a Lease>,
    lan: &'a str,
}

/// The facts of a picture.
struct Scene<'a> {
    present: &'a Present,
    /// The guard, if it is in force.
    guard: Option<&'a guard::Report>,
    tunnels: &'a [&'a str],
    /// The devices through which the router's own packets leave, of IPv4 and of IPv6.
    own: [Option<String>; 2],
}

/// The path of a family's packets.
type Path = (Allowed, String);

impl Scene<'_> {
    fn rows(&self) -> Vec<Row> {
        let Present {
            leases,
            facts,
            resolved,
            ..
        } = self.present;
        let mut devices: Vec<Device<'_>> = leases
            .iter()
            .map(|lease| Device {
                lan: lan_of(lease.address, facts),
                lease: Some(lease),
            })
            .collect();
        let guarded = self.guard.into_iter().flat_map(|it| &it.parts);
        let mut lans: Vec<&str> = resolved.policy.lan.iter().map(String::as_str).collect();
        lans.extend(guarded.flat_map(|it| &it.lan).map(String::as_str));
        lans.extend(devices.iter().map(|it| it.lan));
        lans.retain(|it| !it.is_empty());
        lans.sort_unstable();
        lans.dedup();
        devices.extend(lans.into_iter().map(|lan| Device { lease: None, lan }));
        let name = |it: &Device<'_>| it.lease.map(|it| it.name.to_ascii_lowercase());
        devices.sort_by_key(|it| (it.lan.to_owned(), it.lease.is_none(), name(it)));
        let rows = devices.iter().flat_map(|it| self.rows_of(it));
        rows.take(ROWS_MAX).collect()
    }

    /// The row of a device, then those of its exceptions.
    fn rows_of(&self, device: &Device<'_>) -> Vec<Row> {
        let Present {
            resolved, report, ..
        } = self.present;
        let is_ours = report.on && resolved.policy.lan.iter().any(|it| it == device.lan);
        let entries = resolved.entries.iter().zip(&resolved.policy.entries);
        let mut entries = entries
            .zip(&report.entries)
            .filter(|((entry, _), _)| is_ours && matches(entry.who.as_ref(), device));
        let mut exceptions = Vec::new();
        let whole = loop {
            match entries.next() {
                None => break self.row(device, "", self.without(device.lan), None),
                Some(((entry, meant), report)) => {
                    let paths = self.by_entry(&meant.way, report, device.lan);
                    let by = Some(report.name.as_str());
                    if entry.is_everywhere() {
                        break self.row(device, "", paths, by);
                    }
                    // What holds for the whole LAN stands only in its last row.
                    if entry.who.is_some() || device.lease.is_none() {
                        exceptions.push(self.row(device, &report.to, paths, by));
                    }
                }
            }
        };
        exceptions.insert(0, whole);
        exceptions
    }

    fn row(
        &self,
        device: &Device<'_>,
        to: &str,
        [v4, v6]: [Option<Path>; 2],
        entry: Option<&str>,
    ) -> Row {
        let is_guarded = self.part(device.lan).is_some();
        let by = match entry {
            Some(name) => format!("policy entry {name}"),
            None if is_guarded => "the guard".to_owned(),
            None => "the router's own routes".to_owned(),
        };
        let (allowed, path) = together(v4, v6);
        let lease = device.lease;
        Row {
            name: lease.map(|it| it.name.clone()).unwrap_or_default(),
            address: lease.map(|it| it.address.to_string()).unwrap_or_default(),
            mac: lease.map(|it| it.mac.to_string()).unwrap_or_default(),
            lan: device.lan.to_owned(),
            to: to.to_owned(),
            // The state says that it is held.
            path: path.strip_prefix("held: ").unwrap_or(&path).to_owned(),
            allowed,
            by,
        }
    }

    /// The group of the guard that holds packets from this device.
    fn part(&self, lan: &str) -> Option<&guard::PartReport> {
        let mut parts = self.guard?.parts.iter();
        parts.find(|it| it.lan.iter().any(|it| it == lan))
    }

    /// The paths by an entry of the policy, and by the guard behind it.
    fn by_entry(&self, way: &Meant, entry: &EntryReport, lan: &str) -> [Option<Path>; 2] {
        let mut without = self.without(lan);
        let part = self.part(lan);
        [0, 1].map(|family| {
            let own = (entry.allowed[family], entry.ways[family].clone());
            Some(match (way, part) {
                (Meant::Around, Some(_)) => {
                    let words = "around tunnels, which the guard blocks";
                    (Allowed::Blocked, words.to_owned())
                }
                (Meant::Through { .. }, _) if own.0 == Allowed::Clear => {
                    // The tunnel is down, and the entry has no effect.
                    without[family].take()?
                }
                (Meant::Through { device, .. }, Some(part))
                    if own.0 == Allowed::Through && !counts(&part.tunnels, device) =>
                {
                    let words = format!("through {device}, which the guard does not name");
                    (Allowed::Blocked, words)
                }
                _ => own,
            })
        })
    }

    /// The paths without an entry of the policy: those of the guard, or of the router.
    fn without(&self, lan: &str) -> [Option<Path>; 2] {
        if let Some(part) = self.part(lan) {
            return part.ways.each_ref().map(|way| {
                Some(match way {
                    Way::Through { device, .. } => (Allowed::Through, format!("through {device}")),
                    Way::Held(why) => (Allowed::Held, format!("held: {why}")),
                })
            });
        }
        self.own.each_ref().map(|device| {
            let device = device.as_deref()?;
            Some(match self.tunnels.contains(&device) {
                true => (
                    Allowed::Loose,
                    format!("through {device} while it is up, then without it"),
                ),
                false => (Allowed::Clear, format!("through {device}, unencrypted")),
            })
        })
    }

    fn warnings(&self, has_file: bool, guard: Option<&guard::Report>) -> Vec<String> {
        let Present {
            resolved,
            facts,
            report,
            ..
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
            (true, _) if !report.is_whole() => warn("policy", partly("policy", report.is_closed())),
            _ => {}
        }
        if report.on || report.asked {
            for words in idle(&resolved.policy.lan, facts) {
                warn("policy", words);
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
        }
        if let Some(guard) = guard {
            match guard.state {
                guard::State::Off if guard.asked => warn("guard", missing("guard")),
                guard::State::Off => warn(
                    "guard",
                    "settings ask for it, but it is off: its devices may leave unencrypted; run `millrace guard on`"
                        .to_owned(),
                ),
                _ if !guard.is_whole() => warn("guard", partly("guard", guard.is_closed())),
                _ => {}
            }
            for words in &guard.idle {
                warn("guard", words.clone());
            }
        }
        all.dedup();
        all
    }
}

fn missing(what: &str) -> String {
    format!(
        "it is switched on, but its rules are missing: packets leave unencrypted; run `millrace {what} refresh`"
    )
}

fn partly(what: &str, is_closed: bool) -> String {
    let effect = match is_closed {
        true => "the others still hold packets",
        false => "packets may leave unencrypted",
    };
    format!("some of its rules are missing, {effect}; run `millrace {what} refresh`")
}

/// The paths of both families in one line.
fn together(v4: Option<Path>, v6: Option<Path>) -> Path {
    let is_kept = |it: &Path| it.0 > Allowed::Through;
    match (v4, v6) {
        (None, None) => (
            Allowed::Clear,
            "no route now; unencrypted once there is one".to_owned(),
        ),
        (Some(path), None) | (None, Some(path)) => path,
        (Some(v4), Some(v6)) if v4 == v6 || is_kept(&v4) && is_kept(&v6) => v4,
        (Some(v4), Some(v6)) if is_kept(&v6) && !is_kept(&v4) => {
            (v4.0, format!("{}; IPv6 is blocked", v4.1))
        }
        (Some(v4), Some(v6)) if is_kept(&v4) && !is_kept(&v6) => {
            (v6.0, format!("{}; IPv4 is blocked", v6.1))
        }
        (Some(v4), Some(v6)) => (v4.0.min(v6.0), format!("IPv4 {}; IPv6 {}", v4.1, v6.1)),
    }
}

/// Whether the guard counts a device as a tunnel by one of these patterns.
fn counts(patterns: &[String], device: &str) -> bool {
    let mut patterns = patterns.iter().filter_map(|it| Pattern::new(it));
    patterns.any(|it| it.matches(device))
}

/// The device with the network of an address; empty if there is none.
fn lan_of(address: IpAddr, facts: &Facts) -> &str {
    let mut own = facts.addresses.iter();
    let found = own.find(|it| within(address, (it.ip, it.prefix)));
    let link = found.and_then(|it| facts.link(it.index));
    link.map_or("", |it| it.name.as_str())
}

fn within(address: IpAddr, (network, prefix): Network) -> bool {
    let number = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()) << 96,
        IpAddr::V6(ip) => ip.to_bits(),
    };
    let differ = number(address) ^ number(network);
    Family::of(address) == Family::of(network) && differ.leading_zeros() >= u32::from(prefix)
}

fn matches(who: Option<&Senders>, device: &Device<'_>) -> bool {
    let Some(who) = who else { return true };
    let is_named = |it: &Lease| {
        who.macs.contains(&it.mac) || who.networks.iter().any(|own| within(it.address, *own))
    };
    who.devices.iter().any(|it| it == device.lan) || device.lease.is_some_and(is_named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{self, facts, ip, link, made, resolved, route, tunnel};
    use config::policy::Mac;
    use netio::netlink::Rule;

    /// A router with four leases, whose policy is in force, as one line for each row and each warning.
    fn seen(facts: Facts, is_guarded: bool, own: [Option<&str>; 2]) -> (Vec<String>, Vec<String>) {
        let lease = |last, name: &str, address: &str| Lease {
            mac: Mac([2, 0, 0x5e, 0x10, 0, last]),
            address: ip(address),
            name: name.to_owned(),
        };
        let leases = vec![
            lease(9, "Laptop", "192.168.1.9"),
            lease(2, "television", "192.168.1.7"),
            lease(3, "phone", "192.168.1.8"),
            lease(5, "", "192.168.2.5"),
        ];
        let guard = guard::Report::new(Some(&fixture::guard()), true, &facts, None);
        let guard = guard::Report {
            state: guard::State::Held,
            ..guard
        };
        let present = Present::new(resolved(), true, true, facts, leases);
        let scene = Scene {
            present: &present,
            guard: is_guarded.then_some(&guard),
            tunnels: &["wg0"],
            own: own.map(|it| it.map(str::to_owned)),
        };
        let line = |it: Row| {
            let who = [it.name, it.lan, it.to].join("/");
            format!("{who} {}: {} ({})", it.allowed.name(), it.path, it.by)
        };
        let rows = scene.rows().into_iter().map(line).collect();
        (rows, scene.warnings(true, scene.guard))
    }

    /// The facts of a policy that is in force.
    fn on(mut facts: Facts) -> Facts {
        facts.chains.found = made(&policy::table::wanted(&resolved(), &facts));
        facts
    }

    const CLEAR: &str = "clear: through wan, unencrypted (the router's own routes)";
    const SITES: &str = "example.org, www.example.org, 203.0.113.0/24, 2001:db8:f::/48";

    #[test]
    fn the_first_entry_decides_then_the_guard_then_the_router() {
        let around = "clear: around tunnels (policy entry bank)";
        let blocked = "blocked: blocked (policy entry guests)";
        let (rows, warnings) = seen(on(facts()), false, [Some("wan"), None]);
        let phone =
            format!("phone/br-lan/{SITES} clear: through wan, unencrypted (policy entry phone)");
        assert_eq!(
            rows,
            [
                format!("/br-guest/ {CLEAR}"),
                format!("/br-guest/192.168.1.0/24 {blocked}"),
                format!("/br-guest/ {CLEAR}"),
                format!("/br-guest/bank.example {around}"),
                format!("/br-guest/192.168.1.0/24 {blocked}"),
                format!("Laptop/br-lan/ {CLEAR}"),
                format!("phone/br-lan/ {CLEAR}"),
                phone.clone(),
                "television/br-lan/ held: there is no device mr-us (policy entry television)"
                    .to_owned(),
                format!("/br-lan/ {CLEAR}"),
                format!("/br-lan/bank.example {around}"),
            ]
        );
        let down = "policy entry phone: as without the entry: there is no device mr-nl";
        assert!(warnings.iter().any(|it| it == down), "{warnings:?}");

        let mut with = facts();
        with.links.push(link(7, "mr-us", true));
        tunnel(&mut with, 7, "10.8.0.2");
        with.tables.push(route("0.0.0.0", 0, 7, 7701));
        let (rows, _) = seen(on(with.clone()), true, [Some("wan"), None]);
        let held = "held: mr-us is up, but table 77 has no default route";
        let has = |start: &str| {
            assert!(
                rows.iter().any(|it| it.starts_with(start)),
                "{start}: {rows:#?}"
            );
        };
        has("television/br-lan/ through: through mr-us; IPv6 is blocked (policy entry television)");
        has(&format!("Laptop/br-lan/ {held}"));
        has(
            "/br-lan/bank.example blocked: around tunnels, which the guard blocks (policy entry bank)",
        );
        has(&format!("phone/br-lan/{SITES} {held}"));
        // The router's own tunnel takes all traffic, and nothing holds it.
        let (rows, _) = seen(on(with), false, [Some("wg0"), None]);
        assert_eq!(
            rows[5],
            "Laptop/br-lan/ loose: through wg0 while it is up, then without it (the router's own routes)"
        );
    }

    #[test]
    fn what_is_not_in_force_is_told() {
        let (rows, warnings) = seen(facts(), false, [None; 2]);
        let row = "television/br-lan/ clear: no route now; unencrypted once there is one (the router's own routes)";
        assert!(rows.iter().any(|it| it == row), "{rows:#?}");
        assert_eq!(warnings[0], format!("policy: {}", missing("policy")));
        let mut facts = on(facts());
        facts.links.retain(|it| it.name != "br-guest");
        facts.chains.found.clear();
        facts.rules[0].as_mut().unwrap().push(Rule {
            priority: Some(guard::rules::POLICY[0]),
            fwmark: Some(1),
            ..Rule::new(Family::V4, 7701)
        });
        let (_, warnings) = seen(facts, true, [None; 2]);
        for (what, words) in [
            ("policy", "packets may leave unencrypted"),
            ("policy", "there is no device br-guest"),
            ("guard", "packets may leave unencrypted"),
            ("guard", "there is no device br-guest"),
        ] {
            let has = |it: &String| it.starts_with(what) && it.contains(words);
            assert!(warnings.iter().any(has), "{what}, {words}: {warnings:#?}");
        }
    }

    #[test]
    fn networks_hold_their_addresses_and_no_others() {
        for (address, network, is) in [
            ("192.168.1.7", ("192.168.1.0", 24), true),
            ("192.168.2.7", ("192.168.1.0", 24), false),
            ("192.168.1.7", ("0.0.0.0", 0), true),
            ("192.168.1.7", ("192.168.1.7", 32), true),
            ("::1", ("0.0.0.0", 0), false),
            ("fd00::7", ("fd00::", 64), true),
        ] {
            assert_eq!(
                within(ip(address), (ip(network.0), network.1)),
                is,
                "{address}"
            );
        }
    }
}
