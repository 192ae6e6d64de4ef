//! Packets from the interface to sockets.

use crate::packets::{
    address, joined, mark, marked, payload, plain, tcp, trimmed, udp, with_header,
};
use crate::toy::{CONTROL, Key, MESSAGE};
use crate::world::{World, options};
use engine::Sockets;
use netio::simulated::Call;
use netio::tun::{GsoKind, Tun, VnetHdr};
use netio::udp::{Endpoint, Family};
use plane::{DataPlane as _, Line, LineId, Transports as _};
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn packets_are_numbered_padded_and_sealed_in_the_order_in_which_they_were_read() {
    let mut world: World = World::new();
    let packets: Vec<_> = [0, 3, 1000, 1392, 9]
        .map(|len| udp(len % 2 == 1, (9, 1), &vec![7; len]))
        .into();
    let reads: Vec<_> = packets.iter().map(|packet| plain(packet)).collect();
    world.host_sends(&reads);
    let received = world.peer_receives(packets.len());
    for (number, ((counter, inner), sent)) in received.iter().zip(&packets).enumerate() {
        assert_eq!(*counter, number as u64);
        assert_eq!(trimmed(inner), sent);
        let padded = sent.len().next_multiple_of(16).min(1420);
        assert_eq!(inner.len(), padded);
        assert!(inner[sent.len()..].iter().all(|byte| *byte == 0));
    }
    let outbound = world.plane.tunnel.outbound();
    assert_eq!(outbound.packets.value(), 5);
    let bytes: usize = packets.iter().map(Vec::len).sum();
    assert_eq!(outbound.bytes.value(), bytes as u64);
    assert_eq!(world.drops(), []);
    assert!(world.peer.times().last_data_sent.is_some());
}

#[test]
fn super_packets_leave_as_packets_with_checksums_of_their_own() {
    for (as_udp, v6) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut world: World = World::new();
        let data: Vec<u8> = (0..30_001_u32).map(|i| (i % 251) as u8).collect();
        world.host_sends(&[with_header(&joined(as_udp, v6, (9, 1), 1300, &data))]);
        let received = world.peer_receives(data.len().div_ceil(1300));
        let whole: Vec<u8> = received
            .iter()
            .flat_map(|(_, inner)| payload(inner).to_vec())
            .collect();
        assert!(whole == data, "udp {as_udp}, IPv6 {v6}");
        assert_eq!(world.plane.tunnel.outbound().super_packets.value(), 1);
    }
}

/// A format that pads at random costs no more datagrams at a time than one that does not.
#[test]
fn packets_of_one_length_share_one_random_padding() {
    let key = Key {
        paddings: Some(AtomicUsize::new(0)),
        ..Key::new(1, 1)
    };
    let mut world: World = World::with_key(key);
    let data: Vec<u8> = (0..10_300_u32).map(|i| (i % 251) as u8).collect();
    let segments = with_header(&joined(false, false, (9, 1), 1000, &data));
    let packet = tcp(false, (9, 1), 7, &[5; 1000]);
    let before = world.plane.tunnel.outbound().syscalls.value();
    world.host_sends(&[segments.clone(), plain(&packet), segments, plain(&packet)]);
    let received = world.peer_receives(24);
    let (full, last): (Vec<_>, Vec<_>) = received
        .iter()
        .partition(|(_, inner)| trimmed(inner).len() == packet.len());
    assert_eq!((full.len(), last.len()), (22, 2));
    let padded = full[0].1.len();
    assert!(padded > packet.len());
    assert!(full.iter().all(|(_, inner)| inner.len() == padded));
    for (_, inner) in last {
        assert!(inner.len() > trimmed(inner).len() && inner.len() <= padded);
        assert_eq!(payload(inner).len(), 300);
    }
    let calls = world.plane.tunnel.outbound().syscalls.value() - before;
    assert!(calls < 24, "{calls}");
}

/// Counts the messages in which 1 MB of super-packets leaves; the last packet of each is shorter.
fn messages(key: Key) -> usize {
    let mut world: World = World::with_key(key);
    let (messages, sockets) = (Arc::new(AtomicUsize::new(0)), world.plane.tunnel.sockets());
    let count = Arc::clone(&messages);
    let socket = sockets.of(Family::V4).unwrap();
    socket.faults.set(move |call| {
        if let Call::Send { trains, .. } = call {
            count.fetch_add(trains.len(), Ordering::Relaxed);
        }
        None
    });
    for number in 0..20 {
        let data = vec![number; 40 * 1300 - 800];
        world.host_sends(&[with_header(&joined(false, false, (9, 1), 1300, &data))]);
        let received = world.peer_receives(40);
        assert!(received.iter().all(|(_, inner)| inner.len() <= 1420));
    }
    messages.load(Ordering::Relaxed)
}

#[test]
fn random_padding_costs_no_more_sends_than_none() {
    let padded = Key {
        paddings: Some(AtomicUsize::new(0)),
        ..Key::new(1, 1)
    };
    let (plain, padded) = (messages(Key::new(1, 1)), messages(padded));
    assert!(plain >= 20, "{plain}");
    assert!(10 * padded <= 11 * plain, "{padded} beside {plain}");
}

