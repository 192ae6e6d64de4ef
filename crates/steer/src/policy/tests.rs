use super::*;
use crate::facts::FAMILIES;
use crate::fixture::made;
use crate::fixture::{TEXT, facts, ip, link, names, policy, resolved, tunnel};
use proptest::prelude::*;

/// The plan where the table is whole.
fn plan_of(facts: &Facts) -> Plan {
    let mut facts = facts.clone();
    facts.chains.found = made(&table::wanted(&resolved(), &facts));
    plan(&resolved(), &facts, String::new)
}

/// The facts after a plan was applied.
fn done(facts: &Facts, plan: &Plan) -> Facts {
    let mut facts = facts.clone();
    for (family, have) in FAMILIES.into_iter().zip(&mut facts.rules) {
        let have = have.as_mut().unwrap();
        have.extend(plan.add.iter().filter(|it| it.family == family));
        have.retain(|rule| !plan.delete.contains(rule));
    }
    for route in plan.set.iter().chain(&plan.remove) {
        let tables = &mut facts.tables;
        tables.retain(|it| it.table != route.table || it.dst != route.dst);
    }
    facts.tables.extend(&plan.set);
    facts
}

/// A router whose tunnel for the television is up.
fn with_tunnel() -> Facts {
    let mut facts = facts();
    facts.links.push(link(7, "mr-us", true));
    tunnel(&mut facts, 7, "10.8.0.2");
    facts
}

#[test]
fn everything_is_set_once_and_taken_away_again() {
    let before = with_tunnel();
    let plan = plan(&resolved(), &before, String::new);
    let marked = plan.add.iter().filter(|it| it.fwmark.is_some());
    assert!(plan.scripts[0].closes && marked.count() == 8 && plan.set.len() == 1);
    let after = done(&before, &plan);
    assert!(plan_of(&after).is_empty());
    let lifted = done(&after, &removal(&after));
    assert_eq!((lifted.rules, lifted.tables), (before.rules, before.tables));
}

/// A chain is deleted although no other chain depends on its setting.
#[test]
fn masquerading_ends_with_its_setting() {
    let facts = with_tunnel();
    let mut facts = done(&facts, &plan_of(&facts));
    let before = crate::fixture::of(&format!("masquerade = true\n{TEXT}"));
    facts.chains.found = made(&table::wanted(&before, &facts));
    let listing = || "table inet millrace-policy {\n chain source {\n }\n}".to_owned();
    let plan = plan(&resolved(), &facts, listing);
    assert_eq!(plan.scripts.len(), 1);
    let [text, plain] = &plan.scripts[0].texts;
    let gone = format!("delete chain inet {TABLE} source\n");
    assert!(text.contains(&gone) && plain.contains(&gone), "{text}");
    assert!(plan_of(&facts).is_empty());
}

#[test]
fn a_tunnel_that_goes_takes_its_route_along() {
    let facts = with_tunnel();
    let mut facts = done(&facts, &plan_of(&facts));
    facts.links.last_mut().unwrap().up = false;
    let plan = plan_of(&facts);
    assert_eq!((plan.set.len(), plan.remove.len()), (0, 1));
    // Another device now has the same name.
    facts.links.last_mut().unwrap().up = true;
    facts.links.last_mut().unwrap().index = 9;
    facts.addresses.last_mut().unwrap().index = 9;
    let plan = plan_of(&facts);
    assert_eq!((plan.set[0].dev, plan.remove.len()), (Some(9), 0));
}

proptest! {
    /// The next plan restores any part that another program has taken away.
    #[test]
    fn what_was_taken_away_comes_back(kept in prop::collection::vec(any::<bool>(), 8), route: bool) {
        let facts = with_tunnel();
        let mut facts = done(&facts, &plan_of(&facts));
        let mut kept = kept.into_iter();
        for have in facts.rules.iter_mut().flatten() {
            have.retain(|it| !rules::is_ours(it) || kept.next().unwrap_or(true));
        }
        if route {
            facts.tables.clear();
        }
        let facts = done(&facts, &plan_of(&facts));
        prop_assert!(plan_of(&facts).is_empty());
    }
}

#[test]
fn settings_and_names_survive_being_written() {
    let it = Asked {
        policy: policy(),
        text: TEXT.to_owned(),
        names: names(),
        near: vec![(Mac([2, 0, 0x5e, 0x10, 0, 2]), ip("fd00::7"))],
        addresses: Addresses::of_lines(["a.example 203.0.113.7=9 fd00::9=12"].into_iter(), |it| it),
        lacks: false,
        filled: Some(17),
        known: Known {
            ports: vec!["lan1".to_owned()],
            ..Known::default()
        },
        kept: Some("/etc/millrace/policy.toml.leases".into()),
    };
    assert_eq!(Asked::of(&it.in_text()), Some(it));
    assert_eq!(Asked::of("lan = ["), None);
}

#[test]
fn only_entries_that_changed_are_meant() {
    let before = resolved().entries;
    assert!(changed(&before, &before).is_empty());
    let mut now = before.clone();
    now[1].domains.pop();
    let who = |now: &[Entry]| {
        let all = changed(&before, now).into_iter();
        all.map(|it| it.who.clone()).collect::<Vec<_>>()
    };
    let last = |it: &Option<Senders>| it.as_ref().unwrap().macs[0].0[5];
    assert!(who(&now).iter().all(|it| last(it) == 3));
    // The third entry applies to the whole LAN.
    now.swap(1, 2);
    assert!(who(&now).contains(&None));
    now.clear();
    assert!(who(&now).contains(&None));
}

#[test]
fn connections_of_changed_devices_that_leave_are_meant() {
    let (mut resolved, facts) = (resolved(), facts());
    let mac = names()["phone"][0];
    let who = resolved.entries[3].who.as_mut().unwrap();
    who.macs = vec![mac];
    let near = [(mac, ip("2001:db8:1:1::77"))];
    let leaving = |entries: &[&Entry]| {
        let senders = senders(&resolved, entries, &facts, &near);
        Leaving::new(senders, Vec::new(), &facts)
    };
    let meant = leaving(&[&resolved.entries[3]]);
    for (src, dst, wanted) in [
        ("2001:db8:1:1::77", "2001:db8:f::9", true),
        ("192.168.2.9", "203.0.113.9", true),
        ("192.168.1.9", "203.0.113.9", false),
        ("192.168.2.9", "192.168.2.1", false),
        ("192.168.2.1", "203.0.113.9", false),
    ] {
        assert_eq!(meant.leaves(ip(src), ip(dst)), wanted, "{src} to {dst}");
    }
    let all = leaving(&[&resolved.entries[3], &resolved.entries[2]]);
    assert!(all.leaves(ip("192.168.1.9"), ip("203.0.113.9")));
}
