//! Changes to the host. Deciding them does no I/O: settings and facts in, changes out.

use netio::netlink::{Family, NetlinkError, Route, Rule};

use crate::facts::{FAMILIES, Facts};
use crate::filter::Script;
use crate::report::Part;
use crate::system::{System, nft};
use crate::{SteerError, or_note};

/// All changes to the host.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Plan {
    /// Rules to add, in this order, before any is deleted.
    pub(crate) add: Vec<Rule>,
    /// Changes to the packet filter.
    pub(crate) scripts: Vec<Script>,
    /// Rules to delete.
    pub(crate) delete: Vec<Rule>,
    /// Routes to add, or to replace.
    pub(crate) set: Vec<Route>,
    /// Routes to delete.
    pub(crate) remove: Vec<Route>,
    /// The new text of the guard's file for `dnsmasq`; empty to remove the file.
    pub(crate) dns: Option<String>,
}

impl Plan {
    /// Plans the changes that lead to the wanted rules of each family, among the rules that `is_ours` selects.
    pub(crate) fn rules(
        &mut self,
        facts: &Facts,
        is_ours: fn(&Rule) -> bool,
        wanted: impl Fn(Family) -> Vec<Rule>,
    ) {
        for (family, have) in FAMILIES.into_iter().zip(&facts.rules) {
            let Some(have) = have else { continue };
            let mut left = wanted(family);
            for rule in have.iter().filter(|rule| is_ours(rule)) {
                // Kernels before 4.11 may have a rule twice.
                match left.iter().position(|wanted| wanted == rule) {
                    Some(place) => drop(left.remove(place)),
                    None => self.delete.push(*rule),
                }
            }
            self.add.extend(left);
        }
        // The kernel deletes the first rule that has all given attributes, so the more specific one must go before its
        // plain twin.
        self.delete.sort_by_key(|rule| rule.further.is_empty());
    }

    /// Plans the changes that lead to the wanted default routes, among those with this metric.
    pub(crate) fn routes(&mut self, facts: &Facts, metric: u32, wanted: &[Route]) {
        let same = |a: &Route, b: &Route| a.dst == b.dst && a.table == b.table;
        let is = |a: &Route, b: &Route| same(a, b) && a.dev == b.dev && a.via == b.via;
        let is_ours = |it: &&Route| it.prefix == 0 && it.metric == Some(metric);
        let ours: Vec<Route> = facts.tables.iter().filter(is_ours).copied().collect();
        let is_there = |wanted: &&Route| ours.iter().any(|it| is(it, wanted));
        self.set = wanted.iter().filter(|it| !is_there(it)).copied().collect();
        self.remove = ours;
        self.remove
            .retain(|have| wanted.iter().all(|it| !same(it, have)));
    }

    /// Whether there is nothing to change.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The state of the rules of IPv4 and of IPv6.
    pub(crate) fn rules_part(&self, facts: &Facts) -> [Part; 2] {
        [0, 1].map(|place| {
            let family = FAMILIES[place];
            let mut changed = self.add.iter().chain(&self.delete);
            match &facts.rules[place] {
                Some(_) if changed.any(|it| it.family == family) => Part::Missing,
                Some(_) => Part::Whole,
                None if family == Family::V6 && !facts.ipv6 => Part::NotNeeded,
                None => Part::Unseen("the kernel has no policy routing".to_owned()),
            }
        })
    }

    /// Applies the changes, except that to `dnsmasq`. `holds` selects the rules without which packets could pass.
    ///
    /// Rules that hold come first, as they take the least time. Rules, chains and routes of before go last.
    pub(crate) fn apply(&self, holds: fn(&Rule) -> bool, system: &mut System) -> Applied {
        let mut applied = Applied::default();
        for rule in &self.add {
            applied.added(holds(rule), system.netlink.add_rule(rule));
        }
        for Script { texts, closes } in &self.scripts {
            let done = match nft(&texts[0]) {
                // A kernel that cannot reject with an answer can still drop.
                Err(error @ SteerError::Nft(_)) => nft(&texts[1]).map_err(|_| error),
                other => other,
            };
            applied.closed |= done.is_ok() && *closes;
            or_note(done, &mut applied.errors);
        }
        let netlink = &mut system.netlink;
        for rule in &self.delete {
            or_note(unless_gone(netlink.delete_rule(rule)), &mut applied.errors);
        }
        for route in &self.set {
            let refused = netlink.replace_route(route).err();
            applied.refused.extend(refused.map(|it| (*route, it)));
        }
        for route in &self.remove {
            let refused = unless_gone(netlink.delete_route(route)).err();
            applied.refused.extend(refused.map(|it| (*route, it)));
        }
        applied
    }
}

fn unless_gone(result: Result<(), NetlinkError>) -> Result<(), NetlinkError> {
    result.or_else(|error| match error.is_not_found() {
        true => Ok(()),
        false => Err(error),
    })
}

/// The result of applying a plan. When the kernel refuses a step, the other steps are still done.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// Steps that the kernel refused.
    pub(crate) errors: Vec<SteerError>,
    /// Default routes that the kernel refused to set or delete. That is not an error if the tunnel has gone meanwhile.
    refused: Vec<(Route, NetlinkError)>,
    /// Whether a missing part that holds packets was restored.
    pub(crate) closed: bool,
}

impl Applied {
    fn added(&mut self, holds: bool, result: Result<(), NetlinkError>) {
        match result {
            // Another process has added the rule already.
            Err(error) if error.is_exists() => {}
            Err(error) => self.errors.push(error.into()),
            Ok(()) => self.closed |= holds,
        }
    }

    /// Turns refused default routes into errors, if this later plan still requests them.
    pub(crate) fn settle(&mut self, still: &Plan) {
        let refused = self.refused.drain(..);
        let refused = refused.filter(|(it, _)| still.set.contains(it) || still.remove.contains(it));
        self.errors.extend(refused.map(|it| it.1.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    fn refused(errno: i32) -> NetlinkError {
        NetlinkError::Open(io::Error::from_raw_os_error(errno))
    }

    #[test]
    fn a_refused_route_is_an_error_unless_its_tunnel_has_gone() {
        let lead = |dev| Route::default_of(Family::V4).dev(dev);
        let mut applied = Applied {
            refused: [7, 8].map(|dev| (lead(dev), refused(101))).into(),
            ..Applied::default()
        };
        let still = Plan {
            set: vec![lead(8)],
            ..Plan::default()
        };
        applied.settle(&still);
        assert_eq!((applied.errors.len(), applied.refused.len()), (1, 0));
    }

    #[test]
    fn only_what_was_set_closes() {
        let mut applied = Applied::default();
        // On a kernel without routing rules, each look brings this error again.
        applied.added(true, Err(refused(95)));
        assert_eq!((applied.errors.len(), applied.closed), (1, false));
        applied.added(false, Ok(()));
        assert!(!applied.closed, "this one opens");
        applied.added(true, Ok(()));
        assert_eq!((applied.errors.len(), applied.closed), (1, true));
    }
}
