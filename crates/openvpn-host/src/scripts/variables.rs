//! Script variables by subject; names as in OpenVPN's manual, "Environmental Variables".

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
#[cfg(feature = "server")]
use std::time::Duration;
use std::time::SystemTime;

use config::openvpn::{
    Connection, DnsOptions, DnsTransport, Dnssec, Family, Ifconfig, IfconfigV6, OpenVpn, Place,
    Protocol, Proxy, Topology, Transport,
};

use super::environment::Environment;
use crate::network::{HostFacts, TunnelNetwork};
#[cfg(feature = "server")]
use crate::timestamp::Clock;
use crate::timestamp::unix;

/// A kernel route, for scripts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RouteFacts {
    /// Network, of the same family as the gateway.
    pub network: IpAddr,
    /// Prefix length of the network.
    pub bits: u8,
    /// Gateway of the route.
    pub gateway: Option<IpAddr>,
    /// Metric of the route.
    pub metric: Option<u32>,
}

/// Spelling of a connection's `proto`.
pub(crate) fn protocol_name(protocol: Protocol) -> String {
    let family = match protocol.family {
        Family::Any => "",
        Family::V4 => "4",
        Family::V6 => "6",
    };
    match protocol.transport {
        Transport::Udp => format!("udp{family}"),
        Transport::TcpClient => format!("tcp{family}-client"),
        Transport::TcpServer => format!("tcp{family}-server"),
    }
}

impl Environment {
    /// Sets the configuration's variables for all scripts. `file` is the first configuration file, `start` the
    /// process's start time.
    pub(crate) fn set_configuration(
        &mut self,
        model: &OpenVpn,
        file: Option<&str>,
        pid: u32,
        start: SystemTime,
    ) {
        let service = &model.service;
        self.set_or_remove("config", file);
        self.set("verb", service.verb);
        self.set("daemon", u8::from(service.daemon));
        self.set("daemon_log_redirect", u8::from(service.log.is_some()));
        self.set("daemon_start_time", unix(start));
        self.set("daemon_pid", pid);
        for (n, connection) in (1u32..).zip(&model.connections) {
            self.set_connection(n, connection);
        }
        let dhcp = &model.network.dhcp;
        self.set_foreign_options(&dhcp.lines, &DnsOptions::default());
        // Last, so that the administrator can override the variables above.
        for (name, value) in &model.scripts.environment {
            self.set(name, value);
        }
    }

    fn set_connection(&mut self, n: u32, connection: &Connection) {
        let name = |what: &str| format!("{what}_{n}");
        self.set(&name("proto"), protocol_name(connection.protocol));
        let local = &connection.local;
        let remote = connection.remote.as_ref();
        self.set_or_remove(&name("remote"), remote.map(|r| &r.host));
        // A server has no remote, so the variable holds its own port.
        let remote_port = remote.map_or(local.port, |r| r.port);
        self.set(&name("remote_port"), remote_port);
        self.set_or_remove(&name("local"), local.host.as_ref());
        self.set_or_remove(&name("local_port"), local.bind.then_some(local.port));
        let (kind, host, port) = match &connection.proxy {
            None => return,
            Some(Proxy::Http(proxy)) => ("http", &proxy.host, proxy.port),
            Some(Proxy::Socks { host, port, .. }) => ("socks", host, *port),
        };
        self.set(&name(&format!("{kind}_proxy_server")), host);
        self.set(&name(&format!("{kind}_proxy_port")), port);
    }

    /// Sets the peer's address: `prefix` is `trusted` once it is authenticated, `untrusted` before.
    pub fn set_peer(&mut self, prefix: &str, addr: SocketAddr) {
        for suffix in ["ip", "ip6", "port"] {
            self.remove(&format!("{prefix}_{suffix}"));
        }
        let (suffix, ip) = match addr.ip().to_canonical() {
            ip @ IpAddr::V4(_) => ("ip", ip),
            ip @ IpAddr::V6(_) => ("ip6", ip),
        };
        self.set(&format!("{prefix}_{suffix}"), ip);
        self.set(&format!("{prefix}_port"), addr.port());
    }

    /// Sets the interface; `context` is `init` or `restart`.
    pub fn set_device(&mut self, name: &str, mtu: u16, context: &str) {
        self.set("dev", name);
        self.set("dev_type", "tun");
        self.set("tun_mtu", mtu);
        self.set("script_context", context);
    }

