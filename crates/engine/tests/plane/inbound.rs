//! From sockets to the interface.

use crate::packets::{mark, marked, plain, tcp, trimmed, udp, written};
use crate::toy::{CONTROL, Key, MESSAGE, NONSENSE, PACKED, PACKED_WRONGLY, UNFRAMED};
use crate::world::{Event, World, options, session, unlimited};
use netio::simulated::Call;
use netio::tun::Tun;
use netio::udp::{Ecn, Family};
use plane::{DataPlane as _, Notice, PeerId, PeerState, Sender};
use std::sync::atomic::Ordering;

#[test]
fn what_a_flow_s_packets_carry_is_written_at_once_and_in_order() {
    for v6 in [false, true] {
        let mut world: World = World::new();
        let data: Vec<u8> = (0..20_000_u32).map(|i| (i % 249) as u8).collect();
        let datagrams: Vec<_> = data
            .chunks(1000)
            .enumerate()
            .map(|(i, chunk)| {
                let mut inner = tcp(v6, (1, 9), i as u32 * 1000, chunk);
                // The receiver must strip this padding.
                inner.resize(inner.len().next_multiple_of(16), 0);
                world.key.datagram(i as u64, &inner)
            })
            .collect();
        world.peer_sends(&datagrams);
        let writes = world.around.written.take();
        let parts = writes.iter().flat_map(|write| written(write).0);
        assert!(parts.flatten().collect::<Vec<u8>>() == data);
        assert!(writes.len() < 20, "{} writes", writes.len());
        let inbound = world.plane.tunnel.inbound();
        assert_eq!(inbound.packets.value(), 20);
        assert!(inbound.super_packets.value() >= 1);
        assert_eq!(world.drops(), []);
    }
}

#[test]
fn each_number_is_taken_once_in_whatever_order_they_come() {
    let mut world: World = World::new();
    let packets: Vec<_> = (0..6_u8).map(|i| udp(false, (1, 9), &[i])).collect();
    let order = [3, 0, 3, 5, 1, 0, 2, 5];
    let datagrams: Vec<_> = order
        .iter()
        .map(|&i: &u64| world.key.datagram(i, &packets[i as usize]))
        .collect();
    world.peer_sends(&datagrams);
    // The replay window has moved past this number by then.
    let late = [
        world.key.datagram(50_000, &packets[0]),
        world.key.datagram(4, &packets[4]),
    ];
    world.peer_sends(&late);
    assert_eq!(world.drops(), [("duplicate", 3), ("replayed", 1)]);
    assert_eq!(world.plane.tunnel.inbound().packets.value(), 6);
    let usage = world.plane.tunnel.key_usage(PeerId(1), 1);
    assert_eq!((usage.opened, usage.forged), (50_000, 0));
}

#[test]
fn what_is_not_taken_is_counted_by_its_reason() {
    let mut world: World = World::new();
    world.another(2);
    let key = &world.key;
    let good = udp(false, (1, 9), b"good");
    let mut damaged = key.datagram(1, &good);
    *damaged.last_mut().unwrap() ^= 1;
    let datagrams = [
        vec![9; 60],
        vec![1; 10],
        Key::new(1, 99).datagram(2, &good),
        damaged,
        Key::new(3, 1).datagram(3, &good),
        key.datagram(4, &udp(false, (2, 9), b"another's address")),
        key.datagram(5, &udp(true, (77, 9), b"nobody's address")),
        key.datagram(6, &[0x45; 10]),
        key.datagram(7, &[NONSENSE]),
        key.datagram(8, &good),
    ];
    world.peer_sends(&datagrams);
    assert_eq!(
        world.drops(),
        [
            ("not_ours", 2),
            ("no_session", 1),
            ("not_authentic", 2),
            ("inner_malformed", 2),
            ("wrong_source", 2),
        ]
    );
    assert_eq!(world.around.written.packets(), [good]);
    assert_eq!(world.plane.tunnel.key_usage(PeerId(1), 1).forged, 2);
    assert_eq!(world.plane.tunnel.key_usage(PeerId(1), 99).opened, 0);
}

