//! Sets every setting through the stock `wg` if it supports the setting, and otherwise through the userspace protocol;
//! changes settings under traffic.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use lab::acceptance::{
    A4, B4, B6, Net, Setup, Tunnel, WG, hex, interface, ip, millrace, no_ping, peer, pings, ready,
    uapi, until,
};
use lab::peer::{Keys, PeerOptions, PresharedKey, RunningPeer, WgPeer, WireGuardPeer};
use lab::{Host, tools};

fn start(host: &Host) -> RunningPeer<'_> {
    let options = PeerOptions::default();
    millrace().start(host, WG, &options).unwrap()
}

fn show(host: &Host, what: &str) -> String {
    let text = host.output("wg", ["show", WG, what]).unwrap();
    text.trim().to_owned()
}

#[test]
fn interface_settings() {
    if !ready() {
        return;
    }
    let host = Host::private("host").unwrap();
    let program = start(&host);
    let keys = Keys::generate(&host).unwrap();
    assert_eq!(show(&host, "public-key"), "(none)");

    let set_key = ["private-key", "/dev/stdin"];
    program.set_with_input(&set_key, &keys.private).unwrap();
    assert_eq!(show(&host, "public-key"), keys.public);
    assert_eq!(show(&host, "private-key"), keys.private);

    // The program has a port even before one was set.
    assert!(program.status().unwrap().listen_port > 0);
    program.set(&["listen-port", "1234"]).unwrap();
    assert_eq!(program.status().unwrap().listen_port, 1234);
    program.set(&["listen-port", "0"]).unwrap();
    let chosen = program.status().unwrap().listen_port;
    assert!(chosen > 0 && chosen != 1234, "{chosen}");

    for (given, seen) in [("0x1234", 0x1234), ("off", 0), ("77", 77), ("0", 0)] {
        program.set(&["fwmark", given]).unwrap();
        assert_eq!(program.status().unwrap().fwmark, seen, "{given}");
    }

    // An empty file removes the private key.
    program.set(&["private-key", "/dev/null"]).unwrap();
    assert_eq!(show(&host, "public-key"), "(none)");
}

#[test]
fn port_that_is_taken_is_refused_and_the_old_one_stays() {
    if !ready() {
        return;
    }
    let host = Host::private("host").unwrap();
    let program = start(&host);
    program.set(&["listen-port", "1234"]).unwrap();
    let _taken = host
        .run(|| std::net::UdpSocket::bind("0.0.0.0:4321"))
        .unwrap()
        .unwrap();
    let error = program.set(&["listen-port", "4321"]).unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
    assert_eq!(program.status().unwrap().listen_port, 1234);
}

#[test]
fn peer_settings() {
    if !ready() {
        return;
    }
    let host = Host::private("host").unwrap();
    let program = start(&host);
    let keys = Keys::generate(&host).unwrap();
    let other = Keys::generate(&host).unwrap();
    let set = |words: &[&str]| {
        let words: Vec<&str> = ["peer", &keys.public]
            .iter()
            .chain(words)
            .copied()
            .collect();
        program.set(&words).unwrap();
    };
    set(&[]);
    let fresh = peer(&program, &keys);
    assert!(!fresh.preshared && fresh.endpoint.is_none() && fresh.allowed_ips.is_empty());
    assert!(fresh.latest_handshake.is_none() && fresh.persistent_keepalive.is_none());

    for endpoint in ["192.0.2.1:51820", "[2001:db8::1]:1"] {
        set(&["endpoint", endpoint]);
        let seen = peer(&program, &keys).endpoint.unwrap();
        assert_eq!(seen.to_string(), endpoint);
    }
    for (given, seen) in [
        ("25", Some(25)),
        ("off", None),
        ("65535", Some(65_535)),
        ("0", None),
    ] {
        set(&["persistent-keepalive", given]);
        assert_eq!(peer(&program, &keys).persistent_keepalive, seen, "{given}");
    }

    let psk = PresharedKey::generate(&host).unwrap();
    let words = ["peer", &keys.public, "preshared-key", "/dev/stdin"];
    program.set_with_input(&words, &psk.0).unwrap();
    assert!(show(&host, "preshared-keys").ends_with(&psk.0));
    set(&["preshared-key", "/dev/null"]);
    assert!(!peer(&program, &keys).preshared);

    set(&["allowed-ips", "10.1.2.3/8,fd00::/8,192.0.2.1"]);
    let mut seen = peer(&program, &keys).allowed_ips;
    seen.sort();
    assert_eq!(seen, ["10.0.0.0/8", "192.0.2.1/32", "fd00::/8"]);
    set(&["allowed-ips", "10.0.0.0/8"]);
    assert_eq!(peer(&program, &keys).allowed_ips, ["10.0.0.0/8"]);
    set(&["allowed-ips", ""]);
    assert!(peer(&program, &keys).allowed_ips.is_empty());

    // A second peer takes over a range; removing that peer does not return it.
    set(&["allowed-ips", "10.0.0.0/8"]);
    let words = ["peer", &other.public, "allowed-ips", "10.0.0.0/8"];
    program.set(&words).unwrap();
    assert!(peer(&program, &keys).allowed_ips.is_empty());
    assert_eq!(peer(&program, &other).allowed_ips, ["10.0.0.0/8"]);
    program.set(&["peer", &other.public, "remove"]).unwrap();
    assert_eq!(program.status().unwrap().peers.len(), 1);
    // Removing an unknown peer is not an error.
    program.set(&["peer", &other.public, "remove"]).unwrap();
}

