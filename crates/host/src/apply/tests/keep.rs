//! Changes that another program makes while a tunnel is up.

use super::*;
use crate::step::{FORWARD_V4, send_redirects};
use crate::want::Forwarding;

const GATEWAY: &str = "198.51.100.1";

fn default_route() -> Route {
    Route::default_of(Family::V4).via(ip(GATEWAY))
}

/// A tunnel whose default route replaced the host's, as `redirect-gateway` without `def1` does.
fn replaced(netlink: &mut Netlink) -> Plan {
    let mut want = full();
    want.routes.clear();
    (want.default_v4, want.default_v6) = (Some(DefaultV4::Replace), None);
    let facts = Facts::gather(&want, "wg0", netlink).unwrap();
    Plan::new(&want, &facts).unwrap()
}

/// Replaces the route into the tunnel by the host's, as `ip route replace default via GATEWAY` does.
fn renew(netlink: &mut Netlink) {
    let wg0 = netlink.index_of("wg0").unwrap();
    let ours = Route::default_of(Family::V4).dev(wg0);
    netlink.delete_route(&ours).unwrap();
    match netlink.add_route(&default_route()) {
        Err(error) if error.is_exists() => {}
        other => other.unwrap(),
    }
}

#[test]
fn a_default_route_that_a_renewed_lease_replaces_is_put_back() {
    in_host("renewed", |netlink, directory| {
        let before = state(netlink);
        let plan = replaced(netlink);
        let mut applied = Applied::apply_in(directory, OPEN, &plan, "wg0", netlink).unwrap();
        renew(netlink);
        assert_eq!(dev_to(netlink, "8.8.8.8", 0), "wan");
        applied.follow(netlink).unwrap();
        assert_eq!(dev_to(netlink, "8.8.8.8", 0), "wg0");

        // udhcpc's script adds the route like this, with `route add`.
        netlink.delete_route(&default_route()).unwrap();
        netlink.prepend_route(&default_route()).unwrap();
        assert_eq!(dev_to(netlink, "8.8.8.8", 0), "wan");
        applied.follow(netlink).unwrap();
        assert_eq!(dev_to(netlink, "8.8.8.8", 0), "wg0");
        assert_eq!(applied.refused().count(), 0);

        // Against a daemon that never stops restoring its route, this program yields, and the user is warned.
        for _ in 0..3 {
            renew(netlink);
            applied.follow(netlink).unwrap();
            if dev_to(netlink, "8.8.8.8", 0) == "wan" {
                break;
            }
        }
        assert_eq!(dev_to(netlink, "8.8.8.8", 0), "wan");
        let told: Vec<&str> = applied.refused().collect();
        assert!(
            told[0].contains("keeps removing the route 0.0.0.0/0"),
            "{told:?}"
        );
        applied.undo().unwrap();
        assert_eq!(state(netlink), before);
    });
}

#[test]
fn an_interface_that_was_down_gets_back_what_the_kernel_took() {
    in_host("down-up", |netlink, directory| {
        let before = state(netlink);
        let plan = plan(netlink, |_| {});
        let mut applied = Applied::apply_in(directory, OPEN, &plan, "wg0", netlink).unwrap();
        let wg0 = netlink.index_of("wg0").unwrap();
        netlink.set_down(wg0).unwrap();
        applied.follow(netlink).unwrap();
        assert_eq!(dev_to(netlink, "8.8.8.8", 0), "wan");
        let told: Vec<&str> = applied.refused().collect();
        assert!(
            told.iter()
                .any(|it| it.contains("removed the route 0.0.0.0/0")),
            "{told:?}"
        );

        netlink.set_up(wg0).unwrap();
        applied.follow(netlink).unwrap();
        for address in ["8.8.8.8", "192.168.77.1", "2001:db8::1", "fd00::9"] {
            assert_eq!(dev_to(netlink, address, 0), "wg0", "{address}");
        }
        assert_eq!(applied.refused().count(), 0);
        applied.undo().unwrap();
        assert_eq!(state(netlink), before);
    });
}

#[test]
fn rules_that_another_program_removes_are_put_back() {
    in_host("unruled", |netlink, directory| {
        let before = state(netlink);
        let plan = plan(netlink, |_| {});
        let mut applied = Applied::apply_in(directory, OPEN, &plan, "wg0", netlink).unwrap();
        let rules = plan.steps.iter().filter_map(Step::rule);
        for rule in rules {
            netlink.delete_rule(&rule).unwrap();
        }
        assert_eq!(dev_to(netlink, "8.8.8.8", 0), "wan");
        applied.follow(netlink).unwrap();
        assert_eq!(dev_to(netlink, "8.8.8.8", 0), "wg0");
        assert_eq!(dev_to(netlink, "192.0.2.1", plan.fwmark), "wan");
        applied.undo().unwrap();
        assert_eq!(state(netlink), before);
    });
}

