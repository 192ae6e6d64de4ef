//! Floods, garbage and recorded datagrams, which any sender can send to the port: each costs no more than a drop and a
//! counter.

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use lab::acceptance::forged::{
    Flood, PAYLOAD, Pace, Random, anonymous_memory, datagrams_received, header_checksum, initiation,
};
use lab::acceptance::{
    A4, B4, Net, PORT_A, PORT_B, Setup, Tunnel, drops, key_bytes, pings, ready, until,
};
use lab::{Host, Link, LinkOptions, Offloads};
use netio::packet::{FrameBatch, PacketSocket};

const ETHERNET: usize = 14;
const IP: usize = 20;
/// Where an initiation's first MAC begins.
const MAC1_AT: usize = 148 - 32;

/// Thousands of initiations a second from as many addresses, with right and wrong MACs: a pinging peer loses nothing,
/// and a new peer gets its handshake.
#[test]
fn flood_of_handshakes_stops_no_peer() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let attacker = Host::new("attacker").unwrap();
    let link = LinkOptions::numbered(3);
    Link::new(&attacker, "eth0", &net.b, "eth1", &link).unwrap();
    let tunnel = Tunnel::new(&net, &Setup::default());
    pings(&net.a, B4, 1);
    let memory = || anonymous_memory(&tunnel.b.process);
    let before = memory();
    let arrived = datagrams_received(&net.b)[0];

    let public_key = key_bytes(&tunnel.keys_b.public);
    let mut number = 0;
    let next = move |random: &mut Random| {
        let mut message = initiation(random, &public_key);
        number += 1;
        if number % 4 == 0 {
            message[MAC1_AT] ^= 1;
        }
        message
    };
    let (from, to) = ((&attacker, "eth0"), (&net.b, "eth1"));
    // The rate of an 8 Mbit/s link: at higher rates one socket buffer overflows, whatever the program does.
    let pace = Pace::New(Duration::from_millis(5));
    let flood = Flood::begin(from, to, (vec![link.b4()], PORT_B), pace, next);
    until("the flood has begun", || flood.sent() > 2000);
    pings(&net.a, B4, 500);
    // A new handshake needs a cookie if its server is under load.
    let peer = &tunnel.keys_b.public;
    let to = format!("{}:{PORT_B}", net.link.b4());
    tunnel.a.set(&["peer", peer, "remove"]).unwrap();
    let words = ["peer", peer, "endpoint", &to, "allowed-ips", "10.0.0.2/32"];
    tunnel.a.set(&words).unwrap();
    lab::acceptance::reaches(&net.a, B4);
    let sent = flood.sent();
    drop(flood);
    // The flood reached the program.
    let arrived = datagrams_received(&net.b)[0] - arrived;
    assert!(arrived >= 2000, "{arrived}");
    let grown = memory().saturating_sub(before);
    assert!(
        grown < 4 << 20,
        "{grown} bytes more after {sent} initiations"
    );
    assert_eq!(tunnel.b.status().unwrap().peers.len(), 1);
}

/// Datagrams of every wrong length and kind change nothing.
#[test]
fn rubbish_changes_nothing() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let mut tunnel = Tunnel::new(&net, &Setup::default());
    pings(&net.a, B4, 2);
    let before = tunnel.settled();
    let ends = (tunnel.at_a().endpoint, tunnel.at_b().endpoint);
    let mut random = Random(3);
    for (from, to, port) in [
        (&net.a, net.link.b4(), PORT_B),
        (&net.a, net.link.b6(), PORT_B),
        (&net.b, net.link.a4(), PORT_A),
    ] {
        let any: std::net::SocketAddr = match to {
            IpAddr::V4(_) => ([0; 4], 0).into(),
            IpAddr::V6(_) => ([0; 16], 0).into(),
        };
        let socket = from.run(|| UdpSocket::bind(any)).unwrap().unwrap();
        let send = |bytes: &[u8]| {
            // This host's kernel may refuse to send it.
            let _ = socket.send_to(bytes, (to, port));
        };
        for length in (0..200).chain([1471, 1472, 1473, 2000, 9000, 40_000, 65_000, 65_507]) {
            let mut bytes = vec![0; length];
            random.fill(&mut bytes);
            send(&bytes);
            for kind in 0..6 {
                if let Some(head) = bytes.get_mut(..4) {
                    head.copy_from_slice(&[kind, 0, 0, 0]);
                }
                send(&bytes);
                if let Some(reserved) = bytes.get_mut(3) {
                    *reserved = 1;
                }
                send(&bytes);
            }
        }
    }
    until("the rubbish is counted", || {
        drops(&net.b, "not_ours") > 100 && drops(&net.b, "no_session") > 100
    });
    assert_eq!(tunnel.settled(), before);
    assert_eq!((tunnel.at_a().endpoint, tunnel.at_b().endpoint), ends);
    for end in [&mut tunnel.a, &mut tunnel.b] {
        assert!(end.process.try_wait().unwrap().is_none());
    }
    pings(&net.a, B4, 3);
    pings(&net.b, A4, 3);
}

