//! Collects the routes of a plan.

use std::collections::BTreeSet;
use std::net::IpAddr;

use netio::netlink::Family;

use super::{Plan, PlanError};
use crate::facts::{Connected, EndpointWay, Facts};
use crate::step::{MAIN, Step};
use crate::want::{Destination, Gateway, Want, WantedAddress, WantedRoute};
use crate::ways::{FIRST_METRIC, covers, masked};

/// Where a route leads, after resolving.
enum Way {
    Tunnel(Option<IpAddr>),
    Past {
        via: Option<IpAddr>,
        dev: u32,
        towards: Option<IpAddr>,
    },
}

/// Destination and bits of the prefix, gateway, metric and table.
type RouteKey = (IpAddr, u8, Option<IpAddr>, Option<u32>, u32);

impl Plan {
    /// Plans the routes and rules; those past the tunnel come first.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn of_routes(want: &Want, facts: &Facts) -> Result<Self, PlanError> {
        let mut plan = Self::empty(want, facts);
        plan.warnings.clone_from(&want.warnings);
        if want.leaves_interface {
            plan.warn_of_v6(want, facts);
        }
        Routes::new(want, facts, plan).finish()
    }
}

/// The routes of a plan, in the groups in which they are made.
pub(super) struct Routes<'a> {
    pub(super) want: &'a Want,
    pub(super) facts: &'a Facts,
    /// The plan without routes.
    pub(super) plan: Plan,
    /// Whether the interface can have IPv6.
    pub(super) v6: bool,
    /// Routes past the tunnel.
    pub(super) past: Vec<Step>,
    /// Networks that become unreachable.
    pub(super) blocked: Vec<Step>,
    /// Routes of the host that the plan removes, because they conflict with its own.
    pub(super) displaced: Vec<Step>,
    /// Routes into the tunnel.
    pub(super) inside: Vec<Step>,
    /// Default routes by rules.
    pub(super) rules: Vec<Step>,
    known: BTreeSet<RouteKey>,
}

impl<'a> Routes<'a> {
    pub(super) fn new(want: &'a Want, facts: &'a Facts, plan: Plan) -> Self {
        Self {
            v6: plan.has_v6(facts),
            want,
            facts,
            plan,
            past: Vec::new(),
            blocked: Vec::new(),
            displaced: Vec::new(),
            inside: Vec::new(),
            rules: Vec::new(),
            known: BTreeSet::new(),
        }
    }

    pub(super) fn finish(mut self) -> Result<Plan, PlanError> {
        self.tell_pushed_addresses();
        for route in &self.want.routes {
            if let Err(why) = self.add(route) {
                let warning = format!("{} is skipped: {why}", route.name);
                self.plan.warnings.push(warning);
            }
        }
        self.bypass_name_servers();
        self.add_default_routes()?;
        self.keep_endpoints();
        let Self { mut plan, .. } = self;
        // Displaced routes are removed first and restored last. The kernel refuses such a route while a route past the
        // tunnel leads to its gateway over another route.
        for mut steps in [
            self.displaced,
            self.past,
            self.blocked,
            self.inside,
            self.rules,
        ] {
            plan.steps.append(&mut steps);
        }
        Ok(plan)
    }

    fn add(&mut self, route: &WantedRoute) -> Result<(), String> {
        let to = self.destination(route.to)?;
        let way = self.way(route)?;
        let (dst, prefix) = (masked(to, route.prefix), route.prefix);
        if route.pushed {
            self.tell_pushed(dst, route, &way);
        }
        match way {
            // The plan's warnings report this. Packets to this network must not leave through the host's own uplink.
            Way::Tunnel(_) if dst.is_ipv6() && !self.v6 => match prefix {
                0 => self.block_all_v6(),
                _ if route.table == MAIN => self.block(dst, prefix),
                _ => {}
            },
            // `block_ipv6` makes these destinations unreachable instead.
            Way::Tunnel(_) if dst.is_ipv6() && self.want.block_ipv6 => self.block(dst, prefix),
            Way::Tunnel(_) if !route.optional && self.is_connected(dst, route) => {}
            Way::Tunnel(_) if route.leads_all() => self.lead_all(dst.is_ipv6()),
            Way::Tunnel(via) => self.lead_in(Step::Route {
                dst,
                prefix,
                via,
                metric: route.metric,
                table: route.table,
                optional: route.optional,
                first: route.optional,
            }),
            // A gateway must not be reached through itself: the kernel would then refuse every route through it.
            Way::Past { via, dev, .. } if via == Some(dst) && prefix == Family::of(dst).bits() => {
                self.lead_past(dst, route, None, dev, None);
            }
            Way::Past { via, dev, towards } => self.lead_past(dst, route, via, dev, towards),
        }
        Ok(())
    }

    /// Warns of a pushed route that cuts off a network of the host, or that bypasses the tunnel.
    fn tell_pushed(&mut self, dst: IpAddr, route: &WantedRoute, way: &Way) {
        // The option's name is the text before the slash.
        let name = route.name.split('/').next().unwrap_or_default();
        let warning = match way {
            Way::Tunnel(_) => {
                let mut networks = self.facts.connected.iter();
                let holds = |it: &&Connected| it.prefix <= route.prefix && it.holds(dst);
                let Some(local) = networks.find(holds) else {
                    return;
                };
                format!(
                    "the server's {name}, which is on the local network {local}, goes into the tunnel; to keep it \
                     outside, set pull-filter ignore \"{name}\""
                )
            }
            // The server itself has a route past the tunnel in any case.
            Way::Past { .. } if self.facts.endpoints.iter().any(|it| it.addr == dst) => return,
            Way::Past { .. } => format!(
                "the server's {name} goes outside the tunnel, through this host's own uplink; to keep it inside, set \
                 pull-filter ignore \"{name}\""
            ),
        };
        self.plan.warnings.push(warning);
    }

