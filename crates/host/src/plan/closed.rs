//! Networks that were behind a server's clients, and are behind none now.

use std::collections::BTreeSet;
use std::net::IpAddr;

use netio::netlink::{NetlinkError, RouteKind};

use super::Plan;
use crate::step::{MAIN, Step, WORLD_BITS};
use crate::system::System;
use crate::ways::{is_private, masked};

/// Maximum number of networks that [`Plan::close_behind`] makes unreachable.
const CLOSED_MAX: usize = 10_000;

/// A network address and the bits of its prefix.
type Network = (IpAddr, u8);

/// A set of networks.
pub(crate) struct Networks(BTreeSet<Network>);

impl Networks {
    /// The networks to which the host has a route outside the tunnel `ifname` that is more specific than a default route.
    pub(crate) fn outside(ifname: &str, system: &mut dyn System) -> Result<Self, NetlinkError> {
        let dev = system.index_of(ifname)?;
        let mut routes = system.routes(Some(MAIN))?;
        routes.retain(|it| {
            it.kind == RouteKind::Unicast && it.dev != Some(dev) && it.prefix > WORLD_BITS
        });
        Ok(Self(routes.iter().map(|it| (it.dst, it.prefix)).collect()))
    }

    /// Whether one of the networks contains this whole network.
    pub(crate) fn contain(&self, (addr, bits): Network) -> bool {
        (0..=bits).any(|bits| self.0.contains(&(masked(addr, bits), bits)))
    }
}

impl Plan {
    /// Makes networks unreachable that were behind a server's clients in the plan `before`, and are not in this one. Other
    /// clients still send packets to them, which would leave by the host's default route. A network stays open if the
    /// host has a more specific route to it outside the tunnel `ifname`, or if its addresses are public: those are often
    /// a mistake, and clients may connect from them.
    ///
    /// # Errors
    /// When the kernel refuses to list its routes.
    pub fn close_behind(
        &mut self,
        before: &Self,
        ifname: &str,
        system: &mut dyn System,
    ) -> Result<(), NetlinkError> {
        let led = |step: &Step| match *step {
            Step::Route {
                dst,
                prefix: prefix @ 2..,
                table: MAIN,
                ..
            } => Some((dst, prefix)),
            _ => None,
        };
        let now = Networks(self.steps.iter().filter_map(led).collect());
        let were = before.steps.iter();
        let were = were.filter_map(|step| step.closed().or_else(|| led(step)));
        let mut closed: BTreeSet<Network> = were
            .filter(|it| is_private(it.0) && !now.contain(*it))
            .collect();
        if closed.is_empty() {
            return Ok(());
        }
        let outside = Networks::outside(ifname, system)?;
        closed.retain(|it| !outside.contain(*it));
        if closed.len() > CLOSED_MAX {
            log::warn!(
                "{ifname}: only {CLOSED_MAX} of {} networks that are no longer behind clients are made unreachable; \
                 packets to the others use the default route",
                closed.len()
            );
        }
        let closed = closed.into_iter().take(CLOSED_MAX);
        self.steps.extend(closed.map(Step::close));
        Ok(())
    }
}
