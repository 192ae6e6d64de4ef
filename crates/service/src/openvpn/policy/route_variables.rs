//! Script variables about a tunnel's routes.

use std::net::{IpAddr, Ipv4Addr};

use config::openvpn::Place;

use super::environment::Environment;
use super::variables::RouteFacts;
use crate::openvpn::network::{HostFacts, TunnelNetwork};

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

/// Adds the variables about a tunnel's routes and gateways, for a client or a server.
pub(crate) fn describe_routes(
    environment: &mut Environment,
    network: &TunnelNetwork,
    facts: &HostFacts,
) {
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
