//! Which endpoints get a route that keeps them outside the tunnel.

use std::net::IpAddr;

use super::PlanError;
use super::routes::{Routes, push_once};
use crate::facts::EndpointWay;
use crate::step::Step;
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
            if not_on_link && way.via.is_none() {
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

    fn leads_astray(&self, addr: IpAddr) -> bool {
        let covered = |step: &Step| match *step {
            Step::Route { dst, prefix, .. } | Step::Unreachable { dst, prefix, .. } => {
                covers(dst, prefix, addr)
            }
            _ => false,
        };
        let own = |own: &WantedAddress| match own.peer {
            Some(peer) => peer == addr,
            None => covers(own.addr, own.prefix, addr),
        };
        self.inside.iter().chain(&self.blocked).any(covered) || self.want.addresses.iter().any(own)
    }

    /// For [`EndpointRoutes::ForDefault`] with rules: answers come by an interface that the main
    /// table would not choose for the endpoint, which a strict filter drops.
    pub(super) fn please_strict_filter(&mut self) {
        if self.want.endpoint_routes != EndpointRoutes::ForDefault || !self.facts.strict_rp_filter {
            return;
        }
        for way in self.facts.endpoints.iter().filter(|way| way.addr.is_ipv4()) {
            if let Some(step) = way.host_route() {
                push_once(&mut self.past, step);
            }
        }
    }

    /// For [`EndpointRoutes::ForDefault`] with halves, in the families that these redirect.
    pub(super) fn keep_for_halves(&mut self, v4: bool, v6: bool) -> Result<(), PlanError> {
        if self.want.endpoint_routes != EndpointRoutes::ForDefault {
            return Ok(());
        }
        let redirected = |way: &&EndpointWay| if way.addr.is_ipv4() { v4 } else { v6 };
        for way in self.facts.endpoints.iter().filter(redirected) {
            if !way.local {
                let step = way.host_route();
                let step = step.ok_or(PlanError::NoWayToEndpoint(way.addr))?;
                push_once(&mut self.past, step);
            }
        }
        Ok(())
    }
}
