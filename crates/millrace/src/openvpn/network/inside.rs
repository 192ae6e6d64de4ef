//! The inside of one tunnel from the push reply to its end: what client and server do with a
//! [`TunnelNetwork`], leaving room for their scripts.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use config::openvpn::{Family, Network, Place};
use netio::netlink::{Netlink, NetlinkError};
use openvpn::push::PushReply;
use thiserror::Error;

use super::facts::HostFacts;
use super::merge::{NetworkError, TunnelNetwork};
use crate::network::{Applied, ApplyError};
use crate::openvpn::connect::{Stop, resolve};

/// Why the inside could not be set up.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum InsideError {
    /// The options make no sense.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The host could not be looked at.
    #[error(transparent)]
    Host(#[from] NetlinkError),
    /// The host could not be changed.
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

/// What a tunnel's inside depends on beside its options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings<'a> {
    /// The tunnel's interface, which exists.
    pub(crate) ifname: &'a str,
    /// Where the outer packets go: the server, or the proxy in front of it. `None` in a server.
    pub(crate) remote: Option<IpAddr>,
    /// Firewall mark of the outer packets, 0 for none.
    pub(crate) mark: u32,
}

/// The inside of a tunnel. Dropping it undoes what was done.
#[derive(Debug)]
pub(crate) struct Inside {
    /// What was decided.
    pub(crate) network: TunnelNetwork,
    /// The host before.
    pub(crate) facts: HostFacts,
    ifname: String,
    remote: Option<IpAddr>,
    mark: u32,
    applied: Option<Applied>,
    /// Other servers that are kept outside the tunnel.
    kept: Vec<IpAddr>,
}

impl Inside {
    /// Decides; nothing is changed yet. What the user should know is in
    /// [`TunnelNetwork::warnings`]. `mtu` is the tunnel's in bytes. Names in routes are looked
    /// up, unless `stop` comes first: then they are left out.
    ///
    /// # Errors
    /// See [`InsideError`].
    pub(crate) fn plan(
        config: &Network,
        mtu: u16,
        pushed: Option<&PushReply>,
        around: Surroundings<'_>,
        stop: &Stop<'_>,
    ) -> Result<Self, InsideError> {
        let network = TunnelNetwork::merge(config, mtu, pushed)?;
        let mut names: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
        for name in network.names() {
            let found = match resolve(name, 0, Family::Any, stop) {
                Ok(Some(found)) => found.iter().map(std::net::SocketAddr::ip).collect(),
                Ok(None) => Vec::new(),
                Err(error) => {
                    log::warn!("{error}");
                    Vec::new()
                }
            };
            names.insert(name.to_owned(), found);
        }
        let mut netlink = Netlink::open()?;
        let Surroundings {
            ifname,
            remote,
            mark,
        } = around;
        let facts = HostFacts::gather(&network, remote, mark, ifname, names, &mut netlink)?;
        Ok(Self {
            network,
            facts,
            ifname: ifname.to_owned(),
            remote,
            mark,
            applied: None,
            kept: Vec::new(),
        })
    }

    /// True when the other would do the same: what is set can stay over a reconnection.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let by_address = |place: &Place| !matches!(place, Place::RemoteHost);
        let same_server = self.remote == other.remote
            || (other
                .remote
                .is_some_and(|remote| self.kept.contains(&remote))
                && self.network.places().all(by_address));
        self.ifname == other.ifname && self.network == other.network && same_server
    }

    /// Before another server is connected to while this tunnel's routes stay (`persist-tun`):
    /// leads packets to it past the tunnel.
    ///
    /// # Errors
    /// See [`InsideError`].
    pub(crate) fn keep_outside(&mut self, remote: IpAddr) -> Result<(), InsideError> {
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

    /// Undoes what another inside of the same interface has set, and goes on with its journal.
    ///
    /// # Errors
    /// No netlink socket.
    pub(crate) fn take_over(&mut self, mut other: Self) -> Result<(), InsideError> {
        let mut netlink = Netlink::open()?;
        let applied = other.applied.take();
        self.applied = applied.map(|applied| Applied::take_over(applied, &mut netlink));
        Ok(())
    }

    /// Looks at the host anew: a tunnel before this one may have been undone meanwhile, or the
    /// gateway have changed.
    fn look(&mut self) -> Result<(), InsideError> {
        let names = std::mem::take(&mut self.facts.names);
        let mut netlink = Netlink::open()?;
        self.facts = HostFacts::gather(
            &self.network,
            self.remote,
            self.mark,
            &self.ifname,
            names,
            &mut netlink,
        )?;
        Ok(())
    }

    /// Before the `up` script: addresses, MTU, the interface, name servers.
    ///
    /// # Errors
    /// See [`InsideError`]; everything has been undone.
    pub(crate) fn set_interface(&mut self, no_dns: bool) -> Result<(), InsideError> {
        self.look()?;
        let plan = self.network.interface_plan(&self.facts, no_dns);
        self.apply(&plan)
    }

    /// After the `up` script and [`TunnelNetwork::route_delay`]: the routes.
    ///
    /// # Errors
    /// See [`InsideError`]; everything has been undone.
    pub(crate) fn set_routes(&mut self) -> Result<(), InsideError> {
        self.look()?;
        let plan = self.network.route_plan(&self.facts);
        self.apply(&plan)
    }

    /// Takes over the routes of `wanted`, another plan for the same interface while it is up. Routes that both have are
    /// not touched.
    ///
    /// # Errors
    /// See [`InsideError`]; what was set stays set.
    pub(crate) fn change_routes(&mut self, wanted: &Self) -> Result<(), InsideError> {
        let before = self.network.route_plan(&self.facts);
        let after = wanted.network.route_plan(&wanted.facts);
        for warning in &after.warnings {
            log::warn!("WARNING: {warning}");
        }
        (self.network, self.facts) = (wanted.network.clone(), wanted.facts.clone());
        if let Some(applied) = &mut self.applied {
            applied.exchange(&before, &after, &mut Netlink::open()?)?;
        }
        Ok(())
    }

    fn apply(&mut self, plan: &crate::network::Plan) -> Result<(), InsideError> {
        for warning in &plan.warnings {
            log::warn!("WARNING: {warning}");
        }
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

    /// When links or routes of the host have changed: the routes past the tunnel go the way that
    /// the host has now. Returns whether any moved.
    ///
    /// # Errors
    /// See [`InsideError`]; to be tried again at the next change.
    pub(crate) fn follow(&mut self) -> Result<bool, InsideError> {
        let Some(applied) = &mut self.applied else {
            return Ok(false);
        };
        Ok(applied.follow(&mut Netlink::open()?)?)
    }

    /// Undoes everything, and logs what could not be undone. May be called again.
    pub(crate) fn undo(&mut self) {
        let errors = self.applied.take().map_or(Ok(()), Applied::undo);
        for error in errors.err().into_iter().flatten() {
            log::warn!("{}: {error}", self.ifname);
        }
    }

    /// The interface's address of each family.
    pub(crate) fn addresses(&self) -> (Option<Ipv4Addr>, Option<Ipv6Addr>) {
        let mut found = (None, None);
        for address in &self.network.addresses {
            match address.addr {
                IpAddr::V4(addr) => found.0 = found.0.or(Some(addr)),
                IpAddr::V6(addr) => found.1 = found.1.or(Some(addr)),
            }
        }
        found
    }
}

#[cfg(test)]
mod tests;
