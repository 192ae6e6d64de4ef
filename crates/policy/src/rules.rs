//! Routing rules, by marks.
//!
//! All rules with one of these priorities are the policy's.

use config::policy::Down;
use guard::rules::{Changes, POLICY};
use netio::netlink::{Family, Rule, RuleAction, TABLE_MAIN};

use crate::ways::Ways;

/// Priority of the rules by which packets look into a tunnel's table.
pub const INTO_TUNNEL: u32 = POLICY[0];
/// Priority of the rules by which those go nowhere whose tunnel is not up, and those that are blocked.
pub const NOWHERE: u32 = POLICY[1];
/// Priority of the rule by which what goes around tunnels looks for more particular routes than a default one. Behind the
/// guard's: what that holds does not go around.
pub const AROUND_LOCAL: u32 = 990;
/// Priority of the rule by which it takes the line.
pub const AROUND: u32 = 991;

/// All of them.
pub const PRIORITIES: [u32; 4] = [INTO_TUNNEL, NOWHERE, AROUND_LOCAL, AROUND];

/// The rules of a family that settings ask for, those that hold first. `is_around` where tunnels have to be gone around.
pub(crate) fn wanted(ways: &Ways, is_around: bool, family: Family) -> Vec<Rule> {
    let marked = |mark, table, priority| Rule {
        fwmark: Some(mark),
        mask: Some(ways.mask),
        priority: Some(priority),
        ..Rule::new(family, table)
    };
    let nowhere = |mark| Rule {
        action: RuleAction::Unreachable,
        ..marked(mark, 0, NOWHERE)
    };
    let mut rules = Vec::new();
    if ways.blocks {
        rules.push(nowhere(ways.block));
    }
    let held = ways.leads.iter().filter(|it| it.down == Down::Hold);
    rules.extend(held.map(|it| nowhere(it.mark)));
    rules.extend(
        ways.leads
            .iter()
            .map(|it| marked(it.mark, it.table, INTO_TUNNEL)),
    );
    if is_around {
        rules.push(Rule {
            // Not the halves of all either, which OpenVPN's `def1` makes.
            suppress_prefixlength: Some(1),
            ..marked(ways.around, TABLE_MAIN, AROUND_LOCAL)
        });
        rules.push(marked(ways.around, ways.table, AROUND));
    }
    rules
}

/// Whether a rule is the policy's.
#[must_use]
pub fn is_ours(rule: &Rule) -> bool {
    rule.priority.is_some_and(|it| PRIORITIES.contains(&it))
}

/// What leads from the rules that there are, of one family, to those that are wanted.
pub(crate) fn changes(have: &[Rule], want: &[Rule]) -> Changes {
    let mut left: Vec<&Rule> = want.iter().collect();
    let mut delete = Vec::new();
    for rule in have.iter().filter(|rule| is_ours(rule)) {
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
    use crate::fixture::policy;

    #[test]
    fn what_holds_is_behind_what_leads_and_comes_first() {
        let ways = Ways::new(&policy());
        for family in [Family::V4, Family::V6] {
            let rules = wanted(&ways, true, family);
            assert!(
                rules
                    .iter()
                    .all(|it| it.family == family && it.mask == Some(0xff00_0000))
            );
            let priorities: Vec<u32> = rules.iter().filter_map(|it| it.priority).collect();
            assert_eq!(priorities, [911, 911, 910, 910, 990, 991]);
            // One tunnel lets go when it is down.
            let held = rules
                .iter()
                .filter(|it| it.action == RuleAction::Unreachable);
            assert_eq!(held.count(), 2);
        }
        assert_eq!(wanted(&ways, false, Family::V4).len(), 4);
    }

    #[test]
    fn rules_of_others_stay_and_narrowed_ones_do_not() {
        let ways = Ways::new(&policy());
        let want = wanted(&ways, true, Family::V4);
        let other = Rule {
            priority: Some(905),
            ..Rule::new(Family::V4, 78)
        };
        let mut have = want.clone();
        have.push(other);
        assert!(changes(&have, &want).is_empty());
        have[0].from = Some(([192, 168, 1, 7].into(), 32));
        let changes = changes(&have, &want);
        assert_eq!(
            (changes.add.as_slice(), changes.delete.as_slice()),
            (&want[..1], &have[..1])
        );
    }
}
