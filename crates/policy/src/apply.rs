//! Does what a plan says.

use guard::GuardError;
use guard::system::{System, listed, nft};
use netio::netlink::{Family, NetlinkError, Route, Rule, RuleAction};

use crate::PolicyError;
use crate::plan::Plan;
use crate::table::{self, Refusal, TABLE, WantedTable};

/// The result of a plan. A step that the kernel refuses does not keep the others from being done.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// The refused steps.
    pub(crate) errors: Vec<PolicyError>,
    /// The routes that the kernel refused to set or to delete. Where a tunnel has gone meanwhile, this is no error.
    pub(crate) refused: Vec<(Route, NetlinkError)>,
    /// Something that leads or holds was missing, and is set: connections may have begun by another way.
    pub(crate) closed: bool,
}

impl Applied {
    /// Makes errors of the refused routes that this later plan still asks for.
    pub(crate) fn settle(&mut self, still: &Plan) {
        let refused = self.refused.drain(..);
        let refused =
            refused.filter(|(route, _)| still.set.contains(route) || still.remove.contains(route));
        self.errors.extend(refused.map(|it| it.1.into()));
    }
}

/// Sets the policy: first what holds, then what marks, then what leads.
pub(crate) fn set(wanted: &WantedTable, plan: &Plan, system: &mut System) -> Applied {
    let mut applied = Applied::default();
    // In the order of the plan, by which what holds is first.
    for rule in &plan.rules.add {
        match system.netlink.add_rule(rule) {
            // Another process of the policy was faster.
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

/// Takes the policy away.
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
    // A kernel that cannot answer can still drop.
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
