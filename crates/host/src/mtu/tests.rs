use super::*;
use crate::system::memory::Memory;
use crate::want::{ProbedPath, WantedAddress};
use netio::netlink::Route;
use std::net::IpAddr;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn want(addresses: &[&str]) -> Want {
    let address = |text: &&str| WantedAddress {
        addr: ip(text),
        prefix: 24,
        peer: None,
    };
    Want {
        mtu: Mtu::Path { overhead: 80 },
        endpoints: vec![ip("192.0.2.1")],
        addresses: addresses.iter().map(address).collect(),
        ..Want::default()
    }
}

/// A tunnel `tun0` (3) over `wan` (2), both up, and the follower of its MTU.
struct World {
    host: Memory,
    facts: Facts,
    want: Want,
    follower: MtuFollower,
}

impl World {
    fn new(want: Want) -> Self {
        let mut host = Memory::new();
        let facts = Facts::gather(&want, "tun0", &mut host).unwrap();
        let mut world = Self {
            host,
            facts,
            want,
            follower: MtuFollower::default(),
        };
        world.follow();
        world
    }

    /// Updates the MTU, as the tunnel does after a change. Returns the MTU and its reason.
    fn follow(&mut self) -> (u32, String) {
        let Self {
            host,
            facts,
            want,
            follower,
        } = self;
        facts.look_at_mtu(want, 0, host).unwrap();
        follower.follow(want, facts, host).unwrap();
        let (_, mtu) = host.device(3).unwrap();
        (mtu, follower.wanted().why(mtu))
    }

    fn says(&mut self, mtu: u32, reason: &str) {
        assert_eq!(self.follow(), (mtu, reason.to_owned()));
    }
}

#[test]
fn it_follows_the_device_and_the_route_down_and_up() {
    let mut world = World::new(want(&["10.0.0.1"]));
    world.says(1420, "wan 1500 less 80");
    world.host.set_mtu(2, 1492).unwrap();
    world.says(1412, "wan 1492 less 80");
    let narrow = Route {
        mtu: Some(1400),
        ..Route::new(ip("192.0.2.1"), 32).via(ip("198.51.100.1"))
    };
    world.host.add_route(&narrow).unwrap();
    world.says(1320, "path MTU to 192.0.2.1 through wan 1400 less 80");
    world.host.delete_route(&narrow).unwrap();
    world.host.set_mtu(2, 1500).unwrap();
    world.says(1420, "wan 1500 less 80");
}

#[test]
fn what_probes_show_narrows_it_until_they_show_otherwise() {
    let mut world = World::new(want(&["10.0.0.1"]));
    let path = |bytes| ProbedPath {
        to: ip("192.0.2.1"),
        bytes,
        overhead: 60,
    };
    world.want.probed = Some(path(1333));
    world.says(1333, "path to 192.0.2.1 carries 1393 less 60, probed");
    assert_eq!(world.follower.wanted().range(), Some((68, 1420)));
    world.host.set_mtu(2, 1300).unwrap();
    world.says(1220, "wan 1300 less 80");
    world.host.set_mtu(2, 1500).unwrap();
    world.want.probed = None;
    world.says(1420, "wan 1500 less 80");
    world.want.mtu = Mtu::Exact(1400);
    world.want.probed = Some(path(1333));
    world.says(1400, "as configured");
    assert_eq!(world.follower.wanted().range(), None);
}

#[test]
fn a_line_that_is_down_changes_nothing() {
    let mut world = World::new(want(&["10.0.0.1"]));
    world.host.set_mtu(2, 1492).unwrap();
    world.says(1412, "wan 1492 less 80");
    let mut routes = world.host.routes(None).unwrap();
    routes.retain(|route| route.prefix == 0);
    for route in &routes {
        world.host.delete_route(route).unwrap();
    }
    world.says(1412, "wan 1492 less 80");
    // Another uplink replaces the first.
    world.host.set_mtu(2, 1500).unwrap();
    for route in &routes {
        world.host.add_route(route).unwrap();
    }
    world.says(1420, "wan 1500 less 80");
}

#[test]
fn without_endpoints_it_is_the_default_routes_line() {
    let mut want = want(&["10.0.0.1"]);
    want.endpoints.clear();
    let mut world = World::new(want);
    world.host.set_mtu(2, 1492).unwrap();
    world.says(1412, "wan 1492 less 80");
}

#[test]
fn what_another_program_sets_stays_until_it_is_taken_back() {
    let mut world = World::new(want(&["10.0.0.1"]));
    world.host.set_mtu(3, 1300).unwrap();
    let by_hand = "set by another program; would be 1420: wan 1500 less 80";
    world.says(1300, by_hand);
    world.host.set_mtu(2, 1492).unwrap();
    let by_hand = "set by another program; would be 1412: wan 1492 less 80";
    world.says(1300, by_hand);
    // The old value is back: the follower sets the MTU again.
    world.host.set_mtu(3, 1420).unwrap();
    world.says(1412, "wan 1492 less 80");
}

#[test]
fn ipv6_keeps_1280_unless_the_owner_says_otherwise() {
    let mut world = World::new(want(&["10.0.0.1", "fd00::1"]));
    world.host.set_mtu(2, 1300).unwrap();
    world.says(1280, "the minimum for IPv6; wan 1300 less 80 would be 1220");
    world.want.mtu = Mtu::Exact(1200);
    world.says(1200, "as configured");
    world.want.mtu = Mtu::Path { overhead: 80 };
    world.says(1280, "the minimum for IPv6; wan 1300 less 80 would be 1220");
    let mut world = World::new(want(&["10.0.0.1"]));
    world.host.set_mtu(2, 1300).unwrap();
    world.says(1220, "wan 1300 less 80");
}

#[test]
fn what_the_owner_wrote_follows_nothing_but_the_owner() {
    let mut want = want(&["10.0.0.1"]);
    want.mtu = Mtu::Exact(1390);
    let mut world = World::new(want);
    world.host.set_mtu(2, 1300).unwrap();
    world.says(1390, "as configured");
    world.host.set_mtu(3, 1350).unwrap();
    assert_eq!(world.follow().0, 1350);
    world.want.mtu = Mtu::Exact(1380);
    world.says(1380, "as configured");
}
