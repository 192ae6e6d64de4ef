//! Records of TCP connections through a data plane that the test steps by hand.

// Every function serves tests only.
#![allow(clippy::unwrap_used)]

use engine::fuzzing::{Plane, connection};
use engine::{Peer, Routes, Stream, TunnelOptions};
use netio::tun::VNET_HDR_LEN;
use netio::udp::Endpoint;
use plane::{
    Batch, CipherName, Class, Control, DataPlane as _, Format, Formats, KeyLimits, Line, Moving,
    Notice, Packet, Payload, PeerId, Protocol, Record, ReplayCheck, SessionKeys, SessionName,
    StreamId, Window, Wire, ZeroizeOnDrop,
};
use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A cipher that sends the peer's number and the packet in clear.
struct Clear;

#[derive(Default)]
struct AllNew;

impl Window for AllNew {
    fn accept(&mut self, _: u64) -> ReplayCheck {
        ReplayCheck::New
    }
}

/// Length field in front of each packet of a stream.
const RECORD_HEADER: usize = 2;

impl ZeroizeOnDrop for Framed {}

impl Protocol for Clear {
    type Keys = Framed;
    type Error = Infallible;

    fn formats(&self, Framed(number): &Framed) -> Result<Formats, Infallible> {
        Ok(Formats {
            seal: Arc::new(Framed(*number)),
            open: Arc::new(Framed(*number)),
            cipher: CipherName::default(),
        })
    }
}

impl Wire for Clear {
    const HEAD_MAX: usize = RECORD_HEADER + 1;
    const RECORD_HEADER: usize = RECORD_HEADER;
    const TAIL_MAX: usize = 0;
    const STAGES: bool = false;
    const ECN: bool = false;
    type Window = AllNew;
    type Reader = ();

    fn classify(&self, (): &(), datagram: &[u8]) -> Class {
        Class::Data {
            session: SessionName::Index(datagram[0].into()),
            counter: 0,
            header: 1,
            or_control: false,
        }
    }

    fn record(bytes: &[u8], longest: usize) -> Record {
        let Some(len) = bytes.first_chunk() else {
            return Record::Partial;
        };
        match usize::from(u16::from_be_bytes(*len)) {
            len if len == 0 || len > longest => Record::Malformed,
            len if RECORD_HEADER + len > bytes.len() => Record::Partial,
            len => Record::Whole { len },
        }
    }

    fn loops(&self, _: &[u8], _: SocketAddr, _: u32, _: &Endpoint) -> bool {
        false
    }
}

struct Framed(u8);

impl Format for Framed {
    fn head(&self) -> usize {
        RECORD_HEADER + 1
    }
    fn tail(&self, _: usize) -> usize {
        0
    }
    fn seal(&self, batch: &mut Batch<'_>) {
        for packet in batch.packets.iter() {
            let at = packet.start as usize;
            let len = (packet.len as u16).wrapping_add(1).to_be_bytes();
            batch.memory[at - 3..at].copy_from_slice(&[len[0], len[1], self.0]);
        }
    }
    fn open(&self, batch: &mut Batch<'_>) {
        for packet in batch.packets.iter_mut() {
            packet.authentic = true;
        }
    }
    fn reveal(&self, _: &mut [u8], _: &mut Packet) -> Payload {
        Payload::Inner
    }
}

struct Deaf;

impl Control for Deaf {
    fn datagram(&self, _: Line, _: &[u8]) -> bool {
        true
    }
    fn notify(&self, _: PeerId, _: Notice) {}
    fn device_gone(&self) {}
}

/// A peer and its end of the connection.
struct Remote {
    peer: Arc<Peer>,
    stream: Arc<Stream>,
    end: UnixStream,
}

fn address(number: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, number).into()
}

/// Builds a data plane with `peers` peers, whose connections and addresses are numbered from 1.
fn plane(mtu: usize, peers: u8) -> (Plane<Clear>, Vec<Remote>) {
    let options = TunnelOptions {
        workers: 1,
        parallel: false,
        coalescing: true,
        mtu,
        gso_max_segs: 64,
        backpressure: false,
    };
    let plane = Plane::new(Clear, Arc::new(Deaf), &options).unwrap();
    let limits = KeyLimits {
        expires: Instant::now() + Duration::from_secs(3600),
        messages_max: u64::MAX,
        refresh_at: None,
        refresh_messages: u64::MAX,
    };
    let mut routes = Routes::default();
    let mut remotes = Vec::new();
    for number in 1..=peers {
        let id = PeerId(number.into());
        assert!(plane.tunnel.add_peer(id, Moving::Tell));
        let peer = plane.tunnel.find(id).unwrap();
        let from = ([192, 0, 2, number], 1194).into();
        let (stream, end) = connection(StreamId(number.into()), from).unwrap();
        peer.set_stream(Some(Arc::clone(&stream)));
        let session = u32::from(number);
        let keys = SessionKeys {
            session,
            remote: session,
            material: Framed(number),
            receive: limits,
            send: limits,
            confirm: false,
        };
        plane.tunnel.add_keys(id, keys).unwrap();
        plane.tunnel.send_with(id, session);
        plane.tunnel.add_stream(&stream).unwrap();
        routes.insert(address(number), 32, Arc::clone(&peer));
        remotes.push(Remote { peer, stream, end });
    }
    plane.tunnel.set_routes(routes);
    plane.tunnel.set_hairpin(true);
    (plane, remotes)
}

