//! Session keys: awaited, used up, expired, confirmed.

use crate::packets::{joined, plain, trimmed, udp, with_header};
use crate::toy::Key;
use crate::world::{World, install, options, session, unlimited};
use netio::tun::Tun;
use plane::{DataPlane as _, KeyLimits, Notice, PeerId, SessionKeys};
use std::time::{Duration, Instant};

fn numbered(count: u8) -> Vec<Vec<u8>> {
    (0..count).map(|i| udp(false, (9, 1), &[i; 20])).collect()
}

fn expired() -> KeyLimits {
    KeyLimits {
        expires: Instant::now(),
        ..unlimited()
    }
}

#[test]
fn packets_wait_for_a_session_cut_up_and_leave_in_order_before_later_ones() {
    let mut world: World<true> = World::new();
    world.plane.tunnel.stop_sending(world.peer.id());
    let data: Vec<u8> = (0..2500_u16).map(|i| i as u8).collect();
    let mut reads: Vec<_> = numbered(2).iter().map(|p| plain(p)).collect();
    reads.push(with_header(&joined(false, false, (9, 1), 1000, &data)));
    world.host_sends(&reads);
    assert!(world.peer.has_staged());
    let notices = world.around.control.notices();
    assert!(
        notices
            .iter()
            .all(|n| *n == (PeerId(1), Notice::NeedSession))
            && !notices.is_empty()
    );
    let key = Key::new(5, 5).shared();
    install(&world.plane.tunnel, &world.peer, 5, &key, unlimited());
    world.key = key;
    world.host_sends(&[plain(&numbered(3)[2])]);
    let received = world.peer_receives(6);
    assert_eq!(
        received.iter().map(|r| r.0).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4, 5]
    );
    assert_eq!(trimmed(&received[0].1), numbered(1)[0]);
    let segments = received[2..5]
        .iter()
        .flat_map(|r| crate::packets::payload(&r.1).to_vec());
    assert_eq!(segments.collect::<Vec<_>>(), data);
    assert_eq!(trimmed(&received[5].1), numbered(3)[2]);
    assert!(!world.peer.has_staged());
}

#[test]
fn packets_that_waited_for_a_session_are_adjusted_as_those_that_did_not() {
    let mut world: World<true> = World::new();
    world.plane.tunnel.stop_sending(world.peer.id());
    world.host_sends(&[plain(&numbered(1)[0])]);
    assert!(world.peer.has_staged());
    let key = Key {
        // Byte 8 is the TTL.
        on_adjust: Some(|packet| packet[8] = 77),
        ..Key::new(5, 5)
    };
    let key = key.shared();
    install(&world.plane.tunnel, &world.peer, 5, &key, unlimited());
    world.key = key;
    world.host_sends(&[plain(&numbered(2)[1])]);
    for (number, packet) in world.peer_receives(2) {
        assert_eq!(packet[8], 77, "packet {number}");
    }
}

#[test]
fn what_waits_in_vain_is_dropped_and_counted() {
    let mut world: World<true> = World::new();
    world.plane.tunnel.stop_sending(world.peer.id());
    let reads: Vec<_> = numbered(140).iter().map(|p| plain(p)).collect();
    world.host_sends(&reads);
    assert_eq!(world.drops(), [("staged", 12)]);
    world.plane.tunnel.send_staged(world.peer.id());
    assert!(world.peer.has_staged(), "there is no key");
    world.plane.tunnel.drop_staged(world.peer.id());
    assert_eq!(world.drops(), [("staged", 140)]);
    // A checksum that points outside its packet.
    let (mut hdr, packet) = joined(false, false, (9, 1), 1000, b"one");
    (hdr.gso, hdr.csum_start) = (netio::tun::GsoKind::None, 2000);
    world.host_sends(&[with_header(&(hdr, packet))]);
    assert_eq!(world.plane.tunnel.drops().tun_malformed.value(), 1);
}

#[test]
fn where_packets_do_not_wait_those_without_a_session_are_dropped() {
    let mut world: World = World::new();
    world.plane.tunnel.stop_sending(world.peer.id());
    world.host_sends(&[
        plain(&numbered(1)[0]),
        with_header(&joined(true, false, (9, 1), 10, &[0; 40])),
    ]);
    assert_eq!(world.drops(), [("no_session", 5)]);
    assert_eq!(world.around.control.notices(), []);
}

#[test]
fn an_expired_key_neither_seals_nor_opens() {
    let mut world: World<true> = World::new();
    let key = Key::new(5, 5).shared();
    install(&world.plane.tunnel, &world.peer, 5, &key, expired());
    world.host_sends(&[plain(&numbered(1)[0])]);
    assert_eq!(
        world.around.control.notices(),
        [(PeerId(1), Notice::NeedSession)]
    );
    assert!(!world.plane.tunnel.send_keepalive(world.peer.id()));
    world.plane.tunnel.send_staged(world.peer.id());
    assert!(world.peer.has_staged());
    world.peer_sends(&[key.datagram(0, &udp(false, (1, 9), b"late"))]);
    assert_eq!(world.drops(), [("expired", 1)]);
}

