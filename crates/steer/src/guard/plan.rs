//! Decides what to change. Does no I/O: settings and facts in, changes out.

use config::guard::{Guard, Part};
use netio::netlink::{Family, Route};

use crate::guard::chain::{FURTHER, WantedChain};
use crate::guard::dns::{self, DnsChange};
use crate::guard::facts::{ChainFact, DnsmasqFact, FAMILIES, Facts};
use crate::guard::networks::Surroundings;
use crate::guard::rules::{Changes, changes, is_ours, wanted};
use crate::guard::way::tunnels;

/// Metric of the guard's own routes: behind those that a tunnel makes itself. The kernel's default for IPv6 is 1024.
pub const METRIC: u32 = 9000;

/// A change to the guard's own default routes, for tunnels that make none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lead {
    /// Add the route, or replace the present one.
    Set(Route),
    /// Delete the route.
    Remove(Route),
}

/// All changes to the host.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Plan {
    /// Whether to make the holding chain anew.
    pub chain: bool,
    /// Whether a part of the holding chain is missing; changed networks do not count.
    pub is_open: bool,
    /// Further chains to make anew, or to delete where settings do not ask for them.
    pub further: Vec<&'static str>,
    /// The change to `dnsmasq`'s settings.
    pub dns: Option<DnsChange>,
    /// The changes to the rules of both families.
    pub rules: Changes,
    /// The changes to the default routes.
    pub leads: Vec<Lead>,
}

impl Plan {
    /// The plan that sets the guard on this host.
    #[must_use]
    pub fn set(guard: &Guard, facts: &Facts) -> Self {
        let around = Surroundings::new(guard, facts);
        let parts = guard.parts();
        let wanted_chain = WantedChain::new(guard, &around);
        let is_other = |name: &&'static str| match (
            facts.further(name),
            WantedChain::further(name, guard, &around),
        ) {
            (ChainFact::There(chain), Some(wanted)) => !wanted.is(chain),
            (ChainFact::There(_), None) => true,
            (_, wanted) => wanted.is_some(),
        };
        let mut plan = Self {
            chain: match &facts.chain {
                ChainFact::There(chain) => !wanted_chain.is(chain),
                ChainFact::Absent => true,
                // Trying to make it tells the reason.
                ChainFact::Unseen(_) => true,
            },
            is_open: match &facts.chain {
                ChainFact::There(chain) => !wanted_chain.is_of_before(chain),
                ChainFact::Absent | ChainFact::Unseen(_) => true,
            },
            further: FURTHER.into_iter().filter(is_other).collect(),
            dns: dns::change(guard, facts),
            ..Self::default()
        };
        for (family, rules) in FAMILIES.into_iter().zip(&facts.rules) {
            let Some(rules) = rules else { continue };
            let of_family = changes(rules, &wanted(guard, facts, family));
            plan.rules.add.extend(of_family.add);
            plan.rules.delete.extend(of_family.delete);
            plan.leads
                .extend(parts.iter().filter_map(|part| lead(part, facts, family)));
        }
        // After the rules: no rule leads into these tables any longer.
        let is_gone = |route: &&Route| !parts.iter().any(|part| part.table == route.table);
        plan.leads
            .extend(leads(facts.tables.iter().filter(is_gone)));
        plan
    }

    /// The plan that removes the guard.
    #[must_use]
    pub fn lift(facts: &Facts) -> Self {
        let rules = facts.rules.iter().flatten().flatten();
        Self {
            chain: matches!(facts.chain, ChainFact::There(_)),
            is_open: false,
            further: {
                let further = facts.further.iter();
                let there = further.filter(|it| matches!(it.1, ChainFact::There(_)));
                there.map(|it| it.0).collect()
            },
            dns: match facts.dnsmasq {
                DnsmasqFact::File(Some(_)) => Some(DnsChange::Remove),
                DnsmasqFact::File(None) | DnsmasqFact::None => None,
            },
            rules: Changes {
                add: Vec::new(),
                delete: rules.filter(|rule| is_ours(rule)).copied().collect(),
            },
            leads: leads(facts.tables.iter()).collect(),
        }
    }

    /// Whether there is nothing to change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.chain
            && self.further.is_empty()
            && self.dns.is_none()
            && self.rules.is_empty()
            && self.leads.is_empty()
    }
}

fn is_lead(route: &Route) -> bool {
    route.prefix == 0 && route.metric == Some(METRIC)
}

/// The steps that delete the guard's own default routes.
fn leads<'f>(routes: impl Iterator<Item = &'f Route>) -> impl Iterator<Item = Lead> {
    let ours = routes.filter(|route| is_lead(route));
    ours.copied().map(Lead::Remove)
}

