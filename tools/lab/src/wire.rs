//! One direction of an emulated line. It has neither a clock nor a socket of its own.
//!
//! The caller pushes frames with their arrival times and pops them when they are due. All choices come from a seeded
//! generator that makes the same number of draws for every frame. A run can therefore be repeated, and one impairment
//! changed without affecting the others.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use netio::packet::Note;

use crate::random::Random;

mod fair;

use fair::FairQueue;

/// Properties of a line in one direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Impairment {
    /// Delay of every frame.
    pub delay: Duration,
    /// Evenly distributed variation of the delay, up to this much more or less. Frames may overtake each other.
    pub jitter: Duration,
    /// Whether frames leave in the order of arrival in spite of jitter.
    pub in_order: bool,
    /// Fraction of frames lost, 0 to 1.
    pub loss: f64,
    /// Average number of consecutive frames lost (Gilbert's model). Up to 1, losses are independent. The loss rate
    /// cannot exceed `burst / (burst + 1)`.
    pub burst: f64,
    /// Fraction of frames that arrive twice.
    pub duplicate: f64,
    /// Fraction of frames that skip the delay and so overtake others.
    pub reorder: f64,
    /// Rate of the line in bits per second, Ethernet headers included; `None` is unlimited.
    pub rate: Option<u64>,
    /// Bytes that may queue for the line when it has a rate.
    pub queue: usize,
    /// Whether frames queue fairly (FQ-CoDel, RFC 8290) instead of first in, first out. The queue drops packets that
    /// it would mark.
    pub fair: bool,
    /// The cable is pulled: nothing gets through.
    pub cut: bool,
}

impl Impairment {
    /// No delay, loss or limit.
    pub const NONE: Self = Self {
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
        in_order: false,
        loss: 0.0,
        burst: 1.0,
        duplicate: 0.0,
        reorder: 0.0,
        rate: None,
        queue: 256 * 1024,
        fair: false,
        cut: false,
    };

    /// A line that only delays.
    pub fn delay(delay: Duration) -> Self {
        Self {
            delay,
            ..Self::NONE
        }
    }
}

impl Default for Impairment {
    fn default() -> Self {
        Self::NONE
    }
}

/// Frame counters of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WireCounters {
    /// Frames that arrived.
    pub received: u64,
    /// Bytes that arrived.
    pub received_bytes: u64,
    /// Frames that left, copies included.
    pub sent: u64,
    /// Frames lost by chance.
    pub lost: u64,
    /// Frames that arrived while the cable was pulled.
    pub cut: u64,
    /// Extra copies made.
    pub duplicated: u64,
    /// Frames that skipped the delay.
    pub reordered: u64,
    /// Frames dropped because the queue was full.
    pub queue_full: u64,
    /// Frames dropped because the emulator held too many bytes already.
    pub held_full: u64,
    /// Frames longer than the emulator can hold.
    pub too_long: u64,
    /// Frames that the outgoing interface did not take.
    pub refused: u64,
    /// The longest delay of a frame beyond the time at which it was due.
    pub latest: Duration,
}

/// Maximum number of bytes of frames that one direction holds, whatever the delay and rate.
const HELD_BYTES: usize = 64 << 20;

/// One direction of a line.
#[derive(Debug)]
pub(crate) struct Wire {
    impairment: Impairment,
    random: Random,
    /// When the line has finished sending all frames queued so far.
    free_at: Duration,
    last_due: Duration,
    /// Whether the last frame was lost, so that the next may belong to the same burst.
    in_burst: bool,
    held: BinaryHeap<Reverse<Held>>,
    held_bytes: usize,
    /// The queue of a line that is fair.
    queue: Option<FairQueue>,
    /// Order of arrival, which breaks ties between frames that are due at the same time.
    sequence: u64,
    /// Buffers of frames that have left, for reuse.
    spare: Vec<Vec<u8>>,
    pub(crate) counters: WireCounters,
}

