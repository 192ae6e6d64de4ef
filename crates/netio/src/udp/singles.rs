//! Whether datagrams come in trains or singly.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Trains or single datagrams, by what comes.
///
/// With `UDP_GRO` one call receives one train, which is one datagram where the sender's datagrams differ or the device joins
/// none; without, one call receives many datagrams, and trains are cut by the kernel, which is dear. So `UDP_GRO` is let go of
/// while only single datagrams come, and tried again, the less often the more often that was in vain.
///
/// It is let go of when nothing waits, before and after: the kernel does not cut a train that stands in the queue already, and
/// does not tell any more where it is to be cut.
#[derive(Debug, Default)]
pub(super) struct Singles {
    /// `UDP_GRO` is let go of.
    pub(super) on: AtomicBool,
    /// It is to be, as soon as nothing waits.
    pub(super) wanted: AtomicBool,
    /// Single datagrams in a row, or calls without `UDP_GRO`.
    count: AtomicU32,
    /// How often in a row only single datagrams came when it was tried again.
    pub(super) in_vain: AtomicU32,
}

/// Datagrams that come singly one after the other, while more wait, until `UDP_GRO` is let go of.
pub(super) const SINGLE: u32 = 16;

/// Calls without `UDP_GRO` until it is tried again: at first, and at most.
pub(super) const CALLS_MIN: u32 = 32;
const CALLS_MAX: u32 = 4096;

impl Singles {
    /// Counts one; true, and from the start again, at the `limit`.
    pub(super) fn count(&self, limit: u32) -> bool {
        let count = self.count.load(Ordering::Relaxed) + 1;
        let over = count >= limit;
        self.count
            .store(if over { 0 } else { count }, Ordering::Relaxed);
        over
    }

    pub(super) fn none_in_a_row(&self) {
        self.count.store(0, Ordering::Relaxed);
    }

    /// Whether trains may be asked for again, after this call.
    pub(super) fn tries_again(&self) -> bool {
        let doublings = self.in_vain.load(Ordering::Relaxed);
        let calls = CALLS_MIN.checked_shl(doublings).unwrap_or(CALLS_MAX);
        self.count(calls.min(CALLS_MAX))
    }
}
