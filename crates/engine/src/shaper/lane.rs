//! A line with its own rate, and the packets that may take only this line.

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

    /// When the line can take another packet.
    pub(super) fn free_at(&self, now: Instant) -> Instant {
        self.pacer.idle_at().map_or(now, |at| at.max(now))
    }

    /// Since when the line has been idle. The next packet takes the line that was idle longest.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        self.pacer.idle_at()
    }
}