#[test]
fn a_checksum_that_the_kernel_left_to_do_is_completed() {
    let mut world: World = World::new();
    let (hdr, packet) = joined(false, false, (9, 1), 1000, b"the only segment");
    let hdr = VnetHdr {
        gso: GsoKind::None,
        ..hdr
    };
    world.host_sends(&[with_header(&(hdr, packet))]);
    assert_eq!(payload(&world.peer_receives(1)[0].1), b"the only segment");
}

#[test]
fn an_interface_without_headers_is_read_and_written_without_them() {
    let (tun, host) = Tun::simulated().unwrap();
    let device = (tun.plain(), host);
    let mut world: World = World::with(device, &options(), Key::new(1, 1));
    let packet = udp(false, (9, 1), b"out");
    world.host_sends(&[packet.clone(), udp(false, (9, 77), b"nowhere")]);
    assert_eq!(trimmed(&world.peer_receives(1)[0].1), packet);
    let answer = world.around.written.take();
    assert_eq!((answer.len(), answer[0][0]), (1, 0x45));
    let segments: Vec<_> = (0..3)
        .map(|i| tcp(false, (1, 9), i * 100, &[i as u8; 100]))
        .collect();
    let datagrams: Vec<_> = (0..)
        .zip(&segments)
        .map(|(n, s)| world.key.datagram(n, s))
        .collect();
    world.peer_sends(&datagrams);
    assert_eq!(world.around.written.take(), segments);
}

#[test]
fn what_cannot_go_is_counted_by_its_reason() {
    let mut world: World = World::new();
    world.around.peer(&world.plane.tunnel, 2, None);
    let bad_super = |change: fn(&mut VnetHdr)| {
        let (mut hdr, packet) = joined(false, false, (9, 1), 100, &[1; 300]);
        change(&mut hdr);
        with_header(&(hdr, packet))
    };
    world.host_sends(&[
        plain(&[0x15; 40]),
        plain(&[]),
        vec![0; 5],
        bad_super(|hdr| hdr.gso_size = 0),
        plain(&udp(false, (9, 3), b"nobody's")),
        with_header(&joined(true, true, (9, 2), 10, &[0; 95])),
    ]);
    assert_eq!(
        world.drops(),
        [("tun_malformed", 4), ("no_route", 1), ("no_endpoint", 10)]
    );
}

#[test]
fn a_super_packet_of_more_segments_than_memory_can_hold_is_dropped() {
    let mut world: World = World::new();
    world.host_sends(&[with_header(&joined(false, false, (9, 1), 1, &[0; 60_000]))]);
    assert_eq!(world.drops(), [("tun_malformed", 60_000)]);
    world.host_sends(&[plain(&udp(false, (9, 1), b"the next one goes"))]);
    assert_eq!(world.peer_receives(1)[0].0, 0);
}

#[test]
fn senders_are_told_what_is_unreachable_a_hundred_times_a_second_at_most() {
    let mut world: World = World::new();
    for v6 in [false, true] {
        let packet = udp(v6, (9, 77), b"nowhere");
        world.host_sends(&[plain(&packet)]);
        let answers = world.around.written.packets();
        let [answer] = &answers[..] else {
            panic!("{} answers", answers.len());
        };
        let (to, quoted) = if v6 { (24..40, 48) } else { (16..20, 28) };
        assert_eq!(answer[to], address(v6, 9));
        assert_eq!(answer[quoted..], packet);
    }
    let flood: Vec<_> = (0..400_u16)
        .map(|i| plain(&udp(false, (9, 77), &i.to_be_bytes())))
        .collect();
    world.host_sends(&flood);
    assert_eq!(world.plane.tunnel.drops().no_route.value(), 402);
    let answers = world.around.written.packets().len();
    // A new second may have begun meanwhile, even twice, which allows more answers.
    assert!((98..400).contains(&answers), "{answers}");
}

#[test]
fn the_inner_congestion_mark_is_copied_to_the_outer_header_and_ends_a_train() {
    let mut world: World = World::new();
    let marks = [0, 2, 2, 1, 3, 0];
    let reads: Vec<_> = marks
        .iter()
        .map(|ecn| plain(&marked(udp(*ecn > 1, (9, 1), b"marked"), *ecn)))
        .collect();
    world.host_sends(&reads);
    let mut outer = Vec::new();
    let begun = std::time::Instant::now();
    while outer.len() < marks.len() {
        assert!(begun.elapsed() < crate::world::BOUND);
        outer.extend(world.remote.arrived());
    }
    for ((datagram, ecn), expected) in outer.iter().zip(marks) {
        assert_eq!(ecn.bits(), expected);
        assert_eq!(mark(&world.key.opened(datagram).unwrap().1), expected);
    }
}

