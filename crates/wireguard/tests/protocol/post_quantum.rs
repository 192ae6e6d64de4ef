//! Post-quantum keys in real handshakes.

use std::cell::Cell;
use std::rc::Rc;

use crate::sim::{Event, Sim, millis, secs};
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
fn packets_pass_at_once_when_keys_are_required_no_longer() {
    for settings in [Some(PREFER), None] {
        let (mut sim, b, _) = Sim::pair();
        set(&mut sim, 0, b, REQUIRE);
        sim.send(0, b, b"one");
        sim.run_until(secs(10));
        assert!(users(&sim, 1).is_empty());
        sim.with(0, |device, out| {
            device.set_post_quantum(b, settings, out);
        });
        sim.send(0, b, b"two");
        sim.run_for(secs(1));
        assert_eq!(users(&sim, 1), [b"one", b"two"], "{settings:?}");
    }
}

#[test]
fn preferred_keys_replace_a_session_that_carries_packets_already() {
    let (mut sim, b, a) = Sim::pair();
    set(&mut sim, 0, b, PREFER);
    set(&mut sim, 1, a, PREFER);
    // Zeros would be padding.
    for number in 1..=100 {
        sim.send(0, b, &[number]);
        sim.send(1, a, &[number]);
        sim.run_for(secs(10));
    }
    let sent: Vec<Vec<u8>> = (1..=100).map(|number| vec![number]).collect();
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

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % most
    }
}

/// Seconds of faults, how long both ends have to recover, and how long recovered ends are watched.
const FAULTS: u64 = 240;
const RECOVERY: u64 = 30;
const WATCHED: u64 = 20;

/// One schedule: loss, delays and power cuts for a time, and packets of users from both ends each second. Every packet
/// that is sealed is checked against its session.
fn schedule(seed: u64) {
    let mut random = Random(seed);
    let loss = [0, 5, 20, 50][random.below(4) as usize];
    let delay = [1, 50, 400, 3000][random.below(4) as usize];
    let faults = Rc::new(Cell::new((loss, delay)));
    let (mut fate, now) = (Random(!seed), Rc::clone(&faults));
    let mut sim = Sim::new();
    sim.link = Box::new(move |_| match now.get() {
        (loss, _) if fate.below(100) < loss => Vec::new(),
        (_, delay) => vec![millis(1 + fate.below(delay))],
    });
    // Either end may have the greater key.
    let first = 1 + random.below(2) as u8;
    let keys = [first, 3 - first].map(|byte| PrivateKey::new([byte; 32]));
    for key in &keys {
        sim.host(key.clone());
    }
    let (b, a) = sim.join(0, 1);
    let mut peers = [b, a];
    for at in [0, 1] {
        set(&mut sim, at, peers[at], REQUIRE);
    }
    let mut heard = [0; 2];
    for second in 0..FAULTS + RECOVERY + WATCHED {
        if second == FAULTS {
            faults.set((0, 50));
        }
        for at in [0, 1] {
            if second < FAULTS && random.below(150) == 0 {
                let now = sim.now;
                sim.hosts[at].restart(keys[at].clone(), now);
                peers[at] = sim.add(at, 1 - at);
                set(&mut sim, at, peers[at], REQUIRE);
            }
            if second == FAULTS + RECOVERY {
                heard[at] = users(&sim, at).len();
            }
            sim.send(at, peers[at], &(second + 1).to_le_bytes());
            sim.run_for(millis(500));
        }
    }
    for at in [0, 1] {
        let more = users(&sim, at).len() - heard[at];
        assert!(
            more as u64 + 2 >= WATCHED,
            "seed {seed}: end {at} heard {more} packets"
        );
        assert_eq!(is_protected(&sim, at, peers[at]), Some(true), "seed {seed}");
    }
}

/// Runs 20 schedules; `MILLRACE_SCHEDULES` sets another number.
#[test]
fn loss_and_power_cuts_never_cost_protection_and_traffic_returns() {
    let number = std::env::var("MILLRACE_SCHEDULES");
    // The last two were left with an unprotected session: each Answer was lost; a handshake was asked for too soon.
    for seed in (0..number.map_or(20, |it| it.parse().unwrap())).chain([7625, 3958]) {
        schedule(seed);
    }
}
