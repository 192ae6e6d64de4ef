//! Addresses, routes and names inside the tunnel.

use std::net::{IpAddr, Ipv6Addr};

pub use openvpn::push::{
    DnsOptions, DnsServer, DnsTransport, Dnssec, FilterAction, Ifconfig, IfconfigV6, Place,
    Redirect, Route, Topology,
};

use crate::home::HomeServer;

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
    pub routes_v6: Vec<Route>,
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
