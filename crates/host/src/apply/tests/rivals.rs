//! Routes into the tunnel to networks that the host has routes to already.

use super::*;
use crate::want::EndpointRoutes;

/// A route of the host through its uplink.
fn own(network: &str, prefix: u8, metric: Option<u32>) -> Route {
    let via = match network.contains(':') {
        true => "2001:db8:1::1",
        false => "198.51.100.1",
    };
    Route {
        metric,
        ..Route::new(ip(network), prefix).via(ip(via))
    }
}

fn wanted(network: &str, prefix: u8, metric: Option<u32>) -> WantedRoute {
    WantedRoute {
        name: format!("route {network}/{prefix}"),
        to: Destination::Network(ip(network)),
        prefix,
        gateway: Gateway::Tunnel(None),
        metric,
        table: MAIN,
        optional: true,
        pushed: false,
    }
}

/// The host's routes, the wanted route, an address in it, whether the address uses the tunnel, and whether the user is
/// warned.
type Case = (
    &'static str,
    u8,
    Option<u32>,
    Option<u32>,
    &'static str,
    bool,
    bool,
);

#[test]
fn routes_win_over_those_of_the_host_or_are_told() {
    let cases: [Case; 14] = [
        ("0.0.0.0", 0, None, None, "8.8.8.8", true, false),
        ("0.0.0.0", 0, Some(100), None, "8.8.8.8", true, false),
        ("0.0.0.0", 0, None, Some(0), "8.8.8.8", true, false),
        ("0.0.0.0", 0, Some(100), Some(100), "8.8.8.8", true, false),
        ("0.0.0.0", 0, None, Some(50), "8.8.8.8", false, true),
        ("10.20.0.0", 16, None, None, "10.20.1.1", true, false),
        ("10.20.0.0", 16, Some(7), Some(7), "10.20.1.1", true, false),
        ("10.20.0.0", 16, Some(7), Some(8), "10.20.1.1", false, true),
        ("0.0.0.0", 1, None, None, "8.8.8.8", true, false),
        ("::", 0, Some(1024), None, "2001:db8:9::1", true, false),
        ("fd20::", 64, Some(1024), None, "fd20::1", true, false),
        ("fd20::", 64, Some(256), None, "fd20::1", true, false),
        ("fd20::", 64, Some(20), Some(20), "fd20::1", false, true),
        ("fd20::", 64, Some(1), None, "fd20::1", false, true),
    ];
    for case in cases {
        let (network, prefix, has, asked, address, inside, told) = case;
        in_host("rivals", |netlink, directory| {
            let wan = netlink.index_of("wan").unwrap();
            netlink
                .add_address(wan, ip("2001:db8:1::2"), 64, None)
                .unwrap();
            if (network, has) != ("0.0.0.0", None) || prefix != 0 {
                netlink.add_route(&own(network, prefix, has)).unwrap();
            }
            if (network, prefix) == ("0.0.0.0", 0) && has.is_some() {
                let default = Route::default_of(Family::V4).via(ip("198.51.100.1"));
                netlink
                    .delete_route(&Route {
                        metric: Some(0),
                        ..default
                    })
                    .unwrap();
            }
            let before = state(netlink);
            let want = Want {
                addresses: full().addresses,
                mtu: Mtu::Exact(1400),
                routes: vec![wanted(network, prefix, asked)],
                endpoint_routes: EndpointRoutes::Off,
                ..Want::default()
            };
            let facts = Facts::gather(&want, "wg0", netlink).unwrap();
            let plan = Plan::new(&want, &facts).unwrap();
            let applied = Applied::apply_in(directory, OPEN, &plan, "wg0", netlink).unwrap();
            let dev = dev_to(netlink, address, 0);
            assert_eq!(dev == "wg0", inside, "{case:?}: {dev}");
            assert_eq!(applied.refused().count() > 0, told, "{case:?}");
            applied.undo().unwrap();
            assert_eq!(state(netlink), before, "{case:?}");
        });
    }
}

