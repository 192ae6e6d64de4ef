//! Peers that get keys, peers that get none, and the effect of configuration changes.

use std::net::SocketAddr;
use std::time::SystemTime;

use crate::sim::{Event, FORMS, LATENCY, Sim, millis, secs, wall};
use crypto::Key;
use crypto::x25519::{PrivateKey, PublicKey};
use plane::PeerId;
use wireguard::{Activity, AddPeerError, Device, Dropped, Output};

#[test]
fn preshared_keys_must_be_equal_and_count_from_the_next_handshake() {
    let (mut sim, b, a) = Sim::pair();
    let preshared = Key::from([7; 32]);
    sim.hosts[0].device.set_preshared_key(b, preshared.clone());
    sim.send(0, b, b"one");
    sim.run_until(secs(4));
    assert_eq!(
        sim.hosts[0].events.last().unwrap().1,
        Event::Dropped(Dropped::Unauthentic)
    );
    assert!(!sim.hosts[0].can_send(b) && !sim.hosts[1].can_send(a));

    // After the other end is corrected, the next retransmission succeeds, and no packet was lost.
    sim.hosts[1].device.set_preshared_key(a, preshared);
    sim.run_until(secs(6));
    assert_eq!(sim.hosts[1].received(), [b"one"]);

    // Changing the preshared key at both ends keeps the session; the next handshake uses the new key.
    for (host, peer) in [(0, b), (1, a)] {
        sim.hosts[host]
            .device
            .set_preshared_key(peer, Key::from([8; 32]));
    }
    sim.send(0, b, b"two");
    sim.run_until(secs(130));
    sim.send(0, b, b"three");
    sim.run_for(secs(1));
    assert_eq!(sim.hosts[0].count(&Event::Complete), 2);
    // After a change at one end only, the next handshake fails.
    sim.hosts[0].device.set_preshared_key(b, Key::ZERO);
    sim.run_until(secs(400));
    sim.send(0, b, b"four");
    sim.run_for(secs(4));
    assert_eq!(sim.hosts[1].received(), [&b"one"[..], b"two", b"three"]);
}

#[test]
fn a_new_private_key_ends_sending_and_makes_the_old_one_useless() {
    let (mut sim, b, a) = Sim::pair();
    sim.send(0, b, b"old");
    sim.run_until(secs(1));
    let key = PrivateKey::generate();
    let public = key.public();
    let now = sim.now;
    // Packets of the other end that are in transit are still opened.
    sim.send(1, a, b"on its way");
    sim.with(0, |device, out| device.set_private_key(Some(key), now, out));
    assert!(!sim.hosts[0].can_send(b));
    sim.send(0, b, b"new");
    sim.run_until(secs(2));
    assert_eq!(sim.hosts[0].received(), [b"on its way"]);
    assert_eq!(
        sim.hosts[1].events.last().unwrap().1,
        Event::Dropped(Dropped::UnknownPeer)
    );

    // The other end learns the new key. It does not refuse the repeated initiation as coming too soon.
    sim.with(1, |device, out| device.remove_peer(a, out));
    let a = sim.add(1, 0);
    assert_eq!(sim.hosts[1].device.peer_public_key(a), Some(public));
    sim.run_until(secs(8));
    assert_eq!(sim.hosts[1].received().last().unwrap(), b"new");

    // Setting the same key again changes nothing.
    let now = sim.now;
    let same = PrivateKey::new([9; 32]);
    for _ in 0..2 {
        let same = same.clone();
        sim.with(1, |device, out| {
            device.set_private_key(Some(same), now, out);
        });
    }
    assert_eq!(sim.hosts[1].count(&Event::Cleared), 2);
}

