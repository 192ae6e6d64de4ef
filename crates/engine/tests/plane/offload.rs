//! Kernels that refuse offloads they announced: every packet still goes, exactly once.

use crate::packets::{joined, payload, tcp, udp, with_header, written};
use crate::toy::Key;
use crate::world::{World, options};
use engine::Sockets;
use netio::simulated::Call;
use netio::tun::{GsoKind, Tun};
use netio::udp::{Family, SocketOptions, UdpSocket};
use plane::{DataPlane as _, LineId, Notice, Transports as _};
use proptest::prelude::*;
use std::io::Error;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const EIO: i32 = 5;
const EINVAL: i32 = 22;
const ENOSYS: i32 = 38;
const EMSGSIZE: i32 = 90;
const EAGAIN: i32 = 11;

/// Returns the packets of a flow, and their payloads concatenated.
fn flow(as_udp: bool, count: u32, from: u32) -> (Vec<Vec<u8>>, Vec<u8>) {
    let payloads: Vec<_> = (from..from + count).map(|i| vec![i as u8; 500]).collect();
    let packet = |(i, payload): (u32, &Vec<u8>)| {
        if as_udp {
            udp(false, (1, 9), payload)
        } else {
            tcp(false, (1, 9), i * 500, payload)
        }
    };
    let packets = (from..).zip(&payloads).map(packet).collect();
    (packets, payloads.concat())
}

/// Sends a flow from the peer; returns the written payload and the number of super-packets.
fn through(world: &mut World, as_udp: bool, count: u32, from: u32) -> (Vec<u8>, usize) {
    let (packets, _) = flow(as_udp, count, from);
    let datagrams: Vec<_> = (u64::from(from)..)
        .zip(&packets)
        .map(|(number, packet)| world.key.datagram(number, packet))
        .collect();
    world.peer_sends(&datagrams);
    let (mut data, mut supers) = (Vec::new(), 0);
    for write in world.around.written.take() {
        let (parts, joined) = written(&write);
        supers += usize::from(joined);
        for part in parts {
            data.extend(if joined { &part } else { payload(&part) });
        }
    }
    (data, supers)
}

#[test]
fn super_packets_that_the_interface_refuses_are_written_one_by_one_and_no_more_are_made() {
    for as_udp in [false, true] {
        let mut world: World = World::new();
        let refusals = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&refusals);
        world.around.written.refuse(move |hdr| {
            let refused = (hdr.gso == GsoKind::Udp) == as_udp && hdr.gso != GsoKind::None;
            count.fetch_add(refused.into(), Ordering::Relaxed);
            refused.then_some(EINVAL)
        });
        let on = |world: &World| {
            let tun = world.plane.tunnel.tun();
            if as_udp { tun.uso.on() } else { tun.gro.on() }
        };
        let mut from = 0;
        while on(&world) {
            let (data, supers) = through(&mut world, as_udp, 10, from);
            assert!(data == flow(as_udp, 10, from).1 && supers == 0);
            from += 10;
            assert!(from < 100, "never given up");
        }
        assert_eq!(refusals.load(Ordering::Relaxed), 3);
        let (data, _) = through(&mut world, as_udp, 10, from);
        assert!(data == flow(as_udp, 10, from).1);
        assert_eq!(
            refusals.load(Ordering::Relaxed),
            3,
            "no super-packet is tried any more"
        );
        // Packets of the other kind are still joined.
        let (data, supers) = through(&mut world, !as_udp, 10, from + 10);
        assert!(data == flow(!as_udp, 10, from + 10).1 && supers > 0);
        assert_eq!(world.drops(), []);
    }
}

#[test]
fn a_super_packet_that_fails_for_another_reason_is_counted_packet_by_packet() {
    let mut world: World = World::new();
    world.around.written.refuse(|_| Some(EIO));
    let (data, _) = through(&mut world, false, 10, 0);
    assert!(data.is_empty());
    assert_eq!(world.drops(), [("tun_write", 10)]);
    assert!(world.plane.tunnel.tun().gro.on());
}

/// Sends a super-packet of `segments` segments, and checks that each arrived once and in order.
fn send_and_check(world: &mut World, segments: usize) {
    let data: Vec<u8> = (0..segments * 700).map(|i| (i / 700) as u8).collect();
    world.host_sends(&[with_header(&joined(false, false, (9, 1), 700, &data))]);
    let received = world.peer_receives(segments);
    let whole: Vec<u8> = received
        .iter()
        .flat_map(|r| payload(&r.1).to_vec())
        .collect();
    assert!(whole == data);
    let numbers: Vec<u64> = received.iter().map(|r| r.0).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1));
}

