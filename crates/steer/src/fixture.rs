//! A router for tests.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use config::guard::{Guard, Pattern};
use config::policy::{Mac, Policy};
use netio::netlink::{Address, Chain, ChainRule, Family, Link, Route, Rule, TABLE_MAIN};

use crate::facts::Facts;
use crate::filter::{WantedChain, WantedTable, comment};
use crate::policy::{Names, Resolved};

pub(crate) const TEXT: &str = r#"
lan = ["br-lan", "br-guest"]
[[entry]]
name = "television"
who = ["television", "02:00:5e:10:00:01"]
through = "mr-us"
[[entry]]
name = "phone"
who = "phone"
to = ["example.org", "www.example.org", "203.0.113.0/24", "2001:db8:f::/48"]
through = "mr-nl"
down = "around"
[[entry]]
name = "bank"
to = "bank.example"
way = "around"
[[entry]]
name = "guests"
who = "br-guest"
to = "192.168.1.0/24"
way = "block"
"#;

pub(crate) fn policy() -> Policy {
    Policy::from_toml(TEXT, Path::new("policy.toml")).unwrap()
}

pub(crate) fn names() -> Names {
    let of = |name: &str, last| (name.to_owned(), vec![Mac([2, 0, 0x5e, 0x10, 0, last])]);
    [of("television", 2), of("phone", 3)].into_iter().collect()
}

/// The policy with resolved names.
pub(crate) fn resolved() -> Resolved {
    of(TEXT)
}

/// The policy of a text, with resolved names.
pub(crate) fn of(text: &str) -> Resolved {
    let policy = Policy::from_toml(text, Path::new("policy.toml")).unwrap();
    Resolved::new(&policy, &names(), Vec::new())
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Settings that guard two devices and let them reach a third.
pub(crate) fn guard() -> Guard {
    let mut guard = Guard::default();
    guard.lan = vec!["br-lan".to_owned(), "br-guest".to_owned()];
    guard.reach = vec!["br-iot".to_owned()];
    guard.tunnels = ["mr-*", "tun0"]
        .map(|it| Pattern::new(it).unwrap())
        .to_vec();
    guard
}

pub(crate) fn link(index: u32, name: &str, up: bool) -> Link {
    Link {
        index,
        name: name.to_owned(),
        mtu: 1500,
        up,
        running: up,
        ..Link::default()
    }
}

pub(crate) fn address(index: u32, text: &str, prefix: u8) -> Address {
    Address {
        index,
        ip: ip(text),
        prefix,
        tentative: false,
    }
}

pub(crate) fn route(to: &str, prefix: u8, dev: u32, table: u32) -> Route {
    Route::new(ip(to), prefix).dev(dev).table(table)
}

/// Adds an address to a tunnel.
pub(crate) fn tunnel(facts: &mut Facts, index: u32, own: &str) {
    let bits = Family::of(ip(own)).bits();
    facts.addresses.push(address(index, own, bits));
}

/// The LAN, the guests and the WAN, with the routes that the kernel adds for their addresses.
pub(crate) fn facts() -> Facts {
    let rule = |family, priority, table| Rule {
        priority: Some(priority),
        ..Rule::new(family, table)
    };
    Facts {
        links: vec![
            link(2, "br-lan", true),
            link(3, "wan", true),
            link(4, "br-guest", true),
        ],
        addresses: vec![
            address(2, "192.168.1.1", 24),
            address(2, "2001:db8:1:1::1", 64),
            address(2, "fe80::1", 64),
            address(3, "198.51.100.7", 24),
            address(4, "192.168.2.1", 24),
        ],
        main: vec![
            route("192.168.1.0", 24, 2, TABLE_MAIN),
            route("198.51.100.0", 24, 3, TABLE_MAIN),
            route("0.0.0.0", 0, 3, TABLE_MAIN).via(ip("198.51.100.1")),
        ],
        tables: Vec::new(),
        rules: [Family::V4, Family::V6]
            .map(|family| Some(vec![rule(family, 0, 255), rule(family, 32766, TABLE_MAIN)])),
        ..Facts::default()
    }
}

/// The chains of a table as the kernel would list them.
pub(crate) fn made(wanted: &WantedTable) -> BTreeMap<String, Chain> {
    let chain = |it: &WantedChain| {
        let count = it.rules[0].len();
        let rule = |place| ChainRule {
            comment: comment(&it.mark, place, count),
            packets: None,
        };
        let chain = Chain {
            hook: it.hook.map(|(_, hook, priority)| (hook, priority)),
            rules: (1..=count).map(rule).collect(),
        };
        (it.name.clone(), chain)
    };
    wanted.chains.iter().map(chain).collect()
}