/// Replays every datagram sent to B: unchanged, from another address, and with one bit flipped.
#[test]
fn recorded_datagrams_move_neither_counters_nor_endpoint() {
    if !ready() {
        return;
    }
    // Frames as on a wire, with their checksums.
    let net = Net::with(LinkOptions::numbered(1).offloads(Offloads::Off));
    let tap = net.b.run(|| PacketSocket::open("eth0")).unwrap().unwrap();
    let tunnel = Tunnel::new(&net, &Setup::default());
    pings(&net.a, B4, 10);
    let before = tunnel.settled();
    let endpoint = tunnel.at_b().endpoint;

    let mut batch = FrameBatch::new(2048);
    let mut recorded: Vec<Vec<u8>> = Vec::new();
    while tap.receive(&mut batch).unwrap() > 0 {
        let ours = batch.frames().filter(|received| {
            let frame = received.frame;
            frame.len() > PAYLOAD
                && frame[12..14] == [0x08, 0x00]
                && frame[ETHERNET + 9] == 17
                && frame[ETHERNET + IP + 2..ETHERNET + IP + 4] == PORT_B.to_be_bytes()
        });
        recorded.extend(ours.map(|received| received.frame.to_vec()));
    }
    let of_kind = |kind: u8| {
        recorded
            .iter()
            .filter(|frame| frame[PAYLOAD] == kind)
            .count()
    };
    assert_eq!(of_kind(1), 1);
    let data = of_kind(4) as u64;
    assert!(data >= 10, "{data}");

    let injector = net.a.run(|| PacketSocket::open("eth0")).unwrap().unwrap();
    let send = |frames: &[Vec<u8>]| {
        for frame in frames {
            until("room for a frame", || injector.send(frame).is_ok());
        }
    };
    send(&recorded);
    send(&recorded);
    let elsewhere: Vec<Vec<u8>> = recorded
        .iter()
        .map(|frame| {
            let mut frame = frame.clone();
            frame[ETHERNET + 15] = 99;
            frame[ETHERNET + IP..ETHERNET + IP + 2].copy_from_slice(&7777_u16.to_be_bytes());
            frame[ETHERNET + IP + 6..ETHERNET + IP + 8].fill(0);
            header_checksum(&mut frame);
            frame
        })
        .collect();
    send(&elsewhere);
    until("all replays are counted", || {
        drops(&net.b, "duplicate") >= 3 * data
    });

    // Flips a bit of the last byte, which belongs to the tag, with an unused counter.
    let forged: Vec<Vec<u8>> = elsewhere
        .iter()
        .filter(|frame| frame[PAYLOAD] == 4)
        .map(|frame| {
            let mut frame = frame.clone();
            frame[PAYLOAD + 8 + 4] = 1;
            frame
        })
        .collect();
    send(&forged);
    until("all forgeries are counted", || {
        drops(&net.b, "not_authentic") >= data
    });

    assert_eq!(tunnel.settled(), before);
    assert_eq!(tunnel.at_b().endpoint, endpoint);
    pings(&net.a, B4, 3);
}

/// The kernel refuses to send: the program survives and continues when sending works again.
#[test]
fn refused_datagrams_are_counted_and_survived() {
    if !ready() || lab::require(lab::tools::find("nft")).is_none() {
        return;
    }
    let net = Net::new();
    let mut tunnel = Tunnel::new(&net, &Setup::default());
    pings(&net.a, B4, 1);
    let rules = format!(
        "table inet closed {{ chain out {{ type filter hook output priority 0;\n\
         udp dport {PORT_B} reject\n }}\n }}\n"
    );
    if lab::require(net.a.nft(&rules)).is_none() {
        return;
    }
    lab::acceptance::no_ping(&net.a, B4);
    until("the refusals are counted", || {
        drops(&net.a, "send_failed") > 0
    });
    net.a.nft("delete table inet closed\n").unwrap();
    lab::acceptance::reaches(&net.a, B4);
    assert!(tunnel.a.process.try_wait().unwrap().is_none());
}
