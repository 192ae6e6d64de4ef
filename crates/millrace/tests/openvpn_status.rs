//! `millrace status` of OpenVPN clients and servers, in the same schema as WireGuard's.

use lab::acceptance::openvpn::{Ends, Pair, ready};
use lab::acceptance::{Net, PROGRAM, pings, status_of, until};
use lab::openvpn::Setup;
use nix::sys::signal::Signal;
use std::net::UdpSocket;

#[test]
fn openvpn_is_shown_at_both_ends() {
    if !ready() {
        return;
    }
    for transport in ["udp", "tcp"] {
        let net = Net::new();
        let mut setup = Setup::default();
        if transport == "tcp" {
            setup.server.remove("proto").line("proto tcp-server");
            setup.client.remove("proto").line("proto tcp-client");
        }
        let ends = Ends::new(&net, &setup, Pair::Both.programs(false));
        pings(&net.a, &ends.server4, 10);
        let of_server = || status_of(&net.b, ends.server.interface());
        let of_client = || status_of(&net.a, ends.client.interface());
        // The counter rises only after a packet was sent.
        until("ten pings are counted", || {
            [of_server(), of_client()].iter().all(|status| {
                ["outbound", "inbound"]
                    .iter()
                    .all(|pipeline| status["dataplane"][pipeline]["packets"].as_u64() >= Some(10))
            })
        });
        let (server, client) = (of_server(), of_client());
        for (status, role) in [(&server, "server"), (&client, "client")] {
            assert_eq!(status["protocol"], "openvpn");
            assert_eq!(status["role"], role);
            assert!(status["workers"].as_u64() >= Some(1) && status["mtu"].as_u64() >= Some(1280));
            assert!(status["uptime_ms"].as_u64().is_some());
            let peers = status["peers"].as_array().unwrap();
            assert_eq!(peers.len(), 1, "{status}");
            let peer = &peers[0];
            assert_eq!(peer["transport"], transport);
            assert_eq!(peer["cipher"], "AES-256-GCM");
            assert!(
                ["portable", "simd", "accelerator"]
                    .contains(&peer["crypto_backend"].as_str().unwrap())
            );
            assert!(!peer["backend"].as_str().unwrap().is_empty());
            for count in [
                "rx_bytes",
                "tx_bytes",
                "connected_unix",
                "expires_unix",
                "last_handshake_unix",
            ] {
                assert!(peer[count].as_u64() > Some(1000), "{count}: {peer}");
            }
            for reason in [
                "tls_failed",
                "auth_failed",
                "not_authentic",
                "malformed",
                "replayed",
            ] {
                assert_eq!(status["refused"][reason], 0, "{reason}: {status}");
            }
            assert!(status["dataplane"]["drops"].as_object().unwrap().len() > 10);
        }
        assert_eq!(client["state"], "connected");
        assert_eq!(client["peers"][0]["name"], "server");
        assert_eq!(client["addresses"][0], "10.8.0.2");
        assert_eq!(server["peers"][0]["name"], "client");
        assert_eq!(server["peers"][0]["client_id"], 0);
        assert_eq!(server["peers"][0]["allowed_ips"][0], "10.8.0.2/32");
        assert_eq!(server["addresses"][0], "10.8.0.1");
        let rungs = server["dataplane"]["rungs"].as_object().unwrap();
        assert!(rungs.contains_key("tun-gso"), "{server}");
        assert_eq!(
            rungs.contains_key("udp-gso"),
            transport == "udp",
            "{server}"
        );

        // The text for people, with rates.
        let text = net.b.output(PROGRAM, ["status"]).unwrap();
        for wanted in [
            "openvpn server",
            "client: client",
            "AES-256-GCM",
            "rate: ",
            transport,
        ] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
    }
}

/// The status counts datagrams from strangers that the server refuses.
#[test]
fn strangers_are_counted() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let ends = Ends::new(&net, &Setup::default(), Pair::Both.programs(false));
    let status = || status_of(&net.b, ends.server.interface());
    let port = u16::try_from(status()["listen_port"].as_u64().unwrap()).unwrap();
    let to = (net.link.b4(), port);
    net.a
        .run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            // A control packet that begins no session, and a truncated one.
            let mut control = vec![0x20; 80];
            control[0] = 4 << 3;
            socket.send_to(&control, to)?;
            socket.send_to(&control[..5], to)?;
            std::io::Result::Ok(())
        })
        .unwrap()
        .unwrap();
    until("both are counted", || {
        let status = status();
        let refused = status["refused"].as_object().unwrap();
        refused
            .values()
            .filter_map(serde_json::Value::as_u64)
            .sum::<u64>()
            >= 2
    });
    drop(ends);
    assert_eq!(
        net.b.output(PROGRAM, ["status", "--json"]).unwrap().trim(),
        "[]"
    );
}

/// When the link goes down, DHCP clients remove the addresses, and the remaining routes lead into the tunnel.
#[test]
fn a_client_whose_uplink_lost_its_address_says_so() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let mut setup = Setup::default();
    setup.server.line("keepalive 1 600");
    setup.client.line("route 0.0.0.0 128.0.0.0");
    setup.client.line("route 128.0.0.0 128.0.0.0");
    let ends = Ends::new(&net, &setup, Pair::Both.programs(false));
    let stands = |wanted: &str| {
        let status = || status_of(&net.a, ends.client.interface());
        until(wanted, || status()["state"] == wanted);
        status()["peers"][0].clone()
    };
    stands("connected");
    let address = format!("{}/24", net.link.a4());
    net.a
        .output("ip", ["address", "del", &address, "dev", "eth0"])
        .unwrap();
    let peer = stands("no carrier");
    let reason = format!("no route to {} outside the tunnel", net.link.b4());
    assert_eq!(peer["reason"], reason, "{peer}");
    net.a
        .output("ip", ["address", "add", &address, "dev", "eth0"])
        .unwrap();
    stands("connected");
}

/// The status shows an unplugged cable and a frozen server before the session times out.
#[test]
fn a_client_whose_server_cannot_be_heard_says_so() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let mut setup = Setup::default();
    setup.server.line("keepalive 1 600");
    let ends = Ends::new(&net, &setup, Pair::Both.programs(false));
    let status = || status_of(&net.a, ends.client.interface());
    let stands = |wanted: &str| {
        until(wanted, || status()["state"] == wanted);
        status()["peers"][0].clone()
    };
    stands("connected");
    until("a ping of the server", || {
        let peer = status()["peers"][0].clone();
        peer["last_heard_age"].as_u64() < peer["latest_handshake_age"].as_u64()
    });

    net.b.set_up("eth0", false).unwrap();
    let peer = stands("no carrier");
    assert_eq!(peer["state"], "no carrier");
    let reason = "eth0 has no carrier";
    assert_eq!(peer["reason"], reason, "{peer}");
    net.b.set_up("eth0", true).unwrap();
    stands("connected");

    ends.server.process.signal(Signal::SIGSTOP).unwrap();
    let peer = stands("silent");
    assert!(peer["last_heard_age"].as_u64() >= Some(4), "{peer}");
    let text = net.a.output(PROGRAM, ["status"]).unwrap();
    for wanted in [
        "openvpn client silent",
        "state: silent: no packet",
        "last heard: ",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    ends.server.process.signal(Signal::SIGCONT).unwrap();
    stands("connected");
}