#[test]
fn files_are_set_added_and_synchronised() {
    if !ready() {
        return;
    }
    let host = Host::private("host").unwrap();
    let program = start(&host);
    let keys: Vec<Keys> = (0..3).map(|_| Keys::generate(&host).unwrap()).collect();
    let file = |peers: &[usize]| {
        let mut text = format!(
            "[Interface]\nPrivateKey = {}\nListenPort = 99\n",
            keys[0].private
        );
        for &number in peers {
            text += &format!(
                "[Peer]\nPublicKey = {}\nAllowedIPs = 10.0.{number}.0/24\n",
                keys[number].public
            );
        }
        text
    };
    let load = |command: &str, text: &str| {
        let words = [command, WG, "/dev/stdin"];
        host.command("wg")
            .args(words)
            .output_with_input(text)
            .unwrap();
        let status = program.status().unwrap();
        let mut seen: Vec<String> = status.peers.into_iter().map(|p| p.public_key).collect();
        seen.sort();
        seen
    };
    let sorted = |peers: &[usize]| {
        let mut keys: Vec<String> = peers.iter().map(|&n| keys[n].public.clone()).collect();
        keys.sort();
        keys
    };
    assert_eq!(load("setconf", &file(&[1])), sorted(&[1]));
    assert_eq!(load("addconf", &file(&[2])), sorted(&[1, 2]));
    // setconf means replace_peers: a peer that the file does not name is removed.
    assert_eq!(load("setconf", &file(&[2])), sorted(&[2]));
    assert_eq!(load("syncconf", &file(&[1, 2])), sorted(&[1, 2]));
    assert_eq!(load("syncconf", &file(&[1])), sorted(&[1]));
    // The output of showconf can be read again.
    let shown = host.output("wg", ["showconf", WG]).unwrap();
    assert!(shown.contains("ListenPort = 99"), "{shown}");
    assert_eq!(load("setconf", &shown), sorted(&[1]));
    let list = host.output("wg", ["show", "interfaces"]).unwrap();
    assert_eq!(list.trim(), WG);
    // The text of `wg show` for people.
    let text = host.output("wg", ["show"]).unwrap();
    assert!(
        text.contains(&keys[1].public) && text.contains("10.0.1.0/24"),
        "{text}"
    );
}

/// `syncconf` keeps the session of a peer.
#[test]
fn syncconf_does_not_disturb_a_session() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let tunnel = Tunnel::new(&net, &Setup::default());
    pings(&net.a, B4, 2);
    let before = tunnel.at_a();
    let shown = net.a.output("wg", ["showconf", WG]).unwrap();
    let words = ["syncconf", WG, "/dev/stdin"];
    net.a
        .command("wg")
        .args(words)
        .output_with_input(&shown)
        .unwrap();
    pings(&net.a, B4, 2);
    let after = tunnel.at_a();
    assert_eq!(before.latest_handshake, after.latest_handshake);
    assert!(after.received > before.received);
}

#[test]
fn single_ranges_go_by_the_protocols_own_words() {
    if !ready() {
        return;
    }
    let host = Host::private("host").unwrap();
    let program = start(&host);
    let keys = Keys::generate(&host).unwrap();
    let words = [
        "peer",
        &keys.public,
        "allowed-ips",
        "10.0.0.0/8,10.1.0.0/16,fd00::/8",
    ];
    program.set(&words).unwrap();
    let key = hex(&keys.public);
    let set = |lines: &str| uapi(&host, WG, &format!("set=1\npublic_key={key}\n{lines}\n"));
    assert_eq!(set("allowed_ip=-10.0.0.0/8\n"), "errno=0\n\n");
    let mut seen = peer(&program, &keys).allowed_ips;
    seen.sort();
    assert_eq!(seen, ["10.1.0.0/16", "fd00::/8"]);
    // Removing a range that the peer does not have is not an error.
    assert_eq!(
        set("update_only=true\nallowed_ip=-192.0.2.0/24\n"),
        "errno=0\n\n"
    );
    assert_eq!(
        set("allowed_ip=-fd00::/8\nallowed_ip=192.0.2.0/24\n"),
        "errno=0\n\n"
    );
    let mut seen = peer(&program, &keys).allowed_ips;
    seen.sort();
    assert_eq!(seen, ["10.1.0.0/16", "192.0.2.0/24"]);
    // update_only does not create a peer.
    let stranger = hex(&Keys::generate(&host).unwrap().public);
    let request = format!("set=1\npublic_key={stranger}\nupdate_only=true\n\n");
    assert_eq!(uapi(&host, WG, &request), "errno=0\n\n");
    assert_eq!(program.status().unwrap().peers.len(), 1);
}

