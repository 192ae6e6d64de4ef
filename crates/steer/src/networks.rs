//! Networks of the LAN, which its devices reach without a tunnel; and the ports and networks of blocked devices, past
//! ones included, whose packets are blocked whatever device they come in through.

use std::fmt::Write as _;
use std::net::IpAddr;

use config::types::{AllowedIp, is_ifname};
use host::{covers, masked};
use netio::netlink::{Link, Route, RouteKind};

use crate::facts::Facts;

/// A network: address and bits of its prefix.
pub(crate) type Network = (IpAddr, u8);

/// Shortest prefix of a LAN's network, IPv4 and IPv6. A shorter route through a device of the LAN leads to a gateway,
/// and mostly beyond the LAN.
const PREFIX_MIN: [u8; 2] = [8, 16];

/// Maximum number of networks that bypass the tunnel, each with a rule for each device. A LAN has a handful.
const NETWORKS_MAX: usize = 64;

/// Maximum number of past networks, and of past ports, that stay blocked. Otherwise a prefix that is delegated again
/// each day would fill the list.
const BEFORE_MAX: usize = 8;

/// Maximum number of ports of bridges of the LAN.
const PORTS_MAX: usize = 64;

/// Networks, ports and interface indices of the LAN. They stay known when a bridge is deleted or renamed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Known {
    /// Networks, none within another. Those that the LAN has lost come first, the oldest at the front.
    pub(crate) networks: Vec<Network>,
    /// Present and past ports of the LAN's bridges.
    pub(crate) ports: Vec<String>,
    /// Indices and names of the LAN's devices and ports; a device keeps its index when it is renamed.
    pub(crate) indices: Vec<(u32, String)>,
}

/// Begins each line of [`Known::text`], which is a comment to TOML.
pub(crate) const KNOWN: &str = "#known ";

impl Known {
    /// Reads the known parts from the lines of [`Self::text`] among others.
    pub(crate) fn of_text(text: &str) -> Self {
        let mut known = Self::default();
        for line in text.lines().filter_map(|it| it.strip_prefix(KNOWN)) {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["network", network] => {
                    let network = network.parse::<AllowedIp>().ok();
                    known
                        .networks
                        .extend(network.map(|it| (it.addr(), it.prefix())));
                }
                ["port", name] if is_ifname(name) => known.ports.push(name.to_owned()),
                ["index", number, name] if is_ifname(name) => {
                    let number = number.parse().ok();
                    known.indices.extend(number.map(|it| (it, name.to_owned())));
                }
                _ => {}
            }
        }
        known
    }

    /// Lines for [`Self::of_text`].
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        for (ip, prefix) in &self.networks {
            let _ = writeln!(text, "{KNOWN}network {ip}/{prefix}");
        }
        for name in &self.ports {
            let _ = writeln!(text, "{KNOWN}port {name}");
        }
        for (index, name) in &self.indices {
            let _ = writeln!(text, "{KNOWN}index {index} {name}");
        }
        text
    }

    /// Adds the present networks, ports and indices of these devices. Drops networks that an uplink has taken since.
    pub(crate) fn with<T: AsRef<str>>(&self, lan: &[T], facts: &Facts) -> Self {
        let Facts {
            links, addresses, ..
        } = facts;
        let lines = lines(&facts.main);
        let now = facts.networks(lan);
        let is_lines = |network: &Network| {
            let mut own = addresses.iter();
            own.any(|it| lines.contains(&it.index) && covers(network.0, network.1, it.ip))
        };
        let before = self.networks.iter().copied();
        let before = before.filter(|it| !now.contains(it) && !is_lines(it));
        let networks = newest(before.collect()).chain(now.clone()).collect();
        let is_lan = |link: &Link| contains(lan, &link.name);
        let is_port = |link: &Link| {
            link.master
                .and_then(|it| facts.link(it))
                .is_some_and(is_lan)
        };
        let mut bridged: Vec<&Link> = links.iter().filter(|it| is_port(it)).collect();
        bridged.truncate(PORTS_MAX);
        let ports: Vec<String> = bridged.iter().map(|it| it.name.clone()).collect();
        let is_other = |name: &&String| {
            let link = facts.named(name);
            !ports.contains(name)
                && !contains(lan, name)
                && !link.is_some_and(|it| lines.contains(&it.index))
        };
        let before: Vec<String> = self.ports.iter().filter(is_other).cloned().collect();
        let ports: Vec<String> = newest(before).chain(ports).collect();
        let all = links.iter().filter(|it| is_lan(it)).chain(bridged);
        let indices: Vec<(u32, String)> = all.map(|it| (it.index, it.name.clone())).collect();
        // Only renamed devices count: under its old name a device is known by that, or the settings no longer mean it.
        let is_renamed = |(index, name): &&(u32, String)| {
            let link = facts.link(*index);
            link.is_some_and(|it| it.name != *name || ports.contains(name))
                && !lines.contains(index)
                && !indices.iter().any(|it| it.0 == *index)
        };
        let before = self.indices.iter().filter(is_renamed).cloned().collect();
        let indices = newest(before).chain(indices.iter().cloned()).collect();
        Self {
            networks,
            ports,
            indices,
        }
    }

    /// Sorts all parts, so that equal contents compare equal, and drops networks within others.
    pub(crate) fn sorted(mut self) -> Self {
        self.networks = widest(self.networks);
        self.networks.sort_unstable();
        self.ports.sort_unstable();
        self.indices.sort_unstable();
        self
    }
}

