//! Key agreement: X25519MLKEM768 if both ends support it, otherwise a classical group, on any path that the larger
//! messages cross.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use lab::LinkOptions;
use lab::acceptance::openvpn::{credentials, millrace, ready};
use lab::acceptance::{Net, PATIENCE, pings, status_of};
use lab::openvpn::{KeyKind, OpenVpn, PackagedOpenVpn, Setup, StockOpenVpn, Transport, Wrap};

/// The log line about a handshake, which ends with the group.
const AGREED: &str = "Control Channel: TLSv1.3";

/// Starts a server and a client, sends pings, and checks the group in the log of each Millrace end.
fn agree(net: &Net, setup: &Setup, programs: [&dyn OpenVpn; 2], group: &str) {
    let keys = credentials(KeyKind::Rsa);
    let at = net.link.b4();
    let release = programs.iter().map(|it| it.release()).min().unwrap();
    let setup = setup.as_of(release);
    let server = programs[0].start(&net.b, &setup.server_file(programs[0], keys, at).unwrap());
    let mut server = server.unwrap();
    let client = programs[1].start(&net.a, &setup.client_file(programs[1], keys, at).unwrap());
    let mut client = client.unwrap();
    pings(&net.a, &setup.inner4(1).to_string(), 2);
    for (end, program, host) in [
        (&mut server, programs[0], &net.b),
        (&mut client, programs[1], &net.a),
    ] {
        if program.name() == millrace().name() {
            // The log line comes through a pipe and may arrive after the pings.
            let agreed = |line: &str| line.contains(AGREED);
            let line = end.process.wait_for_line(AGREED, PATIENCE, agreed);
            let line = line.unwrap();
            let line = line.trim_end();
            assert!(
                line.ends_with(&format!("group {group}")),
                "{setup:?}: {line}"
            );
            let status = status_of(host, end.interface());
            let peer = &status["peers"][0];
            assert_eq!(peer["key_exchange"], group, "{status}");
            assert_eq!(peer["post_quantum"], group.contains("MLKEM"), "{status}");
        }
    }
}

/// Each wrap of control packets, over UDP and TCP, on a path with the minimum IPv6 MTU. Neither the hello of more than
/// 1,250 bytes nor the key added by `tls-crypt-v2` may need larger packets.
fn agree_in_all_wraps(peer: &dyn OpenVpn, group: &str) {
    let ours = millrace();
    let net = Net::with(LinkOptions::numbered(1).mtu(1280));
    for transport in [Transport::Udp, Transport::Tcp] {
        for wrap in [Wrap::Plain, Wrap::TlsAuth, Wrap::TlsCrypt, Wrap::TlsCryptV2] {
            let setup = Setup {
                transport,
                wrap,
                ..Setup::default()
            };
            agree(&net, &setup, [peer, &ours], group);
            agree(&net, &setup, [&ours, peer], group);
        }
    }
}

#[test]
fn x25519mlkem768_between_two_of_ours() {
    if ready() {
        agree_in_all_wraps(&millrace(), "X25519MLKEM768");
    }
}

#[test]
fn x25519mlkem768_with_openssl_3_5() {
    let peer = PackagedOpenVpn::Trixie;
    if ready() && lab::require(peer.available()).is_some() {
        agree_in_all_wraps(&peer, "X25519MLKEM768");
    }
}

#[test]
fn a_classical_group_with_openssl_3_0() {
    if ready() {
        agree_in_all_wraps(&StockOpenVpn, "X25519");
    }
}

#[test]
fn a_classical_group_with_openvpn_2_5() {
    let peer = PackagedOpenVpn::Bullseye;
    if ready() && lab::require(peer.available()).is_some() {
        agree_in_all_wraps(&peer, "X25519");
    }
}
