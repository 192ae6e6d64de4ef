//! A tunnel whose interface gets its addresses, routes and name servers from another program of the host.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use netio::netlink::{Family, Netlink, NetlinkError};
use thiserror::Error;

use crate::apply::{Applied, ApplyError};
use crate::facts::Facts;
use crate::mtu::{MtuFollower, TunnelMtu};
use crate::plan::{Plan, PlanError};
use crate::step::{MAIN, Step};
use crate::want::{DefaultV4, DefaultV6, Destination, EndpointRoutes, Want};

/// The program that configures interfaces, as the tunnel sees it.
pub trait Manager: fmt::Debug + Send + Sync {
    /// Called when the tunnel is up, with its wishes.
    fn set(&self, want: &Want);

    /// Called when the tunnel is down; it may come back.
    fn lost(&self);

    /// Called when the other end rejects the credentials.
    fn refused(&self, why: &str);

    /// Called when peers that the tunnel calls do not answer, with the words for the owner; `None` once they answer.
    fn silent(&self, _why: Option<&str>) {}

    /// Whether endpoints of this IP version need routes past the tunnel.
    fn keeps_endpoints(&self, v6: bool) -> bool;

    /// Called when the tunnel ends by itself, with the reason.
    fn failed(&self, why: &str);

    /// Whether the tunnel's configuration has changed, when a signal requests a reload.
    fn wants_reload(&self) -> bool;

    /// Whether the process is about to execute another program, which keeps the interface as it is: the tunnel ends and
    /// leaves everything else to that program.
    #[cfg(feature = "handover")]
    fn is_succeeded(&self) -> bool {
        false
    }

    /// Whether the present configuration is complete. For a service that applies changes in place, and is asked to
    /// reload files that the configuration only names. Compare [`wants_reload`](Self::wants_reload).
    fn takes_reload(&self) -> bool;
}

/// [`Manager`], shared by the parts of a service.
pub type SharedManager = Arc<dyn Manager>;

/// Why a change was not made. The manager is told the wishes all the same.
#[derive(Debug, Error)]
pub enum ManagedError {
    /// The host cannot be read, or the kernel refuses the MTU.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// No plan is possible.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A route past the tunnel failed.
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

/// Does for a managed tunnel what its manager cannot: sets the MTU, and keeps endpoints outside by routes past the
/// tunnel. Dropping it undoes the routes.
#[derive(Debug)]
pub struct Managed {
    manager: SharedManager,
    ifname: String,
    applied: Option<Applied>,
    plan: Plan,
    facts: Facts,
    mtu: MtuFollower,
    told: bool,
}

impl Managed {
    /// Creates the value; changes nothing yet.
    #[must_use]
    pub fn new(manager: SharedManager, ifname: &str) -> Self {
        Self {
            manager,
            ifname: ifname.to_owned(),
            applied: None,
            plan: Plan::default(),
            facts: Facts::default(),
            mtu: MtuFollower::default(),
            told: false,
        }
    }

    /// Whether the manager's last message was the tunnel's wishes. The changes made besides may have failed, and are to
    /// be tried again.
    #[must_use]
    pub const fn is_told(&self) -> bool {
        self.told
    }

    /// The interface's MTU in bytes; 0 before [`Managed::set`].
    #[must_use]
    pub fn mtu(&self) -> u32 {
        self.plan.mtu
    }

    /// Warnings for the user, one sentence each.
    pub fn warnings(&self) -> impl Iterator<Item = &str> {
        let plan = self.plan.warnings.iter().map(String::as_str);
        plan.chain(self.applied.iter().flat_map(Applied::refused))
    }

    /// The program that configures the interface.
    #[must_use]
    pub fn manager(&self) -> &SharedManager {
        &self.manager
    }

    /// Makes the host match the wishes. Call it again whenever the host's network has changed.
    ///
    /// # Errors
    /// See [`ManagedError`]; even then the manager got the wishes.
    pub fn set(&mut self, want: &Want) -> Result<(), ManagedError> {
        let outcome = self.outside(want);
        // After the routes past the tunnel: otherwise the tunnel's own packets would be led into it.
        self.manager.set(&self.told(want));
        self.told = true;
        outcome
    }

    /// The wishes for the manager, which reads neither the MTU nor the endpoints.
    fn told(&self, want: &Want) -> Want {
        let mut want = want.clone();
        want.no_ipv6 = !self.facts.interface.is_empty() && !self.plan.has_v6(&self.facts);
        let bits = |addr: IpAddr| Family::of(addr).bits();
        let endpoints = want.endpoints.clone();
        want.routes.retain(|route| {
            let leads_to =
                |to: &IpAddr| route.to == Destination::Network(*to) && route.prefix == bits(*to);
            route.table != MAIN || !endpoints.iter().any(leads_to)
        });
        want
    }

