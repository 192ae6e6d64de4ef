//! Events during OpenVPN sessions: new keys, new addresses, bad uplinks, restarts.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::net::IpAddr;
use std::time::Duration;

use lab::acceptance::openvpn::{Ends, Pair, amount, credentials, ready};
use lab::acceptance::{
    Net, PATIENCE, ip, no_ping, pings, reaches, tcp_both_ways, udp_both_ways, until, usable,
};
use lab::openvpn::{Cipher, KeyKind, RunningOpenVpn, Setup, Transport, Wrap};
use lab::{Emulator, Host, Impairment, LinkOptions};
use netio::netlink::Route;
use nix::sys::signal::Signal;

/// Log text of both ends about each TLS handshake.
const HANDSHAKE: &str = "Control Channel: TLSv1";

/// Timers that are short enough to wait for.
fn quick() -> Setup {
    let mut setup = Setup::default();
    // The server pushes this to its clients, and doubles the second value for itself.
    setup.server.line("keepalive 1 4");
    setup
}

fn restarts(client: &RunningOpenVpn<'_>) -> usize {
    client.said(lab::openvpn::READY_LINE)
}

/// Key renewals under load lose no datagram, and a TCP stream keeps its content.
#[test]
fn new_keys_under_load_lose_nothing() {
    if !ready() {
        return;
    }
    let (udp, tcp) = (Transport::Udp, Transport::Tcp);
    for (pair, old, wrap, transport, cipher) in [
        (Pair::Client, false, Wrap::TlsCrypt, udp, Cipher::Aes256Gcm),
        (Pair::Client, true, Wrap::TlsAuth, udp, Cipher::Aes256Cbc),
        (Pair::Server, false, Wrap::TlsAuth, udp, Cipher::Aes128Cbc),
        (Pair::Server, true, Wrap::TlsCrypt, udp, Cipher::Aes128Gcm),
        (
            Pair::Both,
            false,
            Wrap::TlsCryptV2,
            udp,
            Cipher::ChaCha20Poly1305,
        ),
        (Pair::Server, false, Wrap::Plain, tcp, Cipher::Aes256Gcm),
        (Pair::Client, false, Wrap::TlsAuth, tcp, Cipher::Aes256Cbc),
    ] {
        println!("{pair:?} {old} {transport:?}");
        let net = Net::new();
        let mut setup = Setup {
            wrap,
            transport,
            cipher,
            ..Setup::default()
        };
        setup.server.line("reneg-sec 0");
        setup.client.line("reneg-sec 2");
        let ends = Ends::new(&net, &setup, pair.programs(old));
        let server = ends.server4.as_str();
        until("three changes of keys", || {
            udp_both_ways(&net.a, &net.b, server, 2000, 1300);
            ends.client.said(HANDSHAKE) >= 4 && ends.server.said(HANDSHAKE) >= 4
        });
        tcp_both_ways(&net.a, &net.b, server, amount());
        assert_eq!(restarts(&ends.client), 1, "{pair:?} {old}");
    }
}

/// The server's timer also renews keys.
#[test]
fn server_renews_keys_too() {
    if !ready() {
        return;
    }
    for pair in Pair::ALL {
        println!("{pair:?}");
        let net = Net::new();
        let mut setup = Setup::default();
        setup.server.line("reneg-sec 3");
        let ends = Ends::new(&net, &setup, pair.programs(false));
        until("three changes of keys", || {
            udp_both_ways(&net.a, &net.b, &ends.server4, 1000, 1300);
            ends.server.said(HANDSHAKE) >= 4
        });
        assert_eq!(restarts(&ends.client), 1, "{pair:?}");
    }
}

fn move_address(host: &Host, from: IpAddr, to: &str) {
    let mut netlink = host.netlink().unwrap();
    let index = netlink.index_of("eth0").unwrap();
    netlink.remove_address(index, from, 24, None).unwrap();
    host.add_address("eth0", ip(to), 24).unwrap();
    usable(host, to);
}

/// A client whose address changes keeps its session.
#[test]
fn client_floats() {
    if !ready() {
        return;
    }
    for pair in Pair::ALL {
        for cipher in [Cipher::Aes256Gcm, Cipher::Aes256Cbc] {
            let net = Net::new();
            let setup = Setup {
                cipher,
                ..Setup::default()
            };
            let ends = Ends::new(&net, &setup, pair.programs(false));
            pings(&net.a, &ends.server4, 3);
            move_address(&net.a, net.link.a4(), "192.168.1.77");
            reaches(&net.a, &ends.server4);
            // The server has learned the new address, and answers there.
            pings(&net.b, &setup.inner4(2).to_string(), 3);
            tcp_both_ways(&net.a, &net.b, &ends.server4, 300_000);
            assert_eq!(restarts(&ends.client), 1, "{pair:?}");
            assert_eq!(ends.client.said(HANDSHAKE), 1, "{pair:?}");
        }
    }
}

