//! The networks that guarded devices reach without a tunnel: those of the LAN. And what is held by whatever device it comes:
//! the ports and the networks of guarded devices, those too that were there before.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use config::guard::Guard;
use netio::netlink::{Address, Family, Link, Route, RouteKind};

use crate::facts::Facts;

/// A network: address and bits of its prefix.
pub type Network = (IpAddr, u8);

/// Bits that a network of the LAN has at least, IPv4 and IPv6. A route of fewer bits by a device of the LAN is a gateway's,
/// and most of what it leads to is not the LAN.
const PREFIX_MIN: [u8; 2] = [8, 16];

/// Most networks that are led past the tunnel, each of which is a rule for each device. A LAN has a handful.
const NETWORKS_MAX: usize = 64;

/// The most networks, and the most ports, that stay held after the LAN has lost them. A prefix that is delegated anew
/// each day would fill the list otherwise.
const BEFORE_MAX: usize = 8;

/// Most ports of bridges of the LAN.
const PORTS_MAX: usize = 64;

/// Networks and ports of the LAN, which the guard knows beside the names of its devices. A bridge that is deleted or
/// renamed takes neither along.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Known {
    /// Networks, of which none is within another. The newest that is the LAN's no more is the last of these.
    pub networks: Vec<Network>,
    /// Devices that are ports of its bridges, or were.
    pub ports: Vec<String>,
}

/// Facts that the chains depend on beside the settings.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Surroundings {
    /// Networks of guarded devices, sorted.
    pub networks: Vec<Network>,
    /// Ports of guarded devices, sorted.
    pub ports: Vec<String>,
    /// Marks of what full tunnels send themselves.
    pub marks: Vec<u32>,
}

impl Surroundings {
    /// The surroundings to be held on a host where the facts hold.
    #[must_use]
    pub fn new(guard: &Guard, facts: &Facts) -> Self {
        let known = facts.known.with(guard, facts);
        let (mut networks, mut ports) = (widest(known.networks), known.ports);
        networks.sort_unstable();
        ports.sort_unstable();
        let rules = facts.rules.iter().flatten().flatten();
        let mut marks: Vec<u32> = rules
            .filter(|it| it.invert && it.mask.is_none_or(|mask| mask == u32::MAX))
            .filter_map(|it| it.fwmark)
            .collect();
        marks.sort_unstable();
        marks.dedup();
        Self {
            networks,
            ports,
            marks: if guard.router { marks } else { Vec::new() },
        }
    }

    /// Networks of a family.
    #[must_use]
    pub fn of_family(&self, family: Family) -> Vec<Network> {
        let networks = self.networks.iter().copied();
        networks.filter(|it| Family::of(it.0) == family).collect()
    }
}

impl Known {
    /// Adds the networks and ports that guarded devices have now. A network or port that a line of the router has got
    /// since is the LAN's no more.
    pub(crate) fn with(&self, guard: &Guard, facts: &Facts) -> Self {
        let lines = lines(facts);
        let guarded = guard.guarded();
        let now = networks(facts, &guarded);
        let is_lines = |network: &Network| {
            let mut own = facts.addresses.iter();
            own.any(|it| lines.contains(&it.index) && covers(*network, it.ip))
        };
        let before = self.networks.iter().copied();
        let before = before.filter(|it| !now.contains(it) && !is_lines(it));
        let networks = newest(before.collect())
            .chain(now.iter().copied())
            .collect();
        let is_guarded = |index: u32| {
            let link = facts.link(index);
            link.is_some_and(|it| guarded.contains(&it.name.as_str()))
        };
        let bridged = facts
            .links
            .iter()
            .filter(|it| it.master.is_some_and(is_guarded));
        let mut ports: Vec<String> = bridged.map(|it| it.name.clone()).collect();
        ports.truncate(PORTS_MAX);
        let is_other = |name: &&String| {
            let link = facts.links.iter().find(|it| it.name == **name);
            !ports.contains(name)
                && !guarded.contains(&name.as_str())
                && !link.is_some_and(|it| lines.contains(&it.index))
        };
        let before: Vec<String> = self.ports.iter().filter(is_other).cloned().collect();
        Self {
            networks,
            ports: newest(before).chain(ports.clone()).collect(),
        }
    }
}

/// The last of a list, up to [`BEFORE_MAX`].
fn newest<T>(mut list: Vec<T>) -> impl Iterator<Item = T> {
    list.drain(..list.len().saturating_sub(BEFORE_MAX));
    list.into_iter()
}

/// The devices that default routes of the host lead out of.
fn lines(facts: &Facts) -> Vec<u32> {
    let routes = facts.main.iter();
    let defaults = routes.filter(|it| it.prefix == 0 && it.kind == RouteKind::Unicast);
    defaults.filter_map(|it| it.dev).collect()
}

/// The networks of these devices.
pub(crate) fn networks(facts: &Facts, devices: &[&str]) -> Vec<Network> {
    of_devices(&facts.links, &facts.addresses, &facts.main, devices)
}

