//! Whether the clock of this host can be believed. Routers have none that runs while they are off.

use std::time::{Duration, SystemTime};

/// 2026-11-01, in seconds since 1970: this source was written later. To be raised now and then; a package that is built by
/// `SOURCE_DATE_EPOCH` (reproducible-builds.org) has that date.
const WRITTEN: u64 = 1_793_491_200;

/// The build's time, if the build was told one.
const BUILT: Option<u64> = match option_env!("SOURCE_DATE_EPOCH") {
    Some(text) => number(text.as_bytes()),
    None => None,
};

/// The moment that this program was certainly not made before. Every clock that shows an earlier one is not set.
#[must_use]
pub fn built() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(WRITTEN.max(BUILT.unwrap_or(0)))
}

/// Whether a clock that shows this may be right.
#[must_use]
pub fn is_set(clock: SystemTime) -> bool {
    clock >= built()
}

/// Decimal digits; `None` for anything else, and for what is beyond the year 3000.
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
