//! Receiving sessions: a key and its replay window.

use crate::flags::Removed;
use crate::key::SendKey;
use crate::peer::Peer;
use crate::reorder::Order;
use arc_swap::ArcSwap;
use plane::AtomicU64;
use plane::Format;
use plane::KeyLimits;
use plane::Wire;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The key of one receiving session.
pub(crate) struct ReceiveKey<W: Wire> {
    pub(crate) index: u32,
    pub(crate) peer: Arc<Peer>,
    pub(crate) format: Arc<dyn Format>,
    pub(crate) limits: KeyLimits,
    /// Only the worker that commits batches touches this, so it is never contended.
    pub(crate) received: Mutex<Received<W>>,
    /// The key of the other direction, if control gave one. It comes into use when control says so, or when a packet
    /// arrives.
    pub(crate) answer: Option<Arc<SendKey>>,
    unconfirmed: AtomicBool,
    refresh_asked: AtomicBool,
    compression_told: AtomicBool,
    removed: Removed,
    opened: AtomicU64,
    forged: AtomicU64,
}

/// Decides whether and when a packet is written.
pub(crate) struct Received<W: Wire> {
    pub(crate) replay: W::Window,
    /// `None` if packets are written as they come.
    pub(crate) order: Option<Box<Order>>,
}

impl<W: Wire> Default for Received<W> {
    fn default() -> Self {
        Self {
            replay: W::Window::default(),
            order: None,
        }
    }
}

impl<W: Wire> ReceiveKey<W> {
    pub(crate) fn new(
        index: u32,
        peer: Arc<Peer>,
        format: Arc<dyn Format>,
        limits: KeyLimits,
        answer: Option<Arc<SendKey>>,
        confirm: bool,
    ) -> Self {
        Self {
            index,
            peer,
            format,
            limits,
            received: Mutex::default(),
            unconfirmed: AtomicBool::new(confirm),
            answer,
            refresh_asked: AtomicBool::new(false),
            compression_told: AtomicBool::new(false),
            removed: Removed::new(),
            opened: AtomicU64::new(0),
            forged: AtomicU64::new(0),
        }
    }

    /// Records the result of a run of packets: the greatest number opened, and how many were forged.
    pub(crate) fn note_opened(&self, greatest: u64, forged: u64) {
        self.opened.fetch_max(greatest, Ordering::Relaxed);
        if forged > 0 {
            self.forged.fetch_add(forged, Ordering::Relaxed);
        }
    }

    /// The greatest number of an authentic packet, 0 before the first one, and the packets that failed authentication.
    pub(crate) fn usage(&self) -> (u64, u64) {
        let value = |of: &AtomicU64| of.load(Ordering::Relaxed);
        (value(&self.opened), value(&self.forged))
    }

    pub(crate) fn removed(&self) -> bool {
        self.removed.get()
    }

    /// Marks the session as removed from the table.
    pub(crate) fn remove(&self) {
        self.removed.set(|| self.stop_sending());
    }

    /// Whether this is the packet that confirms the session; true once.
    pub(crate) fn confirms(&self) -> bool {
        self.unconfirmed.load(Ordering::Relaxed) && self.unconfirmed.swap(false, Ordering::Relaxed)
    }

    /// Seals answers with this session's key from now on.
    ///
    /// Call this before the confirming packet is passed on. A restarted peer has no older key to open the answer with,
    /// and control hears of the packet only later.
    pub(crate) fn switch_sending(&self) {
        #[cfg(feature = "postquantum")]
        if self.format.only_messages() {
            return;
        }
        let current = self.peer.send_key.load();
        // A later session may already be in use; if the order is unclear, control decides.
        let later = |current: &SendKey| {
            self.answer
                .as_ref()
                .is_none_or(|a| current.limits.expires >= a.limits.expires)
        };
        if current.as_deref().is_some_and(later) {
            return;
        }
        // The swap fails if control has changed the key meanwhile; removal undoes it.
        let switch = || {
            let answer = self.answer.clone();
            self.peer.send_key.compare_and_swap(&*current, answer);
        };
        self.removed.unless(switch, || self.stop_sending());
    }

    /// Stops sending with a removed session's key.
    fn stop_sending(&self) {
        if let Some(answer) = &self.answer {
            self.peer.send_key.compare_and_swap(answer, None);
        }
    }

    /// Whether the caller must tell control that the peer compresses, or lacks the agreed framing: true once.
    pub(crate) fn should_tell_compression(&self) -> bool {
        !self.compression_told.swap(true, Ordering::Relaxed)
    }

    /// Whether the caller must request a new key: true once.
    pub(crate) fn should_refresh(&self, now: Instant) -> bool {
        self.limits.refresh_at.is_some_and(|at| now >= at)
            && !self.refresh_asked.swap(true, Ordering::Relaxed)
    }
}

/// Count of shards, a power of two. Each change copies one shard, so many small ones are cheapest.
const SHARDS: usize = 256;

type Shard<W> = ArcSwap<HashMap<u32, Arc<ReceiveKey<W>>>>;

/// All receiving sessions, by our index.
pub(crate) struct Sessions<W: Wire> {
    shards: Box<[Shard<W>]>,
    /// The first of our session indices for the peer at an address, for packets that do not name their session.
    of_senders: ArcSwap<HashMap<SocketAddr, u32>>,
    /// Lock for changes: only control makes them, but from up to two threads.
    changing: Mutex<()>,
}

impl<W: Wire> Sessions<W> {
    pub(crate) fn new() -> Self {
        let empty = Arc::new(HashMap::new());
        let shards = (0..SHARDS)
            .map(|_| ArcSwap::new(Arc::clone(&empty)))
            .collect();
        Self {
            shards,
            of_senders: ArcSwap::default(),
            changing: Mutex::new(()),
        }
    }

    fn shard(&self, index: u32) -> &Shard<W> {
        &self.shards[index as usize % SHARDS]
    }

    pub(crate) fn find(&self, index: u32) -> Option<Arc<ReceiveKey<W>>> {
        self.shard(index).load().get(&index).cloned()
    }

    /// Our index of the session for packets from `addr` that carry the number `number`.
    pub(crate) fn of_sender(&self, addr: SocketAddr, number: u8) -> Option<u32> {
        Some(self.of_senders.load().get(&addr)? + u32::from(number))
    }

    /// Maps packets from `addr` to the sessions from `first` on; removes that mapping if `theirs` is false.
    pub(crate) fn set_sender(&self, addr: SocketAddr, first: u32, theirs: bool) {
        let _one = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut map = HashMap::clone(&self.of_senders.load());
        if theirs {
            map.insert(addr, first);
        } else if map.get(&addr) == Some(&first) {
            map.remove(&addr);
        }
        self.of_senders.store(Arc::new(map));
    }

    pub(crate) fn insert(&self, key: ReceiveKey<W>) {
        self.change(key.index, |map| map.insert(key.index, Arc::new(key)));
    }

    pub(crate) fn remove(&self, index: u32) {
        self.change(index, |map| map.remove(&index));
    }

    fn change(
        &self,
        index: u32,
        change: impl FnOnce(&mut HashMap<u32, Arc<ReceiveKey<W>>>) -> Option<Arc<ReceiveKey<W>>>,
    ) {
        let _one = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let shard = self.shard(index);
        let mut map = HashMap::clone(&shard.load());
        if let Some(old) = change(&mut map) {
            old.remove();
        }
        shard.store(Arc::new(map));
    }
}
