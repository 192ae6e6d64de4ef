//! Post-quantum keys in real handshakes.

use crate::sim::{Event, Sim, secs};
use crypto::x25519::PrivateKey;
use plane::PeerId;
use wireguard::PostQuantum;

const REQUIRE: PostQuantum = PostQuantum {
    require: true,
    port: postquantum::PORT,
    room: 1372,
    pad: false,
};
const PREFER: PostQuantum = PostQuantum {
    require: false,
    ..REQUIRE
};

fn set(sim: &mut Sim, at: usize, peer: PeerId, settings: PostQuantum) {
    sim.with(at, |device, out| {
        device.set_post_quantum(peer, Some(settings), out);
    });
}

fn is_protected(sim: &Sim, at: usize, peer: PeerId) -> Option<bool> {
    let status = sim.hosts[at].device.post_quantum(peer).unwrap();
    status.exchange.protected
}

/// Packets of users that have come, in order.
fn users(sim: &Sim, at: usize) -> Vec<Vec<u8>> {
    let all = sim.hosts[at].received().into_iter().map(|it| it.to_vec());
    all.filter(|it| !postquantum::is_exchange(it)).collect()
}

#[test]
fn required_keys_are_exchanged_before_the_first_packet_passes() {
    let (mut sim, b, a) = Sim::pair();
    set(&mut sim, 0, b, REQUIRE);
    set(&mut sim, 1, a, REQUIRE);
    sim.send(0, b, b"one");
    sim.run_until(secs(1));
    assert_eq!(users(&sim, 1), [b"one"]);
    assert_eq!(is_protected(&sim, 0, b), Some(true));
    assert_eq!(is_protected(&sim, 1, a), Some(true));
    // One handshake under no key, one under the new one.
    assert_eq!(sim.hosts[0].count(&Event::Complete), 2);

    // Each end has lost its memory once: the other falls back after two answers.
    for (at, other) in [(0, 1), (1, 0)] {
        let key = PrivateKey::generate();
        let before = sim.hosts[at].device.public_key().unwrap();
        let now = sim.now;
        sim.hosts[at].restart(key, now);
        sim.with(other, |device, out| {
            let old = device.peer_by_public_key(&before).unwrap();
            device.remove_peer(old, out);
        });
        let (here, there) = sim.join(at, other);
        set(&mut sim, at, here, REQUIRE);
        set(&mut sim, other, there, REQUIRE);
        sim.send(at, here, b"again");
        sim.run_for(secs(30));
        assert_eq!(users(&sim, other).last().unwrap(), b"again");
    }
}

#[test]
fn a_restarted_end_is_heard_again_within_20_seconds() {
    for restarted in [0, 1] {
        let mut sim = Sim::new();
        let keys = [PrivateKey::generate(), PrivateKey::generate()];
        for key in &keys {
            sim.host(key.clone());
        }
        let (b, a) = sim.join(0, 1);
        set(&mut sim, 0, b, REQUIRE);
        set(&mut sim, 1, a, REQUIRE);
        sim.send(0, b, b"one");
        sim.run_until(secs(2));
        let now = sim.now;
        sim.hosts[restarted].restart(keys[restarted].clone(), now);
        let peer = sim.add(restarted, 1 - restarted);
        set(&mut sim, restarted, peer, REQUIRE);
        sim.send(restarted, peer, b"two");
        sim.run_for(secs(20));
        assert_eq!(users(&sim, 1 - restarted).last().unwrap(), b"two");
    }
}

#[test]
fn a_plain_peer_gets_packets_if_keys_are_preferred_and_none_if_they_are_required() {
    for (settings, passes) in [(PREFER, true), (REQUIRE, false)] {
        let (mut sim, b, _) = Sim::pair();
        set(&mut sim, 0, b, settings);
        sim.send(0, b, b"one");
        sim.run_until(secs(60));
        assert_eq!(users(&sim, 1).len(), usize::from(passes));
        assert_eq!(is_protected(&sim, 0, b), Some(false));
        let status = sim.hosts[0].device.post_quantum(b).unwrap();
        assert_eq!(status.exchange.peer, postquantum::Peer::Silent);
    }
}

#[test]
fn preferred_keys_replace_a_session_that_carries_packets_already() {
    let (mut sim, b, a) = Sim::pair();
    set(&mut sim, 0, b, PREFER);
    set(&mut sim, 1, a, PREFER);
    for number in 0..100 {
        sim.send(0, b, &[number]);
        sim.send(1, a, &[number]);
        sim.run_for(secs(10));
    }
    let sent: Vec<Vec<u8>> = (0..100).map(|number| vec![number]).collect();
    assert_eq!(users(&sim, 0), sent);
    assert_eq!(users(&sim, 1), sent);
    assert_eq!(is_protected(&sim, 1, a), Some(true));
    // At first, and once more after ten minutes.
    let count = |at: usize, peer| {
        sim.hosts[at]
            .device
            .post_quantum(peer)
            .unwrap()
            .exchange
            .count
    };
    assert_eq!((count(0, b), count(1, a)), (2, 2));
}