/// A waiting frame, ordered by the time at which it is due.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Held {
    pub(crate) due: Duration,
    sequence: u64,
    pub(crate) note: Note,
    pub(crate) frame: Vec<u8>,
}

impl Wire {
    pub(crate) fn new(impairment: Impairment, seed: u64) -> Self {
        Self {
            impairment,
            random: Random::new(seed),
            free_at: Duration::ZERO,
            last_due: Duration::ZERO,
            in_burst: false,
            held: BinaryHeap::new(),
            held_bytes: 0,
            queue: FairQueue::of(&impairment),
            sequence: 0,
            spare: Vec::new(),
            counters: WireCounters::default(),
        }
    }

    /// Changes the line. Frames in transit are kept, unless the cable is pulled.
    pub(crate) fn set(&mut self, impairment: Impairment) {
        if impairment.cut {
            while let Some(Reverse(held)) = self.held.pop() {
                self.counters.cut += 1;
                self.recycle(held);
            }
        }
        if (impairment.fair, impairment.rate) != (self.impairment.fair, self.impairment.rate) {
            self.queue = FairQueue::of(&impairment);
        }
        self.impairment = impairment;
    }

    /// Takes a frame that arrives at `now`.
    pub(crate) fn push(&mut self, now: Duration, note: Note, frame: &[u8]) {
        self.counters.received += 1;
        self.counters.received_bytes += frame.len() as u64;
        let queue = self.queue.as_mut();
        if queue.is_some_and(|queue| queue.push(now, note, frame)) {
            return self.advance(now);
        }
        self.pass(now, note, frame);
    }

    /// Sends the frames that the fair queue releases by `now`.
    fn advance(&mut self, now: Duration) {
        while let Some((note, frame)) = self.queue.as_mut().and_then(|queue| queue.pop(now)) {
            self.pass(now, note, &frame);
        }
        let dropped = self.queue.as_mut().map_or(0, FairQueue::dropped);
        self.counters.queue_full += dropped;
    }

    /// Sends a frame over the line, or drops it.
    fn pass(&mut self, now: Duration, note: Note, frame: &[u8]) {
        let line = self.impairment;
        let counters = &mut self.counters;
        let [lost, twice, early, sway] = [(); 4].map(|()| self.random.fraction());
        if line.cut {
            counters.cut += 1;
            return;
        }
        if self.loses(lost) {
            self.counters.lost += 1;
            return;
        }
        let Some(sent_at) = self.transmit(now, frame.len()) else {
            self.counters.queue_full += 1;
            return;
        };
        let mut due = sent_at;
        if early < line.reorder {
            self.counters.reordered += 1;
        } else {
            let spread = line.jitter.mul_f64(2.0 * sway);
            due += (line.delay + spread).saturating_sub(line.jitter);
            if line.in_order {
                due = due.max(self.last_due);
            }
            self.last_due = self.last_due.max(due);
        }
        self.hold(due, note, frame);
        if twice < line.duplicate {
            self.counters.duplicated += 1;
            self.hold(due, note, frame);
        }
    }

    /// Decides from a random fraction whether a frame is lost.
    fn loses(&mut self, random: f64) -> bool {
        let line = self.impairment;
        if line.burst <= 1.0 || line.loss <= 0.0 || line.loss >= 1.0 {
            self.in_burst = false;
            return random < line.loss;
        }
        let end = 1.0 / line.burst;
        self.in_burst = match self.in_burst {
            true => random >= end,
            // The chance that a burst begins, which gives the wanted loss together with the frames after it.
            false => random < end * line.loss / (1.0 - line.loss).max(f64::EPSILON),
        };
        self.in_burst
    }