/// When the host gains a new address towards the server but keeps the old one, the client sends from the new one. Over
/// a dead uplink no answer would reach the old one.
#[test]
fn client_leaves_from_the_address_of_the_present_way() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let setup = Setup::default();
    let ends = Ends::new(&net, &setup, Pair::Both.programs(false));
    pings(&net.a, &ends.server4, 3);
    let other = ip("192.168.1.77");
    net.a.add_address("eth0", other, 24).unwrap();
    usable(&net.a, "192.168.1.77");
    let mut netlink = net.a.netlink().unwrap();
    let mut route = Route::new(net.link.b4(), 32).dev(netlink.index_of("eth0").unwrap());
    route.src = Some(other);
    netlink.add_route(&route).unwrap();
    until("the server hears the client at its other address", || {
        reaches(&net.a, &ends.server4);
        ends.server.said("floated") > 0
    });
    pings(&net.b, &setup.inner4(2).to_string(), 3);
    tcp_both_ways(&net.a, &net.b, &ends.server4, 300_000);
    assert_eq!(restarts(&ends.client), 1);
}

/// Handshakes, key renewals and data over a line that loses one packet in twenty and reorders others.
#[test]
fn poor_lines_are_survived() {
    if !ready() {
        return;
    }
    let poor = Impairment {
        delay: Duration::from_millis(4),
        jitter: Duration::from_millis(2),
        loss: 0.05,
        duplicate: 0.01,
        reorder: 0.02,
        ..Impairment::NONE
    };
    for (pair, transport, wrap) in [
        (Pair::Client, Transport::Udp, Wrap::TlsCryptV2),
        (Pair::Server, Transport::Udp, Wrap::TlsCryptV2),
        (Pair::Client, Transport::Tcp, Wrap::TlsCrypt),
        (Pair::Server, Transport::Udp, Wrap::TlsAuth),
        (Pair::Both, Transport::Udp, Wrap::Plain),
    ] {
        println!("{pair:?} {transport:?} {wrap:?}");
        let (a, b) = Net::hosts();
        let link = LinkOptions::numbered(1);
        let _line = Emulator::new(&a, "eth0", &b, "eth0", &link, [poor; 2], 1).unwrap();
        let mut setup = Setup {
            transport,
            wrap,
            ..Setup::default()
        };
        setup.client.line("reneg-sec 2");
        let programs = pair.programs(false);
        let ends = Ends::between([&b, &a], &link, &setup, programs, KeyKind::Ecdsa, false);
        until("two changes of keys", || {
            tcp_both_ways(&a, &b, &ends.server4, 100_000);
            ends.client.said(HANDSHAKE) >= 3
        });
        assert_eq!(restarts(&ends.client), 1, "{pair:?} {transport:?}");
    }
}

/// A server that ends says goodbye, and a killed one times out; either way its clients come back.
#[test]
fn clients_come_back_to_a_server_that_starts_again() {
    if !ready() {
        return;
    }
    for pair in Pair::ALL {
        for (signal, transport) in [
            (Signal::SIGTERM, Transport::Udp),
            (Signal::SIGKILL, Transport::Udp),
            (Signal::SIGTERM, Transport::Tcp),
            (Signal::SIGKILL, Transport::Tcp),
        ] {
            let net = Net::new();
            let mut setup = Setup {
                transport,
                ..quick()
            };
            if transport == Transport::Udp {
                setup.server.line("explicit-exit-notify 1");
            }
            let programs = pair.programs(false);
            let file = setup
                .server_file(
                    programs[0].as_ref(),
                    credentials(KeyKind::Ecdsa),
                    net.link.b4(),
                )
                .unwrap();
            let mut ends = Ends::new(&net, &setup, programs);
            pings(&net.a, &ends.server4, 1);
            ends.server.process.signal(signal).unwrap();
            until("the end of the server", || {
                ends.server.process.try_wait().unwrap().is_some()
            });
            let again = pair.programs(false);
            let _server = again[0].start(&net.b, &file).unwrap();
            ends.client.wait_until_ready(2).unwrap();
            reaches(&net.a, &ends.server4);
            tcp_both_ways(&net.a, &net.b, &ends.server4, 300_000);
        }
    }
}

