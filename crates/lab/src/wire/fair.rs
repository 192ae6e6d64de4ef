//! A fair queue in front of a line.

use std::time::{Duration, Instant};

use lines::inner::Reader;
use lines::queue::{Queue, Settings};
use netio::packet::Note;
use netio::udp::Ecn;

use super::Impairment;

/// Bytes of an Ethernet header.
pub(super) const HEADER: usize = 14;

/// One seed for all: which flows share a place must not differ from run to run.
const READER: Reader = Reader::new(1);

/// Frames that wait for a line, with times as the line counts them.
#[derive(Debug)]
pub(super) struct FairQueue {
    queue: Queue<(Note, Vec<u8>)>,
    start: Instant,
    /// Of the frames that were dropped, those that were told.
    told: u64,
}

impl FairQueue {
    /// That of a line that is fair and has a rate.
    pub(super) fn of(line: &Impairment) -> Option<Self> {
        let rate = line.rate.filter(|_| line.fair)?;
        let settings = Settings {
            rate: Some(rate),
            overhead: HEADER,
            bytes_max: line.queue,
            ..Settings::default()
        };
        Some(Self {
            queue: Queue::new(settings),
            start: Instant::now(),
            told: 0,
        })
    }

    /// Takes a frame in. Returns whether it does: what is no IP packet, as ARP, is short and rare, and does not wait.
    pub(super) fn push(&mut self, now: Duration, note: Note, frame: &[u8]) -> bool {
        let inner = frame.get(HEADER..).and_then(|packet| READER.read(packet));
        let Some(mut inner) = inner else {
            return false;
        };
        // It does not mark: what it would mark it drops.
        inner.ecn = Ecn::NotEct;
        let at = self.start + now;
        self.queue.push((note, frame.to_vec()), &inner, at);
        true
    }

    /// The next frame that the line takes by `now`.
    pub(super) fn pop(&mut self, now: Duration) -> Option<(Note, Vec<u8>)> {
        Some(self.queue.pop(self.start + now)?.packet)
    }

    /// When the line takes the next one.
    pub(super) fn next_due(&self) -> Option<Duration> {
        let at = self.queue.next_deadline(self.start)?;
        Some(at.saturating_duration_since(self.start))
    }

    /// How many frames were dropped since this was last asked.
    pub(super) fn dropped(&mut self) -> u64 {
        let counters = self.queue.counters();
        let all = counters.dropped + counters.overflowed;
        all - std::mem::replace(&mut self.told, all)
    }
}
