//! Decides what has to be done. Pure: a network and facts in, steps out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use config::openvpn::{Place, Redirect};

use super::facts::HostFacts;
use super::merge::{TunnelAddress, TunnelNetwork, WantedRoute};
use crate::network::{EndpointWay, Plan, SavedRoute, Step, covers};

/// First metric of routes past the tunnel. Not 0: whatever the owner made goes before, and what
/// is deleted in the end is surely ours.
const METRIC: u32 = 1;

/// Below this MTU the kernel has no IPv6 on an interface.
const IPV6_MTU_MIN: u16 = 1280;

/// The global IPv6 networks, more specific than a default route, as OpenVPN redirects them.
const GLOBAL_V6: [(Ipv6Addr, u8); 4] = [
    (Ipv6Addr::UNSPECIFIED, 3),
    (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 4),
    (Ipv6Addr::new(0x3000, 0, 0, 0, 0, 0, 0, 0), 4),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7),
];

/// The two halves of IPv4.
const HALVES: [Ipv4Addr; 2] = [Ipv4Addr::UNSPECIFIED, Ipv4Addr::new(128, 0, 0, 0)];

impl TunnelNetwork {
    /// What comes before the `up` script: addresses, MTU, the interface itself, name servers.
    /// `no_dns` leaves the name servers alone.
    pub(crate) fn interface_plan(&self, facts: &HostFacts, no_dns: bool) -> Plan {
        let mut plan = Plan {
            mtu: self.mtu.into(),
            ..Plan::default()
        };
        if self.ifconfig_noexec {
            return plan;
        }
        // The MTU first: below 1280 bytes the kernel takes the IPv6 addresses away.
        plan.steps.push(Step::Mtu {
            mtu: self.mtu.into(),
        });
        for &TunnelAddress { addr, prefix, peer } in &self.addresses {
            if addr.is_ipv6() && !self.has_v6(facts) {
                let why = "the tunnel's IPv6 address is left out: IPv6 is off on this host, or the \
                    MTU is below 1280 bytes";
                plan.warnings.push(why.to_owned());
                continue;
            }
            plan.steps.push(Step::TunnelAddress { addr, prefix, peer });
        }
        plan.steps.push(Step::Up);
        self.add_dns(&mut plan, facts, no_dns);
        plan
    }

    fn has_v6(&self, facts: &HostFacts) -> bool {
        facts.ipv6 && self.mtu >= IPV6_MTU_MIN
    }

    fn add_dns(&self, plan: &mut Plan, facts: &HostFacts, no_dns: bool) {
        let Some(dns) = self.dns.as_ref().filter(|_| !no_dns) else {
            return;
        };
        let Some(resolver) = facts.resolver.clone() else {
            let why = "DNS cannot be applied: neither resolvconf nor resolvectl is installed, nor \
                is this OpenWrt with dnsmasq. Names are still looked up outside the tunnel";
            return plan.warnings.push(why.to_owned());
        };
        let mut only = dns.only.clone();
        if !only.is_empty() && !resolver.can_split() {
            let why = "resolvconf cannot ask name servers about some domains alone: the tunnel's \
                are asked about all names";
            plan.warnings.push(why.to_owned());
            only.clear();
        }
        plan.steps.push(Step::Dns {
            resolver,
            servers: dns.servers.clone(),
            search: dns.search.clone(),
            only,
        });
    }

    /// What comes after the `up` script and `route-delay`: the routes, those past the tunnel
    /// first.
    pub(crate) fn route_plan(&self, facts: &HostFacts) -> Plan {
        let mut routes = Routes {
            network: self,
            facts,
            past: Vec::new(),
            blocked: Vec::new(),
            displaced: Vec::new(),
            inside: Vec::new(),
            warnings: Vec::new(),
        };
        if !self.route_noexec {
            for route in &self.routes {
                routes.add(route);
            }
            if let Some(flags) = self.redirect {
                routes.redirect(flags);
            }
            if self.block_ipv6 && facts.ipv6 {
                routes.block_v6();
            }
            routes.keep_server();
        }
        let mut steps = routes.past;
        steps.append(&mut routes.blocked);
        steps.append(&mut routes.displaced);
        steps.append(&mut routes.inside);
        Plan {
            steps,
            fwmark: 0,
            mtu: self.mtu.into(),
            warnings: routes.warnings,
        }
    }
}

