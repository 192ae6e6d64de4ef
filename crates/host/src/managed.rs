//! A tunnel whose interface another program of the host gives its addresses, routes and name servers.

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

/// The program that gives interfaces their addresses and routes, as the tunnel sees it.
pub trait Manager: fmt::Debug + Send + Sync {
    /// The tunnel is up, and wants this.
    fn set(&self, want: &Want);

    /// It is up no more, and may come back.
    fn lost(&self);

    /// The other end does not take the credentials.
    fn refused(&self, why: &str);

    /// Whether the way to endpoints of this IP version has to be kept past the tunnel by routes.
    fn keeps_endpoints(&self, v6: bool) -> bool;

    /// Why the tunnel ends by itself.
    fn failed(&self, why: &str);

    /// Whether what the tunnel was made with has changed, when a signal says to read it again.
    fn wants_reload(&self) -> bool;

    /// Whether the configuration that is there now is whole, for a service that takes changes over in place and is
    /// asked for files that the configuration only names. Compare [`wants_reload`](Self::wants_reload).
    fn takes_reload(&self) -> bool;
}

/// [`Manager`], shared by the parts of a service.
pub type SharedManager = Arc<dyn Manager>;

/// Why something was not done. What the manager is told does not depend on it.
#[derive(Debug, Error)]
pub enum ManagedError {
    /// The host cannot be read, or the MTU not be set.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// There is no way to do it.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Routes past the tunnel.
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

/// Does for such a tunnel what its manager has no word for: the MTU, and routes past the tunnel to its endpoints.
/// Dropping it undoes the routes.
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
    /// Nothing is done yet.
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

    /// Whether the manager was told what the tunnel wants, and nothing else since: what is beside that may have failed, and
    /// is to be tried again.
    #[must_use]
    pub const fn is_told(&self) -> bool {
        self.told
    }

    /// The MTU that the interface has, in bytes; 0 before [`Managed::set`].
    #[must_use]
    pub fn mtu(&self) -> u32 {
        self.plan.mtu
    }

    /// Warnings for the user, one sentence each.
    pub fn warnings(&self) -> impl Iterator<Item = &str> {
        let plan = self.plan.warnings.iter().map(String::as_str);
        plan.chain(self.applied.iter().flat_map(Applied::refused))
    }

    /// The manager that the tunnel belongs to.
    #[must_use]
    pub fn manager(&self) -> &SharedManager {
        &self.manager
    }

    /// Has the host be as wanted, or follow it: to be called whenever the host's network has changed, too.
    ///
    /// # Errors
    /// See [`ManagedError`]; the manager was told all the same.
    pub fn set(&mut self, want: &Want) -> Result<(), ManagedError> {
        let outcome = self.outside(want);
        // After the routes past the tunnel: no packet of the tunnel's own is led into it.
        self.manager.set(&self.told(want));
        self.told = true;
        outcome
    }

    /// The wishes as the manager is told them, which looks at neither the MTU nor the endpoints.
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
            _ if plan.steps == self.plan.steps => None,
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

    /// The MTU that is wanted, and why.
    #[must_use]
    pub fn tunnel_mtu(&self) -> &TunnelMtu {
        self.mtu.wanted()
    }

    /// Has the MTU follow what the kernel has learned of the path meanwhile. Nothing before [`Managed::set`].
    ///
    /// # Errors
    /// When the host cannot be read, or the MTU not be set.
    pub fn look_at_path(&mut self, want: &Want) -> Result<(), ManagedError> {
        if self.facts.interface.is_empty() {
            return Ok(());
        }
        let mut netlink = Netlink::open()?;
        let want = past(want, &*self.manager);
        self.facts.look_at_mtu(&want, want.fwmark, &mut netlink)?;
        Ok(self.mtu.follow(&want, &self.facts, &mut netlink)?)
    }

    /// The tunnel is up no more: the manager takes back what it has given the interface.
    pub fn lost(&mut self) {
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

/// A warning about name servers for some domains only: the manager has no word for these domains.
fn unlimited_names(want: &Want) -> Option<String> {
    let names = want.name_servers.as_ref()?;
    let domain = names.only.first()?;
    let server = names.servers.first()?;
    let domains = names.only.join(", ");
    Some(format!(
        "the tunnel's name servers are for {domains} only, and netifd takes them for all names: write `option peerdns '0'` to \
         the interface, and `list server '/{domain}/{server}'` for each domain to `config dnsmasq` of /etc/config/dhcp"
    ))
}

/// The want as the routes past the tunnel depend on it: without rules, which are the manager's.
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
    // The MTU is derived from the ways to endpoints.
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
        // The way to them still tells the MTU.
        let none = past(&want, &Keeps(false, false));
        assert_eq!(
            (none.endpoint_routes, none.endpoints.len(), none.default_v4),
            (EndpointRoutes::Off, 2, None)
        );
    }
}
