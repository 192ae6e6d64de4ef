//! The ring of one direction: slots are filled in order, worked on by any worker, released in order.
//!
//! ```text
//!        head             next              tail
//!         |                |                 |
//!   [free][done][done][busy][filled][filled][free]
//!         ^commit          ^claim            ^publish
//! ```
//!
//! One producer publishes. Any worker claims the next filled slot, works on it and completes it.
//! A worker that completes a slot then tries to commit: to release all done slots at the head, in order. No thread
//! exists only to keep the order, and no worker waits for another. A worker that finds the commit taken leaves its slot
//! to the worker that holds it.

#[cfg(loom)]
use loom::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering},
};
#[cfg(not(loom))]
use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering},
};

const FREE: u8 = 0;
const FILLED: u8 = 1;
const BUSY: u8 = 2;
const DONE: u8 = 3;

struct Place<T> {
    state: AtomicU8,
    /// The slot. Its mutex is never contended, as the state says which worker owns the slot: it only avoids `unsafe`.
    slot: Mutex<Option<T>>,
}

/// Slots in flight, in order.
pub(crate) struct Ring<T> {
    places: Box<[Place<T>]>,
    /// Count of slots committed; the head is this modulo the length.
    head: AtomicUsize,
    /// Count of slots claimed.
    next: AtomicUsize,
    /// Count of slots published.
    tail: AtomicUsize,
    committing: AtomicBool,
}

/// A slot that a worker is processing, and its turn.
pub(crate) struct Claim<T> {
    turn: usize,
    pub(crate) slot: T,
}

impl<T> Ring<T> {
    /// A ring of `len` places, a power of two so that the turns may wrap.
    pub(crate) fn new(len: usize) -> Self {
        assert!(len.is_power_of_two(), "ring length must be a power of two");
        Self {
            places: (0..len)
                .map(|_| Place {
                    state: AtomicU8::new(FREE),
                    slot: Mutex::new(None),
                })
                .collect(),
            head: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            tail: AtomicUsize::new(0),
            committing: AtomicBool::new(false),
        }
    }

    fn place(&self, turn: usize) -> &Place<T> {
        &self.places[turn & (self.places.len() - 1)]
    }

    /// Whether everything published has been committed. Exact for the producer, because only the producer can make it
    /// false again.
    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(Ordering::Acquire) == self.tail.load(Ordering::Relaxed)
    }

    /// Whether another slot can be published. When true, it stays true for the producer.
    pub(crate) fn has_room(&self) -> bool {
        let used = self
            .tail
            .load(Ordering::Relaxed)
            .wrapping_sub(self.head.load(Ordering::Acquire));
        used < self.places.len()
    }

    /// Slots published and not yet claimed.
    pub(crate) fn waiting(&self) -> usize {
        self.tail
            .load(Ordering::Acquire)
            .wrapping_sub(self.next.load(Ordering::Relaxed))
    }

    /// Publishes a filled slot after the others. Only the producer may call this.
    ///
    /// Returns the slot as an error when the ring is full.
    pub(crate) fn publish(&self, slot: T) -> Result<(), T> {
        if !self.has_room() {
            return Err(slot);
        }
        let turn = self.tail.load(Ordering::Relaxed);
        let place = self.place(turn);
        *lock(&place.slot) = Some(slot);
        place.state.store(FILLED, Ordering::Release);
        self.tail.store(turn.wrapping_add(1), Ordering::Release);
        Ok(())
    }

    /// Claims the next filled slot that no worker has; `None` if there is none.
    pub(crate) fn claim(&self) -> Option<Claim<T>> {
        let mut turn = self.next.load(Ordering::Relaxed);
        loop {
            if turn == self.tail.load(Ordering::Acquire) {
                return None;
            }
            let after = turn.wrapping_add(1);
            match self
                .next
                .compare_exchange_weak(turn, after, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(now) => turn = now,
            }
        }
        let place = self.place(turn);
        place.state.store(BUSY, Ordering::Relaxed);
        // A published place holds a slot until it is claimed, and this turn belongs to this worker only.
        let slot = lock(&place.slot).take()?;
        Some(Claim { turn, slot })
    }

    /// Returns a processed slot, and commits as many slots as possible. `release` gets each slot whose turn it is, in
    /// order; its calls never overlap.
    pub(crate) fn complete(&self, claim: Claim<T>, release: impl FnMut(T)) {
        let place = self.place(claim.turn);
        *lock(&place.slot) = Some(claim.slot);
        place.state.store(DONE, Ordering::Release);
        self.commit(release);
    }

    fn commit(&self, mut release: impl FnMut(T)) {
        // Both ends of the lock are read-modify-writes. A worker that finds the lock taken has stored DONE before. The
        // holder's unlocking swap reads that worker's swap, so the holder's second look below cannot miss the slot.
        while !self.committing.swap(true, Ordering::AcqRel) {
            let mut head = self.head.load(Ordering::Relaxed);
            while let Some(slot) = self.take_done(head) {
                release(slot);
                head = head.wrapping_add(1);
                self.head.store(head, Ordering::Release);
            }
            self.committing.swap(false, Ordering::AcqRel);
            if self.place(head).state.load(Ordering::Acquire) != DONE {
                return;
            }
        }
    }

    fn take_done(&self, head: usize) -> Option<T> {
        let place = self.place(head);
        if place.state.load(Ordering::Acquire) != DONE {
            return None;
        }
        let slot = lock(&place.slot).take();
        place.state.store(FREE, Ordering::Release);
        slot
    }
}

