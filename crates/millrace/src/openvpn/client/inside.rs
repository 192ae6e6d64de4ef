//! The inside of a client's tunnel, and the scripts around its making and its end.

use super::super::network::{Inside, Surroundings, TunnelNetwork};
use super::super::policy::environment::Environment;
use super::super::policy::management::State;
use super::super::policy::scripts::{Hook, device_arguments};
use super::super::policy::variables::RouteFacts;
use super::Client;
use config::openvpn::{DhcpOptions, DnsOptions, Ifconfig, IfconfigV6, Place, Topology};
use openvpn::push::{self, PushReply};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

/// What is set, and what scripts were told of it.
pub(super) struct Set {
    /// `None` for `dev null`.
    pub(super) inside: Option<Inside>,
    environment: Environment,
    ifconfig: Option<Ifconfig>,
    ifname: String,
    mtu: u16,
    /// When the routes are to be set, if they are not.
    pub(super) routes_at: Option<Instant>,
}

impl Client<'_> {
    /// The interface's addresses and routes, while they are set.
    pub(in super::super) fn inside(&self) -> Option<&Inside> {
        self.set.as_ref()?.inside.as_ref()
    }

    /// Gives the interface what the server pushed, and runs the scripts for it.
    pub(super) fn bring_up(
        &mut self,
        reply: &PushReply,
        mtu: u16,
        remote: SocketAddr,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let config = &self.context.config;
        let Some((_, link)) = &self.device else {
            return Ok(());
        };
        let ifname = link.name.clone();
        let mut inside = None;
        // Scripts run for a session without an interface, too (`dev null`).
        if link.index != 0 {
            let around = Surroundings {
                ifname: &ifname,
                remote: Some(remote.ip()),
                mark: config.sockets.mark.unwrap_or(0),
            };
            let stop = self.context.stop();
            let planned = Inside::plan(&config.network, mtu, Some(reply), around, &stop)?;
            for warning in &planned.network.warnings {
                log::warn!("WARNING: {warning}");
            }
            let set = self.set.as_ref().and_then(|set| set.inside.as_ref());
            if set.is_some_and(|set| set.is_like(&planned)) {
                log::info!("Preserving previous TUN/TAP instance: {ifname}");
                return Ok(());
            }
            inside = Some(planned);
        }
        let before = self.take_down("restart");
        if let Some(inside) = &mut inside {
            if let Some(before) = before {
                inside.take_over(before)?;
            }
            // Scripts that exist for it set the name servers themselves.
            inside.set_interface(config.scripts.up.is_some() || self.context.no_dns)?;
        }
        self.state(State::AddRoutes, "");
        let context = if self.restarted { "restart" } else { "init" };
        let ifconfig = ifconfig(reply, config.network.ifconfig);
        let mut environment = self.hooks.base.clone();
        environment.set_peer("untrusted", remote);
        environment.set_peer("trusted", remote);
        environment.set_device(&ifname, mtu, context);
        let topology = config.network.topology;
        describe(&mut environment, reply, inside.as_ref(), ifconfig, topology);
        if context == "init" || config.scripts.up_restart || !config.service.persist_tun {
            let arguments = device_arguments(
                &ifname,
                mtu,
                ifconfig.map(|i| i.local),
                ifconfig.map(|i| i.second),
                context,
            );
            let script = config.scripts.up.as_ref();
            self.hooks.run(Hook::Up, script, arguments, &environment)?;
        }
        let network = inside.as_ref().map(|inside| &inside.network);
        let delay = network
            .map(|network| network.route_delay)
            .unwrap_or_default();
        self.set = Some(Set {
            inside,
            environment,
            ifconfig,
            ifname,
            mtu,
            routes_at: Some(Instant::now() + delay),
        });
        self.set_late_routes()
    }

    /// Sets the routes if it is time, which `route-delay` says.
    pub(super) fn set_late_routes(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        if let Some(set) = &mut self.set
            && set.routes_at.is_some_and(|at| Instant::now() >= at)
        {
            set.routes_at = None;
            if let Some(inside) = &mut set.inside {
                inside.set_routes()?;
            }
            self.context
                .office
                .borrow_mut()
                .up_down(true, &set.environment);
            let script = self.context.config.scripts.route_up.as_ref();
            self.hooks.tell(Hook::RouteUp, script, [], &set.environment);
        }
        Ok(())
    }

    /// Undoes what was set, and runs the scripts for it. `context` is `init` at the end of the
    /// process, `restart` otherwise.
    /// Returns the inside with its undoing still ahead where another is about to follow.
    pub(super) fn take_down(&mut self, context: &str) -> Option<Inside> {
        let mut set = self.set.take()?;
        let scripts = &self.context.config.scripts;
        set.environment.set("script_context", context);
        set.environment.set(
            "signal",
            if context == "init" {
                "sigterm"
            } else {
                "sigusr1"
            },
        );
        self.context
            .office
            .borrow_mut()
            .up_down(false, &set.environment);
        let mtu = set.mtu;
        let arguments = || {
            device_arguments(
                &set.ifname,
                mtu,
                set.ifconfig.map(|i| i.local),
                set.ifconfig.map(|i| i.second),
                context,
            )
        };
        let environment = &set.environment;
        let route_pre_down = scripts.route_pre_down.as_ref();
        self.hooks
            .tell(Hook::RoutePreDown, route_pre_down, arguments(), environment);
        let down = scripts.down.as_ref();
        if scripts.down_pre {
            self.hooks.tell(Hook::Down, down, arguments(), environment);
        }
        if context == "init"
            && let Some(inside) = &mut set.inside
        {
            inside.undo();
        }
        if !scripts.down_pre {
            self.hooks.tell(Hook::Down, down, arguments(), environment);
        }
        set.inside
    }
}

