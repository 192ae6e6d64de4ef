//! Plans applied and undone in network namespaces.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use lab::Host;
use netio::netlink::{Family, Netlink, Route, RouteKind, Rule, VethEnd};

use super::applied::{Open, open};
use super::effect::set_sysctl;
use super::recovery::recovered;
use super::*;
use crate::facts::Facts;
use crate::journal::Directory;
use crate::plan::Plan;
use crate::step::{MAIN, SRC_VALID_MARK, SavedRoute, Step, send_redirects};
use crate::system::System;
use crate::want::{
    DefaultV4, DefaultV6, Destination, Gateway, Mtu, Want, WantedAddress, WantedRoute,
};
use crate::ways::FIRST_METRIC;

mod keep;
mod memory;
mod properties;
mod ranges;
mod rivals;
mod shared;

const OPEN: Open = open;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Makes an uplink, and an interface that represents the tunnel.
fn make_lines(netlink: &mut Netlink) {
    for (name, other) in [("wg0", "wg0-far"), ("wan", "wan-far")] {
        netlink
            .create_veth(VethEnd::new(name), VethEnd::new(other))
            .unwrap();
        let far = netlink.index_of(other).unwrap();
        netlink.set_up(far).unwrap();
    }
    let wan = netlink.index_of("wan").unwrap();
    netlink.set_up(wan).unwrap();
    netlink
        .add_address(wan, ip("198.51.100.2"), 24, None)
        .unwrap();
    let default = Route::default_of(Family::V4).via(ip("198.51.100.1"));
    netlink.add_route(&default).unwrap();
}

/// A full tunnel of both families, with one more network.
fn full() -> Want {
    let address = |addr: &str, prefix| WantedAddress {
        addr: ip(addr),
        prefix,
        peer: None,
    };
    Want {
        addresses: vec![address("10.0.0.2", 24), address("fd00::2", 64)],
        mtu: Mtu::Path { overhead: 80 },
        routes: vec![WantedRoute {
            name: String::new(),
            to: Destination::Network(ip("192.168.77.0")),
            prefix: 24,
            gateway: Gateway::Tunnel(None),
            metric: None,
            table: MAIN,
            optional: false,
            pushed: false,
        }],
        default_v4: Some(DefaultV4::Rules),
        default_v6: Some(DefaultV6::Rules),
        endpoints: vec![ip("192.0.2.1")],
        ..Want::default()
    }
}

fn plan(netlink: &mut Netlink, adjust: impl FnOnce(&mut Facts)) -> Plan {
    let want = full();
    let mut facts = Facts::gather(&want, "wg0", netlink).unwrap();
    adjust(&mut facts);
    Plan::new(&want, &facts).unwrap()
}

fn lock(directory: &Path) -> Directory {
    Directory::lock(directory).unwrap()
}

fn state(netlink: &mut Netlink) -> impl PartialEq + std::fmt::Debug + use<> {
    let tunnels = ["wg0", "wg0-far"].map(|name| netlink.index_of(name).ok());
    let rules = [Family::V4, Family::V6].map(|family| netlink.rules(family).unwrap());
    let mut routes = netlink.routes(None).unwrap();
    // The kernel adds IPv6 routes to every interface after an unknown delay.
    routes.retain(|route| route.dst.is_ipv4() && !tunnels.contains(&route.dev));
    (rules, routes, netlink.sysctl(SRC_VALID_MARK))
}

fn dev_to(netlink: &mut Netlink, to: &str, mark: u32) -> String {
    let way = netlink.route_get(ip(to), mark).unwrap();
    netlink.name_of(way.dev).unwrap()
}

/// Runs `test` in its own network namespace, with a journal directory; prints the reason if that is impossible.
fn in_host(name: &str, test: impl FnOnce(&mut Netlink, &Path) + Send) {
    let Some(host) = lab::require(Host::new(name)) else {
        return;
    };
    let directory = std::env::temp_dir().join(format!("millrace-{name}-{}", std::process::id()));
    host.run(|| {
        let mut netlink = Netlink::open().unwrap();
        make_lines(&mut netlink);
        test(&mut netlink, &directory);
    })
    .unwrap();
    let left = crate::journal::journals(Some(&directory)).len();
    let _ = fs::remove_dir_all(&directory);
    assert_eq!(left, 0, "a journal is left");
}

