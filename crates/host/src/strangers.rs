//! Log lines about strangers (senders that have not authenticated yet) and about clients that move. One limit covers
//! the servers of all protocols, so that no flood fills a disk.

use log::Level;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of lines that all strangers together may cause at once. Further lines are only counted.
const AT_ONCE: u32 = 80;

/// Lines that they may cause in addition for each [`PERIOD`] that passes.
const MORE: u32 = 10;

/// See [`MORE`].
const PERIOD: Duration = Duration::from_secs(10);

/// Recent log lines caused by strangers.
pub struct Strangers {
    /// When the present period began.
    began: Option<Instant>,
    /// Lines written, minus the [`MORE`] of each passed period.
    lines: u32,
    left_out: u64,
}

impl Strangers {
    /// Makes a count of no lines yet.
    #[expect(clippy::new_without_default, reason = "a static needs it")]
    pub const fn new() -> Self {
        Self {
            began: None,
            lines: 0,
            left_out: 0,
        }
    }

    /// Decides whether to write one more line. Also returns a line about suppressed ones, to be written first.
    pub fn judge(&mut self, now: Instant) -> (bool, Option<String>) {
        let began = *self.began.get_or_insert(now);
        let passed = now.saturating_duration_since(began);
        let mut left_out = 0;
        if passed >= PERIOD {
            let periods = passed.as_secs() / PERIOD.as_secs();
            let periods = u32::try_from(periods).unwrap_or(u32::MAX);
            self.lines = self.lines.saturating_sub(periods.saturating_mul(MORE));
            self.began = Some(now);
            left_out = std::mem::take(&mut self.left_out);
        }
        let written = self.lines < AT_ONCE;
        self.lines += u32::from(written);
        self.left_out += u64::from(!written);
        let note = (left_out > 0).then(|| format!("{left_out} log lines about peers were dropped"));
        (written, note)
    }
}

/// Writes a line about a stranger to the log, unless strangers have recently caused too many.
pub fn log(level: Level, words: fmt::Arguments<'_>) {
    static ALL: Mutex<Strangers> = Mutex::new(Strangers::new());
    if !log::log_enabled!(level) {
        return;
    }
    let (written, note) = {
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.judge(Instant::now())
    };
    if let Some(note) = note {
        log::info!("{note}");
    }
    if written {
        log::log!(level, "{words}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_fill_no_log() {
        let (mut strangers, now) = (Strangers::new(), Instant::now());
        let written = (0..10_000).filter(|_| strangers.judge(now).0).count();
        assert_eq!(written, AT_ONCE as usize);
        let next = now + PERIOD;
        let (written, note) = strangers.judge(next);
        assert!(written && note.unwrap().starts_with("9920 log lines"));
        // A flood causes few lines while it lasts.
        let written = (0..10_000).filter(|_| strangers.judge(next).0).count();
        assert_eq!(written, MORE as usize - 1);
        // Some time after the flood the full number is available again.
        let later = next + PERIOD * (AT_ONCE / MORE);
        let written = (0..10_000).filter(|_| strangers.judge(later).0).count();
        assert_eq!(written, AT_ONCE as usize);
    }

    #[test]
    fn a_flood_of_ten_seconds_writes_less_than_ten_lines_a_second() {
        let (mut strangers, now) = (Strangers::new(), Instant::now());
        let lines = (0..100_000).map(|at| {
            let (written, note) = strangers.judge(now + PERIOD * at / 100_000);
            usize::from(written) + usize::from(note.is_some())
        });
        assert!(lines.sum::<usize>() < 100);
    }
}
