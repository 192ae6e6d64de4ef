//! Crypto-key routing in both directions, messages about packets that cannot be sent, loops, and congestion marks.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::time::Duration;

use lab::acceptance::{
    A4, B4, B6, Net, PORT_A, PORT_B, Setup, Tunnel, WG, drops, interface, ip, millrace, no_ping,
    pings, ready, until,
};
use lab::load::{PingOptions, ping};
use lab::peer::{Keys, PeerOptions, WgPeer, WireGuardPeer};
use lab::{Host, tools};

/// A packet with a source address that its sender does not own is dropped and counted.
#[test]
fn sources_are_checked() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let _tunnel = Tunnel::new(&net, &Setup::default());
    pings(&net.a, B4, 1);
    assert_eq!(drops(&net.b, "wrong_source"), 0);
    // A has a second address that B's AllowedIPs do not include.
    for (address, prefix, target, count) in [("10.0.0.9", 32, B4, 1), ("fd01::9", 128, B6, 2)] {
        net.a.add_address(WG, ip(address), prefix).unwrap();
        let words = ["-n", "-c", "1", "-W", "1", "-I", address, target];
        let exit = net.a.command("ping").args(words).exit().unwrap();
        assert_eq!(exit.status.code(), Some(1), "{}", exit.stdout);
        until("the drop is counted", || {
            drops(&net.b, "wrong_source") >= count
        });
    }
    pings(&net.a, B4, 1);
}

/// Three hosts; two leaves share addresses. Peer 1's part of peer 2's network goes to peer 1, also for return traffic,
/// and follows when it moves.
#[test]
fn most_specific_owner_has_the_packet() {
    if !ready() {
        return;
    }
    let hub = Host::private("hub").unwrap();
    let leaves: Vec<Host> = (1..=2)
        .map(|number| Host::private(&format!("leaf {number}")).unwrap())
        .collect();
    let hub_keys = Keys::generate(&hub).unwrap();
    let keys: Vec<Keys> = leaves
        .iter()
        .map(|leaf| Keys::generate(leaf).unwrap())
        .collect();
    let options = PeerOptions::default();
    let at_hub = millrace().start(&hub, WG, &options).unwrap();
    let mut peers = Vec::new();
    let mut at_leaves = Vec::new();
    for (number, leaf) in leaves.iter().enumerate() {
        let link = lab::LinkOptions::numbered(number as u8 + 1);
        let name = format!("eth{number}");
        lab::Link::new(&hub, &name, leaf, "eth0", &link).unwrap();
        let peer = WgPeer::new(&keys[number].public).at((link.b4(), PORT_B).into());
        // The first peer has the whole network, the second one address of it.
        peers.push(if number == 0 {
            peer.allow(ip("10.7.0.0"), 16)
        } else {
            peer.allow(ip("10.7.0.5"), 32)
        });
        let at_leaf = millrace().start(leaf, WG, &options).unwrap();
        let hub_of_leaf = WgPeer::new(&hub_keys.public)
            .at((link.a4(), PORT_A).into())
            .allow(ip("10.0.0.0"), 8);
        at_leaf
            .configure(&interface(&keys[number], PORT_B, vec![hub_of_leaf]))
            .unwrap();
        // Both leaves have both addresses: the answering leaf shows where the packet went.
        at_leaf
            .bring_up(&[(ip("10.7.0.5"), 8), (ip("10.7.0.6"), 8)], 1420)
            .unwrap();
        at_leaves.push(at_leaf);
    }
    at_hub
        .configure(&interface(&hub_keys, PORT_A, peers))
        .unwrap();
    at_hub.bring_up(&[(ip("10.0.0.1"), 8)], 1420).unwrap();
    let received = |number: usize| lab::acceptance::peer(&at_hub, &keys[number]).received;
    let goes_to = |target: &str, number: usize| {
        let before = received(1 - number);
        let own = received(number);
        pings(&hub, target, 3);
        assert_eq!(
            received(1 - number),
            before,
            "{target}: the wrong one answered"
        );
        assert!(received(number) >= own + 3 * 128, "{target}");
    };
    let drops = || drops(&hub, "wrong_source");
    goes_to("10.7.0.6", 0);
    goes_to("10.7.0.5", 1);
    assert_eq!(drops(), 0);

    // Return traffic: the first leaf has 10.7/16, but no longer that one address of it.
    let answered = |leaf: usize, address: &str, wait: &str| {
        let words = ["-n", "-c", "1", "-W", wait, "-I", address, "10.0.0.1"];
        let exit = leaves[leaf].command("ping").args(words).exit().unwrap();
        exit.status.success()
    };
    let from = |leaf: usize, address: &str| answered(leaf, address, "20");
    assert!(from(0, "10.7.0.6") && from(1, "10.7.0.5"));
    assert!(!answered(0, "10.7.0.5", "1"));
    assert!(!answered(1, "10.7.0.6", "1"));
    until("both are dropped", || drops() == 2);

    // When the second peer loses the address, it belongs to the first again.
    let remove = format!(
        "set=1\npublic_key={}\nallowed_ip=-10.7.0.5/32\n\n",
        lab::acceptance::hex(&keys[1].public)
    );
    assert_eq!(lab::acceptance::uapi(&hub, WG, &remove), "errno=0\n\n");
    goes_to("10.7.0.5", 0);
    assert!(from(0, "10.7.0.5") && !from(1, "10.7.0.5"));

    // The whole network moves to the second peer.
    let words = ["peer", &keys[1].public, "allowed-ips", "10.7.0.0/16"];
    at_hub.set(&words).unwrap();
    goes_to("10.7.0.5", 1);
    goes_to("10.7.0.6", 1);
    assert!(from(1, "10.7.0.6") && !from(0, "10.7.0.6"));

    // Removing the peer removes its ranges.
    at_hub.set(&["peer", &keys[1].public, "remove"]).unwrap();
    let report = no_ping(&hub, "10.7.0.5");
    assert!(!report.complaints.is_empty(), "{report:?}");
}

