//! Coalescing: a worker whose packets arrive quickly and one by one waits a moment to collect a batch.
//!
//! Network cards call this interrupt coalescing. Each packet that arrives alone costs the worker a wake-up, a wait, a
//! read and a write. A TCP receiver also acknowledges each such write. This happens with a peer that sends one datagram
//! at a time (stock OpenVPN), or a card that joins none. It begins as soon as the worker is faster than the packets. A
//! small batch costs little more than one packet.
//!
//! [`Cadence`] detects packets that arrive one at a time, so that one read takes them all.

use std::time::{Duration, Instant};

/// Longest wait of a worker.
pub(crate) const PAUSE: Duration = Duration::from_micros(50);

/// Packets that must be expected in one pause. Two packets cost less one by one than with a timer for each pair.
/// Request-response traffic (ping) stays far below this.
const EXPECTED: u32 = 3 * ONE;

/// A batch of this size needs no pause.
const ENOUGH: u32 = 16;

/// The number of one packet in fixed point.
const ONE: u32 = 256;

/// The weight of the newest measurement: 1 / 2^n.
const WEIGHT: u32 = 2;

/// How packets arrive at one kind of descriptor.
#[derive(Debug)]
pub(crate) struct Coalescing {
    allowed: bool,
    /// Packets read since the last decision about a pause.
    packets: u32,
    now: Option<Instant>,
    last: Option<Instant>,
    /// Packets expected during one pause, in units of 1 / [`ONE`].
    expected: u32,
}

impl Coalescing {
    /// Creates a state that requests pauses only if `allowed`.
    pub(crate) const fn new(allowed: bool) -> Self {
        Self {
            allowed,
            packets: 0,
            now: None,
            last: None,
            expected: 0,
        }
    }

    /// Records that a read begun at `now` returned this many packets.
    pub(crate) fn read(&mut self, packets: usize, now: Instant) {
        let packets = u32::try_from(packets).unwrap_or(u32::MAX);
        self.packets = self.packets.saturating_add(packets);
        self.now = Some(now);
    }

    /// Decides, once everything was read, whether to wait for [`PAUSE`] now.
    pub(crate) fn pause(&mut self) -> bool {
        let packets = std::mem::take(&mut self.packets);
        let Some(now) = self.now.take().filter(|_| self.allowed) else {
            return false;
        };
        let Some(last) = self.last.replace(now) else {
            return false;
        };
        let gap = now.saturating_duration_since(last).as_nanos().max(1);
        let newest = u128::from(packets) * u128::from(ONE) * PAUSE.as_nanos() / gap;
        // Capped well above the count that makes a pause needless.
        let newest = newest.min(u128::from(ONE * ENOUGH * 4)) as u32;
        self.expected = self.expected - (self.expected >> WEIGHT) + (newest >> WEIGHT);
        packets < ENOUGH && self.expected >= EXPECTED
    }
}

/// Reads that trust a single packet to be all, before one checks again.
const TRUSTED: u8 = 7;

/// Packets closer together than this belong to a stream or a burst.
const APART: Duration = Duration::from_micros(50);

/// How packets arrive at a descriptor.
///
/// A worker reads a descriptor until the kernel says that nothing waits, which is one call more than there are packets.
/// If packets arrive one by one, that is half of all calls. The extra call is skipped after a read that found exactly
/// one packet. It is not skipped if the next packet follows at once, nor every eighth time. The next wait reports a
/// packet missed that way, one call later.
#[derive(Debug, Default)]
pub(crate) struct Cadence {
    trusted: u8,
    one: bool,
    last: Option<Instant>,
}

impl Cadence {
    /// Begins reading. Returns whether a single packet is likely to be all.
    pub(crate) fn one(&mut self, now: Instant) -> bool {
        let last = self.last.replace(now);
        if last.is_some_and(|last| now.saturating_duration_since(last) < APART) {
            self.trusted = 0;
        }
        self.one = self.trusted > 0;
        self.trusted = self.trusted.saturating_sub(1);
        self.one
    }

    /// Whether the last read took one packet and did not look for more.
    pub(crate) const fn took_one(&self) -> bool {
        self.one
    }

    /// Records that a read which emptied the descriptor, or ran out of room, found this many packets.
    pub(crate) fn found(&mut self, packets: u64) {
        self.trusted = if packets == 1 { TRUSTED } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a pause is wanted after each of `readings` reads of `packets` packets, `apart` from each other.
    fn pauses(packets: usize, apart: Duration, readings: usize) -> Vec<bool> {
        let mut coalescing = Coalescing::new(true);
        let mut now = Instant::now();
        let mut asked = || {
            now += apart;
            coalescing.read(packets, now);
            coalescing.pause()
        };
        (0..readings).map(|_| asked()).collect()
    }

    #[test]
    fn packets_that_follow_each_other_quickly_are_waited_for() {
        let asked = pauses(1, Duration::from_micros(12), 40);
        assert!(!asked[0], "nothing is known yet");
        assert!(asked[20..].iter().all(|it| *it));
        // Packets that arrive in the batches made by pauses still cause pauses.
        assert!(pauses(5, Duration::from_micros(60), 40)[39]);
    }

    #[test]
    fn lone_packets_are_not() {
        for apart in [40, 100, 1_000, 1_000_000] {
            let asked = pauses(1, Duration::from_micros(apart), 40);
            assert!(!asked.contains(&true), "{apart} µs apart");
        }
    }

    #[test]
    fn batches_are_not() {
        let asked = pauses(ENOUGH as usize, Duration::from_micros(20), 40);
        assert!(!asked.contains(&true));
    }

    #[test]
    fn it_ends_when_packets_become_rare() {
        let mut coalescing = Coalescing::new(true);
        let mut now = Instant::now();
        let mut asked = |apart| {
            now += Duration::from_micros(apart);
            coalescing.read(1, now);
            coalescing.pause()
        };
        assert!((0..40).any(|_| asked(10)));
        let more = (0..20).take_while(|_| asked(60)).count();
        assert!(more < 8, "{more}");
    }

    #[test]
    fn nothing_was_read_or_it_is_switched_off() {
        let mut coalescing = Coalescing::new(true);
        assert!(!coalescing.pause());
        let mut off = Coalescing::new(false);
        let start = Instant::now();
        for n in 0..40 {
            off.read(4, start + n * Duration::from_micros(20));
            assert!(!off.pause());
        }
    }

    #[test]
    fn one_packet_is_taken_for_all_after_one_that_was_and_not_for_ever() {
        let mut now = Instant::now();
        let mut one = |cadence: &mut Cadence, apart: Duration| {
            now += apart;
            cadence.one(now)
        };
        let mut cadence = Cadence::default();
        assert!(!one(&mut cadence, APART), "nothing is known yet");
        cadence.found(1);
        for _ in 0..TRUSTED {
            assert!(one(&mut cadence, APART));
        }
        assert!(!one(&mut cadence, APART), "looked at once more");
        cadence.found(1);
        assert!(one(&mut cadence, APART));
        assert!(!one(&mut cadence, APART / 2), "a burst");
        cadence.found(2);
        assert!(!one(&mut cadence, APART));
        cadence.found(1);
        assert!(one(&mut cadence, APART));
        cadence.found(0);
        assert!(!one(&mut cadence, APART));
    }
}
