//! Applies a tunnel's settings to the host.

use super::settings::MTU;
use ::config::pptp::{Client, Pptp, Server};
use ::config::types::AllowedIp;
use ::pptp::session::Up;
use host::{
    Applied, ApplyError, DefaultV4, Destination, EndpointRoutes, Facts, Gateway, MAIN, Managed,
    ManagedError, Mtu, NameServers, Plan, PlanError, SharedManager, Want, WantedAddress,
    WantedRoute,
};
use netio::netlink::{Netlink, NetlinkError};
use std::net::{IpAddr, Ipv4Addr};

/// Why the host could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The host's state cannot be read.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// No valid plan exists for these settings.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The settings could not be applied.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// A manager could not apply its settings.
    #[error(transparent)]
    Managed(#[from] ManagedError),
}

/// The settings in force on the host. Dropping it undoes them.
pub(super) struct Network {
    ifname: String,
    want: Want,
    applied: Option<Applied>,
    /// The plan in force.
    plan: Plan,
    /// The program that configures the interface in place of Millrace, if any.
    managed: Option<Managed>,
    /// The MTU that was set, in bytes; 0 before that.
    pub(super) mtu: u32,
}

impl Network {
    pub(super) fn new(ifname: &str, manager: Option<&SharedManager>) -> Self {
        Self {
            ifname: ifname.to_owned(),
            want: Want::default(),
            applied: None,
            plan: Plan::default(),
            managed: manager.map(|it| Managed::new(it.clone(), ifname)),
            mtu: 0,
        }
    }

    /// Says what goes through the tunnel: [`Want::summary`].
    pub(super) fn summary(&self) -> String {
        self.want.summary(&self.ifname, self.applied.as_ref())
    }

    /// Whether the settings are applied to the host.
    pub(super) const fn is_set(&self) -> bool {
        self.mtu != 0
    }

