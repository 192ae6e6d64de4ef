//! When resets are answered.

use std::time::Instant;

use super::listener::Listener;

impl Listener {
    /// Whether a reset would not be [`Refused::Limited`](super::Refused::Limited) now.
    #[must_use]
    pub fn answers_resets(&self, now: Instant) -> bool {
        self.limiter.is_open(now)
    }

    /// When resets are answered again at the latest, where they are not now.
    #[must_use]
    pub const fn answers_resets_at(&self) -> Option<Instant> {
        self.limiter.ends()
    }
}
