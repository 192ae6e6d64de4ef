//! The present moment, which control gets with each event.

use std::time::{Instant, SystemTime};

/// Both clocks, read together once for each event: deciding code gets the time and reads no clock.
///
/// The clocks differ: the wall clock may jump either way, which must move no deadline.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Now {
    /// The time for deadlines and durations.
    pub monotonic: Instant,
    /// The time that is compared with dates or shown to users: certificates, the status, logs.
    pub wall: SystemTime,
}

impl Now {
    /// Reads both clocks.
    pub fn read() -> Self {
        Self {
            monotonic: Instant::now(),
            wall: SystemTime::now(),
        }
    }
}
