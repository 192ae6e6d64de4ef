//! Commit: batches leave a pipeline in the order in which they entered it, whichever worker worked on them.
//!
//! A pipeline is one direction: its ring, its spare slots and its drain state. While nothing is in flight, the producer
//! runs its own batch to completion without the ring. The ring serves backlogs.

use crate::ring::Ring;
use crate::stats::PipelineStats;
use std::sync::Mutex;
use std::time::Instant;

/// Maximum number of batches in flight, in each direction.
pub(crate) const RING_SLOTS: usize = 8;

/// The work of one direction on a batch.
pub(crate) trait Direction: Send + Sync {
    type Slot: Send;
    type Drain: Send + Default;

    fn new_slot() -> Self::Slot;
    /// Transforms a batch. Several workers may do this at once.
    fn transform(&self, slot: &mut Self::Slot);
    /// Drains a batch. One worker at a time, in order.
    fn drain(&self, drain: &mut Self::Drain, slot: &mut Self::Slot);
    /// Releases everything but the memory.
    fn clear(&self, slot: &mut Self::Slot);
    fn stats(&self) -> &PipelineStats;

    /// Releases held packets that are due. One worker at a time, like draining.
    fn expire(&self, _: &mut Self::Drain, _: Instant) {}
}

pub(crate) struct Pipeline<D: Direction> {
    pub(crate) direction: D,
    ring: Ring<Box<D::Slot>>,
    /// Last in, first out: the slot used last is still in the cache.
    spare: Mutex<Vec<Box<D::Slot>>>,
    drain: Mutex<D::Drain>,
}

impl<D: Direction> Pipeline<D> {
    /// Makes all slots if several workers share the pipeline (`parallel`), otherwise one.
    pub(crate) fn new(direction: D, parallel: bool) -> Self {
        let slots = if parallel { RING_SLOTS } else { 1 };
        Self {
            direction,
            // A slot becomes spare a moment before its place in the ring is free. With twice as many places as slots, a
            // spare slot always finds room.
            ring: Ring::new(2 * RING_SLOTS),
            spare: Mutex::new((0..slots).map(|_| Box::new(D::new_slot())).collect()),
            drain: Mutex::default(),
        }
    }

    /// A slot to fill; `None` while all are in flight, and then the caller should call [`Pipeline::work`].
    pub(crate) fn spare(&self) -> Option<Box<D::Slot>> {
        plane::lock(&self.spare).pop()
    }

    /// Returns a slot to the spares.
    pub(crate) fn put_back(&self, slot: Box<D::Slot>) {
        plane::lock(&self.spare).push(slot);
    }

    /// Whether no batch is in flight. Exact for the producer.
    pub(crate) fn is_idle(&self) -> bool {
        self.ring.is_empty()
    }

    /// Runs a batch to completion. Only for the producer, while [`Pipeline::is_idle`].
    pub(crate) fn run(&self, mut slot: Box<D::Slot>) {
        debug_assert!(self.is_idle());
        self.direction.transform(&mut slot);
        self.release(slot);
    }

    /// Puts a batch into the ring. Only for the producer.
    pub(crate) fn publish(&self, slot: Box<D::Slot>) {
        self.direction.stats().parallel_batches.add(1);
        if let Err(slot) = self.ring.publish(slot) {
            debug_assert!(false, "more slots than places");
            self.put_back(slot);
        }
    }

    /// Number of batches that wait for a worker.
    pub(crate) fn waiting(&self) -> usize {
        self.ring.waiting()
    }

    /// Works on the next waiting batch. Returns whether there was one.
    pub(crate) fn work(&self) -> bool {
        let Some(mut claim) = self.ring.claim() else {
            return false;
        };
        self.direction.transform(&mut claim.slot);
        self.ring.complete(claim, |slot| self.release(slot));
        true
    }

    /// Releases packets that draining has held beyond their batch and that are due.
    pub(crate) fn expire(&self) {
        let mut drain = plane::lock(&self.drain);
        self.direction.expire(&mut drain, Instant::now());
    }

    fn release(&self, mut slot: Box<D::Slot>) {
        // The ring drains one batch at a time, so only a call that releases held packets can hold this lock.
        let mut drain = plane::lock(&self.drain);
        self.direction.drain(&mut drain, &mut slot);
        drop(drain);
        // Keys and other data of the batch must not outlive it.
        self.direction.clear(&mut slot);
        self.put_back(slot);
    }
}
