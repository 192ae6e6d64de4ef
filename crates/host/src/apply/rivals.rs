//! Routes of others to the networks that a tunnel leads into itself.

use std::collections::BTreeMap;
use std::net::IpAddr;

use netio::netlink::{Family, NetlinkError, Route, RouteKind};

use super::{Applied, ApplyError};
use crate::facts::ANYWHERE;
use crate::plan::Plan;
use crate::step::{MAIN, Step};
use crate::system::System;
use crate::ways::{best, covers, metric_of};

/// Prefixes of so many bits or fewer lead the whole world, or a part of it that a tunnel redirects.
const WORLD_BITS: u8 = 4;

/// The least metric of the main table's routes of others, by network. Read once for each plan, and only where a step asks.
pub(super) struct Rivals {
    /// The tunnel's interface.
    pub(super) dev: u32,
    least: Option<BTreeMap<(IpAddr, u8), u32>>,
}

impl Rivals {
    pub(super) const fn new(dev: u32) -> Self {
        Self { dev, least: None }
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
            let rival = self.rival(*dst, *prefix, system)?;
            if let Some(rival) = rival.filter(|&rival| rival <= own) {
                *metric = Some(rival.saturating_sub(1).max(1));
            }
        }
        Ok(step)
    }

    /// The reason why packets to a route's network go by another interface although the route stands.
    pub(super) fn shadow(
        &mut self,
        step: &Step,
        system: &mut dyn System,
    ) -> Result<Option<String>, NetlinkError> {
        let (Step::Route { first, .. }, Some(route)) = (step, step.route(Some(self.dev))) else {
            return Ok(None);
        };
        let (dst, prefix, own) = (route.dst, route.prefix, metric_of(&route));
        // No metric is better than none.
        if route.table != MAIN || own == 0 {
            return Ok(None);
        }
        let rival = self.rival(dst, prefix, system)?.filter(|&rival| {
            // The kernel puts an IPv6 route behind those of its metric.
            rival < own || (rival == own && Family::of(dst) == Family::V6)
        });
        let remedy = match first {
            true => "; give the route a lower metric, or none",
            false => "; remove the other route",
        };
        Ok(rival.map(|rival| {
            format!(
                "the route {dst}/{prefix} has metric {own}, and one of this host has {rival}: packets to there do not go \
                 through the tunnel{remedy}"
            )
        }))
    }

    fn rival(
        &mut self,
        dst: IpAddr,
        prefix: u8,
        system: &mut dyn System,
    ) -> Result<Option<u32>, NetlinkError> {
        if self.least.is_none() {
            let mut least = BTreeMap::new();
            for route in system.routes(Some(MAIN))? {
                if route.dev != Some(self.dev) {
                    let metric = metric_of(&route);
                    let known = least.entry((route.dst, route.prefix)).or_insert(metric);
                    *known = metric.min(*known);
                }
            }
            self.least = Some(least);
        }
        let least = self.least.as_ref();
        Ok(least.and_then(|least| least.get(&(dst, prefix)).copied()))
    }
}

impl Applied {
    /// Asks the kernel where packets to the world go now that the routes of a plan stand: rules of another program may
    /// lead them past the main table.
    pub(super) fn judge_ways(
        &mut self,
        plan: &Plan,
        dev: u32,
        system: &mut dyn System,
    ) -> Result<(), ApplyError> {
        for probe in ANYWHERE {
            let leads = |step: &Step| match *step {
                Step::Route {
                    dst,
                    prefix,
                    table: MAIN,
                    first: true,
                    ..
                } => prefix <= WORLD_BITS && covers(dst, prefix, probe),
                _ => false,
            };
            if !plan.steps.iter().any(leads) {
                continue;
            }
            let routes = system.routes(Some(MAIN))?;
            if best(routes.iter(), probe).is_none_or(|(_, best)| best != dev) {
                continue;
            }
            if let Ok(way) = system.route_get(probe, 0)
                && way.dev != dev
                && way.kind == RouteKind::Unicast
            {
                let (name, _) = system.device(way.dev)?;
                let family = if probe.is_ipv4() { "IPv4" } else { "IPv6" };
                let why = format!(
                    "routing rules of another program lead {family} packets by {name}, past the tunnel (ip rule)"
                );
                self.refuse(None, why);
            }
        }
        Ok(())
    }
}
