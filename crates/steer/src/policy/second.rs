//! The second layer: routing rules by known addresses of devices, for packets without a mark.
//!
//! The packet filter sets the marks. When another program has flushed it, packets of blocked devices have no mark, and
//! would take the router's own routes. These rules lead them into their tunnel's table, or to "unreachable". Leases, the
//! kernel's list of neighbours and the filter's sets of senders tell the addresses of a device. Packets that the filter
//! has marked, answers among them, match none of these rules.
//!
//! Entries for names have rules for those addresses that the sets of the packet filter had last. [`gaps`] describes
//! packets that the rules do not hold.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use config::policy::Mac;
use netio::netlink::{DeviceName, Family, Neighbour};

use crate::facts::{FAMILIES, Facts};
use crate::networks::Network;
use crate::policy::resolved::{Entry, Resolved};
use crate::report::few;

/// Maximum number of addresses per hardware address: an IPv6 host makes a new one every day.
const ADDRESSES_MAX: usize = 8;

/// Maximum number of blocking descriptions per family, and of known addresses per family; each takes two rules.
const HELD_MAX: usize = 256;

/// Maximum number of these that come from addresses of names: the kernel compares each packet without a mark with them.
const NAMED_MAX: usize = 64;

/// Age after which an address counts as idle. The kernel keeps it in its list of neighbours for days.
const IDLE: Duration = Duration::from_secs(600);

/// Hardware addresses and their IP addresses; the newest of each comes last.
pub(crate) type Near = Vec<(Mac, IpAddr)>;

/// A description of packets to block: every given part must match.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Held {
    pub(super) iif: Option<DeviceName>,
    pub(super) from: Option<Network>,
    pub(super) to: Option<Network>,
    /// The tunnel's table; `None` for blocked packets.
    pub(super) table: Option<u32>,
}

/// The addresses of these hardware addresses: the known ones, and the present ones of leases and neighbours, in use or
/// idle. An address belongs to the device that has it now.
///
/// When there are too many, addresses in use are kept first, and among these the known ones. So a device that takes
/// many addresses cannot push out its own.
pub(super) fn near(macs: &[Mac], before: &Near, used: &Near, idle: &Near) -> Near {
    let is_gone = |it: &&(Mac, IpAddr)| !used.iter().chain(idle).any(|other| other.1 == it.1);
    let of = |list: &'_ Near, known| {
        let own = list.iter().filter(|it| before.contains(it) == known);
        own.copied().collect::<Near>()
    };
    let gone: Near = before.iter().filter(is_gone).copied().collect();
    let all = [
        gone,
        of(idle, false),
        of(idle, true),
        of(used, false),
        of(used, true),
    ];
    // The last addresses are the most important.
    let mut kept = Near::new();
    for it in all.concat().into_iter().rev() {
        let own = kept.iter().filter(|other| other.0 == it.0).count();
        let same = |other: &&(Mac, IpAddr)| other.1.is_ipv4() == it.1.is_ipv4();
        let fits = own < ADDRESSES_MAX && kept.iter().filter(same).count() < HELD_MAX;
        if fits && macs.contains(&it.0) && is_fit(&it.1) && !kept.contains(&it) {
            kept.push(it);
        }
    }
    kept.reverse();
    let is_same = kept.len() == before.len() && kept.iter().all(|it| before.contains(it));
    if is_same { before.clone() } else { kept }
}

/// Whether a router forwards packets from and to this address.
pub(super) fn is_fit(ip: &IpAddr) -> bool {
    let is_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !(is_local || ip.is_loopback() || ip.is_multicast() || ip.is_unspecified())
}

/// Packets of each family to block, and for each entry the number of descriptions beyond the limits; found when they are
/// first asked for, as a policy may have a hundred thousand pairs of sender and address. A copy is empty.
#[derive(Debug, Default)]
pub(crate) struct Decided(OnceCell<[(Vec<Held>, Vec<usize>); 2]>);

