//! One peer.

use std::net::SocketAddr;
use std::time::Instant;

use crypto::Key;
use crypto::x25519::{PrivateKey, PublicKey};
use plane::tai64n::{Clock, Tai64n};

use crate::cookie::Jar;
use crate::disguise::Junk;
#[cfg(feature = "postquantum")]
use crate::hybrid::Hybrid;
use crate::keys::Keypairs;
use crate::message::CROSSING;
use crate::noise::Initiator;
use crate::timers::Timers;

/// An initiation of ours that waits for its response.
///
/// Our handshake is kept apart from the peer's, so that two initiations that cross lead to keys in one round trip.
/// (The kernel has one state for both: two that cross annul each other, and the next try comes five seconds later.)
pub(crate) struct Pending {
    pub(crate) local_index: u32,
    pub(crate) initiator: Initiator,
    pub(crate) sent: Instant,
    /// A probe: it asks only whether the peer answers, and present keys stay.
    pub(crate) asks: bool,
}

/// The secret of both static keys, which costs a multiplication.
#[derive(Clone, Debug, Default)]
pub(crate) enum StaticStatic {
    /// The secret is not needed yet: with ten thousand peers most are silent, and start-up does not wait for them.
    #[default]
    Unknown,
    Known(Key),
    /// The peer's key is of low order. It has no private key, and no handshake is possible.
    None,
}

pub(crate) struct Peer {
    pub(crate) public: PublicKey,
    pub(crate) preshared: Key,
    /// The exchange of post-quantum keys, if there is one with this peer.
    #[cfg(feature = "postquantum")]
    pub(crate) hybrid: Option<Box<Hybrid>>,
    pub(crate) static_static: StaticStatic,
    pub(crate) endpoint: Option<SocketAddr>,
    pub(crate) jar: Jar,
    pub(crate) junk: Junk,
    pub(crate) keys: Keypairs,
    pub(crate) pending: Option<Box<Pending>>,
    /// Timestamps that we have sent.
    pub(crate) clock: Clock,
    /// Highest timestamp that the peer has sent. Outlives its sessions, as replays do.
    pub(crate) latest_timestamp: Tai64n,
    /// When the peer's last initiation was accepted.
    pub(crate) last_initiation: Option<Instant>,
    /// The peer's last initiation crossed ours and was not answered.
    pub(crate) left_waiting: bool,
    /// Initiations in a row that ended where the message ends.
    #[cfg(feature = "amnezia")]
    pub(crate) exact: u8,
    pub(crate) timers: Timers,
    /// The deadline under which the device has queued this peer.
    pub(crate) queued: Option<Instant>,
}

impl Peer {
    pub(crate) fn new(public: PublicKey) -> Self {
        Self {
            public,
            preshared: Key::ZERO,
            #[cfg(feature = "postquantum")]
            hybrid: None,
            static_static: StaticStatic::Unknown,
            endpoint: None,
            jar: Jar::new(&public),
            junk: Junk::default(),
            keys: Keypairs::default(),
            pending: None,
            clock: Clock::default(),
            latest_timestamp: Tai64n::default(),
            last_initiation: None,
            left_waiting: false,
            #[cfg(feature = "amnezia")]
            exact: 0,
            timers: Timers::default(),
            queued: None,
        }
    }

    /// Whether an initiation from `from` has crossed ours and ours is the one that counts.
    ///
    /// If both were answered, each side would seal with the keys of its own and open the other's with `previous`, which
    /// the next handshake discards too early. So the side with the greater public key leaves the other's unanswered. A
    /// side that does not know this rule answers ours all the same, as it would without it.
    ///
    /// Our initiation may be lost, or in transit to an old address of the peer. So this never happens twice in a row,
    /// and only if the peer is at the address to which we sent ours.
    pub(crate) fn crossed(&self, own: &PublicKey, from: SocketAddr, now: Instant) -> bool {
        let recent = |pending: &Pending| {
            let age = now.saturating_duration_since(pending.sent);
            // A probe leads to no keys.
            !pending.asks && age < CROSSING
        };
        self.pending.as_deref().is_some_and(recent)
            && *own > self.public
            && self.endpoint == Some(from)
            && !self.left_waiting
    }

    /// The secret shared by both static keys, computed at the first need.
    pub(crate) fn static_static(&mut self, own: &PrivateKey) -> Option<Key> {
        if matches!(self.static_static, StaticStatic::Unknown) {
            self.static_static = own
                .agree(&self.public)
                .map_or(StaticStatic::None, StaticStatic::Known);
        }
        match &self.static_static {
            StaticStatic::Known(secret) => Some(secret.clone()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_peer_is_small() {
        // A small router may have ten thousand peers. The budget for each is 1 KiB, with its places in the tables.
        assert!(size_of::<Peer>() <= 800, "{} bytes", size_of::<Peer>());
    }
}
