//! A fair queue in front of a line.

use std::time::{Duration, Instant};

use lines::inner::Reader;
use lines::queue::{Queue, Settings};
use netio::packet::Note;
use netio::udp::Ecn;

use super::Impairment;

/// Bytes of an Ethernet header.
pub(super) const HEADER: usize = 14;

/// A fixed seed: which flows share a queue must not differ from run to run.
const READER: Reader = Reader::new(1);

/// Frames that wait for a line, with times relative to the line's start.
#[derive(Debug)]
pub(super) struct FairQueue {
    queue: Queue<(Note, Vec<u8>)>,
    start: Instant,
    /// Number of dropped frames that `dropped` has reported already.
    told: u64,
}

impl FairQueue {
    /// Makes the queue, for a line that is fair and has a rate.
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

    /// Queues a frame; returns false if it is not an IP packet. Such frames, ARP for example, are short and rare, and
    /// skip the queue.
    pub(super) fn push(&mut self, now: Duration, note: Note, frame: &[u8]) -> bool {
        let inner = frame.get(HEADER..).and_then(|packet| READER.read(packet));
        let Some(mut inner) = inner else {
            return false;
        };
        // Mark as not ECN-capable, so that the queue drops the frame instead of marking it.
        inner.ecn = Ecn::NotEct;
        let at = self.start + now;
        self.queue.push((note, frame.to_vec()), &inner, at);
        true
    }

    /// Returns the next frame that the line can send by `now`.
    pub(super) fn pop(&mut self, now: Duration) -> Option<(Note, Vec<u8>)> {
        Some(self.queue.pop(self.start + now)?.packet)
    }

    /// When the line can send the next frame.
    pub(super) fn next_due(&self) -> Option<Duration> {
        let at = self.queue.next_deadline(self.start)?;
        Some(at.saturating_duration_since(self.start))
    }

    /// Number of frames dropped since the last call.
    pub(super) fn dropped(&mut self) -> u64 {
        let counters = self.queue.counters();
        let all = counters.dropped + counters.overflowed;
        all - std::mem::replace(&mut self.told, all)
    }
}