/// Two tunnels that carry all packets do not replace each other's routes endlessly.
#[test]
fn a_later_tunnel_stays_in_front() {
    in_host("front", |netlink, directory| {
        let plan = def1(netlink, GATEWAY);
        let mut first = Applied::apply_in(directory, OPEN, &plan, "wg0", netlink).unwrap();
        let second = Applied::apply_in(directory, OPEN, &plan, "wg0-far", netlink).unwrap();
        first.follow(netlink).unwrap();
        assert_eq!(dev_to(netlink, "8.8.8.8", 0), "wg0-far");
        assert_eq!(first.refused().count(), 0);
        second.undo().unwrap();
        assert_eq!(dev_to(netlink, "8.8.8.8", 0), "wg0");
    });
}

#[test]
fn a_route_past_the_tunnel_by_a_router_of_the_lan_is_put_back() {
    in_host("router", |netlink, directory| {
        let mut want = full();
        (want.default_v4, want.default_v6) = (Some(DefaultV4::Halves), None);
        want.routes[0].gateway = Gateway::Router(ip("198.51.100.254"));
        let facts = Facts::gather(&want, "wg0", netlink).unwrap();
        let plan = Plan::new(&want, &facts).unwrap();
        let mut applied = Applied::apply_in(directory, OPEN, &plan, "wg0", netlink).unwrap();
        assert_eq!(dev_to(netlink, "192.168.77.1", 0), "wan");
        // A link that goes down and comes up again leaves the routes in this state.
        let route = Route::new(ip("192.168.77.0"), 24).via(ip("198.51.100.254"));
        netlink.delete_route(&route).unwrap();
        assert_eq!(dev_to(netlink, "192.168.77.1", 0), "wg0");
        applied.follow(netlink).unwrap();
        assert_eq!(dev_to(netlink, "192.168.77.1", 0), "wan");
        assert_eq!(applied.refused().count(), 0);
    });
}

#[test]
fn what_another_program_flushes_of_a_server_is_put_back() {
    // A host that forwarded before continues to.
    for before in ["0", "1"] {
        flushed(before);
    }
}

fn flushed(before: &str) {
    in_host("flushed", |netlink, directory| {
        let redirects = ["all", "wg0"].map(send_redirects);
        let sends =
            |netlink: &mut Netlink| redirects.clone().map(|it| netlink.sysctl(&it).unwrap());
        for key in &redirects {
            set_sysctl(netlink, key, before).unwrap();
        }
        set_sysctl(netlink, FORWARD_V4, before).unwrap();
        let want = Want {
            addresses: full().addresses,
            mtu: Mtu::Exact(1400),
            forwarding: Some(Forwarding {
                masquerade: true,
                except: Vec::new(),
            }),
            ..Want::default()
        };
        let facts = Facts::gather(&want, "wg0", netlink).unwrap();
        let plan = Plan::new(&want, &facts).unwrap();
        let mut applied = Applied::apply_in(directory, OPEN, &plan, "wg0", netlink).unwrap();
        let table = Step::table_of("wg0");
        let has_table = |netlink: &mut Netlink| System::has_table(netlink, &table).unwrap();
        // `nft flush ruleset` and `sysctl --system` do this.
        if has_table(netlink) {
            netlink.delete_table(&table).unwrap();
            applied.follow(netlink).unwrap();
            assert!(has_table(netlink));
        }
        set_sysctl(netlink, FORWARD_V4, "0").unwrap();
        applied.follow(netlink).unwrap();
        assert_eq!(netlink.sysctl(FORWARD_V4).as_deref(), Some("1"));
        assert_eq!(sends(netlink), ["0", "0"]);
        applied.undo().unwrap();
        assert!(!has_table(netlink));
        assert_eq!(sends(netlink), [before, before]);
        assert_eq!(netlink.sysctl(FORWARD_V4).as_deref(), Some(before));
    });
}

/// The networks that the main table makes unreachable.
fn unreachable(netlink: &mut Netlink) -> Vec<IpAddr> {
    let routes = netlink.routes(None).unwrap();
    let routes = routes.iter().filter(|it| it.kind == RouteKind::Unreachable);
    let mut found: Vec<IpAddr> = routes.map(|it| it.dst).collect();
    found.retain(|it| !it.is_unspecified());
    found.sort_unstable();
    found
}