    /// Returns when the line will have sent a frame; `None` if the queue is full.
    fn transmit(&mut self, now: Duration, bytes: usize) -> Option<Duration> {
        let Some(rate) = self.impairment.rate.filter(|&rate| rate > 0) else {
            return Some(now);
        };
        if self.queue.is_some() {
            // The frame has already waited in the fair queue.
            return Some(now + Duration::from_secs_f64(bytes as f64 * 8.0 / rate as f64));
        }
        let waiting = self.free_at.saturating_sub(now).as_secs_f64() * rate as f64 / 8.0;
        if waiting + bytes as f64 > self.impairment.queue as f64 {
            return None;
        }
        let takes = Duration::from_secs_f64(bytes as f64 * 8.0 / rate as f64);
        self.free_at = self.free_at.max(now) + takes;
        Some(self.free_at)
    }

    fn hold(&mut self, due: Duration, note: Note, frame: &[u8]) {
        if self.held_bytes + frame.len() > HELD_BYTES {
            self.counters.held_full += 1;
            return;
        }
        self.held_bytes += frame.len();
        self.sequence += 1;
        let mut memory = self.spare.pop().unwrap_or_default();
        memory.extend_from_slice(frame);
        self.held.push(Reverse(Held {
            due,
            sequence: self.sequence,
            note,
            frame: memory,
        }));
    }