/// A default route that is added later does not win over the tunnel's routes.
#[test]
fn a_default_route_that_comes_later_does_not_win() {
    in_host("later", |netlink, directory| {
        let want = Want {
            addresses: full().addresses,
            mtu: Mtu::Exact(1400),
            routes: vec![wanted("0.0.0.0", 0, None), wanted("::", 0, None)],
            endpoint_routes: EndpointRoutes::Off,
            ..Want::default()
        };
        let facts = Facts::gather(&want, "wg0", netlink).unwrap();
        let plan = Plan::new(&want, &facts).unwrap();
        let _applied = Applied::apply_in(directory, OPEN, &plan, "wg0", netlink).unwrap();
        let default = Route::default_of(Family::V4).via(ip("198.51.100.1"));
        netlink.delete_route(&default).unwrap();
        netlink.prepend_route(&default).unwrap();
        let wan = netlink.index_of("wan").unwrap();
        netlink
            .add_address(wan, ip("2001:db8:1::2"), 64, None)
            .unwrap();
        netlink.add_route(&own("::", 0, Some(1))).unwrap();
        for address in ["8.8.8.8", "192.0.2.1", "2001:db8:9::1"] {
            assert_eq!(dev_to(netlink, address, 0), "wg0", "{address}");
        }
    });
}

/// Reports other programs' routes and rules that lead packets to the Internet past a full tunnel. The tunnel may use
/// def1, or a table and rules.
#[test]
fn what_leads_the_world_past_the_tunnel_is_told() {
    /// A rule's priority, routes, and the warnings with def1 and with rules.
    type Rival = (
        Option<u32>,
        &'static [(&'static str, u8)],
        [&'static str; 2],
    );
    let rules = "routing rules of another program lead";
    let rivals: [Rival; 8] = [
        (Some(500), &[], [rules; 2]),
        (None, &[("192.0.0.0", 2)], ["route 192.0.0.0/2"; 2]),
        (None, &[("64.0.0.0", 2)], ["route 64.0.0.0/2"; 2]),
        // The kernel prefers def1's half to its equal.
        (None, &[("128.0.0.0", 1)], ["", "route 128.0.0.0/1"]),
        (None, &[("192.0.0.0", 4)], ["route 192.0.0.0/4"; 2]),
        // All but private networks, as WireGuard's files list them.
        (
            None,
            &[
                ("8.0.0.0", 7),
                ("40.0.0.0", 5),
                ("80.0.0.0", 5),
                ("96.0.0.0", 5),
                ("200.0.0.0", 5),
            ],
            ["the more specific route"; 2],
        ),
        // A single network of the host's own causes no warning.
        (None, &[("203.0.113.0", 24)], [""; 2]),
        (None, &[], [""; 2]),
    ];
    for (index, by_rules) in [false, true].into_iter().enumerate() {
        for (priority, networks, told) in rivals {
            in_host(&format!("past{index}"), |netlink, directory| {
                for &(network, prefix) in networks {
                    netlink.add_route(&own(network, prefix, None)).unwrap();
                }
                let mut plan = if by_rules {
                    let mut want = full();
                    want.endpoints = vec![ip("203.0.113.9")];
                    let facts = Facts::gather(&want, "wg0", netlink).unwrap();
                    Plan::new(&want, &facts).unwrap()
                } else {
                    def1(netlink, "198.51.100.1")
                };
                // The host has its own route to the address.
                plan.steps
                    .retain(|step| !matches!(step, Step::OuterRoute { .. }));
                let told = told[index];
                let mut applied =
                    Applied::apply_in(directory, OPEN, &plan, "wg0", netlink).unwrap();
                if let Some(priority) = priority {
                    // Each program puts its rules first: the later program has precedence.
                    let rule = Rule {
                        priority: Some(priority),
                        ..Rule::new(Family::V4, 99)
                    };
                    netlink.add_rule(&rule).unwrap();
                    let other = Route::default_of(Family::V4).via(ip("198.51.100.1"));
                    netlink.add_route(&other.table(99)).unwrap();
                    applied.keep(netlink).unwrap();
                }
                let all: Vec<&str> = applied.refused().collect();
                let case = (by_rules, priority, networks);
                assert_eq!(
                    all.len(),
                    usize::from(!told.is_empty()),
                    "{case:?}: {all:?}"
                );
                for it in all {
                    assert!(it.contains(told) && it.contains("by wan"), "{case:?}: {it}");
                }
            });
        }
    }
}

