//! Routes of others to the networks that a tunnel leads into itself.

use std::collections::BTreeMap;
use std::net::IpAddr;

use netio::netlink::{Family, NetlinkError, Route, RouteKind};

use super::{Applied, ApplyError};
use crate::facts::ANYWHERE;
use crate::step::{MAIN, Step, WORLD_BITS};
use crate::system::System;
use crate::ways::{best_route, covers, metric_of};

/// The least metric of the main table's routes of others, by network. Read once for each plan, and only where a step asks.
pub(super) struct Rivals {
    /// The tunnel's interface.
    pub(super) dev: u32,
    /// Interfaces of other tunnels, whose routes do not count.
    others: Vec<u32>,
    /// Routes that lead somewhere are told from those that block.
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

    /// Gives the step a metric that wins over the routes of others. IPv4 needs none: a route without a metric has the
    /// best, and [`add`](super::effect::add) puts it in front of its equals.
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

    /// Why the packets to a route's network go by another interface although the route stands, or are not blocked.
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
                "do not go through the tunnel",
                "give the route a lower metric, or none",
            ),
            Step::Route { .. } => ("do not go through the tunnel", "remove the other route"),
            Step::Unreachable { .. } => ("are not kept from leaving", "remove the other route"),
            _ => return Ok(None),
        };
        let Some(route) = step.route(Some(self.dev)) else {
            return Ok(None);
        };
        let (dst, prefix, own) = (route.dst, route.prefix, metric_of(&route));
        // No metric is better than none.
        if route.table != MAIN || own == 0 {
            return Ok(None);
        }
        let blocks = matches!(step, Step::Unreachable { .. });
        let rival = self.rival(dst, prefix, blocks, system)?.filter(|&rival| {
            // The kernel puts an IPv6 route behind those of its metric.
            rival < own || (rival == own && Family::of(dst) == Family::V6)
        });
        Ok(rival.map(|rival| {
            format!(
                "the route {dst}/{prefix} has metric {own}, and one of this host has {rival}: packets to there {effect}; \
                 {remedy}"
            )
        }))
    }

    /// The least metric of others' routes to a network; with `leads`, of those that do not block.
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
    /// Asks the kernel where packets to the world go while the tunnel's routes stand: rules of another program may
    /// lead them past those routes, or more specific routes of the main table win. Other tunnels of this program, whose
    /// interfaces are `others`, may do so.
    pub(super) fn judge_ways(
        &self,
        dev: u32,
        others: &[u32],
        system: &mut dyn System,
    ) -> Result<Vec<String>, ApplyError> {
        let mut told = Vec::new();
        for probe in ANYWHERE {
            let leads = |step: &Step| match *step {
                Step::Route {
                    dst,
                    prefix,
                    table,
                    first,
                    ..
                } => (first || table != MAIN) && prefix <= WORLD_BITS && covers(dst, prefix, probe),
                _ => false,
            };
            if !self.done.iter().any(leads) {
                continue;
            }
            let Ok(way) = system.route_get(probe, 0) else {
                continue;
            };
            if way.dev == dev || others.contains(&way.dev) || way.kind != RouteKind::Unicast {
                continue;
            }
            let (name, _) = system.device(way.dev)?;
            let routes = system.routes(Some(MAIN))?;
            let longest = best_route(routes.iter(), probe).filter(|it| it.dev == Some(way.dev));
            let cause = match longest {
                // The host's own way to one network.
                Some(route) if route.prefix > WORLD_BITS => continue,
                Some(route) if route.prefix != 0 => format!(
                    "the more specific route {}/{} of another program leads",
                    route.dst, route.prefix
                ),
                _ => "routing rules of another program lead".to_owned(),
            };
            let (family, remedy) = match (probe.is_ipv4(), longest) {
                (true, Some(route)) if route.prefix != 0 => ("IPv4", "ip route"),
                (false, Some(route)) if route.prefix != 0 => ("IPv6", "ip -6 route"),
                (true, _) => ("IPv4", "ip rule"),
                (false, _) => ("IPv6", "ip -6 rule"),
            };
            told.push(format!(
                "{cause} {family} packets by {name}, past the tunnel ({remedy})"
            ));
        }
        Ok(told)
    }
}