#[test]
fn wrong_requests_are_answered_and_change_nothing() {
    if !ready() {
        return;
    }
    let host = Host::private("host").unwrap();
    let mut program = start(&host);
    program.set(&["listen-port", "99"]).unwrap();
    let key = "11".repeat(32);
    let long = "x".repeat(5000);
    let requests = [
        "set=1\nno_such_key=1\n\n".to_owned(),
        "set=1\nlisten_port=70000\n\n".to_owned(),
        "set=1\nlisten_port=100\nprivate_key=12\n\n".to_owned(),
        "set=1\nlisten_port\n\n".to_owned(),
        format!("set=1\npublic_key={key}\nno_such_key=1\n\n"),
        format!("set=1\npublic_key={key}\nendpoint=example.com:1\n\n"),
        format!("set=1\npublic_key={key}\nallowed_ip=10.0.0.0/33\n\n"),
        format!("set=1\npublic_key={key}\npersistent_keepalive_interval=-1\n\n"),
        format!("set=1\n{long}=1\n\n"),
        "get=1\nlisten_port=1\n\n".to_owned(),
    ];
    for request in requests {
        let answer = uapi(&host, WG, &request);
        let errno = answer
            .strip_prefix("errno=")
            .and_then(|rest| rest.trim().parse::<i32>().ok());
        // Implementations disagree about the sign: wireguard-go writes the kernel's return value.
        assert!(
            errno.is_some_and(|errno| errno != 0),
            "{request:?}: {answer:?}"
        );
    }
    // Half a request, and a connection without any request.
    host.run(|| {
        use std::io::Write;
        for text in ["set=1\nlisten_port=5", "\n", "\0\0\0", "hello\n\n"] {
            let path = format!("/var/run/wireguard/{WG}.sock");
            let mut stream = std::os::unix::net::UnixStream::connect(path).unwrap();
            stream.write_all(text.as_bytes()).unwrap();
        }
    })
    .unwrap();
    let status = program.status().unwrap();
    assert_eq!((status.listen_port, status.peers.len()), (99, 0));
    assert!(program.process.try_wait().unwrap().is_none());
}

/// A thousand requests on one connection, and sixty silent connections while `wg` waits for service.
#[test]
fn silent_clients_do_not_stop_others_for_good() {
    if !ready() {
        return;
    }
    let host = Host::private("host").unwrap();
    let program = start(&host);
    let path = format!("/var/run/wireguard/{WG}.sock");
    let silent: Vec<_> = host
        .run(|| {
            (0..60)
                .map(|_| std::os::unix::net::UnixStream::connect(&path))
                .collect()
        })
        .unwrap();
    drop(silent);
    until("wg is served again", || program.status().is_ok());
}

#[test]
fn keys_ports_and_secrets_change_while_traffic_runs() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let tunnel = Tunnel::new(
        &net,
        &Setup {
            preshared: true,
            ..Setup::default()
        },
    );
    pings(&net.a, B4, 2);

    // Changes the caller's port: the other end follows.
    tunnel.a.set(&["listen-port", "2001"]).unwrap();
    pings(&net.a, B4, 2);
    assert_eq!(tunnel.at_b().endpoint.unwrap().port(), 2001);
    // Changes the port of the end that received the handshake: its next packet announces the port.
    tunnel.b.set(&["listen-port", "2002"]).unwrap();
    pings(&net.b, A4, 2);
    assert_eq!(tunnel.at_a().endpoint.unwrap().port(), 2002);
    pings(&net.a, B4, 2);

    // Changes the preshared key at both ends: the session continues, and the next one needs the new key.
    let psk = PresharedKey::generate(&net.a).unwrap();
    for (end, other) in [(&tunnel.a, &tunnel.keys_b), (&tunnel.b, &tunnel.keys_a)] {
        let words = ["peer", &other.public, "preshared-key", "/dev/stdin"];
        end.set_with_input(&words, &psk.0).unwrap();
    }
    pings(&net.a, B4, 2);

    // Changes the private key of A. Its session is over, so the answers need a handshake with the new key (and the new
    // preshared key).
    let fresh = Keys::generate(&net.a).unwrap();
    let set_key = ["private-key", "/dev/stdin"];
    tunnel.a.set_with_input(&set_key, &fresh.private).unwrap();
    no_ping(&net.a, B4);
    let old = ["peer", &tunnel.keys_a.public, "remove"];
    tunnel.b.set(&old).unwrap();
    let mut a_of_b = WgPeer::new(&fresh.public).allow(ip(A4), 32);
    a_of_b.preshared_key = Some(psk);
    a_of_b.endpoint = Some((net.link.a4(), 2001).into());
    let b = interface(&tunnel.keys_b, 2002, vec![a_of_b]);
    tunnel.b.configure(&b).unwrap();
    pings(&net.b, A4, 2);
    pings(&net.a, B4, 2);
    assert!(peer(&tunnel.b, &fresh).latest_handshake.is_some());
    assert_eq!(tunnel.a.status().unwrap().public_key, fresh.public);
}

