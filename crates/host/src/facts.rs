//! Facts about the host that a plan needs. Gathering them leaves the host unchanged.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use netio::netlink::{Family, NetlinkError, Route, RouteKind, Rule, RuleAction};

use crate::dns::Resolver;
use crate::step::{FORWARD_V4, FORWARD_V6, MAIN, SRC_VALID_MARK, Step, accept_ra, send_redirects};
use crate::system::System;
use crate::want::{Gateway, Mtu, Want};
use crate::ways::{FIRST_METRIC, covers, way_without};

/// Priority of a probe rule, added and removed to see whether the kernel knows its attribute. It comes after the
/// default table's rule (32767), where no packet arrives.
const PROBE_PRIORITY: u32 = 40_000;

/// Priority of the main table's rule, unless it has been moved.
const MAIN_RULE: u32 = 32_766;

/// Priorities of the rules that route devices of the LAN (the guard's first). They must stay before a tunnel's rules,
/// which would let the main table decide about those devices too.
const DEVICE_RULES: RangeInclusive<u32> = 900..=999;

/// Priorities that the policy's rules, which match a mark, move to when another program has a rule before 900.
pub const POLICY_RULES: RangeInclusive<u32> = 830..=896;

/// Addresses for documentation (RFC 5737, RFC 3849): a route that covers them is a default route or nearly one.
pub(crate) const ANYWHERE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];

/// Maximum number of name servers of the host that are read.
const NAME_SERVERS_MAX: usize = 8;

/// The MTU of an uplink.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LineMtu {
    /// Name of the uplink's device.
    pub device: String,
    /// MTU of the device in bytes.
    pub mtu: u32,
    /// The route's MTU in bytes: its `mtu` metric, or the path's MTU that the kernel has learned.
    pub route: Option<u32>,
}

impl LineMtu {
    /// An uplink of which only the device is known.
    #[must_use]
    pub fn of(device: &str, mtu: u32) -> Self {
        Self {
            device: device.to_owned(),
            mtu,
            route: None,
        }
    }

    /// The longest packet that fits, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        self.route.map_or(self.mtu, |route| route.min(self.mtu))
    }
}

/// The host as it is before the tunnel. Facts that the given [`Want`] does not need are left out.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Facts {
    /// The tunnel's own interface.
    pub interface: String,
    /// The current paths to the endpoints.
    pub endpoints: Vec<EndpointWay>,
    /// Default routes of the main table, the best of each family first.
    pub defaults: Vec<Route>,
    /// The MTU of the interface that the best default route uses, if there is one.
    pub default_line: Option<LineMtu>,
    /// IPv4 addresses, with the bits of their networks, of the interface that the best default
    /// route leads to.
    pub local_networks: Vec<(IpAddr, u8)>,
    /// Networks of the host's other interfaces, for tunnels with pushed routes.
    pub connected: Vec<Connected>,
    /// Paths to gateways that the want names by address, and to name servers.
    pub ways: BTreeMap<IpAddr, EndpointWay>,
    /// The host's name servers that run on other machines.
    pub name_servers: Vec<IpAddr>,
    /// The kernel has IPv6.
    pub ipv6: bool,
    /// IPv6 is switched off for new interfaces, such as the tunnel's; the host's own uplink may still have it.
    pub ipv6_off: bool,
    /// The kernel's rules can ignore default routes (`suppress_prefixlength`).
    pub suppress_prefixlength: bool,
    /// The kernel drops IPv4 packets unless the route to their source uses the interface that they came in on.
    pub strict_rp_filter: bool,
    /// Value of the sysctl `src_valid_mark`, if the kernel has it.
    pub src_valid_mark: Option<String>,
    /// The lowest priority of any rule in both families, except the local table's rule and the rules that route devices
    /// of the LAN.
    pub first_rule: u32,
    /// Routing tables that hold routes.
    pub used_tables: BTreeSet<u32>,
    /// The program that manages the name servers, if the want has any.
    pub resolver: Option<Resolver>,
    /// Settings for forwarding packets, in the order in which they are to be set, with their wanted values.
    pub forwarding: Vec<Setting>,
}