fn ifconfig(reply: &PushReply, own: Option<Ifconfig>) -> Option<Ifconfig> {
    let pushed = reply
        .ifconfig
        .map(|(local, second)| Ifconfig { local, second });
    pushed.or(own)
}

/// Tells scripts what the inside looks like.
fn describe(
    environment: &mut Environment,
    reply: &PushReply,
    inside: Option<&Inside>,
    ifconfig: Option<Ifconfig>,
    configured: Option<Topology>,
) {
    let topology = match reply.topology {
        Some(push::Topology::Subnet) => Topology::Subnet,
        Some(push::Topology::P2p) => Topology::P2p,
        Some(push::Topology::Net30) => Topology::Net30,
        None => configured.unwrap_or_default(),
    };
    let v6 = reply.ifconfig_ipv6.map(|i| IfconfigV6 {
        local: i.local,
        bits: i.prefix,
        remote: i.remote.unwrap_or(i.local),
    });
    environment.set_addresses(topology, ifconfig, v6);
    if let Some(inside) = inside {
        describe_routes(environment, inside);
    }
    let dns = &reply.dns;
    let mut lines = DhcpOptions::default().lines;
    lines.extend(dns.servers.iter().map(|server| match server {
        IpAddr::V4(addr) => format!("DNS {addr}"),
        IpAddr::V6(addr) => format!("DNS6 {addr}"),
    }));
    lines.extend(dns.domain.iter().map(|domain| format!("DOMAIN {domain}")));
    lines.extend(
        dns.search
            .iter()
            .map(|domain| format!("DOMAIN-SEARCH {domain}")),
    );
    environment.set_foreign_options(&lines);
    environment.set_dns(&DnsOptions::default());
    for (name, value) in &reply.setenv_safe {
        environment.set_safe(name, value);
    }
}

fn routes(network: &TunnelNetwork) -> Vec<RouteFacts> {
    let address = |place: &Place| match place {
        Place::Address(addr) => Some(*addr),
        _ => None,
    };
    let known = network.routes.iter().filter_map(|route| {
        let own = if route.v6 {
            network.gateway_v6.map(IpAddr::V6)
        } else {
            network.gateway
        };
        Some(RouteFacts {
            network: address(&route.network)?,
            bits: route.prefix,
            gateway: route.gateway.as_ref().and_then(address).or(own),
            metric: route.metric,
        })
    });
    known.collect()
}

fn describe_routes(environment: &mut Environment, inside: &Inside) {
    let network = &inside.network;
    let v4 = |addr: IpAddr| match addr {
        IpAddr::V4(addr) => Some(addr),
        IpAddr::V6(_) => None,
    };
    let mut before: (Option<Ipv4Addr>, _) = (None, None);
    for route in &inside.facts.defaults {
        match route.via {
            Some(IpAddr::V4(via)) => before.0 = before.0.or(Some(via)),
            Some(IpAddr::V6(via)) => before.1 = before.1.or(Some(via)),
            None => {}
        }
    }
    environment.set_gateways(network.gateway.and_then(v4), before.0, before.1);
    environment.set_routes(&routes(network));
    if let Some(redirect) = network.redirect.filter(|redirect| redirect.gateway) {
        environment.set_redirect(redirect.ipv4, redirect.ipv6, redirect.block_local);
    }
}
