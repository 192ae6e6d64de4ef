//! What a tunnel wants of the host, in terms that are the same for every protocol.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::apply::Applied;
use crate::dns::NameServers;
use crate::step::MAIN;

/// What a tunnel wants of the host. A service makes it from its settings and the other end's messages; [`crate::Plan`]
/// turns it into steps.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Want {
    /// Addresses of the interface.
    pub addresses: Vec<WantedAddress>,
    /// The other end chose the addresses, not the configuration.
    pub pushed_addresses: bool,
    /// MTU of the interface.
    pub mtu: Mtu,
    /// The MTU that probes have found, if it is less than the uplinks' MTU.
    pub probed: Option<ProbedPath>,
    /// A script brings the interface up, and sets its addresses, MTU and name servers.
    pub leaves_interface: bool,
    /// Name servers; `None` keeps the host's.
    pub name_servers: Option<NameServers>,
    /// Routes other than default routes, in the order in which they are made.
    pub routes: Vec<WantedRoute>,
    /// The gateway inside the tunnel for routes that lead all packets, if it is on a network of the interface.
    pub gateway: Option<IpAddr>,
    /// How all IPv4 packets are led into the tunnel; `None` leads only those that `routes` cover.
    pub default_v4: Option<DefaultV4>,
    /// How all IPv6 packets are led into the tunnel; `None` leads only those that `routes` cover.
    pub default_v6: Option<DefaultV6>,
    /// Packets to global IPv6 networks are answered with "unreachable".
    pub block_ipv6: bool,
    /// The interface cannot have IPv6: packets to its IPv6 routes are answered with "unreachable". Set once the host
    /// has been read.
    pub no_ipv6: bool,
    /// The network of the host's default gateway is led into the tunnel, except the gateway.
    pub block_local: bool,
    /// The name servers that the host has are kept outside the tunnel.
    pub bypass_name_servers: bool,
    /// The addresses that the tunnel's own packets go to: peers, a server, or the proxy in front of it.
    pub endpoints: Vec<IpAddr>,
    /// Which endpoints get a route that keeps them outside the tunnel.
    pub endpoint_routes: EndpointRoutes,
    /// Firewall mark of the tunnel's own packets, 0 for none.
    pub fwmark: u32,
    /// How clients' packets are forwarded; `None` leaves forwarding as it is.
    pub forwarding: Option<Forwarding>,
    /// Warnings about settings that the service has ignored, one sentence each.
    pub warnings: Vec<String>,
}

impl Want {
    /// Says which packets of this host the routes lead into the tunnel `ifname`, and which name servers are asked: a
    /// clause for the user. Without `applied`, a manager sets the name servers.
    #[must_use]
    pub fn summary(&self, ifname: &str, applied: Option<&Applied>) -> String {
        self.in_words(ifname, applied.is_none_or(Applied::sets_dns))
    }

    fn in_words(&self, ifname: &str, has_resolver: bool) -> String {
        let inside = |gateway| match gateway {
            Gateway::Tunnel(_) => true,
            Gateway::Router(addr) => self.is_inside(addr),
            Gateway::Default => false,
        };
        let led = |it: &&WantedRoute| it.table == MAIN && inside(it.gateway);
        let led: Vec<&WantedRoute> = self.routes.iter().filter(led).collect();
        let all = |v6| led.iter().any(|it| it.leads_all() && it.to.is_v6() == v6);
        let v4 = self.default_v4.is_some() || all(false);
        let v6 = self.default_v6.is_some() || all(true);
        let networks: Vec<String> = led.iter().filter_map(|it| it.network()).collect();
        let traffic = match (v4, v6, &networks[..]) {
            (true, true, _) => "all traffic of this router".to_owned(),
            (true, false, _) => "IPv4 traffic of this router".to_owned(),
            (false, true, _) => "IPv6 traffic of this router".to_owned(),
            (false, false, []) => "no traffic of this router".to_owned(),
            (false, false, [one]) => format!("traffic to {one}"),
            (false, false, [one, other]) => format!("traffic to {one} and {other}"),
            (false, false, [one, rest @ ..]) => {
                format!("traffic to {one} and {} other networks", rest.len())
            }
        };
        let blocked = match (self.block_ipv6 && !v6, v4 && !v6) {
            (true, _) => ", IPv6 is blocked",
            (false, true) => ", IPv6 leaves outside it",
            (false, false) => "",
        };
        let names = self.name_servers.iter().map(|it| {
            if !has_resolver {
                return ", names are looked up as before".to_owned();
            }
            let servers: Vec<String> = it.servers.iter().map(ToString::to_string).collect();
            let names = match it.only.is_empty() {
                true => "names".to_owned(),
                false => format!("names below {}", it.only.join(", ")),
            };
            format!(", {names} are looked up at {}", servers.join(", "))
        });
        let names: String = names.collect();
        format!("{traffic} goes through {ifname}{blocked}{names}")
    }
}

