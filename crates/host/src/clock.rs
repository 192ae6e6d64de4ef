//! Whether this host's clock can be believed. Many routers have no clock that runs while they are off.

use std::time::{Duration, SystemTime};

/// 2026-11-01, in seconds since 1970: a time before this source was written. Raise it now and then. A package built
/// with `SOURCE_DATE_EPOCH` (reproducible-builds.org) uses that date instead.
const WRITTEN: u64 = 1_793_491_200;

/// The build's time, if `SOURCE_DATE_EPOCH` was set.
const BUILT: Option<u64> = match option_env!("SOURCE_DATE_EPOCH") {
    Some(text) => number(text.as_bytes()),
    None => None,
};

/// A time at which this program did not exist yet. A clock that shows an earlier one is not set.
#[must_use]
pub fn built() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(WRITTEN.max(BUILT.unwrap_or(0)))
}

/// Whether a clock that shows this time may be right.
#[must_use]
pub fn is_set(clock: SystemTime) -> bool {
    clock >= built()
}

/// The value of decimal digits; `None` for other text, and for times after the year 3000.
const fn number(text: &[u8]) -> Option<u64> {
    let (mut value, mut at) = (0, 0);
    while at < text.len() {
        let digit = text[at].wrapping_sub(b'0');
        if digit > 9 || value > 3_250_368_000 {
            return None;
        }
        value = value * 10 + digit as u64;
        at += 1;
    }
    if at == 0 { None } else { Some(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_of_before_the_build_is_not_set() {
        assert!(!is_set(SystemTime::UNIX_EPOCH));
        assert!(!is_set(built() - Duration::from_secs(1)));
        assert!(is_set(built()));
        assert_eq!(number(b"1793491200"), Some(1_793_491_200));
        assert_eq!(
            [number(b""), number(b"1x"), number(b"99999999999999999999")],
            [None; 3]
        );
    }
}