/// Packets to the network of a client that left are not for the uplink, by the way that a reload takes, with WireGuard
/// and with OpenVPN.
#[test]
fn networks_that_were_behind_clients_become_unreachable() {
    let behind = |networks: &[&str]| {
        let route = |network: &&str| {
            let (to, prefix) = network.split_once('/').unwrap();
            WantedRoute {
                to: Destination::Network(ip(to)),
                prefix: prefix.parse().unwrap(),
                ..full().routes[0].clone()
            }
        };
        Want {
            routes: networks.iter().map(route).collect(),
            ..full()
        }
    };
    for exchanges in [false, true] {
        in_host("closed", |netlink, directory| {
            let facts = Facts::gather(&behind(&[]), "wg0", netlink).unwrap();
            let mut system = Netlink::open().unwrap();
            let mut planned = |networks: &[&str], before: &Plan| {
                let mut plan = Plan::new(&behind(networks), &facts).unwrap();
                plan.close_behind(before, "wg0", &mut system).unwrap();
                plan
            };
            let wan = netlink.index_of("wan").unwrap();
            let lead = |network: &str, bits| {
                let route = Route::new(ip(network), bits).dev(wan);
                Netlink::open().unwrap().add_route(&route).unwrap();
            };
            lead("10.0.0.0", 8);
            let mut plan = planned(&["192.168.7.0/24", "fd00:7::/64"], &Plan::default());
            let first = state(netlink);
            let mut applied = Applied::apply_in(directory, OPEN, &plan, "wg0", netlink).unwrap();
            for (networks, closed) in [
                (&["192.168.8.0/24"][..], &["192.168.7.0", "fd00:7::"][..]),
                // A network that is behind a client again, with more or less of it.
                (&["192.168.6.0/23"], &["192.168.8.0", "fd00:7::"]),
                (
                    &["192.168.7.0/25"],
                    &["192.168.6.0", "192.168.8.0", "fd00:7::"],
                ),
                // Part of the uplink's network, and of a network that another tunnel leads to.
                (
                    &[
                        "192.168.0.0/16",
                        "fd00:7::/64",
                        "198.51.100.128/25",
                        "10.7.0.0/16",
                    ],
                    &[],
                ),
                (&["fd00:7::/64", "203.0.113.0/24"], &["192.168.0.0"]),
                // Public addresses, from which clients may connect.
                (&["fd00:7::/64"], &["192.168.0.0"]),
            ] {
                let next = planned(networks, &plan);
                match exchanges {
                    true => applied.exchange(&plan, &next, netlink).unwrap(),
                    false => assert!(applied.change(&plan, &next, netlink).is_empty()),
                }
                plan = next;
                let closed: Vec<IpAddr> = closed.iter().map(|it| ip(it)).collect();
                assert_eq!(unreachable(netlink), closed, "{networks:?}");
                assert_eq!(applied.refused().count(), 0);
            }
            for to in ["198.51.100.200", "10.7.0.1"] {
                assert_eq!(dev_to(netlink, to, 0), "wan");
            }
            // The host gets a route of its own.
            lead("192.168.0.0", 15);
            match exchanges {
                true => applied.open_closed(netlink).unwrap(),
                false => {
                    let next = planned(&["fd00:7::/64"], &plan);
                    assert!(applied.change(&plan, &next, netlink).is_empty());
                }
            }
            assert_eq!(unreachable(netlink), Vec::<IpAddr>::new());
            assert_eq!(applied.closed().count(), 0);
            assert_eq!(dev_to(netlink, "192.168.0.1", 0), "wan");
            plan = planned(&[], &plan);
            assert!(
                applied
                    .change(&planned(&[], &Plan::default()), &plan, netlink)
                    .is_empty()
            );
            let route = Route::new(ip("192.168.0.0"), 15).dev(wan);
            netlink.delete_route(&route).unwrap();
            applied.undo().unwrap();
            assert_eq!(state(netlink), first);
        });
    }
}

