//! Applies a plan to the host.

use config::guard::Guard;
use host::dnsmasq::Restarts;
use netio::netlink::{NetlinkError, Rule};

use crate::guard::GuardError;
use crate::guard::chain::{CHAIN, FOREIGN_CHAIN, Refusal, TABLE, WantedChain, removal};
use crate::guard::dns::{self, DnsChange};
use crate::guard::facts::Facts;
use crate::guard::networks::Surroundings;
use crate::guard::plan::{Lead, Plan};
use crate::guard::rules::holds;
use crate::guard::system::{System, listed, nft};

/// The result of applying a plan. When the kernel refuses a step, the other steps are still done.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// The refused steps.
    pub(crate) errors: Vec<GuardError>,
    /// Default routes that the kernel refused to set or delete. It is no error if their tunnel has gone meanwhile.
    pub(crate) refused: Vec<(Lead, NetlinkError)>,
    /// Whether this plan restored a missing part that holds packets.
    pub(crate) closed: bool,
}

impl Applied {
    fn added(&mut self, rule: &Rule, result: Result<(), NetlinkError>) {
        match result {
            // Another process of the guard has added the rule already.
            Err(error) if error.is_exists() => {}
            Err(error) => self.errors.push(error.into()),
            Ok(()) => self.closed |= holds(rule),
        }
    }

    /// Turns refused default routes into errors, if this later plan still asks for them.
    pub(crate) fn settle(&mut self, still: &Plan) {
        let refused = self.refused.drain(..);
        let refused = refused.filter(|(lead, _)| still.leads.contains(lead));
        self.errors.extend(refused.map(|it| it.1.into()));
    }
}

/// Sets the guard: first the chains, which hold by themselves, then the rules, adding new ones before deleting old
/// ones.
pub(crate) fn set(
    guard: &Guard,
    facts: &Facts,
    plan: &Plan,
    system: &mut System,
    restarts: &mut Restarts,
) -> Applied {
    let mut applied = Applied::default();
    let around = Surroundings::new(guard, facts);
    if plan.chain {
        match make_chain(&WantedChain::new(guard, &around)) {
            Ok(()) => applied.closed = plan.is_open,
            Err(error) => applied.errors.push(error),
        }
    }
    // One transaction for each chain: a kernel that cannot make one of them can still hold packets.
    for name in &plan.further {
        let wanted = WantedChain::further(name, guard, &around);
        let done = match &wanted {
            Some(wanted) => make_chain(wanted),
            None => nft(&removal(name)),
        };
        // A new chain also means forgetting old connections: those to other name servers, and those whose source the
        // tunnel's other end does not know. The foreign chain changes with every network.
        applied.closed |= done.is_ok() && wanted.is_some() && *name != FOREIGN_CHAIN;
        applied.errors.extend(done.err());
    }
    change(plan, system, &mut applied);
    // Last, as restarting dnsmasq may take a second.
    applied
        .errors
        .extend(tell_dnsmasq(plan, system, restarts).err());
    applied
}

/// Removes the guard.
pub(crate) fn lift(plan: &Plan, system: &mut System) -> Applied {
    let mut applied = Applied::default();
    if plan.chain {
        applied.errors.extend(nft(&removal(CHAIN)).err());
    }
    for name in &plan.further {
        applied.errors.extend(nft(&removal(name)).err());
    }
    if plan.chain || !plan.further.is_empty() {
        tidy();
    }
    change(plan, system, &mut applied);
    applied.settle(plan);
    let told = tell_dnsmasq(plan, system, &mut Restarts::at_once());
    applied.errors.extend(told.err());
    applied
}

fn tell_dnsmasq(plan: &Plan, system: &System, restarts: &mut Restarts) -> Result<(), GuardError> {
    match (&plan.dns, &system.dnsmasq) {
        (Some(DnsChange::Set(text)), Some(it)) => it.set(dns::FILE, text, restarts)?,
        (Some(DnsChange::Remove), Some(it)) => it.remove(dns::FILE, restarts)?,
        _ => {}
    }
    Ok(())
}

fn make_chain(wanted: &WantedChain) -> Result<(), GuardError> {
    let refused = match nft(&wanted.script(Refusal::Reject)) {
        Err(error @ GuardError::Nft(_)) => error,
        other => return other,
    };
    // A kernel that cannot reject with an answer can still drop.
    nft(&wanted.script(Refusal::Drop)).map_err(|_| refused)
}

/// Deletes the table if it holds nothing else.
fn tidy() {
    let Ok(text) = listed(TABLE) else { return };
    let is_empty = text.lines().filter(|line| !line.trim().is_empty()).count() == 2;
    if is_empty && let Err(error) = nft(&format!("delete table inet {TABLE}\n")) {
        log::debug!("the empty table stays: {error}");
    }
}

fn change(plan: &Plan, system: &mut System, applied: &mut Applied) {
    let netlink = &mut system.netlink;
    for rule in &plan.rules.add {
        applied.added(rule, netlink.add_rule(rule));
    }
    for rule in &plan.rules.delete {
        match netlink.delete_rule(rule) {
            Err(error) if error.is_not_found() => {}
            Err(error) => applied.errors.push(error.into()),
            Ok(()) => {}
        }
    }
    for lead in &plan.leads {
        let done = match lead {
            Lead::Set(route) => netlink.replace_route(route),
            Lead::Remove(route) => match netlink.delete_route(route) {
                Err(error) if error.is_not_found() => Ok(()),
                other => other,
            },
        };
        applied.refused.extend(done.err().map(|it| (*lead, it)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netio::netlink::Family;
    use std::io;

    #[test]
    fn a_refused_route_is_an_error_unless_its_tunnel_has_gone() {
        let lead = |dev| Lead::Set(netio::netlink::Route::default_of(Family::V4).dev(dev));
        let refused = |dev| {
            let error = NetlinkError::Open(io::Error::from_raw_os_error(101));
            (lead(dev), error)
        };
        let mut applied = Applied {
            refused: vec![refused(7), refused(8)],
            ..Applied::default()
        };
        let still = Plan {
            leads: vec![lead(8)],
            ..Plan::default()
        };
        applied.settle(&still);
        assert_eq!((applied.errors.len(), applied.refused.len()), (1, 0));
    }

    #[test]
    fn only_what_was_set_closes() {
        let rule = |priority| Rule {
            priority: Some(priority),
            iif: netio::netlink::DeviceName::new("br-lan"),
            ..Rule::new(Family::V4, 77)
        };
        let refused = |errno| Err(NetlinkError::Open(io::Error::from_raw_os_error(errno)));
        let mut applied = Applied::default();
        // On a kernel without routing rules, each look brings this error again.
        applied.added(&rule(981), refused(95));
        assert_eq!((applied.errors.len(), applied.closed), (1, false));
        applied.added(&rule(900), Ok(()));
        assert!(!applied.closed, "this one opens");
        applied.added(&rule(981), Ok(()));
        assert_eq!((applied.errors.len(), applied.closed), (1, true));
    }
}