    fn outside(&mut self, want: &Want) -> Result<(), ManagedError> {
        let mut netlink = Netlink::open()?;
        let unlimited = unlimited_names(want);
        let want = past(want, &*self.manager);
        let facts = Facts::gather(&want, &self.ifname, &mut netlink)?;
        self.mtu.follow(&want, &facts, &mut netlink)?;
        let mut plan = Plan::of_routes(&want, &facts)?;
        if !want.leaves_interface {
            plan.warn_of_v6(&want, &facts);
        }
        self.facts = facts;
        plan.steps
            .retain(|step| matches!(step, Step::OuterRoute { .. }));
        plan.warnings.extend(unlimited);
        for warning in &plan.warnings {
            if !self.plan.warnings.contains(warning) {
                log::warn!("{}: {warning}", self.ifname);
            }
        }
        let errors = match &mut self.applied {
            // The kernel removes routes with the address or the device that they need.
            Some(applied) if plan.steps == self.plan.steps => applied.follow(&mut netlink).err(),
            None if plan.steps == self.plan.steps => None,
            Some(applied) => applied
                .change(&self.plan, &plan, &mut netlink)
                .into_iter()
                .next(),
            None => {
                self.applied = Some(Applied::apply(&plan, &self.ifname, &mut netlink)?);
                None
            }
        };
        self.plan = plan;
        errors.map_or(Ok(()), |error| Err(error.into()))
    }

    /// The wanted MTU, and why.
    #[must_use]
    pub fn tunnel_mtu(&self) -> &TunnelMtu {
        self.mtu.wanted()
    }

    /// Makes the MTU follow what the kernel has learned of the path. Does nothing before [`Managed::set`].
    ///
    /// # Errors
    /// When the host cannot be read, or the kernel refuses the MTU.
    pub fn look_at_path(&mut self, want: &Want) -> Result<(), ManagedError> {
        if self.facts.interface.is_empty() {
            return Ok(());
        }
        let mut netlink = Netlink::open()?;
        let want = past(want, &*self.manager);
        self.facts.look_at_mtu(&want, want.fwmark, &mut netlink)?;
        Ok(self.mtu.follow(&want, &self.facts, &mut netlink)?)
    }

    /// Leaves the routes past the tunnel for the program that this process executes next.
    #[cfg(feature = "handover")]
    pub fn leave(&mut self) {
        if let Some(applied) = self.applied.take() {
            applied.leave();
        }
    }

    /// Reports that the tunnel is down: the manager removes the settings that it gave the interface.
    pub fn lost(&mut self) {
        #[cfg(feature = "handover")]
        if self.manager.is_succeeded() {
            return self.leave();
        }
        self.manager.lost();
        self.told = false;
        self.undo();
    }

    fn undo(&mut self) {
        let errors = self.applied.take().map_or(Ok(()), Applied::undo);
        for error in errors.err().into_iter().flatten() {
            log::warn!("{}: {error}", self.ifname);
        }
        self.plan.steps.clear();
    }
}

/// A warning for name servers that serve some domains only: the manager cannot limit them.
fn unlimited_names(want: &Want) -> Option<String> {
    let names = want.name_servers.as_ref()?;
    let domain = names.only.first()?;
    let server = names.servers.first()?;
    let domains = names.only.join(", ");
    Some(format!(
        "the tunnel's name servers are for {domains} only, but netifd uses them for all names; add `option peerdns \
         '0'` to the interface, and `list server '/{domain}/{server}'` for each domain to `config dnsmasq` of \
         /etc/config/dhcp"
    ))
}

/// The wishes that concern routes past the tunnel: without rules, which the manager makes.
fn past(want: &Want, manager: &dyn Manager) -> Want {
    let (v4, v6) = (
        manager.keeps_endpoints(false),
        manager.keeps_endpoints(true),
    );
    let mut past = want.clone();
    past.default_v4 = past.default_v4.filter(|_| v4).map(|_| DefaultV4::Halves);
    past.default_v6 = past.default_v6.filter(|_| v6).map(|_| DefaultV6::Global);
    past.endpoint_routes = match (v4 || v6, past.endpoint_routes) {
        (false, _) => EndpointRoutes::Off,
        (true, EndpointRoutes::ForDefault) => EndpointRoutes::Follow {
            always_v4: false,
            not_on_link: false,
        },
        (true, other) => other,
    };
    past.endpoints
        .retain(|it| if it.is_ipv4() { v4 } else { v6 });
    // The MTU is derived from the routes to endpoints.
    if past.endpoints.is_empty() {
        past.endpoints.clone_from(&want.endpoints);
        past.endpoint_routes = EndpointRoutes::Off;
    }
    past.name_servers = None;
    past.fwmark = 0;
    past
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Keeps(bool, bool);

    impl Manager for Keeps {
        fn set(&self, _: &Want) {}
        fn lost(&self) {}
        fn refused(&self, _: &str) {}
        fn failed(&self, _: &str) {}
        fn keeps_endpoints(&self, v6: bool) -> bool {
            if v6 { self.1 } else { self.0 }
        }
        fn wants_reload(&self) -> bool {
            true
        }
        fn takes_reload(&self) -> bool {
            true
        }
    }

    #[test]
    fn endpoints_are_kept_past_the_tunnel_only_where_the_manager_does_not() {
        let want = Want {
            default_v4: Some(DefaultV4::Rules),
            default_v6: Some(DefaultV6::Rules),
            endpoints: vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
            fwmark: 7,
            ..Want::default()
        };
        let all = past(&want, &Keeps(true, true));
        assert_eq!(
            (all.default_v4, all.default_v6, all.fwmark),
            (Some(DefaultV4::Halves), Some(DefaultV6::Global), 0)
        );
        assert_eq!(all.endpoints, want.endpoints);
        let v4 = past(&want, &Keeps(true, false));
        assert_eq!((v4.default_v6, v4.endpoints.len()), (None, 1));
        // The route to the endpoints still determines the MTU.
        let none = past(&want, &Keeps(false, false));
        assert_eq!(
            (none.endpoint_routes, none.endpoints.len(), none.default_v4),
            (EndpointRoutes::Off, 2, None)
        );
    }
}
