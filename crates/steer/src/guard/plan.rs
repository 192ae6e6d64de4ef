//! The guard's plan: its chains, rules and default routes, and the way of packets that these make.

use config::guard::{Guard, Part};
use host::tunnel_devices::SERVER_GROUP;
use netio::netlink::{Family, Link, Route};

use crate::facts::{FAMILIES, Facts};
use crate::filter::{Script, WantedTable};
use crate::guard::chain::{CHAIN, FOREIGN, TABLE, marks, table};
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
    for chain in wanted.chains {
        let have = facts.chains.found.get(&chain.name);
        if have.is_some_and(|it| chain.is(it)) {
            continue;
        }
        // A new chain also means forgetting old connections: those to other name servers, and those whose source the
        // tunnel's other end does not know. The foreign chain changes with every network.
        let closes = match chain.name.as_str() {
            CHAIN => !have.is_some_and(|it| chain.is_of_before(it)),
            name => name != FOREIGN,
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
        log::debug!("the empty table stays: {error}");
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

/// The way of a family's packets from a part's devices.
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
mod groups;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::route;
    use crate::fixture::{facts, guard, link, tunnel};
    use netio::netlink::Rule;

    /// The number of changes to rules and routes.
    pub(super) fn changes(plan: &Plan) -> usize {
        let rules = plan.add.len() + plan.delete.len();
        rules + plan.set.len() + plan.remove.len()
    }

    /// The facts after a plan was applied, for rules and routes only.
    fn done(facts: &Facts, plan: &Plan) -> Facts {
        let mut facts = facts.clone();
        for (family, rules) in FAMILIES.into_iter().zip(&mut facts.rules) {
            let rules = rules.as_mut().unwrap();
            rules.extend(plan.add.iter().filter(|it| it.family == family));
            rules.retain(|rule| !plan.delete.contains(rule));
        }
        for route in plan.set.iter().chain(&plan.remove) {
            let same = |it: &Route| (it.dst, it.table) == (route.dst, route.table);
            facts.tables.retain(|it| !same(it));
        }
        facts.tables.extend(&plan.set);
        facts
    }

    #[test]
    fn everything_is_set_once_and_taken_away_again() {
        let before = facts();
        let plan = set(&guard(), &before);
        assert!(plan.scripts[0].closes && plan.add.iter().any(rules::holds));
        // In both families, each of two devices has a rule to nowhere and one to the table, and rules to two IPv4
        // networks and one IPv6 network. Each of three networks has the first two, and leads to those of its family (2
        // x 2 + 1). The router's own packets have one in each family.
        let devices = 2 * (2 * 2 + 2 + 1);
        assert_eq!(plan.add.len(), devices + 3 * 2 + (2 * 2 + 1) + 2);
        let after = done(&before, &plan);
        let again = set(&guard(), &after);
        assert_eq!(changes(&again), 0);
        let lifted = done(&after, &lift(&after));
        assert_eq!((lifted.rules, lifted.tables), (before.rules, before.tables));
    }

    #[test]
    fn the_guard_leads_into_the_preferred_tunnel_that_is_up() {
        let mut facts = facts();
        facts.links.push(link(8, "tun0", true));
        tunnel(&mut facts, 8, "10.9.0.2");
        let devices = |facts: &Facts| {
            let plan = set(&guard(), facts);
            let set = plan.set.iter().map(|it| (it.dst.is_ipv6(), it.dev));
            let gone = plan.remove.iter().map(|it| (it.dst.is_ipv6(), None));
            set.chain(gone).collect::<Vec<_>>()
        };
        assert_eq!(devices(&facts), [(false, Some(8))]);
        let mut facts = done(&facts, &set(&guard(), &facts));
        assert_eq!(devices(&facts), []);
        facts.links.push(link(7, "mr-office", true));
        tunnel(&mut facts, 7, "10.8.0.2");
        tunnel(&mut facts, 7, "fd08::2");
        assert_eq!(devices(&facts), [(false, Some(7)), (true, Some(7))]);
        let mut facts = done(&facts, &set(&guard(), &facts));
        facts.links.retain(|link| link.index < 7);
        assert_eq!(devices(&facts), [(false, None), (true, None)]);
        let mut alone = guard();
        alone.lead = false;
        assert_eq!(set(&alone, &facts).remove.len(), 2);
    }

    #[test]
    fn another_table_leaves_no_route_in_the_one_before() {
        let mut facts = facts();
        let mut ours = route("0.0.0.0", 0, 7, 78);
        ours.metric = Some(METRIC);
        facts.tables = vec![ours, route("10.0.0.0", 8, 7, 78)];
        assert_eq!(set(&guard(), &facts).remove, [ours]);
        assert_eq!(lift(&facts).remove, [ours]);
    }

    #[test]
    fn a_kernel_without_ipv6_needs_no_rules_of_it() {
        let mut facts = facts();
        facts.rules[1] = None;
        let plan = set(&guard(), &facts);
        let is_v4 = |rule: &Rule| rule.family == Family::V4;
        assert!(!plan.add.is_empty() && plan.add.iter().all(is_v4));
    }

    fn way_of(facts: &Facts, family: Family) -> Way {
        way(&guard().parts()[0], facts, family)
    }

    fn held(facts: &Facts) -> String {
        match way_of(facts, Family::V4) {
            Way::Held(why) => why.to_string(),
            way => panic!("{way:?}"),
        }
    }

    #[test]
    fn why_is_told_and_what_leads_is_named() {
        let mut facts = facts();
        assert!(held(&facts).contains("no device mr-*, tun0"));
        facts.links.push(link(7, "mr-office", false));
        assert!(held(&facts).contains("mr-office is not up"));
        facts.links[3].up = true;
        assert!(held(&facts).contains("mr-office has no address"));
        tunnel(&mut facts, 7, "10.8.0.2");
        assert!(held(&facts).contains("table 77 has no default route"));
        facts.tables.push(route("0.0.0.0", 0, 3, 77));
        assert!(held(&facts).contains("leads to wan"));
        facts.tables.clear();
        facts.tables.push(route("0.0.0.0", 0, 7, 77));
        assert_eq!(way_of(&facts, Family::V4).index(), Some(7));
        assert_eq!(way_of(&facts, Family::V6).index(), None);
    }

    #[test]
    fn halves_are_as_good_and_the_best_metric_counts() {
        let mut facts = facts();
        facts.links.push(link(7, "mr-office", true));
        facts.links.push(link(8, "tun0", true));
        for half in ["0.0.0.0", "128.0.0.0"] {
            facts.tables.push(route(half, 1, 8, 77));
        }
        facts.tables.push(route("0.0.0.0", 0, 7, 77));
        assert_eq!(way_of(&facts, Family::V4).index(), Some(8));
        let mut late = route("::", 0, 7, 77);
        late.metric = Some(9000);
        facts.tables.push(late);
        facts.tables.push(route("::", 0, 8, 77));
        assert_eq!(way_of(&facts, Family::V6).index(), Some(8));
    }
}