#[test]
fn payloads_of_control_s_go_among_the_packets_and_count_as_no_traffic() {
    let mut world: World = World::new();
    let message = [MESSAGE, 1, 2, 3];
    let tunnel = &world.plane.tunnel;
    tunnel.inject(world.peer.id(), &message);
    let packet = udp(false, (9, 1), b"a packet");
    tunnel.inject(world.peer.id(), &packet);
    world.host_sends(&[plain(&packet)]);
    let received = world.peer_receives(3);
    assert!(received[0].1.starts_with(&message));
    assert_eq!(received.iter().map(|r| r.0).collect::<Vec<_>>(), [0, 1, 2]);
    let outbound = world.plane.tunnel.outbound();
    assert_eq!(outbound.bytes.value(), 2 * packet.len() as u64);
}

#[test]
fn so_many_injected_payloads_wait_and_no_more() {
    let mut world: World = World::new();
    for number in 0..1030_u16 {
        let [high, low] = number.to_be_bytes();
        world
            .plane
            .tunnel
            .inject(world.peer.id(), &[MESSAGE, high, low]);
    }
    world
        .plane
        .tunnel
        .inject(world.peer.id(), &vec![MESSAGE; 400_000]);
    assert_eq!(world.drops(), [("staged", 7)]);
    world.plane.interface();
    let received = world.peer_receives(1024);
    for (number, (counter, payload)) in received.iter().enumerate() {
        assert_eq!(*counter, number as u64);
        assert_eq!(payload[1..3], (number as u16).to_be_bytes());
    }
    world
        .plane
        .tunnel
        .inject(world.peer.id(), &vec![MESSAGE; 400_000]);
    world.plane.interface();
    assert_eq!(world.drops(), [("staged", 8)], "longer than a slot");
}

#[test]
fn the_tunnel_s_own_datagram_does_not_come_back_into_it() {
    let mut world: World = World::new();
    // The peer's endpoint is an address that is routed into the tunnel.
    let inside = "10.0.0.1:22136".parse().unwrap();
    world.peer.set_endpoint(Endpoint::new(inside));
    let sealed = world.key.datagram(7, b"sealed");
    world.host_sends(&[plain(&udp(false, (9, 1), &sealed))]);
    assert_eq!(world.drops(), [("looped", 1)]);
    // The same packet is sent if the peer's endpoint is elsewhere.
    world.peer.set_endpoint(Endpoint::new(world.remote.addr()));
    world.host_sends(&[plain(&udp(false, (9, 1), &sealed))]);
    assert_eq!(world.peer_receives(1).len(), 1);
}

#[test]
fn keepalives_and_control_s_datagrams_go_beside_the_batches() {
    let mut world: World = World::new();
    assert!(world.plane.tunnel.send_keepalive(world.peer.id()));
    assert_eq!(world.peer_receives(1), [(0, Vec::new())]);
    assert!(world.peer.times().last_sent.is_some());
    assert_eq!(world.peer.times().last_data_sent, None);
    let to = Endpoint::new(world.remote.addr());
    assert!(world.plane.tunnel.send(&Line::udp(to), &[CONTROL, 1]));
    assert_eq!(world.remote.receive(1), [[CONTROL, 1]]);
    let nowhere = Endpoint::new((Ipv6Addr::LOCALHOST, 9).into());
    assert!(!world.plane.tunnel.send(&Line::udp(nowhere), &[CONTROL]));
    world.plane.tunnel.stop_sending(world.peer.id());
    assert!(!world.plane.tunnel.send_keepalive(world.peer.id()));
    assert_eq!(world.drops(), [("send_failed", 1)]);
}

#[test]
fn what_there_is_no_socket_for_is_counted() {
    let mut world: World = World::new();
    let six = Endpoint::new((Ipv6Addr::LOCALHOST, 9).into());
    world.peer.set_endpoint(six);
    world.host_sends(&[with_header(&joined(false, false, (9, 1), 100, &[0; 1000]))]);
    assert_eq!(world.drops(), [("send_failed", 10)]);
    world
        .plane
        .tunnel
        .open_line(LineId::FIRST, Sockets::default())
        .unwrap();
    world.peer.set_endpoint(Endpoint::new(world.remote.addr()));
    world.host_sends(&[plain(&udp(false, (9, 1), b"x"))]);
    assert_eq!(world.drops(), [("send_failed", 11)]);
}

#[test]
fn interruptions_are_read_on_through_and_other_errors_end_a_batch() {
    let mut world: World = World::new();
    // EINTR, EIO; then the kernel accepts.
    let mut errors = vec![5, 4, 4];
    world.plane.tunnel.tun().faults.set(move |call| match call {
        Call::Read => errors
            .pop()
            .map(|e| Err(std::io::Error::from_raw_os_error(e))),
        _ => None,
    });
    let packet = plain(&udp(false, (9, 1), b"late"));
    world.host_sends(&[packet]);
    assert!(world.remote.arrived().is_empty());
    world.plane.interface();
    assert_eq!(world.peer_receives(1)[0].0, 0);
    assert_eq!(world.drops(), []);
}

#[test]
fn control_is_told_once_when_the_interface_is_deleted() {
    let mut world: World = World::new();
    // EBADFD.
    world
        .plane
        .tunnel
        .tun()
        .faults
        .set(|_| Some(Err(std::io::Error::from_raw_os_error(77))));
    world.plane.interface();
    assert_eq!(world.around.control.take(), [crate::world::Event::Gone]);
}