/// IPv6 has no metric better than 1: a tunnel whose routes must lead or block everything refuses to start beside such a
/// route.
#[test]
fn a_tunnel_of_all_ipv6_is_not_up_beside_a_route_that_wins() {
    for block_ipv6 in [false, true] {
        in_host("beside", |netlink, directory| {
            let wan = netlink.index_of("wan").unwrap();
            netlink
                .add_address(wan, ip("2001:db8:1::2"), 64, None)
                .unwrap();
            netlink.add_route(&own("2000::", 4, Some(1))).unwrap();
            let before = state(netlink);
            let want = Want {
                addresses: full().addresses,
                mtu: Mtu::Exact(1400),
                default_v6: Some(DefaultV6::Global),
                block_ipv6,
                endpoint_routes: EndpointRoutes::Off,
                ..Want::default()
            };
            let facts = Facts::gather(&want, "wg0", netlink).unwrap();
            let plan = Plan::new(&want, &facts).unwrap();
            let error = Applied::apply_in(directory, OPEN, &plan, "wg0", netlink).unwrap_err();
            assert!(matches!(error, ApplyError::Shadowed(_)), "{error}");
            assert_eq!(state(netlink), before);
        });
    }
}

/// Reports that IPv6 is not blocked because of a rule of another program.
#[test]
fn ipv6_that_leaves_although_it_is_blocked_is_told() {
    in_host("unblocked", |netlink, directory| {
        let wan = netlink.index_of("wan").unwrap();
        netlink
            .add_address(wan, ip("2001:db8:1::2"), 64, None)
            .unwrap();
        // The host's default route leads to the same device as the rule.
        netlink.add_route(&own("::", 0, None)).unwrap();
        netlink.add_route(&own("::", 0, None).table(99)).unwrap();
        let want = Want {
            addresses: full().addresses[..1].to_vec(),
            mtu: Mtu::Exact(1400),
            block_ipv6: true,
            endpoint_routes: EndpointRoutes::Off,
            ..Want::default()
        };
        let facts = Facts::gather(&want, "wg0", netlink).unwrap();
        let plan = Plan::new(&want, &facts).unwrap();
        let mut applied = Applied::apply_in(directory, OPEN, &plan, "wg0", netlink).unwrap();
        assert_eq!(applied.refused().collect::<Vec<_>>(), [""; 0]);
        let rule = Rule {
            priority: Some(500),
            ..Rule::new(Family::V6, 99)
        };
        netlink.add_rule(&rule).unwrap();
        applied.keep(netlink).unwrap();
        let told: Vec<&str> = applied.refused().collect();
        let words = "lead IPv6 packets by wan, which are not kept from leaving";
        assert!(told.len() == 1 && told[0].contains(words), "{told:?}");
    });
}

/// Ignores a table whose number the user chose: the user's own rules lead only some packets into the tunnel.
#[test]
fn a_table_that_no_rule_of_the_tunnel_looks_into_is_not_judged() {
    in_host("table", |netlink, directory| {
        let route = WantedRoute {
            table: 77,
            ..wanted("0.0.0.0", 0, None)
        };
        let want = Want {
            addresses: full().addresses,
            mtu: Mtu::Exact(1400),
            routes: vec![route],
            endpoint_routes: EndpointRoutes::Off,
            ..Want::default()
        };
        let facts = Facts::gather(&want, "wg0", netlink).unwrap();
        let plan = Plan::new(&want, &facts).unwrap();
        let applied = Applied::apply_in(directory, OPEN, &plan, "wg0", netlink).unwrap();
        assert_eq!(applied.refused().collect::<Vec<_>>(), [""; 0]);
    });
}
