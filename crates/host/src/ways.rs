//! The paths of the host's own routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netio::netlink::{Family, Netlink, NetlinkError, Route, RouteKind};

use crate::step::{MAIN, Step};
use crate::system::System;

/// First metric of routes past the tunnel. Not 0: routes made by hand take precedence, and undoing deletes just the
/// tunnel's own.
pub(crate) const FIRST_METRIC: u32 = 1;

/// Metrics that are tried for one route, and so the number of tunnels that can share a destination.
const METRICS_TRIED: u32 = 256;

/// Metric of IPv6 routes that were added without one, include/uapi/linux/ipv6_route.h.
const METRIC_V6: u32 = 1024;

/// The device through which the host sends packets with this firewall mark (0 for none) to `dst`.
#[must_use]
pub fn device_to(dst: IpAddr, mark: u32) -> Option<String> {
    let mut netlink = Netlink::open().ok()?;
    let way = netlink.route_get(dst, mark).ok()?;
    netlink.name_of(way.dev).ok()
}

/// Whether the host can send packets with this firewall mark (0 for none) to `dst` past the interface `tunnel`.
#[must_use]
pub fn has_way_past(tunnel: &str, dst: IpAddr, mark: u32) -> bool {
    let has_way = || {
        let mut netlink = Netlink::open()?;
        let way = netlink.route_get(dst, mark)?;
        match netlink.name_of(way.dev)? == tunnel {
            true => Ok(way_without(&mut netlink, dst, way.dev)?.is_some()),
            false => Ok::<_, NetlinkError>(true),
        }
    };
    has_way().unwrap_or(false)
}

/// A gateway, if any, and the interface's index.
pub(crate) type Way = (Option<IpAddr>, u32);

/// The best route's path for packets to `dst`: longest prefix, then lowest metric.
pub(crate) fn best<'a>(routes: impl Iterator<Item = &'a Route>, dst: IpAddr) -> Option<Way> {
    best_route(routes, dst).and_then(|route| Some((route.via, route.dev?)))
}

/// The route that [`best`] finds.
pub(crate) fn best_route<'a>(
    routes: impl Iterator<Item = &'a Route>,
    dst: IpAddr,
) -> Option<&'a Route> {
    let fits = |route: &&Route| {
        route.table == MAIN && route.kind == RouteKind::Unicast && contains(route, dst)
    };
    // The first of equal routes wins, as in the kernel.
    routes
        .filter(fits)
        .min_by_key(|route| (u8::MAX - route.prefix, metric_of(route)))
}

/// True when the route covers `dst`.
pub(crate) fn contains(route: &Route, dst: IpAddr) -> bool {
    covers(route.dst, route.prefix, dst)
}

/// True when `addr` lies in `network/prefix`.
#[must_use]
pub fn covers(network: IpAddr, prefix: u8, addr: IpAddr) -> bool {
    let keep = |bits: u8| u32::from(bits.saturating_sub(prefix));
    match (network, addr) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            let differ = a.to_bits() ^ b.to_bits();
            differ.checked_shr(keep(32)).unwrap_or(0) == 0
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            let differ = a.to_bits() ^ b.to_bits();
            differ.checked_shr(keep(128)).unwrap_or(0) == 0
        }
        _ => false,
    }
}

/// The metric that the kernel gives the route.
pub(crate) fn metric_of(route: &Route) -> u32 {
    let default = match Family::of(route.dst) {
        Family::V4 => 0,
        Family::V6 => METRIC_V6,
    };
    route
        .metric
        .filter(|&metric| metric != 0)
        .unwrap_or(default)
}

/// Whether an address is in a private network (RFC 1918, RFC 4193), or behind a provider's NAT (RFC 6598).
#[must_use]
pub const fn is_private(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(addr) => {
            let [first, second, ..] = addr.octets();
            addr.is_private() || (first == 100 && second & 0xc0 == 64)
        }
        IpAddr::V6(addr) => addr.is_unique_local(),
    }
}

