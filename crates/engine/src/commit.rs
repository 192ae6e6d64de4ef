//! Commit: batches leave a pipeline in the order in which they entered it, whichever worker worked on them.
//!
//! A pipeline is one direction: its ring, its spare slots and what is needed to drain. While nothing
//! is in flight the producer runs its batch to completion by itself and the ring is not touched;
//! the ring is for backlog.

use crate::ring::Ring;
use crate::stats::PipelineStats;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Batches in flight at most, in each direction.
pub(crate) const RING_SLOTS: usize = 8;

/// A pipeline's work on a batch.
pub(crate) trait Direction: Send + Sync {
    type Slot: Send;
    type Drain: Send + Default;

    fn new_slot() -> Self::Slot;
    /// On any worker, several at once.
    fn transform(&self, slot: &mut Self::Slot);
    /// On one worker at a time, in order.
    fn drain(&self, drain: &mut Self::Drain, slot: &mut Self::Slot);
    /// Lets go of everything but the memory.
    fn clear(&self, slot: &mut Self::Slot);
    fn stats(&self) -> &PipelineStats;

    /// Lets packets go that are held and due. On one worker at a time, as draining.
    fn expire(&self, _: &mut Self::Drain, _: Instant) {}
}

pub(crate) struct Pipeline<D: Direction> {
    pub(crate) direction: D,
    ring: Ring<Box<D::Slot>>,
    /// Last in, first out: the slot used last is the one whose memory is in the cache.
    spare: Mutex<Vec<Box<D::Slot>>>,
    drain: Mutex<D::Drain>,
}

impl<D: Direction> Pipeline<D> {
    /// `parallel`: several workers will share this pipeline, so all slots are made; else one.
    pub(crate) fn new(direction: D, parallel: bool) -> Self {
        let slots = if parallel { RING_SLOTS } else { 1 };
        Self {
            direction,
            // A slot is spare again a moment before its place in the ring is: with twice as many
            // places as slots there is room whenever a slot is at hand.
            ring: Ring::new(2 * RING_SLOTS),
            spare: Mutex::new((0..slots).map(|_| Box::new(D::new_slot())).collect()),
            drain: Mutex::default(),
        }
    }

    /// A slot to fill. `None` while all are in flight: then [`Pipeline::work`].
    pub(crate) fn spare(&self) -> Option<Box<D::Slot>> {
        self.spare
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
    }

    /// Gives a slot back.
    pub(crate) fn put_back(&self, slot: Box<D::Slot>) {
        self.spare
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(slot);
    }

    /// Whether nothing is in flight. Exact for the producer.
    pub(crate) fn is_idle(&self) -> bool {
        self.ring.is_empty()
    }

    /// Runs a batch to completion. For the producer, while [`Pipeline::is_idle`].
    pub(crate) fn run(&self, mut slot: Box<D::Slot>) {
        debug_assert!(self.is_idle());
        self.direction.transform(&mut slot);
        self.release(slot);
    }

    /// Puts a batch into the ring. For the producer.
    pub(crate) fn publish(&self, slot: Box<D::Slot>) {
        self.direction.stats().parallel_batches.add(1);
        if let Err(slot) = self.ring.publish(slot) {
            debug_assert!(false, "more slots than places");
            self.put_back(slot);
        }
    }

    /// Batches that wait for a worker.
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

    /// Lets packets go that draining has held beyond their batch and that are due.
    pub(crate) fn expire(&self) {
        let mut drain = self.drain.lock().unwrap_or_else(PoisonError::into_inner);
        self.direction.expire(&mut drain, Instant::now());
    }

    fn release(&self, mut slot: Box<D::Slot>) {
        // The ring lets one worker in at a time: only one that lets held packets go can have the lock.
        let mut drain = self.drain.lock().unwrap_or_else(PoisonError::into_inner);
        self.direction.drain(&mut drain, &mut slot);
        drop(drain);
        // Keys and other things that the batch held must not outlive it.
        self.direction.clear(&mut slot);
        self.put_back(slot);
    }
}
