//! Entries that name devices by addresses of one family: packets of the other family bypass them.
//!
//! The policy does not guess the other addresses. A neighbour or a lease is known only after its first packets have
//! left, and any device can claim another's address. So the report names these packets, and the remedy.

use config::policy::{Policy, Way, Who};
use netio::netlink::{Family, TABLE_MAIN};
use std::net::IpAddr;

use crate::facts::Facts;
use crate::networks::Network;
use crate::policy::leases;
use crate::policy::others::guarded_devices;
use crate::policy::resolved::{Entry, Resolved};
use crate::report::few;

/// The networks in an entry's `who` whose devices have packets of `family` that bypass the entry. Empty if the entry
/// names networks of this family too, or no targets of it.
pub(super) fn missed(
    entry: &Entry,
    family: Family,
    resolved: &Resolved,
    facts: &Facts,
) -> Vec<Network> {
    let Some(who) = &entry.who else {
        return Vec::new();
    };
    let mut networks = who.networks.iter();
    if networks.any(|it| Family::of(it.0) == family) || !entry.aims(family) {
        return Vec::new();
    }
    let devices = facts.networks(&who.devices);
    // The entry may name the same device in another way, which covers both families.
    let is_covered = |network: &&Network| {
        let mut near = resolved.near.iter();
        is_host(network) && near.any(|it| it.1 == network.0 && who.macs.contains(&it.0))
            || devices
                .iter()
                .any(|it| it.1 <= network.1 && host::covers(it.0, it.1, network.0))
    };
    let networks = who.networks.iter().filter(|it| !is_covered(it));
    networks.copied().collect()
}

/// Whether packets of a family that bypass an entry could leave: the LAN has the family, and neither the guard nor
/// another entry holds all its packets.
pub(super) fn can_leave(family: Family, resolved: &Resolved, facts: &Facts) -> bool {
    let policy = &resolved.policy;
    let guarded = guarded_devices(policy, facts);
    let has_route = !facts.defaults(TABLE_MAIN, family).is_empty();
    // Addresses of other kinds need a route that translates them.
    let is_public = |it: &Network| match it.0 {
        IpAddr::V4(_) => true,
        IpAddr::V6(ip) => ip.segments()[0] & 0xe000 == 0x2000,
    };
    let decides = |entry: &&Entry, device: &String| {
        let is_of = |who: &crate::policy::Senders| who.devices.contains(device);
        entry.is_everywhere() && entry.who.as_ref().is_none_or(is_of)
    };
    policy.lan.iter().any(|device| {
        let networks = facts.networks(&[device]);
        let mut networks = networks.iter().filter(|it| Family::of(it.0) == family);
        let mut entries = resolved.entries.iter();
        networks.any(|it| has_route || is_public(it))
            && !guarded.contains(device)
            && !entries
                .find(|it| decides(it, device))
                .is_some_and(|it| it.holds)
    })
}

/// A sentence about packets that bypass an entry, and the remedy.
pub(super) fn bypass(networks: &[Network], policy: &Policy, facts: &Facts) -> String {
    let lan = policy.lan.iter().find(|device| {
        let own = facts.networks(&[device]);
        own.iter().any(|it| networks.contains(it))
    });
    let [named, other] = numbers(networks);
    format!(
        "IPv{other} packets of {} bypass this entry, because it names IPv{named} addresses; name {} instead",
        listed(networks),
        instead(networks, policy, lan)
    )
}

/// A sentence about the packets that a new entry would not cover, although it holds packets; `None` if there are none.
/// `policy` tells the file of leases.
#[must_use]
pub fn one_family(entry: &config::policy::Entry, policy: &Policy) -> Option<String> {
    let network = |it: &Who| match it {
        Who::Network(it) => Some((it.addr(), it.prefix())),
        _ => None,
    };
    let networks: Vec<Network> = entry.who.iter().filter_map(network).collect();
    let (first, rest) = networks.split_first()?;
    let is_other = |it: &Network| Family::of(it.0) != Family::of(first.0);
    if entry.way == Way::Around || rest.iter().any(is_other) {
        return None;
    }
    let [named, other] = numbers(&networks);
    Some(format!(
        "This entry does not cover IPv{other} packets of {}, because it names IPv{named} addresses; name {} instead.",
        listed(&networks),
        instead(&networks, policy, None)
    ))
}

