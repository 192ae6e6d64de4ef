//! What a line may carry in a month.

/// A month of an account: it begins with a day of the calendar's month.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Month(i64);

impl Month {
    /// The month of a time in seconds since 1970 (UTC), if months begin with `first_day`, 1 to 28.
    #[must_use]
    pub const fn of(unix: i64, first_day: u8) -> Self {
        let days = unix.div_euclid(86_400);
        // Years begin with March, so that the leap day is the last; eras are the 400 years after which the calendar
        // repeats itself. Day 0 is then 719,468 days before 1970.
        let days = days + 719_468;
        let era = days.div_euclid(146_097);
        let of_era = days.rem_euclid(146_097);
        let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        // Months of March to July, and of August to December, have 153 days together.
        let month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month + 2) / 5 + 1;
        let months = (era * 400 + year) * 12 + month;
        Self(if day < first_day as i64 {
            months - 1
        } else {
            months
        })
    }
}

/// Counts what a line has carried in a month, against its cap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    cap: Option<u64>,
    used: u64,
    month: Option<Month>,
}

impl Allowance {
    /// So many bytes in a month; `None` is no cap.
    #[must_use]
    pub const fn new(cap: Option<u64>) -> Self {
        Self {
            cap,
            used: 0,
            month: None,
        }
    }

    /// What was carried in this month before the program started.
    #[must_use]
    pub const fn with_used(self, used: u64, month: Month) -> Self {
        Self {
            used,
            month: Some(month),
            ..self
        }
    }

    /// The line has carried bytes, in either direction. Costs two additions, for each batch at most; the month is for
    /// [`Self::begin`].
    pub const fn charge(&mut self, bytes: u64) {
        self.used = self.used.saturating_add(bytes);
    }

    /// It is this month. If it is a later one than before, nothing has been carried in it.
    pub fn begin(&mut self, month: Month) {
        if self.month.is_some_and(|before| before < month) {
            self.used = 0;
        }
        self.month = self.month.max(Some(month));
    }

    /// Bytes carried in this month.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.used
    }

    /// Bytes that are left; `None` if there is no cap.
    #[must_use]
    pub const fn left(&self) -> Option<u64> {
        match self.cap {
            Some(cap) => Some(cap.saturating_sub(self.used)),
            None => None,
        }
    }

    /// Whether nothing is left.
    #[must_use]
    pub const fn used_up(&self) -> bool {
        matches!(self.left(), Some(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;

    #[test]
    fn months_follow_the_calendar() {
        // 2024-02-29 and 2024-03-01.
        let leap = 19_782 * DAY;
        assert_ne!(Month::of(leap, 1), Month::of(leap + DAY, 1));
        assert_eq!(Month::of(leap, 1), Month::of(leap - 28 * DAY, 1));
        assert_ne!(Month::of(leap, 1), Month::of(leap - 29 * DAY, 1));
        assert_eq!(Month::of(leap, 15), Month::of(leap + 14 * DAY, 15));
        assert_ne!(Month::of(leap, 15), Month::of(leap + 15 * DAY, 15));
        // A year has twelve, whatever its days.
        let begins = (0..365 * 400 + 97)
            .filter(|day| Month::of(day * DAY, 1) != Month::of((day - 1) * DAY, 1))
            .count();
        assert_eq!(begins, 4800);
        assert!(Month::of(-DAY, 1) < Month::of(0, 1));
    }

    #[test]
    fn a_cap_is_of_a_month() {
        let (march, april) = (Month::of(19_783 * DAY, 1), Month::of(19_814 * DAY, 1));
        let mut allowance = Allowance::new(Some(1000)).with_used(300, march);
        allowance.begin(march);
        allowance.charge(600);
        assert_eq!((allowance.used(), allowance.left()), (900, Some(100)));
        allowance.charge(200);
        assert!(allowance.used_up());
        allowance.begin(april);
        assert!(!allowance.used_up());
        allowance.begin(march);
        assert_eq!(allowance.used(), 0, "clocks that go back change nothing");
        assert!(!Allowance::new(None).used_up());
    }
}
