//! Host settings that the merged options of a tunnel ask for.

use std::collections::BTreeMap;
use std::net::IpAddr;

use config::openvpn::{Place, Redirect, Route};
use host::{
    DefaultV4, DefaultV6, Destination, EndpointRoutes, Gateway, MAIN, Mtu, Want, WantedRoute,
};

use super::merge::TunnelNetwork;

/// Inputs besides the options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outside<'a> {
    /// Destination of the outer packets: the server, or the proxy in front of it. `None` in a server.
    pub(crate) remote: Option<IpAddr>,
    /// Firewall mark of the outer packets, 0 for none.
    pub(crate) mark: u32,
    /// Addresses of the names in routes.
    pub(crate) names: &'a BTreeMap<String, Vec<IpAddr>>,
}

impl TunnelNetwork {
    /// Converts the options to host settings.
    pub(crate) fn want(&self, outside: Outside<'_>) -> Want {
        let mut want = Want {
            addresses: self.addresses.clone(),
            pushed_addresses: self.pushed_addresses && !self.ifconfig_noexec,
            mtu: Mtu::Exact(self.mtu.into()),
            leaves_interface: self.ifconfig_noexec,
            name_servers: self.dns.clone(),
            gateway: self.gateway,
            endpoints: outside.remote.into_iter().collect(),
            endpoint_routes: EndpointRoutes::Off,
            fwmark: outside.mark,
            forwarding: self.forwarding.clone(),
            ..Want::default()
        };
        if self.route_noexec {
            return want;
        }
        for route in &self.routes {
            if let Err(why) = self.add(route, outside, &mut want.routes) {
                let warning = format!("{} is skipped: {why}", name(route));
                want.warnings.push(warning);
            }
        }
        want.block_ipv6 = self.block_ipv6;
        if let Some(flags) = self.redirect {
            redirect(flags, &mut want);
        }
        let flags = self.redirect.unwrap_or_default();
        if !self.recursive && !flags.local {
            want.endpoint_routes = EndpointRoutes::Follow {
                always_v4: self.redirect.is_some(),
                not_on_link: flags.autolocal,
            };
        }
        want
    }

    fn add(
        &self,
        route: &Route,
        outside: Outside<'_>,
        routes: &mut Vec<WantedRoute>,
    ) -> Result<(), String> {
        let gateway = match &route.gateway {
            None | Some(Place::VpnGateway) => Gateway::Tunnel(self.gateway.filter(|_| !route.v6)),
            Some(Place::NetGateway) => Gateway::Default,
            // The first address, as in OpenVPN.
            Some(place) => match self.addresses_of(place, route.v6, outside)?.first() {
                Some(&addr) if Some(addr) == self.gateway => Gateway::Tunnel(Some(addr)),
                Some(&addr) => Gateway::Router(addr),
                None => return Err("its gateway has no known address".to_owned()),
            },
        };
        let networks = match route.network {
            Place::NetGateway => vec![Destination::DefaultGateway { v6: route.v6 }],
            ref place => {
                let found = self.addresses_of(place, route.v6, outside)?;
                found.into_iter().map(Destination::Network).collect()
            }
        };
        routes.extend(networks.into_iter().map(|to| WantedRoute {
            name: name(route),
            to,
            prefix: route.bits,
            gateway,
            metric: route.metric,
            table: MAIN,
            optional: true,
            pushed: route.pushed,
        }));
        Ok(())
    }

    /// Resolves a place to its addresses of one family.
    fn addresses_of(
        &self,
        place: &Place,
        v6: bool,
        outside: Outside<'_>,
    ) -> Result<Vec<IpAddr>, String> {
        let found = match place {
            Place::Address(addr) => Some(*addr),
            Place::VpnGateway if v6 => self.gateway_v6.map(IpAddr::from),
            Place::VpnGateway => self.gateway,
            Place::RemoteHost => outside.remote,
            Place::NetGateway => None,
            Place::Name(name) => {
                let found = outside.names.get(name).into_iter().flatten().copied();
                let found: Vec<IpAddr> = found.filter(|addr| addr.is_ipv6() == v6).collect();
                if found.is_empty() {
                    return Err(format!("{name} has no address"));
                }
                return Ok(found);
            }
        };
        match found {
            Some(addr) if addr.is_ipv6() == v6 => Ok(vec![addr]),
            Some(addr) => Err(format!("{addr} is not of the route's IP version")),
            None => Err("its address is not known".to_owned()),
        }
    }
}

fn redirect(flags: Redirect, want: &mut Want) {
    want.bypass_name_servers = flags.bypass_dns;
    want.block_local = flags.block_local;
    if flags.gateway && flags.ipv4 {
        want.default_v4 = Some(if flags.def1 {
            DefaultV4::Halves
        } else {
            DefaultV4::Replace
        });
    }
    if flags.gateway && flags.ipv6 {
        want.default_v6 = Some(DefaultV6::Global);
    }
}

/// Formats a route as in a configuration.
fn name(route: &Route) -> String {
    let option = if route.v6 { "route-ipv6" } else { "route" };
    let network = match &route.network {
        Place::Address(addr) => addr.to_string(),
        Place::Name(name) => name.clone(),
        Place::VpnGateway => "vpn_gateway".to_owned(),
        Place::NetGateway => "net_gateway".to_owned(),
        Place::RemoteHost => "remote_host".to_owned(),
    };
    format!("{option} {network}/{}", route.bits)
}
