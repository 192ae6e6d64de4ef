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
    /// Adds the routes of [`EndpointRoutes::Follow`], when all other routes are known.
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
                // First, so that the endpoint has its route before others take effect.
                Some(step) => self.past.insert(0, step),
                None if way.local => {}
                None => self.plan.warnings.push(format!(
                    "there is no way to the server {} that could be kept outside the tunnel",
                    way.addr
                )),
            }
        }
    }

    /// Whether an endpoint is on a network of the host: reached without a gateway, and not by a default route without
    /// one.
    fn is_on_link(&self, way: &EndpointWay) -> bool {
        let mut defaults = self.facts.defaults.iter();
        way.via.is_none() && !defaults.any(|it| it.via.is_none() && it.dev == way.dev)
    }

    /// Leaves out a route into the tunnel to exactly its own endpoint: no other route could win over it.
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

    /// For [`EndpointRoutes::ForDefault`] with rules: moves routes that cover an endpoint to the tunnel's table, which
    /// the tunnel's own packets do not use. Returns their networks.
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

    /// For [`EndpointRoutes::ForDefault`]: endpoints keep their routes if a route of the main table or the network of a
    /// tunnel's address covers them.
    pub(super) fn keep_covered(&mut self) -> Result<(), PlanError> {
        if self.want.endpoint_routes != EndpointRoutes::ForDefault {
            return Ok(());
        }
        // A blocked endpoint without a route must not stop the tunnel, which may reach endpoints of the other family.
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

    /// For [`EndpointRoutes::ForDefault`] with rules: a strict reverse-path filter drops answers from the endpoint,
    /// because the main table would choose another interface for it. A route in the main table prevents that.
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
