//! Receiving sessions: a key and its replay window.

use crate::key::SendKey;
use crate::peer::Peer;
use crate::removed::Removed;
use crate::reorder::Order;
use plane::AtomicU64;
use plane::Format;
use plane::KeyLimits;
use plane::Wire;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The key of one receiving session.
pub(crate) struct ReceiveKey<W: Wire> {
    pub(crate) index: u32,
    pub(crate) peer: Arc<Peer>,
    pub(crate) format: Arc<dyn Format>,
    pub(crate) limits: KeyLimits,
    /// Only touched where batches are committed in order, so never contended.
    pub(crate) received: Mutex<Received<W>>,
    /// The key of the other direction, where control gave it beside this one: to send with once control says so, or
    /// once a packet has come.
    pub(crate) answer: Option<Arc<SendKey>>,
    unconfirmed: AtomicBool,
    refresh_asked: AtomicBool,
    compression_told: AtomicBool,
    removed: Removed,
    opened: AtomicU64,
    forged: AtomicU64,
}

/// Decides whether a packet is written, and when.
pub(crate) struct Received<W: Wire> {
    pub(crate) replay: W::Window,
    /// `None`: packets are written as they come.
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

/// The use of a receiving key.
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
        self.removed.get()
    }

    /// Says that the session is no more: it was taken out of the table.
    pub(crate) fn remove(&self) {
        self.removed.set(|| self.stop_sending());
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
        if current.as_deref().is_some_and(later) {
            return;
        }
        // Only if control has not changed the key since, nor removed the session.
        let switch = || {
            let answer = self.answer.clone();
            self.peer.send_key.compare_and_swap(&*current, answer);
        };
        self.removed.unless(switch, || self.stop_sending());
    }

    /// A session that is no more is not sent with either.
    fn stop_sending(&self) {
        if let Some(answer) = &self.answer {
            self.peer.send_key.compare_and_swap(answer, None);
        }
    }

    /// Whether the caller has to tell that the peer compresses: true once.
    pub(crate) fn should_tell_compression(&self) -> bool {
        !self.compression_told.swap(true, Ordering::Relaxed)
    }

    /// Whether the caller has to ask for a new key: true once.
    pub(crate) fn should_refresh(&self, now: Instant) -> bool {
        self.limits.refresh_at.is_some_and(|at| now >= at)
            && !self.refresh_asked.swap(true, Ordering::Relaxed)
    }
}