#[test]
fn an_interface_is_not_its_own_peer() {
    let (mut sim, b, _) = Sim::pair();
    let own = sim.hosts[0].device.public_key().unwrap();
    assert_eq!(sim.hosts[0].device.add_peer(own), Err(AddPeerError::OwnKey));
    let other = sim.hosts[1].device.public_key().unwrap();
    assert_eq!(
        sim.hosts[0].device.add_peer(other),
        Err(AddPeerError::Exists(b))
    );

    let key = PrivateKey::new([5; 32]);
    let id = sim.hosts[0].device.add_peer(key.public()).unwrap();
    let (now, mut out) = (sim.now, Vec::new());
    sim.hosts[0]
        .device
        .set_private_key(Some(key), now, &mut out);
    assert!(
        out.iter()
            .any(|output| matches!(output, Output::PeerRemoved { peer } if *peer == id))
    );
    assert_eq!(sim.hosts[0].device.peer_public_key(id), None);
    // The index is free for the next peer.
    assert_eq!(
        sim.hosts[0]
            .device
            .add_peer(PrivateKey::generate().public()),
        Ok(id)
    );
}

#[test]
fn a_removed_peer_leaves_nothing() {
    let (mut sim, b, a) = Sim::pair();
    let now = sim.now;
    sim.with(0, |device, out| {
        device.set_persistent_keepalive(b, 10, now, out);
    });
    sim.send(0, b, b"text");
    sim.run_until(secs(300));
    sim.with(0, |device, out| device.remove_peer(b, out));
    assert_eq!(
        (
            sim.hosts[0].receive_keys(),
            sim.hosts[0].device.next_deadline()
        ),
        (0, None)
    );
    // Later packets from the removed peer, and reports about it, match no peer.
    sim.send(1, a, b"to nobody");
    let now = sim.now;
    sim.with(0, |device, out| {
        device.need_session(b, now, out);
        device.refresh(b, 1, now, out);
        device.confirmed(b, 1, now, out);
        device.set_persistent_keepalive(b, 10, now, out);
        device.remove_peer(b, out);
        assert!(out.is_empty());
    });
    sim.run_for(secs(100));
    assert_eq!(sim.hosts[0].received(), Vec::<Vec<u8>>::new());
    let last = sim.hosts[0].events.last().unwrap();
    assert_eq!(last.1, Event::Dropped(Dropped::UnknownPeer));
}

#[test]
fn a_handshake_waits_for_key_and_endpoint() {
    let mut sim = Sim::new();
    sim.host(PrivateKey::generate());
    sim.host(PrivateKey::generate());
    let (b, _) = sim.join(0, 1);
    let (now, address) = (sim.now, sim.hosts[1].address);
    sim.with(0, |device, out| {
        device.set_endpoint(b, None, now, out);
        device.need_session(b, now, out);
        assert!(out.is_empty());
        device.set_endpoint(b, Some(address), now, out);
        assert_eq!(out.len(), 1);
    });

    let mut device = Device::new(now, wall(), 1);
    let mut out = Vec::new();
    let id = device.add_peer(PrivateKey::generate().public()).unwrap();
    device.set_endpoint(id, Some(address), now, &mut out);
    device.need_session(id, now, &mut out);
    assert!(out.is_empty());
    assert_eq!(
        device.receive(&sim.sent[0].bytes, address, now, false, &mut out),
        Err(Dropped::NoPrivateKey)
    );
    device.set_private_key(Some(PrivateKey::generate()), now, &mut out);
    assert!(matches!(out[..], [Output::Send { to, .. }] if to == address));
}

