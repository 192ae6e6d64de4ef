//! Receiving sessions: a key, its replay window, and the table that finds them by our names.

use crate::format::Format;
use crate::key::{KeyLimits, SendKey};
use crate::peer::Peer;
use crate::wire::Wire;
use arc_swap::ArcSwap;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The key of one receiving session.
pub(crate) struct ReceiveKey<W: Wire> {
    pub(crate) index: u32,
    pub(crate) peer: Arc<Peer>,
    pub(crate) format: Arc<dyn Format>,
    pub(crate) limits: KeyLimits,
    /// Only touched where batches are committed in order, so never contended.
    pub(crate) window: Mutex<W::Window>,
    /// What to send with once a packet has come: only where that has to be waited for.
    pub(crate) answer: Option<Arc<SendKey>>,
    unconfirmed: AtomicBool,
    refresh_asked: AtomicBool,
    compression_told: AtomicBool,
    removed: AtomicBool,
    opened: AtomicU64,
    forged: AtomicU64,
}

/// What a receiving key was used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveUsage {
    /// The greatest number of an authentic packet; 0 while there was none.
    pub opened: u64,
    /// Packets for this key that were not authentic.
    pub forged: u64,
}

impl<W: Wire> ReceiveKey<W> {
    pub(crate) fn new(
        index: u32,
        peer: Arc<Peer>,
        format: Arc<dyn Format>,
        limits: KeyLimits,
        answer: Option<Arc<SendKey>>,
    ) -> Self {
        Self {
            index,
            peer,
            format,
            limits,
            window: Mutex::default(),
            unconfirmed: AtomicBool::new(answer.is_some()),
            answer,
            refresh_asked: AtomicBool::new(false),
            compression_told: AtomicBool::new(false),
            removed: AtomicBool::new(false),
            opened: AtomicU64::new(0),
            forged: AtomicU64::new(0),
        }
    }

    /// Notes what became of a run of packets: the greatest number opened, and how many were forged.
    pub(crate) fn note_opened(&self, greatest: u64, forged: u64) {
        self.opened.fetch_max(greatest, Ordering::Relaxed);
        if forged > 0 {
            self.forged.fetch_add(forged, Ordering::Relaxed);
        }
    }

    pub(crate) fn usage(&self) -> ReceiveUsage {
        ReceiveUsage {
            opened: self.opened.load(Ordering::Relaxed),
            forged: self.forged.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn removed(&self) -> bool {
        self.removed.load(Ordering::Relaxed)
    }

    /// Whether this is the packet that confirms the session.
    pub(crate) fn confirms(&self) -> bool {
        self.unconfirmed.load(Ordering::Relaxed) && self.unconfirmed.swap(false, Ordering::Relaxed)
    }

    /// Answers are sealed with this session's key from now on.
    ///
    /// Before the packet that confirmed it is passed on: a peer that has started anew has no
    /// older key to open its answer with, and control hears of this only later.
    pub(crate) fn switch_sending(&self) {
        let current = self.peer.send_key.load();
        // A later session may be in use already; where that is not sure, control decides.
        let later = |current: &SendKey| {
            self.answer
                .as_ref()
                .is_none_or(|a| current.limits.expires >= a.limits.expires)
        };
        if self.removed() || current.as_deref().is_some_and(later) {
            return;
        }
        // Only if control has not changed the key since.
        self.peer
            .send_key
            .compare_and_swap(&*current, self.answer.clone());
        // Control may have removed the session meanwhile. It says so before it looks at the
        // peer's key, and here it is the other way round: one of the two takes the key away.
        fence(Ordering::SeqCst);
        if self.removed() {
            self.stop_sending();
        }
    }

    /// A session that is no more is not sent with either.
    fn stop_sending(&self) {
        if let Some(answer) = &self.answer {
            self.peer.send_key.compare_and_swap(answer, None);
        }
    }

    /// Whether the caller is the one to tell that the peer compresses.
    pub(crate) fn should_tell_compression(&self) -> bool {
        !self.compression_told.swap(true, Ordering::Relaxed)
    }

    /// Whether the caller is the one to ask for a new key.
    pub(crate) fn should_refresh(&self, now: Instant) -> bool {
        self.limits.refresh_at.is_some_and(|at| now >= at)
            && !self.refresh_asked.swap(true, Ordering::Relaxed)
    }
}

/// A power of two: a shard is copied for each change, so there are many small ones.
const SHARDS: usize = 256;

type Shard<W> = ArcSwap<HashMap<u32, Arc<ReceiveKey<W>>>>;

/// All receiving sessions by our name for them.
pub(crate) struct Sessions<W: Wire> {
    shards: Box<[Shard<W>]>,
    /// The first of our names for the sessions of whoever has an address, where packets do not
    /// name their session.
    of_senders: ArcSwap<HashMap<SocketAddr, u32>>,
    /// Changes come from control alone, but may come from two of its threads.
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

    /// Our name for a session that packets from `addr` call `number`.
    pub(crate) fn of_sender(&self, addr: SocketAddr, number: u8) -> Option<u32> {
        Some(self.of_senders.load().get(&addr)? + u32::from(number))
    }

    /// Says whose packets come from `addr`: those of the sessions from `first` on, or no longer
    /// theirs.
    pub(crate) fn set_sender(&self, addr: SocketAddr, first: u32, theirs: bool) {
        let _one = self
            .changing
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
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
        let _one = self
            .changing
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let shard = self.shard(index);
        let mut map = HashMap::clone(&shard.load());
        if let Some(old) = change(&mut map) {
            old.removed.store(true, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            old.stop_sending();
        }
        shard.store(Arc::new(map));
    }
}
