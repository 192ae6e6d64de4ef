//! The second layer: routing rules.
//!
//! | priority | packets | way |
//! |---|---|---|
//! | 900 | of the LAN to the LAN | the main table |
//! | 974 | of the router itself, without the mark for counting | skip 975 and 976 |
//! | 975 | from a network of the LAN, through any device | the guard's table, or its group's |
//! | 976 | the same, and from past networks of the LAN | "unreachable" |
//! | 980 | through a device of the LAN | the guard's table, or its group's |
//! | 981 | the same | dropped: their source is not the LAN's, so an answer would go to a stranger |
//!
//! All rules with these priorities are the guard's. Rules of the policy have lower and higher priorities: the lower
//! ones send packets into a tunnel first, the higher ones lead around tunnels only packets that the guard does not
//! block. Groups need no priorities of their own, as each device is in one group and its rules name it.

use config::guard::{ASKING, Guard};
use netio::netlink::{DeviceName, Family, Rule, RuleAction, TABLE_MAIN};

use crate::facts::Facts;
use crate::guard::known;
use crate::networks::Network;

/// Priority of the rules by which the LAN reaches its own networks.
pub(crate) const TO_LAN: u32 = 900;
/// Priority of the rule that lets the router's own packets skip the next two.
pub(crate) const OWN: u32 = 974;
/// Priority of the rules that lead networks of the LAN into the guard's table, or their group's.
pub(crate) const FROM_LAN: u32 = 975;
/// Priority of the rules that refuse all other packets of these networks.
pub(crate) const FROM_LAN_NOWHERE: u32 = 976;
/// Priority of the rules that lead devices of the LAN into the guard's table, or their group's.
pub(crate) const INTO_TABLE: u32 = 980;
/// Priority of the rules that drop all other packets of these devices.
pub(crate) const NOWHERE: u32 = 981;

/// The priorities of the guard's rules.
pub const PRIORITIES: [u32; 6] = [TO_LAN, OWN, FROM_LAN, FROM_LAN_NOWHERE, INTO_TABLE, NOWHERE];

/// Maximum number of networks per family that get rules to other networks, one for each pair. A LAN has a handful.
const PAIRED_MAX: usize = 8;

/// Number of consecutive priorities that the policy uses.
pub(crate) const POLICY_SPAN: u32 = 7;

/// First priorities for the rules of the policy before the guard's table, [`POLICY_SPAN`] each. All of these
/// rules match a mark, or no mark under a mask. The first entry is used unless another program's rules come
/// before it.
pub(crate) const POLICY: [u32; 8] = [910, 890, 880, 870, 860, 850, 840, 830];

/// Whether a rule belongs to the policy.
pub(crate) fn is_policys(rule: &Rule) -> bool {
    let priority = rule.priority.unwrap_or(0);
    // A rule that inverts its mark belongs to another program, such as `wg-quick`.
    (rule.fwmark.is_some() || rule.mask.is_some())
        && !rule.invert
        && POLICY
            .iter()
            .any(|it| (*it..it + POLICY_SPAN).contains(&priority))
}

/// Whether a rule of the guard's holds a device of the LAN. Other rules change with its networks.
pub(crate) fn holds(rule: &Rule) -> bool {
    rule.iif.is_some() && matches!(rule.priority, Some(INTO_TABLE | NOWHERE))
}

/// The rules of a family that settings request. The refusing rule of each device comes first: while it is alone, no
/// packet passes.
pub(crate) fn wanted(guard: &Guard, facts: &Facts, family: Family) -> Vec<Rule> {
    let is_family = |it: &Network| Family::of(it.0) == family;
    let mut within = facts.networks(&guard.within());
    within.retain(is_family);
    let mut held = known(guard, facts).networks;
    held.retain(is_family);
    let mut rules = Vec::new();
    let mut devices = Vec::new();
    for part in guard.parts() {
        for iif in part.lan.iter().filter_map(|name| DeviceName::new(name)) {
            rules.push(Rule {
                iif: Some(iif),
                priority: Some(NOWHERE),
                action: RuleAction::Blackhole,
                ..Rule::new(family, 0)
            });
            rules.push(Rule {
                iif: Some(iif),
                priority: Some(INTO_TABLE),
                ..Rule::new(family, part.table)
            });
            devices.push(iif);
        }
    }
    if !held.is_empty() {
        // This rule comes first: the router's only address may be in one of these networks.
        rules.push(Rule {
            iif: DeviceName::new("lo"),
            // A mask without a mark matches marks without these bits.
            mask: Some(ASKING),
            priority: Some(OWN),
            action: RuleAction::Goto(INTO_TABLE),
            ..Rule::new(family, 0)
        });
    }
    let from = |network, priority, table| Rule {
        from: Some(network),
        priority: Some(priority),
        ..Rule::new(family, table)
    };
    rules.extend(held.iter().map(|it| Rule {
        action: RuleAction::Unreachable,
        ..from(*it, FROM_LAN_NOWHERE, 0)
    }));
    let mut of_now: Vec<Network> = Vec::new();
    for part in guard.parts() {
        for network in facts.networks(&part.lan) {
            // If two parts have a network, the first part decides.
            if held.contains(&network) && !of_now.contains(&network) {
                rules.push(from(network, FROM_LAN, part.table));
                of_now.push(network);
            }
        }
    }
    for to in within {
        rules.extend(devices.iter().map(|iif| Rule {
            iif: Some(*iif),
            to: Some(to),
            priority: Some(TO_LAN),
            ..Rule::new(family, TABLE_MAIN)
        }));
        // These rules name no device: a tunnel's other end may have an address of the LAN.
        rules.extend(of_now.iter().take(PAIRED_MAX).map(|network| Rule {
            to: Some(to),
            ..from(*network, TO_LAN, TABLE_MAIN)
        }));
    }
    rules
}

