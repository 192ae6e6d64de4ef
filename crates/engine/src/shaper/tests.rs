//! Tests of a host's packets queued in front of slow lines, on a virtual clock.

use super::*;
use crate::ip::UDP;
use crate::ip::tests::ipv4;
use crate::key::tests::{Deaf, PlainWire};
use netio::tun::Tun;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

const MEGABIT: u64 = 1_000_000;

/// An interface, its far end, and a queue for a line of 1 Mbit/s.
struct World {
    shared: Shared<PlainWire>,
    host: UnixDatagram,
    shaper: Shaper,
    now: Instant,
}

fn together(rate: u64) -> Shaper {
    let mut shaper = Shaper::new(&PlainWire);
    shaper.follow((Rates::Together(rate), 1));
    shaper
}

impl World {
    fn new() -> Self {
        let (tun, host) = Tun::simulated().unwrap();
        Self {
            shared: Shared::simulated(tun, PlainWire, Arc::new(Deaf), false),
            host,
            shaper: together(MEGABIT),
            now: Instant::now(),
        }
    }

    /// Sends a packet from this port of the host, with `bytes` bytes after the headers.
    fn sends(&mut self, port: u8, bytes: usize, ecn: Ecn) {
        let mut payload = vec![0; 8 + bytes];
        payload[1] = port;
        let mut packet = ipv4([10, 0, 0, 1], [10, 0, 0, 2], UDP, &payload);
        set_ecn(&mut packet, ecn);
        let packet = [&VnetHdr::NONE.emit()[..], &packet].concat();
        self.host.send(&packet).unwrap();
        assert_eq!(self.read(), Ok(true));
    }

    fn read(&mut self) -> Result<bool, Gone> {
        self.shaper.read(&self.shared, self.now, |packet| {
            // Packets from ports of 100 and above may leave over any line.
            Some(LineId(packet[21])).filter(|line| line.0 < 100)
        })
    }

    /// The port and ECN field of the next packet, once it may leave.
    fn leaves(&mut self) -> Option<(u8, Ecn)> {
        loop {
            self.now = self.shaper.deadline(self.now)?;
            if let Some((held, _)) = self.shaper.pop(self.now) {
                let ecn = IpPacket::parse(&held.packet).unwrap().ecn;
                return Some((held.packet[21], ecn));
            }
        }
    }
}

#[test]
fn a_call_does_not_wait_for_a_download() {
    let mut world = World::new();
    for _ in 0..100 {
        world.sends(1, 1400, Ecn::NotEct);
    }
    assert_eq!(world.leaves().unwrap().0, 1);
    world.sends(2, 160, Ecn::NotEct);
    assert_eq!(world.leaves().unwrap().0, 2);
    assert_eq!(world.leaves().unwrap().0, 1);
}

#[test]
fn packets_leave_as_fast_as_the_line_takes_them() {
    let mut world = World::new();
    for _ in 0..50 {
        // A packet that waits too long is marked, not dropped.
        world.sends(1, 1000, Ecn::Ect0);
    }
    let start = world.now;
    assert_eq!(std::iter::from_fn(|| world.leaves()).count(), 50);
    // The last packet leaves once the line has sent those before it.
    let bytes = 49 * (1000 + 28 + OUTER[0]) as u64;
    let wanted = Duration::from_micros(bytes * 8);
    let found = world.now - start;
    assert!(found <= wanted && found + BURST >= wanted);

    // A late worker catches up, up to a bound.
    for _ in 0..50 {
        world.sends(1, 1000, Ecn::Ect0);
    }
    world.leaves();
    world.now += Duration::from_millis(500);
    let now = world.now;
    let at_once = std::iter::from_fn(|| world.shaper.pop(now)).count();
    assert_eq!(
        at_once, 2,
        "ten milliseconds' worth, and the one that begins now"
    );
}

#[test]
fn a_packet_costs_what_it_has_become() {
    let mut world = World::new();
    for _ in 0..3 {
        world.sends(1, 1000, Ecn::NotEct);
    }
    let start = world.now;
    world.leaves();
    world.shaper.settle((LineId(0), true), 1, 1158, start);
    let wait = world.shaper.deadline(start).unwrap() - start;
    assert_eq!(wait, Duration::from_micros((1158 + 62) * 8));
    world.leaves();
    let second = world.now;
    world.shaper.settle((LineId(0), false), 0, 0, second);
    assert_eq!(
        world.shaper.deadline(second),
        Some(second),
        "it went nowhere"
    );
}

#[test]
fn a_standing_queue_is_told_by_marks_and_by_drops_which_are_counted() {
    let mut world = World::new();
    for _ in 0..200 {
        world.sends(1, 1400, Ecn::Ect0);
    }
    let all: Vec<_> = std::iter::from_fn(|| world.leaves()).collect();
    assert_eq!((all.len(), world.shaper.dropped()), (200, 0));
    assert!(all.contains(&(1, Ecn::Ce)));
    for _ in 0..200 {
        world.sends(1, 1400, Ecn::NotEct);
    }
    let all = std::iter::from_fn(|| world.leaves()).count() as u64;
    let dropped = world.shaper.dropped();
    assert!(dropped > 0);
    assert_eq!(all + dropped, 200);
    assert_eq!(world.shaper.dropped(), 0, "they were told");
}

#[test]
fn what_waits_goes_at_once_where_the_rate_is_no_more() {
    let mut world = World::new();
    for _ in 0..20 {
        world.sends(1, 1400, Ecn::NotEct);
    }
    world.leaves();
    world.shaper.follow((Rates::None, 0));
    assert!(world.shaper.engaged());
    let now = world.now;
    assert_eq!(std::iter::from_fn(|| world.shaper.pop(now)).count(), 19);
    assert!(!world.shaper.engaged());
}

