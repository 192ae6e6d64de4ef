//! Other programs' routes to networks that a tunnel leads into itself.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netio::netlink::{Family, NetlinkError, Route, RouteKind};

use super::{Applied, ApplyError};
use crate::step::{MAIN, Step, WORLD_BITS};
use crate::system::System;
use crate::ways::{best_route, covers, metric_of};

/// Addresses of each eighth of the IPv4 Internet, and of each registry's IPv6: a route that covers most of them leads
/// all packets. They are only looked up.
const WORLD: [IpAddr; 12] = [
    IpAddr::V4(Ipv4Addr::new(9, 0, 0, 1)),
    IpAddr::V4(Ipv4Addr::new(45, 0, 0, 1)),
    IpAddr::V4(Ipv4Addr::new(80, 0, 0, 1)),
    IpAddr::V4(Ipv4Addr::new(101, 0, 0, 1)),
    IpAddr::V4(Ipv4Addr::new(151, 0, 0, 1)),
    IpAddr::V4(Ipv4Addr::new(185, 0, 0, 1)),
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2400, 0, 0, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2600, 0, 0, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2800, 0, 0, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2a00, 0, 0, 0, 0, 0, 0, 1)),
];

/// The lowest metric of other programs' routes in the main table, by network. Read once for each plan, and only if a
/// step needs it.
pub(super) struct Rivals {
    /// Index of the tunnel's interface.
    pub(super) dev: u32,
    /// Interfaces of other tunnels, whose routes do not count.
    others: Vec<u32>,
    /// The lowest metrics; the `bool` is true for routes that lead somewhere, false for those that block.
    least: Option<BTreeMap<(IpAddr, u8, bool), u32>>,
}

impl Rivals {
    pub(super) const fn new(dev: u32) -> Self {
        Self::beside(dev, Vec::new())
    }

    pub(super) const fn beside(dev: u32, others: Vec<u32>) -> Self {
        Self {
            dev,
            others,
            least: None,
        }
    }

    /// Sets a metric of the step that wins over other programs' routes. IPv4 needs no change: a route without a metric
    /// already has the best, and [`add`](super::effect::add) puts it before its equals.
    pub(super) fn win(
        &mut self,
        mut step: Step,
        system: &mut dyn System,
    ) -> Result<Step, NetlinkError> {
        if let Step::Route {
            dst: dst @ IpAddr::V6(_),
            prefix,
            metric: metric @ None,
            table: MAIN,
            first: true,
            ..
        } = &mut step
        {
            let own = metric_of(&Route::new(*dst, *prefix));
            let rival = self.rival(*dst, *prefix, false, system)?;
            if let Some(rival) = rival.filter(|&rival| rival <= own) {
                *metric = Some(rival.saturating_sub(1).max(1));
            }
        }
        Ok(step)
    }

    /// Explains why a step's route has no effect: packets to its network use another interface, or are not blocked,
    /// because the kernel prefers another program's route.
    pub(super) fn shadow(
        &mut self,
        step: &Step,
        system: &mut dyn System,
    ) -> Result<Option<String>, NetlinkError> {
        let (effect, remedy) = match step {
            Step::Route {
                first: true,
                optional: true,
                ..
            } => (
                "do not use the tunnel",
                "give the route a lower metric, or none",
            ),
            Step::Route { .. } => ("do not use the tunnel", "remove the other route"),
            Step::Unreachable { .. } if step.closed().is_none() => {
                ("are not blocked", "remove the other route")
            }
            _ => return Ok(None),
        };
        let Some(route) = step.route(Some(self.dev)) else {
            return Ok(None);
        };
        let (dst, prefix, own) = (route.dst, route.prefix, metric_of(&route));
        // A route without a metric has the best one.
        if route.table != MAIN || own == 0 {
            return Ok(None);
        }
        let blocks = matches!(step, Step::Unreachable { .. });
        let rival = self.rival(dst, prefix, blocks, system)?.filter(|&rival| {
            // The kernel puts an IPv6 route behind others of the same metric.
            rival < own || (rival == own && Family::of(dst) == Family::V6)
        });
        Ok(rival.map(|rival| {
            format!(
                "the route {dst}/{prefix} has metric {own}, but one of this host has {rival}: packets to it {effect}; \
                 {remedy}"
            )
        }))
    }

