//! A line's allowance of a month.

use std::fmt;
use std::str::FromStr;

/// A billing month: it begins on a given day of a calendar month, and is named after that month.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Month(i32);

impl Month {
    /// The month that a date is in (`month` 1 to 12, `day` 1 to 31), if months begin with `first_day`, 1 to 28.
    #[must_use]
    pub const fn of(year: i32, month: u8, day: u8, first_day: u8) -> Self {
        let months = year * 12 + month as i32 - 1;
        Self(if day < first_day { months - 1 } else { months })
    }

    /// Month after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The form `2026-03`.
impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month) = (self.0.div_euclid(12), self.0.rem_euclid(12) + 1);
        write!(f, "{year:04}-{month:02}")
    }
}

/// The text is not a month of the years 1 to 9999 in the form of [`Month`]'s `Display`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMonth;

impl FromStr for Month {
    type Err = NoMonth;

    fn from_str(text: &str) -> Result<Self, NoMonth> {
        let number = |text: &str, digits| {
            let plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| text.parse::<i32>().ok())?
        };
        let (year, month) = text.split_once('-').ok_or(NoMonth)?;
        let year = number(year, 4).filter(|year| *year > 0).ok_or(NoMonth)?;
        let month = number(month, 2).filter(|month| (1..=12).contains(month));
        Ok(Self(year * 12 + month.ok_or(NoMonth)? - 1))
    }
}

/// Counts the bytes that a line has carried in a month, against its cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    cap: u64,
    used: u64,
    month: Option<Month>,
}

impl Allowance {
    /// Makes an allowance of this many bytes a month.
    #[must_use]
    pub const fn new(cap: u64) -> Self {
        Self {
            cap,
            used: 0,
            month: None,
        }
    }

    /// Adds the bytes of this month from before the program started; `None` if the clock was never set.
    #[must_use]
    pub const fn with_used(self, used: u64, month: Option<Month>) -> Self {
        Self {
            used,
            month,
            ..self
        }
    }

    /// Counts bytes that the line has carried, in either direction. They belong to the month set by [`Self::begin`].
    pub const fn charge(&mut self, bytes: u64) {
        self.used = self.used.saturating_add(bytes);
    }

    /// Sets the month by a clock that may be wrong. If it follows the counted month, counting begins at 0. Earlier and
    /// later months change nothing: many clocks begin with an old date until they are set, and some are set years
    /// ahead.
    pub fn begin(&mut self, month: Month) {
        if self.month.is_none_or(|before| before.next() == month) {
            self.set(month);
        }
    }

    /// Sets the month by a reliable clock. If it is later than the counted one, counting begins at 0. Bytes counted in
    /// a later month, by a wrong clock, may belong to this one and stay.
    pub fn set(&mut self, month: Month) {
        if self.month.is_some_and(|before| before < month) {
            self.used = 0;
        }
        self.month = Some(month);
    }

    /// The month that is counted; `None` until the time is known.
    #[must_use]
    pub const fn month(&self) -> Option<Month> {
        self.month
    }

    /// Bytes that may be carried in a month.
    #[must_use]
    pub const fn cap(&self) -> u64 {
        self.cap
    }

    /// Bytes carried in this month.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.used
    }

    /// Whether nothing is left.
    #[must_use]
    pub const fn used_up(&self) -> bool {
        self.used >= self.cap
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_begin_with_their_day() {
        let leap = Month::of(2024, 2, 29, 1);
        assert_eq!(leap.next(), Month::of(2024, 3, 1, 1));
        assert_eq!(leap, Month::of(2024, 2, 1, 1));
        assert_eq!(Month::of(2024, 3, 14, 15), Month::of(2024, 2, 29, 15));
        assert_eq!(Month::of(2024, 3, 15, 15), leap.next());
        assert_eq!(Month::of(2025, 1, 1, 2), Month::of(2024, 12, 31, 2));
        assert_eq!(Month::of(2025, 1, 1, 2).to_string(), "2024-12");
    }

    #[test]
    fn months_are_read_as_they_are_written() {
        for month in [Month::of(2026, 1, 1, 1), Month::of(9999, 12, 31, 28)] {
            assert_eq!(month.to_string().parse(), Ok(month));
        }
        for text in [
            "",
            "2026",
            "2026-00",
            "2026-13",
            "+026-01",
            "0000-01",
            "2026-1",
            "2026-01-01",
            "-2026-01",
            "99999-01",
        ] {
            assert_eq!(text.parse::<Month>(), Err(NoMonth), "{text}");
        }
    }

    #[test]
    fn a_cap_is_of_a_month() {
        let march = Month::of(2024, 3, 1, 1);
        let april = march.next();
        let mut allowance = Allowance::new(1000).with_used(300, Some(march));
        allowance.begin(march);
        allowance.charge(600);
        assert_eq!((allowance.used(), allowance.used_up()), (900, false));
        allowance.charge(200);
        assert!(allowance.used_up());
        allowance.begin(april);
        assert!(!allowance.used_up());
        allowance.charge(10);
        allowance.begin(march);
        assert_eq!(allowance.used(), 10, "clocks that go back change nothing");
        allowance.begin(april);
        assert_eq!(allowance.used(), 10);
    }

    #[test]
    fn what_is_carried_before_the_time_is_known_counts_for_the_month_that_was_counted() {
        let march = Month::of(2024, 3, 1, 1);
        let mut allowance = Allowance::new(1000);
        allowance.charge(10);
        allowance.begin(march);
        assert_eq!((allowance.used(), allowance.month()), (10, Some(march)));
    }

    #[test]
    fn a_clock_that_shows_a_month_later_than_the_next_changes_nothing() {
        let march = Month::of(2024, 3, 1, 1);
        let later = march.next().next();
        let mut allowance = Allowance::new(1000).with_used(500, Some(march));
        for wrong in [later, Month::of(2036, 2, 7, 1)] {
            allowance.begin(wrong);
            assert_eq!((allowance.used(), allowance.month()), (500, Some(march)));
        }
        allowance.set(later);
        assert_eq!((allowance.used(), allowance.month()), (0, Some(later)));
    }

    #[test]
    fn a_clock_that_was_years_ahead_does_not_keep_months_from_beginning() {
        let (march, wrong) = (Month::of(2024, 3, 1, 1), Month::of(2036, 2, 7, 1));
        let mut allowance = Allowance::new(1000);
        allowance.begin(wrong);
        allowance.charge(500);
        allowance.begin(march);
        assert_eq!(allowance.month(), Some(wrong), "it may not be set yet");
        allowance.set(march);
        assert_eq!(allowance.used(), 500, "it may be of this month");
        allowance.begin(march.next());
        assert_eq!(allowance.used(), 0);
    }
}
