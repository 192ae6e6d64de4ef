//! Ranges of `WireGuard` peers beside the host's own networks.

use super::*;

/// The want of a configuration file with these ranges.
fn ranges(ranges: &[&str], endpoint: &str) -> Want {
    let mut want = Want {
        mtu: Mtu::Exact(1400),
        endpoints: vec![ip(endpoint)],
        ..Want::default()
    };
    for range in ranges {
        let (network, prefix) = range.split_once('/').unwrap();
        let (network, prefix) = (ip(network), prefix.parse().unwrap());
        match (prefix, network.is_ipv4()) {
            (0, true) => want.default_v4 = Some(DefaultV4::Rules),
            (0, false) => want.default_v6 = Some(DefaultV6::Rules),
            _ => want.routes.push(WantedRoute {
                name: String::new(),
                to: Destination::Network(network),
                prefix,
                gateway: Gateway::Tunnel(None),
                metric: None,
                table: MAIN,
                optional: false,
                pushed: false,
            }),
        }
    }
    want
}

/// Packets to host routes that are longer than a range, or between two ranges in length, keep those routes.
#[test]
fn ranges_win_over_networks_of_the_host_of_the_same_length() {
    const LAN4: &str = "198.51.100.254";
    const LAN6: &str = "2001:db8:1::fe";
    for (wanted, endpoint) in [
        (&["0.0.0.0/0", "198.51.100.0/24"][..], LAN4),
        (&["0.0.0.0/1", "128.0.0.0/1", "198.51.100.0/24"], LAN4),
        (&["0.0.0.0/0", "128.0.0.0/1", "198.51.100.0/24"], LAN4),
        (&["0.0.0.0/0", "198.51.100.0/24", "198.51.100.254/32"], LAN4),
        (&["::/0", "2001:db8:1::/64"], LAN6),
        (&["::/1", "8000::/1", "2001:db8:1::/64"], LAN6),
    ] {
        in_host("ranges", |netlink, directory| {
            let wan = netlink.index_of("wan").unwrap();
            netlink
                .add_address(wan, ip("2001:db8:1::2"), 64, None)
                .unwrap();
            for (network, prefix, via) in [
                ("10.20.0.0", 16, "198.51.100.1"),
                ("198.51.100.128", 26, "198.51.100.1"),
                ("fd20::", 48, "2001:db8:1::1"),
                ("2001:db8:1:0:8000::", 65, "2001:db8:1::1"),
            ] {
                let route = Route::new(ip(network), prefix).via(ip(via));
                netlink.add_route(&route).unwrap();
            }
            let before = state(netlink);
            let want = ranges(wanted, endpoint);
            let facts = Facts::gather(&want, "wg0", netlink).unwrap();
            let plan = Plan::new(&want, &facts).unwrap();
            let applied = Applied::apply_in(directory, OPEN, &plan, "wg0", netlink).unwrap();
            let (inside, outside) = match endpoint {
                LAN4 => (["198.51.100.7", "8.8.8.8"], ["10.20.1.1", "198.51.100.129"]),
                _ => (
                    ["2001:db8:1::7", "2001:db8:9::1"],
                    ["fd20::1", "2001:db8:1:0:8000::9"],
                ),
            };
            for address in inside {
                let dev = dev_to(netlink, address, 0);
                assert_eq!(dev, "wg0", "{wanted:?}: {address}");
            }
            for address in outside {
                assert_eq!(dev_to(netlink, address, 0), "wan", "{wanted:?}: {address}");
            }
            let own = dev_to(netlink, endpoint, plan.fwmark);
            assert_eq!(own, "wan", "{wanted:?}");
            applied.undo().unwrap();
            assert_eq!(state(netlink), before, "{wanted:?}");
        });
    }
}
