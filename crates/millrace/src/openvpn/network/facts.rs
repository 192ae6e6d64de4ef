//! What has to be known of the host before anything is decided. Looking changes nothing.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;

use config::openvpn::Place;
use netio::netlink::{Family, Netlink, NetlinkError, Route, RouteKind};

use super::merge::TunnelNetwork;
use crate::network::{EndpointWay, MAIN, Resolver, has_ipv6, way, way_without};

/// Where name servers are listed; with systemd-resolved the second has the real ones.
const RESOLV_CONFS: [&str; 2] = ["/run/systemd/resolve/resolv.conf", "/etc/resolv.conf"];

/// Most name servers that are looked at.
const NAME_SERVERS_MAX: usize = 8;

/// The host as it is before the tunnel.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct HostFacts {
    /// The way to the server (or the proxy in front of it), as its outer packets go; `None` in
    /// a server.
    pub(crate) server: Option<EndpointWay>,
    /// Default routes of the main table, the best of each family first.
    pub(crate) defaults: Vec<Route>,
    /// IPv4 networks of the interface that the best default route leads to.
    pub(crate) local_networks: Vec<(IpAddr, u8)>,
    /// Ways to gateways that are given by address, and to name servers.
    pub(crate) ways: BTreeMap<IpAddr, EndpointWay>,
    /// Addresses of names in routes.
    pub(crate) names: BTreeMap<String, Vec<IpAddr>>,
    /// The host's name servers that are other machines.
    pub(crate) name_servers: Vec<IpAddr>,
    /// The kernel has IPv6.
    pub(crate) ipv6: bool,
    /// What manages the name servers.
    pub(crate) resolver: Option<Resolver>,
}

impl HostFacts {
    /// Looks at the host of `netlink`, after [`crate::network::recover`]. `remote` is where the
    /// outer packets go and `mark` their firewall mark, 0 for none; `ifname` is the tunnel's own
    /// interface, whose routes do not count. `names` are those of [`TunnelNetwork::names`].
    ///
    /// # Errors
    /// When the kernel refuses to list routes or addresses.
    pub(crate) fn gather(
        network: &TunnelNetwork,
        remote: Option<IpAddr>,
        mark: u32,
        ifname: &str,
        names: BTreeMap<String, Vec<IpAddr>>,
        netlink: &mut Netlink,
    ) -> Result<Self, NetlinkError> {
        let tunnel = netlink.index_of(ifname).ok();
        let mut server = remote
            .map(|remote| way(netlink, remote, mark))
            .transpose()?;
        // A tunnel that stayed up over a reconnection must not be taken for the way to the
        // server.
        if let (Some(found), Some(tunnel)) = (&mut server, tunnel)
            && found.dev == Some(tunnel)
        {
            let other = way_without(netlink, found.addr, tunnel)?;
            found.via = other.and_then(|(via, _)| via);
            found.dev = other.map(|(_, dev)| dev);
        }
        let mut defaults = netlink.routes(Some(MAIN))?;
        defaults.retain(|route| {
            route.prefix == 0 && route.kind == RouteKind::Unicast && route.dev != tunnel
        });
        defaults.sort_by_key(|route| (route.dst, route.metric.unwrap_or(0)));
        let mut facts = Self {
            server,
            names,
            ipv6: has_ipv6(),
            name_servers: name_servers(),
            resolver: Resolver::find(),
            ..Self::default()
        };
        if let Some(dev) = defaults
            .first()
            .filter(|r| r.dst.is_ipv4())
            .and_then(|r| r.dev)
        {
            let addresses = netlink.addresses(Some(dev))?;
            let v4 = addresses.iter().filter(|address| address.ip.is_ipv4());
            facts.local_networks = v4.map(|address| (address.ip, address.prefix)).collect();
        }
        facts.defaults = defaults;
        let bypass = network.redirect.is_some_and(|flags| flags.bypass_dns);
        let gateways = network
            .routes
            .iter()
            .filter_map(|route| match route.gateway {
                Some(Place::Address(gateway)) => Some(gateway),
                _ => None,
            });
        let servers = facts.name_servers.iter().filter(|_| bypass).copied();
        let wanted: Vec<IpAddr> = gateways.chain(servers).collect();
        for addr in wanted {
            if let std::collections::btree_map::Entry::Vacant(entry) = facts.ways.entry(addr) {
                entry.insert(way(netlink, addr, 0)?);
            }
        }
        Ok(facts)
    }

    /// The best default route of a family.
    pub(super) fn default_of(&self, v6: bool) -> Option<&Route> {
        self.defaults
            .iter()
            .find(|route| (Family::of(route.dst) == Family::V6) == v6)
    }
}

fn name_servers() -> Vec<IpAddr> {
    let text = RESOLV_CONFS
        .iter()
        .find_map(|path| fs::read_to_string(path).ok());
    parse_resolv_conf(&text.unwrap_or_default())
}

fn parse_resolv_conf(text: &str) -> Vec<IpAddr> {
    let value = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let addr: IpAddr = (words.next() == Some("nameserver"))
            .then(|| words.next())??
            .parse()
            .ok()?;
        (!addr.is_loopback() && !addr.is_unspecified()).then_some(addr)
    };
    text.lines()
        .filter_map(value)
        .take(NAME_SERVERS_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_are_other_machines() {
        let text = "# x\nnameserver 192.0.2.53\nsearch a\nnameserver 127.0.0.53\nnameserver ::1\n\
            nameserver 2001:db8::53 # y\nnameserver x\nnameserver\n";
        let expected: Vec<IpAddr> = vec![
            "192.0.2.53".parse().unwrap(),
            "2001:db8::53".parse().unwrap(),
        ];
        assert_eq!(parse_resolv_conf(text), expected);
    }
}
