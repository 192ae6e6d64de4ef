//! Reordering of a peer's packets: the settings from control, and the counts.

use crate::stats::{Counter, OrderCounters};
use arc_swap::ArcSwapOption;
use lines::reorder::{Learnt, Reordering};
use plane::{OrderCounts, Reorder};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Settings from control and counts from workers, for all sessions of one peer.
#[derive(Debug, Default)]
pub(crate) struct PeerOrder {
    /// Whether there are settings; spares peers without reordering a look at `settings`.
    on: AtomicBool,
    settings: ArcSwapOption<Reorder>,
    counters: OrderCounters,
    /// Data from earlier sessions about answers to repair requests.
    learnt: Mutex<Learnt>,
    /// Data from earlier sessions about the order of packets on the lines.
    reordering: Mutex<Reordering>,
}

impl PeerOrder {
    pub(crate) fn learnt(&self) -> Learnt {
        *plane::lock(&self.learnt)
    }

    pub(crate) fn learn(&self, learnt: Learnt) {
        *plane::lock(&self.learnt) = learnt;
    }

    pub(crate) fn reordering(&self) -> Reordering {
        *plane::lock(&self.reordering)
    }

    pub(crate) fn set_reordering(&self, reordering: Reordering) {
        *plane::lock(&self.reordering) = reordering;
    }

    /// Sets how packets are reordered from now on; `None` turns reordering off.
    pub(crate) fn set(&self, reorder: Option<Reorder>) {
        self.on.store(reorder.is_some(), Ordering::Relaxed);
        self.settings.store(reorder.map(Arc::new));
    }

    /// The settings, if packets are reordered. Each call of [`Self::set`] makes a new object.
    pub(crate) fn settings(&self) -> Option<Arc<Reorder>> {
        self.on
            .load(Ordering::Relaxed)
            .then(|| self.settings.load_full())
            .flatten()
    }

    /// Adds the difference between the counts `before` and `after`.
    pub(crate) fn note(&self, before: &OrderCounts, after: &OrderCounts) {
        let note = |counter: &Counter, before: u64, after: u64| {
            // The number of waiting packets may fall, so the sums wrap.
            counter.add(after.wrapping_sub(before));
        };
        let sums = &self.counters;
        note(&sums.given_up, before.given_up, after.given_up);
        note(&sums.decided, before.decided, after.decided);
        note(&sums.waiting, before.waiting, after.waiting);
        note(&sums.accepted, before.accepted, after.accepted);
        note(&sums.late, before.late, after.late);
        note(&sums.received, before.received, after.received);
        note(&sums.asked, before.asked, after.asked);
        note(&sums.repaired, before.repaired, after.repaired);
    }

    /// The sums so far.
    pub(crate) fn counts(&self) -> OrderCounts {
        self.counters.counts()
    }
}