#[test]
fn the_endpoint_is_where_authentic_messages_come_from() {
    for form in FORMS {
        let (mut sim, b, a) = Sim::pair_in(form);
        sim.send(0, b, b"here");
        sim.run_until(secs(1));
        // A host that moves is recognised by its data at once.
        let moved: SocketAddr = "[2001:db8::7]:4000".parse().unwrap();
        sim.hosts[0].address = moved;
        sim.send(0, b, b"there");
        sim.run_for(secs(1));
        assert_eq!(sim.hosts[1].endpoint(a), Some(moved));
        // A handshake in either direction works too.
        sim.run_until(secs(200));
        let again: SocketAddr = "192.0.2.9:9".parse().unwrap();
        sim.hosts[0].address = again;
        sim.send(0, b, b"again");
        sim.run_for(LATENCY);
        assert_eq!(sim.hosts[1].endpoint(a), Some(again));
        sim.run_until(secs(400));
        let server: SocketAddr = "192.0.2.10:10".parse().unwrap();
        let sent = sim.sent.len();
        sim.send(0, b, b"yet again");
        // The initiation arrives at the old address; the answer comes from a new one.
        sim.hosts[1].address = server;
        let initiation = sim.sent[sent].clone();
        sim.inject(initiation.from, server, initiation.bytes);
        sim.run_for(secs(1));
        assert_eq!(sim.hosts[0].endpoint(b), Some(server));
        assert_eq!(sim.hosts[1].received().last().unwrap(), b"yet again");
    }
}

#[test]
fn what_is_replayed_moves_nothing() {
    for form in FORMS {
        let (mut sim, b, a) = Sim::pair_in(form);
        sim.send(0, b, b"once");
        sim.run_until(secs(1));
        let (keys, complete) = (
            [0, 1].map(|host| sim.hosts[host].receive_keys()),
            sim.hosts[0].count(&Event::Complete),
        );
        let thief: SocketAddr = "203.0.113.1:1".parse().unwrap();
        for flight in sim.sent.clone() {
            sim.inject(thief, flight.to, flight.bytes);
        }
        sim.run_until(secs(2));
        assert_eq!(sim.hosts[1].received(), [b"once"]);
        assert_eq!(sim.hosts[1].count(&Event::Replayed), 1);
        assert_eq!(sim.hosts[1].count(&Event::Dropped(Dropped::Replayed)), 1);
        assert_eq!(sim.hosts[0].count(&Event::Dropped(Dropped::Unexpected)), 1);
        assert_eq!([0, 1].map(|host| sim.hosts[host].receive_keys()), keys);
        assert_eq!(sim.hosts[0].count(&Event::Complete), complete);
        assert_ne!(sim.hosts[1].endpoint(a), Some(thief));
        assert_ne!(sim.hosts[0].endpoint(b), Some(thief));

        // The expiry of the sessions does not change that either.
        sim.run_until(secs(1000));
        let initiation = sim.sent[0].clone();
        sim.inject(thief, initiation.to, initiation.bytes);
        sim.run_for(secs(1));
        assert_eq!(sim.hosts[1].count(&Event::Response), 1);
    }
}

#[test]
fn a_forged_answer_does_not_end_the_handshake() {
    let (mut sim, b, _) = Sim::pair();
    sim.link = Box::new(|_| vec![millis(100)]);
    sim.send(0, b, b"text");
    sim.run_until(millis(101));
    let genuine = sim.sent[1].clone();
    // The first MAC, which anyone can compute, is valid; the rest is not.
    for at in [8, 12, 44, 59] {
        let mut forged = genuine.bytes.clone();
        forged[at] ^= 1;
        let key = crypto::blake2s::hash(&[
            b"mac1----",
            sim.hosts[0].device.public_key().unwrap().as_bytes(),
        ]);
        let mac1 = crypto::blake2s::mac(&key, &[&forged[..60]]);
        forged[60..76].copy_from_slice(&mac1);
        sim.inject(genuine.from, genuine.to, forged);
    }
    sim.run_until(secs(1));
    assert_eq!(sim.hosts[0].count(&Event::Dropped(Dropped::Unexpected)), 1);
    assert_eq!(sim.hosts[0].count(&Event::Dropped(Dropped::Unauthentic)), 3);
    assert_eq!(sim.hosts[0].count(&Event::Complete), 1);
    assert_eq!(sim.hosts[1].received(), [b"text"]);
}

