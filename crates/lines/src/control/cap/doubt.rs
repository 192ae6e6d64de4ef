//! Handles a clock with an implausible month: earlier than the one that is counted, or later than the next.
//!
//! Many routers begin with an old date, and a time server or a broken battery may give a date years ahead. Such a
//! month is trusted once the clock has shown it for a day. The hours are kept in the file, as a router that is
//! restarted each night would never reach a day.

use crate::scheduler::Month;
use std::time::{Duration, Instant};

/// Hours for which a clock must show a month before it is trusted.
const BELIEVED: u8 = 24;

const HOUR: Duration = Duration::from_secs(3600);

/// A month that is not trusted yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// The month on the clock.
    pub month: Month,
    /// Hours for which the clock has shown the month, 24 at most.
    pub hours: u8,
}

/// Counts the hours for which the clock has shown a doubted month, 24 at most.
#[derive(Debug, Default)]
pub(super) struct Doubted {
    doubt: Option<Doubt>,
    /// When the current, uncounted hour began.
    since: Option<Instant>,
}

impl Doubted {
    /// Takes the doubt from the file.
    pub(super) const fn new(doubt: Option<Doubt>) -> Self {
        Self { doubt, since: None }
    }

    /// The doubt for the file; `None` before the first hour is over.
    pub(super) fn kept(&self) -> Option<Doubt> {
        self.doubt.filter(|it| it.hours > 0)
    }

    /// Records that the clock shows this implausible month. Returns whether it has shown this month or the one before
    /// for long enough.
    pub(super) fn shown(&mut self, month: Month, now: Instant) -> bool {
        let known = self.doubt;
        let known = known.filter(|it| it.month == month || it.month.next() == month);
        if known.is_none() {
            self.since = None;
        }
        let mut hours = known.map_or(0, |it| it.hours);
        let mut since = *self.since.get_or_insert(now);
        while hours < BELIEVED && since + HOUR <= now {
            since += HOUR;
            hours += 1;
        }
        self.since = Some(since);
        self.doubt = Some(Doubt { month, hours });
        hours >= BELIEVED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_is_believed_after_a_day_of_the_same_and_restarts_do_not_begin_it_anew() {
        let month: Month = "2036-02".parse().unwrap();
        let begin = Instant::now();
        let mut doubted = Doubted::default();
        assert!(!doubted.shown(month, begin));
        assert_eq!(doubted.kept(), None);
        assert!(!doubted.shown(month, begin + HOUR * 20));
        let kept = doubted.kept();
        assert_eq!(kept, Some(Doubt { month, hours: 20 }));
        // A month may end during that day.
        let mut after = Doubted::new(kept);
        assert!(!after.shown(month.next(), begin));
        assert!(!after.shown(month.next(), begin + HOUR * 4 - Duration::from_secs(1)));
        assert!(after.shown(month.next(), begin + HOUR * 4));
        // A clock that keeps changing its month is not trusted.
        let mut erratic = Doubted::new(kept);
        assert!(!erratic.shown("2026-02".parse().unwrap(), begin));
        assert!(!erratic.shown(month, begin + HOUR * 10));
        assert!(!erratic.shown(month, begin + HOUR * 33));
        assert!(erratic.shown(month, begin + HOUR * 34));
    }
}
