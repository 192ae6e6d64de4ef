//! Bytes of the control channel.

use plane::AtomicU64;
use std::sync::atomic::Ordering;

/// How many bytes a session's control packets had, as they are on the wire, without what UDP or TCP puts in front. It
/// outlives the session, for the report of what went through it.
#[derive(Debug, Default)]
pub struct ControlTraffic {
    received: AtomicU64,
    sent: AtomicU64,
}

impl ControlTraffic {
    /// Bytes of packets that the session took from the peer.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Bytes of packets that were put out for the peer.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn add_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn add_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