#[test]
fn outer_congestion_marks_are_combined_with_inner_ones() {
    use Ecn::{Ce, Ect0, Ect1, NotEct};
    // RFC 6040, figure 4.
    for (inner, outer, expected) in [
        (0, NotEct, Some(0)),
        (0, Ect0, Some(0)),
        (0, Ce, None),
        (2, NotEct, Some(2)),
        (2, Ect1, Some(1)),
        (2, Ce, Some(3)),
        (1, Ce, Some(3)),
        (3, NotEct, Some(3)),
    ] {
        for v6 in [false, true] {
            let mut world: World = World::new();
            let packet = marked(udp(v6, (1, 9), b"marked"), inner);
            let datagram = world.key.datagram(0, &packet);
            world.peer_sends_marked(&[datagram], outer);
            let written = world.around.written.packets();
            assert_eq!(
                written.first().map(|p| mark(p)),
                expected,
                "{inner} {outer:?}"
            );
            if let Some(packet) = written.first() {
                crate::packets::payload(packet);
            }
            let dropped = world.plane.tunnel.drops().congestion.value();
            assert_eq!(dropped, u64::from(expected.is_none()));
        }
    }
}

#[test]
fn a_keepalive_says_that_the_peer_lives_and_writes_nothing() {
    let mut world: World = World::new();
    let keepalive = world.key.datagram(0, &[]);
    world.peer_sends(&[keepalive]);
    assert!(world.around.written.take().is_empty());
    let times = world.peer.times();
    assert!(times.last_received.is_some());
    assert_eq!(times.last_data_received, None);
    assert!(world.peer.rx_bytes.value() > 0);
    assert_eq!(world.plane.tunnel.inbound().packets.value(), 0);
    assert_eq!(
        world.around.control.take(),
        [Event::Notice(PeerId(1), Notice::Active)]
    );
}

#[test]
fn neither_keepalives_nor_messages_are_payload_in_either_direction() {
    let mut world: World = World::new();
    let state = |world: &World| PeerState {
        rx_bytes: world.peer.rx_bytes.value(),
        tx_bytes: world.peer.tx_bytes.value(),
        message_bytes: world.peer.message_bytes.value(),
        ..PeerState::default()
    };
    for number in 0..10 {
        let keepalive = world.key.datagram(2 * number, &[]);
        let message = world.key.datagram(2 * number + 1, &[MESSAGE, 1, 2]);
        world.peer_sends(&[keepalive, message]);
        world.plane.tunnel.inject(world.peer.id(), &[MESSAGE, 3, 4]);
        world.host_sends(&[]);
        assert_eq!(world.peer_receives(1).len(), 1);
    }
    let known = state(&world);
    assert!(known.rx_bytes > 0 && known.tx_bytes > 0, "{known:?}");
    assert_eq!(known.payload_bytes(), 0, "{known:?}");
    // Inner packets count as payload, also when a message arrives in the same batch.
    let packet = udp(false, (1, 9), &[7; 500]);
    let both = [world.key.datagram(20, &[]), world.key.datagram(21, &packet)];
    world.peer_sends(&both);
    let received = state(&world).payload_bytes();
    assert_eq!(received, both[1].len() as u64);
    world.host_sends(&[plain(&udp(false, (9, 1), &[7; 500]))]);
    world.peer_receives(1);
    assert!(state(&world).payload_bytes() > received + 500);
}

#[test]
fn messages_and_what_is_no_data_packet_are_control_s() {
    let mut world: World = World::new();
    let message = world.key.datagram(0, &[MESSAGE, 5, 6]);
    world.peer_sends(&[vec![CONTROL, 7], message]);
    let from = world.remote.addr();
    let events = world.around.control.take();
    assert_eq!(events[0], Event::Datagram(from, None, vec![CONTROL, 7]));
    assert_eq!(events[1], Event::Message(PeerId(1), vec![MESSAGE, 5, 6]));
    world.around.control.busy.store(true, Ordering::Relaxed);
    world.peer_sends(&[vec![CONTROL, 8]]);
    // The second drop is the message that `peer_sends` waits for.
    assert_eq!(world.drops(), [("handshake_queue_full", 2)]);
}