/// A network that an interface of the host is on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Connected {
    /// The network's first address.
    pub network: IpAddr,
    /// Bits of the network's prefix.
    pub prefix: u8,
    /// The interface's name.
    pub device: String,
}

impl Connected {
    /// True when the network contains the address.
    pub(crate) fn holds(&self, addr: IpAddr) -> bool {
        covers(self.network, self.prefix, addr)
    }
}

impl fmt::Display for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            network,
            prefix,
            device,
        } = self;
        write!(f, "{network}/{prefix} of {device}")
    }
}

/// A setting below `/proc/sys`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Setting {
    /// Path of the setting below `/proc/sys`.
    pub key: String,
    /// Value before the change.
    pub before: String,
    /// Value that the tunnel needs.
    pub value: &'static str,
}

/// The host's path to one address.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EndpointWay {
    /// The address.
    pub addr: IpAddr,
    /// The gateway, if it is not on the link.
    pub via: Option<IpAddr>,
    /// Index of the interface; `None` when there is no route.
    pub dev: Option<u32>,
    /// The address is one of this host.
    pub local: bool,
    /// The MTU of this path.
    pub mtu: Option<LineMtu>,
}

impl EndpointWay {
    /// The route that keeps packets to this address on its current path, and follows when that changes. `None` without
    /// a way, and for this host's own addresses, which need no route.
    pub(crate) fn outer_route(&self) -> Option<Step> {
        if self.local {
            return None;
        }
        Some(Step::OuterRoute {
            dst: self.addr,
            prefix: Family::of(self.addr).bits(),
            via: self.via,
            dev: self.dev?,
            metric: FIRST_METRIC,
            towards: Some(self.addr),
        })
    }
}

impl Facts {
    /// Reads the host of `system`, which must also be this thread's network namespace. Call it after
    /// [`crate::recover`]: rules that a killed process left would yield wrong routes. `ifname` is the tunnel's own
    /// interface, whose routes are ignored.
    ///
    /// # Errors
    /// When the kernel refuses to list routes, addresses or interfaces.
    pub fn gather(
        want: &Want,
        ifname: &str,
        system: &mut dyn System,
    ) -> Result<Self, NetlinkError> {
        let tunnel = system.index_of(ifname).ok();
        let mut facts = Self {
            interface: ifname.to_owned(),
            ipv6: system.has_ipv6(),
            ipv6_off: system
                .sysctl("net/ipv6/conf/default/disable_ipv6")
                .as_deref()
                == Some("1"),
            // Looking for the resolver searches every directory of PATH.
            resolver: want.name_servers.as_ref().and_then(|_| system.resolver()),
            ..Self::default()
        };
        for &endpoint in &want.endpoints {
            let way = way_past(system, endpoint, want.fwmark, tunnel)?;
            facts.endpoints.push(way);
        }
        let routes = system.routes(None)?;
        facts.used_tables = routes.iter().map(|route| route.table).collect();
        if want.pushed_addresses || want.routes.iter().any(|route| route.pushed) {
            facts.connected = connected(&routes, tunnel, system);
        }
        facts.defaults = routes;
        facts.defaults.retain(|route| {
            let usable = route.table == MAIN && route.kind == RouteKind::Unicast;
            route.prefix == 0 && usable && (route.dev.is_none() || route.dev != tunnel)
        });
        let rank = |route: &Route| (route.dst, route.metric.unwrap_or(0));
        facts.defaults.sort_by_key(rank);
        facts.look_at_line(want, system)?;
        facts.look_at_ways(want, system)?;
        if want.uses_rules() {
            facts.look_at_rules(system);
        }
        if want.forwarding.is_some() {
            facts.look_at_forwarding(want, system);
        }
        Ok(facts)
    }

