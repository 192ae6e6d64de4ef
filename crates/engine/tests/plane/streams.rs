//! Peers behind TCP connections.

use crate::packets::{payload, plain, trimmed, udp};
use crate::toy::{CONTROL, HEADER, Key, RECORD_HEADER, TAG};
use crate::world::{Event, World, install, options, unlimited};
use engine::fuzzing::connection;
use engine::{Stream, TunnelOptions};
use netio::tun::Tun;
use plane::StreamId;
use proptest::prelude::*;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

fn theirs(number: u8) -> SocketAddr {
    ([192, 0, 2, number], 1194).into()
}

fn records_of(secret: u8, receiver: u32) -> Key {
    Key {
        records: true,
        ..Key::new(secret, receiver)
    }
}

/// Builds a data plane whose peer 1 is reached over a TCP connection.
fn world(backpressure: bool) -> (World, Arc<Stream>, UnixStream) {
    let options = TunnelOptions {
        backpressure,
        ..options()
    };
    let world = World::with(Tun::simulated().unwrap(), &options, records_of(1, 1));
    let (stream, end) = connection(StreamId(1), theirs(1)).unwrap();
    world.peer.set_stream(Some(Arc::clone(&stream)));
    world.plane.tunnel.add_stream(&stream).unwrap();
    (world, stream, end)
}

fn framed(record: &[u8]) -> Vec<u8> {
    [&(record.len() as u16).to_be_bytes(), record].concat()
}

/// Reads everything available.
fn read_all(end: &mut UnixStream) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    let mut used = 0;
    while let Ok(len @ 1..) = end.read(&mut bytes[used..]) {
        used += len;
        if used == bytes.len() {
            bytes.resize(2 * used, 0);
        }
    }
    bytes.truncate(used);
    bytes
}

/// Opens whole records; returns packets and their numbers.
fn opened(key: &Key, mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut packets = Vec::new();
    while let Some((len, rest)) = bytes.split_first_chunk::<RECORD_HEADER>() {
        let (record, rest) = rest.split_at(u16::from_be_bytes(*len).into());
        packets.push(key.opened(record).unwrap());
        bytes = rest;
    }
    packets
}

fn to_peer(number: u32) -> Vec<u8> {
    let data = [&number.to_be_bytes()[..], &[0; 1000]].concat();
    plain(&udp(false, (9, 1), &data))
}

fn number_of((_, inner): &(u64, Vec<u8>)) -> u32 {
    u32::from_be_bytes(payload(inner)[..4].try_into().unwrap())
}

#[test]
fn a_client_leaves_its_interface_unread_while_something_waits() {
    let (mut world, stream, mut end) = world(true);
    let mut sent = 0;
    while !world.plane.is_held_back() {
        world.host_sends(&[to_peer(sent)]);
        sent += 1;
    }
    assert!(stream.is_congested());
    // The interface's queue fills up, which makes senders slow down.
    while world.plane.host.send(&to_peer(sent)).is_ok() {
        sent += 1;
        world.plane.interface();
        assert!(sent < 10_000, "it is read all the same");
    }
    let mut bytes = Vec::new();
    while world.plane.is_held_back() {
        bytes.extend(read_all(&mut end));
        world.plane.stream(StreamId(1));
    }
    world.plane.interface();
    while stream.is_congested() {
        bytes.extend(read_all(&mut end));
        world.plane.stream(StreamId(1));
    }
    world.plane.interface();
    bytes.extend(read_all(&mut end));
    let packets = opened(&world.key, &bytes);
    let numbers: Vec<u32> = packets.iter().map(number_of).collect();
    assert_eq!(numbers, (0..sent).collect::<Vec<_>>());
    assert_eq!(world.drops(), []);
}

