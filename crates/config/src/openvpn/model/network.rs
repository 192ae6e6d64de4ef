//! Addresses, routes and names inside the tunnel.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub use openvpn::push::{FilterAction, Redirect, Topology};

use crate::home::HomeServer;

/// `ifconfig LOCAL SECOND`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ifconfig {
    /// Our address.
    pub local: Ipv4Addr,
    /// The peer's address, or the netmask with [`Topology::Subnet`].
    pub second: Ipv4Addr,
}

/// `ifconfig-ipv6 LOCAL/BITS REMOTE`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct IfconfigV6 {
    /// Our address.
    pub local: Ipv6Addr,
    /// Length of the prefix, in bits.
    pub bits: u8,
    /// The peer's address.
    pub remote: Ipv6Addr,
}

/// A place in a `route` line: an address, a name, or a word that stands for one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Place {
    /// `vpn_gateway`, or an omitted word: the other end of the tunnel.
    VpnGateway,
    /// `net_gateway`: the gateway of the default route before the tunnel.
    NetGateway,
    /// `remote_host`: the server's outer address.
    RemoteHost,
    /// An address.
    Address(IpAddr),
    /// A name to resolve when the route is set.
    Name(String),
}

/// `route NETWORK [NETMASK] [GATEWAY] [METRIC]`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Route {
    /// The network.
    pub network: Place,
    /// Length of the prefix, in bits, 0 to 32.
    pub bits: u8,
    /// The gateway; `None` for [`Network::route_gateway`] or the tunnel.
    pub gateway: Option<Place>,
    /// The metric; `None` for [`Network::route_metric`].
    pub metric: Option<u32>,
}

/// `route-ipv6 NETWORK/BITS [GATEWAY] [METRIC]`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RouteV6 {
    /// The network.
    pub network: Ipv6Addr,
    /// Length of the prefix, in bits, 0 to 128.
    pub bits: u8,
    /// The gateway; `None` for the tunnel.
    pub gateway: Option<Ipv6Addr>,
    /// The metric; `None` for [`Network::route_metric`].
    pub metric: Option<u32>,
}

/// `route-gateway`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RouteGateway {
    /// An address or a name.
    Fixed(Place),
    /// `dhcp`.
    Dhcp,
}

/// `dhcp-option` lines, by kind, in their order.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DhcpOptions {
    /// `DNS`, `DNS6`: name servers.
    pub dns: Vec<IpAddr>,
    /// `DOMAIN`: the last one counts.
    pub domain: Option<String>,
    /// `DOMAIN-SEARCH`, `ADAPTER_DOMAIN_SUFFIX`.
    pub search: Vec<String>,
    /// The values of every line, without the word `dhcp-option`. Scripts get the whole lines as `foreign_option_N`.
    pub lines: Vec<String>,
}

/// `dns`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DnsOptions {
    /// `dns server N …` by priority: the lowest number first.
    pub servers: BTreeMap<i8, DnsServer>,
    /// `dns search-domains`.
    pub search_domains: Vec<String>,
}

/// `dns server N`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DnsServer {
    /// `address`: up to 8; port 0 means the transport's default.
    pub addresses: Vec<SocketAddr>,
    /// `resolve-domains`: only these domains are asked of this server.
    pub resolve_domains: Vec<String>,
    /// `dnssec`.
    pub dnssec: Dnssec,
    /// `transport`.
    pub transport: DnsTransport,
    /// `sni`: the server's name in TLS.
    pub sni: Option<String>,
}

/// `dns server N dnssec`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Dnssec {
    /// Not given.
    #[default]
    Unset,
    /// `yes`.
    Yes,
    /// `optional`.
    Optional,
    /// `no`.
    No,
}

/// `dns server N transport`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum DnsTransport {
    /// `plain`, the default.
    #[default]
    Plain,
    /// `DoT`.
    Tls,
    /// `DoH`.
    Https,
}

/// Settings inside the tunnel: addresses, routes and name servers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Network {
    /// The `[Server]` section, from comments.
    pub home: Option<HomeServer>,
    /// `topology`; `None` when not given, which means [`Topology::Net30`].
    pub topology: Option<Topology>,
    /// `ifconfig`; in a server the address that `server` derives.
    pub ifconfig: Option<Ifconfig>,
    /// `ifconfig-ipv6`.
    pub ifconfig_v6: Option<IfconfigV6>,
    /// `ifconfig-noexec`: scripts set the addresses.
    pub ifconfig_noexec: bool,
    /// `route`.
    pub routes: Vec<Route>,
    /// `route-ipv6`.
    pub routes_v6: Vec<RouteV6>,
    /// `route-gateway`.
    pub route_gateway: Option<RouteGateway>,
    /// `route-ipv6-gateway`.
    pub route_gateway_v6: Option<Ipv6Addr>,
    /// `route-metric`.
    pub route_metric: Option<u32>,
    /// `route-delay`: seconds before routes are set; `None` for no delay.
    pub route_delay: Option<u32>,
    /// `route-nopull`: ignores pushed routes and name servers.
    pub route_nopull: bool,
    /// `route-noexec`: scripts set the routes.
    pub route_noexec: bool,
    /// `redirect-gateway`, `redirect-private`.
    pub redirect: Option<Redirect>,
    /// `block-ipv6`: IPv6 packets are answered with "unreachable" instead of being sent.
    pub block_ipv6: bool,
    /// `allow-recursive-routing`: outer packets may go through the tunnel.
    pub allow_recursive_routing: bool,
    /// `dhcp-option`.
    pub dhcp: DhcpOptions,
    /// `dns`.
    pub dns: DnsOptions,
}
