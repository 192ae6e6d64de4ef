//! Hosts, links, routers and the emulator, against the real kernel.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use lab::load::{PingOptions, ping};
use lab::{Emulator, Host, Impairment, Link, LinkOptions, Offloads, Router, Side, may_enter};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn hosts_ping_each_other_over_a_link() {
    if !may_enter() {
        return;
    }
    let (a, b) = (Host::new("a").unwrap(), Host::new("b").unwrap());
    for offloads in [Offloads::On, Offloads::NoSegmentation, Offloads::Off] {
        let link = LinkOptions::numbered(1).offloads(offloads).mtu(1400);
        Link::new(&a, "eth0", &b, "eth0", &link).unwrap();
        for target in [link.b4(), link.b6()] {
            let report = common::answered(&a, target, 20);
            assert_eq!(report.times.len(), 20);
        }
        let whole = PingOptions {
            size: 1400 - 28 + 1,
            fragment: false,
            ..PingOptions::count(1)
        };
        assert_eq!(ping(&a, link.b4(), &whole).unwrap().received, 0);
        let mut netlink = a.netlink().unwrap();
        let index = netlink.index_of("eth0").unwrap();
        netlink.delete_link(index).unwrap();
        assert!(!b.has_interface("eth0").unwrap());
    }
}

#[test]
fn router_forwards_and_translates() {
    if !may_enter() {
        return;
    }
    let home = Host::new("home").unwrap();
    let router = Router::new("router").unwrap();
    let server = Host::new("server").unwrap();
    let inside = LinkOptions::numbered(1);
    let outside = LinkOptions::numbered(2);
    Link::new(&home, "eth0", &router, "lan", &inside).unwrap();
    Link::new(&router, "wan", &server, "eth0", &outside).unwrap();
    home.add_default_route(inside.b4()).unwrap();
    home.add_default_route(inside.b6()).unwrap();

    // Without a return route no ping is answered; with NAT it is.
    let once = PingOptions::count(1);
    assert_eq!(ping(&home, outside.b4(), &once).unwrap().received, 0);
    router.masquerade("wan").unwrap();
    for target in [outside.b4(), outside.b6()] {
        common::answered(&home, target, 5);
    }
}

#[test]
fn emulator_delays_loses_and_counts() {
    if !may_enter() {
        return;
    }
    let (a, b) = (Host::new("a").unwrap(), Host::new("b").unwrap());
    let link = LinkOptions::numbered(1);
    let delay = Duration::from_millis(5);
    let lines = [Impairment::delay(delay); 2];
    let line = Emulator::new(&a, "eth0", &b, "eth0", &link, lines, 1).unwrap();
    let report = common::answered(&a, link.b4(), 20);
    // Packets are never early; how late depends on how busy this machine is.
    assert!(report.times.min() >= 2 * delay, "{:?}", report.times.min());
    let counters = line.counters(Side::A);
    assert!(
        counters.received >= 20 && counters.lost == 0,
        "{counters:?}"
    );

    // One request and one answer in ten are lost, with the same random seed in every run.
    let lossy = Impairment {
        loss: 0.1,
        ..Impairment::NONE
    };
    line.set_both(lossy);
    let options = PingOptions {
        interval: Some(Duration::from_millis(2)),
        ..PingOptions::count(300)
    };
    let report = ping(&a, link.b4(), &options).unwrap();
    let missing = report.sent - report.received;
    // The last answers may come after ping stops waiting, so more can be missing than were lost.
    assert!(missing >= 30, "{missing} of 300 missing");
    // The relay updates its counters when it next sleeps. Neighbour discovery loses frames too.
    let lost = || line.counters(Side::A).lost + line.counters(Side::B).lost;
    let end = Instant::now() + Duration::from_secs(30);
    while lost() < 30 {
        assert!(Instant::now() < end, "{} lost", lost());
        std::thread::yield_now();
    }
    assert!((30..90).contains(&lost()), "{} lost", lost());

    line.set_both(Impairment::NONE);
    line.cut(true);
    let report = ping(&a, link.b4(), &PingOptions::count(1)).unwrap();
    assert_eq!(report.received, 0);
    line.cut(false);
    common::answered(&a, link.b6(), 3);
}

#[test]
fn emulated_frames_have_the_size_of_the_wire_and_whole_checksums() {
    if !may_enter() {
        return;
    }
    let (a, b) = (Host::new("a").unwrap(), Host::new("b").unwrap());
    let link = LinkOptions::numbered(1);
    let line = Emulator::new(&a, "eth0", &b, "eth0", &link, Default::default(), 1).unwrap();
    let server = lab::load::HttpServer::start(&b, (link.b4(), 80).into()).unwrap();
    let load = lab::load::HttpLoad {
        connections: 2,
        ..lab::load::HttpLoad::new((link.b4(), 80), 1_000_000, 6)
    };
    let report = load.run(&a).unwrap();
    assert_eq!((report.requests, report.errors), (6, 0), "{report:?}");
    assert_eq!(server.requests(), 6);
    let counters = line.counters(Side::B);
    assert_eq!(counters.too_long, 0, "{counters:?}");
    assert!(counters.received_bytes / counters.received <= 1514);
}

#[test]
fn private_hosts_do_not_see_each_others_sockets() {
    if !may_enter() {
        return;
    }
    let (a, b) = (Host::private("a").unwrap(), Host::private("b").unwrap());
    let touch = |host: &Host| {
        let path = "/var/run/wireguard/wg0.sock";
        host.run(|| {
            let before = std::fs::exists(path).unwrap();
            std::fs::write(path, "").unwrap();
            before
        })
        .unwrap()
    };
    assert!(!touch(&a));
    assert!(!touch(&b));
    assert!(touch(&a));
    // Programs in the namespace see the directory, and the machine itself does not.
    let seen = a.output("ls", ["/var/run/wireguard"]).unwrap();
    assert_eq!(seen.trim(), "wg0.sock");
    b.run(|| std::fs::write("/etc/resolv.conf", "# lab\n").unwrap())
        .unwrap();
    let outside = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    assert_ne!(outside, "# lab\n");
    assert_eq!(ip("127.0.0.1"), IpAddr::from([127, 0, 0, 1]));
}
