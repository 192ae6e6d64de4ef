use super::*;
use crate::clock::Epoch;
use crate::drain::InboundDrain;
use crate::gro::Shape;
use crate::key::tests::{Deaf, Plain, PlainWire};
use crate::peer::Peer;
use crate::session::ReceiveKey;
use crate::shared::Shared;
use crate::slot::{InboundRun, InboundSlot, Inner};
use netio::tun::{Tun, VNET_HDR_LEN};
use plane::{Ecn, Endpoint, KeyLimits, Packet, PeerId};
use std::collections::BTreeMap;
use std::os::unix::net::UnixDatagram;

/// A data plane for one peer that drains the batches given to it.
struct World {
    shared: Shared<PlainWire>,
    host: UnixDatagram,
    drain: InboundDrain<PlainWire>,
    peer: Arc<Peer>,
    key: Arc<ReceiveKey<PlainWire>>,
    now: Instant,
}

fn key(peer: &Arc<Peer>, session: u32) -> Arc<ReceiveKey<PlainWire>> {
    let limits = KeyLimits::until(Instant::now() + Duration::from_secs(60));
    let peer = Arc::clone(peer);
    Arc::new(ReceiveKey::new(
        session,
        peer,
        Arc::new(Plain),
        limits,
        None,
        false,
    ))
}

impl World {
    fn new(reorder: Option<Reorder>) -> Self {
        let (tun, host) = Tun::simulated().unwrap();
        host.set_nonblocking(true).unwrap();
        let shared = Shared::simulated(tun, PlainWire, Arc::new(Deaf), false);
        let peer = Arc::new(Peer::new(PeerId(1), Epoch::new(), Arc::default()));
        for line in [0, 1] {
            let at = Endpoint::new(([192, 0, 2, line], 1).into());
            peer.lines.set(LineId(line), at, None).unwrap();
        }
        peer.order.set(reorder);
        Self {
            shared,
            host,
            drain: InboundDrain::default(),
            key: key(&peer, 1),
            peer,
            now: Instant::now(),
        }
    }

    /// Receives packets with these numbers over a line. Each packet contains only its number.
    fn come(&mut self, line: u8, numbers: &[u64]) -> Vec<u64> {
        let packets: Vec<_> = numbers.iter().map(|n| (*n, n.to_be_bytes())).collect();
        let packets: Vec<_> = packets.iter().map(|(n, p)| (*n, &p[..])).collect();
        self.packets_come(line, &packets);
        self.written()
    }

    fn packets_come(&mut self, line: u8, packets: &[(u64, &[u8])]) {
        let mut slot = InboundSlot::new();
        slot.now = self.now;
        for (number, packet) in packets {
            let start = slot.used;
            slot.memory[start..start + packet.len()].copy_from_slice(packet);
            slot.used += packet.len();
            slot.packets.push(Packet {
                start: start as u32,
                len: packet.len() as u32,
                counter: *number,
                authentic: true,
            });
            slot.inner.push(if packet.is_empty() {
                Inner::Keepalive
            } else {
                Inner::Packet {
                    len: packet.len() as u32,
                    shape: Shape::Plain,
                }
            });
        }
        slot.runs.push(InboundRun {
            key: Arc::clone(&self.key),
            from: self
                .peer
                .lines
                .get(LineId(line))
                .unwrap()
                .endpoint()
                .unwrap(),
            line: LineId(line),
            stream: None,
            ecn: Ecn::NotEct,
            first: 0,
            count: packets.len(),
        });
        self.drain.drain(&self.shared, &mut slot);
    }

    /// Advances time until held packets must be written.
    fn deadline_comes(&mut self) -> Vec<u64> {
        self.now += Duration::from_secs(20);
        self.drain.expire(&self.shared, self.now);
        self.written()
    }

    fn written(&self) -> Vec<u64> {
        let mut packet = [0; VNET_HDR_LEN + 65_535];
        let mut numbers = Vec::new();
        while let Ok(len) = self.host.recv(&mut packet) {
            let number = packet[VNET_HDR_LEN..len].first_chunk();
            numbers.push(u64::from_be_bytes(*number.unwrap()));
        }
        numbers
    }

    fn waiting(&self) -> (usize, usize) {
        let received = self.key.received.lock().unwrap();
        received.order.as_ref().unwrap().window.waiting()
    }

    fn lines(&self) -> BTreeMap<u8, plane::LineCounts> {
        let known = self.peer.lines.known();
        known
            .map(|(id, line)| (id.0, line.counts.counts()))
            .collect()
    }
}

