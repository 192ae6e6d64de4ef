//! Tests receiving on the loopback interface.

use super::*;
use crate::udp::socket::CALLS_MIN;
use crate::udp::{Endpoint, Family, SendScratch, SocketOptions, Train};
use plane::AtomicU64;
use std::thread;
use std::time::Instant;

fn socket() -> UdpSocket {
    let options = SocketOptions {
        address: Some(Ipv4Addr::LOCALHOST.into()),
        buffer: Some(1 << 20),
        gso: true,
        gro: true,
        mmsg: true,
        aqm: true,
        ..SocketOptions::default()
    };
    UdpSocket::bind(Family::V4, &options).unwrap()
}

/// Sends datagrams of these lengths, as one train if `joined`.
fn send(from: &UdpSocket, to: &UdpSocket, lengths: &[u32], joined: bool) {
    let endpoint = Endpoint::new((Ipv4Addr::LOCALHOST, to.port()).into());
    let train = |len, segment| Train {
        start: 0,
        len,
        segment,
        endpoint,
        ecn: Ecn::NotEct,
    };
    let trains: Vec<Train> = match joined {
        true => vec![train(lengths.iter().sum(), lengths[0])],
        false => lengths.iter().map(|&len| train(len, len)).collect(),
    };
    let mut scratch = SendScratch::new();
    scratch.begin_batch();
    let report = from.send_trains(&mut scratch, &vec![7; 65_536], &trains);
    assert_eq!(report.sent, lengths.len() as u64);
}

/// The lengths and segment sizes of the waiting datagrams, and the number of calls.
fn receive(socket: &UdpSocket) -> (Vec<(u32, u32)>, usize) {
    let (mut scratch, mut memory) = (RecvScratch::new(), vec![0; 2 * TRAIN_ROOM]);
    let (mut trains, mut calls) = (Vec::new(), 0);
    loop {
        let each = |train: ReceivedTrain| trains.push((train.len, train.segment));
        match socket.recv_trains(&mut scratch, &mut memory, 2048, 64, each) {
            Ok(received) => {
                calls += 1;
                if received.drained {
                    return (trains, calls);
                }
            }
            Err(e) => {
                assert_eq!(e.kind(), io::ErrorKind::WouldBlock);
                return (trains, calls);
            }
        }
    }
}

#[test]
fn the_address_that_was_called_is_told_but_to_a_socket_that_calls() {
    let called = |calls| {
        let options = SocketOptions {
            calls,
            ..SocketOptions::default()
        };
        let to = UdpSocket::bind(Family::V4, &options).unwrap();
        send(&socket(), &to, &[100], false);
        let (mut scratch, mut memory) = (RecvScratch::new(), vec![0; TRAIN_ROOM]);
        let mut local = None;
        to.recv_trains(&mut scratch, &mut memory, 2048, 1, |train| {
            local = train.local.map(|source| source.ip);
        })
        .unwrap();
        local
    };
    assert_eq!(called(false), Some(Ipv4Addr::LOCALHOST.into()));
    assert_eq!(called(true), None);
}

#[test]
fn datagrams_that_come_singly_are_soon_received_by_the_dozen_and_trains_as_trains_again() {
    let (from, to) = (socket(), socket());
    let lengths: Vec<u32> = (0..100).map(|i| 100 + i).collect();
    // A train queued after them is received whole, because the kernel would no longer cut it.
    send(&from, &to, &lengths, false);
    send(&from, &to, &[500; 10], true);
    let (trains, calls) = receive(&to);
    assert_eq!((trains.last(), calls), (Some(&(5000, 500)), 101));
    for calls in [100, 2] {
        send(&from, &to, &lengths, false);
        let (trains, made) = receive(&to);
        assert!(
            trains
                .iter()
                .map(|(len, _)| *len)
                .eq(lengths.iter().copied())
        );
        assert_eq!(made, calls);
    }
    send(&from, &to, &[500; 10], true);
    let (trains, _) = receive(&to);
    assert_eq!(trains, [(500, 500); 10]);
    // Doubled once: switching off the first time counted as an unsuccessful attempt.
    for _ in 0..2 * CALLS_MIN {
        receive(&to);
    }
    send(&from, &to, &[500; 10], true);
    assert_eq!(receive(&to), (vec![(5000, 500)], 1));
    // An occasional single datagram between trains does not switch `UDP_GRO` off.
    for _ in 0..2 * SINGLE {
        send(&from, &to, &[300], false);
        send(&from, &to, &[500; 10], true);
        assert_eq!(receive(&to), (vec![(300, 300), (5000, 500)], 2));
    }
    // Single datagrams that come one at a time do not either.
    for _ in 0..2 * SINGLE {
        send(&from, &to, &[300], false);
        assert_eq!(receive(&to).1, 1);
    }
    send(&from, &to, &[500; 10], true);
    assert_eq!(receive(&to), (vec![(5000, 500)], 1));
}

/// A socket that receives many datagrams per call, and one that has sent it a datagram longer than the others'.
fn after_a_long_datagram(gro: bool) -> (UdpSocket, UdpSocket) {
    let options = SocketOptions {
        address: Some(Ipv4Addr::LOCALHOST.into()),
        buffer: Some(1 << 20),
        gro,
        mmsg: true,
        ..SocketOptions::default()
    };
    let (from, to) = (socket(), UdpSocket::bind(Family::V4, &options).unwrap());
    // With `UDP_GRO`, until it is switched off.
    for _ in 0..2 {
        send(&from, &to, &[100; 40], false);
        receive(&to);
    }
    let long = [vec![100; 5], vec![3000], vec![100; 5]].concat();
    send(&from, &to, &long, false);
    assert_eq!(receive(&to), (vec![(100, 100); 10], 1));
    (from, to)
}

