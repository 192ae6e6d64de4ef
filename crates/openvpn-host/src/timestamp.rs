//! Times in OpenVPN's format for logs, status files and environments.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use netio::time::Civil;

/// Formats times in one time zone.
#[derive(Clone, Debug)]
pub struct Clock {
    civil: fn(SystemTime) -> Civil,
}

impl Clock {
    /// The system's time zone by `TZ` or `/etc/localtime`, else UTC.
    pub fn system() -> Self {
        // Reads the zone's files now: after `chroot` they may be missing.
        let _ = netio::time::local(UNIX_EPOCH);
        Self {
            civil: netio::time::local,
        }
    }

    /// A clock in UTC.
    pub const fn utc() -> Self {
        Self {
            civil: netio::time::utc,
        }
    }

    /// Formats like `2026-03-01 17:04:05`.
    pub(crate) fn ascii(&self, at: SystemTime) -> String {
        (self.civil)(at).to_string()
    }

    /// Like [`Self::ascii`], followed by ` us=` and the microseconds unless they are zero.
    pub(crate) fn ascii_microseconds(&self, at: SystemTime) -> String {
        let text = self.ascii(at);
        match since_epoch(at).subsec_micros() {
            0 => text,
            micros => format!("{text} us={micros}"),
        }
    }
}

/// Time since 1970-01-01; zero for earlier times.
pub(crate) fn since_epoch(at: SystemTime) -> Duration {
    at.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Whole seconds since 1970-01-01.
pub fn unix(at: SystemTime) -> u64 {
    since_epoch(at).as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_stock_does() {
        let clock = Clock::utc();
        let at = UNIX_EPOCH + Duration::new(1_772_384_645, 42_000);
        assert_eq!(clock.ascii(at), "2026-03-01 17:04:05");
        assert_eq!(clock.ascii_microseconds(at), "2026-03-01 17:04:05 us=42");
        let even = UNIX_EPOCH + Duration::from_secs(1);
        assert_eq!(clock.ascii_microseconds(even), "1970-01-01 00:00:01");
        assert_eq!(unix(UNIX_EPOCH - Duration::from_secs(5)), 0);
    }
}