#[test]
fn without_a_window_packets_are_written_as_they_come() {
    let mut world = World::new(None);
    assert_eq!(world.come(0, &[2, 0, 1]), [2, 0, 1]);
    assert!(!world.shared.alarm.is_set());
    assert!(world.key.received.lock().unwrap().order.is_none());
}

#[test]
fn packets_are_written_in_the_order_of_their_numbers() {
    let mut world = World::new(Some(Reorder::default()));
    assert_eq!(world.come(0, &[0, 2, 1, 3]), [0, 1, 2, 3]);
    assert_eq!(world.come(0, &[6]), [0_u64; 0]);
    assert!(world.shared.alarm.is_set());
    assert_eq!(world.come(1, &[4, 5, 7]), [4, 5, 6, 7]);
    assert!(!world.shared.alarm.is_set());
    let lines = world.lines();
    assert_eq!((lines[&0].accepted, lines[&0].buffered), (5, 2));
    assert_eq!((lines[&1].accepted, lines[&1].buffered), (3, 0));
}

#[test]
fn a_packet_that_waits_in_vain_is_written_at_its_deadline_and_one_that_is_late_after_it() {
    let mut world = World::new(Some(Reorder::default()));
    assert_eq!(world.come(0, &[0, 2]), [0]);
    let before = world.now;
    world.drain.expire(&world.shared, before);
    assert_eq!(world.written(), [0_u64; 0]);
    assert_eq!(world.deadline_comes(), [2]);
    assert!(!world.shared.alarm.is_set());
    assert_eq!(world.peer.order.counts().lost(), 1);
    assert_eq!(world.come(1, &[1]), [1]);
    let order = world.peer.order.counts();
    assert_eq!((order.given_up, order.late, order.lost()), (1, 1, 0));
    assert_eq!(world.lines()[&1].late, 1);
}

/// An IPv4 TCP acknowledgement with `data` bytes. Its number is the IP identification, within the first eight bytes,
/// which [`World::written`] expects.
fn segment(number: u8, data: usize) -> Vec<u8> {
    let len = 40 + data as u8;
    let mut packet = vec![0x45, 0, 0, len, 0, number, 0, 0, 64, 6, 0, 0];
    packet.extend([10, 0, 0, 2, 10, 0, 0, 1]);
    packet.extend([
        0, 80, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0,
    ]);
    packet.resize(len.into(), 0);
    packet
}

#[test]
fn acknowledgements_wait_for_nothing_and_data_does() {
    let mut world = World::new(Some(Reorder::default()));
    let come = |world: &mut World, number: u8, data| {
        world.packets_come(0, &[(number.into(), &segment(number, data))]);
        let written = world.written();
        written
            .into_iter()
            .map(|it| (it >> 16) as u8)
            .collect::<Vec<_>>()
    };
    assert_eq!(come(&mut world, 0, 9), [0]);
    // The second packet is missing.
    assert_eq!(come(&mut world, 2, 0), [2]);
    assert_eq!(come(&mut world, 3, 9), [0_u8; 0]);
    // More packets than another flow may be held up by.
    for number in 4..9 {
        assert_eq!(come(&mut world, number, 0), [number]);
    }
    assert_eq!(come(&mut world, 1, 9), [1, 3]);
    assert_eq!(world.peer.order.counts().lost(), 0);
}

#[test]
fn a_session_waits_as_long_as_the_one_before_has_learnt() {
    let mut world = World::new(Some(Reorder::default()));
    let waits = |world: &World| {
        let received = world.key.received.lock().unwrap();
        received.order.as_ref().unwrap().deadline().unwrap() - world.now
    };
    world.come(0, &[0, 2]);
    let unknown = waits(&world);
    // The line loses packets but never reorders them.
    for number in 2..20 {
        world.deadline_comes();
        world.come(0, &[2 * number]);
    }
    let known = waits(&world);
    assert!(known < unknown);
    world.key = key(&world.peer, 2);
    world.come(0, &[0, 2]);
    assert_eq!(waits(&world), known);
}

#[test]
fn a_number_that_is_no_packet_leaves_no_gap() {
    let mut world = World::new(Some(Reorder::default()));
    world.packets_come(0, &[(0, &[]), (1, &1_u64.to_be_bytes())]);
    assert_eq!(world.written(), [1]);
    assert!(!world.shared.alarm.is_set());
}

