//! A path with a smaller MTU than its ends know, whose router sends no "too big" messages.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use lab::acceptance::openvpn::{self, Ends, Pair, amount};
use lab::acceptance::{
    A4, B4, B6, Directory, Net, PATIENCE, PROGRAM, Setup, Site, Tunnel, WG, ip, ready, settings,
    status_of, tcp_both_ways, uapi, until, until_some, wireguard_go,
};
use lab::openvpn::KeyKind;
use lab::peer::Keys;
use lab::{Host, Link, LinkOptions, Process, Router};
use nix::sys::socket::{getsockopt, sockopt::TcpMaxSeg};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

/// Size of an echo request that fits into the tunnel, but exceeds the path's MTU with the tunnel's headers.
const LONG: &str = "1372";

/// A and B with a router between them. The second link carries 1400 bytes, and the router's "too big" messages are
/// lost.
struct Path {
    a: Host,
    _router: Router,
    b: Host,
    /// The second link, which ends at B.
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

/// Sends long pings, `at_once` of them before the first answer, and returns how many of 20 are answered.
fn answered(from: &Host, to: &str, at_once: &str) -> usize {
    let words = [
        "-n", "-q", "-c", "20", "-i", "0.01", "-W", "1", "-l", at_once, "-s", LONG, to,
    ];
    let exit = from.command("ping").args(words).exit().unwrap();
    let (before, _) = exit.stdout.split_once(" received").unwrap();
    before.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Single pings and bursts give the same result: all answered, or none.
fn fares(from: &Host, to: &str, all: bool) {
    for at_once in ["1", "20"] {
        match all {
            // Once any ping is answered, ping waits for the last one at most twice the longest round trip; on a busy
            // machine one may come too late.
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

/// The largest segment that B may send on a connection from A to B's `address`.
fn segment(net: &Net, address: IpAddr) -> u32 {
    let any = SocketAddr::new(address, 0);
    let listener = net.b.run(|| TcpListener::bind(any)).unwrap().unwrap();
    let to = listener.local_addr().unwrap();
    let _client = net.a.run(|| TcpStream::connect(to)).unwrap().unwrap();
    let (server, _) = listener.accept().unwrap();
    getsockopt(&server, TcpMaxSeg).unwrap()
}

/// The client is a host behind A's end: its SYN offers a larger MSS than A's interface carries. B's interface carries
/// more, and B must not believe the SYN. The clamp follows the interface; where it is off, MSS stays unchanged.
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
                // The data plane learns of the change a moment later. Timestamps take 12 bytes of a segment.
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

/// The interface that the file makes.
const UP: &str = "up0";

/// Runs A's end with a file that sets no MTU.
fn up(site: &Site, endpoint: &str, ranges: &str) -> Process {
    let lines = format!("Address = {A4}/24, fd01::1/64");
    let file = site.file(UP, &lines, endpoint, ranges, "");
    let mut process = site
        .net
        .a
        .command(PROGRAM)
        .arg("up")
        .arg(&file)
        .spawn()
        .unwrap();
    process
        .wait_for_line("the tunnel", PATIENCE, |line| line.contains("is up"))
        .unwrap();
    process
}

/// Waits until A's interface has this MTU, and the status reports it with this reason.
fn has_mtu(a: &Host, mtu: u32, reason: &str) {
    let mut last = String::new();
    until_some(&format!("{mtu}: {reason}"), || {
        let link = a.netlink().unwrap().link(UP).unwrap().mtu;
        let status = status_of(a, UP);
        let now = format!("{link}, {}: {}", status["mtu"], status["mtu_reason"]);
        if now != last {
            println!("{now}");
            last = now;
        }
        let same = link == mtu && status["mtu"] == mtu && status["mtu_reason"] == reason;
        same.then_some(())
    });
}

fn run_ip(host: &Host, words: &str) {
    host.output("ip", words.split(' ')).unwrap();
}

/// The path MTU changes when PPPoE comes up after the tunnel, or another line takes over.
#[test]
fn the_mtu_of_wireguard_follows_its_line_and_leaves_what_others_set() {
    if !ready() {
        return;
    }
    for ranges in [
        "10.0.0.0/24, fd01::/64",
        "10.0.0.0/24, 0.0.0.0/0, fd01::/64",
    ] {
        println!("{ranges}");
        let site = Site::new();
        let _server = site.server(&[("fd01::1", 128)], &[]);
        let (a, to) = (&site.net.a, site.net.link.b4());
        let device = "eth0";
        let _process = up(&site, &to.to_string(), ranges);
        has_mtu(a, 1420, &format!("{device} 1500 less 80"));
        run_ip(a, &format!("link set {device} mtu 1492"));
        has_mtu(a, 1412, &format!("{device} 1492 less 80"));
        let route = format!("route add {to}/32 dev {device} mtu 1400");
        run_ip(a, &route);
        let reason = format!("path MTU to {to} through {device} 1400 less 80");
        has_mtu(a, 1320, &reason);
        run_ip(a, &route.replace("add", "del"));
        has_mtu(a, 1412, &format!("{device} 1492 less 80"));
        run_ip(a, &format!("link set {UP} mtu 1300"));
        let would = |mtu: u32, of: u32| {
            format!("set by another program; would be {mtu}: {device} {of} less 80")
        };
        has_mtu(a, 1300, &would(1412, 1492));
        run_ip(a, &format!("link set {device} mtu 1480"));
        has_mtu(a, 1300, &would(1400, 1480));
        run_ip(a, &format!("link set {UP} mtu 1412"));
        has_mtu(a, 1400, &format!("{device} 1480 less 80"));
        // The tunnel carries IPv6, which needs at least 1280 bytes.
        run_ip(a, &format!("link set {device} mtu 1300"));
        let least = format!("the minimum for IPv6; {device} 1300 less 80 would be 1220");
        has_mtu(a, 1280, &least);
        run_ip(a, &format!("link set {device} mtu 1500"));
        has_mtu(a, 1420, &format!("{device} 1500 less 80"));
    }
}

/// A and B with a router that reports "too big" packets, keys, and a file for A. B is on a link with MTU 1400, and is
/// reached over IPv6.
fn honest() -> (Site, Router, LinkOptions) {
    let (a, b) = Net::hosts();
    let router = Router::of(Host::private("router").unwrap()).unwrap();
    let near = LinkOptions::numbered(1);
    let far = LinkOptions::numbered(2).mtu(1400);
    Link::new(&a, "eth0", &router, "near", &near).unwrap();
    Link::new(&router, "far", &b, "eth0", &far).unwrap();
    a.add_default_route(near.b6()).unwrap();
    b.add_default_route(far.a6()).unwrap();
    let (keys_a, keys_b) = (Keys::generate(&a).unwrap(), Keys::generate(&b).unwrap());
    let site = Site {
        net: Net { a, b, link: far },
        keys_a,
        keys_b,
        directory: Directory::new(),
    };
    (site, router, near)
}

/// The router reports packets as too big; the kernel remembers the path MTU and tells programs on request.
#[test]
fn the_mtu_of_wireguard_follows_what_the_kernel_has_learned_of_the_path() {
    if !ready() {
        return;
    }
    let (site, _router, _) = honest();
    let to = site.net.link.b6();
    let _server = site.server(&[("fd01::1", 128)], &[]);
    let a = &site.net.a;
    let _process = up(&site, &format!("[{to}]"), "10.0.0.0/24, fd01::/64");
    has_mtu(a, 1420, "eth0 1500 less 80");
    // The first oversized packets are lost.
    until("an answer to a long packet", || answered(a, B4, "1") > 0);
    // Any network change makes the program ask the kernel at once, instead of half a minute later.
    let mtu = a.netlink().unwrap().link("lo").unwrap().mtu;
    run_ip(a, &format!("link set lo mtu {}", mtu - 1));
    has_mtu(
        a,
        1320,
        &format!("path MTU to {to} through eth0 1400 less 80"),
    );
}

/// With AmneziaWG's `S4`, the first train that the kernel refuses makes the program ask at once, and the log says why the
/// MTU changes.
#[test]
fn the_mtu_of_amneziawg_follows_the_refusal_of_a_train() {
    if !ready() {
        return;
    }
    for v6 in [false, true] {
        let (site, _router, near) = honest();
        let (a, b) = (&site.net.a, &site.net.b);
        let (to, endpoint) = match v6 {
            true => (site.net.link.b6(), format!("[{}]", site.net.link.b6())),
            false => (site.net.link.b4(), site.net.link.b4().to_string()),
        };
        run_ip(a, &format!("route replace default via {}", near.b4()));
        run_ip(
            b,
            &format!("route replace default via {}", site.net.link.a4()),
        );
        let _server = site.server(&[("fd01::1", 128)], &[]);
        assert_eq!(uapi(b, WG, "set=1\ns4=16\n\n"), "errno=0\n\n");
        // B keeps this MTU, and asks for segments that are too long.
        run_ip(b, &format!("link set {WG} mtu 1419"));
        let lines = format!("Address = {A4}/24, fd01::1/64\nS4 = 16");
        let file = site.file(UP, &lines, &endpoint, "10.0.0.0/24, fd01::/64", "");
        let command = a.command(PROGRAM).arg("up").arg(&file);
        // Over IPv4 the router reports nothing unless packets ask for it.
        let disc = if v6 { "no" } else { "yes" };
        let settings = format!("dataplane.mtu-disc={disc},dataplane.mtu-probe=off");
        let mut process = command.env("MILLRACE_SET", settings).spawn().unwrap();
        let mut logs = |words: &str| {
            let waited = process.wait_for_line(words, PATIENCE, |line| line.contains(words));
            waited.unwrap();
        };
        logs("is up");
        has_mtu(a, 1404, "eth0 1500 less 96");
        tcp_both_ways(a, b, B4, amount());
        let reason = format!("path MTU to {to} through eth0 1400 less 96");
        has_mtu(a, 1304, &reason);
        logs(&format!("the MTU is 1304 ({reason}), and was 1404"));
        tcp_both_ways(a, b, B4, amount());
    }
}

/// Another line takes over, as PPPoE does when it comes up, and vanishes with its device.
#[test]
fn the_mtu_of_wireguard_follows_the_default_route_to_another_device() {
    if !ready() {
        return;
    }
    let (site, router, near) = honest();
    let to = site.net.link.b6();
    let a = &site.net.a;
    let second = LinkOptions::numbered(3).mtu(1492);
    let _process = up(&site, &format!("[{to}]"), "10.0.0.0/24, fd01::/64, ::/0");
    has_mtu(a, 1420, "eth0 1500 less 80");
    for _ in 0..2 {
        Link::new(a, "ppp0", &router, "second", &second).unwrap();
        run_ip(a, &format!("-6 route replace default via {}", second.b6()));
        has_mtu(a, 1412, "ppp0 1492 less 80");
        run_ip(a, "link delete ppp0");
        run_ip(a, &format!("-6 route replace default via {}", near.b6()));
        has_mtu(a, 1420, "eth0 1500 less 80");
    }
}

/// A and B with a router that tells A of no oversized packet, and a link to B with an MTU of `mtu` bytes.
fn black_hole(mtu: u32) -> (Site, Router, LinkOptions) {
    let (site, router, near) = honest();
    let silence = "table inet silent {\n\
         chain output {\n\
           type filter hook output priority 0;\n\
           icmp type destination-unreachable drop\n\
           icmpv6 type packet-too-big drop\n\
         }\n\
       }\n";
    router.nft(silence).unwrap();
    run_ip(
        &site.net.a,
        &format!("route replace default via {}", near.b4()),
    );
    run_ip(
        &site.net.b,
        &format!("route replace default via {}", site.net.link.a4()),
    );
    set_far(&site, &router, mtu);
    (site, router, near)
}

/// Sets the MTU of the second link.
fn set_far(site: &Site, router: &Router, mtu: u32) {
    run_ip(router, &format!("link set far mtu {mtu}"));
    run_ip(&site.net.b, &format!("link set eth0 mtu {mtu}"));
}

/// Sends traffic until A's interface has an MTU in the range, for a reason with this prefix. Returns the status.
fn probed(a: &Host, range: std::ops::RangeInclusive<u32>, reason: &str) -> serde_json::Value {
    let mut last = String::new();
    until_some(&format!("{range:?}: {reason}"), || {
        // Other pings keep the tunnel in use.
        let _ = a
            .command("ping")
            .args([
                "-n", "-q", "-c", "3", "-i", "0.1", "-W", "1", "-s", "1000", B4,
            ])
            .exit();
        let link = a.netlink().unwrap().link(UP).unwrap().mtu;
        let status = status_of(a, UP);
        let why = status["mtu_reason"].as_str().unwrap_or_default();
        let now = format!("{link}: {why}; {}", status["mtu_probe"]);
        if now != last {
            println!("{now}");
        }
        last = now;
        (range.contains(&link) && why.starts_with(reason)).then_some(status)
    })
}

/// Only probes can find this MTU. Afterwards packets of the interface's MTU pass, and TCP works.
#[test]
fn the_mtu_of_wireguard_follows_what_probes_find_in_a_black_hole() {
    let Some(stock) = wireguard_go().filter(|_| ready()) else {
        return;
    };
    for v6 in [false, true] {
        let (site, router, _) = black_hole(1400);
        let link = &site.net.link;
        let (to, endpoint, most) = match v6 {
            false => (link.b4().to_string(), link.b4().to_string(), 1340),
            true => (link.b6().to_string(), format!("[{}]", link.b6()), 1320),
        };
        let _server = site.server_by(&*stock, &[("fd01::1", 128)], &[]);
        let a = &site.net.a;
        let _process = up(&site, &endpoint, &format!("{B4}/32, fd01::2/128"));
        probed(a, most - 15..=most, &format!("path to {to} carries "));
        let mtu = a.netlink().unwrap().link(UP).unwrap().mtu;
        let words = ["-n", "-q", "-c", "1", "-W", "5", "-M", "do", "-s"];
        let size = (mtu - 28).to_string();
        until("a packet of the interface's length is answered", || {
            let exit = a.command("ping").args(words).args([&*size, B4]).exit();
            exit.unwrap().status.success()
        });
        tcp_both_ways(a, &site.net.b, B4, amount());
        // On another line the program probes again.
        set_far(&site, &router, 1500);
        run_ip(a, "link set eth0 mtu 1492");
        let status = probed(a, 1412..=1412, "eth0 1492 less 80");
        assert!(status["mtu_probe"].is_string());
    }
}

/// A far end that does not answer pings: the MTU stays, and the status says so.
#[test]
fn a_far_end_that_answers_no_pings_changes_no_mtu() {
    if !ready() {
        return;
    }
    let (site, _router, _) = black_hole(1500);
    let to = site.net.link.b4();
    let _server = site.server(&[("fd01::1", 128)], &[]);
    let deaf = "/proc/sys/net/ipv4/icmp_echo_ignore_all";
    site.net
        .b
        .run(|| std::fs::write(deaf, "1"))
        .unwrap()
        .unwrap();
    let a = &site.net.a;
    let _process = up(&site, &to.to_string(), &format!("{B4}/32"));
    until_some("no answer", || {
        let _ = a
            .command("ping")
            .args([
                "-n", "-q", "-c", "3", "-i", "0.1", "-W", "1", "-s", "1000", B4,
            ])
            .exit();
        let status = status_of(a, UP);
        (status["mtu_probe"] == format!("{B4} answers no pings")).then_some(())
    });
    has_mtu(a, 1420, "eth0 1500 less 80");
}