#[test]
fn a_server_drops_what_a_slow_client_has_no_room_for_and_serves_the_others() {
    let (mut world, _, mut end) = world(false);
    let (_, mut other, other_key) = world.another(2);
    let mut sent = 0;
    while world.plane.tunnel.drops().stream_full.value() < 50 {
        world.host_sends(&[to_peer(sent)]);
        sent += 1;
    }
    assert!(!world.plane.is_held_back());
    world.host_sends(&[to_peer(0), plain(&udp(false, (9, 2), b"another client"))]);
    let datagrams = other.receive(1);
    let (_, inner) = other_key.opened(&datagrams[0]).unwrap();
    assert_eq!(payload(&inner), b"another client");
    let mut bytes = read_all(&mut end);
    loop {
        world.plane.stream(StreamId(1));
        let more = read_all(&mut end);
        if more.is_empty() {
            break;
        }
        bytes.extend(more);
    }
    let packets = opened(&world.key, &bytes);
    assert_eq!(packets.len() as u64, u64::from(sent) - 50);
    assert!(packets.windows(2).all(|pair| pair[0].0 < pair[1].0));
    world.host_sends(&[to_peer(sent)]);
    assert_eq!(number_of(&opened(&world.key, &read_all(&mut end))[0]), sent);
}

#[test]
fn control_is_told_of_the_end_of_a_stream_and_of_what_no_peer_would_send() {
    for garbage in [None, Some([0, 0]), Some([0xff, 0xff])] {
        let (mut world, stream, mut end) = world(true);
        while !world.plane.is_held_back() {
            world.host_sends(&[to_peer(0)]);
        }
        match garbage {
            None => drop(end),
            Some(length) => end.write_all(&length).unwrap(),
        }
        world.plane.stream(StreamId(1));
        let events = world.around.control.take();
        assert_eq!(events.last(), Some(&Event::StreamClosed(StreamId(1))));
        assert!(stream.is_closed());
        assert!(
            !world.plane.is_held_back(),
            "nothing waits in what is closed"
        );
        // The closed stream requests no service any more.
        world.plane.stream(StreamId(1));
        assert_eq!(world.around.control.take(), []);
    }
}

#[test]
fn a_stream_that_control_removes_holds_nothing_back() {
    let (mut world, stream, _end) = world(true);
    while !world.plane.is_held_back() {
        world.host_sends(&[to_peer(0)]);
    }
    world.plane.tunnel.remove_stream(&stream);
    assert!(!world.plane.is_held_back());
    world.host_sends(&[to_peer(1)]);
    assert_eq!(world.plane.tunnel.drops().stream_full.value(), 1);
}

#[test]
fn packets_of_a_peer_that_come_another_way_than_its_stream_are_refused() {
    let (mut world, _, mut end) = world(false);
    let (stream, mut other) = connection(StreamId(2), theirs(2)).unwrap();
    world.plane.tunnel.add_stream(&stream).unwrap();
    let packet = udp(false, (1, 9), b"inner");
    let record = |number| world.key.datagram(number, &packet);
    let (first, second, third) = (record(0), record(1), record(2));
    other.write_all(&first).unwrap();
    world.plane.stream(StreamId(2));
    world.peer_sends(&[second[RECORD_HEADER..].to_vec()]);
    assert_eq!(world.drops(), [("wrong_address", 2)]);
    end.write_all(&third).unwrap();
    world.plane.stream(StreamId(1));
    assert_eq!(world.around.written.packets(), [packet]);
}

#[test]
fn control_s_records_come_with_their_stream_and_go_through_its_queue() {
    let (mut world, stream, mut end) = world(false);
    end.write_all(&framed(&[CONTROL, 1, 2])).unwrap();
    end.write_all(&framed(&[9, 9])).unwrap();
    world.plane.stream(StreamId(1));
    let expected = Event::Datagram(theirs(1), Some(StreamId(1)), vec![CONTROL, 1, 2]);
    assert_eq!(world.around.control.take(), [expected]);
    assert_eq!(world.drops(), [("not_ours", 1)]);
    assert!(world.plane.tunnel.send_record(&stream, &[CONTROL, 3]));
    assert_eq!(read_all(&mut end), framed(&[CONTROL, 3]));
    assert!(!world.plane.tunnel.send_record(&stream, &vec![0; 70_000]));
    assert_eq!(world.plane.tunnel.drops().stream_full.value(), 1);
}

