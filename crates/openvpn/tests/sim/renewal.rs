//! Key renewals, which lose no packet.

use std::sync::Arc;
use std::time::SystemTime;

use openvpn::keyfile::StaticKey;
use openvpn::message::Message;
use openvpn::renewal::Renewer;
use openvpn::role::Role;
use openvpn::session::{CloseReason, KeyUsage, Renegotiation};
use openvpn::wrap::WrapSettings;

use crate::link::{Random, bad_link};
use crate::plane::Event;
use crate::setup::{Setup, file};
use crate::world::{World, millis, secs};

fn renewing(client: u64, server: u64, crypt: bool, exporter: bool) -> Setup {
    let mut setup = Setup::new();
    if crypt {
        let key = StaticKey::generate().unwrap();
        setup.client.wrap = WrapSettings::tls_crypt(&key, Role::Client);
        setup.server_wrap = WrapSettings::tls_crypt(&key, Role::Server);
    }
    setup.both(|it| it.exporter = exporter);
    setup.client.common.keys.renegotiation = exactly(client);
    setup.server.common.keys.renegotiation = exactly(server);
    setup
}

/// Renewal at an exact time without jitter, so that everything depends on the seed alone.
fn exactly(time: u64) -> Renegotiation {
    Renegotiation {
        least: Some(secs(time)),
        ..Renegotiation::every(secs(time))
    }
}

/// Data flows every 20 ms both ways during ten or more renewals over a bad wire.
#[test]
fn no_packet_is_lost_by_renewal() {
    for (client, server) in [(10, 0), (0, 10), (10, 10), (3600, 7)] {
        for (crypt, exporter) in [(false, false), (false, true), (true, true)] {
            for seed in 1..=3 {
                let mut world = World::new(renewing(client, server, crypt, exporter));
                world.random = Random(seed * 104_729);
                world.add_client();
                world.run_for(secs(3));
                let what = format!("{client}/{server} {crypt} {exporter} seed {seed}");
                assert!(world.client_is_up(0), "{what}");
                world.link = bad_link(5);
                world.data_every = Some(millis(20));
                world.run_for(secs(200));
                world.data_every = None;
                world.run_for(secs(1));
                let id = world.up();
                let (client, server) = (&world.clients[0].plane, &world.planes[&id]);
                assert_eq!((client.lost, server.lost), (0, 0), "{what}");
                assert_eq!(client.sent, server.opened, "{what}");
                assert_eq!(server.sent, client.opened, "{what}");
                let renewed = world.renegotiated(0);
                assert!(renewed.len() >= 8, "{what}: {renewed:?}");
                // Key ids cycle from 1 to 7, and never return to 0.
                let expected: Vec<u8> = (0..renewed.len()).map(|it| (it % 7 + 1) as u8).collect();
                assert_eq!(renewed, expected, "{what}");
            }
        }
    }
}

/// Each renewal costs the server a handshake: it serves one a second for a client, which keeps its session.
#[test]
fn a_client_that_renews_without_end_is_served_once_a_second() {
    let mut world = World::with_client(renewing(0, 0, false, true));
    world.run_for(secs(2));
    let id = world.up();
    for _ in 0..60 * 50 {
        world.client(0, |it, now, out| it.renegotiate(now, out));
        world.run_for(millis(20));
    }
    let renewed = world.renegotiated(0).len();
    assert!((10..=61).contains(&renewed), "{renewed} in a minute");
    assert_eq!(world.up(), id);
    assert!(world.client_is_up(0));
}

#[test]
fn the_old_keys_seal_for_a_while() {
    let mut world = World::with_client(renewing(3600, 0, false, true));
    world.run_until(secs(3602));
    assert_eq!(world.renegotiated(0), [1]);
    let id = world.up();
    assert_eq!(world.clients[0].plane.sealing, Some(0));
    assert_eq!(world.planes[&id].sealing, Some(0));
    world.run_until(secs(3600 + 59));
    assert_eq!(world.clients[0].plane.sealing, Some(0));
    world.run_until(secs(3600 + 62));
    assert_eq!(world.clients[0].plane.sealing, Some(1));
    assert_eq!(world.planes[&id].sealing, Some(1));
    // The old key still opens packets for an hour.
    assert_eq!(world.clients[0].plane.keys.len(), 2);
    world.run_until(secs(7210));
    assert_eq!(world.renegotiated(0), [1, 2]);
    assert!(!world.clients[0].plane.keys.contains_key(&0));
}

/// With exporter keys, a key private to these two ends wraps renewals. OpenVPN's CVE-2026-13117 was in that wrap.
#[test]
fn renewals_are_wrapped_by_a_key_of_their_own() {
    let mut world = World::with_client(renewing(10, 0, false, true));
    world.run_for(secs(40));
    assert!(world.renegotiated(0).len() >= 3);
    // Unwrapped, the payload of a soft reset would end with the four bytes of message id 0, and the packet would be
    // short.
    let resets = world.sent.iter().filter(|it| it.2[0] >> 3 == 3);
    for (_, _, datagram) in resets {
        assert!(datagram[0] & 7 > 0 && datagram.len() >= 9 + 8 + 32 + 5);
    }
}

