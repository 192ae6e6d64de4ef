//! Addresses, routes and names inside the tunnel.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::home::HomeServer;

/// `topology`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Topology {
    /// A point-to-point pair of a /30 for each client; the default of 2.4 to 2.6.
    #[default]
    Net30,
    /// A point-to-point pair, with one server address for all clients.
    P2p,
    /// One subnet for all clients.
    Subnet,
}

impl Topology {
    /// The topology's name in files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Net30 => "net30",
            Self::P2p => "p2p",
            Self::Subnet => "subnet",
        }
    }
}

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

/// `redirect-gateway` and `redirect-private`, whose flags add up.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Redirect {
    /// True for `redirect-gateway`: the default route goes through the tunnel. False if only `redirect-private` is
    /// given.
    pub gateway: bool,
    /// IPv4 is redirected: true unless `!ipv4`.
    pub ipv4: bool,
    /// `ipv6`: IPv6 is redirected too.
    pub ipv6: bool,
    /// `local`: the server is on the same subnet and needs no route of its own.
    pub local: bool,
    /// `autolocal`: find out whether the server is on the same subnet.
    pub autolocal: bool,
    /// `def1`: two half-size routes instead of the default route.
    pub def1: bool,
    /// `bypass-dhcp`: a route past the tunnel to the DHCP server.
    pub bypass_dhcp: bool,
    /// `bypass-dns`: a route past the tunnel to the name servers.
    pub bypass_dns: bool,
    /// `block-local`: the local network is cut off while the tunnel is up.
    pub block_local: bool,
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

/// The effect of `pull-filter` on an option that begins with its text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FilterAction {
    /// The option is accepted.
    Accept,
    /// The option is ignored.
    Ignore,
    /// The connection is closed.
    Reject,
}

/// `pull-filter ACTION TEXT`; the first match decides.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PullFilter {
    /// The action.
    pub action: FilterAction,
    /// The beginning of the matching options.
    pub prefix: String,
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