/// A path's MTU, as found by probes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ProbedPath {
    /// The path's destination, outside the tunnel.
    pub to: IpAddr,
    /// The longest packet inside the tunnel that passes, in bytes.
    pub bytes: u32,
    /// The bytes that the tunnel adds to each packet.
    pub overhead: u32,
}

/// How clients' packets are forwarded.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Forwarding {
    /// Clients' packets leave with the host's own address.
    pub masquerade: bool,
    /// Destinations for which clients keep their own addresses, each with the bits of its prefix.
    pub except: Vec<(IpAddr, u8)>,
}

/// An address of the tunnel's interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WantedAddress {
    /// The address.
    pub addr: IpAddr,
    /// Prefix length of the address's network in bits; all bits if there is a peer.
    pub prefix: u8,
    /// The other end's address, if the two ends have no network in common.
    pub peer: Option<IpAddr>,
}

/// How the MTU of the interface is found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mtu {
    /// A fixed number of bytes.
    Exact(u32),
    /// The MTU of the path to the endpoints, less the bytes that the tunnel adds to a packet.
    Path {
        /// Outer headers and the tunnel's own, in bytes.
        overhead: u32,
    },
}

impl Default for Mtu {
    fn default() -> Self {
        Self::Path { overhead: 0 }
    }
}

/// A route before its gateway is resolved.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WantedRoute {
    /// The route's name in warnings.
    pub name: String,
    /// Destination network.
    pub to: Destination,
    /// Bits of the network's prefix.
    pub prefix: u8,
    /// Where the route leads.
    pub gateway: Gateway,
    /// The metric; `None` for the kernel's choice.
    pub metric: Option<u32>,
    /// Number of the routing table, for routes into the tunnel.
    pub table: u32,
    /// The tunnel works without this route, and it goes before a route of the host to the same network. For other
    /// routes, such a route of the host is an error.
    pub optional: bool,
    /// The other end requested the route, not the configuration.
    pub pushed: bool,
}

impl WantedRoute {
    /// True for a default route that must win over the host's: one without a metric of its own.
    #[must_use]
    pub const fn leads_all(&self) -> bool {
        self.optional && self.prefix == 0 && self.metric.is_none() && self.table == MAIN
    }

    /// The network in words, unless it is a default route.
    fn network(&self) -> Option<String> {
        match self.to {
            Destination::Network(addr) if self.prefix > 0 => {
                Some(format!("{addr}/{}", self.prefix))
            }
            _ => None,
        }
    }
}

/// The network of a route.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Destination {
    /// A network; bits behind the prefix are ignored.
    Network(IpAddr),
    /// The gateway of the host's default route.
    DefaultGateway {
        /// Whether this is the gateway for IPv6.
        v6: bool,
    },
}

impl Destination {
    /// The network of a default route.
    #[must_use]
    pub const fn all(v6: bool) -> Self {
        Self::Network(match v6 {
            true => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            false => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        })
    }

    /// True for IPv6.
    pub(crate) const fn is_v6(self) -> bool {
        match self {
            Self::Network(addr) => addr.is_ipv6(),
            Self::DefaultGateway { v6 } => v6,
        }
    }
}

/// Where a route leads.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Gateway {
    /// The route leads into the tunnel. The gateway, if any, is on a network of the interface.
    Tunnel(Option<IpAddr>),
    /// The route leads past the tunnel, through the gateway of the host's default route; follows that route.
    Default,
    /// The route leads through this gateway, inside the tunnel or on a network of the host.
    Router(IpAddr),
}

/// How all IPv4 packets are led into the tunnel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DefaultV4 {
    /// A routing table of its own, with rules that exempt the tunnel's own packets; [`Self::Halves`] if the kernel does
    /// not support such rules.
    Rules,
    /// Two routes that are more specific than a default route.
    Halves,
    /// A default route, which replaces the host's if both have the same metric.
    Replace,
}

/// How all IPv6 packets are led into the tunnel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DefaultV6 {
    /// A routing table with rules; see [`DefaultV4::Rules`].
    Rules,
    /// Routes to the global and the unique local networks, which are more specific than a
    /// default route.
    Global,
}

/// Which endpoints get a route that keeps them outside the tunnel.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum EndpointRoutes {
    /// Endpoints that a default route into the tunnel would cover. The routes are made once, and tunnels share them.
    #[default]
    ForDefault,
    /// Endpoints that an address or a route of the tunnel covers. Each tunnel has its own routes, which follow the
    /// host's.
    Follow {
        /// IPv4 endpoints always get a route.
        always_v4: bool,
        /// Endpoints on a network of the host get none.
        not_on_link: bool,
    },
    /// No endpoint gets a route.
    Off,
}