#[test]
fn use_wears_keys_out() {
    let mut world = World::with_client(renewing(0, 0, false, true));
    world.run_for(secs(2));
    let mut usage = KeyUsage {
        sealed: 0xff00_0000 - 1,
        blocks_sealed: 1 << 34,
        ..KeyUsage::default()
    };
    world.client(0, |it, now, out| it.traffic(&usage, now, out));
    world.run_for(secs(2));
    assert!(world.renegotiated(0).is_empty());
    usage.blocks_opened = (1 << 36) / 8 * 7;
    world.client(0, |it, now, out| it.traffic(&usage, now, out));
    world.run_for(secs(2));
    assert_eq!(world.renegotiated(0), [1]);
    // Usage reports about an old key trigger no renewal.
    world.client(0, |it, now, out| it.traffic(&usage, now, out));
    world.run_for(secs(2));
    assert_eq!(world.renegotiated(0), [1]);
}

/// Usage may be reported every ten seconds, until that becomes too seldom for the wear of the keys.
#[test]
fn keys_wear_slowly_until_half_of_them_is_used() {
    let wears_slowly = |world: &World| world.clients[0].session.wears_slowly();
    let told = |world: &mut World, sealed: u64| {
        let key_id = world.renegotiated(0).last().copied().unwrap_or(0);
        let usage = KeyUsage {
            key_id,
            sealed,
            ..KeyUsage::default()
        };
        world.client(0, |it, now, out| it.traffic(&usage, now, out));
    };
    let mut world = World::with_client(renewing(0, 0, false, true));
    assert!(!wears_slowly(&world), "nothing is agreed yet");
    world.run_for(secs(2));
    assert!(wears_slowly(&world));
    told(&mut world, 0x7f80_0000 - 1);
    assert!(wears_slowly(&world));
    told(&mut world, 0x7f80_0000);
    assert!(!wears_slowly(&world));
    told(&mut world, 0xff00_0000);
    world.run_for(secs(2));
    assert_eq!(world.renegotiated(0), [1]);
    told(&mut world, 0);
    assert!(wears_slowly(&world), "other keys");

    let mut setup = renewing(0, 0, false, true);
    setup.client.common.keys.renegotiation.bytes = Some(1 << 40);
    let mut world = World::with_client(setup);
    world.run_for(secs(2));
    assert!(!wears_slowly(&world), "a limit is looked after");
}

#[test]
fn forgeries_wear_out_keys_with_epochs_and_without() {
    for epoch in [false, true] {
        let mut setup = renewing(0, 0, false, true);
        setup.both(|it| it.epoch = epoch);
        let mut world = World::with_client(setup);
        world.run_for(secs(2));
        let mut usage = KeyUsage {
            failed: (1 << 35) - 1,
            ..KeyUsage::default()
        };
        world.client(0, |it, now, out| it.traffic(&usage, now, out));
        world.run_for(secs(2));
        assert!(world.renegotiated(0).is_empty());
        usage.failed += 1;
        world.client(0, |it, now, out| it.traffic(&usage, now, out));
        world.run_for(secs(2));
        assert_eq!(world.renegotiated(0), [1], "epochs: {epoch}");
    }
}

#[test]
fn a_renewal_that_fails_does_not_end_the_server_s_half() {
    let mut world = World::with_client(renewing(0, 100, false, true));
    world.run_for(secs(2));
    let id = world.up();
    // The client falls silent just before the renewal.
    world.run_until(secs(80));
    world.clients[0].alive = false;
    world.run_until(secs(200));
    assert_eq!(world.up(), id);
    assert_eq!(world.planes[&id].sealing, Some(0));
    // The server's half ends eventually: the last keys expire like any others due for replacement.
    world.run_until(secs(165 + 3600));
    assert_eq!(world.server_closed(), [&CloseReason::WornOut]);
    assert!(world.listener.is_empty());
}

#[test]
fn a_renewal_that_fails_makes_the_client_connect_again() {
    let mut world = World::with_client(renewing(100, 0, false, true));
    world.run_for(secs(2));
    world.link = Box::new(|_, datagram| {
        if datagram[0] >> 3 == 9 {
            vec![millis(10)]
        } else {
            Vec::new()
        }
    });
    world.run_until(secs(200));
    assert_eq!(
        world.closed(0),
        Some(&CloseReason::HandshakeWindow(secs(60)))
    );
}

#[test]
fn both_ends_may_begin_at_once() {
    let mut world = World::with_client(renewing(0, 0, false, true));
    world.run_for(secs(2));
    let id = world.up();
    world.client(0, |it, now, out| it.renegotiate(now, out));
    world.server(id, |it, now, out| it.renegotiate(now, out));
    world.client(0, |it, now, out| it.expired(now, out));
    world.server(id, |it, now, out| it.expired(now, out));
    world.run_for(secs(5));
    assert_eq!(world.renegotiated(0), [1]);
    let both = world
        .server_events
        .iter()
        .filter(|it| matches!(it.1, Event::Renegotiated(_)));
    assert_eq!(both.count(), 1);
}

