//! A line with a rate of its own, and the packets that can go by it only.

use super::Held;
use lines::queue::{Pacer, Queue, Settings};
use plane::LineId;
use std::time::Instant;

pub(super) struct Lane {
    pub(super) line: LineId,
    pub(super) pacer: Pacer,
    pub(super) queue: Queue<Held>,
}

impl Lane {
    /// `settings` are those of a queue without a rate.
    pub(super) fn new(line: LineId, rate: u64, settings: Settings) -> Self {
        let settings = Settings {
            carries: Some(rate),
            ..settings
        };
        Self {
            line,
            pacer: Pacer::new(Some(rate), settings.burst),
            queue: Queue::new(settings),
        }
    }

    /// When it can take another packet.
    pub(super) fn free_at(&self, now: Instant) -> Instant {
        self.pacer.idle_at().map_or(now, |at| at.max(now))
    }

    /// By which of several the next packet goes: the one that has been idle for the longest time.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        self.pacer.idle_at()
    }
}