    /// When the next frame is due.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let held = self.held.peek().map(|Reverse(held)| held.due);
        let queue = self.queue.as_ref().and_then(FairQueue::next_due);
        held.into_iter().chain(queue).min()
    }

    /// Returns the next frame that is due by `now`.
    pub(crate) fn pop(&mut self, now: Duration) -> Option<Held> {
        self.advance(now);
        if self.held.peek()?.0.due > now {
            return None;
        }
        let Reverse(held) = self.held.pop()?;
        let late = now.saturating_sub(held.due);
        self.counters.latest = self.counters.latest.max(late);
        Some(held)
    }

    /// Takes back the buffer of a frame that [`Wire::pop`] returned or the line dropped.
    pub(crate) fn recycle(&mut self, mut held: Held) {
        self.held_bytes -= held.frame.len();
        if self.spare.len() < 1024 {
            held.frame.clear();
            self.spare.push(held.frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fair::HEADER;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Sends numbered frames one per millisecond and returns (number, time of arrival, time due).
    fn run(line: Impairment, seed: u64, frames: u32) -> (Vec<(u32, Duration)>, WireCounters) {
        let mut wire = Wire::new(line, seed);
        let mut out = Vec::new();
        for number in 0..frames {
            let mut frame = vec![0; 1000];
            frame[..4].copy_from_slice(&number.to_be_bytes());
            wire.push(MS * number, Note::default(), &frame);
        }
        while let Some(due) = wire.next_due() {
            let held = wire.pop(due).unwrap();
            let number = u32::from_be_bytes(held.frame[..4].try_into().unwrap());
            out.push((number, held.due));
            wire.recycle(held);
        }
        assert_eq!(wire.held_bytes, 0);
        (out, wire.counters)
    }

    #[test]
    fn perfect_line_changes_nothing() {
        let (out, counters) = run(Impairment::NONE, 1, 100);
        let expected: Vec<_> = (0..100).map(|n| (n, MS * n)).collect();
        assert_eq!(out, expected);
        assert_eq!((counters.received, counters.lost), (100, 0));
    }

    #[test]
    fn bursts_have_their_length_and_lose_as_much() {
        let line = Impairment {
            loss: 0.05,
            burst: 4.0,
            ..Impairment::NONE
        };
        let (out, counters) = run(line, 3, 40_000);
        assert!((1_700..2_300).contains(&counters.lost), "{counters:?}");
        let bursts = out
            .windows(2)
            .filter(|pair| pair[1].0 > pair[0].0 + 1)
            .count();
        let length = counters.lost as f64 / bursts as f64;
        assert!((3.6..4.4).contains(&length), "{length}");
    }

    #[test]
    fn loss_is_the_same_for_the_same_seed_and_close_to_what_was_asked() {
        let line = Impairment {
            loss: 0.1,
            ..Impairment::NONE
        };
        let (first, counters) = run(line, 7, 10_000);
        assert_eq!(first, run(line, 7, 10_000).0);
        assert_ne!(first, run(line, 8, 10_000).0);
        assert!((900..1100).contains(&counters.lost), "{counters:?}");
    }

    #[test]
    fn delay_and_jitter_stay_within_their_bounds_and_reorder() {
        let mut line = Impairment {
            delay: 10 * MS,
            jitter: 3 * MS,
            ..Impairment::NONE
        };
        let (out, _) = run(line, 3, 1000);
        for (number, due) in &out {
            let took = *due - MS * *number;
            assert!((7 * MS..=13 * MS).contains(&took), "{took:?}");
        }
        assert!(!out.is_sorted_by_key(|(number, _)| *number));
        line.in_order = true;
        let (out, _) = run(line, 3, 1000);
        assert!(out.is_sorted_by_key(|(number, _)| *number));
    }

    #[test]
    fn reordering_skips_the_delay_and_duplicates_arrive_twice() {
        let line = Impairment {
            delay: 10 * MS,
            reorder: 0.05,
            duplicate: 0.02,
            ..Impairment::NONE
        };
        let (out, counters) = run(line, 5, 10_000);
        assert!((400..600).contains(&counters.reordered), "{counters:?}");
        assert!((130..270).contains(&counters.duplicated), "{counters:?}");
        assert_eq!(out.len() as u64, 10_000 + counters.duplicated);
    }

    #[test]
    fn rate_spaces_frames_and_the_queue_is_bounded() {
        // A frame of 1000 bytes takes 8 ms at 1 Mbit/s, and one comes every millisecond.
        let line = Impairment {
            rate: Some(1_000_000),
            queue: 5000,
            ..Impairment::NONE
        };
        let (out, counters) = run(line, 1, 1000);
        for pair in out.windows(2) {
            assert!(pair[1].1 - pair[0].1 >= 8 * MS - Duration::from_nanos(10));
        }
        assert_eq!(out.len() as u64 + counters.queue_full, 1000);
        assert!((120..140).contains(&out.len()), "{}", out.len());
    }

    #[test]
    fn pulled_cable_loses_what_is_under_way() {
        let mut wire = Wire::new(Impairment::delay(10 * MS), 1);
        wire.push(MS, Note::default(), &[0; 100]);
        wire.set(Impairment {
            cut: true,
            ..Impairment::NONE
        });
        wire.push(2 * MS, Note::default(), &[0; 100]);
        assert_eq!(wire.next_due(), None);
        assert_eq!((wire.counters.cut, wire.held_bytes), (2, 0));
    }

    #[test]
    fn a_fair_line_lets_a_short_flow_pass_a_long_one() {
        let line = Impairment {
            rate: Some(1_000_000),
            queue: 1 << 20,
            fair: true,
            ..Impairment::NONE
        };
        let mut wire = Wire::new(line, 1);
        let frame = |port: u8, bytes| {
            let mut frame = vec![0; HEADER + 28 + bytes];
            frame[HEADER] = 0x45;
            (frame[HEADER + 9], frame[HEADER + 21]) = (17, port);
            frame
        };
        for _ in 0..8 {
            wire.push(Duration::ZERO, Note::default(), &frame(1, 1000));
        }
        wire.push(MS, Note::default(), &frame(2, 100));
        let mut out = Vec::new();
        while let Some(due) = wire.next_due() {
            while let Some(held) = wire.pop(due) {
                out.push((held.frame[HEADER + 21], held.due));
                wire.recycle(held);
            }
        }
        assert_eq!(out.len(), 9);
        assert_eq!(out.iter().position(|(port, _)| *port == 2), Some(1));
        // The line reaches its configured rate.
        let bits = (8 * 1042 + 142) * 8;
        let wanted = Duration::from_micros(bits);
        assert!(out[8].1.abs_diff(wanted) < MS * 2, "{out:?}");
    }
}