#[test]
fn trains_that_the_socket_refuses_leave_as_datagrams_and_no_more_are_made() {
    for (errno, refusals) in [(EINVAL, 3), (EMSGSIZE, 3), (EIO, 1)] {
        let mut world: World = World::new();
        let sockets = world.plane.tunnel.sockets();
        let socket = sockets.of(Family::V4).unwrap();
        let tried = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&tried);
        socket.faults.set(move |call| match call {
            Call::Send { trains, .. } if trains[0].len > trains[0].segment => {
                count.fetch_add(1, Ordering::Relaxed);
                Some(Err(Error::from_raw_os_error(errno)))
            }
            _ => None,
        });
        for _ in 0..5 {
            send_and_check(&mut world, 20);
        }
        assert!(!socket.gso.on());
        assert_eq!(tried.load(Ordering::Relaxed), refusals);
        assert_eq!(world.drops(), []);
        let notices = world.around.control.notices();
        let too_long = (world.peer.id(), Notice::TooLong);
        assert_eq!(notices.contains(&too_long), errno != EIO, "{notices:?}");
        // Shorter packets may fit where longer ones did not.
        world.plane.tunnel.set_mtu(options().mtu - 100);
        assert_eq!(socket.gso.on(), errno != EIO);
    }
}

#[test]
fn a_kernel_without_calls_for_many_messages_gets_one_at_a_time() {
    let mut world: World = World::new();
    let sockets = world.plane.tunnel.sockets();
    let socket = sockets.of(Family::V4).unwrap();
    socket.gso.demote("a test");
    socket.faults.set(|call| match call {
        Call::Send {
            trains: [_, _, ..], ..
        } => Some(Err(Error::from_raw_os_error(ENOSYS))),
        _ => None,
    });
    send_and_check(&mut world, 20);
    assert!(!socket.mmsg.on());
    send_and_check(&mut world, 20);
}

#[test]
fn datagrams_that_the_socket_has_no_room_for_are_counted() {
    let mut world: World = World::new();
    let sockets = world.plane.tunnel.sockets();
    sockets
        .of(Family::V4)
        .unwrap()
        .faults
        .set(|call| match call {
            // `poll` reports room in the socket, but the send fails with ENOBUFS.
            Call::Send { .. } => Some(Err(Error::from_raw_os_error(105))),
            Call::Receive => Some(Err(Error::from_raw_os_error(EAGAIN))),
            _ => None,
        });
    world.host_sends(&[with_header(&joined(false, false, (9, 1), 700, &[0; 7000]))]);
    assert_eq!(world.drops(), [("send_failed", 10)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Both directions carry the same packets with any set of kernel offloads, whichever the kernel refuses.
    #[test]
    fn every_set_of_offloads_carries_the_same(
        headers in any::<bool>(),
        tun_refuses in prop::collection::vec(any::<bool>(), 0..6),
        (gso, gro, mmsg) in any::<(bool, bool, bool)>(),
        socket_refuses in prop::collection::vec(prop::option::of(prop::sample::select(vec![EINVAL, EMSGSIZE, EIO, 4])), 0..6),
        as_udp in any::<bool>(),
        segments in 1..60_usize,
        count in 1..100_u32,
    ) {
        let (tun, host) = Tun::simulated().unwrap();
        let device = if headers { (tun, host) } else { (tun.plain(), host) };
        let mut world: World = World::with(device, &options(), Key::new(1, 1));
        let socket = SocketOptions {
            address: Some(Ipv4Addr::LOCALHOST.into()),
            buffer: Some(4 << 20),
            gso,
            gro,
            mmsg,
            ..SocketOptions::default()
        };
        let socket = UdpSocket::bind(Family::V4, &socket).unwrap();
        world.around.here.set_port(socket.port());
        let mut errors = socket_refuses.into_iter();
        socket.faults.set(move |call| match call {
            Call::Send { trains, .. } => {
                let segments = trains[0].len > trains[0].segment;
                // Whole messages can fail only with EINTR.
                let errno = errors.next().flatten().filter(|e| segments || *e == 4)?;
                Some(Err(Error::from_raw_os_error(errno)))
            }
            _ => None,
        });
        world.plane.tunnel.open_line(LineId::FIRST, Sockets { v4: Some(socket), v6: None }).unwrap();
        let mut refusals = tun_refuses.into_iter();
        if headers {
            world.around.written.refuse(move |hdr| {
                let refused = hdr.gso != GsoKind::None && refusals.next() == Some(true);
                refused.then_some(EINVAL)
            });
            send_and_check(&mut world, segments);
            let (data, _) = through(&mut world, as_udp, count, 0);
            prop_assert!(data == flow(as_udp, count, 0).1);
        } else {
            let (packets, _) = flow(as_udp, count, 0);
            let datagrams: Vec<_> = (0..).zip(&packets).map(|(n, p)| world.key.datagram(n, p)).collect();
            world.peer_sends(&datagrams);
            prop_assert!(world.around.written.take() == packets);
            world.host_sends(&[tcp(false, (9, 1), 0, &[1; 900])]);
            prop_assert_eq!(world.peer_receives(1).len(), 1);
        }
        prop_assert_eq!(world.drops(), []);
    }
}
