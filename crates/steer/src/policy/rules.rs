//! Routing rules by marks.
//!
//! | priority | packets | way |
//! |---|---|---|
//! | 910 | with a tunnel's mark | the tunnel's table |
//! | 911 | with the mark of a tunnel that blocks, or of blocked packets | "unreachable" |
//! | 914 | without a mark, through a device of the LAN to one of its networks | the main table |
//! | 915 | without a mark, of a blocked device | the tunnel's table |
//! | 916 | the same | "unreachable"; dropped where the source may be forged |
//! | 990 | with the mark of packets around tunnels | more specific routes of the main table |
//! | 991 | the same | the table of the uplink |
//!
//! The kernel puts a rule that is added without a priority, as by `wg-quick`, before all others. If such a rule matches
//! all packets and precedes these rules, they move before it, to the next lower place of [`POLICY`]. The last two stay
//! behind the guard's rules, at 986 or 982 if need be. Without a guard they may move before it, too.

use netio::netlink::{DeviceName, Family, Rule, RuleAction, TABLE_MAIN};

use crate::facts::Facts;
use crate::guard::rules::{self as guards, POLICY, POLICY_SPAN, is_policys};
use crate::policy::resolved::Resolved;
use crate::policy::{routes, second};

/// First priority of the rules for packets around tunnels. It is behind the guard's: packets that the guard holds do
/// not go around.
pub(super) const AROUND: u32 = 990;

/// Possible places of these two rules, all behind the guard's.
const BEHIND: [u32; 3] = [AROUND, 986, 982];

/// The priorities of the policy's rules on this host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Place {
    /// The first priority of the rules for tunnels.
    pub(super) first: u32,
    /// The first priority of the rules for packets around tunnels.
    pub(super) around: u32,
}

impl Place {
    /// Chooses priorities before all rules of other programs that match every packet.
    pub(super) fn among(facts: &Facts) -> Self {
        let rules = facts.rules();
        let is_guarded = rules.clone().any(guards::is_ours);
        let wide = rules.filter(|it| is_wide(it) && !is_ours(it));
        let earliest = wide
            .filter_map(|it| it.priority.filter(|it| *it != 0))
            .min();
        let earliest = earliest.unwrap_or(u32::MAX);
        let first = POLICY
            .into_iter()
            .find(|it| it + POLICY_SPAN - 1 < earliest);
        let first = first.unwrap_or(POLICY[POLICY.len() - 1]);
        Self {
            first,
            around: match BEHIND.into_iter().find(|it| it + 1 < earliest) {
                Some(behind) => behind,
                // Before the guard's rules, they would let packets leave that the guard blocks. So they stay, and the
                // other program's rule decides.
                None if is_guarded => AROUND,
                None => first + 2,
            },
        }
    }
}

/// Whether a rule matches all packets, perhaps except those with one mark.
fn is_wide(rule: &Rule) -> bool {
    (rule.fwmark.is_none() || rule.invert)
        && rule.iif.is_none()
        && rule.from.is_none()
        && rule.to.is_none()
        && rule.further.is_empty()
}

/// The rules of a family that settings request; those that block come first.
pub(super) fn wanted(resolved: &Resolved, facts: &Facts, family: Family) -> Vec<Rule> {
    let place = Place::among(facts);
    let mut rules = by_addresses(resolved, facts, place, family);
    let is_around = routes::is_around(resolved, facts);
    rules.extend(by_marks(resolved, is_around, place, family));
    rules
}

/// The rules for packets without a mark, which hold while the packet filter is flushed.
fn by_addresses(resolved: &Resolved, facts: &Facts, place: Place, family: Family) -> Vec<Rule> {
    let held = second::held(resolved, family);
    if held.is_empty() {
        return Vec::new();
    }
    let policy = &resolved.policy;
    // The kernel takes a mask without a mark to mean "these bits are all 0".
    let unmarked = |priority, table| Rule {
        mask: Some(policy.mask),
        priority: Some(priority),
        ..Rule::new(family, table)
    };
    let mut rules = Vec::new();
    // The LAN reaches itself first; only the packet filter can block networks within the LAN.
    for network in facts.networks(&policy.lan) {
        for iif in policy.lan.iter().filter_map(|it| DeviceName::new(it)) {
            if Family::of(network.0) == family {
                rules.push(Rule {
                    iif: Some(iif),
                    to: Some(network),
                    suppress_prefixlength: Some(1),
                    ..unmarked(place.first + 4, TABLE_MAIN)
                });
            }
        }
    }
    for it in held {
        let those = |rule| Rule {
            iif: it.iif,
            from: it.from,
            to: it.to,
            ..rule
        };
        rules.push(those(Rule {
            action: match it.from {
                Some(_) => RuleAction::Unreachable,
                // The source may be forged, so no answer is sent.
                None => RuleAction::Blackhole,
            },
            ..unmarked(place.first + 6, 0)
        }));
        rules.extend(
            it.table
                .map(|table| those(unmarked(place.first + 5, table))),
        );
    }
    rules
}

