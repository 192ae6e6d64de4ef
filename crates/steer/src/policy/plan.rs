//! Decides what to change. Does no I/O: settings and facts in, changes out.

use crate::guard::rules::Changes;
use config::policy::Policy;
use netio::netlink::Route;

use crate::policy::facts::{FAMILIES, Facts, TableFact};
use crate::policy::ways::Ways;
use crate::policy::{routes, rules};

/// All changes to the host.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Plan {
    /// Whether to make the packet filter's table anew, apart from its sets.
    pub table: bool,
    /// The changes to the rules of both families.
    pub rules: Changes,
    /// Routes to add, or to replace.
    pub set: Vec<Route>,
    /// Routes to delete.
    pub remove: Vec<Route>,
}

impl Plan {
    /// The plan that sets the policy on this host.
    #[must_use]
    pub fn set(policy: &Policy, facts: &Facts, table: &TableFact) -> Self {
        let ways = Ways::new(policy);
        let is_around = facts.is_around(policy);
        let mut plan = Self {
            // A table that cannot be read is written: the error then tells the reason.
            table: !matches!(table, TableFact::There { whole: true, .. }),
            ..Self::default()
        };
        let place = rules::Place::among(&facts.rules);
        for (family, have) in FAMILIES.into_iter().zip(&facts.rules) {
            let Some(have) = have else { continue };
            let wanted = rules::wanted(policy, &ways, facts, place, family);
            let of_family = rules::changes(have, &wanted);
            plan.rules.add.extend(of_family.add);
            plan.rules.delete.extend(of_family.delete);
        }
        let wanted = routes::wanted(policy, &ways, facts, is_around);
        let same = |a: &Route, b: &Route| a.dst == b.dst && a.table == b.table;
        let is = |a: &Route, b: &Route| same(a, b) && a.dev == b.dev && a.via == b.via;
        let ours: Vec<&Route> = facts
            .tables
            .iter()
            .filter(|it| routes::is_ours(it))
            .collect();
        let is_there = |wanted: &Route| ours.iter().any(|it| is(it, wanted));
        plan.set = wanted.iter().filter(|it| !is_there(it)).copied().collect();
        let is_wanted = |have: &Route| wanted.iter().any(|it| same(it, have));
        plan.remove = ours
            .into_iter()
            .filter(|it| !is_wanted(it))
            .copied()
            .collect();
        plan
    }

    /// The plan that removes the policy, except the table.
    #[must_use]
    pub fn lift(facts: &Facts, table: &TableFact) -> Self {
        let have = facts.rules.iter().flatten().flatten();
        Self {
            table: !matches!(table, TableFact::Absent),
            rules: Changes {
                add: Vec::new(),
                delete: have.filter(|it| rules::is_ours(it)).copied().collect(),
            },
            set: Vec::new(),
            remove: facts
                .tables
                .iter()
                .filter(|it| routes::is_ours(it))
                .copied()
                .collect(),
        }
    }

    /// Whether there is nothing to change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.table && self.rules.is_empty() && self.set.is_empty() && self.remove.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::fixture::{facts, link, policy, tunnel};
    use proptest::prelude::*;

    const WHOLE: TableFact = TableFact::There {
        whole: true,
        refused: 0,
    };

    /// The facts after a plan was applied.
    fn done(facts: &Facts, plan: &Plan) -> Facts {
        let mut facts = facts.clone();
        for (family, have) in FAMILIES.into_iter().zip(&mut facts.rules) {
            let have = have.as_mut().unwrap();
            have.extend(plan.rules.add.iter().filter(|it| it.family == family));
            have.retain(|rule| !plan.rules.delete.contains(rule));
        }
        let touched = plan.set.iter().chain(&plan.remove);
        for route in touched {
            facts
                .tables
                .retain(|it| it.table != route.table || it.dst != route.dst);
        }
        facts.tables.extend(&plan.set);
        facts
    }

    #[test]
    fn everything_is_set_once_and_taken_away_again() {
        let mut before = facts();
        before.links.push(link(7, "mr-us", true));
        tunnel(&mut before, 7, "10.8.0.2");
        let plan = Plan::set(&policy(), &before, &TableFact::Absent);
        let marked = plan.rules.add.iter().filter(|it| it.fwmark.is_some());
        assert!(plan.table && marked.count() == 8 && plan.set.len() == 1);
        let after = done(&before, &plan);
        assert!(Plan::set(&policy(), &after, &WHOLE).is_empty());
        let lifted = done(&after, &Plan::lift(&after, &WHOLE));
        assert_eq!((lifted.rules, lifted.tables), (before.rules, before.tables));
    }

    #[test]
    fn a_tunnel_that_goes_takes_its_route_along() {
        let mut facts = facts();
        facts.links.push(link(7, "mr-us", true));
        tunnel(&mut facts, 7, "10.8.0.2");
        let mut facts = done(&facts, &Plan::set(&policy(), &facts, &WHOLE));
        facts.links.last_mut().unwrap().up = false;
        let plan = Plan::set(&policy(), &facts, &WHOLE);
        assert_eq!((plan.set.len(), plan.remove.len()), (0, 1));
        // Another device has taken the same name.
        facts.links.last_mut().unwrap().up = true;
        facts.links.last_mut().unwrap().index = 9;
        facts.addresses.last_mut().unwrap().index = 9;
        let plan = Plan::set(&policy(), &facts, &WHOLE);
        assert_eq!((plan.set[0].dev, plan.remove.len()), (Some(9), 0));
    }

    proptest! {
        /// The next plan restores any part that another program has taken away.
        #[test]
        fn what_was_taken_away_comes_back(kept in prop::collection::vec(any::<bool>(), 8), route: bool) {
            let mut facts = facts();
            facts.links.push(link(7, "mr-us", true));
            tunnel(&mut facts, 7, "10.8.0.2");
            let mut facts = done(&facts, &Plan::set(&policy(), &facts, &WHOLE));
            let mut kept = kept.into_iter();
            for have in facts.rules.iter_mut().flatten() {
                have.retain(|it| !rules::is_ours(it) || kept.next().unwrap_or(true));
            }
            if route {
                facts.tables.clear();
            }
            let facts = done(&facts, &Plan::set(&policy(), &facts, &WHOLE));
            prop_assert!(Plan::set(&policy(), &facts, &WHOLE).is_empty());
        }
    }
}
