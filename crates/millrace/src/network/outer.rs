//! Routes past the tunnel: which way they go, and that they keep going it.

use std::net::IpAddr;

use netio::netlink::{Family, Netlink, NetlinkError, Route, RouteKind};

use super::apply::{Applied, ApplyError, absent_is_fine};
use super::step::{MAIN, Step};

/// Metrics that are tried for one route; so many tunnels may need the same one.
const METRICS_TRIED: u32 = 256;

/// Metric of IPv6 routes that were made without one, include/uapi/linux/ipv6_route.h.
const METRIC_V6: u32 = 1024;

/// A gateway, if any, and the interface's index.
pub(super) type Way = (Option<IpAddr>, u32);

/// The best of the routes for packets to `dst`: the longest prefix, then the lowest metric.
pub(super) fn best<'a>(routes: impl Iterator<Item = &'a Route>, dst: IpAddr) -> Option<Way> {
    let fits = |route: &&Route| {
        route.table == MAIN && route.kind == RouteKind::Unicast && contains(route, dst)
    };
    let usable = |route: &Route| Some((route.via, route.dev?));
    routes
        .filter(fits)
        // The first of equals wins, as in the kernel.
        .min_by_key(|route| (u8::MAX - route.prefix, metric_of(route)))
        .and_then(usable)
}

/// True when packets to `dst` fit the route.
pub(crate) fn contains(route: &Route, dst: IpAddr) -> bool {
    covers(route.dst, route.prefix, dst)
}

/// True when `addr` lies in `network/prefix`.
pub(crate) fn covers(network: IpAddr, prefix: u8, addr: IpAddr) -> bool {
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

fn metric_of(route: &Route) -> u32 {
    let default = match Family::of(route.dst) {
        Family::V4 => 0,
        Family::V6 => METRIC_V6,
    };
    route
        .metric
        .filter(|&metric| metric != 0)
        .unwrap_or(default)
}

/// The step with a metric that no other route to the same network has. Other steps as they are.
pub(super) fn with_free_metric(step: &Step, netlink: &mut Netlink) -> Result<Step, ApplyError> {
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
        let routes = netlink.routes(Some(MAIN))?;
        let taken = |metric: u32| {
            let same = |route: &&Route| route.dst == *dst && route.prefix == *prefix;
            routes.iter().filter(same).any(|r| metric_of(r) == metric)
        };
        let range = *metric..metric.saturating_add(METRICS_TRIED);
        // When all are taken the kernel will say so.
        *metric = range.into_iter().find(|&m| !taken(m)).unwrap_or(*metric);
    }
    Ok(step)
}

/// The way to `addr` by the host's main table without the routes of one interface.
///
/// # Errors
/// When the kernel refuses to list its routes.
pub(crate) fn way_without(
    netlink: &mut Netlink,
    addr: IpAddr,
    tunnel: u32,
) -> Result<Option<(Option<IpAddr>, u32)>, NetlinkError> {
    let routes = netlink.routes(Some(MAIN))?;
    let others = routes.iter().filter(|route| route.dev != Some(tunnel));
    Ok(best(others, addr))
}

/// What the routes past the tunnel are made of: the host's own routes, without those of tunnels.
struct Host {
    routes: Vec<Route>,
    present: Vec<Route>,
}

impl Host {
    /// `tunnels` are the interfaces of tunnels, and `made` the routes that tunnels made.
    fn new(routes: Vec<Route>, tunnels: &[u32], made: &[Route]) -> Self {
        let own = |route: &&Route| {
            !route.dev.is_some_and(|dev| tunnels.contains(&dev))
                && !made.iter().any(|made| same(made, route))
        };
        Self {
            routes: routes.iter().filter(own).copied().collect(),
            present: routes,
        }
    }

    fn way(&self, towards: IpAddr) -> Option<Way> {
        best(self.routes.iter(), towards)
    }
}

/// True when it is the same place in the table, going the same way.
pub(super) fn same(a: &Route, b: &Route) -> bool {
    let key = |r: &Route| (r.dst, r.prefix, r.via, r.dev, metric_of(r));
    key(a) == key(b)
}

impl Applied {
    /// Looks where the host's own routes lead now, so that [`Applied::follow`] sees a change.
    pub(super) fn look(&mut self, netlink: &mut Netlink) -> Result<(), ApplyError> {
        if self.towards().next().is_some() {
            let host = self.host(netlink)?;
            self.seen = self
                .towards()
                .map(|towards| (towards, host.way(towards)))
                .collect();
        }
        Ok(())
    }