impl Clone for Decided {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Decided {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Splits the neighbours into those in use and those that are idle. Neighbours behind uplinks do not count; those
/// behind any other device do, as a LAN device may have been renamed.
pub(super) fn of_neighbours(list: &[Neighbour]) -> [Near; 2] {
    let of = |it: &Neighbour| {
        let mac: [u8; 6] = it.mac.as_slice().try_into().ok()?;
        Some((Mac(mac), it.ip))
    };
    let (used, idle): (Vec<&Neighbour>, Vec<&Neighbour>) =
        list.iter().partition(|it| it.idle < IDLE);
    [used, idle].map(|list| list.into_iter().filter_map(of).collect())
}

/// Packets of a family to block. If several entries match the same packets, the first decides.
pub(super) fn held(resolved: &Resolved, family: Family) -> Vec<Held> {
    decided(resolved, family).0.clone()
}

/// Describes for each entry the packets that only the packet filter holds; empty if there are none.
pub(super) fn gaps(resolved: &Resolved, facts: &Facts) -> Vec<String> {
    let left = FAMILIES.map(|family| &decided(resolved, family).1);
    let networks = facts.networks(&resolved.policy.lan);
    let one = |(place, entry): (usize, &Entry)| {
        if !entry.holds {
            return String::new();
        }
        let mut gaps = Vec::new();
        let macs: Vec<Mac> = entry.who.iter().flat_map(|it| it.macs.clone()).collect();
        let names = entry.domains.iter();
        let addresses: Vec<IpAddr> = names.flat_map(|it| resolved.addresses.of(it)).collect();
        for (family, number) in FAMILIES.into_iter().zip([4, 6]) {
            let of_family = |it: &Network| Family::of(it.0) == family;
            let is_used = networks.iter().any(of_family)
                && (entry.is_everywhere()
                    || entry.networks.iter().any(of_family)
                    || addresses.iter().any(|it| Family::of(*it) == family));
            let is_known = |mac: &Mac| {
                let mut near = resolved.near.iter();
                near.any(|it| it.0 == *mac && Family::of(it.1) == family)
            };
            let unknown = macs.iter().filter(|it| is_used && !is_known(it));
            let unknown: Vec<String> = unknown.map(ToString::to_string).collect();
            if !unknown.is_empty() {
                let devices = few(&unknown);
                gaps.push(format!(
                    "packets of {devices} (no IPv{number} address is known)"
                ));
            }
        }
        let left: usize = left.iter().map(|it| it[place]).sum();
        if left > 0 {
            gaps.push(format!(
                "{left} pairs of sender and target (of each family, at most {HELD_MAX} have rules, and {NAMED_MAX} of \
                 names)"
            ));
        }
        match gaps.is_empty() {
            true => String::new(),
            false => format!(
                "while another program has flushed the packet filter, this entry does not block {}",
                gaps.join("; ")
            ),
        }
    };
    resolved.entries.iter().enumerate().map(one).collect()
}

/// Packets of a family to block, and for each entry the number of descriptions beyond the limits.
fn decided(resolved: &Resolved, family: Family) -> &(Vec<Held>, Vec<usize>) {
    let decide = || FAMILIES.map(|family| decide(resolved, family));
    &resolved.decided.0.get_or_init(decide)[usize::from(family == Family::V6)]
}

fn decide(resolved: &Resolved, family: Family) -> (Vec<Held>, Vec<usize>) {
    // Descriptions by addresses of names leave room for all others.
    let others = decided_with(resolved, family, None).0.len();
    decided_with(resolved, family, Some(NAMED_MAX.min(HELD_MAX - others)))
}

/// [`decide`], with at most `most_named` descriptions by addresses of names; `None` leaves these addresses out.
fn decided_with(
    resolved: &Resolved,
    family: Family,
    most_named: Option<usize>,
) -> (Vec<Held>, Vec<usize>) {
    let mut kept = Vec::new();
    let mut left = vec![0; resolved.entries.len()];
    let (mut named, mut let_go) = (0, 0);
    // A set, as a policy may have a hundred thousand pairs of sender and address.
    let mut known = BTreeSet::new();
    for (place, entry) in resolved.entries.iter().enumerate() {
        let of_family = |it: &Network| Family::of(it.0) == family;
        let own = entry.networks.iter().copied().filter(of_family);
        let mut targets: Vec<(Option<Network>, bool)> = own.map(|it| (Some(it), false)).collect();
        // The newest addresses first.
        let addresses = entry.domains.iter().flat_map(|it| {
            let all: Vec<IpAddr> = resolved.addresses.of(it).collect();
            all.into_iter().rev().map(|ip| (ip, family.bits()))
        });
        if most_named.is_some() {
            targets.extend(addresses.filter(of_family).map(|it| (Some(it), true)));
        }
        if entry.is_everywhere() {
            targets.push((None, false));
        }
        for (iif, from) in sources(entry, resolved, family) {
            for (to, is_named) in &targets {
                let packets = (iif, from, *to);
                let count = if entry.holds { kept.len() } else { let_go };
                let is_full = count >= HELD_MAX || *is_named && Some(named) >= most_named;
                match (entry.holds, is_full) {
                    (false, true) => {}
                    _ if known.contains(&packets) => {}
                    (true, true) => left[place] += 1,
                    // An entry that lets packets leave in clear uses up no descriptions of those that block.
                    (holds, false) => {
                        known.insert(packets);
                        let_go += usize::from(!holds);
                        named += usize::from(holds && *is_named);
                        kept.extend(holds.then_some(Held {
                            iif,
                            from,
                            to: *to,
                            table: entry.table,
                        }));
                    }
                }
            }
        }
    }
    (kept, left)
}

/// The devices whose packets are all blocked.
pub(super) fn devices(resolved: &Resolved) -> Vec<String> {
    let held = held(resolved, Family::V4).into_iter();
    let whole = held.filter(|it| it.from.is_none() && it.to.is_none());
    whole.filter_map(|it| Some(it.iif?.to_string())).collect()
}

/// Senders of an entry's packets: by device, by network, or both.
fn sources(
    entry: &Entry,
    resolved: &Resolved,
    family: Family,
) -> Vec<(Option<DeviceName>, Option<Network>)> {
    let devices = |names: &[String]| {
        let names = names.iter().filter_map(|it| DeviceName::new(it));
        names.collect::<Vec<_>>()
    };
    let lan = devices(&resolved.policy.lan);
    let Some(who) = &entry.who else {
        return lan.into_iter().map(|it| (Some(it), None)).collect();
    };
    let mut all = Vec::new();
    for (mac, ip) in resolved.near.iter().filter(|it| Family::of(it.1) == family) {
        if who.macs.contains(mac) {
            // The rule names no device: the packet may come through a port that was taken out of its bridge.
            all.push((None, Some((*ip, family.bits()))));
        }
    }
    for network in who.networks.iter().filter(|it| Family::of(it.0) == family) {
        // The router has an address there too, so the rules match only packets that come in.
        all.extend(lan.iter().map(|it| (Some(*it), Some(*network))));
    }
    all.extend(devices(&who.devices).into_iter().map(|it| (Some(it), None)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{facts, ip, of, resolved};
    use crate::policy::addresses::Addresses;

    fn mac(last: u8) -> Mac {
        Mac([2, 0, 0x5e, 0x10, 0, last])
    }

    #[test]
    fn addresses_stay_known_until_another_device_has_them() {
        let macs = [mac(1), mac(2)];
        let first = near(
            &macs,
            &Near::new(),
            &vec![(mac(1), ip("192.168.1.7")), (mac(9), ip("192.168.1.9"))],
            &Near::new(),
        );
        assert_eq!(first, [(mac(1), ip("192.168.1.7"))]);
        let none = Near::new();
        // A sleeping device is not among the neighbours.
        assert_eq!(near(&macs, &first, &none, &none), first);
        let moved = vec![(mac(9), ip("192.168.1.7"))];
        assert!(near(&macs, &first, &moved, &none).is_empty());
        assert!(near(&macs, &first, &vec![(mac(1), ip("fe80::1"))], &none) == first);
    }

    #[test]
    fn of_too_many_addresses_those_in_use_are_kept_and_stay() {
        let none = Near::new();
        let of = |last: std::ops::Range<u32>| -> Near {
            last.map(|it| (mac(2), ip(&format!("2001:db8:1:1::{it:x}"))))
                .collect()
        };
        let macs = [mac(1), mac(2)];
        let first = vec![(mac(1), ip("192.168.1.7"))];
        let kept = near(&macs, &first, &of(0..99), &none);
        assert_eq!((kept.len(), kept[0]), (1 + ADDRESSES_MAX, first[0]));
        // The kernel's order does not matter.
        let mut other = of(0..99);
        other.reverse();
        for list in [of(0..99), other] {
            assert_eq!(near(&macs, &kept, &list, &none), kept);
            assert_eq!(near(&macs, &kept, &none, &list), kept);
        }
        // A new address replaces an idle one.
        let new = of(200..201);
        let now = near(&macs, &kept, &new, &of(0..99));
        assert!(now.contains(&new[0]) && now.len() == kept.len());
        assert_eq!(near(&macs, &now, &new, &of(0..99)), now);
    }

    #[test]
    fn each_entry_says_what_only_the_packet_filter_holds() {
        let (mut resolved, facts) = (resolved(), facts());
        resolved.near = vec![(mac(1), ip("192.168.1.7")), (mac(1), ip("2001:db8:1:1::7"))];
        let told = gaps(&resolved, &facts);
        let television = "does not block packets of 02:00:5e:10:00:02 (no IPv4 address is known); packets of \
                          02:00:5e:10:00:02 (no IPv6 address is known)";
        assert!(told[0].ends_with(television), "{told:?}");
        // Entries that hold no packets, and an entry by device, have no gap.
        assert!(told[1..].iter().all(String::is_empty), "{told:?}");
        // Decided once, until something is learned.
        let decided = || std::ptr::from_ref(decided(&resolved, Family::V4));
        assert_eq!(decided(), decided());
        resolved.decided = Decided::default();
        resolved.near.push((mac(2), ip("192.168.1.8")));
        resolved.near.push((mac(2), ip("2001:db8:1:1::8")));
        assert_eq!(gaps(&resolved, &facts)[0], "");
    }

    #[test]
    fn names_and_packets_beyond_the_limit_are_told_and_others_take_no_room() {
        let list = |net: &str| {
            let all = (0..200).map(|it| format!("\"{net}.{it}.0/24\""));
            all.collect::<Vec<_>>().join(", ")
        };
        let text = format!(
            "lan = [\"br-lan\", \"br-guest\"]\n\
             [[entry]]\nto = [{}]\nway = \"around\"\n\
             [[entry]]\nto = [{}, \"a.example\"]\nway = \"block\"\n",
            list("10.1"),
            list("10.2")
        );
        let resolved = of(&text);
        let told = gaps(&resolved, &facts());
        let of_two = "does not block 144 pairs of sender and target (of each family, at most 256 have rules, and 64 of \
                      names)";
        assert!(told[0].is_empty() && told[1].ends_with(of_two), "{told:?}");
        assert_eq!(held(&resolved, Family::V4).len(), HELD_MAX);
    }

    #[test]
    fn names_are_held_by_their_addresses_and_leave_room_for_others() {
        let text = "lan = [\"br-lan\"]\n[[entry]]\nto = \"a.example\"\nway = \"around\"\n\
                    [[entry]]\nto = [\"b.example\", \"a.example\"]\nthrough = \"mr-us\"\n\
                    [[entry]]\nwho = \"br-lan\"\nway = \"block\"\n";
        let mut resolved = of(text);
        let line = |count: u32| {
            let words = (1..=count).map(|it| format!(" 198.18.0.{it}=9"));
            format!("b.example{}", words.collect::<String>())
        };
        let lines = [
            "a.example 203.0.113.9=9 2001:db8:f::9=9".to_owned(),
            line(2),
        ];
        resolved.addresses = Addresses::of_lines(lines.iter().map(String::as_str), |it| it);
        let held_to = |resolved: &Resolved| {
            let all = held(resolved, Family::V4).into_iter();
            all.map(|it| (it.to.map(|it| it.0), it.table))
                .collect::<Vec<_>>()
        };
        // The first entry for an address decides, and it lets the packets leave.
        let [one, two] = [1, 2].map(|it| (Some(ip(&format!("198.18.0.{it}"))), Some(7701)));
        assert_eq!(held_to(&resolved), [two, one, (None, None)]);
        assert_eq!(held(&resolved, Family::V6).len(), 1);
        assert_eq!(gaps(&resolved, &facts()), ["", "", ""]);
        resolved.decided = Decided::default();
        resolved.addresses = Addresses::of_lines([line(100)].iter().map(String::as_str), |it| it);
        let all = held_to(&resolved);
        assert_eq!((all.len(), all[NAMED_MAX]), (NAMED_MAX + 1, (None, None)));
        assert!(gaps(&resolved, &facts())[1].contains("does not block 36 pairs"));
    }

    #[test]
    fn what_holds_is_known_without_a_mark() {
        let mut resolved = resolved();
        resolved.near = vec![
            (mac(1), ip("192.168.1.7")),
            (mac(2), ip("2001:db8:1:1::7")),
            (mac(3), ip("192.168.1.8")),
        ];
        let all = held(&resolved, Family::V4);
        let whole = Some((ip("192.168.1.7"), 32));
        // The phone's entry lets packets leave in clear while its tunnel is down.
        let television = Held {
            iif: None,
            from: whole,
            to: None,
            table: Some(7701),
        };
        let guests = Held {
            iif: DeviceName::new("br-guest"),
            from: None,
            to: Some((ip("192.168.1.0"), 24)),
            table: None,
        };
        assert_eq!(all, [television, guests]);
        let of_v6 = held(&resolved, Family::V6);
        assert_eq!(of_v6.len(), 1);
    }
}
