//! Server handshakes that run in other threads.

use std::collections::HashSet;
use std::sync::Arc;

use openvpn::identity::Identity;
use openvpn::role::Role;
use openvpn::session::{CloseReason, Renegotiate};
use openvpn::tls::{TlsOptions, TlsSettings};

use crate::link::{Random, bad_link};
use crate::setup::{Setup, file, tls_settings};
use crate::world::{SERVER, World, millis, secs};

fn apart() -> Setup {
    let mut setup = Setup::new();
    let mut tls = tls_settings(Role::Server);
    tls.hand_out_handshakes();
    setup.server.common.tls = Arc::new(tls);
    setup
}

/// Packets that arrive meanwhile are acknowledged, so that the peer retransmits nothing.
#[test]
fn a_session_goes_on_while_its_handshake_takes_long() {
    let mut world = World::new(apart());
    world.handshakes.take = secs(3);
    world.add_client();
    world.run_for(secs(1));
    assert!(!world.client_is_up(0));
    assert_eq!(world.handshakes.away(), 1);
    world.run_for(secs(12));
    assert!(world.client_is_up(0), "{:?}", world.closed(0));
    assert!(world.handshakes.done >= 2, "both flights of the client");
    let messages = world.sent.iter().filter(|(_, _, it)| it[0] >> 3 == 4);
    let (mut all, mut distinct) = (0, HashSet::new());
    for (from, _, datagram) in messages {
        // The packet id and the message follow the acknowledgements, of which the second packet may have more.
        let acks = usize::from(datagram[9]);
        let head = 10 + 4 * acks + if acks > 0 { 8 } else { 0 };
        all += 1;
        distinct.insert((*from, datagram[head..].to_vec()));
    }
    assert_eq!(all, distinct.len(), "a message was sent twice");
}

/// A slow handshake delays no other client.
#[test]
fn other_clients_come_in_before_one_that_takes_long() {
    let mut world = World::new(apart());
    world.handshakes.take = secs(40);
    world.add_client();
    world.run_for(secs(1));
    world.handshakes.take = millis(2);
    for _ in 0..20 {
        world.add_client();
    }
    world.run_for(secs(2));
    assert!((1..=20).all(|at| world.client_is_up(at)));
    assert!(!world.client_is_up(0));
    world.run_for(secs(45));
    assert!(world.client_is_up(0));
}

#[test]
fn keys_are_renewed_by_handshakes_elsewhere() {
    for seed in 1..=10 {
        let mut setup = apart();
        let every = Renegotiate {
            time: Some((secs(10), secs(10))),
            bytes: None,
            packets: None,
        };
        setup.both(|it| it.renegotiate = every);
        let mut world = World::new(setup);
        world.random = Random(seed * 104_729);
        world.link = bad_link(5);
        world.handshakes.take = millis(700);
        world.add_client();
        world.run_for(secs(8));
        assert!(world.client_is_up(0), "seed {seed}");
        world.data_every = Some(millis(20));
        world.run_for(secs(200));
        world.data_every = None;
        world.run_for(secs(1));
        let id = world.up();
        let (client, server) = (&world.clients[0].plane, &world.planes[&id]);
        assert_eq!((client.lost, server.lost), (0, 0), "seed {seed}");
        assert!(world.renegotiated(0).len() >= 8, "seed {seed}");
    }
}

/// The handshake's session has already ended.
#[test]
fn a_handshake_that_comes_too_late_changes_nothing() {
    let mut world = World::new(apart());
    world.handshakes.take = secs(70);
    world.add_client();
    world.run_for(secs(65));
    let window = CloseReason::HandshakeWindow(secs(60));
    assert_eq!(world.closed(0), Some(&window));
    assert_eq!(world.server_closed(), [&window]);
    assert!(world.listener.is_empty());
    world.run_for(secs(10));
    assert_eq!(world.handshakes.away(), 0);
    assert!(world.listener.is_empty());
}

#[test]
fn a_client_that_must_not_come_in_is_told_why() {
    let mut setup = apart();
    let mut options = TlsOptions::new(Role::Client);
    options.ca = file("p256/ca.crt");
    let (certificate, key) = (file("p384/client.crt"), file("p384/client.key"));
    options.identity = Some(Identity::from_pem(&certificate, &key, b"", None).unwrap());
    setup.client.common.tls = Arc::new(TlsSettings::new(options).unwrap());
    let mut world = World::new(setup);
    world.handshakes.take = millis(50);
    world.add_client();
    world.run_for(secs(3));
    let Some(CloseReason::Tls(why)) = world.closed(0) else {
        panic!("{:?}", world.closed(0));
    };
    assert!(why.contains("alert"), "{why}");
    assert!(world.listener.is_empty());
    assert!(world.sent.iter().any(|it| it.0 == SERVER));
}
