//! Keeps routes past the tunnel on the host's current path.

use std::net::IpAddr;

use netio::netlink::{Family, Route, RouteKind};

use super::{Applied, ApplyError, absent_is_fine};
use crate::step::{MAIN, Step};
use crate::system::System;
use crate::ways::{FIRST_METRIC, HostRoutes, Way, best, covers, is_same, with_free_metric};

impl Applied {
    /// The host's own routes to these addresses. Read them before the routes past the tunnel are made, and pass them to
    /// [`Applied::saw`] afterwards.
    pub(super) fn ways(
        &self,
        all: &[IpAddr],
        system: &mut dyn System,
    ) -> Result<Vec<(IpAddr, Option<Way>)>, ApplyError> {
        if all.is_empty() {
            return Ok(Vec::new());
        }
        let host = self.host(system)?;
        Ok(all.iter().map(|to| (*to, host.way(*to))).collect())
    }

    /// Records the ways that routes past the tunnel were made for, so that [`Applied::follow`] notices a change. Routes
    /// to other addresses keep their record.
    pub(super) fn saw(&mut self, ways: Vec<(IpAddr, Option<Way>)>) {
        let all: Vec<IpAddr> = self.towards().collect();
        let is_new = |to: &IpAddr| ways.iter().any(|(new, _)| new == to);
        self.seen.retain(|(to, _)| all.contains(to) && !is_new(to));
        self.seen.extend(ways);
    }

    /// Moves the routes past the tunnel to the host's current route, and restores the tunnel's own steps that another
    /// program removed. Call it when links, routes or rules of the host have changed (a cable was pulled, a lease
    /// renewed). Returns whether any route past the tunnel moved.
    ///
    /// A route stays while the host's own routes lead to the same next hop. When the host has no route any more, the
    /// routes stay until it has one again.
    ///
    /// # Errors
    /// When the kernel refuses to list its routes or to set one; call again at the next change.
    pub fn follow(&mut self, system: &mut dyn System) -> Result<bool, ApplyError> {
        let moved = self.follow_past(system)?;
        self.keep(system)?;
        Ok(moved)
    }

    fn follow_past(&mut self, system: &mut dyn System) -> Result<bool, ApplyError> {
        let all: Vec<IpAddr> = self.towards().collect();
        if all.is_empty() {
            return Ok(false);
        }
        let host = self.host(system)?;
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
            let present = host.present.iter().any(|route| is_same(route, &old));
            if present && (unchanged || way == (old.via, old.dev.unwrap_or(0))) {
                continue;
            }
            self.lead(index, way, system)?;
            if present {
                absent_is_fine(system.delete_route(&old))?;
            }
            moved = true;
        }
        // Not read again: a change since would never be followed.
        self.saw(all.into_iter().map(|to| (to, host.way(to))).collect());
        Ok(moved)
    }

    /// Keeps one more address outside the tunnel while it is up: the next server, before the tunnel connects to it.
    /// Returns whether the address needed a route and has one now.
    ///
    /// # Errors
    /// When the kernel refuses to list its routes or to set one.
    pub fn keep_outside(
        &mut self,
        addr: IpAddr,
        system: &mut dyn System,
    ) -> Result<bool, ApplyError> {
        let kept = |step: &Step| matches!(step, Step::OuterRoute { dst, .. } if *dst == addr);
        if self.done.iter().any(kept) {
            return Ok(true);
        }
        let astray = |step: &Step| match *step {
            Step::Route {
                dst,
                prefix,
                table: MAIN,
                ..
            }
            | Step::Unreachable { dst, prefix, .. } => covers(dst, prefix, addr),
            _ => false,
        };
        if !self.done.iter().any(astray) {
            return Ok(false);
        }
        let now = system.route_get(addr, 0);
        if now.is_ok_and(|way| way.kind == RouteKind::Local) {
            return Ok(false);
        }
        let host = self.host(system)?;
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
            metric: FIRST_METRIC,
            towards: Some(addr),
        };
        let step = with_free_metric(&step, system)?;
        let mark = self.record(&step)?;
        let made = step
            .route(None)
            .map_or(Ok(()), |route| system.add_route(&route));
        if let Err(error) = made {
            self.retract(mark)?;
            return Err(error.into());
        }
        self.done.push(step);
        self.saw(vec![(addr, host.way(addr))]);
        Ok(true)
    }

    /// Replaces the route of a step by one that uses `way`.
    fn lead(&mut self, index: usize, way: Way, system: &mut dyn System) -> Result<(), ApplyError> {
        let mut step = self.done[index].clone();
        if let Step::OuterRoute { via, dev, .. } = &mut step {
            (*via, *dev) = way;
        }
        let step = with_free_metric(&step, system)?;
        log::info!(
            "{}: the route outside the tunnel has changed: {step:?}",
            self.ifname
        );
        // The old step stays in the journal, where it does no harm: its route is gone.
        let mark = self.record(&step)?;
        let made = step
            .route(None)
            .map_or(Ok(()), |route| system.add_route(&route));
        if let Err(error) = made {
            self.retract(mark)?;
            return Err(error.into());
        }
        self.done[index] = step;
        Ok(())
    }

    fn towards(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.done.iter().filter_map(Step::towards)
    }

    fn host(&self, system: &mut dyn System) -> Result<HostRoutes, ApplyError> {
        let routes = system.routes(Some(MAIN))?;
        let (others, others_steps) = self.others();
        let tunnels: Vec<u32> = others
            .iter()
            .chain([&self.ifname])
            .filter_map(|name| system.index_of(name).ok())
            .collect();
        let made: Vec<Route> = self
            .done
            .iter()
            .chain(&others_steps)
            .filter_map(|step| step.route(None))
            .collect();
        Ok(HostRoutes::new(routes, &tunnels, &made))
    }
}
