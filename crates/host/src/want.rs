//! A tunnel's wishes of the host, in terms that no protocol has for itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::dns::NameServers;
use crate::step::MAIN;

/// A tunnel's wishes of the host: made by a service from its settings and from the other end's messages, and turned
/// into steps by [`crate::Plan`].
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Want {
    /// Addresses of the interface.
    pub addresses: Vec<WantedAddress>,
    /// The other end chose the addresses, not the configuration.
    pub pushed_addresses: bool,
    /// MTU of the interface.
    pub mtu: Mtu,
    /// The MTU that probes have found, where it is less than that of the lines.
    pub probed: Option<ProbedPath>,
    /// A script gives the interface its addresses, its MTU and its name servers, and sets it up.
    pub leaves_interface: bool,
    /// Name servers; `None` keeps the host's.
    pub name_servers: Option<NameServers>,
    /// Routes other than default routes, in the order in which they are made.
    pub routes: Vec<WantedRoute>,
    /// The router inside the tunnel that routes for all packets name, where it is on a network of the
    /// interface.
    pub gateway: Option<IpAddr>,
    /// How all IPv4 packets are led into the tunnel; `None` for only those that `routes` cover.
    pub default_v4: Option<DefaultV4>,
    /// The default route for IPv6.
    pub default_v6: Option<DefaultV6>,
    /// Packets to global IPv6 networks are answered with "unreachable".
    pub block_ipv6: bool,
    /// The interface cannot have IPv6: packets to its IPv6 routes are answered with "unreachable". Known once the host was looked
    /// at.
    pub no_ipv6: bool,
    /// The network of the host's default gateway is led into the tunnel, except the gateway.
    pub block_local: bool,
    /// The name servers that the host has are kept outside the tunnel.
    pub bypass_name_servers: bool,
    /// Where the tunnel's own packets go: peers, a server, or the proxy in front of it.
    pub endpoints: Vec<IpAddr>,
    /// Which endpoints get a route that keeps them outside the tunnel.
    pub endpoint_routes: EndpointRoutes,
    /// Firewall mark of the tunnel's own packets, 0 for none.
    pub fwmark: u32,
    /// Packets of those who call are forwarded; `None` leaves that as it is.
    pub forwarding: Option<Forwarding>,
    /// Warnings about settings that the service has left out, one sentence each.
    pub warnings: Vec<String>,
}

/// A path's MTU, as probes have shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ProbedPath {
    /// Where it leads to, outside the tunnel.
    pub to: IpAddr,
    /// The longest packet inside the tunnel that passes, in bytes.
    pub bytes: u32,
    /// The bytes that the tunnel adds to each packet.
    pub overhead: u32,
}

/// How packets of those who call are forwarded.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Forwarding {
    /// They leave with the host's own address.
    pub masquerade: bool,
    /// Networks to which they keep theirs all the same, each with the bits of its prefix.
    pub except: Vec<(IpAddr, u8)>,
}

/// An address of the tunnel's interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WantedAddress {
    /// The address.
    pub addr: IpAddr,
    /// Leading bits that its network has in common; all of them where there is a peer.
    pub prefix: u8,
    /// The other end, where the two have no network in common.
    pub peer: Option<IpAddr>,
}

/// How the MTU of the interface is found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mtu {
    /// So many bytes.
    Exact(u32),
    /// The MTU of the way to the endpoints, less what the tunnel adds to a packet.
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

/// A route, not yet resolved.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WantedRoute {
    /// The name in warnings.
    pub name: String,
    /// The network.
    pub to: Destination,
    /// Bits of the network's prefix.
    pub prefix: u8,
    /// Where it leads.
    pub gateway: Gateway,
    /// The metric; `None` for the kernel's choice.
    pub metric: Option<u32>,
    /// Number of the routing table, for routes into the tunnel.
    pub table: u32,
    /// The tunnel is useful without it, and it goes before a route of the host to the same network; otherwise such a
    /// route is a reason to fail.
    pub optional: bool,
    /// The other end asked for it, not the configuration.
    pub pushed: bool,
}

impl WantedRoute {
    /// True for a default route that is to win over the host's: one without a metric of its own.
    #[must_use]
    pub const fn leads_all(&self) -> bool {
        self.optional && self.prefix == 0 && self.metric.is_none() && self.table == MAIN
    }
}

/// The network of a route.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Destination {
    /// This one; bits behind the prefix are ignored.
    Network(IpAddr),
    /// The gateway of the host's default route.
    DefaultGateway {
        /// The route of IPv6.
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
    /// Into the tunnel. The address is named where it is on a network of the interface.
    Tunnel(Option<IpAddr>),
    /// Past the tunnel, by the gateway of the host's default route, and follows that.
    Default,
    /// By a router, which may be inside the tunnel or on a network of the host.
    Router(IpAddr),
}

/// How all IPv4 packets are led into the tunnel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DefaultV4 {
    /// By a table of its own and rules that except the tunnel's own packets; by halves where the
    /// kernel has no such rules.
    Rules,
    /// By two routes that are more specific than a default route.
    Halves,
    /// By a default route, which takes the place of the host's if both have the same metric.
    Replace,
}

/// How all IPv6 packets are led into the tunnel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DefaultV6 {
    /// By rules; see [`DefaultV4::Rules`].
    Rules,
    /// By routes to the global and the unique local networks, which are more specific than a
    /// default route.
    Global,
}

/// Which endpoints get a route that keeps them outside the tunnel.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum EndpointRoutes {
    /// Endpoints that a default route into the tunnel needs. The routes are made once, and tunnels share them.
    #[default]
    ForDefault,
    /// Endpoints that an address or a route of the tunnel covers. Each tunnel has its own routes, which follow the
    /// host's.
    Follow {
        /// IPv4 endpoints get one in any case.
        always_v4: bool,
        /// Endpoints on a network of the host get none.
        not_on_link: bool,
    },
    /// None.
    Off,
}

impl Want {
    /// True where rules lead packets into the tunnel, if the kernel has them.
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

    /// True when an address or a route into the tunnel is of IPv6.
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