#[test]
fn a_clock_that_is_set_back_shuts_no_peer_out() {
    let (mut sim, b, _) = Sim::pair();
    sim.send(0, b, b"before");
    sim.run_until(secs(1));
    sim.hosts[0].wall -= secs(1_000_000);
    sim.run_until(secs(200));
    sim.send(0, b, b"after");
    sim.run_for(secs(1));
    // Removing and adding the peer again does not change that either.
    sim.with(0, |device, out| device.remove_peer(b, out));
    sim.hosts[0].planes.remove(&b);
    let b = sim.add(0, 1);
    sim.send(0, b, b"again");
    sim.run_for(secs(1));
    let all = [&b"before"[..], b"after", b"again"];
    assert_eq!(sim.hosts[1].received(), all);
    assert_eq!(sim.hosts[1].count(&Event::Dropped(Dropped::Replayed)), 0);
}

#[test]
fn a_machine_that_starts_without_the_time_is_let_in_when_its_clock_is_set() {
    let mut sim = Sim::new();
    let key = PrivateKey::generate();
    sim.host(key.clone());
    sim.host(PrivateKey::generate());
    let (b, _) = sim.join(0, 1);
    sim.send(0, b, b"before");
    sim.run_until(secs(1));

    sim.hosts[0].restart(key, sim.now);
    sim.hosts[0].wall = SystemTime::UNIX_EPOCH;
    let b = sim.add(0, 1);
    sim.send(0, b, b"after");
    sim.run_until(secs(20));
    assert!(sim.hosts[1].count(&Event::Dropped(Dropped::Replayed)) >= 3);
    assert_eq!(sim.hosts[1].received(), [b"before"]);

    sim.hosts[0].wall = wall();
    sim.run_for(secs(6));
    assert_eq!(sim.hosts[1].received(), [&b"before"[..], b"after"]);
}

/// A router without a battery-backed clock begins each boot in the past. With its saved timestamp as a floor, a peer
/// accepts it at once, and still does after the clock is set.
#[test]
fn a_machine_whose_clock_went_back_is_let_in_by_its_floor() {
    let mut sim = Sim::new();
    let key = PrivateKey::generate();
    sim.host(key.clone());
    sim.host(PrivateKey::generate());
    let (b, _) = sim.join(0, 1);
    sim.send(0, b, b"before");
    sim.run_until(secs(1));

    let mut last = b;
    for life in 0..3 {
        let floor = sim.hosts[0].device.latest_timestamp();
        assert!(floor > SystemTime::UNIX_EPOCH + secs(1_600_000_000));
        // Each boot begins earlier by the clock than the last one.
        sim.hosts[0].wall = SystemTime::UNIX_EPOCH + secs(1000 * (3 - life));
        sim.hosts[0].restart(key.clone(), sim.now);
        sim.hosts[0].device.set_timestamp_floor(floor);
        last = sim.add(0, 1);
        sim.send(0, last, b"after");
        sim.run_for(secs(10));
    }
    sim.hosts[0].wall = wall();
    sim.run_for(secs(200));
    sim.send(0, last, b"set");
    sim.run_for(secs(10));
    assert_eq!(sim.hosts[1].count(&Event::Dropped(Dropped::Replayed)), 0);
    let all = [&b"before"[..], b"after", b"after", b"after", b"set"];
    assert_eq!(sim.hosts[1].received(), all);
}

