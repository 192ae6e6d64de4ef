//! Checks that the host in memory accepts and refuses what the kernel does.

use super::*;
use crate::system::memory::Memory;

/// Adds routes one after the other, and returns which of them were accepted.
fn taken(system: &mut dyn System, wanted: &[(Route, &str)]) -> Vec<(String, bool)> {
    let add = |(route, name): &(Route, &str)| {
        let taken = system.add_route(route).is_ok();
        ((*name).to_owned(), taken)
    };
    wanted.iter().map(add).collect()
}

fn to(dst: &str) -> Route {
    Route::new(ip(dst), Family::of(ip(dst)).bits())
}

#[test]
fn a_gateway_is_looked_for_where_the_kernel_looks_for_it() {
    let wanted = |wan: u32, tunnel: u32| {
        [
            (to("192.0.2.1").via(ip("198.51.100.9")), "on the link"),
            (to("192.0.2.2").via(ip("192.0.2.1")), "behind a gateway"),
            (to("198.51.100.1").via(ip("198.51.100.9")), "gateway's own"),
            (to("192.0.2.3").via(ip("198.51.100.1")), "by the network"),
            (to("198.51.100.7").dev(tunnel), "into the tunnel"),
            (to("192.0.2.4").via(ip("198.51.100.7")), "in the tunnel"),
            (
                to("192.0.2.5").via(ip("198.51.100.7")).dev(wan),
                "on the link that is named",
            ),
            (
                to("192.0.2.6").via(ip("198.51.100.9")).dev(tunnel),
                "not in the tunnel",
            ),
            (to("2001:db8:2::1").via(ip("2001:db8:1::9")), "IPv6"),
            (
                to("2001:db8:1::1").via(ip("2001:db8:1::9")),
                "gateway's own, IPv6",
            ),
            (
                to("2001:db8:2::2").via(ip("2001:db8:1::1")),
                "by the network, IPv6",
            ),
            (to("2001:db8:1::7").dev(tunnel), "into the tunnel, IPv6"),
            (
                to("2001:db8:2::3").via(ip("2001:db8:1::7")),
                "in the tunnel, IPv6",
            ),
            (
                to("2001:db8:2::4").via(ip("2001:db8:1::7")).dev(wan),
                "on the link that is named, IPv6",
            ),
            (
                to("2001:db8:2::5").via(ip("2001:db8:1::1")).dev(wan),
                "by the network that is named, IPv6",
            ),
        ]
    };
    in_host("gateways", |netlink, _| {
        let wan = netlink.index_of("wan").unwrap();
        netlink
            .add_address(wan, ip("2001:db8:1::2"), 64, None)
            .unwrap();
        let tunnel = netlink.index_of("wg0").unwrap();
        netlink.set_up(tunnel).unwrap();
        let by_kernel = taken(netlink, &wanted(wan, tunnel));
        let mut memory = Memory::new();
        memory.set_up(3).unwrap();
        assert_eq!(by_kernel, taken(&mut memory, &wanted(2, 3)));
    });
}
