//! The present moment, as control is told of it.

use std::time::{Instant, SystemTime};

/// Both clocks, read together once for each event: what decides is given the time and reads no clock.
///
/// The two do not go together: the wall clock may jump either way, which must move no deadline.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Now {
    /// For deadlines and durations.
    pub monotonic: Instant,
    /// For what is compared with dates and shown to people: certificates, the status, logs.
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