/// The rules for marks; `is_around` if packets need a route around tunnels.
fn by_marks(resolved: &Resolved, is_around: bool, place: Place, family: Family) -> Vec<Rule> {
    let marked = |mark, table, priority| Rule {
        fwmark: Some(mark),
        mask: Some(resolved.policy.mask),
        priority: Some(priority),
        ..Rule::new(family, table)
    };
    let nowhere = |mark| Rule {
        action: RuleAction::Unreachable,
        ..marked(mark, 0, place.first + 1)
    };
    let mut rules = Vec::new();
    if resolved.blocks() {
        rules.push(nowhere(resolved.block));
    }
    rules.extend(resolved.holding().map(|it| nowhere(it.mark)));
    let leads = resolved.leads.iter();
    rules.extend(leads.map(|it| marked(it.mark, it.table, place.first)));
    if is_around {
        rules.push(Rule {
            // Nor the two halves of a default route, which OpenVPN's `def1` makes.
            suppress_prefixlength: Some(1),
            ..marked(resolved.around, TABLE_MAIN, place.around)
        });
        rules.push(marked(
            resolved.around,
            resolved.policy.table,
            place.around + 1,
        ));
    }
    rules
}

/// Whether a rule is the policy's: all rules with a mark and one of its priorities are.
pub(crate) fn is_ours(rule: &Rule) -> bool {
    let is_around = rule.priority.is_some_and(|it| {
        BEHIND
            .iter()
            .any(|behind| (*behind..behind + 2).contains(&it))
    });
    is_policys(rule) || is_around && rule.fwmark.is_some() && !rule.invert
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::resolved;
    use crate::plan::Plan;

    /// The places beside these rules.
    fn among(rules: &[Rule]) -> Place {
        Place::among(&Facts {
            rules: [None, Some(rules.to_vec())],
            ..Facts::default()
        })
    }

    #[test]
    fn what_holds_is_behind_what_leads_and_comes_first() {
        let ways = resolved();
        for family in [Family::V4, Family::V6] {
            let rules = by_marks(&ways, true, among(&[]), family);
            assert!(
                rules
                    .iter()
                    .all(|it| it.family == family && it.mask == Some(0xff00_0000))
            );
            let priorities: Vec<u32> = rules.iter().filter_map(|it| it.priority).collect();
            assert_eq!(priorities, [911, 911, 910, 910, 990, 991]);
            // One tunnel lets packets leave in clear when it is down.
            let held = rules
                .iter()
                .filter(|it| it.action == RuleAction::Unreachable);
            assert_eq!(held.count(), 2);
        }
        assert_eq!(by_marks(&ways, false, among(&[]), Family::V4).len(), 4);
    }

    #[test]
    fn rules_for_all_that_come_first_are_gone_before() {
        let full = |priority| Rule {
            priority: Some(priority),
            ..Rule::not_marked(Family::V4, 51820, 51820)
        };
        let at = |rules: &[Rule]| {
            let place = among(rules);
            (place.first, place.around)
        };
        assert_eq!(at(&[full(32765)]), (910, 990));
        assert_eq!(at(&[full(985)]), (910, 982));
        assert_eq!(at(&[full(909), full(32765)]), (890, 892));
        assert_eq!(at(&[full(889)]), (880, 882));
        assert_eq!(at(&[full(5)]), (830, 832));
        // With a guard, no rule for packets around tunnels precedes the guard's.
        let held = Rule {
            priority: Some(guards::NOWHERE),
            ..Rule::unreachable(Family::V4, DeviceName::new("br-lan").unwrap())
        };
        for (other, wanted) in [
            (909, (890, 990)),
            (985, (910, 982)),
            (990, (910, 986)),
            (5, (830, 990)),
        ] {
            assert_eq!(at(&[held, full(other)]), wanted);
        }
        // Rules for only some packets do not move the policy's rules.
        let some = Rule {
            iif: DeviceName::new("wan"),
            ..full(909)
        };
        let marked = Rule {
            invert: false,
            ..full(909)
        };
        assert_eq!(at(&[some, marked]), (910, 990));
        // The policy's own rules do not count as another program's.
        let place = Place {
            first: 880,
            around: 882,
        };
        let own = by_marks(&resolved(), true, place, Family::V4);
        assert!(own.iter().all(is_ours));
        assert_eq!(at(&own), (910, 990));
    }

    #[test]
    fn rules_of_others_stay_and_narrowed_ones_do_not() {
        let ways = resolved();
        let want = by_marks(&ways, true, among(&[]), Family::V4);
        let other = Rule {
            priority: Some(905),
            ..Rule::new(Family::V4, 78)
        };
        let mut have = want.clone();
        have.push(other);
        let changes = |have: &[Rule]| {
            let mut plan = Plan::default();
            let facts = Facts {
                rules: [Some(have.to_vec()), None],
                ..Facts::default()
            };
            plan.rules(&facts, is_ours, |_| want.clone());
            plan
        };
        assert!(changes(&have).is_empty());
        have[0].from = Some(([192, 168, 1, 7].into(), 32));
        let changes = changes(&have);
        assert_eq!(
            (changes.add.as_slice(), changes.delete.as_slice()),
            (&want[..1], &have[..1])
        );
    }
}