#[test]
fn one_datagram_that_is_too_long_does_not_end_receiving_by_the_dozen_for_ever() {
    for gro in [false, true] {
        let (from, to) = after_a_long_datagram(gro);
        let mut calls = 0;
        while {
            send(&from, &to, &[100; 40], false);
            let (trains, made) = receive(&to);
            assert_eq!(trains, [(100, 100); 40]);
            calls += made;
            made > 1
        } {
            assert!(calls < 3 * LONG as usize, "{calls}");
        }
        assert!(calls > LONG as usize / 2, "{calls}");
    }
}

#[test]
fn long_datagrams_that_keep_coming_are_all_received() {
    for gro in [false, true] {
        let (from, to) = after_a_long_datagram(gro);
        let mixed = [vec![100; 99], vec![3000]].concat();
        for round in 0..2 * LONG as usize / mixed.len() {
            send(&from, &to, &mixed, false);
            let (trains, _) = receive(&to);
            let received = trains.iter().map(|(len, _)| *len);
            assert!(received.eq(mixed.iter().copied()), "round {round}");
        }
    }
}

#[test]
fn outer_marks_are_told_where_they_were_asked_for() {
    for family in [Family::V4, Family::V6] {
        let bind = |ecn| {
            let options = SocketOptions {
                mmsg: true,
                ecn,
                ..SocketOptions::default()
            };
            UdpSocket::bind(family, &options).unwrap()
        };
        let from = bind(false);
        for (asked, told) in [(true, Ecn::Ce), (false, Ecn::NotEct)] {
            let to = bind(asked);
            let here: std::net::IpAddr = match family {
                Family::V4 => Ipv4Addr::LOCALHOST.into(),
                Family::V6 => Ipv6Addr::LOCALHOST.into(),
            };
            let train = Train {
                start: 0,
                len: 4,
                segment: 4,
                endpoint: Endpoint::new((here, to.port()).into()),
                ecn: Ecn::Ce,
            };
            let report = from.send_trains(&mut SendScratch::new(), b"mark", &[train]);
            assert_eq!((report.sent, report.errno), (1, 0), "{family:?}");
            let (mut scratch, mut memory) = (RecvScratch::new(), vec![0; TRAIN_ROOM]);
            let mut seen = Vec::new();
            let each = |train: ReceivedTrain| seen.push((train.len, train.ecn, train.local));
            to.recv_trains(&mut scratch, &mut memory, 2048, 64, each)
                .unwrap();
            let [(4, mark, Some(source))] = seen[..] else {
                panic!("{seen:?}");
            };
            assert_eq!((mark, source.ip), (told, here));
        }
    }
}

#[test]
fn the_kernel_tells_how_long_a_datagram_has_waited() {
    let (from, to) = (socket(), socket());
    assert!(to.aqm.on());
    let begun = Instant::now();
    loop {
        send(&from, &to, &[100], false);
        let sent = Instant::now();
        while sent.elapsed() < Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        assert_eq!(receive(&to).0, [(100, 100)]);
        let waited = to.waited().unwrap();
        if waited >= Duration::from_millis(2) {
            assert!(waited <= sent.elapsed() + Duration::from_secs(1));
            return;
        }
        // If no other socket of the machine requests times, the kernel starts taking them a moment after the request.
        // Until then it uses the time of the receive call.
        assert!(begun.elapsed() < Duration::from_secs(40), "{waited:?}");
    }
}

/// Each datagram is received as it was sent, while the socket switches between trains and single datagrams.
#[test]
fn nothing_is_lost_while_the_way_to_receive_changes() {
    /// Maximum number of datagrams in transit, far fewer than the buffer holds.
    const WINDOW: u64 = 100;
    const TRAIN: [u32; 2] = [900, 800];
    const CHANGES: u32 = 150;
    let singles: Vec<u32> = (0..20).map(|i| 300 + 10 * i).collect();
    let (from, to) = (socket(), socket());
    assert!(to.gro.on(), "there is one way only");
    // The receiver stores the maximum when it wants no more.
    let received = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut sent = 0;
            let mut go = |lengths: &[u32], joined| {
                send(&from, &to, lengths, joined);
                sent += lengths.len() as u64;
                while sent.saturating_sub(received.load(Ordering::Relaxed)) > WINDOW {
                    thread::yield_now();
                }
            };
            while received.load(Ordering::Relaxed) < u64::MAX {
                go(&singles, false);
                (0..10).for_each(|_| go(&TRAIN, true));
            }
        });
        let (mut scratch, mut memory) = (RecvScratch::new(), vec![0; 2 * TRAIN_ROOM]);
        let (mut changes, mut wrong) = (0, None);
        while changes < CHANGES && wrong.is_none() {
            let singly = to.singles.on.load(Ordering::Relaxed);
            let mut datagrams = 0;
            let result = to.recv_trains(&mut scratch, &mut memory, 2048, 64, |train| {
                datagrams += u64::from(train.len.div_ceil(train.segment));
                if !singles.contains(&train.len) && !TRAIN.contains(&train.segment) {
                    wrong = Some((train.len, train.segment));
                }
            });
            if result.is_ok_and(|it| it.dropped > 0) {
                wrong = Some((0, 0));
            }
            received.fetch_add(datagrams, Ordering::Relaxed);
            changes += u32::from(singly != to.singles.on.load(Ordering::Relaxed));
        }
        received.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(wrong, None, "after {changes} changes");
    });
}
