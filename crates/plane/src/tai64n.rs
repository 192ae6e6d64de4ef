//! Timestamps of initiations, and of the hellos to a relay: TAI64N, coarse, and never going back.
//!
//! A responder takes an initiation only if its timestamp is greater than the last one's, so a clock that is set back
//! would shut us out until it has caught up. A timestamp is therefore the greater of the clock and the last one plus
//! one step. The step is coarse so that the timestamp tells little about the clock's exact state and the load of this
//! machine.

use std::time::{Duration, SystemTime};

/// Seconds that TAI was ahead of UTC at the epoch, plus the 2^62 that the format adds.
const EPOCH: u64 = (1 << 62) + 10;
/// One step, about 17 ms: the power of two below the least time between two initiations.
const STEP: u64 = 1 << 24;

/// A timestamp as it is sent: seconds and nanoseconds, big-endian, so that later ones compare greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tai64n(pub [u8; 12]);

impl Tai64n {
    fn from_nanos(nanos: u64) -> Self {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&(EPOCH + nanos / 1_000_000_000).to_be_bytes());
        // The remainder of a division by 10^9 fits into 32 bits.
        bytes[8..].copy_from_slice(&((nanos % 1_000_000_000) as u32).to_be_bytes());
        Self(bytes)
    }
}

/// The timestamps sent to one receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Clock {
    /// Nanoseconds since 1970 of the last timestamp. They fit for some 500 years.
    last: u64,
}

impl Clock {
    /// A clock whose timestamps are all greater than those of `floor`, which an earlier run of this end may have sent.
    #[must_use]
    pub fn after(floor: SystemTime) -> Self {
        // Leaves room for later timestamps.
        let last = nanos(floor).min(u64::MAX / 2);
        Self { last }
    }

    /// The time of the last timestamp; 1970 where there was none.
    #[must_use]
    pub fn last(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(self.last)
    }

    /// A timestamp for `wall` that is greater than every one before.
    pub fn stamp(&mut self, wall: SystemTime) -> Tai64n {
        let wall = nanos(wall);
        let coarse = wall - wall % STEP;
        self.last = coarse.max(self.last.saturating_add(STEP));
        Tai64n::from_nanos(self.last)
    }
}

/// Nanoseconds since 1970; earlier times count as 1970.
fn nanos(time: SystemTime) -> u64 {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_format() {
        assert_eq!(
            Tai64n::from_nanos(1_000_000_002).0,
            [0x40, 0, 0, 0, 0, 0, 0, 11, 0, 0, 0, 2]
        );
    }

    #[test]
    fn stamps_grow_whatever_the_clock_does() {
        let at = |secs| SystemTime::UNIX_EPOCH + Duration::from_secs(secs);
        let mut clock = Clock::default();
        let stamps = [
            at(1000),
            at(1000),
            at(5000),
            at(10),
            at(0),
            at(5001),
            at(5001),
        ]
        .map(|wall| clock.stamp(wall));
        assert!(stamps.is_sorted_by(|a, b| a < b), "{stamps:?}");
        // After the clock is set back, timestamps stay just beyond the last one, and follow the clock again once it has
        // caught up.
        assert!(stamps[4] < Tai64n::from_nanos(5_000_100_000_000));
        assert!(stamps[5] > Tai64n::from_nanos(5_000_900_000_000));
    }

    #[test]
    fn stamps_after_a_floor_are_greater_than_it() {
        let at = |secs| SystemTime::UNIX_EPOCH + Duration::from_secs(secs);
        let mut before = Clock::default();
        let sent = before.stamp(at(9000));
        let mut clock = Clock::after(before.last());
        assert!(clock.stamp(at(10)) > sent);
        assert!(clock.last() > before.last());
        // There is room above any time in a damaged file.
        let mut clock = Clock::after(at(u64::MAX / 1_000_000_000));
        assert!(clock.stamp(at(1)) < clock.stamp(at(1)));
    }

    #[test]
    fn stamps_are_coarse() {
        let mut clock = Clock::default();
        let nanos = 1_700_000_000_123_456_789;
        let stamp = clock.stamp(SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos));
        assert_eq!(stamp, Tai64n::from_nanos(nanos & !(STEP - 1)));
    }
}