    /// Warns of a pushed address whose network overlaps one of the host's. Of two routes to the same network the kernel
    /// uses the older one, otherwise the one with the longer prefix.
    fn tell_pushed_addresses(&mut self) {
        let addresses = self.want.addresses.iter();
        for &WantedAddress { addr, prefix, .. } in addresses.filter(|_| self.want.pushed_addresses)
        {
            let meets = |it: &&Connected| it.holds(addr) || covers(addr, prefix, it.network);
            let Some(local) = self.facts.connected.iter().find(meets) else {
                continue;
            };
            self.plan.warnings.push(format!(
                "the server assigns {addr}/{prefix} to this end, which overlaps the local network {local}: its hosts \
                 may become unreachable; change the addresses of one of the two networks"
            ));
        }
    }

    fn lead_past(
        &mut self,
        dst: IpAddr,
        route: &WantedRoute,
        via: Option<IpAddr>,
        dev: u32,
        towards: Option<IpAddr>,
    ) {
        let step = Step::OuterRoute {
            dst,
            prefix: route.prefix,
            via,
            dev,
            metric: route.metric.unwrap_or(FIRST_METRIC).max(FIRST_METRIC),
            towards,
        };
        push_once(&mut self.past, step);
    }

    fn destination(&self, to: Destination) -> Result<IpAddr, String> {
        match to {
            Destination::Network(addr) => Ok(addr),
            Destination::DefaultGateway { v6 } => {
                let via = self.facts.default_of(v6).and_then(|route| route.via);
                via.ok_or_else(|| "there is no default route with a gateway".to_owned())
            }
        }
    }

    fn way(&self, route: &WantedRoute) -> Result<Way, String> {
        let addr = match route.gateway {
            Gateway::Tunnel(via) => return Ok(self.inner(via)),
            Gateway::Default => {
                let default = self.facts.default_of(route.to.is_v6());
                let default =
                    default.ok_or("there is no default route to take its gateway from")?;
                return Ok(Way::Past {
                    via: default.via,
                    dev: default
                        .dev
                        .ok_or("the default route has several next hops")?,
                    towards: Some(default.dst),
                });
            }
            Gateway::Router(addr) if self.want.is_inside(addr) => {
                return Ok(self.inner(Some(addr)));
            }
            Gateway::Router(addr) => addr,
        };
        match self.facts.way_to(addr) {
            Some(EndpointWay {
                via: None,
                dev: Some(dev),
                local: false,
                ..
            }) => Ok(Way::Past {
                via: Some(addr),
                dev: *dev,
                towards: None,
            }),
            _ => Err(format!(
                "its gateway {addr} is not on a network of this host"
            )),
        }
    }

    /// Route into the tunnel, with a gateway where the kernel would accept one. For a TUN the gateway makes no
    /// difference.
    fn inner(&self, gateway: Option<IpAddr>) -> Way {
        Way::Tunnel(gateway.filter(|&addr| addr.is_ipv4() && self.want.is_inside(addr)))
    }

    /// The gateway of routes that lead all IPv4 packets.
    pub(super) fn router(&self) -> Option<IpAddr> {
        let gateway = self.want.gateway;
        gateway.filter(|&addr| addr.is_ipv4() && self.want.is_inside(addr))
    }

    /// True when the kernel makes this route itself, because an address's network contains all of it. An IPv4 address
    /// with a full prefix gets a route in the local table only.
    fn is_connected(&self, dst: IpAddr, route: &WantedRoute) -> bool {
        let holds = |own: &WantedAddress| {
            let is_network = own.addr.is_ipv6() || own.prefix < 32;
            own.peer.is_none()
                && is_network
                && own.prefix <= route.prefix
                && covers(own.addr, own.prefix, dst)
        };
        route.table == MAIN && self.want.addresses.iter().any(holds)
    }

    fn bypass_name_servers(&mut self) {
        if !self.want.bypass_name_servers {
            return;
        }
        for addr in &self.facts.name_servers {
            let way = self.facts.ways.get(addr);
            if let Some(step) = way.and_then(EndpointWay::outer_route) {
                push_once(&mut self.past, step);
            }
        }
    }

    pub(super) fn lead_in(&mut self, step: Step) {
        if let Step::Route {
            dst,
            prefix,
            via,
            metric,
            table,
            ..
        } = step
            && self.known.insert((dst, prefix, via, metric, table))
        {
            self.inside.push(step);
        }
    }

    /// Makes an IPv6 network unreachable.
    pub(super) fn block(&mut self, dst: IpAddr, prefix: u8) {
        if !self.facts.ipv6 {
            return;
        }
        push_once(
            &mut self.blocked,
            Step::Unreachable {
                dst,
                prefix,
                metric: FIRST_METRIC,
            },
        );
    }
}

pub(super) fn push_once(steps: &mut Vec<Step>, step: Step) {
    if !steps.contains(&step) {
        steps.push(step);
    }
}
