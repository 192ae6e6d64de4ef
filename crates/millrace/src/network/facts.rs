//! What a plan has to know of the host. Gathering it changes nothing that stays.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use config::tunnel::Tunnel;
use netio::netlink::{Family, Netlink, NetlinkError, RouteKind, Rule};

use super::dns::Resolver;
use super::step::{SRC_VALID_MARK, Step};

/// Priority of the rule that is added and removed to see whether the kernel knows its attribute:
/// after the default table's 32767, where no packet comes by.
const PROBE_PRIORITY: u32 = 40_000;

/// The host as it is before the tunnel.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Facts {
    /// The ways to the peers' endpoints.
    pub(crate) endpoints: Vec<EndpointWay>,
    /// MTU of the default route's interface, in bytes, if there is one.
    pub(crate) default_mtu: Option<u32>,
    /// The kernel has IPv6, and it is not switched off for new interfaces.
    pub(crate) ipv6: bool,
    /// Rules can pass over default routes.
    pub(crate) suppress_prefixlength: bool,
    /// IPv4 packets are dropped unless the way back to their source is the way they came.
    pub(crate) strict_rp_filter: bool,
    /// Value of the sysctl, if the kernel has it.
    pub(crate) src_valid_mark: Option<String>,
    /// The least priority of a rule beside the local table's, in both families.
    pub(crate) first_rule: u32,
    /// Routing tables that hold routes.
    pub(crate) used_tables: BTreeSet<u32>,
    /// The program that manages the name servers.
    pub(crate) resolver: Option<Resolver>,
}

/// The way to one endpoint.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct EndpointWay {
    /// The endpoint.
    pub(crate) addr: IpAddr,
    /// The gateway, if it is not on the link.
    pub(crate) via: Option<IpAddr>,
    /// Index of the interface; none when there is no way.
    pub(crate) dev: Option<u32>,
    /// The endpoint is an address of this host.
    pub(crate) local: bool,
    /// MTU of that interface in bytes.
    pub(crate) mtu: Option<u32>,
}

impl EndpointWay {
    /// The route that keeps the endpoint where it is now; none when there is no way, and for
    /// this host's own addresses, which need none.
    pub(crate) fn host_route(&self) -> Option<Step> {
        if self.local {
            return None;
        }
        Some(Step::HostRoute {
            dst: self.addr,
            via: self.via,
            dev: self.dev?,
        })
    }
}

impl Facts {
    /// Looks at the host of `netlink`, which must be this thread's network namespace too, after
    /// [`super::recover`]: the rules of a dead daemon would lead the ways astray.
    /// `endpoints` are the peers' addresses after names have been looked up.
    ///
    /// # Errors
    /// When the kernel refuses to list routes or interfaces.
    pub(crate) fn gather(
        tunnel: &Tunnel,
        endpoints: &[SocketAddr],
        netlink: &mut Netlink,
    ) -> Result<Self, NetlinkError> {
        let mark = tunnel.interface.fwmark.unwrap_or(0);
        let mut ways = Vec::new();
        for endpoint in endpoints {
            ways.push(way(netlink, endpoint.ip(), mark)?);
        }
        // The rules cost two requests and a place in the tables: not for every split tunnel.
        let full = tunnel.allowed_ips().any(|range| range.is_default());
        let routes = netlink.routes(None)?;
        let default = routes.iter().find(|route| {
            route.prefix == 0
                && route.table == super::step::MAIN
                && route.kind == RouteKind::Unicast
        });
        let default_mtu = match default.and_then(|route| Some((route.mtu, route.dev?))) {
            Some((Some(mtu), _)) => Some(mtu),
            Some((None, dev)) => netlink.mtu(dev).ok(),
            None => None,
        };
        Ok(Self {
            endpoints: ways,
            default_mtu,
            ipv6: has_ipv6(),
            first_rule: first_rule(netlink),
            suppress_prefixlength: full && knows_suppress_prefixlength(netlink),
            strict_rp_filter: is_rp_filter_strict(),
            src_valid_mark: sysctl(SRC_VALID_MARK),
            used_tables: routes.iter().map(|route| route.table).collect(),
            resolver: Resolver::find(),
        })
    }
}

impl Facts {
    /// Looks at the ways to endpoints that were not known, or to which there was none, while the tunnel is up as the
    /// interface of index `dev`. The rest stays as it was before the tunnel.
    ///
    /// # Errors
    /// As [`Facts::gather`].
    pub(crate) fn look_again(
        &mut self,
        tunnel: &Tunnel,
        endpoints: &[SocketAddr],
        dev: u32,
        netlink: &mut Netlink,
    ) -> Result<(), NetlinkError> {
        let mark = tunnel.interface.fwmark.unwrap_or(0);
        let known = std::mem::take(&mut self.endpoints);
        for endpoint in endpoints {
            let addr = endpoint.ip();
            let before = known
                .iter()
                .find(|way| way.addr == addr && way.dev.is_some());
            self.endpoints.push(match before {
                Some(way) => way.clone(),
                None => way_past(netlink, addr, mark, dev)?,
            });
        }
        if !self.suppress_prefixlength && tunnel.allowed_ips().any(|range| range.is_default()) {
            self.suppress_prefixlength = knows_suppress_prefixlength(netlink);
        }
        Ok(())
    }
}

