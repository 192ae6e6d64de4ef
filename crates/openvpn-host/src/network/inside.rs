//! The inside of one tunnel, from the push reply to its end: applies a [`TunnelNetwork`] for client and server, with
//! room for their scripts.

use std::collections::BTreeMap;
use std::net::IpAddr;

use config::openvpn::{Family, Place};
use netio::netlink::{Netlink, NetlinkError};
use thiserror::Error;

use super::merge::{NetworkError, TunnelNetwork};
use super::want::Outside;
use crate::connect::{Stop, resolve};
use host::{
    Applied, ApplyError, Facts, Managed, ManagedError, Plan, PlanError, SharedManager, Want,
};

/// The addresses of names in routes.
pub type RouteNames = BTreeMap<String, Vec<IpAddr>>;

/// Looks up the names in routes, one after the other. Names not found before `stop` have no addresses.
pub fn route_names(names: &[String], stop: &Stop<'_>) -> RouteNames {
    let look_up = |name: &String| {
        let found = match resolve(name, 0, Family::Any, stop) {
            Ok(Some(found)) => found.iter().map(std::net::SocketAddr::ip).collect(),
            Ok(None) => Vec::new(),
            Err(error) => {
                log::warn!("{error}");
                Vec::new()
            }
        };
        (name.clone(), found)
    };
    names.iter().map(look_up).collect()
}

/// Error while setting up the inside.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InsideError {
    /// The options are invalid.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The host cannot have the requested settings.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The host's state could not be read.
    #[error(transparent)]
    Host(#[from] NetlinkError),
    /// The host's settings could not be changed.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The MTU or the routes outside a managed tunnel could not be set.
    #[error(transparent)]
    Managed(#[from] ManagedError),
}

/// Inputs for a tunnel's inside, besides the options.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// The tunnel's existing interface.
    pub ifname: &'a str,
    /// Destination of the outer packets: the server, or the proxy in front of it. `None` in a server.
    pub remote: Option<IpAddr>,
    /// Firewall mark of the outer packets, 0 for none.
    pub mark: u32,
}

/// The inside of a tunnel. Dropping it undoes its settings.
#[derive(Debug)]
pub struct Inside {
    /// Planned addresses and routes.
    pub network: TunnelNetwork,
    /// The host's state before the settings.
    pub facts: Facts,
    /// The facts are current: since they were read, nothing was undone and no script has run.
    fresh: bool,
    want: Want,
    ifname: String,
    remote: Option<IpAddr>,
    applied: Option<Applied>,
    /// User warnings from the plans in force.
    warnings: Vec<String>,
    /// Another program that sets the interface's addresses, routes and name servers.
    managed: Option<Managed>,
    /// Other servers that are routed outside the tunnel.
    kept: Vec<IpAddr>,
}

impl Inside {
    /// Plans the inside with these addresses of the names in routes, without changing anything. Warnings for the user
    /// are in [`TunnelNetwork::warnings`], and go to the log.
    ///
    /// # Errors
    /// See [`InsideError`].
    pub fn of(
        network: TunnelNetwork,
        names: &RouteNames,
        around: Surroundings<'_>,
    ) -> Result<Self, InsideError> {
        let mut netlink = Netlink::open()?;
        let Surroundings {
            ifname,
            remote,
            mark,
        } = around;
        let want = network.want(Outside {
            remote,
            mark,
            names,
        });
        let facts = Facts::gather(&want, ifname, &mut netlink)?;
        for warning in &network.warnings {
            log::warn!("WARNING: {warning}");
        }
        Ok(Self {
            network,
            facts,
            fresh: true,
            want,
            ifname: ifname.to_owned(),
            remote,
            applied: None,
            warnings: Vec::new(),
            managed: None,
            kept: Vec::new(),
        })
    }

    /// Leaves the interface's settings to another program.
    pub fn managed_by(mut self, manager: &SharedManager) -> Self {
        self.managed = Some(Managed::new(manager.clone(), &self.ifname));
        self
    }

    /// Says what goes through the tunnel: [`Want::summary`].
    pub fn summary(&self) -> String {
        self.want.summary(&self.ifname, self.applied.as_ref())
    }

