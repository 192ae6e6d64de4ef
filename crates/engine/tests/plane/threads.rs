//! Tests with threads: key changes, back pressure, and shutdown at any time.

use crate::packets::{payload, plain, udp};
use crate::remote::{Remote, socket};
use crate::running::{Running, four, nowhere, slot_full};
use crate::toy::{Key, RECORD_HEADER};
use crate::world::{BOUND, install, options, unlimited, until};
use engine::fuzzing::connection;
use engine::{Peer, Sockets, Tunnel, TunnelOptions};
use plane::{DataPlane as _, LineId, StreamId, Transports as _};
use std::io::Read;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak, mpsc};

#[test]
fn a_key_that_changes_in_the_middle_of_a_batch_seals_what_is_looked_up_after_it() {
    let (at_seal, sealing) = mpsc::channel();
    let (go_on, wait_to_seal) = mpsc::channel::<()>();
    let wait_to_seal = Mutex::new(wait_to_seal);
    let first = Key {
        on_seal: Some(Box::new(move |packets| {
            at_seal.send(packets.len()).unwrap();
            wait_to_seal.lock().unwrap().recv_timeout(BOUND).unwrap();
        })),
        ..Key::new(1, 1)
    }
    .shared();
    let (second, third) = (Key::new(2, 2).shared(), Key::new(3, 3).shared());
    let mut running = Running::new(&options());
    let sent = running.collect();
    let peer = running.peer(&first, nowhere());
    let other_key = Key::new(7, 7).shared();
    running.peer(&other_key, nowhere());
    let change = |key: &Arc<Key>| {
        install(&running.tunnel, &peer, key.receiver, key, unlimited());
    };
    // The first read waits until the whole batch is queued.
    let (at_read, reading) = mpsc::channel();
    let (read_on, wait_to_read) = mpsc::channel::<()>();
    let count = AtomicUsize::new(0);
    running.around.written.on_read(move || {
        if count.fetch_add(1, Ordering::Relaxed) == 0 {
            at_read.send(()).unwrap();
            wait_to_read.recv_timeout(BOUND).unwrap();
        }
    });
    let to_peer = |n: u8| plain(&udp(false, (9, 1), &[n; 8]));
    let to_other = |n: u8| plain(&udp(false, (9, 7), &[n; 8]));
    running.host.send(&to_peer(0)).unwrap();
    reading.recv_timeout(BOUND).unwrap();
    for read in [to_peer(1), to_other(2), to_peer(3)] {
        running.host.send(&read).unwrap();
    }
    read_on.send(()).unwrap();
    // The worker has looked up everything and is sealing: a change now affects only the next batch.
    assert_eq!(sealing.recv_timeout(BOUND).unwrap(), 2);
    change(&second);
    running.host.send(&to_peer(4)).unwrap();
    go_on.send(()).unwrap();
    assert_eq!(
        sealing.recv_timeout(BOUND).unwrap(),
        1,
        "the peer's second run"
    );
    change(&third);
    go_on.send(()).unwrap();
    running.host.send(&to_peer(5)).unwrap();
    until("all packets", || sent.count() == 6);
    let opened: Vec<_> = sent
        .take()
        .iter()
        .map(|datagram| {
            let keys = [&first, &second, &third, &other_key];
            let opened = keys.iter().find_map(|key| {
                let (number, inner) = key.opened(datagram)?;
                Some((key.secret, number, payload(&inner)[0]))
            });
            opened.unwrap()
        })
        .collect();
    let expected = [
        (1, 0, 0),
        (1, 1, 1),
        (7, 0, 2),
        (1, 2, 3),
        (3, 0, 4),
        (3, 1, 5),
    ];
    assert_eq!(opened, expected);
}

/// The packets of a stream, each with its number.
fn records(key: &Key, bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let (mut records, mut rest) = (Vec::new(), bytes);
    while let Some((len, tail)) = rest.split_first_chunk::<RECORD_HEADER>() {
        let (record, tail) = tail.split_at(u16::from_be_bytes(*len).into());
        records.push(key.opened(record).unwrap());
        rest = tail;
    }
    records
}

#[test]
fn a_slow_stream_slows_the_interface_down_and_loses_nothing() {
    for (workers, parallel) in [(1, false), (2, false), (4, true)] {
        const PACKETS: u64 = 8000;
        let options = TunnelOptions {
            workers,
            parallel,
            coalescing: true,
            backpressure: true,
            ..options()
        };
        let key = Key {
            records: true,
            ..Key::new(1, 1)
        }
        .shared();
        let mut running = Running::new(&options);
        let peer = running.peer(&key, nowhere());
        let (stream, mut end) = connection(StreamId(1), nowhere()).unwrap();
        peer.set_stream(Some(Arc::clone(&stream)));
        running.tunnel.add_stream(&stream).unwrap();
        let host = &running.host;
        let mut bytes = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..PACKETS {
                    let packet = udp(
                        false,
                        (9, 1),
                        &[&number.to_be_bytes()[..], &[0; 60]].concat(),
                    );
                    host.send(&plain(&packet)).unwrap();
                }
            });
            let each = Key::new(0, 0).datagram(0, &[0; 96]).len() + RECORD_HEADER;
            // The far end reads nothing until the stream is full: the kernel's buffer is full and packets wait.
            until("a full stream", || stream.is_congested());
            let mut buffer = vec![0; 5000];
            until("all records", || {
                if let Ok(len) = end.read(&mut buffer) {
                    bytes.extend(&buffer[..len]);
                }
                bytes.len() >= PACKETS as usize * each
            });
        });
        for (i, (number, inner)) in records(&key, &bytes).iter().enumerate() {
            assert_eq!(*number, i as u64);
            assert_eq!(payload(inner)[..8], number.to_be_bytes());
        }
        assert!(running.tunnel.drops().iter().all(|(_, count)| count == 0));
    }
}

