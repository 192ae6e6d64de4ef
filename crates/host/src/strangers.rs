//! Log lines about strangers (senders that have not authenticated yet) and about clients that move. One limit covers
//! the servers of all protocols, so that no flood fills a disk. Each admitted client has a limit of its own.

use log::Level;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Number of log lines that may be caused.
struct Limit {
    /// Maximum number of lines at once. Further lines are only counted.
    at_once: u32,
    /// Lines in addition for each `period` that passes.
    more: u32,
    period: Duration,
    /// The causers of the lines, in words.
    whom: &'static str,
}

/// The limit of all strangers together.
const STRANGERS: Limit = Limit {
    at_once: 80,
    more: 10,
    period: Duration::from_secs(10),
    whom: "peers",
};

/// The limit of each admitted client. Two devices that share a certificate take turns for ever.
const CLIENT: Limit = Limit {
    at_once: 60,
    more: 1,
    period: Duration::from_secs(60),
    whom: "this client",
};

/// Maximum number of clients whose lines are counted.
const CLIENTS_MAX: usize = 4096;

/// Recent log lines caused by strangers, or by one client.
pub struct Strangers {
    limit: Limit,
    /// When the present period began.
    began: Option<Instant>,
    /// Lines written, minus the additional ones of each passed period.
    lines: u32,
    left_out: u64,
}

impl Strangers {
    /// Makes a count of no lines yet.
    #[expect(clippy::new_without_default, reason = "a static needs it")]
    pub const fn new() -> Self {
        Self::limited(STRANGERS)
    }

    const fn limited(limit: Limit) -> Self {
        Self {
            limit,
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
        if passed >= self.limit.period {
            let periods = passed.as_secs() / self.limit.period.as_secs();
            let periods = u32::try_from(periods).unwrap_or(u32::MAX);
            self.lines = self
                .lines
                .saturating_sub(periods.saturating_mul(self.limit.more));
            self.began = Some(now);
            left_out = std::mem::take(&mut self.left_out);
        }
        let written = self.lines < self.limit.at_once;
        self.lines += u32::from(written);
        self.left_out += u64::from(!written);
        let whom = self.limit.whom;
        let note =
            (left_out > 0).then(|| format!("{left_out} log lines about {whom} were dropped"));
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

/// Recent log lines about admitted clients, by their names.
type Clients = BTreeMap<Box<str>, Strangers>;

/// Decides whether to write one more line about an admitted client, as [`Strangers::judge`] does.
fn judge_client(all: &mut Clients, name: &str, now: Instant) -> (bool, Option<String>) {
    if all.len() >= CLIENTS_MAX && !all.contains_key(name) {
        all.clear();
    }
    let own = all.entry(name.into());
    let own = own.or_insert_with(|| Strangers::limited(CLIENT));
    own.judge(now)
}

/// Writes a line about an admitted client to the log, unless this client has recently caused too many. `label` is its
/// `name/address`.
pub fn log_client(target: &str, level: Level, label: &str, words: &str) {
    static ALL: Mutex<Clients> = Mutex::new(BTreeMap::new());
    if !log::log_enabled!(target: target, level) {
        return;
    }
    let name = label.rsplit_once('/').map_or(label, |it| it.0);
    let (written, note) = {
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        judge_client(&mut all, name, Instant::now())
    };
    if let Some(note) = note {
        log::info!("{name}: {note}");
    }
    if written {
        log::log!(target: target, level, "{label}: {words}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = STRANGERS.period;
    const AT_ONCE: u32 = STRANGERS.at_once;
    const MORE: u32 = STRANGERS.more;

    #[test]
    fn two_devices_that_take_turns_fill_no_log() {
        let (mut all, now) = (Clients::new(), Instant::now());
        let mut turns = |name: &str, now| {
            let written = (0..1000).filter(|_| judge_client(&mut all, name, now).0);
            written.count() as u32
        };
        assert_eq!(turns("phone", now), CLIENT.at_once);
        assert_eq!(turns("tablet", now), CLIENT.at_once);
        assert_eq!(turns("phone", now + CLIENT.period), CLIENT.more);
        for number in 0..2 * CLIENTS_MAX {
            judge_client(&mut all, &number.to_string(), now);
            assert!(all.len() <= CLIENTS_MAX);
        }
    }

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
