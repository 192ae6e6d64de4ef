//! Compares the text for people line by line.

use super::*;

fn example() -> Status {
    let peer = |key: &str, age| PeerStatus {
        public_key: key.to_owned(),
        latest_handshake_age: age,
        ..PeerStatus::default()
    };
    let mut status = Status {
        interface: "wg0".to_owned(),
        protocol: "wireguard".to_owned(),
        public_key: Some("pub=".to_owned()),
        listen_port: 51820,
        fwmark: 0xca6c,
        mtu: 1420,
        mtu_reason: Some("eth0 1500 less 80".to_owned()),
        workers: 2,
        peers: vec![peer("never=", None), peer("old=", Some(3723))],
        ..Status::default()
    };
    status.peers.push(PeerStatus {
        endpoint: Some("[2001:db8::1]:51820".to_owned()),
        allowed_ips: vec!["10.0.0.0/24".to_owned(), "::/0".to_owned()],
        rx_bytes: 1372,
        tx_bytes: 5 << 30,
        rx_rate: Some(940_000_000),
        tx_rate: Some(12),
        keepalive: Some(25),
        ..peer("new=", Some(1))
    });
    let plane = &mut status.dataplane;
    plane.cipher = "chacha20-poly1305".to_owned();
    plane.crypto_backend = "simd".to_owned();
    plane.backend = "aws-lc".to_owned();
    for (name, batch_ns) in [("aws-lc", Some(290)), ("portable", None)] {
        plane.measured.push(MeasuredStatus {
            name: name.to_owned(),
            batch_len: 352,
            batch_ns,
            ..MeasuredStatus::default()
        });
    }
    plane.rungs.insert("tun-gso".to_owned(), "on".to_owned());
    plane
        .rungs
        .insert("udp-gso".to_owned(), "off (setting)".to_owned());
    plane.drops.insert("no peer".to_owned(), 3);
    plane.drops.insert("replay".to_owned(), 0);
    plane.outbound = PipelineStatus {
        batches: 2,
        packets: 90,
        packets_per_batch: 45.0,
        bytes: 126_000,
        super_packets: 2,
        syscalls: 4,
        parallel_batches: 1,
        ..PipelineStatus::default()
    };
    status
}

#[test]
fn the_text_for_people() {
    let expected = "\
interface: wg0
  public key: pub=
  listening port: 51820
  fwmark: 0xca6c
  mtu: 1420 (eth0 1500 less 80)

peer: new=
  endpoint: [2001:db8::1]:51820
  allowed ips: 10.0.0.0/24, ::/0
  latest handshake: 1 second ago
  transfer: 1.34 KiB received, 5.00 GiB sent
  rate: 940.00 Mbit/s receiving, 12 bit/s sending
  persistent keepalive: every 25 seconds

peer: old=
  allowed ips: (none)
  latest handshake: 1 hour, 2 minutes, 3 seconds ago

peer: never=
  allowed ips: (none)
  latest handshake: never

data plane: 2 workers
  cipher: chacha20-poly1305 (simd: aws-lc)
  measured: aws-lc 290 ns, portable far behind per packet of 352 bytes in a batch
  tun-gso: on
  udp-gso: off (setting)
  outbound: 90 packets, 123.05 KiB in 2 batches (45.0 packets each, 1 shareable), 2 super-packets, 4 system calls
  inbound: idle
  dropped: 3 no peer
";
    assert_eq!(render(&example(), Paint::PLAIN), expected);
}

