//! Which endpoints get a route that keeps them outside the tunnel.

use std::net::IpAddr;

use netio::netlink::Family;

use super::PlanError;
use super::routes::{Routes, push_once};
use crate::facts::EndpointWay;
use crate::step::{MAIN, Step};
use crate::want::{EndpointRoutes, WantedAddress};
use crate::ways::covers;

impl Routes<'_> {
    /// For [`EndpointRoutes::Follow`], when all other routes are known.
    pub(super) fn keep_endpoints(&mut self) {
        let EndpointRoutes::Follow {
            always_v4,
            not_on_link,
        } = self.want.endpoint_routes
        else {
            return;
        };
        for way in &self.facts.endpoints {
            self.pass_over_route_to(way.addr);
            if not_on_link && self.is_on_link(way) {
                continue;
            }
            if !(always_v4 && way.addr.is_ipv4() || self.leads_astray(way.addr)) {
                continue;
            }
            match way.outer_route() {
                // First, so that it is there before anything leads elsewhere.
                Some(step) => self.past.insert(0, step),
                None if way.local => {}
                None => self.plan.warnings.push(format!(
                    "there is no way to the server {} that could be kept outside the tunnel",
                    way.addr
                )),
            }
        }
    }

    /// Whether an endpoint is of a network that the host is on: without a gateway, and not by a default route that has none.
    fn is_on_link(&self, way: &EndpointWay) -> bool {
        let mut defaults = self.facts.defaults.iter();
        way.via.is_none() && !defaults.any(|it| it.via.is_none() && it.dev == way.dev)
    }

    /// Leaves out a route into the tunnel to nothing but its own endpoint, before which no other route could go.
    fn pass_over_route_to(&mut self, addr: IpAddr) {
        let bits = Family::of(addr).bits();
        let leads = |step: &Step| match *step {
            Step::Route {
                dst,
                prefix,
                table: MAIN,
                ..
            } => dst == addr && prefix == bits,
            _ => false,
        };
        let before = self.inside.len();
        self.inside.retain(|step| !leads(step));
        if self.inside.len() != before {
            self.plan.warnings.push(format!(
                "the route {addr}/{bits} is left out: it would lead the tunnel's own packets to its server into the tunnel"
            ));
        }
    }

    fn leads_astray(&self, addr: IpAddr) -> bool {
        let covered = |step: &Step| match *step {
            Step::Route {
                dst,
                prefix,
                table: MAIN,
                ..
            }
            | Step::Unreachable { dst, prefix, .. } => covers(dst, prefix, addr),
            _ => false,
        };
        let own = |own: &WantedAddress| match own.peer {
            Some(peer) => peer == addr,
            None => own.addr != addr && covers(own.addr, own.prefix, addr),
        };
        self.inside.iter().chain(&self.blocked).any(covered) || self.want.addresses.iter().any(own)
    }

    /// For [`EndpointRoutes::ForDefault`] with rules: takes the routes away that would lead the tunnel's own packets into it,
    /// for the table that these do not look into.
    pub(super) fn take_covering(&mut self) -> Vec<(IpAddr, u8)> {
        if self.want.endpoint_routes != EndpointRoutes::ForDefault {
            return Vec::new();
        }
        let endpoints: Vec<IpAddr> = self.called().map(|way| way.addr).collect();
        let covering = |step: &mut Step| match *step {
            Step::Route {
                dst,
                prefix,
                table: MAIN,
                ..
            } => endpoints.iter().any(|it| covers(dst, prefix, *it)),
            _ => false,
        };
        let taken = self.inside.extract_if(.., covering);
        let range = |step| match step {
            Step::Route { dst, prefix, .. } => Some((dst, prefix)),
            _ => None,
        };
        taken.filter_map(range).collect()
    }

    /// Endpoints on other machines.
    fn called(&self) -> impl Iterator<Item = &EndpointWay> {
        self.facts.endpoints.iter().filter(|way| !way.local)
    }

    /// For [`EndpointRoutes::ForDefault`]: the endpoints that a route of the main table or the network of an address of the
    /// tunnel covers keep their ways.
    pub(super) fn keep_covered(&mut self) -> Result<(), PlanError> {
        if self.want.endpoint_routes != EndpointRoutes::ForDefault {
            return Ok(());
        }
        // A blocked endpoint of one family that has no way now must not keep the tunnel from those of the other.
        let blocked = |way: &EndpointWay| way.dev.is_none() && way.addr.is_ipv6() && !self.v6;
        let kept = self
            .called()
            .filter(|way| self.leads_astray(way.addr) && !blocked(way));
        let steps = kept.map(|way| {
            way.outer_route()
                .ok_or(PlanError::NoWayToEndpoint(way.addr))
        });
        for step in steps.collect::<Result<Vec<Step>, _>>()? {
            push_once(&mut self.past, step);
        }
        Ok(())
    }

    /// For [`EndpointRoutes::ForDefault`] with rules: answers come by an interface that the main
    /// table would not choose for the endpoint, which a strict filter drops.
    pub(super) fn please_strict_filter(&mut self) {
        if self.want.endpoint_routes != EndpointRoutes::ForDefault || !self.facts.strict_rp_filter {
            return;
        }
        for way in self.facts.endpoints.iter().filter(|way| way.addr.is_ipv4()) {
            if let Some(step) = way.outer_route() {
                push_once(&mut self.past, step);
            }
        }
    }
}
