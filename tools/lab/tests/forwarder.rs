//! The lab's forwarder carries all traffic that a tunnel must carry.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::io;
use std::net::IpAddr;
use std::thread::JoinHandle;

use lab::forwarder::{ForwarderOptions, forward};
use lab::load::{HttpLoad, HttpServer, Iperf, IperfServer};
use lab::{Host, Link, LinkOptions, Offloads, may_enter, tools};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Starts one end and waits for its TUN device.
fn start(host: &Host, number: u8, remote: IpAddr, offloads: bool) -> JoinHandle<io::Result<()>> {
    let options = ForwarderOptions {
        interface: "fwd0".to_owned(),
        port: 7000,
        remote: (remote, 7000).into(),
        offloads,
    };
    let run = move || forward(&options).map_err(io::Error::other);
    let thread = host.spawn("forwarder", run).unwrap();
    while !host.has_interface("fwd0").unwrap() {
        assert!(!thread.is_finished(), "{:?}", thread.join());
        std::thread::yield_now();
    }
    host.set_mtu("fwd0", 1420).unwrap();
    host.set_up("fwd0", true).unwrap();
    let four = IpAddr::from([10, 0, 0, number]);
    host.add_address("fwd0", four, 24).unwrap();
    let six = IpAddr::from([0xfd0f, 0, 0, 0, 0, 0, 0, u16::from(number)]);
    host.add_address("fwd0", six, 64).unwrap();
    thread
}

#[test]
fn files_and_pings_arrive_with_and_without_offloads() {
    if !may_enter() {
        return;
    }
    if lab::require(tools::tun()).is_none() {
        return;
    }
    for (offloads, link) in [
        (true, Offloads::On),
        (true, Offloads::NoSegmentation),
        (false, Offloads::On),
    ] {
        let (a, b) = (Host::new("a").unwrap(), Host::new("b").unwrap());
        let link = LinkOptions::numbered(1).offloads(link);
        Link::new(&a, "eth0", &b, "eth0", &link).unwrap();
        let threads = [
            start(&a, 1, link.b4(), offloads),
            start(&b, 2, link.a4(), offloads),
        ];
        for target in ["10.0.0.2", "fd0f::2"].map(ip) {
            common::answered(&a, target, 10);
            let server = HttpServer::start(&b, (target, 80).into()).unwrap();
            let report = HttpLoad::new((target, 80), 2_000_000, 16).run(&a).unwrap();
            assert_eq!((report.requests, report.errors), (16, 0), "{report:?}");
            drop(server);
        }
        if let Ok(server) = IperfServer::start(&b, ip("10.0.0.2"), 5201) {
            let one = Iperf {
                seconds: 1,
                ..Iperf::default()
            };
            let report = one.run(&a, &server).unwrap();
            println!(
                "{offloads} {:?} {:.0} Mbit/s",
                link.offloads,
                report.bits_per_second() / 1e6
            );
        }
        for (host, thread) in [&a, &b].into_iter().zip(threads) {
            let mut netlink = host.netlink().unwrap();
            let index = netlink.index_of("fwd0").unwrap();
            netlink.delete_link(index).unwrap();
            assert!(thread.join().unwrap().is_err());
        }
    }
}