    /// The lowest metric of other programs' routes to a network; with `leads`, only of routes that do not block.
    fn rival(
        &mut self,
        dst: IpAddr,
        prefix: u8,
        leads: bool,
        system: &mut dyn System,
    ) -> Result<Option<u32>, NetlinkError> {
        if self.least.is_none() {
            let mut least = BTreeMap::new();
            for route in system.routes(Some(MAIN))? {
                let ours = |dev: u32| dev == self.dev || self.others.contains(&dev);
                if !route.dev.is_some_and(ours) {
                    let metric = metric_of(&route);
                    let leads = route.kind == RouteKind::Unicast;
                    let known = least
                        .entry((route.dst, route.prefix, leads))
                        .or_insert(metric);
                    *known = metric.min(*known);
                }
            }
            self.least = Some(least);
        }
        let least = self.least.iter().flat_map(|least| {
            let blocking = least.get(&(dst, prefix, false)).filter(|_| !leads);
            blocking.into_iter().chain(least.get(&(dst, prefix, true)))
        });
        Ok(least.min().copied())
    }
}

impl Applied {
    /// Asks the kernel where packets to the Internet go although the tunnel's routes exist. Another program's rules, or
    /// more specific routes of the main table, may lead them past the tunnel. Routes through other tunnels of this
    /// program (`others`) and to single networks of the host are fine. Ignores the steps in `gone`.
    pub(super) fn judge_ways(
        &self,
        dev: u32,
        others: &[u32],
        gone: &[Step],
        system: &mut dyn System,
    ) -> Result<Vec<String>, ApplyError> {
        let mut told = Vec::new();
        for (family, command, probes) in
            [("IPv4", "ip", &WORLD[..7]), ("IPv6", "ip -6", &WORLD[7..])]
        {
            let mut led: Vec<IpAddr> = probes.to_vec();
            let stands = |step: &&Step| !gone.contains(step);
            led.retain(|probe| {
                let mut steps = self.done.iter().filter(stands);
                steps.any(|step| self.leads(step, *probe))
            });
            if led.is_empty() {
                continue;
            }
            let routes = system.routes(Some(MAIN))?;
            let mut past = Vec::new();
            for probe in &led {
                let Ok(way) = system.route_get(*probe, 0) else {
                    continue;
                };
                if way.dev == dev || others.contains(&way.dev) || way.kind != RouteKind::Unicast {
                    continue;
                }
                let route = best_route(routes.iter(), *probe).filter(|it| it.dev == Some(way.dev));
                match route {
                    // `shadow` reports a route to the same network.
                    Some(route)
                        if self.has_route_like(route) && !self.has_rules(probe.is_ipv6()) => {}
                    _ => past.push((way.dev, route.filter(|it| it.prefix > 0))),
                }
            }
            // A route to a single network is the host's own affair.
            let is_local = |route: Option<&Route>| route.is_some_and(|it| it.prefix > WORLD_BITS);
            let first = past.iter().find(|(_, route)| !is_local(*route));
            let first = first.or_else(|| past.first().filter(|_| past.len() * 2 > led.len()));
            let Some((way, route)) = first else {
                continue;
            };
            let (name, _) = system.device(*way)?;
            let blocks =
                |step: &Step| matches!(step, Step::Unreachable { .. }) && self.leads(step, led[0]);
            let past = match self.done.iter().any(blocks) {
                true => "which does not block them",
                false => "outside the tunnel",
            };
            told.push(match route {
                Some(route) => format!(
                    "the more specific route {}/{} of another program routes {family} packets through {name}, {past} \
                     ({command} route)",
                    route.dst, route.prefix
                ),
                None => format!(
                    "routing rules of another program route {family} packets through {name}, {past} ({command} rule)"
                ),
            });
        }
        Ok(told)
    }

    fn has_route_like(&self, other: &Route) -> bool {
        let mut routes = self.done.iter().filter_map(|step| step.route(None));
        routes.any(|it| (it.dst, it.prefix, it.table) == (other.dst, other.prefix, MAIN))
    }

    fn has_rules(&self, wanted: bool) -> bool {
        let mut done = self.done.iter();
        done.any(|step| matches!(step, Step::UnmarkedRule { v6, .. } if *v6 == wanted))
    }

    /// Whether a step leads packets to `addr` into the tunnel or blocks them. Its table must be the main one, or one
    /// that a rule of this tunnel uses. For other tables the user makes the rules.
    fn leads(&self, step: &Step, addr: IpAddr) -> bool {
        let looked_into = |wanted: u32| {
            let looks =
                |step: &Step| matches!(step, Step::UnmarkedRule { table, .. } if *table == wanted);
            wanted == MAIN || self.done.iter().any(looks)
        };
        match *step {
            Step::Route {
                dst, prefix, table, ..
            } => covers(dst, prefix, addr) && looked_into(table),
            Step::Unreachable { dst, prefix, .. } => covers(dst, prefix, addr),
            _ => false,
        }
    }
}
