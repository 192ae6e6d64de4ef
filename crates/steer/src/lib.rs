//! Steering: through which tunnel packets of the LAN leave, or that they do not leave at all.
//!
//! The [`guard`] holds devices of the LAN that may leave by a tunnel only. The [`policy`] leads packets by sender and
//! destination. Both are chains of the packet filter, routing rules, and default routes in routing tables of their own.
//! These belong to the kernel and to no process. A `plan` only decides: settings and facts in, changes out. The actions
//! of both apply the changes, and a `watch` applies them again when another program has undone them.
//!
//! The same code writes two tables of the packet filter, `millrace` and `millrace_policy`. One would not do: the guard's
//! outlives the policy's, which `off` deletes as a whole with its sets, and is shared with other parts of the program.
//! Each of the guard's chains is a transaction of its own, so that a kernel that cannot make one can still hold packets;
//! the policy's chains jump to each other, and are one transaction.

#![forbid(unsafe_code)]

mod control;
mod facts;
mod filter;
mod flows;
pub mod guard;
mod networks;
mod plan;
pub mod policy;
mod record;
mod report;
mod system;
mod watch;
mod way;

use netio::netlink::{Family, Rule};

pub use control::{Done, SteerError};
pub use report::Part;
pub use way::{Way, Why};

/// Whether a routing rule is the guard's or the policy's.
#[must_use]
pub fn is_ours(rule: &Rule) -> bool {
    guard::rules::is_ours(rule) || policy::rules::is_ours(rule)
}

/// Rules of both families as comments of a script.
fn rules_in_words(wanted: impl Fn(Family) -> Vec<Rule>) -> String {
    let numbers = facts::FAMILIES.into_iter().zip([4, 6]);
    let rules = numbers.flat_map(|(family, number)| {
        let rules = wanted(family).into_iter();
        rules.map(move |it| format!("# IPv{number} rule {} {it}\n", it.priority.unwrap_or(0)))
    });
    rules.collect()
}

#[cfg(test)]
mod fixture;