    /// Returns requested settings that the host cannot have, and other warnings: one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let own = self.network.warnings.iter().chain(&self.warnings);
        let managed = self.managed.iter().flat_map(Managed::warnings);
        let refused = self.applied.iter().flat_map(Applied::refused);
        own.map(String::as_str)
            .chain(managed)
            .chain(refused)
            .map(str::to_owned)
            .collect()
    }

    /// Whether the other inside has the same settings, so that they can stay over a reconnect.
    pub fn is_like(&self, other: &Self) -> bool {
        let by_address = |place: &Place| !matches!(place, Place::RemoteHost);
        let same_server = self.remote == other.remote
            || (other
                .remote
                .is_some_and(|remote| self.kept.contains(&remote))
                && self.network.places().all(by_address));
        self.ifname == other.ifname && self.network == other.network && same_server
    }

    /// Routes packets to another server outside the tunnel, before a connection to it while this tunnel's routes stay
    /// (`persist-tun`).
    ///
    /// # Errors
    /// See [`InsideError`].
    pub fn keep_outside(&mut self, remote: IpAddr) -> Result<(), InsideError> {
        if let Some(managed) = self.managed.as_mut().filter(|it| it.is_told())
            && !self.network.recursive
            && !self.want.endpoints.contains(&remote)
        {
            self.want.endpoints.push(remote);
            self.kept.push(remote);
            return Ok(managed.set(&self.want)?);
        }
        if let Some(applied) = &mut self.applied
            && Some(remote) != self.remote
            && !self.network.recursive
        {
            applied.keep_outside(remote, &mut Netlink::open()?)?;
            if !self.kept.contains(&remote) {
                self.kept.push(remote);
            }
        }
        Ok(())
    }

    /// Undoes the settings of another inside of the same interface, and continues its journal.
    ///
    /// # Errors
    /// There is no netlink socket.
    pub fn take_over(&mut self, mut other: Self) -> Result<(), InsideError> {
        let mut netlink = Netlink::open()?;
        self.outdate();
        self.warnings.clear();
        if let Some(before) = other.managed.take() {
            self.managed = Some(before);
        }
        let applied = other.applied.take();
        self.applied = applied.map(|applied| Applied::take_over(applied, &mut netlink));
        Ok(())
    }

    /// Marks the host's state as outdated.
    pub const fn outdate(&mut self) {
        self.fresh = false;
    }

    /// Reads the host's state again if it is outdated: a previous tunnel may have been undone, or the gateway changed.
    fn look(&mut self) -> Result<(), InsideError> {
        if std::mem::take(&mut self.fresh) {
            return Ok(());
        }
        self.facts = Facts::gather(&self.want, &self.ifname, &mut Netlink::open()?)?;
        Ok(())
    }

    /// Sets addresses, MTU and name servers, before the `up` script. `no_dns` leaves the host's name servers unchanged.
    ///
    /// # Errors
    /// See [`InsideError`]; all settings are undone.
    pub fn set_interface(&mut self, no_dns: bool) -> Result<(), InsideError> {
        self.look()?;
        if no_dns {
            self.want.name_servers = None;
        }
        // The manager gets these settings later, together with the routes.
        if self.managed.is_some() {
            return Ok(());
        }
        self.apply(&Plan::of_interface(&self.want, &self.facts))
    }

    /// Sets the routes, after the `up` script and [`TunnelNetwork::route_delay`].
    ///
    /// # Errors
    /// See [`InsideError`]; all settings are undone.
    pub fn set_routes(&mut self) -> Result<(), InsideError> {
        self.look()?;
        if let Some(managed) = &mut self.managed {
            return Ok(managed.set(&self.want)?);
        }
        self.apply(&Plan::of_routes(&self.want, &self.facts)?)
    }

    /// Changes to the routes of `wanted`, another plan for the same active interface, and masquerades its networks.
    /// Common routes are not touched. A managing program gets the whole new plan.
    ///
    /// # Errors
    /// See [`InsideError`]; earlier settings stay.
    #[cfg(feature = "server")]
    pub fn change_routes(&mut self, wanted: &Self) -> Result<(), InsideError> {
        if let Some(managed) = &mut self.managed {
            self.network.clone_from(&wanted.network);
            self.want.clone_from(&wanted.want);
            return Ok(managed.set(&self.want)?);
        }
        let plan = |of: &Self| -> Result<Plan, PlanError> {
            let mut plan = Plan::of_routes(&of.want, &of.facts)?;
            plan.steps.extend(Plan::masquerade(&of.want, &of.facts));
            Ok(plan)
        };
        let (mut before, mut after) = (plan(self)?, plan(wanted)?);
        let mut netlink = Netlink::open()?;
        before
            .steps
            .extend(self.applied.iter().flat_map(Applied::closed));
        after.close_behind(&before, &self.ifname, &mut netlink)?;
        for warning in &after.warnings {
            log::warn!("WARNING: {warning}");
        }
        self.warnings.retain(|it| !before.warnings.contains(it));
        self.warnings.extend(after.warnings.iter().cloned());
        self.network.clone_from(&wanted.network);
        self.facts.clone_from(&wanted.facts);
        self.want.clone_from(&wanted.want);
        if let Some(applied) = &mut self.applied {
            applied.exchange(&before, &after, &mut netlink)?;
        }
        Ok(())
    }

    fn apply(&mut self, plan: &Plan) -> Result<(), InsideError> {
        for warning in &plan.warnings {
            log::warn!("WARNING: {warning}");
        }
        self.warnings.extend(plan.warnings.iter().cloned());
        let mut netlink = Netlink::open()?;
        match self.applied.take() {
            None => self.applied = Some(Applied::apply(plan, &self.ifname, &mut netlink)?),
            Some(mut applied) => {
                applied.add(plan, &mut netlink)?;
                self.applied = Some(applied);
            }
        }
        Ok(())
    }

    /// Moves routes outside the tunnel to the host's current path, after its links or routes changed. Returns whether
    /// any moved.
    ///
    /// # Errors
    /// See [`InsideError`]; retry at the next change.
    pub fn follow(&mut self) -> Result<bool, InsideError> {
        if let Some(managed) = self.managed.as_mut().filter(|it| it.is_told()) {
            managed.set(&self.want)?;
            return Ok(false);
        }
        let Some(applied) = &mut self.applied else {
            return Ok(false);
        };
        let mut netlink = Netlink::open()?;
        #[cfg(feature = "server")]
        applied.open_closed(&mut netlink)?;
        Ok(applied.follow(&mut netlink)?)
    }

    /// Undoes all settings and logs failures. May be called again.
    pub fn undo(&mut self) {
        if let Some(mut managed) = self.managed.take() {
            managed.lost();
        }
        self.warnings.clear();
        let errors = self.applied.take().map_or(Ok(()), Applied::undo);
        for error in errors.err().into_iter().flatten() {
            log::warn!("{}: {error}", self.ifname);
        }
    }
}

#[cfg(test)]
mod tests;