/// A branch's network is masqueraded by the way that a reload takes, with WireGuard and with OpenVPN.
#[test]
fn networks_behind_peers_are_masqueraded() {
    let behind = |networks: &[&str]| {
        let route = |network: &&str| {
            let (to, prefix) = network.split_once('/').unwrap();
            WantedRoute {
                to: Destination::Network(ip(to)),
                prefix: prefix.parse().unwrap(),
                ..full().routes[0].clone()
            }
        };
        Want {
            routes: networks.iter().map(route).collect(),
            forwarding: Some(Forwarding {
                masquerade: true,
                except: vec![(ip("192.168.1.0"), 24)],
            }),
            ..full()
        }
    };
    let sources = |step: Option<Step>| match step {
        Some(Step::Masquerade { sources, .. }) => sources,
        _ => Vec::new(),
    };
    in_host("behind", |netlink, directory| {
        let one = behind(&["192.168.7.0/24", "10.0.0.9/32", "0.0.0.0/1"]);
        let two = behind(&["192.168.8.0/24", "fd00:7::/64", "192.168.7.0/24"]);
        let facts = Facts::gather(&one, "wg0", netlink).unwrap();
        let own = sources(Plan::masquerade(&behind(&[]), &facts));
        let with = |more: &[&str]| -> Vec<(IpAddr, u8)> {
            let more = more
                .iter()
                .map(|it| (ip(it), if it.contains(':') { 64 } else { 24 }));
            own.iter().copied().chain(more).collect()
        };
        assert_eq!(
            sources(Plan::masquerade(&one, &facts)),
            with(&["192.168.7.0"])
        );
        let all = ["192.168.7.0", "192.168.8.0", "fd00:7::"];
        assert_eq!(sources(Plan::masquerade(&two, &facts)), with(&all));
        let [one, two] = [one, two].map(|it| Plan::new(&it, &facts).unwrap());
        let mut applied = Applied::apply_in(directory, OPEN, &one, "wg0", netlink).unwrap();
        for (old, new) in [(&one, &two), (&two, &one)] {
            assert!(applied.change(old, new, netlink).is_empty());
            let there = System::has_table(netlink, &Step::table_of("wg0")).unwrap();
            assert_eq!(there, applied.refused().count() == 0);
        }
        applied.exchange(&one, &two, netlink).unwrap();
        let made = applied.done.iter().cloned().map(|it| sources(Some(it)));
        let made: Vec<_> = made.filter(|it| !it.is_empty()).collect();
        if applied.refused().count() == 0 {
            assert_eq!(made, [with(&all)]);
        }
        applied.undo().unwrap();
    });
}

#[test]
fn rules_that_a_change_took_back_do_not_come_again() {
    in_host("retired", |netlink, directory| {
        let (all, mut some) = (full(), full());
        (some.default_v4, some.default_v6) = (None, None);
        let facts = Facts::gather(&all, "wg0", netlink).unwrap();
        let [all, some] = [all, some].map(|it| Plan::new(&it, &facts).unwrap());
        let mut applied = Applied::apply_in(directory, OPEN, &some, "wg0", netlink).unwrap();
        let rules = netlink.rules(Family::V4).unwrap();
        for _ in 0..2 {
            assert!(applied.change(&some, &all, netlink).is_empty());
            assert_ne!(netlink.rules(Family::V4).unwrap(), rules);
            assert!(applied.change(&all, &some, netlink).is_empty());
            applied.follow(netlink).unwrap();
            assert_eq!(netlink.rules(Family::V4).unwrap(), rules);
        }
        applied.undo().unwrap();
        assert_eq!(netlink.rules(Family::V4).unwrap(), rules);
    });
}

/// The kernel removes all routes of an interface with its last address.
#[test]
fn another_address_takes_no_route_away() {
    in_host("renumbered", |netlink, directory| {
        let numbered = |last: u8| {
            let mut want = full();
            want.addresses[0].addr = ip(&format!("10.0.0.{last}"));
            want
        };
        let facts = Facts::gather(&full(), "wg0", netlink).unwrap();
        let plan = |last| Plan::new(&numbered(last), &facts).unwrap();
        let mut applied = Applied::apply_in(directory, OPEN, &plan(2), "wg0", netlink).unwrap();
        // No program restores this address.
        let wg0 = netlink.index_of("wg0").unwrap();
        let other = Route::new(ip("198.18.0.0"), 15).dev(wg0);
        netlink.add_route(&other).unwrap();
        for last in 3..10 {
            let errors = applied.change(&plan(last - 1), &plan(last), netlink);
            assert!(errors.is_empty(), "{errors:?}");
            for address in ["8.8.8.8", "198.18.0.1"] {
                assert_eq!(dev_to(netlink, address, 0), "wg0", "{last}: {address}");
            }
            assert_eq!(applied.refused().count(), 0);
        }
        let addresses = System::addresses(netlink, wg0).unwrap();
        let v4 = addresses.iter().filter(|it| it.ip.is_ipv4());
        assert!(v4.map(|it| it.ip).eq([ip("10.0.0.9")]));
        applied.undo().unwrap();
    });
}