#[test]
fn records_that_name_no_session_belong_to_those_of_their_stream() {
    let (mut world, stream, mut end) = world(false);
    let unnamed = Key {
        of_sender: Some(1),
        ..records_of(1, 0)
    };
    let packet = udp(true, (1, 9), b"unnamed");
    let tunnel = &world.plane.tunnel;
    install(tunnel, &world.peer, 41, &world.key, unlimited());
    end.write_all(&unnamed.datagram(0, &packet)).unwrap();
    world.plane.stream(StreamId(1));
    assert_eq!(world.drops(), [("no_session", 1)]);
    stream.set_sessions(40);
    end.write_all(&unnamed.datagram(1, &packet)).unwrap();
    world.plane.stream(StreamId(1));
    assert_eq!(world.around.written.packets(), [packet]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Records arrive in arbitrary pieces and reads, and each is taken once and in order.
    #[test]
    fn records_are_found_wherever_a_stream_is_cut(
        lens in prop::collection::vec(0..1300_usize, 1..60),
        cuts in prop::collection::vec(1..4000_usize, 0..60),
    ) {
        let (mut world, _, mut end) = world(false);
        // Flows alternate, so that no packets are joined.
        let packets: Vec<_> = (0_u8..)
            .zip(&lens)
            .map(|(i, len)| udp(i % 2 == 0, (1, 9), &vec![i; *len]))
            .collect();
        let bytes: Vec<u8> = (0..)
            .zip(&packets)
            .flat_map(|(number, packet)| world.key.datagram(number, packet))
            .collect();
        let mut rest = &bytes[..];
        for cut in cuts.iter().copied().chain([bytes.len()]) {
            let (now, later) = rest.split_at(cut.min(rest.len()));
            rest = later;
            let mut left = now;
            while !left.is_empty() {
                match end.write(left) {
                    Ok(len) => left = &left[len..],
                    Err(_) => world.plane.stream(StreamId(1)),
                }
            }
            world.plane.stream(StreamId(1));
        }
        let mut written = Vec::new();
        for write in world.around.written.take() {
            let (parts, joined) = crate::packets::written(&write);
            written.extend(parts.iter().map(|part| if joined { part.clone() } else { payload(part).to_vec() }));
        }
        let mut sent: Vec<_> = packets.iter().map(|packet| payload(packet).to_vec()).collect();
        // Two flows may overtake each other where packets of one flow are joined.
        written.sort();
        sent.sort();
        prop_assert_eq!(written, sent);
        prop_assert_eq!(world.drops(), vec![]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// However much a reader takes at a time, it gets whole records in order.
    #[test]
    fn what_a_slow_reader_reads_are_whole_records(
        reads in prop::collection::vec(1..60_000_usize, 1..40),
        backpressure in any::<bool>(),
    ) {
        let (mut world, _, mut end) = world(backpressure);
        let (mut sent, mut bytes) = (0, Vec::new());
        for read in reads {
            for _ in 0..60 {
                if world.plane.host.send(&to_peer(sent)).is_ok() {
                    sent += 1;
                }
                world.plane.interface();
            }
            let mut buffer = vec![0; read];
            if let Ok(len) = end.read(&mut buffer) {
                bytes.extend(&buffer[..len]);
            }
            world.plane.stream(StreamId(1));
            world.plane.interface();
        }
        loop {
            let more = read_all(&mut end);
            bytes.extend(&more);
            world.plane.stream(StreamId(1));
            world.plane.interface();
            if more.is_empty() {
                break;
            }
        }
        bytes.extend(read_all(&mut end));
        let packets = opened(&world.key, &bytes);
        let numbers: Vec<u32> = packets.iter().map(number_of).collect();
        prop_assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
        let dropped = world.plane.tunnel.drops().stream_full.value();
        prop_assert_eq!(numbers.len() as u64 + dropped, u64::from(sent));
        prop_assert!(!backpressure || dropped == 0);
        let each = RECORD_HEADER + HEADER + TAG;
        prop_assert!(packets.iter().all(|(_, inner)| trimmed(inner).len() + each <= bytes.len()));
    }
}