#[test]
fn a_full_tunnel_is_made_and_taken_back() {
    in_host("apply", |netlink, directory| {
        let before = state(netlink);
        let plan = plan(netlink, |facts| assert!(facts.suppress_prefixlength));
        assert_eq!((plan.mtu, plan.fwmark), (1420, 51820));
        let applied = Applied::apply_in(directory, OPEN, &plan, "wg0", netlink).unwrap();
        assert_eq!(dev_to(netlink, "8.8.8.8", 0), "wg0");
        assert_eq!(dev_to(netlink, "2001:db8::1", 0), "wg0");
        assert_eq!(dev_to(netlink, "192.0.2.1", plan.fwmark), "wan");
        // Packets to the link's own network stay on the link.
        assert_eq!(dev_to(netlink, "198.51.100.7", 0), "wan");
        assert_eq!(netlink.link("wg0").unwrap().mtu, 1420);
        applied.undo().unwrap();
        assert_eq!(state(netlink), before);
    });
}

#[test]
fn a_kernel_without_suppression_gets_halves() {
    in_host("halves", |netlink, directory| {
        let before = state(netlink);
        let plan = plan(netlink, |facts| facts.suppress_prefixlength = false);
        let applied = Applied::apply_in(directory, OPEN, &plan, "wg0", netlink).unwrap();
        assert_eq!(dev_to(netlink, "8.8.8.8", 0), "wg0");
        assert_eq!(dev_to(netlink, "192.0.2.1", 0), "wan");
        applied.undo().unwrap();
        assert_eq!(state(netlink), before);
    });
}

#[test]
fn a_killed_daemons_changes_are_undone_by_the_next() {
    in_host("killed", |netlink, directory| {
        let before = state(netlink);
        let plan = plan(netlink, |_| {});
        let mut applied = Applied::apply_in(directory, OPEN, &plan, "wg0", netlink).unwrap();
        // The kernel closes the files of a dead process in this way.
        applied.journal = None;
        drop(applied);
        assert_ne!(state(netlink), before);
        recovered(&lock(directory), "wg0", netlink)
            .unwrap()
            .0
            .remove()
            .unwrap();
        assert_eq!(state(netlink), before);
    });
}

#[test]
fn a_plan_that_fails_half_way_leaves_nothing() {
    in_host("half", |netlink, directory| {
        let before = state(netlink);
        let mut plan = plan(netlink, |_| {});
        let address = |step: &&Step| matches!(step, Step::Address { .. });
        let again = plan.steps.iter().find(address).unwrap().clone();
        plan.steps.push(again);
        let error = Applied::apply_in(directory, OPEN, &plan, "wg0", netlink).unwrap_err();
        assert!(matches!(error, ApplyError::Netlink(error) if error.is_exists()));
        assert_eq!(state(netlink), before);
    });
}

#[test]
fn a_network_that_the_host_has_is_named_with_its_interface() {
    in_host("taken", |netlink, directory| {
        let before = state(netlink);
        let mut plan = plan(netlink, |_| {});
        plan.steps.push(Step::Route {
            dst: ip("198.51.100.0"),
            prefix: 24,
            via: None,
            metric: None,
            table: MAIN,
            optional: false,
            first: false,
        });
        let error = Applied::apply_in(directory, OPEN, &plan, "wg0", netlink).unwrap_err();
        let words = error.to_string();
        assert!(
            words.contains("198.51.100.0/24: File exists: interface wan of this host has"),
            "{words}"
        );
        assert_eq!(state(netlink), before);
    });
}

#[test]
fn two_full_tunnels_do_not_take_each_others_rules() {
    in_host("two", |netlink, directory| {
        let before = state(netlink);
        let first = plan(netlink, |_| {});
        let first = Applied::apply_in(directory, OPEN, &first, "wg0", netlink).unwrap();
        let between = state(netlink);
        let mut second = plan(netlink, |_| {});
        // The kernel refuses a second route to this network through another interface.
        let network = |step: &Step| matches!(step, Step::Route { table: MAIN, .. });
        second.steps.retain(|step| !network(step));
        assert_eq!(second.fwmark, 51821);
        let second = Applied::apply_in(directory, OPEN, &second, "wg0-far", netlink).unwrap();
        assert_eq!(dev_to(netlink, "8.8.8.8", 0), "wg0-far");
        second.undo().unwrap();
        assert_eq!(state(netlink), between);
        first.undo().unwrap();
        assert_eq!(state(netlink), before);
    });
}

fn steps(steps: impl Into<Vec<Step>>) -> Plan {
    Plan {
        steps: steps.into(),
        ..Plan::default()
    }
}