/// A killed client returns from another port: it gets its address back, and the server forgets the old session.
#[test]
fn killed_client_comes_again() {
    if !ready() {
        return;
    }
    for pair in Pair::ALL {
        for transport in [Transport::Udp, Transport::Tcp] {
            let net = Net::new();
            let setup = Setup {
                transport,
                ..Setup::default()
            };
            let programs = pair.programs(false);
            let keys = credentials(KeyKind::Ecdsa);
            let file = setup.server_file(programs[0].as_ref(), keys, net.link.b4());
            let _server = programs[0].start(&net.b, &file.unwrap()).unwrap();
            let file = setup.client_file(programs[1].as_ref(), keys, net.link.b4());
            let file = file.unwrap();
            for _ in 0..3 {
                let client = programs[1].start(&net.a, &file).unwrap();
                assert_eq!(client.addresses().unwrap()[0], setup.inner4(2), "{pair:?}");
                let server = setup.inner4(1).to_string();
                pings(&net.a, &server, 3);
                tcp_both_ways(&net.b, &net.a, &setup.inner4(2).to_string(), 300_000);
                client.process.signal(Signal::SIGKILL).unwrap();
                client.process.wait_at_most(PATIENCE).unwrap();
                until("the end of the client's interface", || {
                    !net.a.has_interface(&setup.interface).unwrap()
                });
            }
        }
    }
}

/// A briefly unplugged cable harms nothing; after more than `ping-restart` the client restarts by itself.
#[test]
fn cable_is_pulled() {
    if !ready() {
        return;
    }
    for pair in Pair::ALL {
        let net = Net::new();
        let mut setup = Setup::default();
        // Longer than the first interruption lasts on a busy machine.
        setup.server.line("keepalive 1 15");
        let mut ends = Ends::new(&net, &setup, pair.programs(false));
        pings(&net.a, &ends.server4, 1);
        net.b.set_up("eth0", false).unwrap();
        no_ping(&net.a, &ends.server4);
        net.b.set_up("eth0", true).unwrap();
        reaches(&net.a, &ends.server4);
        assert_eq!(restarts(&ends.client), 1, "{pair:?}");
        net.b.set_up("eth0", false).unwrap();
        ends.client.wait_for_lines("Inactivity timeout", 1).unwrap();
        net.b.set_up("eth0", true).unwrap();
        ends.client.wait_until_ready(2).unwrap();
        reaches(&net.a, &ends.server4);
        tcp_both_ways(&net.a, &net.b, &ends.server4, 300_000);
    }
}

/// Several clients at a time, each with its own address; client-to-client packets pass through the server only if that
/// is enabled.
#[test]
fn clients_reach_each_other_only_if_they_may() {
    if !ready() {
        return;
    }
    for pair in Pair::ALL {
        for may in [true, false] {
            println!("{pair:?} {may}");
            let net = Net::new();
            let mut setup = Setup::default();
            setup.server.line("duplicate-cn");
            if may {
                setup.server.line("client-to-client");
            }
            let programs = pair.programs(false);
            let keys = credentials(KeyKind::Ecdsa);
            let second = Host::private("second").unwrap();
            let link = LinkOptions::numbered(2);
            lab::Link::new(&second, "eth0", &net.b, "eth1", &link).unwrap();
            let mut file = setup
                .server_file(programs[0].as_ref(), keys, net.link.b4())
                .unwrap();
            // The server answers from either of its addresses.
            file.remove("local").line("multihome");
            let _server = programs[0].start(&net.b, &file).unwrap();
            let start = |host, remote| {
                let file = setup
                    .client_file(programs[1].as_ref(), keys, remote)
                    .unwrap();
                programs[1].start(host, &file).unwrap()
            };
            let one = start(&net.a, net.link.b4());
            let two = start(&second, link.b4());
            let addresses = [&one, &two].map(|client| client.addresses().unwrap()[0].to_string());
            assert_ne!(addresses[0], addresses[1], "{pair:?}");
            let server = setup.inner4(1).to_string();
            pings(&net.a, &server, 3);
            pings(&second, &server, 3);
            if may {
                pings(&net.a, &addresses[1], 3);
                tcp_both_ways(&second, &net.a, &addresses[0], 300_000);
            } else {
                no_ping(&net.a, &addresses[1]);
            }
        }
    }
}