/// A packet without a peer, and one whose peer has no known endpoint, cause ICMP "unreachable", so that programs give
/// up at once.
#[test]
fn unreachable_is_said() {
    if !ready() {
        return;
    }
    let host = Host::private("host").unwrap();
    let keys = Keys::generate(&host).unwrap();
    let program = millrace()
        .start(&host, WG, &PeerOptions::default())
        .unwrap();
    let lost = WgPeer::new(&Keys::generate(&host).unwrap().public)
        .allow(ip("10.0.0.2"), 32)
        .allow(ip("fd01::2"), 128);
    program
        .configure(&interface(&keys, PORT_A, vec![lost]))
        .unwrap();
    program
        .bring_up(&[(ip(A4), 24), (ip("fd01::1"), 64)], 1420)
        .unwrap();
    for (target, reason) in [
        ("10.0.0.3", "no_route"),
        ("fd01::3", "no_route"),
        ("10.0.0.2", "no_endpoint"),
        ("fd01::2", "no_endpoint"),
    ] {
        let before = drops(&host, reason);
        let report = no_ping(&host, target);
        let said = report.complaints.join("\n").to_lowercase();
        assert!(said.contains("unreachable"), "{target}: {report:?}");
        assert!(drops(&host, reason) > before, "{target}");
        // TCP gets the error too.
        let error = host
            .run(|| {
                std::net::TcpStream::connect_timeout(
                    &(ip(target), 1).into(),
                    lab::acceptance::PATIENCE,
                )
            })
            .unwrap()
            .unwrap_err();
        assert_eq!(
            error.kind(),
            std::io::ErrorKind::HostUnreachable,
            "{target}"
        );
    }
}

/// An endpoint that is routed into its own tunnel: packets circle, but not for ever.
#[test]
fn routing_loop_is_bounded() {
    if !ready() {
        return;
    }
    for session in [false, true] {
        let net = Net::new();
        let mut tunnel = Tunnel::new(&net, &Setup::default());
        if session {
            pings(&net.a, B4, 1);
        }
        let words = [
            "peer",
            &tunnel.keys_b.public,
            "endpoint",
            &format!("{B4}:{PORT_B}"),
        ];
        tunnel.a.set(&words).unwrap();
        let before = tunnel.settled()[0].1;
        let options = PingOptions {
            interval: Some(Duration::from_millis(2)),
            ..PingOptions::count(100)
        };
        let report = ping(&net.a, ip(B4), &options).unwrap();
        assert_eq!(report.received, 0);
        let sent = tunnel.settled()[0].1 - before;
        // A hundred pings, each of which may grow from 128 bytes to the MTU: about 1.7 MB.
        assert!(sent < 4_000_000, "{sent} bytes went round");
        // The process is alive, and works again once the endpoint is right.
        let words = [
            "peer",
            &tunnel.keys_b.public,
            "endpoint",
            &format!("{}:{PORT_B}", net.link.b4()),
        ];
        tunnel.a.set(&words).unwrap();
        lab::acceptance::reaches(&net.a, B4);
        assert!(tunnel.a.process.try_wait().unwrap().is_none());
    }
}