#[test]
fn a_peer_may_begin_fifty_handshakes_a_second() {
    let key = PrivateKey::generate();
    let mut sim = Sim::new();
    sim.host(PrivateKey::generate());
    let (now, server) = (sim.now, sim.hosts[0].address);
    let (mut responder, mut out) = (Device::new(now, wall(), 0), Vec::new());
    let responder_key = PrivateKey::generate();
    let responder_public = responder_key.public();
    responder.set_private_key(Some(responder_key), now, &mut out);
    responder.add_peer(key.public()).unwrap();
    // A device begins one handshake in 5 s, so each of these comes from another device with the same key and a later
    // clock.
    let initiation = |number: u64| {
        let mut device = Device::new(now, wall() + secs(number), 0);
        let mut out = Vec::new();
        device.set_private_key(Some(key.clone()), now, &mut out);
        let id = device.add_peer(responder_public).unwrap();
        device.set_endpoint(id, Some(server), now, &mut out);
        device.need_session(id, now, &mut out);
        let Some(Output::Send { datagram, .. }) = out.pop() else {
            panic!("no initiation")
        };
        datagram
    };
    let mut receive = |number, at| {
        responder.receive(
            initiation(number).as_bytes(),
            server,
            now + at,
            false,
            &mut Vec::new(),
        )
    };
    assert_eq!(receive(1, millis(0)), Ok(()));
    assert_eq!(receive(2, millis(19)), Err(Dropped::Flood));
    assert_eq!(receive(2, millis(20)), Ok(()));
    assert_eq!(receive(2, secs(1)), Err(Dropped::Replayed));
    assert_eq!(receive(1, secs(1)), Err(Dropped::Replayed));
    assert_eq!(receive(3, secs(1)), Ok(()));
}

#[test]
fn a_key_of_low_order_is_a_peer_that_never_speaks() {
    let mut sim = Sim::new();
    sim.host(PrivateKey::generate());
    let (now, address) = (sim.now, sim.hosts[0].address);
    let id = sim.hosts[0]
        .device
        .add_peer(PublicKey::from([0; 32]))
        .unwrap();
    sim.with(0, |device, out| {
        device.set_endpoint(id, Some(address), now, out);
        device.set_persistent_keepalive(id, 1, now, out);
        device.need_session(id, now, out);
    });
    sim.run_until(secs(30));
    assert_eq!(sim.sent.len(), 0);
}

#[test]
fn numbers_of_peers_that_never_were_do_nothing() {
    let now = std::time::Instant::now();
    let mut device = Device::new(now, wall(), 0);
    let mut out = Vec::new();
    for id in [PeerId(0), PeerId(u32::MAX)] {
        device.need_session(id, now, &mut out);
        device.set_endpoint(id, None, now, &mut out);
        device.set_preshared_key(id, Key::ZERO);
        device.remove_peer(id, &mut out);
        assert_eq!(device.peer_public_key(id), None);
    }
    device.expired(now, |_| unreachable!(), &mut out);
    assert!(out.is_empty());
}

#[test]
fn an_initiation_is_left_waiting_once_even_if_ours_never_arrive() {
    for form in FORMS {
        let (mut sim, b, a) = Sim::pair_in(form);
        let keys = [0, 1].map(|host| sim.hosts[host].device.public_key());
        let (greater, peer, other, peer_of_other) = if keys[0] > keys[1] {
            (0, b, 1, a)
        } else {
            (1, a, 0, b)
        };
        let address = sim.hosts[greater].address;
        sim.link = Box::new(move |flight| {
            let lost = flight.from == address && flight.bytes[0] == 1;
            if lost { vec![] } else { vec![LATENCY] }
        });
        sim.send(greater, peer, b"lost on the way");
        sim.send(other, peer_of_other, b"left waiting");
        sim.run_until(secs(1));
        assert_eq!(
            sim.hosts[greater].count(&Event::Dropped(Dropped::Crossed)),
            1
        );
        // Both retransmit, the greater first, so that the initiations cross again.
        for host in [greater, other] {
            sim.now = sim.start + millis(5400);
            let now = sim.now;
            sim.with(host, |device, out| {
                device.expired(now, |_| Activity::default(), out);
            });
        }
        sim.run_until(secs(6));
        assert_eq!(sim.hosts[greater].received(), [b"left waiting"]);
        assert_eq!(sim.hosts[other].received(), [b"lost on the way"]);
    }
}
