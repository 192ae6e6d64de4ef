//! Decides which steps a tunnel needs. Changes nothing: the input is wants and facts, the output steps.

pub(crate) mod closed;
mod default_route;
mod endpoints;
mod routes;

use std::net::IpAddr;

use thiserror::Error;

use crate::facts::Facts;
use crate::mtu::{IPV6_MTU_MIN, TunnelMtu};
use crate::step::Step;
use crate::want::{Destination, Gateway, Want, WantedAddress};
use crate::ways::{covers, masked};

/// All steps, in order.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Plan {
    /// Changes in the order to apply them.
    pub steps: Vec<Step>,
    /// The mark that the tunnel's own packets must have **before** the plan is applied, or they
    /// would be routed into the tunnel themselves; 0 for none.
    pub fwmark: u32,
    /// The MTU that the interface will have, in bytes.
    pub mtu: u32,
    /// Warnings for the user, one sentence each.
    pub warnings: Vec<String>,
}

/// Why no plan is possible.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum PlanError {
    /// A thousand tunnels, or another program fills tables.
    #[error(
        "no routing table from 51820 to 52819 is empty; set FwMark to the number of an empty one"
    )]
    NoTable,
    /// Without rules and without a route to the endpoint, the tunnel's own packets would enter the tunnel.
    #[error(
        "there is no route to the endpoint {0} that could be kept outside the tunnel, and this kernel cannot skip \
         default routes (that needs 3.12 and policy routing); add a route, or set Table"
    )]
    NoWayToEndpoint(IpAddr),
}

impl Plan {
    /// The plan for `want` on a host where `facts` hold: [`Plan::of_interface`], then [`Plan::of_routes`].
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn new(want: &Want, facts: &Facts) -> Result<Self, PlanError> {
        let mut plan = Self::of_interface(want, facts);
        let mut routes = Self::of_routes(want, facts)?;
        plan.steps.append(&mut routes.steps);
        plan.warnings.append(&mut routes.warnings);
        plan.fwmark = routes.fwmark;
        Ok(plan)
    }

    /// Plans addresses, MTU, bringing the interface up, and name servers.
    pub fn of_interface(want: &Want, facts: &Facts) -> Self {
        let mut plan = Self::empty(want, facts);
        if want.leaves_interface {
            return plan;
        }
        // The MTU first: below 1280 bytes the kernel takes the IPv6 addresses away.
        plan.steps.push(Step::Mtu { mtu: plan.mtu });
        let v6 = plan.has_v6(facts);
        plan.warn_of_v6(want, facts);
        for &WantedAddress { addr, prefix, peer } in &want.addresses {
            if v6 || addr.is_ipv4() {
                plan.steps.push(Step::Address { addr, prefix, peer });
            }
        }
        plan.steps.push(Step::Up);
        plan.add_name_servers(want, facts);
        plan.add_forwarding(want, facts);
        plan
    }

    fn empty(want: &Want, facts: &Facts) -> Self {
        Self {
            fwmark: want.fwmark,
            mtu: TunnelMtu::new(want, facts).bytes,
            ..Self::default()
        }
    }

    pub(crate) fn has_v6(&self, facts: &Facts) -> bool {
        facts.ipv6 && !facts.ipv6_off && self.mtu >= IPV6_MTU_MIN
    }

    pub(crate) fn warn_of_v6(&mut self, want: &Want, facts: &Facts) {
        if self.has_v6(facts) || !want.has_v6() {
            return;
        }
        let (why, then) = match (facts.ipv6, facts.ipv6_off) {
            (false, _) => ("this kernel has no IPv6", ""),
            (true, true) => (
                "IPv6 is off for new interfaces (net.ipv6.conf.default.disable_ipv6)",
                "; packets to these routes are answered with \"unreachable\"",
            ),
            (true, false) => (
                "the MTU is below 1280 bytes",
                "; packets to these routes are answered with \"unreachable\"",
            ),
        };
        self.warnings.push(format!(
            "{why}: the tunnel's IPv6 addresses and routes are skipped{then}"
        ));
    }

    /// Plans masquerading before forwarding: a packet forwarded untranslated gets no answer.
    fn add_forwarding(&mut self, want: &Want, facts: &Facts) {
        if want.forwarding.is_none() {
            return;
        }
        let v6 = self.has_v6(facts);
        self.steps.extend(Self::masquerade(want, facts));
        for setting in &facts.forwarding {
            if v6 || !setting.key.starts_with("net/ipv6") {
                self.steps.push(Step::Sysctl {
                    key: setting.key.clone(),
                    value: setting.value.to_owned(),
                    before: setting.before.clone(),
                });
            }
        }
    }

    /// The step that masquerades packets from the tunnel's networks, if any is wanted: those of its addresses, and those
    /// behind its peers.
    pub fn masquerade(want: &Want, facts: &Facts) -> Option<Step> {
        let forwarding = want.forwarding.as_ref()?;
        let v6 = Self::empty(want, facts).has_v6(facts);
        let own = want.addresses.iter().filter(|it| it.peer.is_none());
        let mut sources: Vec<_> = own.map(|it| (it.addr, it.prefix)).collect();
        let routes = want
            .routes
            .iter()
            .filter_map(|route| match (route.to, route.gateway) {
                // Routes of a prefix below 2 stand for a default route.
                (Destination::Network(to), Gateway::Tunnel(_)) if route.prefix > 1 => {
                    Some((masked(to, route.prefix), route.prefix))
                }
                _ => None,
            });
        let is_behind = |&(to, bits): &(IpAddr, u8)| {
            !sources
                .iter()
                .any(|own| own.1 <= bits && covers(own.0, own.1, to))
        };
        let mut behind: Vec<_> = routes.filter(is_behind).collect();
        // Equal networks make an equal step, whatever their order is.
        behind.sort_unstable();
        behind.dedup();
        sources.extend(behind);
        sources.retain(|it| v6 || it.0.is_ipv4());
        (forwarding.masquerade && !want.leaves_interface && !sources.is_empty()).then(|| {
            Step::Masquerade {
                interface: facts.interface.clone(),
                sources,
                except: forwarding.except.clone(),
            }
        })
    }

    fn add_name_servers(&mut self, want: &Want, facts: &Facts) {
        let Some(wanted) = &want.name_servers else {
            return;
        };
        let Some(resolver) = facts.resolver.clone() else {
            let why = crate::dns::dnsmasq::lacks().unwrap_or_else(|| {
                "neither resolvconf nor resolvectl is installed, nor is this OpenWrt with dnsmasq".to_owned()
            });
            let effect = match want.default_v4.is_some() {
                true => {
                    "The name servers of before are still asked: through the tunnel, or in a local network"
                }
                false => "Names are still looked up outside the tunnel",
            };
            return self.warnings.push(format!(
                "DNS cannot be applied: {why}. {effect}; install openresolv, or set the name servers by hand"
            ));
        };
        let mut wanted = wanted.clone();
        if !wanted.only.is_empty() && !resolver.can_split() {
            let why = "resolvconf cannot limit name servers to some domains, so the tunnel's name servers get all \
                       queries";
            self.warnings.push(why.to_owned());
            wanted.only.clear();
        }
        self.steps.push(Step::Dns { resolver, wanted });
    }
}
