//! Applies a plan to the host.

use crate::guard::GuardError;
use crate::guard::system::{System, listed, nft};
use netio::netlink::{Family, NetlinkError, Route, Rule, RuleAction};

use crate::policy::PolicyError;
use crate::policy::plan::Plan;
use crate::policy::table::{self, Refusal, TABLE, WantedTable};

/// The result of applying a plan. When the kernel refuses a step, the other steps are still done.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// The refused steps.
    pub(crate) errors: Vec<PolicyError>,
    /// Routes that the kernel refused to set or delete. It is no error if their tunnel has gone meanwhile.
    pub(crate) refused: Vec<(Route, NetlinkError)>,
    /// Whether a missing part was restored: connections may have begun by another way meanwhile.
    pub(crate) closed: bool,
}

impl Applied {
    /// Turns refused routes into errors, if this later plan still asks for them.
    pub(crate) fn settle(&mut self, still: &Plan) {
        let refused = self.refused.drain(..);
        let refused =
            refused.filter(|(route, _)| still.set.contains(route) || still.remove.contains(route));
        self.errors.extend(refused.map(|it| it.1.into()));
    }
}

/// Sets the policy: first the rules that hold, then the table that marks, then the routes.
pub(crate) fn set(wanted: &WantedTable, plan: &Plan, system: &mut System) -> Applied {
    let mut applied = Applied::default();
    // The plan's order puts the holding rules first.
    for rule in &plan.rules.add {
        match system.netlink.add_rule(rule) {
            // Another process of the policy has added the rule already.
            Err(error) if error.is_exists() => {}
            Err(error) => applied.errors.push(error.into()),
            Ok(()) => applied.closed = true,
        }
    }
    if plan.table {
        match make_table(wanted) {
            Ok(()) => applied.closed = true,
            Err(error) => applied.errors.push(error.into()),
        }
    }
    change(plan, system, &mut applied);
    applied
}

/// Removes the policy.
pub(crate) fn lift(plan: &Plan, system: &mut System) -> Applied {
    let mut applied = Applied::default();
    if plan.table {
        let script = format!("add table inet {TABLE}\ndelete table inet {TABLE}\n");
        if let Err(error) = nft(&script) {
            applied.errors.push(error.into());
        }
    }
    change(plan, system, &mut applied);
    applied.settle(plan);
    applied
}

fn make_table(wanted: &WantedTable) -> Result<(), GuardError> {
    let (chains, sets) = table::listed(&listed(TABLE)?);
    let refused = match nft(&wanted.script(Refusal::Reject, &chains, &sets)) {
        Err(error @ GuardError::Nft(_)) => error,
        other => return other,
    };
    // A kernel that cannot reject with an answer can still drop.
    nft(&wanted.script(Refusal::Drop, &chains, &sets)).map_err(|_| refused)
}

fn change(plan: &Plan, system: &mut System, applied: &mut Applied) {
    let netlink = &mut system.netlink;
    for rule in &plan.rules.delete {
        match netlink.delete_rule(rule) {
            Err(error) if error.is_not_found() => {}
            Err(error) => applied.errors.push(error.into()),
            Ok(()) => {}
        }
    }
    for route in &plan.set {
        let refused = netlink.replace_route(route).err();
        applied.refused.extend(refused.map(|it| (*route, it)));
    }
    for route in &plan.remove {
        let refused = netlink.delete_route(route).err();
        let refused = refused.filter(|it| !it.is_not_found());
        applied.refused.extend(refused.map(|it| (*route, it)));
    }
}

/// A rule in the words of `ip rule`.
#[must_use]
pub(crate) fn in_words(rule: &Rule) -> String {
    let family = match rule.family {
        Family::V4 => 4,
        Family::V6 => 6,
    };
    let mark = rule.fwmark.unwrap_or(0);
    let mask = rule.mask.unwrap_or(u32::MAX);
    let action = match rule.action {
        RuleAction::Unreachable => "unreachable".to_owned(),
        RuleAction::Blackhole => "blackhole".to_owned(),
        RuleAction::Goto(priority) => format!("goto {priority}"),
        RuleAction::Lookup => format!("lookup {}", rule.table),
    };
    let suppressed = rule.suppress_prefixlength;
    let suppressed =
        suppressed.map_or_else(String::new, |it| format!(" suppress_prefixlength {it}"));
    format!(
        "IPv{family} {}: fwmark {mark:#x}/{mask:#x} {action}{suppressed}",
        rule.priority.unwrap_or(0)
    )
}
