//! The deadlines of all peers, earliest first.

use std::collections::BTreeSet;
use std::time::Instant;

use plane::PeerId;

/// At most one deadline for each peer. The caller that moves one says where it was, so nothing is searched.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    queue: BTreeSet<(Instant, PeerId)>,
}

impl Deadlines {
    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.queue.first().map(|&(at, _)| at)
    }

    /// Moves the deadline of `peer`.
    pub(crate) fn set(&mut self, peer: PeerId, from: Option<Instant>, to: Option<Instant>) {
        if from == to {
            return;
        }
        if let Some(from) = from {
            self.queue.remove(&(from, peer));
        }
        if let Some(to) = to {
            self.queue.insert((to, peer));
        }
    }

    /// The peer whose deadline came first, if one is due at `now`. The deadline stays until it is moved.
    pub(crate) fn due(&self, now: Instant) -> Option<PeerId> {
        self.queue
            .first()
            .filter(|&&(at, _)| at <= now)
            .map(|&(_, peer)| peer)
    }
}
