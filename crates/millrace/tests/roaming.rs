//! Peers that move, and answers that leave from the address that received the packet.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::net::{IpAddr, SocketAddr, UdpSocket};

use lab::acceptance::forged::{Random, Seen, initiation, seen};
use lab::acceptance::{
    A4, B4, B6, Net, PATIENCE, PORT_A, PORT_B, Setup, Tunnel, WG, ip, key_bytes, millrace, pings,
    reaches, ready, until, usable, wireguard_go,
};
use lab::peer::WireGuardPeer;
use lab::{Host, Link, LinkOptions};
use netio::netlink::Route;
use netio::packet::PacketSocket;

fn move_address(host: &Host, from: IpAddr, to: IpAddr, prefix: u8) {
    let mut netlink = host.netlink().unwrap();
    let index = netlink.index_of("eth0").unwrap();
    // The order matters: when the kernel removes a network's first address, it removes the others too.
    netlink.remove_address(index, from, prefix, None).unwrap();
    host.add_address("eth0", to, prefix).unwrap();
    usable(host, &to.to_string());
}

/// The pairs of programs to test. The first one moves.
fn pairs() -> Vec<[Box<dyn WireGuardPeer>; 2]> {
    let mut pairs: Vec<[Box<dyn WireGuardPeer>; 2]> =
        vec![[Box::new(millrace()), Box::new(millrace())]];
    if let Some(go) = wireguard_go() {
        pairs.push([go, Box::new(millrace())]);
    }
    if let Some(go) = wireguard_go() {
        pairs.push([Box::new(millrace()), go]);
    }
    pairs
}

/// The first data packet from elsewhere moves the endpoint; no handshake is needed.
#[test]
fn endpoint_follows_data_packets() {
    if !ready() {
        return;
    }
    for [a, b] in pairs() {
        let names = [a.name(), b.name()];
        // wireguard-go keeps using the old address for a while, and for a while sends to half an address when its peer
        // moves to IPv6.
        let strict = names == ["millrace"; 2];
        let moved = if strict {
            |host: &Host, target: &str| pings(host, target, 2)
        } else {
            |host: &Host, target: &str| reaches(host, target)
        };
        let net = Net::new();
        let tunnel = Tunnel::new(
            &net,
            &Setup {
                a,
                b,
                ..Setup::default()
            },
        );
        pings(&net.a, B4, 2);
        assert_eq!(tunnel.at_b().endpoint, Some((net.link.a4(), PORT_A).into()));
        let handshake = tunnel.at_b().latest_handshake;

        // From one address to another.
        let elsewhere = ip("192.168.1.77");
        move_address(&net.a, net.link.a4(), elsewhere, 24);
        moved(&net.a, B4);
        let seen = tunnel.at_b().endpoint;
        assert_eq!(seen, Some((elsewhere, PORT_A).into()), "{names:?}");
        moved(&net.b, A4);

        // From IPv4 to IPv6.
        let to = format!("[{}]:{PORT_B}", net.link.b6());
        let words = ["peer", &tunnel.keys_b.public, "endpoint", &to];
        tunnel.a.set(&words).unwrap();
        moved(&net.a, B4);
        let seen = tunnel.at_b().endpoint;
        assert_eq!(seen, Some((net.link.a6(), PORT_A).into()), "{names:?}");
        moved(&net.b, A4);

        // And on to another IPv6 address.
        let elsewhere = ip("fd00:1::77");
        move_address(&net.a, net.link.a6(), elsewhere, 64);
        moved(&net.a, B4);
        let seen = tunnel.at_b().endpoint;
        assert_eq!(seen, Some((elsewhere, PORT_A).into()), "{names:?}");
        if strict {
            assert_eq!(tunnel.at_b().latest_handshake, handshake);
        }
    }
}

