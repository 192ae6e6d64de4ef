//! Tests of plans for groups: the route that a device of the LAN may use at each step of a change.

use super::changes;
use crate::fixture::{facts, link, tunnel};
use crate::guard::plan::*;
use crate::guard::rules::{INTO_TABLE, NOWHERE};
use config::guard::Listed;
use netio::netlink::{DeviceName, Rule, RuleAction};
use proptest::prelude::*;
use std::path::Path;

const LANS: [&str; 4] = ["br-lan", "br-guest", "br-iot", "br-x"];

fn listed(interface: &str, lan: &[&str]) -> Listed {
    Listed {
        interface: interface.to_owned(),
        device: format!("mr-{interface}"),
        lan: lan.iter().map(|it| (*it).to_owned()).collect(),
    }
}

fn of_lists(file: &str, lists: &[Listed], before: &Guard) -> Guard {
    let base = Guard::from_toml(file, Path::new("guard.toml")).unwrap();
    base.with_lists(lists, &before.groups).0
}

/// A router on which these tunnels are up, with both families.
fn router(tunnels: &[u8]) -> Facts {
    let mut facts = facts();
    for number in tunnels {
        let index = 10 + u32::from(*number);
        facts.links.push(link(index, &format!("mr-{number}"), true));
        tunnel(&mut facts, index, &format!("10.8.{number}.2"));
        tunnel(&mut facts, index, &format!("fd08:{number}::2"));
    }
    facts
}

/// One step of a plan, as it is applied.
#[derive(Clone, Copy, Debug)]
enum Step {
    Add(Rule),
    Delete(Rule),
    Set(Route),
    Remove(Route),
}

fn steps(plan: &Plan) -> Vec<Step> {
    let add = plan.add.iter().copied().map(Step::Add);
    let delete = plan.delete.iter().copied().map(Step::Delete);
    let set = plan.set.iter().copied().map(Step::Set);
    let remove = plan.remove.iter().copied().map(Step::Remove);
    add.chain(delete).chain(set).chain(remove).collect()
}

fn take(facts: &mut Facts, step: Step) {
    let place = |family| usize::from(family == Family::V6);
    match step {
        Step::Add(rule) => facts.rules[place(rule.family)].as_mut().unwrap().push(rule),
        Step::Delete(rule) => {
            let rules = facts.rules[place(rule.family)].as_mut().unwrap();
            let found = rules.iter().position(|it| *it == rule).unwrap();
            rules.remove(found);
        }
        Step::Set(route) | Step::Remove(route) => {
            let same = |it: &Route| (it.table, it.dst) == (route.table, route.dst);
            facts.tables.retain(|it| !same(it));
            if let Step::Set(route) = step {
                facts.tables.push(route);
            }
        }
    }
}

/// The device through which a packet from a LAN to a distant address leaves: `None` if a rule refuses it, `clear` if no
/// rule of the guard matches.
fn way_of(facts: &Facts, lan: &str, family: Family) -> Option<String> {
    let iif = DeviceName::new(lan).unwrap();
    let rules = facts.rules[usize::from(family == Family::V6)]
        .as_ref()
        .unwrap();
    let mut own: Vec<&Rule> = rules
        .iter()
        .filter(|it| it.iif == Some(iif) && it.to.is_none())
        .collect();
    // Among rules of one priority, the first one added wins.
    own.sort_by_key(|it| it.priority);
    for rule in own {
        if rule.action == RuleAction::Blackhole {
            return None;
        }
        if let Some(route) = facts.defaults(rule.table, family).first() {
            return Some(facts.link(route.dev.unwrap()).unwrap().name.clone());
        }
    }
    Some("clear".to_owned())
}

fn tunnels_of(guard: &Guard, lan: &str) -> Vec<String> {
    let parts = guard.parts();
    let part = parts.iter().find(|it| it.lan.contains(&lan));
    part.map_or_else(Vec::new, |it| {
        it.tunnels.iter().map(ToString::to_string).collect()
    })
}

#[test]
fn each_group_has_rules_and_a_route_of_its_own() {
    let lists = [listed("1", &["br-lan"]), listed("2", &["br-guest"])];
    let guard = of_lists("reach = [\"br-iot\"]", &lists, &Guard::default());
    let mut facts = router(&[1, 2]);
    let plan = set(&guard, &facts);
    for step in steps(&plan) {
        take(&mut facts, step);
    }
    for family in FAMILIES {
        assert_eq!(way_of(&facts, "br-lan", family).as_deref(), Some("mr-1"));
        assert_eq!(way_of(&facts, "br-guest", family).as_deref(), Some("mr-2"));
    }
    let rules = facts.rules[0].as_ref().unwrap();
    let of = |priority| {
        rules
            .iter()
            .filter(|it| it.priority == Some(priority))
            .count()
    };
    assert_eq!((of(INTO_TABLE), of(NOWHERE)), (2, 2));
    // Both networks for both devices, and from both networks.
    assert_eq!(of(rules::TO_LAN), 8);
    let again = set(&guard, &facts);
    assert_eq!(changes(&again), 0);
    // One tunnel goes down: the other LAN keeps its route.
    facts.links.retain(|it| it.name != "mr-1");
    facts.tables.retain(|it| it.dev != Some(11));
    assert!(set(&guard, &facts).set.is_empty());
    assert_eq!(way_of(&facts, "br-lan", Family::V4), None);
    let lifted = lift(&facts);
    assert_eq!(
        (lifted.delete.len(), lifted.remove.len()),
        // Rules by device, rules by network, and those for the router's own packets.
        (2 * 4 + 4 + 2 + 3 * 2 + 4 + 1 + 2, 2)
    );
}