fn into_tunnel(dst: &str, prefix: u8) -> Step {
    Step::Route {
        dst: ip(dst),
        prefix,
        via: None,
        metric: None,
        table: MAIN,
        optional: true,
        first: true,
    }
}

/// The plan of a client with `redirect-gateway def1`; `via` is the present gateway.
fn def1(netlink: &mut Netlink, via: &str) -> Plan {
    let server = Step::OuterRoute {
        dst: ip("192.0.2.1"),
        prefix: 32,
        via: Some(ip(via)),
        dev: netlink.index_of("wan").unwrap(),
        metric: 1,
        towards: Some(ip("192.0.2.1")),
    };
    let halves = [into_tunnel("0.0.0.0", 1), into_tunnel("128.0.0.0", 1)];
    steps([[Step::Up, server].as_slice(), &halves].concat())
}

#[test]
fn routes_past_the_tunnel_follow_the_gateway() {
    in_host("follow", |netlink, directory| {
        let plan = def1(netlink, "198.51.100.1");
        let mut applied = Applied::apply_in(directory, OPEN, &plan, "wg0", netlink).unwrap();
        assert_eq!(dev_to(netlink, "8.8.8.8", 0), "wg0");
        assert_eq!(dev_to(netlink, "192.0.2.1", 0), "wan");
        assert!(!applied.follow(netlink).unwrap());

        // The lease is renewed, with another gateway.
        let default = |via: &str| Route::default_of(Family::V4).via(ip(via));
        netlink.delete_route(&default("198.51.100.1")).unwrap();
        assert!(
            !applied.follow(netlink).unwrap(),
            "a missing route is not a reason to follow"
        );
        netlink.add_route(&default("198.51.100.3")).unwrap();
        assert!(applied.follow(netlink).unwrap());
        let way = netlink.route_get(ip("192.0.2.1"), 0).unwrap();
        assert_eq!(way.via, Some(ip("198.51.100.3")));
        assert!(!applied.follow(netlink).unwrap());

        // The cable is pulled, and there is another uplink.
        let wan = netlink.index_of("wan").unwrap();
        let other = netlink.index_of("wan-far").unwrap();
        netlink
            .add_address(other, ip("203.0.113.2"), 24, None)
            .unwrap();
        netlink.set_down(wan).unwrap();
        assert_eq!(dev_to(netlink, "192.0.2.1", 0), "wg0");
        assert!(!applied.follow(netlink).unwrap());
        // A veth without its other end has no carrier; the kernel accepts a route all the same.
        netlink.set_up(wan).unwrap();
        let before = state(netlink);
        netlink.add_route(&default("203.0.113.1")).unwrap();
        assert!(applied.follow(netlink).unwrap());
        assert_eq!(dev_to(netlink, "192.0.2.1", 0), "wan-far");
        assert!(!applied.follow(netlink).unwrap());

        applied.undo().unwrap();
        netlink.delete_route(&default("203.0.113.1")).unwrap();
        assert_eq!(state(netlink), before);
    });
}

/// A plan moves the route to another gateway, and then the host's first gateway is back.
#[test]
fn a_route_past_the_tunnel_follows_back_to_the_gateway_of_an_earlier_plan() {
    in_host("back", |netlink, directory| {
        let gateways = ["198.51.100.1", "198.51.100.3"];
        let plans = gateways.map(|via| def1(netlink, via));
        let mut applied = Applied::apply_in(directory, OPEN, &plans[0], "wg0", netlink).unwrap();
        let defaults = gateways.map(|via| Route::default_of(Family::V4).via(ip(via)));
        netlink.delete_route(&defaults[0]).unwrap();
        netlink.add_route(&defaults[1]).unwrap();
        let errors = applied.change(&plans[0], &plans[1], netlink);
        assert!(errors.is_empty(), "{errors:?}");
        netlink.delete_route(&defaults[1]).unwrap();
        netlink.add_route(&defaults[0]).unwrap();
        assert!(applied.follow(netlink).unwrap());
        let way = netlink.route_get(ip("192.0.2.1"), 0).unwrap();
        assert_eq!(way.via, Some(ip(gateways[0])));
        applied.undo().unwrap();
    });
}