    /// Sets the interface's own addresses.
    pub fn set_addresses(
        &mut self,
        topology: Topology,
        ifconfig: Option<Ifconfig>,
        ifconfig_v6: Option<IfconfigV6>,
    ) {
        for second in ["ifconfig_netmask", "ifconfig_remote", "ifconfig_local"] {
            self.remove(second);
        }
        self.remove_all("ifconfig_ipv6_");
        if let Some(ifconfig) = ifconfig {
            self.set("ifconfig_local", ifconfig.local);
            let second = match topology {
                Topology::Subnet => "ifconfig_netmask",
                Topology::Net30 | Topology::P2p => "ifconfig_remote",
            };
            self.set(second, ifconfig.second);
        }
        if let Some(ifconfig) = ifconfig_v6 {
            self.set("ifconfig_ipv6_local", ifconfig.local);
            self.set("ifconfig_ipv6_netbits", ifconfig.bits);
            self.set_or_remove("ifconfig_ipv6_remote", ifconfig.remote);
        }
    }

    /// Sets the tunnel's gateway, and the default gateway from before the tunnel.
    pub(crate) fn set_gateways(
        &mut self,
        vpn: Option<Ipv4Addr>,
        net: Option<Ipv4Addr>,
        net_v6: Option<Ipv6Addr>,
    ) {
        self.set_or_remove("route_vpn_gateway", vpn);
        self.set_or_remove("route_net_gateway", net);
        self.set_or_remove("net_gateway_ipv6", net_v6);
    }

    /// Sets the routes, numbered from 1 within each family.
    pub(crate) fn set_routes(&mut self, routes: &[RouteFacts]) {
        for kind in ["network", "netmask", "gateway", "metric"] {
            self.remove_all(&format!("route_{kind}_"));
            self.remove_all(&format!("route_ipv6_{kind}_"));
        }
        let (v4, v6): (Vec<&RouteFacts>, Vec<_>) = routes.iter().partition(|r| r.network.is_ipv4());
        for (n, route) in (1u32..).zip(v4) {
            self.set(&format!("route_network_{n}"), route.network);
            let netmask = host::masked(Ipv4Addr::BROADCAST.into(), route.bits);
            self.set(&format!("route_netmask_{n}"), netmask);
            self.set_way("route", n, route);
        }
        for (n, route) in (1u32..).zip(v6) {
            let network = format!("{}/{}", route.network, route.bits);
            self.set(&format!("route_ipv6_network_{n}"), network);
            self.set_way("route_ipv6", n, route);
        }
    }

    fn set_way(&mut self, prefix: &str, n: u32, route: &RouteFacts) {
        self.set_or_remove(&format!("{prefix}_gateway_{n}"), route.gateway);
        self.set_or_remove(&format!("{prefix}_metric_{n}"), route.metric);
    }

    /// Sets, by family, whether the default route goes through the tunnel; `block_local` means that the local network
    /// is blocked.
    pub(crate) fn set_redirect(&mut self, ipv4: bool, ipv6: bool, block_local: bool) {
        let how = if block_local { 2 } else { 1 };
        self.set("redirect_gateway", u8::from(ipv4));
        self.set_or_remove("route_redirect_gateway_ipv4", ipv4.then_some(how));
        self.set_or_remove("route_redirect_gateway_ipv6", ipv6.then_some(how));
    }

    /// Sets name servers and domains as scripts before `dns` expect them: the texts of `dhcp-option` lines. Servers or
    /// domains in `dns` replace those in `lines`.
    pub fn set_foreign_options(&mut self, lines: &[String], dns: &DnsOptions) {
        self.remove_all("foreign_option_");
        let mut told = lines.to_vec();
        if !dns.servers.is_empty() {
            told.retain(|line| !line.starts_with("DNS"));
        }
        if !dns.search_domains.is_empty() {
            told.retain(|line| !line.starts_with("DOMAIN-SEARCH"));
        }
        let servers = dns.servers.iter();
        let addresses = servers.flat_map(|(_, server)| &server.addresses);
        told.extend(addresses.map(|address| match address.ip() {
            IpAddr::V4(address) => format!("DNS {address}"),
            IpAddr::V6(address) => format!("DNS6 {address}"),
        }));
        let domains = dns.search_domains.iter();
        told.extend(domains.map(|domain| format!("DOMAIN-SEARCH {domain}")));
        for (n, line) in (1u32..).zip(told) {
            let name = format!("foreign_option_{n}");
            self.set(&name, format!("dhcp-option {line}"));
        }
    }