#[test]
fn the_chain_has_a_rule_for_each_group_and_one_that_refuses() {
    let lists = [
        listed("1", &["br-lan"]),
        listed("2", &["br-guest", "br-lan"]),
    ];
    let file = "lan = [\"br-iot\", \"br-lan\"]\ntunnels = [\"mr-1\"]\ndns_block_tls = true";
    let guard = of_lists(file, &lists, &Guard::default());
    let mut table = table(&guard, &Default::default(), &[]);
    table.chains.truncate(1);
    let [text, _] = table.scripts("");
    let rules: Vec<&str> = text
        .lines()
        .skip(3)
        .map(|it| it.split(" comment ").next().unwrap())
        .map(|it| it.strip_prefix("add rule inet millrace guard ").unwrap())
        .collect();
    let all = "iifname { \"br-iot\", \"br-lan\", \"br-guest\" }";
    assert_eq!(
        rules,
        [
            // The file's settings other than tunnels apply to its own devices.
            "iifname { \"br-iot\", \"br-lan\" } meta l4proto { tcp, udp } th dport 853 reject with icmpx type admin-prohibited",
            &format!("{all} oifname {{ \"br-iot\", \"br-lan\", \"br-guest\" }} accept"),
            "iifname { \"br-iot\" } oifname \"mr-1\" accept",
            "iifname { \"br-lan\" } oifname \"mr-1\" accept",
            "iifname { \"br-guest\" } oifname \"mr-2\" accept",
            &format!("{all} counter reject with icmpx type admin-prohibited"),
        ]
    );
}

fn some_lists() -> impl Strategy<Value = Vec<Listed>> {
    let list = (0..4_u8, prop::collection::vec(0..LANS.len(), 0..4));
    prop::collection::vec(list, 0..4).prop_map(|lists| {
        let of = |(tunnel, lan): (u8, Vec<usize>)| {
            let lan: Vec<&str> = lan.into_iter().map(|it| LANS[it]).collect();
            listed(&tunnel.to_string(), &lan)
        };
        lists.into_iter().map(of).collect()
    })
}

proptest! {
    /// Lists change in any way while tunnels come and go. At each step, a LAN that stays guarded uses a tunnel of its
    /// old or new list, or none. The rules alone ensure that, without the packet filter. At the end it uses the first
    /// tunnel of its new list that is up.
    #[test]
    fn no_step_of_a_change_leads_a_lan_elsewhere(
        lists in prop::collection::vec((some_lists(), prop::collection::vec(0..4_u8, 0..4)), 1..5),
        has_file: bool,
    ) {
        let file = if has_file { "lan = [\"br-lan\"]\ntunnels = [\"mr-1\", \"mr-2\"]" } else { "" };
        let mut before = Guard::default();
        let mut now = facts();
        for (lists, up) in lists {
            let guard = of_lists(file, &lists, &before);
            // The kernel deletes the routes of devices that are gone.
            let links = router(&up);
            now.links = links.links;
            now.addresses = links.addresses;
            let indices: Vec<u32> = now.links.iter().map(|it| it.index).collect();
            now.tables.retain(|it| it.dev.is_some_and(|dev| indices.contains(&dev)));
            for step in steps(&set(&guard, &now)) {
                take(&mut now, step);
                for lan in LANS.iter().filter(|it| before.guarded().contains(it) && guard.guarded().contains(it)) {
                    for family in FAMILIES {
                        let Some(out) = way_of(&now, lan, family) else { continue };
                        let allowed = [tunnels_of(&before, lan), tunnels_of(&guard, lan)].concat();
                        prop_assert!(allowed.contains(&out), "{} by {}, not {:?}, after {:?}", lan, out, allowed, step);
                    }
                }
            }
            for lan in guard.guarded() {
                let first = tunnels_of(&guard, lan).into_iter().find(|it| now.links.iter().any(|link| link.name == *it));
                prop_assert_eq!(way_of(&now, lan, Family::V4), first);
            }
            let again = set(&guard, &now);
            prop_assert_eq!(changes(&again), 0);
            before = guard;
        }
    }
}