/// The address with the bits behind the prefix cleared, since the kernel refuses others.
#[must_use]
pub fn masked(addr: IpAddr, prefix: u8) -> IpAddr {
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

/// The step with a metric that no other route to the same network has. Steps of other kinds are unchanged.
pub(crate) fn with_free_metric(step: &Step, system: &mut dyn System) -> Result<Step, NetlinkError> {
    let mut step = step.clone();
    if let Step::OuterRoute {
        dst,
        prefix,
        metric,
        ..
    }
    | Step::Unreachable {
        dst,
        prefix,
        metric,
    } = &mut step
    {
        let routes = system.routes(Some(MAIN))?;
        let taken = |metric: u32| {
            let same = |route: &&Route| route.dst == *dst && route.prefix == *prefix;
            routes.iter().filter(same).any(|r| metric_of(r) == metric)
        };
        let range = *metric..metric.saturating_add(METRICS_TRIED);
        // If all metrics are taken, the kernel refuses the route.
        *metric = range.into_iter().find(|&m| !taken(m)).unwrap_or(*metric);
    }
    Ok(step)
}

/// The path to `addr` through the host's main table without the routes of one interface.
///
/// # Errors
/// When the kernel refuses to list its routes.
pub(crate) fn way_without(
    system: &mut dyn System,
    addr: IpAddr,
    tunnel: u32,
) -> Result<Option<(Option<IpAddr>, u32)>, NetlinkError> {
    let routes = system.routes(Some(MAIN))?;
    let others = routes.iter().filter(|route| route.dev != Some(tunnel));
    Ok(best(others, addr))
}

/// The host's own routes, without those of tunnels: the source of routes past the tunnel.
pub(crate) struct HostRoutes {
    routes: Vec<Route>,
    /// All present routes, tunnels' included.
    pub(crate) present: Vec<Route>,
}

impl HostRoutes {
    /// Builds the host's routes. `tunnels` are the interfaces of tunnels, and `made` the routes that tunnels made.
    pub(crate) fn new(routes: Vec<Route>, tunnels: &[u32], made: &[Route]) -> Self {
        let own = |route: &&Route| {
            !route.dev.is_some_and(|dev| tunnels.contains(&dev))
                && !made.iter().any(|made| is_same(made, route))
        };
        Self {
            routes: routes.iter().filter(own).copied().collect(),
            present: routes,
        }
    }

    pub(crate) fn way(&self, towards: IpAddr) -> Option<Way> {
        best(self.routes.iter(), towards)
    }
}

/// True when both routes have the same place in the table and lead to the same next hop.
pub(crate) fn is_same(a: &Route, b: &Route) -> bool {
    let key = |r: &Route| (r.dst, r.prefix, r.via, r.dev, metric_of(r));
    key(a) == key(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn route(network: &str, via: Option<&str>, dev: u32, metric: u32) -> Route {
        let (dst, prefix) = network.split_once('/').unwrap();
        Route {
            via: via.map(ip),
            metric: Some(metric),
            ..Route::new(ip(dst), prefix.parse().unwrap()).dev(dev)
        }
    }

    #[test]
    fn networks_cover_what_begins_like_them() {
        assert!(covers(ip("0.0.0.0"), 0, ip("192.0.2.1")));
        assert!(covers(ip("128.0.0.0"), 1, ip("192.0.2.1")));
        assert!(!covers(ip("0.0.0.0"), 1, ip("192.0.2.1")));
        assert!(covers(ip("192.0.2.1"), 32, ip("192.0.2.1")));
        assert!(covers(ip("2000::"), 4, ip("2001:db8::1")));
        assert!(!covers(ip("3000::"), 4, ip("2001:db8::1")));
        assert!(!covers(ip("::"), 0, ip("192.0.2.1")));
    }

    #[test]
    fn the_best_route_is_the_longest_and_then_the_cheapest() {
        let routes = [
            route("0.0.0.0/0", Some("198.51.100.1"), 2, 100),
            route("0.0.0.0/0", Some("203.0.113.1"), 3, 50),
            route("192.0.0.0/8", None, 4, 500),
        ];
        let best = |dst: &str| best(routes.iter(), ip(dst));
        assert_eq!(best("192.0.2.1"), Some((None, 4)));
        assert_eq!(best("8.8.8.8"), Some((Some(ip("203.0.113.1")), 3)));
        assert_eq!(best("2001:db8::1"), None);
    }

    #[test]
    fn routes_of_tunnels_are_not_the_hosts_own() {
        let mine = route("192.0.2.1/32", Some("198.51.100.1"), 2, 1);
        let routes = vec![
            route("0.0.0.0/0", Some("198.51.100.1"), 2, 0),
            route("128.0.0.0/1", Some("10.8.0.1"), 9, 0),
            mine,
        ];
        let host = HostRoutes::new(routes, &[9], &[mine]);
        assert_eq!(host.routes.len(), 1);
        assert_eq!(
            host.way(ip("192.0.2.1")),
            Some((Some(ip("198.51.100.1")), 2))
        );
    }
}