#[test]
fn packets_in_pieces_are_cut_and_joined_and_keep_their_order() {
    let key = || Key {
        pieces: Some(100),
        ..Key::new(1, 1)
    };
    let mut world: World = World::with_key(key());
    let packets: Vec<_> = [1, 90, 301, 40]
        .map(|len| udp(false, (9, 1), &vec![5; len]))
        .into();
    let reads: Vec<_> = packets.iter().map(|p| plain(p)).collect();
    world.host_sends(&reads);
    let count: usize = packets.iter().map(|p| p.len().div_ceil(100)).sum();
    let pieces = world.peer_receives(count);
    let whole: Vec<u8> = pieces
        .iter()
        .flat_map(|(_, piece)| piece[2..].to_vec())
        .collect();
    assert_eq!(whole, packets.concat());

    // The engine first splits a super-packet into packets, then each packet into pieces.
    let data = vec![3; 950];
    let joined = crate::packets::joined(false, false, (9, 1), 400, &data);
    world.host_sends(&[crate::packets::with_header(&joined)]);
    let mut pieces = world
        .peer_receives(5 + 5 + 2)
        .into_iter()
        .map(|(_, piece)| piece);
    let mut segments = 0;
    while let Some(mut piece) = pieces.next() {
        let mut packet = piece.split_off(2);
        while piece[1] == 0 {
            piece = pieces.next().unwrap();
            packet.extend(piece.split_off(2));
        }
        assert!(
            crate::packets::payload(&packet)
                .iter()
                .all(|byte| *byte == 3)
        );
        segments += 1;
    }
    assert_eq!(segments, 3);

    // The reverse direction.
    let mut number = 0;
    let mut datagrams = Vec::new();
    let inner: Vec<_> = [1, 90, 301, 40]
        .map(|len| udp(false, (1, 9), &vec![6; len]))
        .into();
    for packet in &inner {
        plane::Format::split(&key(), packet, &mut |front, rest| {
            datagrams.push(key().datagram(number, &[front, rest].concat()));
            number += 1;
        });
    }
    world.peer_sends(&datagrams);
    assert_eq!(world.around.written.packets(), inner);
    assert_eq!(world.drops(), []);
}

#[test]
fn joined_pieces_are_checked_as_packets_are() {
    let mut world: World = World::new();
    let piece = |inner: &[u8]| [&[0xfe, 1], inner].concat();
    let stolen = udp(false, (2, 9), b"another's address");
    let datagrams = [
        world.key.datagram(0, &piece(&stolen)),
        world.key.datagram(1, &[0xfe, 7]),
        world.key.datagram(2, &piece(&udp(false, (1, 9), b"good"))),
        world.key.datagram(3, &udp(false, (1, 9), b"whole")),
    ];
    world.peer_sends(&datagrams);
    assert_eq!(world.drops(), [("inner_malformed", 1), ("wrong_source", 1)]);
    let expected = [&b"good"[..], b"whole"].map(|data| udp(false, (1, 9), data));
    assert_eq!(world.around.written.packets(), expected);
}

#[test]
fn control_is_told_once_that_a_peer_compresses_or_does_not_frame() {
    let cases = [
        (PACKED, Notice::Compressed { unpacked: true }, None),
        (
            PACKED_WRONGLY,
            Notice::Compressed { unpacked: false },
            Some("compressed"),
        ),
        (UNFRAMED, Notice::Unframed, Some("inner_malformed")),
    ];
    for (front, notice, dropped) in cases {
        let mut world: World = World::new();
        let packet = udp(false, (1, 9), b"packed");
        let packed = [&[front], &packet[..]].concat();
        let datagrams = [
            world.key.datagram(0, &packed),
            world.key.datagram(1, &packed),
        ];
        world.peer_sends(&datagrams);
        assert_eq!(world.around.control.notices(), [(PeerId(1), notice)]);
        let count = if dropped.is_none() { 2 } else { 0 };
        assert_eq!(world.plane.tunnel.inbound().unpacked.value(), count);
        assert_eq!(world.drops(), Vec::from_iter(dropped.map(|it| (it, 2))));
        assert_eq!(world.around.written.packets().len() as u64, count);
    }
}

