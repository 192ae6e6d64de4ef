//! Tunnels with other WireGuard programs: handshakes in both directions, both outer and inner families, pings, and TCP
//! and UDP with their content compared.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use lab::acceptance::{
    A4, A6, B4, B6, Net, Setup, Tunnel, millrace, no_ping, pings, pings_of, ready, tcp_both_ways,
    udp_both_ways,
};
use lab::peer::{BoringTun, GotaTun, WireGuardPeer, WireguardGo, WireguardGoPackaged};

/// Returns whether the program is installed, and notes its version or its absence.
#[track_caller]
fn installed(program: &impl WireGuardPeer) -> bool {
    let found = lab::require(program.available());
    if found.is_some() {
        let version = program.version();
        lab::met(&version.unwrap_or_else(|| format!("{} of no known version", program.name())));
    }
    found.is_some()
}

/// Sends everything a tunnel carries between Millrace and `other`, with each side initiating once, over both families.
fn interoperates<P: WireGuardPeer + Copy + 'static>(other: P) {
    if !ready() || !installed(&other) {
        return;
    }
    for millrace_calls in [true, false] {
        for v6 in [false, true] {
            let net = Net::new();
            let mut setup = Setup {
                b: Box::new(other),
                v6,
                preshared: true,
                ..Setup::default()
            };
            if !millrace_calls {
                std::mem::swap(&mut setup.a, &mut setup.b);
            }
            let tunnel = Tunnel::new(&net, &setup);
            // B does not know A's address: the first packet makes A the initiator.
            assert_eq!(tunnel.at_b().endpoint, None);
            pings(&net.a, B4, 3);
            pings(&net.a, B6, 3);
            pings(&net.b, A4, 3);
            pings(&net.b, A6, 3);
            let seen = tunnel.at_b().endpoint.unwrap();
            assert_eq!(seen.is_ipv6(), v6, "{seen}");
            tcp_both_ways(&net.a, &net.b, B4, 3_000_000);
            tcp_both_ways(&net.b, &net.a, A6, 3_000_000);
            udp_both_ways(&net.a, &net.b, B4, 300, 1392);
            // Over IPv4 only: wireguard-go leaves a UDP checksum of zero as zero, which IPv6 forbids (RFC 8200 section
            // 8.1). The host then drops one datagram in 65,536.
            udp_both_ways(&net.b, &net.a, A4, 300, 1392);
            // boringtun reports the handshake's age, where zero looks like "never".
            let ours = if millrace_calls {
                tunnel.at_a()
            } else {
                tunnel.at_b()
            };
            assert!(ours.latest_handshake.is_some());
        }
    }
}

#[test]
fn newest_wireguard_go() {
    interoperates(WireguardGo);
}

#[test]
fn packaged_wireguard_go() {
    interoperates(WireguardGoPackaged);
}

#[test]
fn boringtun() {
    interoperates(BoringTun);
}

#[test]
fn gotatun() {
    interoperates(GotaTun);
}

#[test]
fn millrace_with_itself() {
    if !ready() {
        return;
    }
    for v6 in [false, true] {
        let net = Net::new();
        let setup = Setup {
            v6,
            preshared: true,
            ..Setup::default()
        };
        let _tunnel = Tunnel::new(&net, &setup);
        pings(&net.a, B4, 3);
        pings(&net.b, A6, 3);
        tcp_both_ways(&net.a, &net.b, B4, 8_000_000);
        tcp_both_ways(&net.b, &net.a, A6, 8_000_000);
        udp_both_ways(&net.a, &net.b, B6, 500, 1372);
    }
}

/// Ten pings are 1372 bytes in the direction of the answer: ten packets of 84 bytes, padded to 96 and wrapped in 32,
/// and a handshake response of 92. The other direction has an initiation of 148, and an empty packet of 32 if the
/// initiator confirms the session before it has data.
#[test]
fn transfer_counters_are_exact() {
    if !ready() {
        return;
    }
    let mut pairs: Vec<[Box<dyn WireGuardPeer>; 2]> =
        vec![[Box::new(millrace()), Box::new(millrace())]];
    if let Some(go) = lab::acceptance::wireguard_go() {
        pairs.push([Box::new(millrace()), go]);
    }
    if let Some(go) = lab::acceptance::wireguard_go() {
        pairs.push([go, Box::new(millrace())]);
    }
    for [a, b] in pairs {
        let names = [a.name(), b.name()];
        let net = Net::new();
        let setup = Setup {
            a,
            b,
            ..Setup::default()
        };
        let tunnel = Tunnel::new(&net, &setup);
        pings(&net.a, B4, 10);
        let [at_a, at_b] = tunnel.settled();
        assert_eq!(at_a.0, 1372, "received by the caller, {names:?}");
        assert_eq!(at_b.1, 1372, "sent by the called, {names:?}");
        assert!(
            [1428, 1460].contains(&at_a.1),
            "sent: {}, {names:?}",
            at_a.1
        );
        assert_eq!(at_b.0, at_a.1, "received by the called, {names:?}");
    }
}

/// A ping of 30,000 bytes is one inner packet at both ends, however many outer fragments carry it.
#[test]
fn large_packets_go_through_whole() {
    if !ready() {
        return;
    }
    for v6 in [false, true] {
        for link_mtu in [1500, 65_000] {
            let net = Net::with(lab::LinkOptions::numbered(1).mtu(link_mtu));
            let setup = Setup {
                v6,
                mtu: 34_816 - 80,
                ..Setup::default()
            };
            let tunnel = Tunnel::new(&net, &setup);
            for (target, headers) in [(B4, 28), (B6, 48)] {
                let before = tunnel.settled()[1].0;
                pings_of(&net.a, target, 3, 30_000);
                let packet = u64::from(30_000_u32 + headers).next_multiple_of(16) + 32;
                let received = tunnel.settled()[1].0 - before;
                // The rest may be a handshake.
                let rest = received - 3 * packet;
                assert!(rest <= 148 + 32, "{received} bytes for three of {packet}");
            }
        }
    }
}

/// Two ends with different preshared keys never complete a handshake.
#[test]
fn other_preshared_key_is_no_tunnel() {
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
    let key = lab::peer::PresharedKey::generate(&net.a).unwrap();
    let arguments = ["peer", &tunnel.keys_b.public, "preshared-key", "/dev/stdin"];
    tunnel.a.set_with_input(&arguments, &key.0).unwrap();
    no_ping(&net.a, B4);
    assert!(tunnel.at_a().latest_handshake.is_none());
}