/// A peer with the interface's own key is ignored: `wg` lists of a whole network may contain oneself.
#[test]
fn own_key_is_no_peer() {
    if !ready() {
        return;
    }
    let host = Host::private("host").unwrap();
    let program = start(&host);
    let keys = Keys::generate(&host).unwrap();
    program.set(&["peer", &keys.public]).unwrap();
    let set_key = ["private-key", "/dev/stdin"];
    program.set_with_input(&set_key, &keys.private).unwrap();
    assert_eq!(program.status().unwrap().peers, []);
    program.set(&["peer", &keys.public]).unwrap();
    assert_eq!(program.status().unwrap().peers, []);
}

/// Enabling a peer's keepalive sends at once, and then repeatedly without any traffic. The protocol crate tests the
/// times on a virtual clock.
#[test]
fn persistent_keepalive_sends() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let tunnel = Tunnel::new(&net, &Setup::default());
    assert_eq!(tunnel.at_b().received, 0);
    let words = ["peer", &tunnel.keys_b.public, "persistent-keepalive", "1"];
    tunnel.a.set(&words).unwrap();
    // A handshake of 148 bytes and three empty packets of 32.
    until("three keepalives", || {
        tunnel.at_b().received >= 148 + 3 * 32
    });
    let off = ["peer", &tunnel.keys_b.public, "persistent-keepalive", "off"];
    tunnel.a.set(&off).unwrap();
    assert!(tunnel.at_b().latest_handshake.is_some());
    tunnel.settled();
}

/// Datagrams carry the firewall mark, in both families.
#[test]
fn datagrams_carry_the_mark() {
    if !ready() || lab::require(tools::find("nft")).is_none() {
        return;
    }
    for v6 in [false, true] {
        let net = Net::new();
        let rules = "table inet seen {\n counter marked { }\n counter plain { }\n\
             chain out { type filter hook output priority 0;\n\
             udp dport 1002 meta mark 0x55 counter name marked\n\
             udp dport 1002 meta mark 0 counter name plain\n }\n }\n";
        if lab::require(net.a.nft(rules)).is_none() {
            return;
        }
        let tunnel = Tunnel::new(
            &net,
            &Setup {
                v6,
                ..Setup::default()
            },
        );
        let count = |name: &str| counter(&net.a, "seen", name);
        tunnel.a.set(&["fwmark", "0x55"]).unwrap();
        pings(&net.a, B6, 2);
        assert!(count("marked") >= 2 && count("plain") == 0);
        // A reopened port keeps the mark.
        tunnel.a.set(&["listen-port", "2001"]).unwrap();
        pings(&net.a, B6, 2);
        assert_eq!(count("plain"), 0);
        tunnel.a.set(&["fwmark", "off"]).unwrap();
        pings(&net.a, B6, 2);
        assert!(count("plain") >= 2);
    }
}

fn counter(host: &Host, table: &str, name: &str) -> u64 {
    let text = host
        .output("nft", ["-j", "list", "counter", "inet", table, name])
        .unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let all = json["nftables"].as_array().unwrap();
    all.iter()
        .find_map(|entry| entry["counter"]["packets"].as_u64())
        .unwrap()
}

/// The kernel's WireGuard sets no link-local address: packets to it would match no peer, and `wg-quick save` would
/// store it.
#[test]
fn interface_gets_no_address_by_itself() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let peer = millrace()
        .start(&net.a, WG, &PeerOptions::default())
        .unwrap();
    for _ in 0..2 {
        peer.bring_up(&[], 1420).unwrap();
        let addresses = net.a.output("ip", ["-o", "addr", "show", "dev", WG]);
        assert_eq!(addresses.unwrap(), "");
        net.a.set_up(WG, false).unwrap();
    }
}
