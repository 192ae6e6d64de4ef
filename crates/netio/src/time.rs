//! Dates and times as people write them, from the C library, which knows the machine's time zone.
//!
//! A Rust library for this takes 140 KB of an ARMv7 program.

use std::time::{SystemTime, UNIX_EPOCH};

/// 32 bits in present musl bindings, later 64: both work here.
#[allow(deprecated)]
type Seconds = libc::time_t;

/// A date and the time of that day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Civil {
    /// Year of the Gregorian calendar.
    pub year: i32,
    /// The month, 1 to 12.
    pub month: u8,
    /// Day of the month, 1 to 31.
    pub day: u8,
    /// The hour, 0 to 23.
    pub hour: u8,
    /// The minute, 0 to 59.
    pub minute: u8,
    /// The second, 0 to 60.
    pub second: u8,
}

/// Writes the form `2026-03-01 17:04:05`.
impl std::fmt::Display for Civil {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            year,
            month,
            day,
            hour,
            minute,
            second,
        } = self;
        write!(
            f,
            "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}"
        )
    }
}

impl Civil {
    /// Returns the system log's form, without the year: `Mar  1 17:04:05`.
    #[must_use]
    pub fn syslog(&self) -> String {
        const MONTHS: [&str; 12] = [
            "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
        ];
        let Self {
            day,
            hour,
            minute,
            second,
            ..
        } = self;
        let month = usize::from(self.month).saturating_sub(1);
        let month = MONTHS.get(month).unwrap_or(&MONTHS[0]);
        format!("{month} {day:2} {hour:02}:{minute:02}:{second:02}")
    }
}

/// The time in this system's time zone, from `TZ` or `/etc/localtime`, which the first call reads; UTC without either.
#[must_use]
pub fn local(at: SystemTime) -> Civil {
    // SAFETY: both are valid for the call, which keeps neither.
    civil(at, |seconds, into| unsafe {
        libc::localtime_r(seconds, into)
    })
}

/// The time in UTC.
#[must_use]
pub fn utc(at: SystemTime) -> Civil {
    // SAFETY: as above.
    civil(at, |seconds, into| unsafe { libc::gmtime_r(seconds, into) })
}

/// Times before 1970, and those that the C library cannot convert, count as the first second of 1970.
fn civil(at: SystemTime, convert: impl FnOnce(&Seconds, &mut libc::tm) -> *mut libc::tm) -> Civil {
    let seconds = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let seconds = Seconds::try_from(seconds).unwrap_or(0);
    // SAFETY: all-zero bytes are a valid `tm`: integers, and a pointer that may be null.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    if convert(&seconds, &mut parts).is_null() {
        parts.tm_year = 70;
        parts.tm_mday = 1;
    }
    let small = |number: i32| u8::try_from(number).unwrap_or(0);
    Civil {
        year: parts.tm_year + 1900,
        month: small(parts.tm_mon + 1),
        day: small(parts.tm_mday),
        hour: small(parts.tm_hour),
        minute: small(parts.tm_min),
        second: small(parts.tm_sec),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let text = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds)).to_string();
        assert_eq!(text(0), "1970-01-01 00:00:00");
        assert_eq!(text(1_772_384_645), "2026-03-01 17:04:05");
        assert_eq!(text(951_827_696), "2000-02-29 12:34:56");
        let day = utc(UNIX_EPOCH + Duration::from_secs(1_772_384_645));
        assert_eq!(day.syslog(), "Mar  1 17:04:05");
        let before = UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(utc(before).to_string(), "1970-01-01 00:00:00");
    }

    #[test]
    fn no_zone_is_a_day_away() {
        let at = SystemTime::now();
        let (here, there) = (local(at), utc(at));
        assert_eq!(
            (here.minute % 15, here.second),
            (there.minute % 15, there.second)
        );
        assert!((here.year - there.year).abs() <= 1);
    }
}