/// The numbers of the networks' family and of the other one.
fn numbers(networks: &[Network]) -> [u8; 2] {
    match networks.first().is_some_and(|it| it.0.is_ipv6()) {
        true => [6, 4],
        false => [4, 6],
    }
}

fn is_host(network: &Network) -> bool {
    network.1 == Family::of(network.0).bits()
}

fn listed(networks: &[Network]) -> String {
    let words = networks.iter().map(|it| match is_host(it) {
        true => it.0.to_string(),
        false => format!("{}/{}", it.0, it.1),
    });
    few(&words.collect::<Vec<_>>())
}

/// Names of the same devices that cover both families. `lan` is the device of the LAN that has one of these networks.
fn instead(networks: &[Network], policy: &Policy, lan: Option<&String>) -> String {
    let by_mac = "hardware addresses or names of leases";
    if !networks.iter().all(is_host) {
        let device = lan.or_else(|| policy.lan.first());
        let device = device.map_or_else(|| "the device of the LAN".to_owned(), Clone::clone);
        return format!("{device}, {by_mac}");
    }
    let leases = leases::addresses(policy);
    let mac = |it: &Network| leases.iter().find(|lease| lease.1 == it.0);
    let macs: Option<Vec<String>> = networks
        .iter()
        .map(|it| Some(mac(it)?.0.to_string()))
        .collect();
    macs.map_or_else(|| by_mac.to_owned(), |it| few(&it))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{facts, link, of, route, tunnel};
    use crate::policy::report::Report;
    use config::policy::Mac;
    use std::path::Path;

    /// A router whose tunnel has both families.
    fn dual() -> Facts {
        let mut facts = facts();
        facts.links.push(link(7, "mr-us", true));
        for (own, default) in [("10.8.0.2", "0.0.0.0"), ("fd08::2", "::")] {
            tunnel(&mut facts, 7, own);
            facts.tables.push(route(default, 0, 7, 7701));
        }
        facts
    }

    /// The report of a policy that is in force.
    fn report(mut resolved: Resolved, mut facts: Facts) -> Report {
        resolved.near = vec![(
            Mac([2, 0, 0x5e, 0x10, 0, 1]),
            "192.168.1.50".parse().unwrap(),
        )];
        facts.chains.found = crate::fixture::made(&crate::policy::table::wanted(&resolved, &facts));
        let mut plan = crate::policy::plan(&resolved, &facts, String::new);
        // Rules and routes are in place.
        (plan.add, plan.delete, plan.set) = Default::default();
        Report::new(&resolved, true, true, &facts, &plan)
    }

    /// Each form of `who`, and the families that an entry for it covers.
    const FORMS: [(&str, [bool; 2]); 11] = [
        ("\"02:00:5e:10:00:01\"", [true; 2]),
        ("\"television\"", [true; 2]),
        ("\"br-lan\"", [true; 2]),
        ("\"192.168.1.50\"", [true, false]),
        ("\"192.168.1.0/24\"", [true, false]),
        ("\"2001:db8:1:1::50\"", [false, true]),
        ("\"2001:db8:1:1::/64\"", [false, true]),
        ("[\"192.168.1.0/24\", \"2001:db8:1:1::/64\"]", [true; 2]),
        ("[\"192.168.1.0/24\", \"br-lan\"]", [true; 2]),
        // The hardware address has this IPv4 address.
        ("[\"192.168.1.50\", \"02:00:5e:10:00:01\"]", [true; 2]),
        ("[\"192.168.1.60\", \"02:00:5e:10:00:01\"]", [true, false]),
    ];

    #[test]
    fn no_family_that_an_entry_misses_is_reported_as_held() {
        for (who, covered) in FORMS {
            for (way, words) in [
                ("through = \"mr-us\"", "through mr-us"),
                ("way = \"block\"", "blocked"),
            ] {
                let text = format!("lan = [\"br-lan\"]\n[[entry]]\nwho = {who}\n{way}\n");
                let report = report(of(&text), dual());
                let entry = &report.entries[0];
                let case = format!("{who} {way}: {entry:?}");
                let is_all = covered == [true; 2];
                assert_eq!(report.is_whole(), is_all, "{case}");
                let lacks = report.lacks().unwrap_or_default();
                assert_eq!(lacks.contains("packets bypass entry 1"), !is_all, "{case}");
                for (family, number) in [(0, 4), (1, 6)] {
                    let gap = format!("IPv{number} packets of");
                    assert_eq!(entry.gap.contains(&gap), !covered[family], "{case}");
                    // An entry that names further devices covers their packets.
                    let is_mixed = who.contains("192.168.1.60");
                    let way = &entry.ways[family];
                    assert_eq!(way == words, covered[family] || is_mixed, "{case}");
                    let is_told = way.contains("not covered");
                    assert_eq!(is_told, !covered[family] && !is_mixed, "{case}");
                }
                let policy = Policy::from_toml(&text, Path::new("policy.toml")).unwrap();
                let said = one_family(&policy.entries[0], &policy);
                let is_plain = !who.starts_with('[');
                assert!(!is_plain || said.is_some() != is_all, "{case}: {said:?}");
            }
        }
    }

    #[test]
    fn packets_that_cannot_leave_are_no_gap() {
        let own = "[[entry]]\nwho = \"192.168.1.50\"\nway = \"block\"\n";
        let entry = |rest: &str| format!("[[entry]]\n{rest}\n");
        let all = entry("name = \"all\"\nwho = \"br-lan\"\nthrough = \"mr-us\"");
        let around = entry("name = \"around\"\nwho = \"br-lan\"\nway = \"around\"");
        let loose = entry("who = \"192.168.1.50\"\nthrough = \"mr-us\"\ndown = \"around\"");
        let to = |to: &str| format!("{own}to = \"{to}\"\n");
        let mut inner = dual();
        for it in &mut inner.addresses {
            if it.ip == crate::fixture::ip("2001:db8:1:1::1") {
                it.ip = crate::fixture::ip("fd00:1::1");
            }
        }
        let mut translated = inner.clone();
        translated.main.push(route("::", 0, 3, TABLE_MAIN));
        for (text, facts, is_gap) in [
            (own.to_owned(), dual(), true),
            (own.to_owned(), inner, false),
            (own.to_owned(), translated, true),
            (format!("{own}{all}"), dual(), false),
            (format!("{own}{around}{all}"), dual(), true),
            (loose, dual(), false),
            (to("203.0.113.0/24"), dual(), false),
            (to("2001:db8:f::/48"), dual(), true),
            (to("example.org"), dual(), true),
        ] {
            let report = report(of(&format!("lan = [\"br-lan\"]\n{text}")), facts);
            let gap = &report.entries[0].gap;
            assert_eq!(gap.contains("bypass this entry"), is_gap, "{text}: {gap}");
        }
    }

    /// The lease of the device gives the remedy.
    #[test]
    fn the_remedy_names_the_device() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("leases");
        std::fs::write(&path, "1 02:00:5e:10:00:07 192.168.1.50 tv *\n").unwrap();
        for (who, wanted) in [
            ("192.168.1.50", "name 02:00:5e:10:00:07 instead"),
            ("192.168.1.51", "name hardware addresses or names of leases"),
            ("192.168.1.0/24", "name br-lan, hardware addresses"),
        ] {
            let text = format!(
                "leases = {path:?}\nlan = [\"br-lan\"]\n[[entry]]\nwho = \"{who}\"\nway = \"block\"\n"
            );
            let said = report(of(&text), dual()).entries[0].gap.clone();
            assert!(said.contains(wanted), "{said}");
            let policy = Policy::from_toml(&text, Path::new("policy.toml")).unwrap();
            let said = one_family(&policy.entries[0], &policy).unwrap();
            assert!(said.contains(wanted), "{said}");
        }
    }
}