/// The last acknowledgement of a negotiation is lost, and the client begins the next one. Stock clients do so, and no
/// longer answer for the earlier negotiation.
#[test]
fn a_new_beginning_acknowledges_what_came_before() {
    let mut world = World::with_client(renewing(0, 0, false, true));
    world.run_for(secs(2));
    let id = world.up();
    let begin = |world: &mut World| {
        world.client(0, |it, now, out| it.renegotiate(now, out));
        world.client(0, |it, now, out| it.expired(now, out));
    };
    let session = |datagram: &[u8]| datagram[1..9].to_vec();
    let client = session(&world.sent[0].2);
    // The link drops the client's acknowledgements of the first renewal, except those inside other packets.
    world.link = Box::new(move |_, datagram| {
        let lost = datagram[0] == 5 << 3 | 1 && session(datagram) == client;
        if lost { Vec::new() } else { vec![millis(10)] }
    });
    begin(&mut world);
    world.run_for(secs(1));
    assert_eq!(world.renegotiated(0), [1]);
    begin(&mut world);
    world.run_for(secs(10));
    assert_eq!(world.renegotiated(0), [1, 2]);
    assert_eq!(world.up(), id);
}

/// CVE-2026-40215 of OpenVPN sent leftovers of one negotiation's buffer in the next. A message whose packet is lost
/// during a renewal is sent with the old keys, as with the stock program; none arrives twice or late.
#[test]
fn what_is_said_is_said_once() {
    let mut lost = 0;
    for seed in 70..80 {
        let mut world = World::new(renewing(10, 0, false, true));
        world.random = Random(seed);
        world.link = bad_link(5);
        world.add_client();
        world.run_for(secs(20));
        let id = world.up();
        for number in 0..20 {
            let said = Message::Info(format!("number {number}"));
            world.server(id, |it, now, out| it.send_message(&said, now, out));
            world.run_for(millis(4700));
        }
        world.run_for(secs(20));
        let heard: Vec<usize> = world.clients[0]
            .events
            .iter()
            .filter_map(|it| match it {
                Event::Message(text) => text.strip_prefix("INFO,number ")?.parse().ok(),
                _ => None,
            })
            .collect();
        assert!(heard.is_sorted_by(|a, b| a < b), "{seed}: {heard:?}");
        lost += 20 - heard.len();
    }
    assert!(lost <= 10, "{lost} of 200 were lost");
}

/// A renewed certificate of the P-256 authority, with the same key and name.
fn renewed(name: &str) -> Vec<u8> {
    let authority = Renewer::read(&file("p256/ca.key"), &file("p256/ca.crt"), None).unwrap();
    let old = file(&format!("p256/{name}.crt"));
    let renewed = authority.certificate(&old, SystemTime::now(), 825).unwrap();
    renewed.text.into_bytes()
}

/// A server is handed its renewed certificate while clients are connected: later negotiations show it, and sessions go on.
#[test]
fn a_server_s_renewed_certificate_does_not_end_sessions() {
    let setup = renewing(10, 0, false, true);
    let tls = Arc::clone(&setup.server.common.tls);
    let mut world = World::with_client(setup);
    world.run_for(secs(3));
    let shown = |world: &World| {
        let certificate = world.clients[0].session.certificate().unwrap();
        *certificate.fingerprint().unwrap()
    };
    let before = shown(&world);
    world.data_every = Some(millis(20));
    assert!(tls.replace_certificate(&renewed("server"), b"").unwrap());
    world.run_for(secs(40));
    assert_ne!(shown(&world), before);
    assert!(world.renegotiated(0).len() >= 3 && world.client_is_up(0));
    world.data_every = None;
    world.run_for(secs(1));
    let (client, server) = (&world.clients[0].plane, &world.planes[&world.up()]);
    assert_eq!((client.lost, server.lost), (0, 0));
}

/// Another name at the server, and any other certificate at the client, is not the peer that began.
#[test]
fn other_certificates_than_a_server_s_renewed_one_end_the_session() {
    let setup = renewing(10, 0, false, true);
    let tls = Arc::clone(&setup.server.common.tls);
    let mut world = World::with_client(setup);
    world.run_for(secs(3));
    assert!(
        tls.replace_certificate(&file("odd/no-eku.crt"), b"")
            .unwrap()
    );
    world.run_for(secs(20));
    let closed = format!("{:?}", world.closed(0));
    assert!(closed.contains("certificate differs"), "{closed}");

    let setup = renewing(10, 0, false, true);
    let tls = Arc::clone(&setup.client.common.tls);
    let mut world = World::with_client(setup);
    world.run_for(secs(3));
    assert!(tls.replace_certificate(&renewed("client"), b"").unwrap());
    world.run_for(secs(100));
    assert!(!world.client_is_up(0) && world.renegotiated(0).is_empty());
}