/// Whether a rule is the guard's.
pub(crate) fn is_ours(rule: &Rule) -> bool {
    rule.priority.is_some_and(|it| PRIORITIES.contains(&it))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{facts, guard, ip};
    use crate::plan::Plan;
    use proptest::prelude::*;

    /// The plan of rules of one family.
    fn changes(have: &[Rule], want: &[Rule]) -> Plan {
        let mut plan = Plan::default();
        let mut facts = Facts::default();
        facts.rules[usize::from(want[0].family == Family::V6)] = Some(have.to_vec());
        plan.rules(&facts, is_ours, |_| want.to_vec());
        plan
    }

    #[test]
    fn tunnels_know_all_places_of_the_policy_before_the_guards() {
        for first in POLICY.into_iter().skip(1) {
            assert!((first..first + POLICY_SPAN).all(|it| host::POLICY_RULES.contains(&it)));
        }
    }

    #[test]
    fn what_holds_comes_before_what_opens() {
        let rules = wanted(&guard(), &facts(), Family::V6);
        let priorities: Vec<u32> = rules.iter().filter_map(|rule| rule.priority).collect();
        assert_eq!(
            priorities,
            [981, 980, 981, 980, 974, 976, 975, 900, 900, 900]
        );
        assert!(rules.iter().all(|rule| rule.family == Family::V6));
        let network = Some((ip("2001:db8:1:1::"), 64));
        assert_eq!((rules[5].from, rules[5].iif), (network, None));
        assert_eq!((rules[6].from, rules[6].table), (network, 77));
        assert_eq!(rules[1].table, 77);
        for rule in &rules[7..] {
            assert_eq!((rule.to, rule.table), (network, TABLE_MAIN));
        }
        // The router's own packets skip the LAN's rules, though their source is in the LAN.
        assert_eq!(rules[4].action, RuleAction::Goto(INTO_TABLE));
        assert_eq!(rules[4].iif, DeviceName::new("lo"));
    }

    #[test]
    fn a_network_that_has_gone_is_held_and_not_reached() {
        let mut facts = facts();
        facts.known.networks = vec![(ip("192.168.9.0"), 24)];
        let rules = wanted(&guard(), &facts, Family::V4);
        let of = |network: &str| {
            let from = Some((ip(network), 24));
            let own = rules.iter().filter(|it| it.from == from || it.to == from);
            own.filter_map(|it| it.priority).collect::<Vec<_>>()
        };
        assert_eq!(of("192.168.9.0"), [976]);
        assert_eq!(of("192.168.1.0")[..2], [976, 975]);
    }

    #[test]
    fn a_new_network_is_added_and_the_old_one_deleted() {
        let have = wanted(&guard(), &facts(), Family::V6);
        let mut other = facts();
        other.addresses[1].ip = ip("2001:db8:2:1::1");
        let changes = changes(&have, &wanted(&guard(), &other, Family::V6));
        assert_eq!((changes.add.len(), changes.delete.len()), (5, 5));
        assert!(!changes.add.iter().any(holds));
    }

    #[test]
    fn rules_of_others_are_left_and_doubles_are_not() {
        let want = wanted(&guard(), &facts(), Family::V4);
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
        /// From any subset of one setting's rules, mixed with foreign ones, the changes lead to another setting's
        /// rules.
        #[test]
        fn changes_lead_to_what_is_wanted(kept in prop::collection::vec(any::<bool>(), 16), table in 1u32..3000) {
            let mut before = guard();
            before.table = table;
            before.lan.rotate_left(1);
            let all = wanted(&before, &facts(), Family::V4);
            let have: Vec<Rule> = all.into_iter().zip(kept).filter(|it| it.1).map(|it| it.0).collect();
            let want = wanted(&guard(), &facts(), Family::V4);
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