    /// Looks up the routes to endpoints that are new or had no route, while the tunnel is up as `ifname`. The other
    /// facts stay as they were before the tunnel.
    ///
    /// # Errors
    /// The errors of [`Facts::gather`].
    pub fn look_again(
        &mut self,
        want: &Want,
        ifname: &str,
        system: &mut dyn System,
    ) -> Result<(), NetlinkError> {
        let tunnel = system.index_of(ifname)?;
        let known = std::mem::take(&mut self.endpoints);
        for &addr in &want.endpoints {
            let mut before = known.iter();
            let before = before.find(|way| way.addr == addr && way.dev.is_some());
            self.endpoints.push(match before {
                Some(way) => way.clone(),
                None => way_past(system, addr, want.fwmark, Some(tunnel))?,
            });
        }
        if self.resolver.is_none() && want.name_servers.is_some() {
            self.resolver = system.resolver();
        }
        if !self.suppress_prefixlength && want.uses_rules() {
            // The tunnel has no table of its own yet; another program may have taken one since.
            let routes = system.routes(None)?;
            self.used_tables = routes.iter().map(|route| route.table).collect();
            self.look_at_rules(system);
        }
        if self.forwarding.is_empty() && want.forwarding.is_some() {
            self.look_at_forwarding(want, system);
        }
        Ok(())
    }

    /// Reads the MTU on the routes to the endpoints again while the tunnel is up, for packets with `mark`. It may
    /// change with the uplink, its device or its route, or when the kernel learns the path's MTU, which it does not
    /// announce. The routes themselves stay as they were before the tunnel. Does nothing if the MTU is not derived.
    ///
    /// # Errors
    /// The errors of [`Facts::gather`].
    pub fn look_at_mtu(
        &mut self,
        want: &Want,
        mark: u32,
        system: &mut dyn System,
    ) -> Result<(), NetlinkError> {
        if !matches!(want.mtu, Mtu::Path { .. }) {
            return Ok(());
        }
        let tunnel = system.index_of(&self.interface)?;
        for way in &mut self.endpoints {
            way.mtu = way_past(system, way.addr, mark, Some(tunnel))?.mtu;
        }
        self.default_line = None;
        if self.endpoints.iter().all(|way| way.mtu.is_none()) {
            // Asks for single routes: listing all of them may take long.
            for addr in ANYWHERE {
                let found = way_past(system, addr, mark, Some(tunnel))?.mtu;
                self.default_line = self.default_line.take().or(found);
            }
        }
        Ok(())
    }

    /// The best default route of a family.
    pub(crate) fn default_of(&self, v6: bool) -> Option<&Route> {
        self.defaults.iter().find(|route| route.dst.is_ipv6() == v6)
    }

    /// The path to a router.
    pub(crate) fn way_to(&self, addr: IpAddr) -> Option<&EndpointWay> {
        let mut endpoints = self.endpoints.iter();
        let endpoint = || endpoints.find(|way| way.addr == addr);
        self.ways.get(&addr).or_else(endpoint)
    }

    /// Reads the interface that the best default route uses.
    fn look_at_line(&mut self, want: &Want, system: &mut dyn System) -> Result<(), NetlinkError> {
        let Some(&best) = self.defaults.first() else {
            return Ok(());
        };
        if matches!(want.mtu, Mtu::Path { .. }) {
            let dev = best.dev;
            self.default_line = dev.and_then(|dev| line(system, dev, best.mtu));
        }
        if let (true, true, Some(dev)) = (want.block_local, best.dst.is_ipv4(), best.dev) {
            let addresses = system.addresses(dev)?;
            let v4 = addresses.iter().filter(|address| address.ip.is_ipv4());
            self.local_networks = v4.map(|address| (address.ip, address.prefix)).collect();
        }
        Ok(())
    }

