//! Counters of one line of a peer; workers update them.

use crate::stats::Counter;
use plane::LineCounts;

/// The counters of one line.
#[derive(Debug, Default)]
pub(crate) struct LineCounters {
    sent: Counter,
    sent_bytes: Counter,
    received_bytes: Counter,
    accepted: Counter,
    late: Counter,
    buffered: Counter,
    duplicated: Counter,
    ancient: Counter,
}

impl LineCounters {
    /// Counts sent packets.
    pub(crate) fn note_sent(&self, packets: u64, bytes: u64) {
        self.sent.add(packets);
        self.sent_bytes.add(bytes);
    }

    /// Counts received packets: adds the receive fields of `counts`.
    pub(crate) fn note_received(&self, counts: &LineCounts) {
        self.received_bytes.add(counts.received_bytes);
        self.accepted.add(counts.accepted);
        self.late.add(counts.late);
        self.buffered.add(counts.buffered);
        self.duplicated.add(counts.duplicated);
        self.ancient.add(counts.ancient);
    }

    /// The sums so far.
    pub(crate) fn counts(&self) -> LineCounts {
        LineCounts {
            sent: self.sent.value(),
            sent_bytes: self.sent_bytes.value(),
            received_bytes: self.received_bytes.value(),
            accepted: self.accepted.value(),
            late: self.late.value(),
            buffered: self.buffered.value(),
            duplicated: self.duplicated.value(),
            ancient: self.ancient.value(),
        }
    }
}