/// As [`way`], but not through the tunnel itself, the interface of index `tunnel`.
fn way_past(
    netlink: &mut Netlink,
    addr: IpAddr,
    mark: u32,
    tunnel: u32,
) -> Result<EndpointWay, NetlinkError> {
    let mut found = way(netlink, addr, mark)?;
    if found.dev == Some(tunnel) {
        let past = super::way_without(netlink, addr, tunnel)?;
        (found.via, found.dev) = past.map_or((None, None), |(via, dev)| (via, Some(dev)));
        found.mtu = found.dev.and_then(|dev| netlink.mtu(dev).ok());
    }
    Ok(found)
}

/// The way that a packet with `mark` (0 for none) would go to `addr` now.
///
/// # Errors
/// When the kernel does not answer; that there is no way is none.
pub(crate) fn way(
    netlink: &mut Netlink,
    addr: IpAddr,
    mark: u32,
) -> Result<EndpointWay, NetlinkError> {
    let none = EndpointWay {
        addr,
        via: None,
        dev: None,
        local: false,
        mtu: None,
    };
    match netlink.route_get(addr, mark) {
        Ok(found) => Ok(EndpointWay {
            via: found.via,
            dev: Some(found.dev),
            local: found.kind == RouteKind::Local,
            mtu: netlink.mtu(found.dev).ok(),
            ..none
        }),
        // No way now: the line may be down, and come up later.
        Err(NetlinkError::Refused { .. }) => Ok(none),
        Err(error) => Err(error),
    }
}

/// Priority of the main table's rule, where nobody has changed it.
const MAIN_RULE: u32 = 32_766;

fn first_rule(netlink: &mut Netlink) -> u32 {
    let rules = [Family::V4, Family::V6].map(|family| netlink.rules(family).unwrap_or_default());
    let priorities = rules.iter().flatten().filter_map(|rule| rule.priority);
    let first = priorities.filter(|&priority| priority != 0).min();
    first.unwrap_or(MAIN_RULE).min(MAIN_RULE)
}

/// Adds a rule, reads it back and removes it. Kernels before 3.12 take the rule and drop the
/// attribute without a word, so that its acceptance alone proves nothing.
fn knows_suppress_prefixlength(netlink: &mut Netlink) -> bool {
    let probe = Rule {
        priority: Some(PROBE_PRIORITY),
        ..Rule::main_without_default(Family::V4)
    };
    match netlink.add_rule(&probe) {
        Ok(()) => {}
        // Left by a probe that was killed.
        Err(error) if error.is_exists() => {}
        Err(error) => {
            log::debug!("no policy routing: {error}");
            return false;
        }
    }
    let rules = netlink.rules(Family::V4).unwrap_or_default();
    let known = rules.iter().any(|rule| {
        rule.priority == probe.priority && rule.suppress_prefixlength == probe.suppress_prefixlength
    });
    // By its place alone: an old kernel's rule has nothing else to be known by.
    let place = Rule {
        suppress_prefixlength: None,
        ..probe
    };
    if let Err(error) = netlink.delete_rule(&place) {
        log::warn!("a rule for a test stays at priority {PROBE_PRIORITY}: {error}");
    }
    known
}

/// True when the kernel has IPv6 and it is not switched off for new interfaces.
pub(crate) fn has_ipv6() -> bool {
    Path::new("/proc/net/if_inet6").exists()
        && sysctl("net/ipv6/conf/default/disable_ipv6").as_deref() != Some("1")
}

/// The kernel takes the larger of the value for all interfaces and the interface's own, and 2 is
/// the loose mode. Any interface may be the one that the answers come by.
fn is_rp_filter_strict() -> bool {
    let value = |name: &str| sysctl(&format!("net/ipv4/conf/{name}/rp_filter"));
    if value("all").as_deref() == Some("2") {
        return false;
    }
    let names = fs::read_dir("/proc/sys/net/ipv4/conf")
        .into_iter()
        .flatten()
        .flatten();
    names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .any(|name| value(&name).as_deref() == Some("1"))
}

/// A value below `/proc/sys`, if the kernel has it.
pub(super) fn sysctl(key: &str) -> Option<String> {
    let text = fs::read_to_string(Path::new("/proc/sys").join(key)).ok()?;
    Some(text.trim().to_owned())
}