    fn look_at_ways(&mut self, want: &Want, system: &mut dyn System) -> Result<(), NetlinkError> {
        if want.bypass_name_servers {
            self.name_servers = name_servers(&system.resolv_conf());
        }
        let routers = want.routes.iter().filter_map(|route| match route.gateway {
            Gateway::Router(addr) => Some(addr),
            _ => None,
        });
        for addr in routers.chain(self.name_servers.iter().copied()) {
            if let std::collections::btree_map::Entry::Vacant(entry) = self.ways.entry(addr) {
                entry.insert(way(system, addr, 0)?);
            }
        }
        Ok(())
    }

    /// Reads the settings for forwarding. A host that forwards IPv6 forgets its default routes from router
    /// advertisements and takes no new ones, unless `accept_ra` says otherwise.
    fn look_at_forwarding(&mut self, want: &Want, system: &mut dyn System) {
        let mut settings = Vec::new();
        let mut set = |key: String, value, system: &mut dyn System| {
            if let Some(before) = system.sysctl(&key) {
                settings.push(Setting { key, before, value });
            }
        };
        if want.addresses.iter().any(|it| it.addr.is_ipv4()) {
            // Otherwise clients that talk to each other are told to do so without this host, which they cannot.
            for name in [&*self.interface, "all"] {
                set(send_redirects(name), "0", system);
            }
            set(FORWARD_V4.to_owned(), "1", system);
        }
        if self.ipv6 && !self.ipv6_off && want.has_v6() {
            for name in system.configured_interfaces() {
                let key = accept_ra(&name);
                let special = matches!(name.as_str(), "all" | "default" | "lo");
                if !special && system.sysctl(&key).as_deref() == Some("1") {
                    set(key, "2", system);
                }
            }
            set(FORWARD_V6.to_owned(), "1", system);
        }
        self.forwarding = settings;
    }

    /// Reads the facts that default routes by rules depend on. The probe costs two requests and a place in the kernel's
    /// tables, so not every tunnel makes it.
    fn look_at_rules(&mut self, system: &mut dyn System) {
        self.first_rule = first_rule(system);
        self.strict_rp_filter = is_rp_filter_strict(system);
        self.src_valid_mark = system.sysctl(SRC_VALID_MARK);
        self.suppress_prefixlength = knows_suppress_prefixlength(system);
    }
}

/// The networks of the host's interfaces other than the tunnel's, from the routes that the kernel made for their
/// addresses.
fn connected(routes: &[Route], tunnel: Option<u32>, system: &mut dyn System) -> Vec<Connected> {
    // linux/rtnetlink.h
    const RTPROT_KERNEL: u8 = 2;
    let link_local = |addr: IpAddr| match addr {
        IpAddr::V4(addr) => addr.is_link_local(),
        IpAddr::V6(addr) => addr.is_unicast_link_local(),
    };
    let made = routes.iter().filter(|route| {
        let ours = route.dev.is_none() || route.dev == tunnel;
        route.table == MAIN && route.protocol == Some(RTPROT_KERNEL) && !ours && route.via.is_none()
    });
    let mut found = Vec::new();
    for route in made.filter(|route| route.prefix != 0 && !link_local(route.dst)) {
        let device = route.dev.and_then(|dev| system.device(dev).ok());
        if let Some((device, _)) = device {
            found.push(Connected {
                network: route.dst,
                prefix: route.prefix,
                device,
            });
        }
    }
    found
}

/// The MTU of the interface `dev`, and of a route through it.
fn line(system: &mut dyn System, dev: u32, route: Option<u32>) -> Option<LineMtu> {
    let (device, mtu) = system.device(dev).ok()?;
    Some(LineMtu { device, mtu, route })
}

/// A route as [`way`] finds it, but never through the tunnel itself, the interface with index `tunnel`.
fn way_past(
    system: &mut dyn System,
    addr: IpAddr,
    mark: u32,
    tunnel: Option<u32>,
) -> Result<EndpointWay, NetlinkError> {
    let mut found = way(system, addr, mark)?;
    if let Some(tunnel) = tunnel
        && found.dev == Some(tunnel)
    {
        let past = way_without(system, addr, tunnel)?;
        (found.via, found.dev) = past.map_or((None, None), |(via, dev)| (via, Some(dev)));
        found.mtu = found.dev.and_then(|dev| line(system, dev, None));
    }
    Ok(found)
}

