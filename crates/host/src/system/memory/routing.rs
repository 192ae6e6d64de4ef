//! Decides which route packets take, as the kernel does from the host's state.

use std::net::IpAddr;

use netio::netlink::{Family, Route, RouteKind, Rule};
use nix::errno::Errno;

use super::{Memory, masked};
use crate::step::MAIN;
use crate::ways::{best, covers, metric_of};

impl Memory {
    /// Adds the routes that the kernel makes for the networks of addresses.
    pub(super) fn connect(&mut self, dev: u32) {
        let is_new = |memory: &Self, route: &Route| {
            !memory
                .routes
                .iter()
                .any(|it| it.protocol == Some(2) && it.dev == route.dev && it.dst == route.dst)
        };
        for (index, addr, prefix, peer) in self.addresses.clone() {
            let route = match peer {
                Some(peer) => Route::new(peer, Family::of(peer).bits()),
                None if prefix == 32 && addr.is_ipv4() => continue,
                None => Route::new(masked(addr, prefix), prefix),
            };
            let metric = addr.is_ipv6().then_some(256);
            let route = Route {
                protocol: Some(2),
                metric,
                ..route.dev(index)
            };
            if index == dev && is_new(self, &route) {
                self.routes.push(route);
            }
        }
    }

    /// The route as the kernel would take it, with the interface that leads to its gateway.
    pub(super) fn acceptable(&mut self, mut route: Route) -> Result<Route, Errno> {
        if masked(route.dst, route.prefix) != route.dst {
            return Err(Errno::EINVAL);
        }
        if let Some(via) = route.via {
            route.dev = Some(self.interface_to(via, route.dev)?);
        }
        match route.dev {
            Some(dev) if !self.link(dev)?.up => Err(Errno::ENETDOWN),
            None if route.kind == RouteKind::Unicast => Err(Errno::ENODEV),
            _ => Ok(route),
        }
    }

    /// The best route of one table, ignoring prefixes of at most `suppressed` bits.
    fn lookup(&self, dst: IpAddr, table: u32, suppressed: Option<u32>) -> Option<&Route> {
        let fits = |route: &&Route| {
            let long = suppressed.is_none_or(|bits| u32::from(route.prefix) > bits);
            route.table == table && long && covers(route.dst, route.prefix, dst)
        };
        let fitting = self.routes.iter().filter(fits);
        fitting.min_by_key(|route| (u8::MAX - route.prefix, metric_of(route)))
    }

    /// The interface that a gateway is on. If one is requested, the kernel uses only that interface's routes. For IPv4
    /// it considers routes that have no gateway themselves (fib_check_nh). For IPv6 it takes the best route, which must
    /// be such a one (ip6_route_check_nh).
    pub(super) fn interface_to(&self, gateway: IpAddr, wanted: Option<u32>) -> Result<u32, Errno> {
        let counts = |route: &&Route| {
            wanted.is_none_or(|dev| route.dev == Some(dev))
                && (gateway.is_ipv6() || route.via.is_none())
        };
        match best(self.routes.iter().filter(counts), gateway) {
            Some((None, dev)) => Ok(dev),
            _ => Err(Errno::ENETUNREACH),
        }
    }

    pub(super) fn decide(&self, dst: IpAddr, mark: u32) -> Option<&Route> {
        let mut rules: Vec<&Rule> = self.rules.iter().collect();
        rules.sort_by_key(|rule| rule.priority);
        let applies = |rule: &&&Rule| {
            let marked = rule.fwmark.is_none_or(|wanted| wanted == mark);
            rule.family == Family::of(dst) && marked != rule.invert
        };
        let found = rules
            .iter()
            .filter(applies)
            .find_map(|rule| self.lookup(dst, rule.table, rule.suppress_prefixlength));
        found.or_else(|| self.lookup(dst, MAIN, None))
    }
}
