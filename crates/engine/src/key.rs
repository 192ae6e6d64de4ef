//! Keys as the data plane holds them: one to send with per peer, one to receive with per session.

use crate::peer::Peer;
use crate::wire::Wire;
use arc_swap::ArcSwap;
use crypto::PacketCipher;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// How long a key may be used.
#[derive(Clone, Copy, Debug)]
pub struct KeyLimits {
    /// Not used from this moment on.
    pub expires: Instant,
    /// Packets numbered this or higher are neither sent nor accepted.
    pub messages_max: u64,
    /// Ask for a new key when used from this moment on; `None`: that is the peer's affair.
    pub refresh_at: Option<Instant>,
    /// Ask for a new key when this many packets have been sent.
    pub refresh_messages: u64,
}

/// The key to send with.
pub(crate) struct SendKey {
    /// The receiver's name for the session.
    pub(crate) index: u32,
    /// Our name for it.
    pub(crate) session: u32,
    pub(crate) cipher: Arc<dyn PacketCipher>,
    pub(crate) limits: KeyLimits,
    counter: AtomicU64,
    refresh_asked: AtomicBool,
}

impl std::fmt::Debug for SendKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendKey")
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}

impl SendKey {
    pub(crate) fn new(
        (index, session): (u32, u32),
        cipher: Arc<dyn PacketCipher>,
        limits: KeyLimits,
    ) -> Self {
        let (counter, refresh_asked) = (AtomicU64::new(0), AtomicBool::new(false));
        Self {
            index,
            cipher,
            limits,
            counter,
            refresh_asked,
        }
    }

    /// Packets numbered so far.
    pub(crate) fn used(&self) -> u64 {
        self.counter.load(Ordering::Relaxed)
    }

    /// Takes `n` packet numbers and returns the first. `None` when the key is used up.
    pub(crate) fn take(&self, n: u64) -> Option<u64> {
        let first = self.counter.fetch_add(n, Ordering::Relaxed);
        if first
            .checked_add(n)
            .is_some_and(|end| end <= self.limits.messages_max)
        {
            return Some(first);
        }
        // Keep the counter from ever wrapping round to numbers that were used.
        self.counter
            .store(self.limits.messages_max, Ordering::Relaxed);
        None
    }

    pub(crate) fn alive(&self, now: Instant) -> bool {
        now < self.limits.expires && self.used() < self.limits.messages_max
    }

    /// Whether the caller is the one to ask for a new key.
    pub(crate) fn should_refresh(&self, now: Instant) -> bool {
        let due = self.limits.refresh_at.is_some_and(|at| now >= at)
            || self.used() >= self.limits.refresh_messages;
        due && !self.refresh_asked.swap(true, Ordering::Relaxed)
    }
}

/// The key of one receiving session.
pub(crate) struct ReceiveKey<W: Wire> {
    pub(crate) index: u32,
    pub(crate) peer: Arc<Peer>,
    pub(crate) cipher: Arc<dyn PacketCipher>,
    pub(crate) limits: KeyLimits,
    /// Only touched where batches are committed in order, so never contended.
    pub(crate) window: Mutex<W::Window>,
    unconfirmed: AtomicBool,
    refresh_asked: AtomicBool,
    removed: AtomicBool,
}

impl<W: Wire> ReceiveKey<W> {
    pub(crate) fn new(
        index: u32,
        peer: Arc<Peer>,
        cipher: Arc<dyn PacketCipher>,
        limits: KeyLimits,
        unconfirmed: bool,
    ) -> Self {
        Self {
            index,
            peer,
            cipher,
            limits,
            window: Mutex::default(),
            unconfirmed: AtomicBool::new(unconfirmed),
            refresh_asked: AtomicBool::new(false),
            removed: AtomicBool::new(false),
        }
    }

    pub(crate) fn removed(&self) -> bool {
        self.removed.load(Ordering::Relaxed)
    }

    /// Whether this is the packet that confirms the session.
    pub(crate) fn confirms(&self) -> bool {
        self.unconfirmed.load(Ordering::Relaxed) && self.unconfirmed.swap(false, Ordering::Relaxed)
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
            changing: Mutex::new(()),
        }
    }

    fn shard(&self, index: u32) -> &Shard<W> {
        &self.shards[index as usize % SHARDS]
    }

    pub(crate) fn find(&self, index: u32) -> Option<Arc<ReceiveKey<W>>> {
        self.shard(index).load().get(&index).cloned()
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
            old.removed.store(true, Ordering::Relaxed);
        }
        shard.store(Arc::new(map));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn key(messages_max: u64, refresh_messages: u64) -> SendKey {
        let limits = KeyLimits {
            expires: Instant::now() + Duration::from_secs(180),
            messages_max,
            refresh_at: None,
            refresh_messages,
        };
        SendKey::new((1, 2), Arc::new(crypto::Null), limits)
    }

    #[test]
    fn numbers_run_out_and_never_wrap() {
        let key = key(10, u64::MAX);
        assert_eq!(key.take(4), Some(0));
        assert_eq!(key.take(6), Some(4));
        assert!(!key.alive(Instant::now()));
        for _ in 0..3 {
            assert_eq!(key.take(u64::MAX / 2), None);
        }
        assert_eq!(key.take(1), None);
    }

    #[test]
    fn a_refresh_is_asked_for_once() {
        let key = key(100, 3);
        let now = Instant::now();
        key.take(2);
        assert!(!key.should_refresh(now));
        key.take(1);
        assert!(key.should_refresh(now));
        assert!(!key.should_refresh(now));
    }
}