/// The routes while they are decided on.
struct Routes<'a> {
    network: &'a TunnelNetwork,
    facts: &'a HostFacts,
    past: Vec<Step>,
    blocked: Vec<Step>,
    displaced: Vec<Step>,
    inside: Vec<Step>,
    warnings: Vec<String>,
}

/// Where a route leads.
enum Gateway {
    Tunnel(Option<IpAddr>),
    Past {
        via: Option<IpAddr>,
        dev: u32,
        towards: Option<IpAddr>,
    },
}

impl Routes<'_> {
    fn add(&mut self, route: &WantedRoute) {
        let networks = match self.places(&route.network, route.v6) {
            Ok(networks) => networks,
            Err(why) => return self.leave_out(route, &why),
        };
        let gateway = match self.gateway(route) {
            Ok(gateway) => gateway,
            Err(why) => return self.leave_out(route, &why),
        };
        for network in networks {
            let (dst, prefix) = (masked(network, route.prefix), route.prefix);
            match gateway {
                Gateway::Tunnel(_) if route.v6 && !self.network.has_v6(self.facts) => {
                    return self.leave_out(route, "there is no IPv6 on the interface");
                }
                // `block-ipv6` answers these instead.
                Gateway::Tunnel(_) if route.v6 && self.network.block_ipv6 => {
                    self.block(dst, prefix);
                }
                Gateway::Tunnel(via) => self.lead_in(dst, prefix, via, route.metric),
                Gateway::Past { via, dev, towards } => push_once(
                    &mut self.past,
                    Step::OuterRoute {
                        dst,
                        prefix,
                        via,
                        dev,
                        metric: route.metric.unwrap_or(METRIC).max(METRIC),
                        towards,
                    },
                ),
            }
        }
    }

    fn leave_out(&mut self, route: &WantedRoute, why: &str) {
        let name = if route.v6 { "route-ipv6" } else { "route" };
        let network = match &route.network {
            Place::Address(addr) => addr.to_string(),
            Place::Name(name) => name.clone(),
            Place::VpnGateway => "vpn_gateway".to_owned(),
            Place::NetGateway => "net_gateway".to_owned(),
            Place::RemoteHost => "remote_host".to_owned(),
        };
        let warning = format!("{name} {network}/{} is left out: {why}", route.prefix);
        self.warnings.push(warning);
    }

    /// The addresses that a place stands for.
    fn places(&self, place: &Place, v6: bool) -> Result<Vec<IpAddr>, String> {
        let default = || self.facts.default_of(v6);
        let found = match place {
            Place::Address(addr) => Some(*addr),
            Place::VpnGateway if v6 => self.network.gateway_v6.map(IpAddr::from),
            Place::VpnGateway => self.network.gateway,
            Place::NetGateway => default().and_then(|route| route.via),
            Place::RemoteHost => self.facts.server.as_ref().map(|way| way.addr),
            Place::Name(name) => {
                let found = self.facts.names.get(name).into_iter().flatten().copied();
                let found: Vec<IpAddr> = found.filter(|addr| addr.is_ipv6() == v6).collect();
                if found.is_empty() {
                    return Err(format!("{name} has no address"));
                }
                return Ok(found);
            }
        };
        match found {
            Some(addr) if addr.is_ipv6() == v6 => Ok(vec![addr]),
            Some(addr) => Err(format!("{addr} is of the other IP version")),
            None => Err("what it names is not known here".to_owned()),
        }
    }

    fn gateway(&self, route: &WantedRoute) -> Result<Gateway, String> {
        let place = match &route.gateway {
            None | Some(Place::VpnGateway) => {
                let gateway = if route.v6 { None } else { self.network.gateway };
                return Ok(self.inner(gateway));
            }
            Some(Place::NetGateway) => {
                let default = self.facts.default_of(route.v6);
                let default =
                    default.ok_or("there is no default route to take its gateway from")?;
                return Ok(Gateway::Past {
                    via: default.via,
                    dev: default.dev.ok_or("the default route has several ways")?,
                    towards: Some(default.dst),
                });
            }
            Some(place) => place,
        };
        // The first one, as OpenVPN.
        let addr = self.places(place, route.v6)?[0];
        if Some(addr) == self.network.gateway || self.is_inside(addr) {
            return Ok(self.inner(Some(addr)));
        }
        match self
            .facts
            .ways
            .get(&addr)
            .or_else(|| self.facts.server.as_ref().filter(|w| w.addr == addr))
        {
            Some(EndpointWay {
                via: None,
                dev: Some(dev),
                local: false,
                ..
            }) => Ok(Gateway::Past {
                via: Some(addr),
                dev: *dev,
                towards: None,
            }),
            _ => Err(format!("its gateway {addr} is on no network of this host")),
        }
    }

    /// Into the tunnel; a gateway is named where the kernel would accept it. To a TUN it makes no
    /// difference.
    fn inner(&self, gateway: Option<IpAddr>) -> Gateway {
        Gateway::Tunnel(gateway.filter(|&gateway| gateway.is_ipv4() && self.is_inside(gateway)))
    }

    fn is_inside(&self, addr: IpAddr) -> bool {
        let own = |own: &TunnelAddress| match own.peer {
            Some(peer) => peer == addr,
            None => own.addr != addr && covers(own.addr, own.prefix, addr),
        };
        self.network.addresses.iter().any(own)
    }

    fn lead_in(&mut self, dst: IpAddr, prefix: u8, via: Option<IpAddr>, metric: Option<u32>) {
        let step = Step::TunnelRoute {
            dst,
            prefix,
            via,
            metric,
        };
        push_once(&mut self.inside, step);
    }

    fn redirect(&mut self, flags: Redirect) {
        if flags.bypass_dns {
            for addr in &self.facts.name_servers {
                let way = self.facts.ways.get(addr).and_then(host_route);
                if let Some(step) = way {
                    push_once(&mut self.past, step);
                }
            }
        }
        let gateway = self.network.gateway;
        let Gateway::Tunnel(via) = self.inner(gateway) else {
            return;
        };
        if flags.gateway && flags.ipv4 {
            self.redirect_v4(flags, via);
        }
        if flags.block_local {
            self.block_local(via);
        }
        if flags.gateway && flags.ipv6 && !self.network.block_ipv6 {
            if self.network.has_v6(self.facts) {
                for (network, prefix) in GLOBAL_V6 {
                    self.lead_in(network.into(), prefix, None, None);
                }
            } else {
                self.warnings
                    .push("IPv6 is not redirected: there is none on the interface".to_owned());
            }
        }
    }

    fn redirect_v4(&mut self, flags: Redirect, via: Option<IpAddr>) {
        let any = Ipv4Addr::UNSPECIFIED.into();
        // Ours has metric 0: only what has it too is in the way.
        let in_the_way = |metric: Option<u32>| metric.unwrap_or(0) == 0;
        let defaults = self.facts.defaults.iter();
        let mut displaced = Vec::new();
        let mut whole = !flags.def1;
        for route in defaults.filter(|r| r.dst.is_ipv4() && in_the_way(r.metric)) {
            match SavedRoute::new(route) {
                Some(saved) => displaced.push(Step::Displace(saved)),
                None if whole => {
                    whole = false;
                    self.warnings.push(
                        "the default route has several ways and is not replaced: two halves win \
                         over it, as with def1"
                            .to_owned(),
                    );
                }
                None => {}
            }
        }
        if whole {
            self.displaced.append(&mut displaced);
            self.lead_in(any, 0, via, None);
        } else {
            for half in HALVES {
                self.lead_in(half.into(), 1, via, None);
            }
        }
    }

    /// Two halves of the local network into the tunnel, its gateway excepted.
    fn block_local(&mut self, via: Option<IpAddr>) {
        let Some(default) = self.facts.default_of(false) else {
            return;
        };
        let (Some(gateway), Some(dev)) = (default.via, default.dev) else {
            return;
        };
        // The server itself is on that network: it would be cut off.
        if self
            .facts
            .server
            .as_ref()
            .is_some_and(|way| way.via.is_none() || way.addr == gateway)
        {
            self.warnings
                .push("block-local is left out: the server is on the local network".to_owned());
            return;
        }
        push_once(
            &mut self.past,
            Step::OuterRoute {
                dst: gateway,
                prefix: 32,
                via: None,
                dev,
                metric: METRIC,
                towards: None,
            },
        );
        for &(addr, prefix) in &self.facts.local_networks {
            let IpAddr::V4(addr) = addr else { continue };
            if prefix >= 31 {
                continue;
            }
            let half = 1_u32 << (31 - prefix);
            let IpAddr::V4(low) = masked(addr.into(), prefix) else {
                continue;
            };
            for bits in [low.to_bits(), low.to_bits() | half] {
                self.lead_in(Ipv4Addr::from_bits(bits).into(), prefix + 1, via, None);
            }
        }
    }

    fn block_v6(&mut self) {
        for (network, prefix) in GLOBAL_V6 {
            self.block(network.into(), prefix);
        }
    }

    fn block(&mut self, dst: IpAddr, prefix: u8) {
        push_once(
            &mut self.blocked,
            Step::Unreachable {
                dst,
                prefix,
                metric: METRIC,
            },
        );
    }

    /// The route to the server, where a route of the tunnel would lead its packets astray.
    fn keep_server(&mut self) {
        let Some(way) = self
            .facts
            .server
            .as_ref()
            .filter(|_| !self.network.recursive)
        else {
            return;
        };
        let flags = self.network.redirect.unwrap_or_default();
        if flags.local || (flags.autolocal && way.via.is_none()) {
            return;
        }
        let covered = |step: &Step| match *step {
            Step::TunnelRoute { dst, prefix, .. } | Step::Unreachable { dst, prefix, .. } => {
                covers(dst, prefix, way.addr)
            }
            _ => false,
        };
        let steps = self.inside.iter().chain(&self.blocked);
        let own = |own: &TunnelAddress| match own.peer {
            Some(peer) => peer == way.addr,
            None => covers(own.addr, own.prefix, way.addr),
        };
        let private = self.network.redirect.is_some() && way.addr.is_ipv4();
        if private || steps.into_iter().any(covered) || self.network.addresses.iter().any(own) {
            match host_route(way) {
                // First, so that it is there before anything leads elsewhere.
                Some(step) => self.past.insert(0, step),
                None if way.local => {}
                None => self.warnings.push(format!(
                    "there is no way to the server {} that could be kept outside the tunnel",
                    way.addr
                )),
            }
        }
    }
}

/// The route that keeps an address where it is, and follows when that changes.
fn host_route(way: &EndpointWay) -> Option<Step> {
    if way.local {
        return None;
    }
    Some(Step::OuterRoute {
        dst: way.addr,
        prefix: if way.addr.is_ipv4() { 32 } else { 128 },
        via: way.via,
        dev: way.dev?,
        metric: METRIC,
        towards: Some(way.addr),
    })
}

fn push_once(steps: &mut Vec<Step>, step: Step) {
    if !steps.contains(&step) {
        steps.push(step);
    }
}

/// The address without the bits behind the prefix, which the kernel refuses.
fn masked(addr: IpAddr, prefix: u8) -> IpAddr {
    match addr {
        IpAddr::V4(addr) => {
            let host = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
            Ipv4Addr::from_bits(addr.to_bits() & !host).into()
        }
        IpAddr::V6(addr) => {
            let host = u128::MAX.checked_shr(prefix.into()).unwrap_or(0);
            Ipv6Addr::from_bits(addr.to_bits() & !host).into()
        }
    }
}