    /// To be called when routes of the host have changed (a cable was pulled, a lease renewed):
    /// leads the routes past the tunnel the way that the host has now. Returns whether any moved.
    ///
    /// Routes that were made stay as long as the host's own do. When the host has no way any
    /// more, what is left is kept until there is one again.
    ///
    /// # Errors
    /// When the kernel refuses to list its routes or to set one; to be tried again at the next
    /// change.
    pub(crate) fn follow(&mut self, netlink: &mut Netlink) -> Result<bool, ApplyError> {
        if self.towards().next().is_none() {
            return Ok(false);
        }
        let host = self.host(netlink)?;
        let mut moved = false;
        for index in 0..self.done.len() {
            let step = self.done[index].clone();
            let Step::OuterRoute {
                towards: Some(towards),
                ..
            } = step
            else {
                continue;
            };
            let Some(old) = step.route(None) else {
                continue;
            };
            let Some(way) = host.way(towards) else {
                continue;
            };
            let before = self.seen.iter().find(|(seen, _)| *seen == towards);
            let unchanged = before.is_some_and(|(_, before)| *before == Some(way));
            let present = host.present.iter().any(|route| same(route, &old));
            if present && (unchanged || way == (old.via, old.dev.unwrap_or(0))) {
                continue;
            }
            self.lead(index, way, netlink)?;
            if present {
                absent_is_fine(netlink.delete_route(&old))?;
            }
            moved = true;
        }
        // Read anew: what was changed here is not the host's own.
        self.look(netlink)?;
        Ok(moved)
    }

    /// Keeps one more address outside the tunnel while it is up: the next server, before it is
    /// connected to. Returns whether it needed a route and has one now.
    ///
    /// # Errors
    /// When the kernel refuses to list its routes or to set one.
    pub(crate) fn keep_outside(
        &mut self,
        addr: IpAddr,
        netlink: &mut Netlink,
    ) -> Result<bool, ApplyError> {
        let kept = |step: &Step| matches!(step, Step::OuterRoute { dst, .. } if *dst == addr);
        if self.done.iter().any(kept) {
            return Ok(true);
        }
        let astray = |step: &Step| match *step {
            Step::TunnelRoute { dst, prefix, .. } | Step::Unreachable { dst, prefix, .. } => {
                covers(dst, prefix, addr)
            }
            _ => false,
        };
        if !self.done.iter().any(astray) {
            return Ok(false);
        }
        let now = netlink.route_get(addr, 0);
        if now.is_ok_and(|way| way.kind == RouteKind::Local) {
            return Ok(false);
        }
        let host = self.host(netlink)?;
        let displaced = self.done.iter().filter_map(|step| match step {
            Step::Displace(saved) => Some(saved.route()),
            _ => None,
        });
        let displaced: Vec<Route> = displaced.collect();
        let way = host.way(addr).or_else(|| best(displaced.iter(), addr));
        let Some((via, dev)) = way else {
            return Ok(false);
        };
        let step = Step::OuterRoute {
            dst: addr,
            prefix: Family::of(addr).bits(),
            via,
            dev,
            metric: 1,
            towards: Some(addr),
        };
        let step = with_free_metric(&step, netlink)?;
        let mark = self.record(&step)?;
        let made = step
            .route(None)
            .map_or(Ok(()), |route| netlink.add_route(&route));
        if let Err(error) = made {
            self.retract(mark)?;
            return Err(error.into());
        }
        self.done.push(step);
        self.look(netlink)?;
        Ok(true)
    }

    /// Makes the route of a step anew, by `way`.
    fn lead(&mut self, index: usize, way: Way, netlink: &mut Netlink) -> Result<(), ApplyError> {
        let mut step = self.done[index].clone();
        if let Step::OuterRoute { via, dev, .. } = &mut step {
            (*via, *dev) = way;
        }
        let step = with_free_metric(&step, netlink)?;
        log::info!(
            "{}: the way past the tunnel is another: {step:?}",
            self.ifname
        );
        // The old step stays in the journal, where it does no harm: its route is gone.
        let mark = self.record(&step)?;
        let made = step
            .route(None)
            .map_or(Ok(()), |route| netlink.add_route(&route));
        if let Err(error) = made {
            self.retract(mark)?;
            return Err(error.into());
        }
        self.done[index] = step;
        Ok(())
    }

    fn towards(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.done.iter().filter_map(|step| match step {
            Step::OuterRoute { towards, .. } => *towards,
            _ => None,
        })
    }

    fn host(&self, netlink: &mut Netlink) -> Result<Host, ApplyError> {
        let routes = netlink.routes(Some(MAIN))?;
        let (others, others_steps) = self.others();
        let tunnels: Vec<u32> = others
            .iter()
            .chain([&self.ifname])
            .filter_map(|name| netlink.index_of(name).ok())
            .collect();
        let made: Vec<Route> = self
            .done
            .iter()
            .chain(&others_steps)
            .filter_map(|step| step.route(None))
            .collect();
        Ok(Host::new(routes, &tunnels, &made))
    }
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
        let host = Host::new(routes, &[9], &[mine]);
        assert_eq!(host.routes.len(), 1);
        assert_eq!(
            host.way(ip("192.0.2.1")),
            Some((Some(ip("198.51.100.1")), 2))
        );
    }
}
