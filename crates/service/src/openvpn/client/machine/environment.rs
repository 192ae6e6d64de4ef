//! What scripts are told of the inside of a tunnel.

use super::super::super::network::{HostFacts, TunnelNetwork};
use super::super::super::policy::environment::Environment;
use super::super::super::policy::variables::RouteFacts;
use config::openvpn::{DhcpOptions, DnsOptions, Ifconfig, IfconfigV6, Place, Topology};
use openvpn::push::{self, PushReply};
use std::net::{IpAddr, Ipv4Addr};

/// The addresses of the interface: the server's word goes before the configuration's.
pub(super) fn ifconfig(reply: &PushReply, own: Option<Ifconfig>) -> Option<Ifconfig> {
    let pushed = reply
        .ifconfig
        .map(|(local, second)| Ifconfig { local, second });
    pushed.or(own)
}

/// Tells scripts what the inside looks like.
pub(super) fn describe(
    environment: &mut Environment,
    reply: &PushReply,
    set: Option<&(TunnelNetwork, HostFacts)>,
    ifconfig: Option<Ifconfig>,
    configured: Option<Topology>,
) {
    let topology = match reply.topology {
        Some(push::Topology::Subnet) => Topology::Subnet,
        Some(push::Topology::P2p) => Topology::P2p,
        Some(push::Topology::Net30) => Topology::Net30,
        None => configured.unwrap_or_default(),
    };
    let v6 = reply.ifconfig_ipv6.map(|i| IfconfigV6 {
        local: i.local,
        bits: i.prefix,
        remote: i.remote.unwrap_or(i.local),
    });
    environment.set_addresses(topology, ifconfig, v6);
    if let Some((network, facts)) = set {
        describe_routes(environment, network, facts);
    }
    let dns = &reply.dns;
    let mut lines = DhcpOptions::default().lines;
    lines.extend(dns.servers.iter().map(|server| match server {
        IpAddr::V4(addr) => format!("DNS {addr}"),
        IpAddr::V6(addr) => format!("DNS6 {addr}"),
    }));
    lines.extend(dns.domain.iter().map(|domain| format!("DOMAIN {domain}")));
    lines.extend(
        dns.search
            .iter()
            .map(|domain| format!("DOMAIN-SEARCH {domain}")),
    );
    environment.set_foreign_options(&lines);
    environment.set_dns(&DnsOptions::default());
    for (name, value) in &reply.setenv_safe {
        environment.set_safe(name, value);
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
            bits: route.prefix,
            gateway: route.gateway.as_ref().and_then(address).or(own),
            metric: route.metric,
        })
    });
    known.collect()
}

fn describe_routes(environment: &mut Environment, network: &TunnelNetwork, facts: &HostFacts) {
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
    if let Some(redirect) = network.redirect.filter(|redirect| redirect.gateway) {
        environment.set_redirect(redirect.ipv4, redirect.ipv6, redirect.block_local);
    }
}