/// Sends packets to B at `called` and checks that every answer comes from there. Otherwise the sender would take the
/// source for a new endpoint, and its firewall would drop the answer.
fn answers_come_from(net: &Net, tunnel: &Tunnel<'_>, called: IpAddr) {
    let taps: Vec<PacketSocket> = ["eth0", "eth1"]
        .iter()
        .filter(|name| net.a.has_interface(name).unwrap())
        .map(|name| net.a.run(|| PacketSocket::open(name)).unwrap().unwrap())
        .collect();
    let mut answers: Vec<Seen> = Vec::new();
    let mut until_seen = |kind: u8, length: Option<usize>| {
        until(&format!("an answer of kind {kind}"), || {
            answers.extend(taps.iter().flat_map(|tap| seen(tap, PORT_B)));
            let mut of_kind = answers.iter().filter(|it| it.kind == kind);
            of_kind.any(|it| length.is_none_or(|length| it.length == length))
        });
        assert!(answers.iter().all(|it| it.from == called), "{answers:?}");
    };
    let endpoint: SocketAddr = (called, PORT_B).into();
    let to = endpoint.to_string();
    let words = ["peer", &tunnel.keys_b.public, "endpoint", &to];
    tunnel.a.set(&words).unwrap();
    // A data packet of the existing session, if there is one.
    pings(&net.a, B4, 2);
    assert_eq!(tunnel.at_a().endpoint, Some(endpoint));
    // A packet that B sends first.
    pings(&net.b, A4, 2);
    assert_eq!(tunnel.at_a().endpoint, Some(endpoint));
    until_seen(4, None);
    // A keepalive.
    for seconds in ["1", "0"] {
        let words = [
            "peer",
            &tunnel.keys_a.public,
            "persistent-keepalive",
            seconds,
        ];
        tunnel.b.set(&words).unwrap();
        until_seen(4, Some(32));
    }
    // A handshake response: recreated peers have no session.
    let ends = [
        (&tunnel.a, &tunnel.keys_b, "2"),
        (&tunnel.b, &tunnel.keys_a, "1"),
    ];
    for (end, other, number) in ends {
        end.set(&["peer", &other.public, "remove"]).unwrap();
        let ranges = format!("10.0.0.{number}/32,fd01::{number}/128");
        end.set(&["peer", &other.public, "allowed-ips", &ranges])
            .unwrap();
    }
    tunnel.a.set(&words).unwrap();
    pings(&net.a, B6, 2);
    assert_eq!(tunnel.at_a().endpoint, Some(endpoint));
    until_seen(2, None);
}

/// Cookie replies also come from the address that received the initiation. B sends them when more initiations wait than
/// it can serve.
fn cookies_come_from(net: &Net, tunnel: &Tunnel<'_>, called: IpAddr) {
    let endpoint: SocketAddr = (called, PORT_B).into();
    let any: IpAddr = match called {
        IpAddr::V4(_) => [0; 4].into(),
        IpAddr::V6(_) => [0; 16].into(),
    };
    let stranger = net.a.run(|| UdpSocket::bind((any, 0))).unwrap().unwrap();
    let (key, mut random) = (key_bytes(&tunnel.keys_b.public), Random(7));
    stranger.set_read_timeout(Some(PATIENCE)).unwrap();
    for _ in 0..4000 {
        // Some initiations find the queue full.
        let _ = stranger.send_to(&initiation(&mut random, &key), endpoint);
    }
    let mut cookie = [0; 200];
    let (_, from) = stranger.recv_from(&mut cookie).unwrap();
    assert_eq!((cookie[0], from), (3, endpoint));
}

#[test]
fn answers_leave_from_the_address_that_was_called_on_one_interface() {
    if !ready() {
        return;
    }
    let net = Net::new();
    for (address, prefix) in [("192.168.1.22", 24), ("fd00:1::22", 64)] {
        net.b.add_address("eth0", ip(address), prefix).unwrap();
        usable(&net.b, address);
    }
    let tunnel = Tunnel::new(&net, &Setup::default());
    let called = [
        ip("192.168.1.22"),
        ip("fd00:1::22"),
        net.link.b4(),
        net.link.b6(),
    ];
    for called in called {
        answers_come_from(&net, &tunnel, called);
    }
    for called in called {
        cookies_come_from(&net, &tunnel, called);
    }
}

/// The address that received the packet is on another interface than the return path.
#[test]
fn answers_leave_from_the_address_that_was_called_on_another_interface() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let second = LinkOptions::numbered(2);
    Link::new(&net.a, "eth1", &net.b, "eth1", &second).unwrap();
    // A reaches B's second addresses over the first link, so the answers use that link too.
    let mut netlink = net.a.netlink().unwrap();
    let index = netlink.index_of("eth0").unwrap();
    for (called, via, bits) in [
        (second.b4(), net.link.b4(), 32),
        (second.b6(), net.link.b6(), 128),
    ] {
        let route = Route::new(called, bits).via(via).dev(index);
        netlink.add_route(&route).unwrap();
    }
    let tunnel = Tunnel::new(&net, &Setup::default());
    let called = [second.b4(), second.b6(), net.link.b4(), net.link.b6()];
    for called in called {
        answers_come_from(&net, &tunnel, called);
    }
    for called in called {
        cookies_come_from(&net, &tunnel, called);
    }
}

/// B forgets a local address that is removed.
#[test]
fn address_that_is_gone_is_not_insisted_on() {
    if !ready() {
        return;
    }
    for v6 in [false, true] {
        let net = Net::new();
        let tunnel = Tunnel::new(
            &net,
            &Setup {
                v6,
                ..Setup::default()
            },
        );
        pings(&net.a, B4, 2);
        let (from, to, prefix) = if v6 {
            (net.link.b6(), ip("fd00:1::88"), 64)
        } else {
            (net.link.b4(), ip("192.168.1.88"), 24)
        };
        move_address(&net.b, from, to, prefix);
        // B sends from its new address, and A follows.
        pings(&net.b, A4, 2);
        assert_eq!(tunnel.at_a().endpoint, Some((to, PORT_B).into()));
        pings(&net.a, B4, 2);
        assert!(net.b.has_interface(WG).unwrap());
    }
}