/// The change to the guard's own default route for a part and a family. It leads to the preferred tunnel that is up and
/// has an address of the family; without an address, packets would vanish and programs would wait.
fn lead(part: &Part<'_>, facts: &Facts, family: Family) -> Option<Lead> {
    let mut ours = facts.of_table(part.table);
    let now = ours.find(|route| is_lead(route) && Family::of(route.dst) == family);
    let tunnel = tunnels(part, facts)
        .into_iter()
        .find(|link| link.up && facts.has_address(link.index, family));
    match tunnel.filter(|_| part.lead) {
        Some(tunnel) if now.is_some_and(|it| it.dev == Some(tunnel.index)) => None,
        Some(tunnel) => {
            let mut route = Route::default_of(family)
                .dev(tunnel.index)
                .table(part.table);
            route.metric = Some(METRIC);
            Some(Lead::Set(route))
        }
        None => now.copied().map(Lead::Remove),
    }
}

#[cfg(test)]
mod groups;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::fixture::{facts, guard, link, tunnel};
    use netio::netlink::Rule;

    /// The facts after a plan was applied, for rules and routes only.
    fn done(facts: &Facts, plan: &Plan) -> Facts {
        let mut facts = facts.clone();
        for (family, rules) in FAMILIES.into_iter().zip(&mut facts.rules) {
            let rules = rules.as_mut().unwrap();
            rules.extend(plan.rules.add.iter().filter(|it| it.family == family));
            rules.retain(|rule| !plan.rules.delete.contains(rule));
        }
        for lead in &plan.leads {
            let (Lead::Set(route) | Lead::Remove(route)) = lead;
            let same = |it: &Route| is_lead(it) && (it.dst, it.table) == (route.dst, route.table);
            facts.tables.retain(|it| !same(it));
            if let Lead::Set(route) = lead {
                facts.tables.push(*route);
            }
        }
        facts
    }

    #[test]
    fn everything_is_set_once_and_taken_away_again() {
        let before = facts();
        let plan = Plan::set(&guard(), &before);
        assert!(plan.chain && plan.rules.add.iter().any(crate::guard::rules::holds));
        // In both families, each of two devices has a rule to nowhere and one to the table, and rules to two IPv4
        // networks and one IPv6 network. Each of three networks has the first two, and leads to those of its family (2
        // x 2 + 1). The router's own packets have one in each family.
        let devices = 2 * (2 * 2 + 2 + 1);
        assert_eq!(plan.rules.add.len(), devices + 3 * 2 + (2 * 2 + 1) + 2);
        let after = done(&before, &plan);
        let again = Plan::set(&guard(), &after);
        assert!(again.rules.is_empty() && again.leads.is_empty());
        assert!(after.is_any_there());
        let lifted = done(&after, &Plan::lift(&after));
        assert_eq!((lifted.rules, lifted.tables), (before.rules, before.tables));
    }

    #[test]
    fn the_guard_leads_into_the_preferred_tunnel_that_is_up() {
        let mut facts = facts();
        facts.links.push(link(8, "tun0", true));
        tunnel(&mut facts, 8, "10.9.0.2");
        let devices = |facts: &Facts| {
            let plan = Plan::set(&guard(), facts);
            let index = |lead: &Lead| match lead {
                Lead::Set(route) => (route.dst.is_ipv6(), route.dev),
                Lead::Remove(route) => (route.dst.is_ipv6(), None),
            };
            plan.leads.iter().map(index).collect::<Vec<_>>()
        };
        assert_eq!(devices(&facts), [(false, Some(8))]);
        let mut facts = done(&facts, &Plan::set(&guard(), &facts));
        assert_eq!(devices(&facts), []);
        facts.links.push(link(7, "mr-office", true));
        tunnel(&mut facts, 7, "10.8.0.2");
        tunnel(&mut facts, 7, "fd08::2");
        assert_eq!(devices(&facts), [(false, Some(7)), (true, Some(7))]);
        let mut facts = done(&facts, &Plan::set(&guard(), &facts));
        facts.links.retain(|link| link.index < 7);
        assert_eq!(devices(&facts), [(false, None), (true, None)]);
        let mut alone = guard();
        alone.lead = false;
        assert_eq!(Plan::set(&alone, &facts).leads.len(), 2);
    }

    #[test]
    fn another_table_leaves_no_route_in_the_one_before() {
        let mut facts = facts();
        let mut ours = crate::guard::fixture::route("0.0.0.0", 0, 7, 78);
        ours.metric = Some(METRIC);
        facts.tables = vec![ours, crate::guard::fixture::route("10.0.0.0", 8, 7, 78)];
        assert_eq!(Plan::set(&guard(), &facts).leads, [Lead::Remove(ours)]);
        assert_eq!(Plan::lift(&facts).leads, [Lead::Remove(ours)]);
    }

    #[test]
    fn a_kernel_without_ipv6_needs_no_rules_of_it() {
        let mut facts = facts();
        facts.rules[1] = None;
        let plan = Plan::set(&guard(), &facts);
        let is_v4 = |rule: &Rule| rule.family == Family::V4;
        assert!(!plan.rules.add.is_empty() && plan.rules.add.iter().all(is_v4));
    }
}