/// The networks of devices, by their addresses and by the routes of the main table that lead there. Sorted; none is
/// within another.
#[must_use]
pub fn of_devices(
    links: &[Link],
    addresses: &[Address],
    main: &[Route],
    devices: &[&str],
) -> Vec<Network> {
    let indices: Vec<u32> = links
        .iter()
        .filter(|link| devices.contains(&link.name.as_str()))
        .map(|link| link.index)
        .collect();
    let of_addresses = addresses
        .iter()
        .filter(|address| indices.contains(&address.index))
        .map(|address| (address.ip, address.prefix));
    let of_routes = main
        .iter()
        .filter(|route| route.kind == RouteKind::Unicast)
        .filter(|route| route.dev.is_some_and(|dev| indices.contains(&dev)))
        .map(|route| (route.dst, route.prefix));
    let all: Vec<Network> = of_addresses
        .chain(of_routes)
        .map(|(ip, prefix)| (masked(ip, prefix), prefix))
        .filter(is_lan)
        .collect();
    let mut kept = widest(all);
    kept.truncate(NETWORKS_MAX);
    kept.sort_unstable();
    kept
}

/// Networks without those that are within others, the widest first.
pub(crate) fn widest(mut all: Vec<Network>) -> Vec<Network> {
    all.sort_by_key(|&(ip, prefix)| (ip.is_ipv6(), prefix, ip));
    let mut kept: Vec<Network> = Vec::new();
    for network in all {
        if !kept.iter().any(|wider| covers(*wider, network.0)) {
            kept.push(network);
        }
    }
    kept
}

fn is_lan(&(ip, prefix): &Network) -> bool {
    let least = PREFIX_MIN[usize::from(ip.is_ipv6())];
    let is_link_local = match ip {
        // Routers do not forward between links by these; 169.254 they do.
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
        IpAddr::V4(_) => false,
    };
    prefix >= least && !is_link_local && !ip.is_multicast() && !ip.is_loopback()
}

/// The address with all bits behind the prefix cleared.
fn masked(ip: IpAddr, prefix: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32)));
            Ipv4Addr::from_bits(ip.to_bits() & mask.unwrap_or(0)).into()
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128)));
            Ipv6Addr::from_bits(ip.to_bits() & mask.unwrap_or(0)).into()
        }
    }
}

/// Whether the network has the address.
#[must_use]
pub fn covers((network, prefix): Network, ip: IpAddr) -> bool {
    Family::of(network) == Family::of(ip) && masked(ip, prefix) == masked(network, prefix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{address, facts, ip, link, route};
    use proptest::prelude::*;

    #[test]
    fn networks_are_those_of_addresses_and_of_routes_behind_the_lan() {
        let mut facts = facts();
        let behind = [
            ("192.168.50.0", 24),
            ("2001:db8:1:10::", 60),
            // Within the LAN's own, the LAN itself, and no networks of a LAN.
            ("192.168.1.128", 25),
            ("0.0.0.0", 0),
            ("0.0.0.0", 1),
            ("2000::", 3),
            ("fe80::", 64),
            ("ff00::", 8),
        ];
        for (to, prefix) in behind {
            facts.main.push(route(to, prefix, 2, 254));
        }
        assert_eq!(
            networks(&facts, &["br-lan"]),
            [
                (ip("192.168.1.0"), 24),
                (ip("192.168.50.0"), 24),
                (ip("2001:db8:1:1::"), 64),
                (ip("2001:db8:1:10::"), 60),
            ]
        );
        // A route of DHCP's option 121 by the WAN is none of the LAN's.
        facts.main.push(route("203.0.113.0", 24, 3, 254));
        assert_eq!(networks(&facts, &["br-lan"]).len(), 4);
        assert_eq!(networks(&facts, &["no-such"]), []);
    }

    #[test]
    fn there_is_an_end_to_networks() {
        let mut facts = facts();
        facts.links.push(link(9, "br-big", true));
        for number in 0..=255 {
            facts
                .addresses
                .push(address(9, &format!("10.0.{number}.1"), 24));
        }
        assert_eq!(networks(&facts, &["br-big"]).len(), NETWORKS_MAX);
    }

    proptest! {
        /// Every address of a device that is not left out is in one of the networks, and none of them is in another.
        #[test]
        fn own_addresses_are_covered(v4 in prop::collection::vec((any::<u32>(), 8u8..=32), 0..20),
                                     v6 in prop::collection::vec((any::<u128>(), 16u8..=128), 0..20)) {
            let mut facts = facts();
            facts.addresses.clear();
            facts.main.clear();
            let v4 = v4.into_iter().map(|(bits, prefix)| (IpAddr::from(Ipv4Addr::from_bits(bits)), prefix));
            let v6 = v6.into_iter().map(|(bits, prefix)| (IpAddr::from(Ipv6Addr::from_bits(bits)), prefix));
            for (ip, prefix) in v4.chain(v6) {
                facts.addresses.push(address(2, &ip.to_string(), prefix));
            }
            let found = networks(&facts, &["br-lan"]);
            for own in &facts.addresses {
                if is_lan(&(masked(own.ip, own.prefix), own.prefix)) {
                    prop_assert!(found.iter().any(|it| covers(*it, own.ip)));
                }
            }
            for (place, network) in found.iter().enumerate() {
                let mut others = found.iter().enumerate().filter(|(other, _)| *other != place);
                prop_assert!(!others.any(|(_, other)| covers(*other, network.0) && other.1 <= network.1));
            }
        }
    }
}