#[test]
fn a_default_route_that_was_displaced_comes_back_as_it_was() {
    in_host("displace", |netlink, directory| {
        let default = Route::default_of(Family::V4).via(ip("198.51.100.1"));
        netlink.delete_route(&default).unwrap();
        let dhcp = Route {
            protocol: Some(16),
            src: Some(ip("198.51.100.2")),
            mtu: Some(1400),
            ..default
        };
        netlink.add_route(&dhcp).unwrap();
        let before = state(netlink);
        let routes = netlink.routes(Some(MAIN)).unwrap();
        let found = routes.iter().find(|r| r.prefix == 0 && r.dst.is_ipv4());
        let saved = SavedRoute::new(found.unwrap()).unwrap();
        let plan = steps([Step::Up, Step::Displace(saved), into_tunnel("0.0.0.0", 0)]);

        let applied = Applied::apply_in(directory, OPEN, &plan, "wg0", netlink).unwrap();
        assert_eq!(dev_to(netlink, "8.8.8.8", 0), "wg0");
        applied.undo().unwrap();
        assert_eq!(state(netlink), before);

        let mut killed = Applied::apply_in(directory, OPEN, &plan, "wg0", netlink).unwrap();
        killed.journal = None;
        drop(killed);
        let wg0 = netlink.index_of("wg0").unwrap();
        netlink.set_down(wg0).unwrap();
        assert_eq!(lock(directory).abandoned(None), ["wg0"]);
        let (journal, _) = recovered(&lock(directory), "wg0", netlink).unwrap();
        assert_eq!(lock(directory).abandoned(None), [""; 0]);
        journal.remove().unwrap();
        assert_eq!(state(netlink), before);
    });
}

#[test]
fn settings_of_another_interface_with_the_name_are_left_alone() {
    in_host("renamed", |netlink, directory| {
        let keys = ["wg0", "all"].map(send_redirects);
        let values = |netlink: &mut Netlink| keys.clone().map(|it| netlink.sysctl(&it).unwrap());
        for key in &keys {
            set_sysctl(netlink, key, "1").unwrap();
        }
        let plan = steps(keys.clone().map(|key| Step::Sysctl {
            key,
            value: "0".to_owned(),
            before: "1".to_owned(),
        }));
        let mut killed = Applied::apply_in(directory, OPEN, &plan, "wg0", netlink).unwrap();
        killed.journal = None;
        drop(killed);
        assert_eq!(values(netlink), ["0", "0"]);
        // Another program's interface has the name now, and its own setting.
        let wg0 = netlink.index_of("wg0").unwrap();
        netlink.delete_link(wg0).unwrap();
        netlink
            .create_veth(VethEnd::new("wg0"), VethEnd::new("wg0-far"))
            .unwrap();
        set_sysctl(netlink, &keys[0], "0").unwrap();
        let (journal, any) = recovered(&lock(directory), "wg0", netlink).unwrap();
        assert!(any);
        journal.remove().unwrap();
        assert_eq!(values(netlink), ["0", "1"]);
    });
}

#[test]
fn a_displaced_default_route_comes_back_where_another_router_leads_to_its_gateway() {
    in_host("displace2", |netlink, directory| {
        let before = state(netlink);
        let mut want = full();
        want.default_v4 = Some(DefaultV4::Replace);
        want.routes = vec![WantedRoute {
            name: "route".to_owned(),
            to: Destination::DefaultGateway { v6: false },
            prefix: 32,
            gateway: Gateway::Router(ip("198.51.100.9")),
            metric: None,
            table: MAIN,
            optional: false,
            pushed: false,
        }];
        let facts = Facts::gather(&want, "wg0", netlink).unwrap();
        let plan = Plan::new(&want, &facts).unwrap();
        let applied = Applied::apply_in(directory, OPEN, &plan, "wg0", netlink).unwrap();
        assert_eq!(dev_to(netlink, "8.8.8.8", 0), "wg0");
        applied.undo().unwrap();
        assert_eq!(state(netlink), before);
    });
}

#[test]
fn two_tunnels_to_one_server_have_a_route_each() {
    in_host("each", |netlink, directory| {
        let before = state(netlink);
        let plan = def1(netlink, "198.51.100.1");
        let first = Applied::apply_in(directory, OPEN, &plan, "wg0", netlink).unwrap();
        let mut second = Applied::apply_in(directory, OPEN, &plan, "wg0-far", netlink).unwrap();
        let to_server = |netlink: &mut Netlink| {
            let routes = netlink.routes(Some(MAIN)).unwrap();
            let metrics = routes.iter().filter(|r| r.dst == ip("192.0.2.1"));
            metrics.map(|r| r.metric).collect::<Vec<_>>()
        };
        assert_eq!(to_server(netlink), [Some(1), Some(2)]);
        // Neither tunnel mistakes the other's routes for the host's own.
        let default = |via: &str| Route::default_of(Family::V4).via(ip(via));
        netlink.delete_route(&default("198.51.100.1")).unwrap();
        assert!(!second.follow(netlink).unwrap());
        netlink.add_route(&default("198.51.100.1")).unwrap();
        first.undo().unwrap();
        assert_eq!(to_server(netlink), [Some(2)]);
        assert_eq!(dev_to(netlink, "192.0.2.1", 0), "wan");
        second.undo().unwrap();
        assert_eq!(state(netlink), before);
    });
}