/// The last elements of a list, at most [`BEFORE_MAX`].
fn newest<T>(mut list: Vec<T>) -> impl Iterator<Item = T> {
    list.drain(..list.len().saturating_sub(BEFORE_MAX));
    list.into_iter()
}

/// The devices of the host's default routes.
fn lines(main: &[Route]) -> Vec<u32> {
    let routes = main.iter();
    let defaults = routes.filter(|it| it.prefix == 0 && it.kind == RouteKind::Unicast);
    defaults.filter_map(|it| it.dev).collect()
}

fn contains<T: AsRef<str>>(names: &[T], name: &str) -> bool {
    names.iter().any(|it| it.as_ref() == name)
}

impl Facts {
    /// The networks of devices, from their addresses and their routes in the main table. Sorted; none is within
    /// another.
    pub(crate) fn networks<T: AsRef<str>>(&self, devices: &[T]) -> Vec<Network> {
        let is_of = |index: u32| {
            let link = self.link(index);
            link.is_some_and(|it| contains(devices, &it.name))
        };
        let addresses = self.addresses.iter().filter(|it| is_of(it.index));
        let routes = self
            .main
            .iter()
            .filter(|it| it.kind == RouteKind::Unicast && it.dev.is_some_and(is_of));
        let all = addresses
            .map(|it| (it.ip, it.prefix))
            .chain(routes.map(|it| (it.dst, it.prefix)))
            .map(|(ip, prefix)| (masked(ip, prefix), prefix));
        let mut kept = widest(all.filter(is_lan).collect());
        kept.truncate(NETWORKS_MAX);
        kept.sort_unstable();
        kept
    }
}

/// Networks without those that are within others, the widest first.
pub(crate) fn widest(mut all: Vec<Network>) -> Vec<Network> {
    all.sort_by_key(|&(ip, prefix)| (ip.is_ipv6(), prefix, ip));
    let mut kept: Vec<Network> = Vec::new();
    for network in all {
        if !kept.iter().any(|wider| covers(wider.0, wider.1, network.0)) {
            kept.push(network);
        }
    }
    kept
}

fn is_lan(&(ip, prefix): &Network) -> bool {
    let least = PREFIX_MIN[usize::from(ip.is_ipv6())];
    let is_link_local = match ip {
        // Routers do not forward IPv6 link-local addresses; they do forward 169.254/16.
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
        IpAddr::V4(_) => false,
    };
    prefix >= least && !is_link_local && !ip.is_multicast() && !ip.is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{address, facts, ip, link, route};
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn networks_are_those_of_addresses_and_of_routes_behind_the_lan() {
        let mut facts = facts();
        let behind = [
            ("192.168.50.0", 24),
            ("2001:db8:1:10::", 60),
            // A network within the LAN's own, the LAN itself, and networks that are not the LAN's.
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
            facts.networks(&["br-lan"]),
            [
                (ip("192.168.1.0"), 24),
                (ip("192.168.50.0"), 24),
                (ip("2001:db8:1:1::"), 64),
                (ip("2001:db8:1:10::"), 60),
            ]
        );
        // A route from DHCP option 121 through the WAN does not belong to the LAN.
        facts.main.push(route("203.0.113.0", 24, 3, 254));
        assert_eq!(facts.networks(&["br-lan"]).len(), 4);
        assert_eq!(facts.networks(&["no-such"]), []);
    }

    #[test]
    fn a_device_with_another_name_is_known_by_its_index() {
        let mut facts = facts();
        let mut port = link(9, "lan1", true);
        port.master = Some(2);
        facts.links.push(port);
        let known = |facts: &Facts, before: &Known| before.with(&["br-lan"], facts);
        let of = |known: &Known| known.indices.iter().map(|it| it.0).collect::<Vec<_>>();
        let first = known(&facts, &Known::default());
        assert_eq!(
            (of(&first), &first.ports[..]),
            (vec![2, 9], &["lan1".to_owned()][..])
        );
        assert_eq!(
            Known::of_text(&format!("# a\n{}lan = []\n", first.text())),
            first
        );
        // A port that was taken out of its bridge is known by its name, until it is renamed.
        facts.links.last_mut().unwrap().master = None;
        let pulled = known(&facts, &first);
        facts.links.last_mut().unwrap().name = "lan9".to_owned();
        let is_bridge = |it: &&mut Link| it.name == "br-lan";
        facts.links.iter_mut().find(is_bridge).unwrap().name = "lan0".to_owned();
        let renamed = known(&facts, &pulled);
        assert_eq!(of(&renamed), [9, 2]);
        // Another device has taken the old name, and the settings name no device.
        let other = link(11, "br-lan", true);
        facts.links.push(other);
        assert_eq!(of(&known(&facts, &renamed)), [9, 2, 11]);
        let fresh = crate::fixture::facts();
        let unasked = first.with(&["br-guest"], &fresh);
        assert_eq!(of(&unasked), [4]);
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
        assert_eq!(facts.networks(&["br-big"]).len(), NETWORKS_MAX);
    }

    proptest! {
        /// Every address of a listed device is in one of the networks, and no network is in another.
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
            let found = facts.networks(&["br-lan"]);
            for own in &facts.addresses {
                if is_lan(&(masked(own.ip, own.prefix), own.prefix)) {
                    prop_assert!(found.iter().any(|it| covers(it.0, it.1, own.ip)));
                }
            }
            for (place, network) in found.iter().enumerate() {
                let mut others = found.iter().enumerate().filter(|(other, _)| *other != place);
                prop_assert!(!others.any(|(_, other)| covers(other.0, other.1, network.0) && other.1 <= network.1));
            }
        }
    }
}