#[test]
fn an_openvpn_server_shows_its_clients() {
    let mut status = Status {
        interface: "tun0".to_owned(),
        protocol: "openvpn".to_owned(),
        role: Some("server".to_owned()),
        listen_port: 1194,
        listen_tcp: vec![443],
        addresses: vec!["10.8.0.1".to_owned()],
        mtu: 1500,
        workers: 1,
        peers: vec![PeerStatus {
            name: Some("branch\u{1b}[31m".to_owned()),
            version: Some("2.6.14 linux".to_owned()),
            username: Some("anna".to_owned()),
            client_id: Some(3),
            transport: Some("udp".to_owned()),
            endpoint: Some("192.0.2.7:40000".to_owned()),
            allowed_ips: vec!["10.8.0.2/32".to_owned()],
            cipher: Some("AES-256-GCM".to_owned()),
            crypto_backend: Some("simd".to_owned()),
            backend: Some("aws-lc".to_owned()),
            rx_bytes: 1,
            ..PeerStatus::default()
        }],
        ..Status::default()
    };
    status.refused.insert("auth_failed".to_owned(), 2);
    status.refused.insert("replayed".to_owned(), 0);
    let expected = "\
interface: tun0
  protocol: openvpn server
  addresses: 10.8.0.1
  listening port: 1194
  listening tcp port: 443
  mtu: 1500

client: branch\\u{1b}[31m
  endpoint: 192.0.2.7:40000 (udp)
  version: 2.6.14 linux
  user: anna
  allowed ips: 10.8.0.2/32
  cipher: AES-256-GCM (simd: aws-lc)
  transfer: 1 B received, 0 B sent

data plane: 1 worker
  outbound: idle
  inbound: idle
  refused: 2 auth_failed
";
    assert_eq!(render(&status, Paint::PLAIN), expected);
}

#[test]
fn a_named_peer_has_its_key_below() {
    let mut status = example();
    let key = status.peers[0].public_key.clone();
    status.peers[0].name = Some("store-7".to_owned());
    let text = render(&status, Paint::PLAIN);
    let named = format!("peer: store-7\n  public key: {key}\n");
    assert!(text.contains(&named), "{text}");
    let without = render(&example(), Paint::PLAIN);
    assert_eq!(without.replace(&format!("peer: {key}\n"), &named), text);
}

#[test]
fn colours_only_where_asked_for() {
    assert!(!render(&example(), Paint::PLAIN).contains('\x1b'));
    assert!(
        render(
            &example(),
            Paint {
                on: true,
                wraps: true
            }
        )
        .contains("\x1b[1;32minterface\x1b[0m: wg0")
    );
}

#[test]
fn lines_fit_a_terminal() {
    let paint = Paint {
        on: false,
        wraps: true,
    };
    let text = render(&example(), paint);
    assert!(text.lines().all(|line| line.len() <= COLUMNS), "{text}");
    let words =
        |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
    assert_eq!(words(&text), words(&render(&example(), Paint::PLAIN)));
}

#[test]
fn what_is_left_of_a_line_is_told() {
    let mut line = LineStatus {
        name: "lte".to_owned(),
        state: "up".to_owned(),
        reason: "the peer has answered on it".to_owned(),
        cap: Some(CapStatus {
            cap_bytes: 20_000_000_000,
            used_bytes: 15_200_000_000,
            left_bytes: 4_800_000_000,
            renews: Some("2026-12-14".to_owned()),
        }),
        ..LineStatus::default()
    };
    assert_eq!(
        line_text(&line, Paint::PLAIN),
        "up, 15.20 GB of 20.00 GB used, 4.80 GB left until 2026-12-14: the peer has answered on it"
    );
    line.cap = Some(CapStatus::default());
    assert_eq!(
        line_text(&line, Paint::PLAIN),
        "up, 0 B of 0 B used, 0 B left: the peer has answered on it"
    );
}

#[test]
fn a_server_that_cannot_be_heard_is_told() {
    let mut status = Status {
        interface: "tun0".to_owned(),
        protocol: "openvpn".to_owned(),
        role: Some("client".to_owned()),
        state: Some("silent".to_owned()),
        mtu_reason: Some("the peer's path".to_owned()),
        peers: vec![PeerStatus {
            name: Some("office's \u{1b}[2J".to_owned()),
            state: Some("silent".to_owned()),
            reason: Some("no packet from it for 14 s".to_owned()),
            last_heard_age: Some(14),
            latest_handshake_age: Some(3000),
            ..PeerStatus::default()
        }],
        ..Status::default()
    };
    let text = render(&status, Paint::PLAIN);
    for line in [
        "protocol: openvpn client silent\n",
        "mtu: 0 (the peer's path)\n",
        "server: office's \\u{1b}[2J\n",
        "state: silent: no packet from it for 14 s\n",
        "last heard: 14 seconds ago\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    status.state = Some("no carrier".to_owned());
    assert!(render(&status, Paint::PLAIN).contains("openvpn client, no carrier\n"));
}

#[test]
fn a_new_file_that_is_not_in_use_is_told() {
    let mut status = example();
    status.peers[0].replaces = Some("old=".to_owned());
    let text = render(&status, Paint::PLAIN);
    let line = "peer: never=\n  allowed ips: (none)\n  latest handshake: never: this new file is pending\n";
    assert!(text.contains(line), "{text}");
}

#[test]
fn what_the_tunnel_does_not_have_is_told() {
    let status = Status {
        warnings: vec!["cannot add the tunnel's route 10.20.0.0/16: File exists".to_owned()],
        waiting_for: Some("an address of vpn.example:1".to_owned()),
        ..example()
    };
    let text = render(&status, Paint::PLAIN);
    for told in [
        "\n  warning: cannot add the tunnel's route 10.20.0.0/16: File exists\n",
        "\n  state: not up yet: waiting for an address of vpn.example:1\n",
    ] {
        assert!(text.contains(told), "{text}");
    }
}

#[cfg(feature = "server")]
#[test]
fn a_client_s_certificate_that_ends_soon_is_named() {
    let now = unix_now();
    for (left, shown) in [
        (4 * 86_400 + 60, "\n  certificate end: in 4 days\n"),
        (31 * 86_400, ""),
    ] {
        let peer = PeerStatus {
            name: Some("branch2".to_owned()),
            expires_unix: Some(now + left),
            ..PeerStatus::default()
        };
        let status = Status {
            protocol: "openvpn".to_owned(),
            peers: vec![peer],
            ..Status::default()
        };
        let text = render(&status, Paint::PLAIN);
        assert!(text.contains(shown), "{text}");
        assert_eq!(text.contains("certificate end"), !shown.is_empty());
    }
    assert_eq!(end_text(now, now + 1).unwrap(), "it has ended");
}