#[test]
fn addresses_and_routes_of_an_interface_that_stays_are_taken_back() {
    in_host("stays", |netlink, directory| {
        let address = |addr: &str, prefix, peer: Option<&str>| Step::Address {
            addr: ip(addr),
            prefix,
            peer: peer.map(ip),
        };
        let behind = Step::Route {
            dst: ip("10.9.0.0"),
            prefix: 16,
            via: Some(ip("10.8.0.5")),
            metric: Some(9),
            table: MAIN,
            optional: true,
            first: true,
        };
        let nowhere = Step::Route {
            dst: ip("10.10.0.0"),
            prefix: 16,
            via: Some(ip("192.0.2.200")),
            metric: None,
            table: MAIN,
            optional: true,
            first: true,
        };
        let plan = steps([
            address("10.8.0.6", 32, Some("10.8.0.5")),
            address("10.7.0.2", 24, None),
            Step::Up,
            behind.clone(),
        ]);
        let mut applied = Applied::apply_in(directory, OPEN, &plan, "wg0", netlink).unwrap();
        let way = netlink.route_get(ip("10.9.1.1"), 0).unwrap();
        assert_eq!(way.via, Some(ip("10.8.0.5")));
        // Steps that are already done or that the kernel refuses are left out.
        let more = steps([behind, nowhere, into_tunnel("10.7.0.0", 24)]);
        applied.add(&more, netlink).unwrap();
        applied.undo().unwrap();
        let wg0 = netlink.index_of("wg0").unwrap();
        let addresses = netlink.addresses(Some(wg0)).unwrap();
        assert!(addresses.iter().all(|address| address.ip.is_ipv6()));
        let routes = netlink.routes(Some(MAIN)).unwrap();
        let left = |route: &&Route| route.dev == Some(wg0) && route.dst.is_ipv4();
        assert_eq!(routes.iter().filter(left).count(), 0);
    });
}

#[test]
fn what_is_blocked_is_unreachable_until_it_is_undone() {
    in_host("block", |netlink, directory| {
        let block = Step::Unreachable {
            dst: ip("2000::"),
            prefix: 4,
            metric: 1,
        };
        let blocked = |netlink: &mut Netlink| {
            let routes = netlink.routes(Some(MAIN)).unwrap();
            let hits = routes.iter().filter(|r| r.kind == RouteKind::Unreachable);
            hits.map(|route| (route.dst, route.metric))
                .collect::<Vec<_>>()
        };
        let first =
            Applied::apply_in(directory, OPEN, &steps([block.clone()]), "wg0", netlink).unwrap();
        let second =
            Applied::apply_in(directory, OPEN, &steps([block]), "wg0-far", netlink).unwrap();
        let (one, two) = ((ip("2000::"), Some(1)), (ip("2000::"), Some(2)));
        assert_eq!(blocked(netlink), [one, two]);
        first.undo().unwrap();
        assert_eq!(blocked(netlink), [two]);
        second.undo().unwrap();
        assert_eq!(blocked(netlink), []);
    });
}

#[test]
fn the_next_server_is_kept_outside_too() {
    in_host("next", |netlink, directory| {
        let before = state(netlink);
        let plan = def1(netlink, "198.51.100.1");
        let mut applied = Applied::apply_in(directory, OPEN, &plan, "wg0", netlink).unwrap();
        assert_eq!(dev_to(netlink, "192.0.2.2", 0), "wg0");
        assert!(applied.keep_outside(ip("192.0.2.2"), netlink).unwrap());
        assert_eq!(dev_to(netlink, "192.0.2.2", 0), "wan");
        assert!(applied.keep_outside(ip("192.0.2.2"), netlink).unwrap());
        // The tunnel covers none of these addresses.
        assert!(!applied.keep_outside(ip("2001:db8::1"), netlink).unwrap());
        assert!(!applied.keep_outside(ip("198.51.100.2"), netlink).unwrap());
        applied.undo().unwrap();
        assert_eq!(state(netlink), before);
    });
}
