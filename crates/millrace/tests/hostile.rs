//! Any sender can send these to the port: floods, rubbish, and datagrams that were recorded. None of it costs more than
//! a drop and a counter.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use acceptance::{A4, B4, Net, PORT_A, PORT_B, Setup, Tunnel, drops, hex, pings, ready, until};
use lab::{Host, Link, LinkOptions, Offloads};
use netio::packet::{FrameBatch, NOTE_SIZE, PacketSocket};

const ETHERNET: usize = 14;
const IP: usize = 20;
const UDP: usize = 8;
/// Length of a handshake initiation, and of what its first MAC covers.
const INITIATION: usize = 148;
const MAC1_AT: usize = INITIATION - 32;

fn mac_of(host: &Host, interface: &str) -> [u8; 6] {
    let link = host.netlink().unwrap().link(interface).unwrap();
    link.mac.try_into().unwrap()
}

/// A frame with a UDP datagram over IPv4 whose source is arbitrary.
fn frame(
    macs: [[u8; 6]; 2],
    from: (Ipv4Addr, u16),
    to: (Ipv4Addr, u16),
    payload: &[u8],
) -> Vec<u8> {
    let mut frame = Vec::with_capacity(ETHERNET + IP + UDP + payload.len());
    frame.extend(macs[1]);
    frame.extend(macs[0]);
    frame.extend([0x08, 0x00]);
    let length = (IP + UDP + payload.len()) as u16;
    frame.extend([0x45, 0]);
    frame.extend(length.to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend(from.0.octets());
    frame.extend(to.0.octets());
    frame.extend(from.1.to_be_bytes());
    frame.extend(to.1.to_be_bytes());
    frame.extend((length - IP as u16).to_be_bytes());
    // No checksum, which IPv4 permits.
    frame.extend([0, 0]);
    frame.extend(payload);
    header_checksum(&mut frame);
    frame
}

fn header_checksum(frame: &mut [u8]) {
    let header = &mut frame[ETHERNET..ETHERNET + IP];
    header[10..12].fill(0);
    let sum = acceptance::internet_checksum(header);
    header[10..12].copy_from_slice(&sum);
}

/// Random bytes that can be made again.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = (self.next() >> 32) as u8;
        }
    }
}

/// An initiation that only a look into it tells from a real one: any sender that knows a public key can make
/// its first MAC.
fn initiation(random: &mut Random, public_key: &[u8; 32]) -> [u8; INITIATION] {
    let mut message = [0; INITIATION];
    random.fill(&mut message);
    message[..4].copy_from_slice(&[1, 0, 0, 0]);
    let key = crypto::blake2s::hash(&[b"mac1----", public_key]);
    let mac = crypto::blake2s::mac(&key, &[&message[..MAC1_AT]]);
    message[MAC1_AT..MAC1_AT + 16].copy_from_slice(&mac);
    message[MAC1_AT + 16..].fill(0);
    message
}

/// The raw bytes of a key in base64.
fn key_bytes(base64: &str) -> [u8; 32] {
    let digits = hex(base64);
    let mut bytes = [0; 32];
    for (byte, digits) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap();
    }
    bytes
}