#[test]
fn what_is_no_packet_is_dropped_and_counted() {
    let mut world = World::new();
    let mut short = [0x4f; VNET_HDR_LEN + 30];
    short[..VNET_HDR_LEN].fill(0);
    for bytes in [&[][..], &[0; 3], &[0; VNET_HDR_LEN], &short] {
        world.host.send(bytes).unwrap();
        assert_eq!(world.read(), Ok(true));
    }
    assert_eq!(world.shared.drops.tun_malformed.value(), 4);
    assert_eq!(world.shaper.deadline(world.now), None);
    assert_eq!(world.read(), Ok(false));
}

/// A queue where lines 1 and 2 have rates and line 3 has none.
fn each(megabits: [u64; 2]) -> World {
    let mut world = World::new();
    world.follow(megabits, 1);
    world
}

impl World {
    fn follow(&mut self, megabits: [u64; 2], word: u64) {
        let mut rates = [0; LINES_MAX];
        rates[1..3].copy_from_slice(&megabits.map(|rate| rate * MEGABIT));
        self.shaper.follow((Rates::Each(rates), word));
    }

    /// The next packet's port, the line that it leaves over, and the time since `start`.
    fn leaves_by(&mut self, start: Instant) -> Option<(u8, u8, Duration)> {
        loop {
            self.now = self.shaper.deadline(self.now)?;
            if let Some((held, line)) = self.shaper.pop(self.now) {
                let line = line.unwrap();
                let bytes = held.packet.len();
                self.shaper.settle((line, false), 1, bytes, self.now);
                return Some((held.packet[21], line.0, self.now - start));
            }
        }
    }

    fn all(&mut self, start: Instant) -> Vec<(u8, u8, Duration)> {
        std::iter::from_fn(|| self.leaves_by(start)).collect()
    }
}

/// Bytes that a line counts for a packet of 1,000 bytes after the headers.
const COUNTED: u64 = (1000 + 28 + OUTER[0]) as u64;

#[test]
fn a_line_that_is_full_delays_no_other() {
    let mut world = each([1, 4]);
    let start = world.now;
    for _ in 0..40 {
        world.sends(1, 1000, Ecn::Ect0);
        world.sends(2, 1000, Ecn::Ect0);
    }
    let all = world.all(start);
    assert_eq!(all.len(), 80);
    assert!(all.iter().all(|(port, line, _)| port == line));
    for (line, rate) in [(1, 1), (2, 4)] {
        let last = all.iter().rev().find(|it| it.1 == line).unwrap().2;
        let wanted = Duration::from_micros(39 * COUNTED * 8 / rate);
        assert!(
            last.abs_diff(wanted) <= BURST,
            "{line}: {last:?} {wanted:?}"
        );
    }
    assert_eq!(world.shaper.deadline(world.now), None);
}

#[test]
fn what_may_go_by_any_line_fills_all_and_leaves_room_for_what_may_not() {
    let mut world = each([1, 3]);
    let start = world.now;
    for _ in 0..100 {
        world.sends(100, 1000, Ecn::Ect0);
    }
    // Half of the bytes that line 1 carries in that time.
    for _ in 0..12 {
        world.sends(1, 1000, Ecn::Ect0);
    }
    let all = world.all(start);
    let last = all.iter().map(|it| it.2).max().unwrap();
    let wanted = Duration::from_micros(112 * COUNTED * 8 / 4);
    assert!(last.abs_diff(wanted) <= BURST * 2, "{last:?} {wanted:?}");
    let by = |line| all.iter().filter(|it| it.1 == line).count();
    assert!(
        by(1).abs_diff(28) <= 2 && by(2).abs_diff(84) <= 2,
        "{all:?}"
    );
    assert!(all.iter().all(|(port, line, _)| *port != 1 || *line == 1));
    let calls = all.iter().rev().find(|it| it.0 == 1).unwrap().2;
    let wanted = Duration::from_micros(13 * COUNTED * 8);
    assert!(calls <= wanted + BURST, "{calls:?} {wanted:?}");
}

#[test]
fn packets_of_a_line_that_is_gone_leave_by_another_and_none_is_lost() {
    let mut world = each([1, 1]);
    for _ in 0..20 {
        world.sends(1, 1000, Ecn::Ect0);
        world.sends(2, 1000, Ecn::Ect0);
    }
    let start = world.now;
    world.leaves_by(start);
    world.follow([0, 1], 2);
    let all = world.all(start);
    assert_eq!(all.len(), 39);
    assert!(all.iter().all(|it| it.1 == 2), "{all:?}");
    // Both lines get rates again, and then all rates are removed.
    world.follow([1, 1], 3);
    for _ in 0..20 {
        world.sends(1, 1000, Ecn::Ect0);
    }
    world.leaves_by(start);
    world.shaper.follow((Rates::None, 0));
    assert!(world.shaper.engaged());
    let now = world.now;
    assert_eq!(std::iter::from_fn(|| world.shaper.pop(now)).count(), 19);
    assert!(!world.shaper.engaged());
    assert_eq!(world.shaper.dropped(), 0);
}

#[test]
fn drops_are_counted_once_also_of_queues_that_are_gone() {
    let mut world = each([1, 1]);
    for _ in 0..200 {
        world.sends(1, 1400, Ecn::NotEct);
        world.sends(100, 1400, Ecn::NotEct);
    }
    let start = world.now;
    for _ in 0..50 {
        world.leaves_by(start);
    }
    let before = world.shaper.dropped();
    world.follow([0, 1], 2);
    let left = 50 + world.all(start).len() as u64;
    let after = world.shaper.dropped();
    assert_eq!(left + before + after, 400);
    assert!(before > 0 && after > 0);
    assert_eq!(world.shaper.dropped(), 0);
}
