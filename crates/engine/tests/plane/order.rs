//! Batches processed by several workers leave in order, and nothing is read while all slots are in flight.

use crate::packets::{payload, udp, written};
use crate::remote::{Remote, socket};
use crate::running::{Running, four, nowhere, slot_full};
use crate::toy::Key;
use crate::world::{BOUND, until};
use engine::Sockets;
use plane::{LineId, Transports as _};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// Slots of one direction, where several workers share it.
const SLOTS: usize = 8;

/// Holds one batch back until workers have begun others that were filled after it.
#[derive(Default)]
struct Hold {
    state: Mutex<HoldState>,
    changed: Condvar,
}

#[derive(Default)]
struct HoldState {
    /// The number of the first packet of the held batch.
    held: Option<u64>,
    /// The number of batches begun after the held one.
    behind: usize,
    over: bool,
}

impl Hold {
    /// Called by the thread that begins the batch starting with packet `first`. The first batch of a helper thread
    /// waits for `count` later batches, and then for `also`.
    fn begin(&self, first: u64, reader: &str, count: usize, also: impl Fn() -> bool) {
        let mut state = self.state.lock().unwrap();
        match state.held {
            None if std::thread::current().name() != Some(reader) => state.held = Some(first),
            Some(held) if first > held => {
                state.behind += 1;
                self.changed.notify_all();
                return;
            }
            _ => {
                drop(state);
                // With few CPUs the reader thread would process everything before a helper gets a batch.
                std::thread::yield_now();
                return;
            }
        }
        let waits = |state: &mut HoldState| state.behind < count;
        let (state, _) = self
            .changed
            .wait_timeout_while(state, BOUND, waits)
            .unwrap();
        assert!(state.behind >= count, "{} batches behind", state.behind);
        drop(state);
        until("what a held batch waits for", also);
        self.state.lock().unwrap().over = true;
    }

    fn is_over(&self) -> bool {
        self.state.lock().unwrap().over
    }

    fn behind(&self) -> usize {
        self.state.lock().unwrap().behind
    }
}

/// Maximum number of reads of the interface until a helper has to get a batch, even on a busy machine.
const READS_MAX: u32 = 5000;

/// Checks that packets came in the order of the reads: numbers have no gap, and each read follows the previous one.
fn assert_in_order(key: &Key, datagrams: &[Vec<u8>], reads: u32) {
    assert_eq!(datagrams.len(), 63 * reads as usize);
    for (i, datagram) in datagrams.iter().enumerate() {
        let (number, inner) = key.opened(datagram).unwrap();
        assert_eq!(number, i as u64);
        assert_eq!(payload(&inner)[..4], (i as u32 / 63).to_be_bytes());
    }
}

#[test]
fn batches_that_are_sealed_out_of_order_leave_in_order() {
    let hold = Arc::new(Hold::default());
    let holding = Arc::clone(&hold);
    let key = Key {
        // Three other workers cannot have four batches in progress: at least one finished before the held one.
        on_seal: Some(Box::new(move |packets| {
            holding.begin(packets[0].counter, "tun", 4, || true);
        })),
        ..Key::new(1, 1)
    }
    .shared();
    let mut running = Running::new(&four());
    let sent = running.collect();
    running.peer(&key, nowhere());
    let mut reads = 0;
    until("a batch held by a helper", || {
        running.host.send(&slot_full(reads)).unwrap();
        reads += 1;
        assert!(reads < READS_MAX, "no helper came");
        hold.is_over()
    });
    until("all packets", || sent.count() >= 63 * reads as usize);
    assert_in_order(&key, &sent.take(), reads);
    assert!(running.tunnel.outbound().parallel_batches.value() > 4);
}

#[test]
fn when_all_slots_are_in_flight_the_interface_is_not_read_and_nothing_is_lost() {
    let hold = Arc::new(Hold::default());
    let holding = Arc::clone(&hold);
    let full = Arc::new(AtomicBool::new(false));
    let queue_full = Arc::clone(&full);
    let key = Key {
        on_seal: Some(Box::new(move |packets| {
            let until_full = || queue_full.load(Ordering::SeqCst);
            holding.begin(packets[0].counter, "tun", SLOTS - 1, until_full);
        })),
        ..Key::new(1, 1)
    }
    .shared();
    let mut running = Running::new(&four());
    let sent = running.collect();
    running.peer(&key, nowhere());
    running.host.set_nonblocking(true).unwrap();
    let mut reads = 0;
    until("the queue in front of the interface is full", || {
        // With every slot in flight, a full queue stays full.
        let all = hold.behind() >= SLOTS - 1;
        if running.host.send(&slot_full(reads)).is_ok() {
            reads += 1;
            assert!(reads < READS_MAX, "no helper came");
            return false;
        }
        all
    });
    assert_eq!(hold.behind(), SLOTS - 1, "one batch for each slot");
    assert!(!hold.is_over());
    full.store(true, Ordering::SeqCst);
    until("all packets", || sent.count() >= 63 * reads as usize);
    assert_in_order(&key, &sent.take(), reads);
}

#[test]
fn batches_that_are_opened_out_of_order_are_written_in_order() {
    let hold = Arc::new(Hold::default());
    let holding = Arc::clone(&hold);
    let key = Key {
        on_open: Some(Box::new(move |packets| {
            holding.begin(packets[0].counter, "udp", 4, || true);
        })),
        ..Key::new(1, 1)
    }
    .shared();
    let mut running = Running::new(&four());
    let mut remote = Remote::new();
    running.peer(&key, remote.addr());
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
    let mut number = 0_u64;
    let mut send = |count: u64| {
        let datagrams: Vec<_> = (number..number + count)
            .map(|n| key.datagram(n, &udp(false, (1, 9), &n.to_be_bytes())))
            .collect();
        number += count;
        remote.send(addr, &datagrams);
        number
    };
    until("a batch held by a helper", || {
        // Several batches at once, so that helpers get one even if the reader thread is scheduled last.
        send(512);
        hold.is_over()
    });
    // The socket drops packets when it is full, so the test repeats a last packet until one arrives behind all others.
    let behind = send(1);
    let mut numbers: Vec<u64> = Vec::new();
    until("packets behind", || {
        send(1);
        for write in running.around.written.take() {
            let (parts, joined) = written(&write);
            let data = |part: &Vec<u8>| {
                let bytes = if joined { part } else { payload(part) };
                u64::from_be_bytes(bytes.try_into().unwrap())
            };
            numbers.extend(parts.iter().map(data));
        }
        numbers.last().is_some_and(|last| *last >= behind)
    });
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(running.tunnel.inbound().parallel_batches.value() > 4);
    assert_eq!(running.tunnel.drops().replayed.value(), 0);
    assert_eq!(running.tunnel.drops().duplicate.value(), 0);
    assert_eq!(running.tunnel.drops().tun_write.value(), 0);
}
