mod groups;

use super::*;

use crate::fixture::{facts, guard, link, made, route, tunnel};
use netio::netlink::Rule;

/// The number of changes to rules and routes.
fn changes(plan: &Plan) -> usize {
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
    // In both families, each of two devices has a blackhole rule, a rule to the table, and rules to two IPv4 networks
    // and one IPv6 network. Each of three networks has the first two rules, and rules to the networks of its family (2
    // x 2 + 1). The router's own packets have one rule in each family.
    let devices = 2 * (2 * 2 + 2 + 1);
    assert_eq!(plan.add.len(), devices + 3 * 2 + (2 * 2 + 1) + 2);
    let after = done(&before, &plan);
    let again = set(&guard(), &after);
    assert_eq!(changes(&again), 0);
    let lifted = done(&after, &lift(&after));
    assert_eq!((lifted.rules, lifted.tables), (before.rules, before.tables));
}

/// Readers take a smaller sum for two counters that both began anew.
#[test]
fn both_counts_begin_anew_together() {
    let mut facts = facts();
    let wanted = table(&guard(), &known(&guard(), &facts), &marks(&facts));
    facts.chains.found = made(&wanted);
    assert!(set(&guard(), &facts).scripts.is_empty());
    let written = |facts: &Facts| {
        let plan = set(&guard(), facts);
        let names = [CHAIN, HELD].map(|it| format!("add chain inet {TABLE} {it} "));
        names.map(|it| {
            plan.scripts
                .iter()
                .any(|script| script.texts[0].contains(&it))
        })
    };
    for gone in [CHAIN, HELD] {
        let mut facts = facts.clone();
        facts.chains.found.remove(gone);
        assert_eq!(written(&facts), [true, true], "{gone}");
    }
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
    assert!(held(&facts).contains("uses wan"));
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