    /// Sets the `dns` options, for `dns-updown`.
    pub fn set_dns(&mut self, dns: &DnsOptions) {
        self.remove_all("dns_");
        for (n, domain) in (1u32..).zip(&dns.search_domains) {
            self.set(&format!("dns_search_domain_{n}"), domain);
        }
        for (n, (_, server)) in (1u32..).zip(&dns.servers) {
            let name = |what: &str| format!("dns_server_{n}_{what}");
            for (m, addr) in (1u32..).zip(&server.addresses) {
                self.set(&name(&format!("address_{m}")), addr.ip());
                let port = (addr.port() != 0).then_some(addr.port());
                self.set_or_remove(&name(&format!("port_{m}")), port);
            }
            for (m, domain) in (1u32..).zip(&server.resolve_domains) {
                self.set(&name(&format!("resolve_domain_{m}")), domain);
            }
            let dnssec = match server.dnssec {
                Dnssec::Unset => None,
                Dnssec::Yes => Some("yes"),
                Dnssec::Optional => Some("optional"),
                Dnssec::No => Some("no"),
            };
            self.set_or_remove(&name("dnssec"), dnssec);
            let transport = match server.transport {
                DnsTransport::Plain => None,
                DnsTransport::Tls => Some("DoT"),
                DnsTransport::Https => Some("DoH"),
            };
            self.set_or_remove(&name("transport"), transport);
            self.set_or_remove(&name("sni"), server.sni.as_ref());
        }
    }
}

fn routes(network: &TunnelNetwork) -> Vec<RouteFacts> {
    let address = |place: &Place| match place {
        Place::Address(addr) => Some(*addr),
        _ => None,
    };
    let known = network.routes.iter().filter_map(|route| {
        let own = if route.v6 {
            network.gateway_v6.map(IpAddr::V6)
        } else {
            network.gateway
        };
        Some(RouteFacts {
            network: address(&route.network)?,
            bits: route.bits,
            gateway: route.gateway.as_ref().and_then(address).or(own),
            metric: route.metric,
        })
    });
    known.collect()
}

/// Adds the variables about a tunnel's routes and gateways, for a client or a server.
pub fn describe_routes(environment: &mut Environment, network: &TunnelNetwork, facts: &HostFacts) {
    let v4 = |addr: IpAddr| match addr {
        IpAddr::V4(addr) => Some(addr),
        IpAddr::V6(_) => None,
    };
    let mut before: (Option<Ipv4Addr>, _) = (None, None);
    for route in &facts.defaults {
        match route.via {
            Some(IpAddr::V4(via)) => before.0 = before.0.or(Some(via)),
            Some(IpAddr::V6(via)) => before.1 = before.1.or(Some(via)),
            None => {}
        }
    }
    environment.set_gateways(network.gateway.and_then(v4), before.0, before.1);
    environment.set_routes(&routes(network));
    match network.redirect.filter(|redirect| redirect.gateway) {
        Some(redirect) => {
            environment.set_redirect(redirect.ipv4, redirect.ipv6, redirect.block_local);
        }
        None => environment.set_redirect(false, false, false),
    }
}

#[cfg(feature = "server")]
impl Environment {
    /// Sets a client's addresses in the tunnel: `local` is the client's; the second is its netmask or the server's.
    pub fn set_pool(
        &mut self,
        topology: Topology,
        ifconfig: Option<Ifconfig>,
        ifconfig_v6: Option<IfconfigV6>,
    ) {
        self.remove_all("ifconfig_pool_");
        if let Some(ifconfig) = ifconfig {
            self.set("ifconfig_pool_remote_ip", ifconfig.local);
            let second = match topology {
                Topology::Subnet => "ifconfig_pool_netmask",
                Topology::Net30 | Topology::P2p => "ifconfig_pool_local_ip",
            };
            self.set(second, ifconfig.second);
        }
        if let Some(ifconfig) = ifconfig_v6 {
            self.set("ifconfig_pool_remote_ip6", ifconfig.local);
            self.set_or_remove("ifconfig_pool_local_ip6", ifconfig.remote);
            self.set("ifconfig_pool_ip6_netbits", ifconfig.bits);
        }
    }

    /// Sets when a client connected.
    pub fn set_connected(&mut self, at: SystemTime, clock: &Clock) {
        self.set("time_ascii", clock.ascii(at));
        self.set("time_unix", unix(at));
    }

    /// Sets a departed client's traffic in bytes, and how long it was connected.
    pub fn set_traffic(&mut self, received: u64, sent: u64, duration: Duration) {
        self.set("bytes_received", received);
        self.set("bytes_sent", sent);
        self.set("time_duration", duration.as_secs());
    }
}

#[cfg(test)]
mod tests;
