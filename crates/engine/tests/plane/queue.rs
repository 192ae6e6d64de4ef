//! Queue management of packets that have waited long in a socket.

use crate::packets::{mark, marked, tcp, udp};
use crate::world::{World, until};
use engine::Sockets;
use netio::simulated::Call;
use netio::udp::{Family, SocketOptions, UdpSocket};
use plane::{LineId, Transports as _};
use std::net::Ipv4Addr;
use std::time::Instant;

/// Builds a data plane whose datagrams appear to have waited for `micros` microseconds.
fn waiting(micros: usize) -> World {
    let mut world = World::new();
    let options = SocketOptions {
        address: Some(Ipv4Addr::LOCALHOST.into()),
        buffer: Some(4 << 20),
        mmsg: true,
        aqm: true,
        ..SocketOptions::default()
    };
    let socket = UdpSocket::bind(Family::V4, &options).unwrap();
    world.around.here.set_port(socket.port());
    socket.faults.set(move |call| match call {
        Call::Waited => Some(Ok(micros)),
        _ => None,
    });
    world
        .plane
        .tunnel
        .open_line(
            LineId::FIRST,
            Sockets {
                v4: Some(socket),
                v6: None,
            },
        )
        .unwrap();
    world
}

/// Sends batches of 30 packets of 1,000 bytes until `enough`. Returns the number of packets sent, and the packets
/// written. UDP datagrams grow, so that none are joined.
fn send(
    world: &mut World,
    enough: impl Fn(&World, &[Vec<u8>]) -> bool,
    packet: impl Fn(u32) -> Vec<u8>,
) -> (usize, Vec<Vec<u8>>) {
    let (mut sent, mut written) = (0, Vec::new());
    let mut batch = 0;
    until("enough was sent", || {
        let datagrams: Vec<_> = (0..30)
            .map(|i| world.key.datagram(u64::from(batch * 30 + i), &packet(i)))
            .collect();
        batch += 1;
        sent += datagrams.len();
        world.peer_sends(&datagrams);
        written.extend(world.around.written.packets());
        enough(world, &written)
    });
    (sent, written)
}

/// Returns true after 220 ms, enough for two queue judgements on a machine that is not too busy. Used where no packet
/// may be dropped.
fn twice() -> impl Fn(&World, &[Vec<u8>]) -> bool {
    let begun = Instant::now();
    move |_, _| begun.elapsed().as_millis() > 220
}

/// Returns true once the queue has dropped two packets.
fn two_dropped(world: &World, _: &[Vec<u8>]) -> bool {
    world.plane.tunnel.drops().aqm.value() >= 2
}

#[test]
fn a_tcp_segment_is_dropped_for_each_interval_in_which_packets_have_waited_for_long() {
    let mut world = waiting(20_000);
    // Each segment is of its own connection, so that no gap or flag prevents joining.
    let (sent, written) = send(&mut world, two_dropped, |i| {
        tcp(i % 2 == 1, (1, 9), i * 7, &[7; 1000])
    });
    let dropped = world.plane.tunnel.drops().aqm.value();
    assert_eq!(written.len() + dropped as usize, sent);
    assert_eq!(world.drops(), [("aqm", dropped)]);
    assert!(world.plane.tunnel.inbound().waited_us.value() > 10_000);
}

#[test]
fn segments_that_can_be_marked_are_marked_and_datagrams_of_udp_are_let_pass() {
    let mut world = waiting(20_000);
    let two_marked = |_: &World, written: &[Vec<u8>]| {
        let congested = written.iter().filter(|packet| mark(packet) == 3);
        congested.count() >= 2
    };
    let (sent, written) = send(&mut world, two_marked, |i| match i % 3 {
        0 => udp(false, (1, 9), &vec![7; 900 + i as usize]),
        v6 => marked(tcp(v6 == 1, (1, 9), i * 7, &[7; 1000]), 2),
    });
    assert_eq!((written.len(), world.drops()), (sent, vec![]));
    let mut world = waiting(20_000);
    let (sent, written) = send(&mut world, twice(), |i| {
        udp(false, (1, 9), &vec![7; 900 + i as usize])
    });
    assert_eq!((written.len(), world.drops()), (sent, vec![]));
}

#[test]
fn nothing_is_signalled_where_packets_wait_for_a_moment_only() {
    let mut world = waiting(300);
    let (sent, written) = send(&mut world, twice(), |i| {
        tcp(false, (1, 9), i * 7, &[7; 1000])
    });
    assert_eq!((written.len(), world.drops()), (sent, vec![]));
}

#[test]
fn a_flow_that_nothing_waits_behind_is_let_wait() {
    let mut world = waiting(20_000);
    let segment = |i: u32| tcp(false, (1, 9), i * 7, &[7; 1000]);
    let (sent, written) = send(&mut world, twice(), segment);
    assert_eq!((written.len(), world.drops()), (sent, vec![]));
    assert!(world.plane.tunnel.inbound().waited_us.value() > 10_000);
    // One packet in 300 belongs to a phone call.
    let mut world = waiting(20_000);
    let (sent, written) = send(&mut world, two_dropped, |i| match i % 300 {
        0 => udp(false, (1, 8), &[7; 100]),
        _ => segment(i),
    });
    let dropped = world.plane.tunnel.drops().aqm.value();
    assert_eq!(written.len() + dropped as usize, sent);
}

#[test]
fn signals_come_faster_while_segments_are_there_to_be_dropped() {
    let mut world = waiting(20_000);
    let (mut last, mut dropped, mut batch) = (Instant::now(), 0, 0);
    until("two drops come soon one after the other", || {
        let datagrams: Vec<_> = (0..30)
            .map(|i| {
                let segment = tcp(i % 2 == 1, (1, 9), i * 7, &[7; 1000]);
                world.key.datagram(u64::from(batch * 30 + i), &segment)
            })
            .collect();
        batch += 1;
        world.peer_sends(&datagrams);
        if world.plane.tunnel.drops().aqm.value() == dropped {
            return false;
        }
        dropped += 1;
        // Without counting signals, no interval would become this short.
        let gap = std::mem::replace(&mut last, Instant::now()).elapsed();
        dropped > 1 && gap.as_millis() < 45
    });
}

#[test]
fn what_comes_once_more_takes_no_signal_from_what_is_new() {
    let mut world = waiting(20_000);
    let segment = |i: u32| tcp(false, (1, 9), i * 7, &[7; 1000]);
    let first = world.key.datagram(0, &segment(0));
    world.peer_sends(std::slice::from_ref(&first));
    let mut number = 0;
    until("segments are dropped", || {
        // Each batch begins with a replayed segment.
        let new = (0..30).map(|i| {
            number += 1;
            let packet = match i {
                29 => segment(i),
                _ => udp(false, (1, 8), &vec![7; 900 + i as usize]),
            };
            world.key.datagram(number, &packet)
        });
        let datagrams: Vec<_> = [first.clone()].into_iter().chain(new).collect();
        world.peer_sends(&datagrams);
        world.plane.tunnel.drops().aqm.value() >= 3
    });
}
