//! The guard's plan: its chains, rules and default routes, and the resulting route of packets.

use config::guard::{Guard, Part};
use host::tunnel_devices::SERVER_GROUP;
use netio::netlink::{Family, Link, Route};

use crate::facts::{FAMILIES, Facts};
use crate::filter::{Script, WantedChain, WantedTable};
use crate::guard::chain::{CHAIN, FOREIGN, HELD, TABLE, marks, table};
use crate::guard::{dns, known, rules};
use crate::plan::Plan;
use crate::system::{listed, nft};
use crate::way::{Way, lead};

/// Metric of the guard's own routes: behind those that a tunnel makes itself. The kernel's default for IPv6 is 1024.
const METRIC: u32 = 9000;

/// The plan that sets the guard on this host.
pub(super) fn set(guard: &Guard, facts: &Facts) -> Plan {
    let wanted = table(guard, &known(guard, facts), &marks(facts));
    let mut plan = Plan {
        dns: dns::change(guard, facts),
        ..removal(facts, |name| {
            wanted.chains.iter().all(|it| it.name != *name)
        })
    };
    let is_there = |chain: &WantedChain| {
        let have = facts.chains.found.get(&chain.name);
        have.is_some_and(|it| chain.is(it))
    };
    let counts = |chain: &WantedChain| [CHAIN, HELD].contains(&chain.name.as_str());
    // The sum of both counts only grows, or begins anew.
    let mut counting = wanted.chains.iter().filter(|it| counts(it));
    let begins_anew = counting.any(|it| !is_there(it));
    for chain in wanted.chains {
        if is_there(&chain) && !(begins_anew && counts(&chain)) {
            continue;
        }
        let have = facts.chains.found.get(&chain.name);
        // A new chain also means forgetting old connections: those to other name servers, and those whose source the
        // tunnel's other end does not know. The foreign chain changes with every network.
        let closes = match chain.name.as_str() {
            CHAIN => !have.is_some_and(|it| chain.is_of_before(it)),
            name => ![FOREIGN, HELD].contains(&name),
        };
        let table = WantedTable {
            name: TABLE,
            sets: Vec::new(),
            chains: vec![chain],
        };
        plan.scripts.push(Script {
            texts: table.scripts(""),
            closes,
        });
    }
    plan.rules(facts, rules::is_ours, |it| rules::wanted(guard, facts, it));
    plan.routes(facts, METRIC, &leads(guard, facts));
    plan
}

/// The plan that removes the guard.
pub(super) fn lift(facts: &Facts) -> Plan {
    let mut plan = removal(facts, |_| true);
    plan.rules(facts, rules::is_ours, |_| Vec::new());
    plan.routes(facts, METRIC, &[]);
    plan.dns = matches!(facts.dnsmasq, Some(Some(_))).then(String::new);
    plan
}

/// The plan that removes chains, each in a transaction of its own.
fn removal(facts: &Facts, is_old: impl Fn(&String) -> bool) -> Plan {
    let old = facts.chains.found.keys().filter(|it| is_old(it));
    let script = |name| {
        Script::plain(format!(
            "flush chain inet {TABLE} {name}\ndelete chain inet {TABLE} {name}\n"
        ))
    };
    Plan {
        scripts: old.map(script).collect(),
        ..Plan::default()
    }
}

/// Deletes the table if it holds nothing else.
pub(super) fn tidy() {
    let Ok(text) = listed(TABLE) else { return };
    let is_empty = text.lines().filter(|line| !line.trim().is_empty()).count() == 2;
    if is_empty && let Err(error) = nft(&format!("delete table inet {TABLE}\n")) {
        log::debug!("cannot delete the empty table: {error}");
    }
}

/// The default routes for tunnels that make none: into the preferred tunnel that can have one, for each part.
fn leads(guard: &Guard, facts: &Facts) -> Vec<Route> {
    let families = FAMILIES.into_iter().zip(&facts.rules);
    let families: Vec<Family> = families
        .filter(|it| it.1.is_some())
        .map(|it| it.0)
        .collect();
    let of = |part: &Part<'_>, family| {
        let mut tunnels = tunnels(part, facts).into_iter();
        tunnels.find_map(|it| lead(it, part.table, METRIC, facts, family))
    };
    let parts = guard.parts().into_iter().filter(|it| it.lead);
    parts
        .flat_map(|part| families.iter().filter_map(move |it| of(&part, *it)))
        .collect()
}

/// Route of a family's packets from the devices of a part.
pub(super) fn way(part: &Part<'_>, facts: &Facts, family: Family) -> Way {
    let names: Vec<String> = part.tunnels.iter().map(ToString::to_string).collect();
    let tunnels = tunnels(part, facts);
    Way::of(&names.join(", "), &tunnels, part.table, facts, family)
}

/// The devices of VPN servers on this host, except those that the settings name exactly as a tunnel.
pub(super) fn servers(guard: &Guard, links: &[Link]) -> Vec<String> {
    let links = links.iter();
    let servers = links.filter(|it| it.group == SERVER_GROUP && !guard.names_tunnel(&it.name));
    servers.map(|it| it.name.clone()).collect()
}

/// The tunnels of a part that exist, the preferred first.
pub(super) fn tunnels<'f>(part: &Part<'_>, facts: &'f Facts) -> Vec<&'f Link> {
    let is_inner = |link: &&Link| facts.inner.contains(&link.name);
    let links = facts.links.iter().filter(|it| !is_inner(it));
    let ranked = links.filter_map(|link| Some((part.rank(&link.name)?, link)));
    let mut ranked: Vec<(usize, &Link)> = ranked.collect();
    ranked.sort_by(|a, b| (a.0, &a.1.name).cmp(&(b.0, &b.1.name)));
    ranked.into_iter().map(|(_, link)| link).collect()
}

#[cfg(test)]
mod tests;