/// A tunnel in a tunnel: the inner tunnel's datagrams are the outer tunnel's packets.
#[test]
fn tunnel_in_a_tunnel() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let _outer = Tunnel::new(&net, &Setup::default());
    let options = PeerOptions::default();
    let a = millrace().start(&net.a, "wg1", &options).unwrap();
    let b = millrace().start(&net.b, "wg1", &options).unwrap();
    let (keys_a, keys_b) = (
        Keys::generate(&net.a).unwrap(),
        Keys::generate(&net.b).unwrap(),
    );
    let b_of_a = WgPeer::new(&keys_b.public)
        .at((ip(B4), 3002).into())
        .allow(ip("10.1.0.2"), 32);
    let a_of_b = WgPeer::new(&keys_a.public).allow(ip("10.1.0.1"), 32);
    a.configure(&interface(&keys_a, 3001, vec![b_of_a]))
        .unwrap();
    b.configure(&interface(&keys_b, 3002, vec![a_of_b]))
        .unwrap();
    a.bring_up(&[(ip("10.1.0.1"), 24)], 1340).unwrap();
    b.bring_up(&[(ip("10.1.0.2"), 24)], 1340).unwrap();
    pings(&net.a, "10.1.0.2", 5);
    lab::acceptance::tcp_both_ways(&net.a, &net.b, "10.1.0.2", 2_000_000);
}

/// Counts passing packets with kernel rules.
fn count(host: &Host, rules: &str) -> bool {
    let text = format!("table inet marks {{\n counter seen {{ }}\n {rules}\n }}\n");
    lab::require(host.nft(&text)).is_some()
}

fn counted(host: &Host) -> u64 {
    let text = host
        .output("nft", ["-j", "list", "counter", "inet", "marks", "seen"])
        .unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let all = json["nftables"].as_array().unwrap();
    all.iter()
        .find_map(|entry| entry["counter"]["packets"].as_u64())
        .unwrap()
}

fn ping_with_tos(host: &Host, tos: &str, target: &str) -> bool {
    let words = ["-n", "-c", "5", "-i", "0.01", "-W", "10", "-Q", tos, target];
    host.command("ping")
        .args(words)
        .exit()
        .unwrap()
        .status
        .success()
}

/// ECN capability is visible on the outer packet, and a router's mark there arrives on the inner packet (RFC 6040).
#[test]
fn congestion_marks_cross_the_tunnel() {
    if !ready() || lab::require(tools::find("nft")).is_none() {
        return;
    }
    for v6 in [false, true] {
        let setup = || Setup {
            v6,
            ..Setup::default()
        };
        for target in [B4, B6] {
            let family = if target.contains(':') { "ip6" } else { "ip" };
            let outer = if v6 { "ip6" } else { "ip" };

            let net = Net::new();
            let rules = format!(
                "chain in {{ type filter hook input priority 0;\n\
                 udp dport {PORT_B} {outer} ecn ect0 counter name seen\n }}"
            );
            if !count(&net.b, &rules) {
                return;
            }
            let _tunnel = Tunnel::new(&net, &setup());
            pings(&net.a, target, 3);
            assert_eq!(counted(&net.b), 0, "it was not asked for");
            assert!(ping_with_tos(&net.a, "2", target));
            until(&format!("five marked packets: {outer} {family}"), || {
                counted(&net.b) >= 5
            });

            // Marked in transit: an ECN-capable packet keeps the mark.
            let net = Net::new();
            let rules = format!(
                "chain early {{ type filter hook prerouting priority -300;\n\
                 udp dport {PORT_B} {outer} ecn ect0 {outer} ecn set ce\n }}\n\
                 chain in {{ type filter hook input priority 0;\n\
                 iifname {WG} {family} ecn ce counter name seen\n }}"
            );
            if !count(&net.b, &rules) {
                return;
            }
            let _tunnel = Tunnel::new(&net, &setup());
            pings(&net.a, target, 3);
            assert_eq!(counted(&net.b), 0);
            assert!(ping_with_tos(&net.a, "2", target));
            until(&format!("five marked packets: {outer} {family}"), || {
                counted(&net.b) >= 5
            });

            // A packet that is not ECN-capable is dropped and counted.
            let net = Net::new();
            let rules = format!(
                "chain early {{ type filter hook prerouting priority -300;\n\
                 udp dport {PORT_B} udp length > 160 {outer} ecn set ce\n }}"
            );
            if !count(&net.b, &rules) {
                return;
            }
            let _tunnel = Tunnel::new(&net, &setup());
            pings(&net.a, target, 3);
            assert_eq!(drops(&net.b, "congestion"), 0);
            let options = PingOptions {
                size: 200,
                ..PingOptions::count(1)
            };
            assert_eq!(ping(&net.a, ip(target), &options).unwrap().received, 0);
            until("the drop is counted", || drops(&net.b, "congestion") == 1);
        }
    }
}