#[test]
fn a_data_plane_under_load_ends_when_asked_and_holds_on_to_nothing() {
    for (workers, parallel) in [(1, false), (2, false), (4, true)] {
        let options = TunnelOptions {
            workers,
            parallel,
            coalescing: true,
            ..options()
        };
        let key = Key::new(1, 1).shared();
        let mut running = Running::new(&options);
        let sent = running.collect();
        let peer = running.peer(&key, nowhere());
        let Running {
            tunnel,
            host,
            around,
        } = running;
        host.set_nonblocking(true).unwrap();
        let over = AtomicBool::new(false);
        let (ended, end) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let _ = host.send(&slot_full(0));
                }
            });
            let (here, key, load) = (around.here, &key, &over);
            scope.spawn(move || {
                let mut remote = Remote::new();
                let mut number = 0;
                while !load.load(Ordering::Relaxed) {
                    let packet = udp(false, (1, 9), &[0; 1000]);
                    remote.send_or_lose(here, &key.datagram(number, &packet));
                    number += 1;
                }
            });
            until("load", || {
                around.written.take();
                sent.take();
                tunnel.outbound().packets.value() > 2000 && tunnel.inbound().packets.value() > 2000
            });
            scope.spawn(move || {
                drop(tunnel);
                ended.send(()).unwrap();
            });
            let in_time = end.recv_timeout(BOUND);
            over.store(true, Ordering::Relaxed);
            in_time.unwrap();
        });
        drop((peer, around));
        assert_eq!(Arc::strong_count(&key), 1);
    }
}

#[test]
fn a_worker_that_sleeps_takes_what_control_injects_and_new_sockets() {
    for workers in [1, 2, 4] {
        let options = TunnelOptions {
            workers,
            parallel: workers > 2,
            coalescing: true,
            ..options()
        };
        let key = Key::new(1, 1).shared();
        let mut running = Running::new(&options);
        assert_eq!(running.tunnel.statistics().workers, workers);
        assert_eq!(running.tunnel.statistics().parallel, workers > 2);
        let mut remote = Remote::new();
        let peer = running.peer(&key, remote.addr());
        let mut received = 0;
        for round in 0..3_u64 {
            // The previous socket is closed.
            let here = socket(Ipv4Addr::LOCALHOST.into());
            let addr = (Ipv4Addr::LOCALHOST, here.port()).into();
            running
                .tunnel
                .open_line(
                    LineId::FIRST,
                    Sockets {
                        v4: Some(here),
                        v6: None,
                    },
                )
                .unwrap();
            running
                .tunnel
                .inject(peer.id(), &udp(false, (9, 1), b"injected"));
            assert_eq!(key.opened(&remote.receive(1)[0]).unwrap().0, round);
            remote.send(
                addr,
                &[key.datagram(round, &udp(false, (1, 9), b"received"))],
            );
            until("a packet from the new socket", || {
                received += running.around.written.take().len();
                received > round as usize
            });
        }
        assert_eq!(peer.endpoint().map(|e| e.addr), Some(remote.addr()));
    }
}

/// Bulk traffic between two clients fills a server's queue if packets are opened faster than they are sealed.
#[test]
fn a_queue_of_injected_payloads_that_is_never_empty_is_served_to_its_end() {
    // A worker processes 4,096 of the payloads before it looks at anything else.
    const PAYLOADS: usize = 10_000;
    for workers in [1, 2] {
        let options = TunnelOptions {
            workers,
            ..options()
        };
        let route: Arc<OnceLock<(Weak<Tunnel<_>>, Weak<Peer>)>> = Arc::default();
        let (at_seal, injected) = (Arc::clone(&route), AtomicUsize::new(1000));
        let sealed = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&sealed);
        let key = Key {
            on_seal: Some(Box::new(move |packets| {
                let (tunnel, peer) = at_seal.get().unwrap();
                let (tunnel, peer) = (tunnel.upgrade().unwrap(), peer.upgrade().unwrap());
                for _ in packets {
                    if injected.fetch_add(1, Ordering::Relaxed) < PAYLOADS {
                        tunnel.inject(peer.id(), &udp(false, (9, 1), b"injected"));
                    }
                }
                counted.fetch_add(packets.len(), Ordering::Relaxed);
            })),
            ..Key::new(1, 1)
        }
        .shared();
        let mut running = Running::new(&options);
        let peer = running.peer(&key, nowhere());
        running.collect();
        let tunnel = Arc::downgrade(&running.tunnel);
        assert!(route.set((tunnel, Arc::downgrade(&peer))).is_ok());
        for _ in 0..1000 {
            running
                .tunnel
                .inject(peer.id(), &udp(false, (9, 1), b"injected"));
        }
        until("all are sealed", || {
            sealed.load(Ordering::Relaxed) == PAYLOADS
        });
    }
}

#[test]
fn workers_end_and_control_is_told_when_the_interface_is_deleted() {
    let running = Running::new(&four());
    // EBADFD.
    running
        .tunnel
        .tun()
        .faults
        .set(|_| Some(Err(std::io::Error::from_raw_os_error(77))));
    running
        .host
        .send(&plain(&udp(false, (9, 1), b"x")))
        .unwrap();
    until("control is notified", || {
        running.around.control.take() == [crate::world::Event::Gone]
    });
}