impl Want {
    /// True when the tunnel uses rules, if the kernel supports them.
    pub(crate) fn uses_rules(&self) -> bool {
        self.default_v4 == Some(DefaultV4::Rules)
            || self.default_v6 == Some(DefaultV6::Rules)
            || (self.endpoint_routes == EndpointRoutes::ForDefault && self.covers_endpoint())
    }

    /// True when a route of the main table would lead the tunnel's own packets into it.
    fn covers_endpoint(&self) -> bool {
        let covers = |route: &WantedRoute, endpoint: IpAddr| match route.to {
            Destination::Network(network) => {
                route.table == MAIN && crate::ways::covers(network, route.prefix, endpoint)
            }
            Destination::DefaultGateway { .. } => false,
        };
        let covered = |route: &WantedRoute| self.endpoints.iter().any(|it| covers(route, *it));
        self.routes.iter().any(covered)
    }

    /// True when the tunnel has an IPv6 address or route.
    pub(crate) fn has_v6(&self) -> bool {
        let inside =
            |route: &WantedRoute| route.to.is_v6() && matches!(route.gateway, Gateway::Tunnel(_));
        self.addresses.iter().any(|it| it.addr.is_ipv6())
            || self.default_v6.is_some()
            || self.routes.iter().any(inside)
    }

    /// True when the address is the other end's, or on a network of the interface.
    #[must_use]
    pub fn is_inside(&self, addr: IpAddr) -> bool {
        self.addresses.iter().any(|own| match own.peer {
            Some(peer) => peer == addr,
            None => own.addr != addr && crate::ways::covers(own.addr, own.prefix, addr),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(network: &str, prefix: u8, gateway: Gateway, table: u32) -> WantedRoute {
        WantedRoute {
            name: String::new(),
            to: Destination::Network(network.parse().unwrap()),
            prefix,
            gateway,
            metric: None,
            table,
            optional: false,
            pushed: false,
        }
    }

    #[test]
    fn the_summary_names_what_the_tunnel_leads() {
        const IN: Gateway = Gateway::Tunnel(None);
        let ten = || route("10.0.0.0", 8, IN, MAIN);
        let lan = || route("192.168.7.0", 24, IN, MAIN);
        let six = || route("fd00::", 8, IN, MAIN);
        let past = || route("203.0.113.7", 32, Gateway::Default, MAIN);
        let other = || route("172.16.0.0", 12, IN, 100);
        let backup = || route("0.0.0.0", 0, IN, MAIN);
        let everything = || WantedRoute {
            optional: true,
            ..backup()
        };
        for (routes, v4, v6, summary) in [
            (
                vec![],
                false,
                false,
                "no traffic of this router goes through wg0",
            ),
            (
                vec![past(), backup(), other()],
                false,
                false,
                "no traffic of this router goes through wg0",
            ),
            (
                vec![past(), ten()],
                false,
                false,
                "traffic to 10.0.0.0/8 goes through wg0",
            ),
            (
                vec![ten(), lan()],
                false,
                false,
                "traffic to 10.0.0.0/8 and 192.168.7.0/24 goes through wg0",
            ),
            (
                vec![ten(), lan(), six()],
                false,
                false,
                "traffic to 10.0.0.0/8 and 2 other networks goes through wg0",
            ),
            (
                vec![ten()],
                true,
                false,
                "IPv4 traffic of this router goes through wg0, IPv6 leaves outside it",
            ),
            (
                vec![everything()],
                false,
                false,
                "IPv4 traffic of this router goes through wg0, IPv6 leaves outside it",
            ),
            (
                vec![],
                false,
                true,
                "IPv6 traffic of this router goes through wg0",
            ),
            (
                vec![everything()],
                false,
                true,
                "all traffic of this router goes through wg0",
            ),
        ] {
            let want = Want {
                routes,
                default_v4: v4.then_some(DefaultV4::Rules),
                default_v6: v6.then_some(DefaultV6::Rules),
                ..Want::default()
            };
            assert_eq!(want.in_words("wg0", true), summary);
        }
        let mut servers = NameServers {
            servers: vec!["10.2.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
            search: Vec::new(),
            only: Vec::new(),
        };
        let with = |servers: &NameServers| {
            let want = Want {
                default_v4: Some(DefaultV4::Halves),
                block_ipv6: true,
                name_servers: Some(servers.clone()),
                ..Want::default()
            };
            [true, false].map(|has_resolver| want.in_words("tun0", has_resolver))
        };
        assert_eq!(
            with(&servers),
            [
                "IPv4 traffic of this router goes through tun0, IPv6 is blocked, names are looked up at 10.2.0.1, fd00::1",
                "IPv4 traffic of this router goes through tun0, IPv6 is blocked, names are looked up as before",
            ]
        );
        servers.only.push("corp.example".to_owned());
        assert!(
            with(&servers)[0]
                .ends_with(", names below corp.example are looked up at 10.2.0.1, fd00::1")
        );
    }
}