fn lock<T>(mutex: &Mutex<T>) -> impl std::ops::DerefMut<Target = T> + '_ {
    // Only moving an `Option` happens under the lock, so a panic there is impossible.
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_full_ring_gives_the_slot_back() {
        let ring = Ring::new(2);
        assert!(ring.publish(1).is_ok() && ring.publish(2).is_ok());
        assert_eq!(ring.publish(3), Err(3));
        let claim = ring.claim().unwrap();
        ring.complete(claim, |slot| assert_eq!(slot, 1));
        assert!(ring.publish(3).is_ok());
    }

    #[test]
    fn slots_finished_out_of_order_are_released_in_order() {
        let ring = Ring::new(4);
        for i in 0..3 {
            ring.publish(i).unwrap();
        }
        let (a, b, c) = (
            ring.claim().unwrap(),
            ring.claim().unwrap(),
            ring.claim().unwrap(),
        );
        assert!(ring.claim().is_none());
        let mut out = Vec::new();
        ring.complete(c, |s| out.push(s));
        ring.complete(b, |s| out.push(s));
        assert!(out.is_empty() && !ring.is_empty());
        ring.complete(a, |s| out.push(s));
        assert_eq!(out, [0, 1, 2]);
        assert!(ring.is_empty());
    }

    #[test]
    fn many_slots_through_many_threads_stay_in_order() {
        let ring = Arc::new(Ring::new(8));
        let out = Arc::new(Mutex::new(Vec::new()));
        let work = |ring: &Ring<u32>, out: &Mutex<Vec<u32>>| {
            if let Some(claim) = ring.claim() {
                ring.complete(claim, |s| out.lock().unwrap().push(s));
                return true;
            }
            false
        };
        let total = 20_000;
        let helpers: Vec<_> = (0..3)
            .map(|_| {
                let (ring, out) = (Arc::clone(&ring), Arc::clone(&out));
                std::thread::spawn(move || {
                    while out.lock().unwrap().len() < total as usize {
                        work(&ring, &out);
                    }
                })
            })
            .collect();
        for i in 0..total {
            let mut slot = i;
            while let Err(back) = ring.publish(slot) {
                slot = back;
                work(&ring, &out);
            }
        }
        for helper in helpers {
            helper.join().unwrap();
        }
        assert_eq!(*out.lock().unwrap(), (0..total).collect::<Vec<_>>());
    }
}

/// Model of every interleaving of a small case. Run with `RUSTFLAGS="--cfg loom"`; see the Makefile.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;

    #[test]
    fn two_workers_release_everything_once_and_in_order() {
        loom::model(|| {
            let ring = Arc::new(Ring::new(2));
            let out = Arc::new(Mutex::new(Vec::new()));
            let work = |ring: &Ring<u32>, out: &Mutex<Vec<u32>>| {
                while let Some(claim) = ring.claim() {
                    ring.complete(claim, |s| out.lock().unwrap().push(s));
                }
            };
            let helper = {
                let (ring, out) = (Arc::clone(&ring), Arc::clone(&out));
                loom::thread::spawn(move || work(&ring, &out))
            };
            for i in 0..2 {
                assert!(ring.publish(i).is_ok());
            }
            work(&ring, &out);
            helper.join().unwrap();
            assert!(ring.is_empty());
            assert_eq!(*out.lock().unwrap(), [0, 1]);
        });
    }

    #[test]
    fn a_wrapping_ring_never_hands_a_slot_out_twice() {
        loom::model(|| {
            let ring = Arc::new(Ring::new(1));
            let out = Arc::new(Mutex::new(Vec::new()));
            let helper = {
                let (ring, out) = (Arc::clone(&ring), Arc::clone(&out));
                loom::thread::spawn(move || {
                    if let Some(claim) = ring.claim() {
                        ring.complete(claim, |s| out.lock().unwrap().push(s));
                    }
                })
            };
            assert!(ring.publish(0).is_ok());
            let second = ring.publish(1).is_ok();
            helper.join().unwrap();
            while let Some(claim) = ring.claim() {
                ring.complete(claim, |s| out.lock().unwrap().push(s));
            }
            let expected: &[u32] = if second { &[0, 1] } else { &[0] };
            assert_eq!(*out.lock().unwrap(), expected);
        });
    }
}