/// The route that a packet with `mark` (0 for none) would take to `addr` now. Having no route is not an error.
fn way(system: &mut dyn System, addr: IpAddr, mark: u32) -> Result<EndpointWay, NetlinkError> {
    let none = EndpointWay {
        addr,
        via: None,
        dev: None,
        local: false,
        mtu: None,
    };
    match system.route_get(addr, mark) {
        Ok(found) => Ok(EndpointWay {
            via: found.via,
            dev: Some(found.dev),
            local: found.kind == RouteKind::Local,
            mtu: line(system, found.dev, found.mtu),
            ..none
        }),
        // There is no route now: the uplink may be down, and come up later.
        Err(NetlinkError::Refused { .. }) => Ok(none),
        Err(error) => Err(error),
    }
}

fn first_rule(system: &mut dyn System) -> u32 {
    let rules = [Family::V4, Family::V6].map(|family| system.rules(family).unwrap_or_default());
    let rules = rules.iter().flatten();
    let is_policys = |rule: &Rule| {
        let priority = rule.priority.unwrap_or(0);
        (rule.fwmark.is_some() || rule.mask.is_some())
            && !rule.invert
            && POLICY_RULES.contains(&priority)
    };
    let priorities = rules.filter_map(|rule| match rule.action {
        RuleAction::Lookup if is_policys(rule) => None,
        RuleAction::Lookup => rule.priority,
        RuleAction::Unreachable | RuleAction::Blackhole | RuleAction::Goto(_) => None,
    });
    let first = priorities
        .filter(|priority| *priority != 0 && !DEVICE_RULES.contains(priority))
        .min();
    first.unwrap_or(MAIN_RULE).min(MAIN_RULE)
}

/// Adds a rule, reads it back and removes it. Kernels before 3.12 accept the rule and silently drop the attribute, so
/// success alone proves nothing.
fn knows_suppress_prefixlength(system: &mut dyn System) -> bool {
    let probe = Rule {
        priority: Some(PROBE_PRIORITY),
        ..Rule::main_without_default(Family::V4)
    };
    match system.add_rule(&probe) {
        Ok(()) => {}
        // A killed process left its probe rule.
        Err(error) if error.is_exists() => {}
        Err(error) => {
            log::debug!("the kernel has no policy routing: {error}");
            return false;
        }
    }
    let rules = system.rules(Family::V4).unwrap_or_default();
    let known = rules.iter().any(|rule| {
        rule.priority == probe.priority && rule.suppress_prefixlength == probe.suppress_prefixlength
    });
    // Identified by its priority only: an old kernel's rule has no other attribute to match.
    let place = Rule {
        suppress_prefixlength: None,
        ..probe
    };
    if let Err(error) = system.delete_rule(&place) {
        log::warn!("cannot delete the test rule at priority {PROBE_PRIORITY}: {error}");
    }
    known
}

/// Whether any interface has the strict filter; answers may come in on any of them. The kernel uses the larger of the
/// value for all interfaces and the interface's own; 2 is the loose mode.
fn is_rp_filter_strict(system: &mut dyn System) -> bool {
    let names = system.configured_interfaces();
    let mut value = |name: &str| system.sysctl(&format!("net/ipv4/conf/{name}/rp_filter"));
    if value("all").as_deref() == Some("2") {
        return false;
    }
    let mut names = names.iter();
    names.any(|name| value(name).as_deref() == Some("1"))
}

/// The name servers of a `resolv.conf` that run on other machines.
fn name_servers(text: &str) -> Vec<IpAddr> {
    crate::name_servers_in(text)
        .filter_map(|it| it.parse().ok())
        .filter(|it: &IpAddr| !it.is_loopback() && !it.is_unspecified())
        .take(NAME_SERVERS_MAX)
        .collect()
}

#[cfg(test)]
mod tests;
