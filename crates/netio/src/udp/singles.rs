//! Decides whether to receive trains or single datagrams.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Chooses between receiving trains and single datagrams, by what arrives.
///
/// With `UDP_GRO` one call receives one train. A train is only one datagram if the sender's datagrams differ or the
/// device joins none. Without `UDP_GRO` one call receives many datagrams, and the kernel cuts trains, which is
/// expensive. So `UDP_GRO` is switched off while only single datagrams come. It is tried again, less often after each
/// attempt in vain.
///
/// `UDP_GRO` is switched off only if nothing waits before and after. The kernel does not cut a train that is queued
/// already, and no longer reports where to cut it.
#[derive(Debug, Default)]
pub(super) struct Singles {
    /// `UDP_GRO` is switched off.
    pub(super) on: AtomicBool,
    /// `UDP_GRO` will be switched off as soon as nothing waits.
    pub(super) wanted: AtomicBool,
    /// Single datagrams in a row, or calls without `UDP_GRO`.
    count: AtomicU32,
    /// Attempts in a row to use `UDP_GRO` that received only single datagrams.
    pub(super) in_vain: AtomicU32,
}

/// Number of single datagrams in a row, while more wait, after which `UDP_GRO` is switched off.
pub(super) const SINGLE: u32 = 16;

/// Calls without `UDP_GRO` until it is tried again: at first, and at most.
pub(super) const CALLS_MIN: u32 = 32;
const CALLS_MAX: u32 = 4096;

impl Singles {
    /// Counts one; at the `limit` returns true and starts again from zero.
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

    /// Whether to ask for trains again after this call.
    pub(super) fn tries_again(&self) -> bool {
        let doublings = self.in_vain.load(Ordering::Relaxed);
        let calls = CALLS_MIN.checked_shl(doublings).unwrap_or(CALLS_MAX);
        self.count(calls.min(CALLS_MAX))
    }
}
