//! Steps on the host's network, and news of it.

use super::{Executor, Failure};
use crate::clock_watch::ClockWatch;
use crate::openvpn::client::effect::HostStep;
use crate::openvpn::client::event::{Event, Planned};
use crate::openvpn::network::{Inside, InsideError, RouteNames, Surroundings, TunnelNetwork};
use netio::netlink::Netlink;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Network settings that wait for the addresses of names in routes.
pub(super) struct Planning {
    number: u64,
    network: TunnelNetwork,
    remote: IpAddr,
}

impl Executor<'_> {
    #[inline(never)]
    pub(super) fn host_step(&mut self, step: HostStep) -> Result<(), InsideError> {
        match step {
            HostStep::Plan {
                number,
                reply,
                mtu,
                remote,
            } => {
                let config = &self.context.config.network;
                let network = TunnelNetwork::merge(config, mtu, Some(&reply))?;
                let names: Vec<String> = network.names().map(str::to_owned).collect();
                self.planning = Some(Planning {
                    number,
                    network,
                    remote: remote.ip(),
                });
                if names.is_empty() {
                    self.plan(number, &RouteNames::default());
                } else {
                    self.background.route_names(number, names);
                }
            }
            HostStep::SetInterface { no_dns } => {
                if let Some(mut inside) = self.planned.take() {
                    if let Some(before) = self.inside.take() {
                        inside.take_over(before)?;
                    }
                    inside.set_interface(no_dns)?;
                    let set = (inside.network.clone(), inside.facts.clone());
                    self.inside = Some(inside);
                    self.results.push_back(Event::InterfaceSet(Box::new(set)));
                }
            }
            HostStep::SetRoutes => {
                if let Some(inside) = &mut self.inside {
                    inside.set_routes()?;
                }
                self.results.push_back(Event::RoutesSet);
            }
            HostStep::KeepOutside(remote) => {
                if let Some(inside) = &mut self.inside {
                    inside.keep_outside(remote)?;
                }
            }
            HostStep::KeepRelayOutside(relay) => {
                if let Some(inside) = &mut self.inside
                    && let Err(error) = inside.keep_outside(relay)
                {
                    log::warn!("{error}");
                }
            }
            HostStep::Follow => {
                if let Some(inside) = &mut self.inside {
                    inside.follow()?;
                }
            }
            HostStep::Undo => {
                if let Some(planned) = &mut self.planned {
                    planned.outdate();
                }
                if let Some(mut inside) = self.inside.take() {
                    inside.undo();
                }
            }
        }
        Ok(())
    }

    /// Plans the interface's settings with the addresses of names in routes.
    pub(super) fn plan(&mut self, number: u64, names: &RouteNames) {
        // Ignores late results of an earlier request.
        if let Some(planning) = self.planning.take_if(|it| it.number == number) {
            let planned = self.decide(planning, names);
            let planned = planned.map_err(|error| error.to_string());
            self.results.push_back(Event::Planned(number, planned));
        }
    }

    fn decide(&mut self, planning: Planning, names: &RouteNames) -> Result<Planned, Failure> {
        let Some((_, link)) = &self.device else {
            return Err("no interface".into());
        };
        let around = Surroundings {
            ifname: &link.name,
            remote: Some(planning.remote),
            mark: self.context.config.sockets.mark.unwrap_or(0),
        };
        let mut planned = Inside::of(planning.network, names, around)?;
        if let Some(manager) = &self.context.manager {
            planned = planned.managed_by(manager);
        }
        let alike = self.inside.as_ref().is_some_and(|it| it.is_like(&planned));
        let route_delay = planned.network.route_delay;
        self.planned = Some(planned).filter(|_| !alike);
        Ok(Planned { alike, route_delay })
    }
}

/// Documentation addresses (RFC 5737, RFC 3849), which only a default route covers.
const ANYWHERE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];

/// Watches for what an attempt may have lacked: the right time, and a default route.
pub(super) struct Lacking {
    /// Reports when the clock is set.
    pub(super) clock: ClockWatch,
    /// Whether the last check found a default route.
    routed: bool,
    mark: u32,
}

impl Lacking {
    /// `mark` is the firewall mark of the tunnel's own packets.
    ///
    /// # Errors
    /// Too many open descriptors.
    pub(super) fn new(mark: u32) -> io::Result<Self> {
        Ok(Self {
            clock: ClockWatch::new()?,
            routed: is_routed(mark),
            mark,
        })
    }

    /// Checks the routes after a change. Returns whether a default route has appeared.
    pub(super) fn is_routed_again(&mut self) -> bool {
        let before = std::mem::replace(&mut self.routed, is_routed(self.mark));
        self.routed && !before
    }
}

fn is_routed(mark: u32) -> bool {
    let Ok(mut netlink) = Netlink::open() else {
        return true;
    };
    ANYWHERE
        .into_iter()
        .any(|to| netlink.route_get(to, mark).is_ok())
}
