//! A router for tests.

use std::net::IpAddr;

use config::guard::{Guard, Pattern};
use netio::netlink::{Address, Counters, Family, Link, Route, Rule, TABLE_MAIN};

use crate::guard::facts::Facts;

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Settings that guard two devices, which may reach a third.
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
        mac: Vec::new(),
        master: None,
        group: 0,
        alias: String::new(),
        counters: Counters::default(),
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

/// Gives a tunnel an address.
pub(crate) fn tunnel(facts: &mut Facts, index: u32, own: &str) {
    let bits = Family::of(ip(own)).bits();
    facts.addresses.push(address(index, own, bits));
}

/// The LAN, the guests and the WAN, with the routes that the kernel makes of their addresses.
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
            route("0.0.0.0", 0, 3, TABLE_MAIN),
        ],
        tables: Vec::new(),
        rules: [Family::V4, Family::V6]
            .map(|family| Some(vec![rule(family, 0, 255), rule(family, 32766, TABLE_MAIN)])),
        ..Facts::default()
    }
}