/// A UDP packet of `len` bytes without a checksum.
fn packet(from: u8, to: u8, len: usize) -> Vec<u8> {
    let mut packet = vec![0; len];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    packet[9] = 17;
    packet[12..20].copy_from_slice(&[10, 0, 0, from, 10, 0, 0, to]);
    packet
}

fn record(number: u8, packet: &[u8]) -> Vec<u8> {
    let len = (packet.len() as u16 + 1).to_be_bytes();
    [&len[..], &[number], packet].concat()
}

/// Packets that wait at the far side of the interface.
fn written(plane: &Plane<Clear>) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; 70_000];
    let mut packets = Vec::new();
    while let Ok(len) = plane.host.recv(&mut buffer) {
        packets.push(buffer[VNET_HDR_LEN..len].to_vec());
    }
    packets
}

fn received(remote: &mut Remote) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    let len = remote.end.read(&mut bytes).unwrap_or(0);
    bytes.truncate(len);
    bytes
}

#[test]
fn a_packet_that_no_record_can_hold_is_dropped_and_the_stream_stays_whole() {
    let (mut plane, mut remotes) = plane(1500, 1);
    for len in [65_535, 65_534, 100] {
        plane
            .tunnel
            .inject(remotes[0].peer.id(), &packet(9, 1, len));
    }
    plane.interface();
    assert_eq!(plane.tunnel.drops().too_long.value(), 1);
    let stream = received(&mut remotes[0]);
    let expected = [65_534, 100].map(|len| record(1, &packet(9, 1, len)));
    assert!(stream == expected.concat(), "{} bytes", stream.len());
}

#[test]
fn what_one_peer_sends_another_may_be_as_long_as_the_interface_takes() {
    let (mut plane, mut remotes) = plane(1500, 2);
    for len in [1500, 1501] {
        let sent = record(1, &packet(1, 2, len));
        remotes[0].end.write_all(&sent).unwrap();
    }
    plane.stream(StreamId(1));
    plane.interface();
    assert_eq!(received(&mut remotes[1]), record(2, &packet(1, 2, 1500)));
    // The kernel fragments the packet or informs its sender.
    assert_eq!(written(&plane), [packet(1, 2, 1501)]);
}

#[test]
fn the_longest_records_of_the_longest_packets_come_in_any_pieces() {
    let (mut plane, mut remotes) = plane(65_535, 1);
    let sent = packet(1, 9, 65_534);
    let bytes = record(1, &sent);
    for cut in [1, 2, 3, 30_000, bytes.len() - 1] {
        // One read holds a whole record and a part of the next, which stays for later.
        remotes[0].end.write_all(&bytes).unwrap();
        remotes[0].end.write_all(&bytes[..cut]).unwrap();
        plane.stream(StreamId(1));
        assert!(written(&plane) == [sent.clone()]);
        remotes[0].end.write_all(&bytes[cut..]).unwrap();
        plane.stream(StreamId(1));
        assert!(written(&plane) == [sent.clone()]);
    }
    assert!(!remotes[0].stream.is_closed());
}

#[test]
fn datagrams_of_a_byte_are_joined_up_to_the_end_of_a_batch_s_memory() {
    let (mut plane, mut remotes) = plane(1500, 1);
    // Records of 32 bytes fill a slot of 128 KiB exactly, the last of them to the last byte.
    let mut tiny = packet(1, 9, 29);
    // Don't Fragment, so that the identification need not increase.
    tiny[6] = 0x40;
    tiny[20..28].copy_from_slice(&[0, 7, 0, 7, 0, 9, 0, 0]);
    let sum = checksum(&tiny);
    tiny[26..28].copy_from_slice(&sum.to_be_bytes());
    let header: u32 = tiny[..20]
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
        .sum();
    let header = !((header & 0xffff) + (header >> 16)) as u16;
    tiny[10..12].copy_from_slice(&header.to_be_bytes());
    let all = record(1, &tiny).repeat((128 << 10) / 32);
    assert_eq!(all.len(), 128 << 10);
    remotes[0].end.write_all(&all).unwrap();
    plane.stream(StreamId(1));
    let inbound = plane.tunnel.inbound();
    assert_eq!(inbound.packets.value(), (128 << 10) / 32);
    assert_eq!(inbound.batches.value(), 1, "one slot, filled to its end");
    assert!(inbound.super_packets.value() > 0);
}

fn checksum(packet: &[u8]) -> u16 {
    let mut sum = u32::from(packet[9]) + packet.len() as u32 - 20;
    for pair in packet[12..].chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !sum as u16
}