    /// Applies the wanted settings. Routes that the previous settings also had stay in place, so that no packet
    /// bypasses the tunnel meanwhile.
    pub(super) fn set(&mut self, want: Want) -> Result<(), NetworkError> {
        if let Some(managed) = &mut self.managed {
            let set = managed.set(&want);
            (self.want, self.mtu) = (want, managed.mtu());
            return Ok(set?);
        }
        if self.applied.is_some() && self.want == want {
            return Ok(());
        }
        let mut netlink = Netlink::open()?;
        let facts = Facts::gather(&want, &self.ifname, &mut netlink)?;
        let plan = Plan::new(&want, &facts)?;
        for warning in &plan.warnings {
            log::warn!("{warning}");
        }
        let mut failed = None;
        match &mut self.applied {
            None => self.applied = Some(Applied::apply(&plan, &self.ifname, &mut netlink)?),
            Some(applied) => {
                let errors = applied.change(&self.plan, &plan, &mut netlink);
                failed = errors.into_iter().next();
                if plan.mtu != self.mtu {
                    let dev = netlink.index_of(&self.ifname)?;
                    netlink.set_mtu(dev, plan.mtu)?;
                }
            }
        }
        (self.want, self.mtu, self.plan) = (want, plan.mtu, plan);
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Warnings, one sentence each, such as settings of the tunnel that the host does not have.
    pub(super) fn warnings(&self) -> Vec<String> {
        let plan = self.plan.warnings.iter().map(String::as_str);
        let managed = self.managed.iter().flat_map(Managed::warnings);
        let refused = self.applied.iter().flat_map(Applied::refused);
        plan.chain(managed)
            .chain(refused)
            .map(str::to_owned)
            .collect()
    }

    /// Handles a change of the host's routes: moves the route to the server to the host's current uplink.
    pub(super) fn follow(&mut self) {
        if let Some(managed) = self.managed.as_mut().filter(|it| it.is_told()) {
            if let Err(error) = managed.set(&self.want) {
                log::warn!("{}: {error}", self.ifname);
            }
            return;
        }
        let follow = |applied: &mut Applied| {
            applied.follow(&mut Netlink::open()?)?;
            Ok::<_, ApplyError>(())
        };
        if let Some(Err(error)) = self.applied.as_mut().map(follow) {
            log::warn!("{}: {error}", self.ifname);
        }
    }

    /// Keeps packets to another server outside the tunnel. Call it before that server is called while routes lead
    /// into the tunnel.
    pub(super) fn keep_outside(&mut self, server: Ipv4Addr) {
        let server = IpAddr::from(server);
        if self.managed.is_some() {
            if self.mtu != 0 && !self.want.endpoints.contains(&server) {
                self.want.endpoints.push(server);
            }
            return self.follow();
        }
        let keep = |applied: &mut Applied| {
            applied.keep_outside(server, &mut Netlink::open()?)?;
            Ok::<_, ApplyError>(())
        };
        if self.want.endpoints.contains(&server) {
            self.follow();
        } else if let Some(Err(error)) = self.applied.as_mut().map(keep) {
            log::warn!("{}: {error}", self.ifname);
        }
    }

    /// Undoes all settings, and logs failures.
    pub(super) fn undo(&mut self) {
        if let Some(managed) = &mut self.managed {
            managed.lost();
        }
        let errors = self.applied.take().map_or(Ok(()), Applied::undo);
        for error in errors.err().into_iter().flatten() {
            log::error!("{}: while shutting down: {error}", self.ifname);
        }
    }
}

/// Host settings of a client whose tunnel is up. `no_dns` leaves the host's name servers as they are.
pub(super) fn of_client(
    model: &Pptp,
    client: &Client,
    up: &Up,
    server: Ipv4Addr,
    no_dns: bool,
) -> Want {
    // Many servers use the address that clients call as their inner address too. A route to that address through the
    // tunnel would lead the tunnel into itself.
    let peer = up.peer.filter(|&peer| peer != server && peer != up.address);
    let mut want = Want {
        addresses: vec![WantedAddress {
            addr: up.address.into(),
            prefix: 32,
            peer: peer.map(Into::into),
        }],
        pushed_addresses: true,
        mtu: Mtu::Exact(up.mtu.min(model.mtu.unwrap_or(u16::MAX)).into()),
        routes: client.routes.iter().map(route).collect(),
        default_v4: client.default_route.then_some(DefaultV4::Halves),
        block_ipv6: client.block_ipv6,
        endpoints: vec![server.into()],
        endpoint_routes: EndpointRoutes::Follow {
            always_v4: false,
            not_on_link: false,
        },
        ..Want::default()
    };
    let servers: Vec<IpAddr> = up.dns.iter().flatten().map(|&it| it.into()).collect();
    if client.dns && !servers.is_empty() && !no_dns {
        want.name_servers = Some(NameServers {
            servers,
            search: Vec::new(),
            only: Vec::new(),
        });
    }
    want
}

/// Host settings of a server.
pub(super) fn of_server(model: &Pptp, server: &Server) -> Want {
    let (address, bits) = server.address;
    // If only some addresses of a network belong to clients, the rest of the network is elsewhere.
    let prefix = if server.routes.is_empty() { bits } else { 32 };
    Want {
        addresses: vec![WantedAddress {
            addr: address.into(),
            prefix,
            peer: None,
        }],
        routes: server.routes.iter().map(route).collect(),
        mtu: Mtu::Exact(model.mtu.unwrap_or(MTU).into()),
        ..Want::default()
    }
}

fn route(range: &AllowedIp) -> WantedRoute {
    WantedRoute {
        name: range.to_string(),
        to: Destination::Network(range.addr()),
        prefix: range.prefix(),
        gateway: Gateway::Tunnel(None),
        metric: None,
        table: MAIN,
        optional: false,
        pushed: false,
    }
}

#[cfg(test)]
mod tests;