#[test]
fn a_key_that_is_used_up_in_a_batch_sends_nothing_of_the_run() {
    let mut world: World<true> = World::new();
    let limits = KeyLimits {
        messages_max: 10,
        ..unlimited()
    };
    world.key = Key::new(5, 5).shared();
    install(&world.plane.tunnel, &world.peer, 5, &world.key, limits);
    let reads: Vec<_> = numbered(8).iter().map(|p| plain(p)).collect();
    world.host_sends(&reads);
    assert_eq!(world.peer_receives(8).len(), 8);
    world.host_sends(&reads[..3]);
    assert_eq!(world.drops(), [("expired", 3)]);
    assert_eq!(
        world.around.control.notices(),
        [(PeerId(1), Notice::NeedSession)]
    );
    world.host_sends(&reads[..1]);
    assert!(
        world.peer.has_staged(),
        "the key is at its end, and the next packet waits"
    );
    assert!(world.remote.arrived().is_empty());
    let beyond = [9, 10].map(|n| world.key.datagram(n, &udp(false, (1, 9), b"x")));
    world.peer_sends(&beyond);
    assert_eq!(world.drops(), [("expired", 4)]);
}

#[test]
fn a_new_key_is_asked_for_once_by_age_and_by_count_on_either_side() {
    let mut world: World = World::new();
    let by_age = KeyLimits {
        refresh_at: Some(Instant::now()),
        ..unlimited()
    };
    let by_count = KeyLimits {
        refresh_messages: 3,
        ..unlimited()
    };
    for (index, limits) in [(5, by_age), (6, by_count)] {
        world.key = Key::new(index as u8, index).shared();
        install(&world.plane.tunnel, &world.peer, index, &world.key, limits);
        for _ in 0..3 {
            let reads: Vec<_> = numbered(2).iter().map(|p| plain(p)).collect();
            world.host_sends(&reads);
        }
        assert_eq!(world.peer_receives(6).len(), 6);
        assert_eq!(
            world.around.control.notices(),
            [(PeerId(1), Notice::Refresh { index })]
        );
    }
    let key = Key::new(7, 7).shared();
    let tunnel = &world.plane.tunnel;
    tunnel
        .add_keys(world.peer.id(), session(7, &key, by_age))
        .unwrap();
    for number in 0..3 {
        world.peer_sends(&[key.datagram(number, &[])]);
    }
    assert_eq!(
        world.around.control.notices(),
        [(PeerId(1), Notice::Refresh { index: 7 })]
    );
}

#[test]
fn the_first_packet_of_a_session_confirms_it_and_answers_are_sealed_with_its_key() {
    let mut world: World = World::new();
    world.plane.tunnel.stop_sending(world.peer.id());
    let key = Key::new(5, 5).shared();
    let keys = SessionKeys {
        confirm: true,
        ..session(5, &key, unlimited())
    };
    world.plane.tunnel.add_keys(world.peer.id(), keys).unwrap();
    let packet = udp(false, (1, 9), b"first");
    world.peer_sends(&[key.datagram(0, &packet), key.datagram(1, &packet)]);
    assert_eq!(
        world.around.control.notices(),
        [(PeerId(1), Notice::Confirmed { index: 5 })]
    );
    world.key = key;
    world.host_sends(&[plain(&numbered(1)[0])]);
    assert_eq!(world.peer_receives(1)[0].0, 0);
    // Control installs the same key too; its packet numbers do not restart.
    let tunnel = &world.plane.tunnel;
    tunnel.send_with(world.peer.id(), 5);
    assert_eq!(world.peer.sent_on_key(), Some(1));
    // A removed key neither opens nor seals.
    tunnel.remove_keys(world.peer.id(), 5);
    assert_eq!(world.peer.sent_on_key(), None);
    let late = world.key.datagram(2, &packet);
    world.peer_sends(&[late]);
    assert_eq!(world.drops(), [("no_session", 1)]);
}

#[test]
fn a_session_confirmed_late_does_not_take_the_place_of_a_newer_one() {
    let mut world: World = World::new();
    let key = Key::new(5, 5).shared();
    let older = KeyLimits {
        expires: unlimited().expires - Duration::from_secs(1000),
        ..unlimited()
    };
    let keys = SessionKeys {
        confirm: true,
        ..session(5, &key, older)
    };
    world.plane.tunnel.add_keys(world.peer.id(), keys).unwrap();
    world.peer_sends(&[key.datagram(0, &[])]);
    world.host_sends(&[plain(&numbered(1)[0])]);
    // The peer receives with the earlier key.
    assert_eq!(world.peer_receives(1)[0].0, 0);
}

#[test]
fn no_key_is_set_for_a_session_that_was_removed() {
    let world: World = World::new();
    let tunnel = &world.plane.tunnel;
    tunnel.stop_sending(world.peer.id());
    tunnel.send_with(world.peer.id(), 9);
    assert_eq!(world.peer.sent_on_key(), None);
}

#[test]
fn a_key_with_a_longer_head_finds_its_room() {
    let (tun, host) = Tun::simulated().unwrap();
    let mut world: World = World::with((tun, host), &options(), Key::new(1, 1));
    let (other, mut remote, _) = world.another(2);
    let long = Key {
        extra: 32,
        ..Key::new(7, 7)
    }
    .shared();
    install(&world.plane.tunnel, &other, 7, &long, unlimited());
    let data = [4; 3000];
    // The read leaves room for the previous key's header: first too little, then too much.
    let reads = [
        plain(&numbered(1)[0]),
        plain(&udp(false, (9, 2), b"longer")),
        plain(&numbered(2)[1]),
        with_header(&joined(false, true, (9, 2), 1000, &data)),
    ];
    world.host_sends(&reads);
    let short = world.peer_receives(2);
    assert_eq!(trimmed(&short[1].1), numbered(2)[1]);
    let inner: Vec<_> = remote
        .receive(4)
        .iter()
        .map(|d| long.opened(d).unwrap().1)
        .collect();
    assert_eq!(crate::packets::payload(&inner[0]), b"longer");
    for packet in &inner[1..] {
        assert_eq!(crate::packets::payload(packet), [4; 1000]);
    }
}