#[test]
fn packets_and_bytes_that_wait_are_bounded() {
    let packets = Reorder {
        packets: 4,
        ..Reorder::default()
    };
    let bytes = Reorder {
        bytes: 8 * 4,
        ..Reorder::default()
    };
    for reorder in [packets, bytes] {
        let mut world = World::new(Some(reorder));
        assert_eq!(world.come(0, &[0]), [0]);
        let mut written = Vec::new();
        for number in 2..1000 {
            written.extend(world.come(0, &[number]));
            assert!(world.waiting().0 <= 4, "{:?}", world.waiting());
        }
        written.extend(world.deadline_comes());
        assert_eq!(written, (2..1000).collect::<Vec<_>>());
    }
}

#[test]
fn what_all_sessions_hold_together_is_bounded() {
    let mut world = World::new(Some(Reorder::default()));
    let mut held = 0;
    let big = vec![0; 60_000];
    for session in 0..8 {
        world.key = key(&world.peer, session);
        world.packets_come(0, &[(0, &big[..8])]);
        for number in 2..=70 {
            world.packets_come(0, &[(number, &big)]);
        }
        held += world.waiting().1;
        assert!(held <= HELD_MAX, "{held}");
    }
    assert!(held > HELD_MAX - big.len());
    world.deadline_comes();
    assert_eq!(world.waiting(), (0, 0));
    assert!(!world.shared.alarm.is_set());
}

#[test]
fn numbers_of_a_new_epoch_are_no_gap() {
    let mut world = World::new(Some(Reorder::default()));
    assert_eq!(world.come(0, &[0, 1, 3]), [0, 1]);
    let next = |number: u64| (1 << NUMBER_BITS) | number;
    assert_eq!(
        world.come(0, &[next(1), next(3), next(2)]),
        [3, next(1), next(2), next(3)]
    );
    assert_eq!(
        world.come(1, &[2]),
        [0_u64; 0],
        "older than the replay window reaches"
    );
    let order = world.peer.order.counts();
    assert_eq!((order.lost(), order.late, order.received), (1, 0, 7));
}

#[test]
fn a_window_that_is_taken_away_holds_nothing_back() {
    let mut world = World::new(Some(Reorder::default()));
    assert_eq!(world.come(0, &[0, 2, 3]), [0]);
    world.peer.order.set(None);
    assert_eq!(world.come(0, &[5]), [2, 3, 5]);
    world.peer.order.set(Some(Reorder::default()));
    assert_eq!(world.come(0, &[9, 11]), [9], "what was between is no loss");
    assert_eq!(world.deadline_comes(), [11]);
    assert_eq!(world.peer.order.counts().waiting, 0);
}

/// Checks the sums of the PPTP sequence window's counters, which separate copies from late packets. Two lines lose,
/// delay and duplicate packets.
#[test]
fn what_is_counted_adds_up() {
    const SENT: u64 = 4000;
    let mut random = 1_u64;
    let mut chance = |of: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (random >> 33) % of
    };
    for copies in [1, 2] {
        let mut world = World::new(Some(Reorder::default()));
        let mut on_way = BTreeMap::new();
        let mut sent_on = [0_u64; 2];
        for number in 0..SENT {
            for line in 0..copies {
                sent_on[line as usize] += 1;
                if chance(10) > 0 || number == 0 {
                    let delay = 10 * u64::from(line) + chance(8);
                    let turn = on_way.len();
                    on_way.insert((number + delay, turn), (line, number));
                }
            }
        }
        let mut written = Vec::new();
        let mut arrived = 0;
        for ((_, _), (line, number)) in on_way {
            world.now += Duration::from_micros(300);
            written.extend(world.come(line, &[number]));
            arrived += 1;
        }
        written.extend(world.deadline_comes());
        let mut distinct = written.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), written.len(), "none is written twice");

        let (order, lines) = (world.peer.order.counts(), world.lines());
        let highest = *distinct.last().unwrap();
        let sum = |of: fn(&plane::LineCounts) -> u64| lines.values().map(of).sum::<u64>();
        assert_eq!(order.waiting, 0);
        assert_eq!(order.decided, highest + 1);
        assert_eq!(order.decided, order.accepted + order.given_up);
        assert_eq!(order.lost(), highest + 1 - distinct.len() as u64);
        assert_eq!(order.received, arrived);
        assert_eq!(sum(plane::LineCounts::received), arrived);
        assert_eq!(sum(|line| line.accepted), order.accepted);
        assert_eq!(sum(|line| line.late), order.late);
        assert_eq!(sum(plane::LineCounts::first), distinct.len() as u64);
        // Accepted + (Lost - 1) x lines - Under Window - Duplicated, in the terms of the PPTP window.
        let (lost, twice) = (
            order.given_up + 1,
            sum(|line| line.duplicated + line.ancient),
        );
        let pptp = (order.accepted + lost - 1) * u64::from(copies) - order.accepted;
        let lost_copies = u64::from(copies) * (highest + 1) - arrived;
        assert_eq!(pptp - order.late - twice, lost_copies);
        assert_eq!(order.lost_copies(copies.into()), lost_copies);
        if copies == 1 {
            assert_eq!((lost - 1) - order.late, lost_copies);
            assert_eq!(twice, 0);
        }
        for (line, counts) in &lines {
            let unsent = sent_on[usize::from(*line)] - counts.received();
            assert_eq!(counts.lost(sent_on[usize::from(*line)]), unsent);
        }
    }
}