/// UDP datagrams that programs of a host have taken from their sockets, by the kernel's count.
fn datagrams_received(host: &Host) -> u64 {
    let text = host
        .run(|| std::fs::read_to_string("/proc/thread-self/net/snmp"))
        .unwrap()
        .unwrap();
    let values = text
        .lines()
        .filter(|line| line.starts_with("Udp:"))
        .nth(1)
        .unwrap();
    values.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Thousands of initiations a second from as many addresses, with right and with wrong MACs: a peer that
/// pings meanwhile loses nothing, and one that comes anew gets its handshake.
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
    let memory = || lab::cpu::usage(tunnel.b.process.id()).unwrap().rss;
    let before = memory();
    let arrived = datagrams_received(&net.b);

    let public_key = key_bytes(&tunnel.keys_b.public);
    let macs = [mac_of(&attacker, "eth0"), mac_of(&net.b, "eth1")];
    let IpAddr::V4(target) = link.b4() else {
        unreachable!("the link is numbered so");
    };
    let socket = attacker
        .run(|| PacketSocket::open("eth0"))
        .unwrap()
        .unwrap();
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(7);
            while !stop.load(Ordering::Relaxed) {
                let frames: Vec<Vec<u8>> = (0..32)
                    .map(|number| {
                        let mut message = initiation(&mut random, &public_key);
                        if number % 4 == 3 {
                            message[MAC1_AT] ^= 1;
                        }
                        let port = random.next() as u16 | 1;
                        let source = Ipv4Addr::from(0x0b00_0000 | random.next() as u32 >> 8);
                        frame(macs, (source, port), (target, PORT_B), &message)
                    })
                    .collect();
                let noted: Vec<_> = frames
                    .iter()
                    .map(|f| ([0; NOTE_SIZE], f.as_slice()))
                    .collect();
                if let Ok(count) = socket.send_batch(&noted) {
                    sent.fetch_add(count as u64, Ordering::Relaxed);
                }
                // The rate is that of a line of 8 Mbit/s: any program loses datagrams that one socket buffer cannot
                // hold.
                thread::sleep(Duration::from_millis(5));
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until("the flood has begun", || {
                sent.load(Ordering::Relaxed) > 2000
            });
            pings(&net.a, B4, 500);
            // A new handshake, which needs a cookie if its server is under load.
            let peer = &tunnel.keys_b.public;
            let to = format!("{}:{PORT_B}", net.link.b4());
            tunnel.a.set(&["peer", peer, "remove"]).unwrap();
            let words = ["peer", peer, "endpoint", &to, "allowed-ips", "10.0.0.2/32"];
            tunnel.a.set(&words).unwrap();
            acceptance::reaches(&net.a, B4);
        }));
        stop.store(true, Ordering::Relaxed);
        if let Err(why) = result {
            std::panic::resume_unwind(why);
        }
    });
    // They got as far as the program.
    let arrived = datagrams_received(&net.b) - arrived;
    assert!(arrived >= 2000, "{arrived}");
    let grown = memory().saturating_sub(before);
    assert!(
        grown < 4 << 20,
        "{grown} bytes more after {sent:?} initiations"
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
            // The own kernel may refuse it.
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

/// Everything that was sent to B, sent again: as it was, from elsewhere, and with one bit changed.
#[test]
fn recorded_datagrams_move_neither_counters_nor_endpoint() {
    if !ready() {
        return;
    }
    // Frames as they would be on a wire, with their checksums.
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
            frame.len() > ETHERNET + IP + UDP
                && frame[12..14] == [0x08, 0x00]
                && frame[ETHERNET + 9] == 17
                && frame[ETHERNET + IP + 2..ETHERNET + IP + 4] == PORT_B.to_be_bytes()
        });
        recorded.extend(ours.map(|received| received.frame.to_vec()));
    }
    let payload = ETHERNET + IP + UDP;
    let of_kind = |kind: u8| {
        recorded
            .iter()
            .filter(|frame| frame[payload] == kind)
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

    // A bit of the last byte, which is the tag's, with a counter that was not used yet.
    let forged: Vec<Vec<u8>> = elsewhere
        .iter()
        .filter(|frame| frame[payload] == 4)
        .map(|frame| {
            let mut frame = frame.clone();
            frame[payload + 8 + 4] = 1;
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

/// The kernel refuses to send: nothing ends, and it goes on when it may.
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
    acceptance::no_ping(&net.a, B4);
    until("the refusals are counted", || {
        drops(&net.a, "send_failed") > 0
    });
    net.a.nft("delete table inet closed\n").unwrap();
    acceptance::reaches(&net.a, B4);
    assert!(tunnel.a.process.try_wait().unwrap().is_none());
}
