//! Reordering of a peer's packets: the settings from control, and the counts.

use arc_swap::ArcSwapOption;
use lines::reorder::{Learnt, Reordering};
use plane::AtomicU64;
use plane::{OrderCounts, Reorder};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Settings from control and counts from workers, for all sessions of one peer.
#[derive(Debug, Default)]
pub(crate) struct PeerOrder {
    /// Whether there are settings; spares peers without reordering a look at `settings`.
    on: AtomicBool,
    settings: ArcSwapOption<Reorder>,
    given_up: AtomicU64,
    decided: AtomicU64,
    waiting: AtomicU64,
    accepted: AtomicU64,
    late: AtomicU64,
    received: AtomicU64,
    asked: AtomicU64,
    repaired: AtomicU64,
    /// Experience of earlier sessions with answers to requests.
    learnt: Mutex<Learnt>,
    /// Experience of earlier sessions with the lines.
    reordering: Mutex<Reordering>,
}

impl PeerOrder {
    pub(crate) fn learnt(&self) -> Learnt {
        *self.learnt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn learn(&self, learnt: Learnt) {
        *self.learnt.lock().unwrap_or_else(PoisonError::into_inner) = learnt;
    }

    pub(crate) fn reordering(&self) -> Reordering {
        *self
            .reordering
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_reordering(&self, reordering: Reordering) {
        *self
            .reordering
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = reordering;
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
        let note = |counter: &AtomicU64, before: u64, after: u64| {
            // The number of waiting packets may fall, so the sums wrap.
            counter.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        };
        note(&self.given_up, before.given_up, after.given_up);
        note(&self.decided, before.decided, after.decided);
        note(&self.waiting, before.waiting, after.waiting);
        note(&self.accepted, before.accepted, after.accepted);
        note(&self.late, before.late, after.late);
        note(&self.received, before.received, after.received);
        note(&self.asked, before.asked, after.asked);
        note(&self.repaired, before.repaired, after.repaired);
    }

    /// The sums so far.
    pub(crate) fn counts(&self) -> OrderCounts {
        OrderCounts {
            given_up: self.given_up.load(Ordering::Relaxed),
            decided: self.decided.load(Ordering::Relaxed),
            waiting: self.waiting.load(Ordering::Relaxed),
            accepted: self.accepted.load(Ordering::Relaxed),
            late: self.late.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            asked: self.asked.load(Ordering::Relaxed),
            repaired: self.repaired.load(Ordering::Relaxed),
        }
    }
}
