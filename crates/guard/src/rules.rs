//! The second layer: routing rules.
//!
//! All rules with one of its three priorities are the guard's. Those of the crate `policy` are between and behind them:
//! what it leads through a tunnel goes there before the guard's tables are asked, what it leads around tunnels does not.
//! Groups need no priorities of their own: a device is in one of them, and its rules name the device.

use config::guard::Guard;
use netio::netlink::{DeviceName, Family, Rule, TABLE_MAIN};

use crate::networks::Network;

/// Priority of the rules by which the LAN reaches its own networks.
pub const TO_LAN: u32 = 900;
/// Priority of the rules by which it looks into the guard's table, or its group's.
pub const INTO_TABLE: u32 = 980;
/// Priority of the rules by which all else goes nowhere.
pub const NOWHERE: u32 = 981;

/// The priorities of the guard's rules.
pub const PRIORITIES: [u32; 3] = [TO_LAN, INTO_TABLE, NOWHERE];

/// Where rules of the crate `policy` begin that come before the guard's table: four in a row, of which all ask for a mark. The
/// first is where they are unless another program's rules are before them.
pub const POLICY: [u32; 8] = [910, 890, 880, 870, 860, 850, 840, 830];

/// Whether a rule is one of those.
#[must_use]
pub fn is_policys(rule: &Rule) -> bool {
    let priority = rule.priority.unwrap_or(0);
    // A rule for all but a mark is another program's, such as `wg-quick`'s.
    rule.fwmark.is_some()
        && !rule.invert
        && POLICY.iter().any(|it| (*it..it + 4).contains(&priority))
}

/// What has to be done to rules.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Changes {
    /// Rules to be added, in this order, before any is deleted.
    pub add: Vec<Rule>,
    /// Rules to be deleted.
    pub delete: Vec<Rule>,
}

impl Changes {
    /// Whether everything is as it should be.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.add.is_empty() && self.delete.is_empty()
    }
}

/// Whether a rule of the guard's is one of those that hold.
pub(crate) fn holds(rule: &Rule) -> bool {
    rule.priority != Some(TO_LAN)
}

/// The rules of a family that settings ask for. The one that goes nowhere comes first: as long as only it is there,
/// nothing passes.
pub(crate) fn wanted(guard: &Guard, networks: &[Network], family: Family) -> Vec<Rule> {
    let mut rules = Vec::new();
    let mut devices = Vec::new();
    for part in guard.parts() {
        for iif in part.lan.iter().filter_map(|name| DeviceName::new(name)) {
            rules.push(Rule {
                priority: Some(NOWHERE),
                ..Rule::unreachable(family, iif)
            });
            rules.push(Rule {
                iif: Some(iif),
                priority: Some(INTO_TABLE),
                ..Rule::new(family, part.table)
            });
            devices.push(iif);
        }
    }
    for &network in networks.iter().filter(|it| Family::of(it.0) == family) {
        rules.extend(devices.iter().map(|iif| Rule {
            iif: Some(*iif),
            to: Some(network),
            priority: Some(TO_LAN),
            ..Rule::new(family, TABLE_MAIN)
        }));
    }
    rules
}

/// Whether a rule is the guard's.
#[must_use]
pub fn is_ours(rule: &Rule) -> bool {
    rule.priority.is_some_and(|it| PRIORITIES.contains(&it))
}

/// What leads from the rules that there are, of one family, to those that are wanted.
pub(crate) fn changes(have: &[Rule], want: &[Rule]) -> Changes {
    changes_among(have, want, is_ours)
}

/// The same, among rules that `is_ours` says are there to be changed.
#[must_use]
pub fn changes_among(have: &[Rule], want: &[Rule], is_ours: fn(&Rule) -> bool) -> Changes {
    let mut left: Vec<&Rule> = want.iter().collect();
    let mut delete = Vec::new();
    for rule in have.iter().filter(|rule| is_ours(rule)) {
        // Kernels before 4.11 may have one twice.
        match left.iter().position(|wanted| *wanted == rule) {
            Some(place) => drop(left.remove(place)),
            None => delete.push(*rule),
        }
    }
    // The kernel deletes the first rule that has all that is given: one with more goes before its plain twin is meant.
    delete.sort_by_key(|rule| rule.further.is_empty());
    Changes {
        add: left.into_iter().copied().collect(),
        delete,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{guard, ip};
    use proptest::prelude::*;

    fn networks() -> Vec<Network> {
        vec![(ip("192.168.1.0"), 24), (ip("2001:db8:1:1::"), 64)]
    }

    #[test]
    fn tunnels_know_all_places_of_the_policy_before_the_guards() {
        for first in POLICY.into_iter().skip(1) {
            assert!((first..first + 4).all(|it| host::POLICY_RULES.contains(&it)));
        }
    }

    #[test]
    fn what_holds_comes_before_what_opens() {
        let rules = wanted(&guard(), &networks(), Family::V6);
        let priorities: Vec<u32> = rules.iter().filter_map(|rule| rule.priority).collect();
        assert_eq!(priorities, [981, 980, 981, 980, 900, 900]);
        assert_eq!(rules[4].to, Some((ip("2001:db8:1:1::"), 64)));
        assert!(
            rules
                .iter()
                .all(|rule| rule.family == Family::V6 && rule.iif.is_some())
        );
        assert_eq!(rules[1].table, 77);
        assert_eq!(rules[4].table, TABLE_MAIN);
    }

    #[test]
    fn a_new_network_is_added_and_the_old_one_deleted() {
        let have = wanted(&guard(), &networks(), Family::V6);
        let new = [(ip("2001:db8:2:1::"), 64)];
        let changes = changes(&have, &wanted(&guard(), &new, Family::V6));
        assert_eq!((changes.add.len(), changes.delete.len()), (2, 2));
        assert!(!changes.add.iter().any(holds));
    }

    #[test]
    fn rules_of_others_are_left_and_doubles_are_not() {
        let want = wanted(&guard(), &networks(), Family::V4);
        let other = Rule {
            priority: Some(910),
            ..Rule::new(Family::V4, 78)
        };
        let mut have = want.clone();
        have.push(other);
        assert!(changes(&have, &want).is_empty());
        have.push(want[0]);
        assert_eq!(changes(&have, &want).delete, [want[0]]);
        assert!(changes(&[other], &want).add.iter().any(holds));
    }

    proptest! {
        /// From any part of the rules of one setting, with strange ones among them, the changes lead to those of another.
        #[test]
        fn changes_lead_to_what_is_wanted(kept in prop::collection::vec(any::<bool>(), 6), table in 1u32..3000) {
            let mut before = guard();
            before.table = table;
            before.lan.rotate_left(1);
            let all = wanted(&before, &networks(), Family::V4);
            let have: Vec<Rule> = all.into_iter().zip(kept).filter(|it| it.1).map(|it| it.0).collect();
            let want = wanted(&guard(), &networks(), Family::V4);
            let changes = changes(&have, &want);
            let mut now = have;
            now.extend(changes.add);
            for rule in changes.delete {
                let place = now.iter().position(|it| *it == rule).unwrap();
                now.remove(place);
            }
            prop_assert_eq!(now.len(), want.len());
            prop_assert!(want.iter().all(|rule| now.contains(rule)));
        }
    }
}
