//! The peers of an interface: what was configured, and their data-plane halves.

use config::types::{AllowedIp, Key32};
use engine::Peer;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use wireguard::PeerId;

/// One peer as configured, and where its packets are dealt with.
pub(super) struct PeerEntry {
    pub(super) id: PeerId,
    pub(super) public_key: Key32,
    pub(super) preshared_key: Option<Key32>,
    pub(super) persistent_keepalive: u16,
    pub(super) allowed_ips: BTreeSet<AllowedIp>,
    pub(super) engine: Arc<Peer>,
    /// For people, and for ages that survive a change of the clock.
    pub(super) last_handshake: Option<(SystemTime, Instant)>,
}

impl PeerEntry {
    pub(super) fn new(id: PeerId, public_key: Key32, engine: Arc<Peer>) -> Self {
        Self {
            id,
            public_key,
            preshared_key: None,
            persistent_keepalive: 0,
            allowed_ips: BTreeSet::new(),
            engine,
            last_handshake: None,
        }
    }

    /// The data plane's notes, in the protocol's words.
    pub(super) fn activity(&self) -> wireguard::Activity {
        let times = self.engine.times();
        wireguard::Activity {
            unanswered_since: times.unanswered_since,
            unacknowledged_since: times.unacked_since,
            last_data_sent: times.last_data_sent,
            last_traversal: times.last_sent.max(times.last_received),
        }
    }
}
