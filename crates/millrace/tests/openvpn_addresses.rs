//! An OpenVPN server with several addresses: every packet to a client leaves from the address that the client connected
//! to.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use lab::acceptance::openvpn::{credentials, millrace, ready};
use lab::acceptance::{Net, ip, pings, until, usable};
use lab::openvpn::{KeyKind, OpenVpn, READY_LINE, Setup, StockOpenVpn, Transport, Wrap};
use lab::{Link, LinkOptions};
use netio::capture::{Capture, LENGTH};
use netio::netlink::Route;
use nix::sys::signal::Signal;

/// Log text of both ends about each TLS handshake.
const HANDSHAKE: &str = "Control Channel: TLSv1";

/// The server address that the client connects to.
#[derive(Clone, Copy, Debug)]
enum Called {
    /// The interface's first address, which the kernel would choose too.
    Primary,
    /// A second address of the same interface.
    Secondary,
    /// An address of an interface that leads elsewhere.
    OtherInterface,
}

/// Adds to the server the address to connect to, and returns it.
fn address(net: &Net, called: Called, v6: bool) -> IpAddr {
    match (called, v6) {
        (Called::Primary, false) => net.link.b4(),
        (Called::Primary, true) => net.link.b6(),
        (Called::Secondary, _) => {
            let (address, prefix) = match v6 {
                false => ("192.168.1.77", 24),
                true => ("fd00:1::77", 64),
            };
            net.b.add_address("eth0", ip(address), prefix).unwrap();
            usable(&net.b, address);
            ip(address)
        }
        (Called::OtherInterface, _) => {
            let second = LinkOptions::numbered(2);
            Link::new(&net.a, "eth1", &net.b, "eth1", &second).unwrap();
            // The client reaches this address over the first link, so the answers use that link too.
            let (called, via, bits) = match v6 {
                false => (second.b4(), net.link.b4(), 32),
                true => (second.b6(), net.link.b6(), 128),
            };
            let mut netlink = net.a.netlink().unwrap();
            let index = netlink.index_of("eth0").unwrap();
            let route = Route::new(called, bits).via(via).dev(index);
            netlink.add_route(&route).unwrap();
            called
        }
    }
}

/// Number of packets that left from each address and this UDP or TCP port.
fn left_from(capture: &Capture, port: u16) -> BTreeMap<IpAddr, usize> {
    let mut left = BTreeMap::new();
    let mut buffer = [0; LENGTH];
    while let Some(seen) = capture.next(&mut buffer).unwrap() {
        let packet = seen.packet;
        let (source, protocol, payload): (IpAddr, u8, usize) = match packet.first() {
            Some(first) if first >> 4 == 4 && packet.len() >= 28 => {
                let source: [u8; 4] = packet[12..16].try_into().unwrap();
                (source.into(), packet[9], usize::from(first & 15) * 4)
            }
            Some(first) if first >> 4 == 6 && packet.len() >= 48 => {
                let source: [u8; 16] = packet[8..24].try_into().unwrap();
                (Ipv6Addr::from(source).into(), packet[6], 40)
            }
            _ => continue,
        };
        if seen.outgoing
            && matches!(protocol, 6 | 17)
            && packet[payload..payload + 2] == port.to_be_bytes()
        {
            *left.entry(source).or_default() += 1;
        }
    }
    left
}

/// Covers resets and cookies, handshakes, pushed options, pings, data, renewals by either end, a reconnecting client,
/// and the server's goodbye.
fn answers(transport: Transport, called: Called, v6: bool, wrap: Wrap, client: &dyn OpenVpn) {
    let what = format!("{transport:?} {called:?} {v6} {wrap:?} {}", client.name());
    println!("{what}");
    let net = Net::new();
    let called = address(&net, called, v6);
    let mut setup = Setup {
        transport,
        wrap,
        ..Setup::default()
    };
    setup.server.line("reneg-sec 4").line("keepalive 1 20");
    if transport == Transport::Udp {
        setup.server.line("explicit-exit-notify 1");
    }
    let keys = credentials(KeyKind::Ecdsa);
    let mut file = setup.server_file(&millrace(), keys, called).unwrap();
    file.remove("local");
    let seen = net.b.run(Capture::open).unwrap().unwrap();
    let server = millrace().start(&net.b, &file).unwrap();
    let file = setup.client_file(client, keys, called).unwrap();
    let mut client = client.start(&net.a, &file).unwrap();
    let inner = setup.inner4(1).to_string();
    pings(&net.a, &inner, 3);
    until("two changes of keys", || server.said(HANDSHAKE) >= 3);
    assert_eq!(client.said(READY_LINE), 1, "{what}: one session");
    client.process.signal(Signal::SIGUSR1).unwrap();
    client.wait_until_ready(2).unwrap();
    pings(&net.a, &inner, 3);
    server.process.signal(Signal::SIGTERM).unwrap();
    if transport == Transport::Udp {
        let told = "Connection reset command was pushed by server";
        client.wait_for_lines(told, 1).unwrap();
    }
    let left = left_from(&seen, setup.port);
    assert_eq!(seen.dropped().unwrap(), 0);
    let count = left.get(&called).copied().unwrap_or(0);
    assert!(count > 20 && left.len() == 1, "{what}: {left:?}");
}

#[test]
fn a_server_over_udp_answers_from_the_address_that_was_called() {
    if !ready() {
        return;
    }
    let (udp, stock, ours) = (Transport::Udp, StockOpenVpn, millrace());
    answers(udp, Called::Secondary, false, Wrap::Plain, &stock);
    answers(udp, Called::Secondary, true, Wrap::TlsCrypt, &stock);
    answers(udp, Called::Secondary, true, Wrap::TlsCryptV2, &ours);
    answers(udp, Called::OtherInterface, false, Wrap::TlsCryptV2, &ours);
    answers(udp, Called::OtherInterface, true, Wrap::Plain, &ours);
    answers(udp, Called::Primary, false, Wrap::TlsAuth, &ours);
}

#[test]
fn a_server_over_tcp_answers_from_the_address_that_was_called() {
    if !ready() {
        return;
    }
    let (tcp, stock, ours) = (Transport::Tcp, StockOpenVpn, millrace());
    answers(tcp, Called::Secondary, false, Wrap::Plain, &stock);
    answers(tcp, Called::Secondary, true, Wrap::TlsCrypt, &ours);
    answers(tcp, Called::OtherInterface, false, Wrap::TlsCryptV2, &ours);
    answers(tcp, Called::OtherInterface, true, Wrap::TlsAuth, &stock);
}