#[test]
fn what_one_peer_sends_another_is_sealed_for_it_without_the_kernel() {
    let mut world: World = World::new();
    let (_, mut other, key) = world.another(2);
    let packet = udp(false, (1, 2), b"from peer to peer");
    let datagram = |world: &World, number| world.key.datagram(number, &packet);
    let first = datagram(&world, 0);
    world.peer_sends(&[first]);
    assert_eq!(
        world.around.written.packets(),
        *std::slice::from_ref(&packet),
        "the kernel's affair"
    );
    world.plane.tunnel.set_hairpin(true);
    let piece = [&[0xfe, 1], &packet[..]].concat();
    let long = udp(false, (1, 2), &[0; 1400]);
    let to_itself = udp(false, (1, 1), b"its own");
    let datagrams = [
        datagram(&world, 1),
        world.key.datagram(2, &piece),
        world.key.datagram(3, &long),
        world.key.datagram(4, &to_itself),
    ];
    world.peer_sends(&datagrams);
    world.plane.interface();
    for (number, datagram) in other.receive(2).iter().enumerate() {
        let (counter, inner) = key.opened(datagram).unwrap();
        assert_eq!((counter, trimmed(&inner)), (number as u64, &packet[..]));
    }
    // The engine relays neither a packet that exceeds the MTU nor one for the sending peer: the kernel gets both.
    assert_eq!(world.around.written.packets(), [long, to_itself]);
}

#[test]
fn packets_that_name_no_session_are_found_by_their_sender() {
    let mut world: World = World::new();
    let unnamed = Key {
        of_sender: Some(2),
        ..Key::new(1, 0)
    };
    let packet = udp(false, (1, 9), b"unnamed");
    let tunnel = &world.plane.tunnel;
    let keys = session(42, &world.key, unlimited());
    tunnel.add_keys(world.peer.id(), keys).unwrap();
    world.peer_sends(&[unnamed.datagram(0, &packet)]);
    assert_eq!(world.drops(), [("no_session", 1)]);
    let addr = world.remote.addr();
    let before = world.around.peer(&world.plane.tunnel, 2, None).id();
    let tunnel = &world.plane.tunnel;
    tunnel.set_sender(before, Sender::Address(addr), 7);
    tunnel.set_sender(PeerId(1), Sender::Address(addr), 40);
    world.peer_sends(&[unnamed.datagram(1, &packet)]);
    assert_eq!(
        world.around.written.packets(),
        *std::slice::from_ref(&packet)
    );
    // Only the peer that now owns the address can clear it; the previous owner cannot.
    world
        .plane
        .tunnel
        .clear_sender(before, Sender::Address(addr));
    world.peer_sends(&[unnamed.datagram(2, &packet)]);
    world
        .plane
        .tunnel
        .clear_sender(PeerId(1), Sender::Address(addr));
    world.peer_sends(&[unnamed.datagram(3, &packet)]);
    assert_eq!(world.around.written.packets(), [packet]);
    assert_eq!(world.drops(), [("no_session", 2)]);
}

#[test]
fn errors_of_a_socket_cost_nothing_that_was_received() {
    let mut world: World = World::new();
    // ECONNREFUSED, EINTR, ENETDOWN; then the kernel accepts the packet.
    let mut errors = vec![100, 4, 111];
    let sockets = world.plane.tunnel.sockets();
    sockets
        .of(Family::V4)
        .unwrap()
        .faults
        .set(move |call| match call {
            Call::Receive => errors
                .pop()
                .map(|e| Err(std::io::Error::from_raw_os_error(e))),
            _ => None,
        });
    let packet = udp(false, (1, 9), b"behind errors");
    let datagram = world.key.datagram(0, &packet);
    world.peer_sends(&[datagram]);
    assert_eq!(world.around.written.packets(), [packet]);
    assert_eq!(world.drops(), []);
}

#[test]
fn what_the_interface_does_not_take_is_counted() {
    let (tun, host) = Tun::simulated().unwrap();
    let mut world: World = World::with((tun, host), &options(), Key::new(1, 1));
    // ENOBUFS.
    world.around.written.refuse(|_| Some(105));
    let piece = [&[0xfe, 1], &udp(false, (1, 9), b"a piece")[..]].concat();
    let datagrams = [
        world.key.datagram(0, &udp(false, (1, 9), b"alone")),
        world.key.datagram(1, &piece),
    ];
    world.peer_sends(&datagrams);
    assert_eq!(world.drops(), [("tun_write", 2)]);
}