#[test]
fn a_line_that_dies_holds_nothing_up_for_long() {
    let mut world = World::new(Some(Reorder::default()));
    let mut written = Vec::new();
    for number in 0..100 {
        world.now += Duration::from_millis(1);
        written.extend(world.come((number % 2) as u8, &[number]));
    }
    assert_eq!(written.len(), 100);
    // Two lines share the packets and one is cut: packets of the other line are written within the cap.
    let (mut held_since, mut longest) = (BTreeMap::new(), Duration::ZERO);
    for number in (100..2000).step_by(2) {
        world.now += Duration::from_millis(2);
        held_since.insert(number, world.now);
        let mut now = world.come(0, &[number]);
        world.drain.expire(&world.shared, world.now);
        now.extend(world.written());
        for number in now {
            longest = longest.max(world.now - held_since.remove(&number).unwrap());
        }
    }
    assert!(longest <= Duration::from_millis(340), "{longest:?}");
    assert!(held_since.len() < 200, "{}", held_since.len());
}

/// An IPv4 packet of TCP with data, or of UDP.
fn inner(protocol: u8) -> Vec<u8> {
    let mut packet = vec![0; 100];
    packet[0] = 0x45;
    packet[3] = 100;
    packet[9] = protocol;
    // The length of TCP's header.
    packet[32] = 0x50;
    packet
}

#[test]
fn each_address_of_a_peer_is_a_line_that_is_waited_for() {
    let mut order = Order::new(&Arc::new(Reorder::default()), Reordering::default());
    let reader = Reader::new(1);
    let address = |last: u8| ([192, 0, 2, last], 1).into();
    let line = |order: &mut Order, last| order.line_at(LineId(0), address(last));
    assert_eq!([1, 2, 1].map(|last| line(&mut order, last).0), [0, 1, 0]);
    let start = Instant::now();
    let packet = inner(6);
    let mut come = |number, last, millis| {
        let at = (number, line(&mut order, last));
        let now = start + Duration::from_millis(millis);
        let verdict = order.arrived(at, &packet, &reader, true, now);
        (verdict, order.due(now).is_some(), order.deadline())
    };
    come(0, 1, 0);
    come(1, 2, 1);
    // The packet in between comes over the slow line, so the other line being past it proves nothing.
    let (verdict, _, deadline) = come(3, 1, 2);
    assert_eq!(verdict, Verdict::Held);
    assert!(deadline.unwrap() > start + Duration::from_millis(30));
    let (verdict, due, _) = come(2, 2, 30);
    assert!(verdict.deliver() && due);
    assert_eq!(order.line_known_at(LineId(0), address(9)), None);
    // When there are more addresses than lines, new addresses replace the oldest.
    for last in 0..100 {
        assert!(line(&mut order, last).index() < LINES_MAX);
    }
}

#[test]
fn bulk_transfers_wait_for_each_gap_and_calls_go_past_two() {
    for (protocol, past) in [(6, [Verdict::Held; 2]), (17, [Verdict::DeliverPast; 2])] {
        let mut order = Order::new(&Arc::new(Reorder::default()), Reordering::default());
        let (reader, now, packet) = (Reader::new(1), Instant::now(), inner(protocol));
        let mut come = |number| order.arrived((number, LineId(0)), &packet, &reader, true, now);
        come(0);
        assert_eq!([come(2), come(3)], past);
        assert_eq!(come(4), Verdict::Held);
    }
}
