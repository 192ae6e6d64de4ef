//! A path that carries less than its ends know, and whose router says nothing of it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use acceptance::openvpn::{self, Ends, Pair, amount};
use acceptance::{
    B4, B6, Net, Setup, Tunnel, WG, ip, ready, settings, tcp_both_ways, until, until_some,
};
use lab::openvpn::KeyKind;
use lab::{Host, Link, LinkOptions, Router};
use nix::sys::socket::{getsockopt, sockopt::TcpMaxSeg};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

/// Bytes of an echo request that fits into the tunnel, but not, with the tunnel's headers around it,
/// into the path.
const LONG: &str = "1372";

/// A and B with a router between them. The second link carries 1400 bytes, and what the router has to
/// say of that is lost.
struct Path {
    a: Host,
    _router: Router,
    b: Host,
    /// The second link, at the end of which B is.
    far: LinkOptions,
}

impl Path {
    fn new() -> Self {
        let (a, b) = Net::hosts();
        let router = Router::of(Host::private("router").unwrap()).unwrap();
        let near = LinkOptions::numbered(1);
        let far = LinkOptions::numbered(2).mtu(1400);
        Link::new(&a, "eth0", &router, "near", &near).unwrap();
        Link::new(&router, "far", &b, "eth0", &far).unwrap();
        a.add_default_route(near.b4()).unwrap();
        b.add_default_route(far.a4()).unwrap();
        router
            .nft(
                "table ip silent {\n\
                   chain output {\n\
                     type filter hook output priority 0;\n\
                     ip protocol icmp drop\n\
                   }\n\
                 }\n",
            )
            .unwrap();
        Self {
            a,
            _router: router,
            b,
            far,
        }
    }
}

/// Sends long pings, `at_once` of them before the first answer, and returns how many of 20 are
/// answered.
fn answered(from: &Host, to: &str, at_once: &str) -> usize {
    let words = [
        "-n", "-q", "-c", "20", "-i", "0.01", "-W", "1", "-l", at_once, "-s", LONG, to,
    ];
    let exit = from.command("ping").args(words).exit().unwrap();
    let (before, _) = exit.stdout.split_once(" received").unwrap();
    before.rsplit(' ').next().unwrap().parse().unwrap()
}

/// One packet by itself and a train of them fare alike, whatever is asked for.
fn fares(from: &Host, to: &str, all: bool) {
    for at_once in ["1", "20"] {
        match all {
            // Once anything is answered, ping waits for the last answer no longer than twice the longest round trip: on a
            // busy machine one may come too late.
            true => until("20 answers", || answered(from, to, at_once) == 20),
            false => assert_eq!(answered(from, to, at_once), 0, "{at_once} at once"),
        }
    }
}

#[test]
fn trains_and_lone_packets_of_wireguard_fare_alike_on_a_short_path() {
    if !ready() {
        return;
    }
    for (value, all) in [("no", true), ("maybe", false), ("yes", false)] {
        println!("mtu-disc {value}");
        let path = Path::new();
        let options = || settings(&format!("dataplane.mtu-disc={value}"));
        let setup = Setup {
            options_a: options(),
            options_b: options(),
            ..Setup::default()
        };
        let _tunnel = Tunnel::between(&path.a, &path.b, &path.far, &setup);
        fares(&path.a, B4, all);
    }
}

#[test]
fn transfers_need_no_setting_on_a_short_path() {
    if !ready() {
        return;
    }
    let path = Path::new();
    let _tunnel = Tunnel::between(&path.a, &path.b, &path.far, &Setup::default());
    fares(&path.a, B4, true);
    tcp_both_ways(&path.a, &path.b, B4, amount());
}

#[test]
fn trains_and_lone_packets_of_openvpn_fare_alike_on_a_short_path() {
    if !openvpn::ready() {
        return;
    }
    for (value, all) in [(None, true), (Some("no"), true), (Some("yes"), false)] {
        println!("mtu-disc {value:?}");
        let path = Path::new();
        let mut setup = lab::openvpn::Setup::default();
        if let Some(value) = value {
            setup.server.line(&format!("mtu-disc {value}"));
            setup.client.line(&format!("mtu-disc {value}"));
        }
        let hosts = [&path.b, &path.a];
        let programs = Pair::Both.programs(false);
        let ends = Ends::between(hosts, &path.far, &setup, programs, KeyKind::Ecdsa, false);
        fares(&path.a, &ends.server4, all);
    }
}

/// The largest segment that B may send on a connection which A has made to `address` of B.
fn segment(net: &Net, address: IpAddr) -> u32 {
    let any = SocketAddr::new(address, 0);
    let listener = net.b.run(|| TcpListener::bind(any)).unwrap().unwrap();
    let to = listener.local_addr().unwrap();
    let _client = net.a.run(|| TcpStream::connect(to)).unwrap().unwrap();
    let (server, _) = listener.accept().unwrap();
    getsockopt(&server, TcpMaxSeg).unwrap()
}

/// What a host behind A's end would do: its SYN asks for more than A's interface carries, and B, whose interface carries
/// more, must not believe it. The clamp follows the interface, and where it is off changes nothing.
#[test]
fn syns_through_wireguard_ask_for_what_the_interface_carries() {
    if !ready() {
        return;
    }
    for (value, clamped) in [("auto", true), ("off", false)] {
        println!("mss-clamp {value}");
        let net = Net::new();
        let setup = Setup {
            options_a: settings(&format!("dataplane.mss-clamp={value}")),
            options_b: settings("dataplane.mss-clamp=off"),
            ..Setup::default()
        };
        let _tunnel = Tunnel::new(&net, &setup);
        for (words, address, headers) in [("-4", B4, 40), ("-6", B6, 60)] {
            let before = format!("{words} route replace {address} dev {WG} advmss 1360");
            net.a.command("ip").args(before.split(' ')).exit().unwrap();
            for mtu in [1300, 1380, 1290] {
                let set = format!("link set {WG} mtu {mtu}");
                net.a.command("ip").args(set.split(' ')).exit().unwrap();
                // The data plane is told of it a moment later. Timestamps take 12 bytes of a segment.
                let expected = if clamped {
                    (mtu - headers).min(1360)
                } else {
                    1360
                } - 12;
                let mut last = 0;
                until_some(&format!("{expected} at {mtu} to {address}"), || {
                    let now = segment(&net, ip(address));
                    if now != last {
                        println!("{now} at {mtu} to {address}");
                    }
                    last = now;
                    (now == expected).then_some(())
                });
            }
        }
    }
}
