//! Counts the monthly allowances of lines: the bytes that a line may carry in a month and those that it has carried.
//!
//! A line that has used up its allowance serves only where no other line works. A file keeps its count over a
//! restart.

mod doubt;

pub use doubt::Doubt;

use super::{Lines, Outside};
use crate::scheduler::{Allowance, Month};
use config::lines::{Line, Lines as Settings};
use doubt::Doubted;
use log::Level;
use plane::LineId;
use plane::Now;
use std::time::{Duration, Instant, SystemTime};

/// How often the bytes are counted. A line may exceed its allowance for this long.
const COUNT: Duration = Duration::from_secs(1);

/// How often changed counts are written to the file, and how often once they differ by more than a hundredth of a
/// cap. Routers keep files in flash memory, which every write wears.
const KEEP: Duration = Duration::from_secs(600);
const KEEP_SOONER: Duration = Duration::from_secs(60);

/// First plausible year. A clock that shows an earlier one was not set: many routers begin with 1970, or with the
/// year of their firmware.
const YEAR_MIN: i32 = 2024;

/// Hundredths of a cap at which the log warns.
const TOLD: [u8; 2] = [80, 100];

/// The bytes that a line has carried, as the file keeps them over a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineUsage {
    /// The line's name.
    pub name: String,
    /// The month in which the bytes were counted; `None` while the clock was not set.
    pub month: Option<Month>,
    /// Bytes of both directions.
    pub used: u64,
    /// The month that the clock shows, while it is not trusted yet.
    pub doubt: Option<Doubt>,
}

/// A line's cap, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapReport {
    /// Bytes that the line may carry in a month.
    pub cap: u64,
    /// Bytes that the line has carried in this month.
    pub used: u64,
    /// The first day of the next month, `YEAR-MONTH-DAY`; `None` while the clock is not set.
    pub renews: Option<String>,
}

/// A line that has a cap.
#[derive(Debug)]
struct Capped {
    first_day: u8,
    allowance: Allowance,
    /// Bytes of the data plane's count that are charged already.
    seen: u64,
    doubted: Doubted,
    /// The state that the file holds.
    kept: LineUsage,
    /// The last of the [`TOLD`] hundredths that the log has reported.
    told: u8,
}

impl Capped {
    fn new(line: &Line, cap: u64) -> Self {
        Self {
            first_day: line.cap_day,
            allowance: Allowance::new(cap),
            seen: 0,
            doubted: Doubted::default(),
            kept: LineUsage {
                name: line.name.clone(),
                ..LineUsage::default()
            },
            told: 0,
        }
    }

    fn state(&self) -> LineUsage {
        LineUsage {
            name: self.kept.name.clone(),
            month: self.allowance.month(),
            used: self.allowance.used(),
            doubt: self.doubted.kept(),
        }
    }

    /// The first day of the next month, if the current month is known.
    fn renews(&self) -> Option<String> {
        let next = self.allowance.month()?.next();
        Some(format!("{next}-{:02}", self.first_day))
    }

    /// Charges the bytes carried since the last call. Returns a log line, if one is due.
    fn charge(&mut self, carried: u64, now: Now) -> Option<(Level, String)> {
        let before = self.allowance.month();
        if let Some(month) = month(now.wall, self.first_day) {
            self.allowance.begin(month);
            if self.allowance.month() != Some(month) && self.doubted.shown(month, now.monotonic) {
                self.allowance.set(month);
            }
            if self.allowance.month() == Some(month) {
                self.doubted = Doubted::default();
            }
        }
        let begins = before.is_some() && before < self.allowance.month();
        let used_up = self.told == TOLD[1];
        if begins {
            self.told = 0;
        }
        // Traffic about midnight counts for the new month.
        let fresh = carried.checked_sub(self.seen);
        // A smaller count comes from a new data plane; the last count of the old one is unknown.
        self.allowance.charge(fresh.unwrap_or(carried));
        self.seen = carried;
        let (name, cap) = (&self.kept.name, || gigabytes(self.allowance.cap()));
        let reached = TOLD.into_iter().rev().find(|hundredths| {
            let wanted = u128::from(self.allowance.cap()) * u128::from(*hundredths);
            u128::from(self.allowance.used()) * 100 >= wanted
        });
        if let Some(reached) = reached.filter(|reached| *reached > self.told) {
            self.told = reached;
            let share = match reached {
                100 => String::new(),
                _ => format!("{reached} % of "),
            };
            let anew = self.renews();
            let anew = anew.map_or_else(String::new, |day| format!(", which begins anew on {day}"));
            let words = format!(
                "uplink {name} has carried {share}the {} that it may in a month{anew}",
                cap()
            );
            return Some((Level::Warn, words));
        }
        let words = || {
            format!(
                "uplink {name}: a month has begun, in which it may carry {} again",
                cap()
            )
        };
        (begins && used_up).then(|| (Level::Info, words()))
    }
}

/// The caps of all lines.
#[derive(Debug)]
pub(super) struct Caps {
    /// Lines by number.
    lines: Vec<Option<Capped>>,
    /// When the bytes are counted next.
    due: Option<Instant>,
    /// When the file was written last.
    kept: Option<Instant>,
    /// The data plane whose bytes are counted has not ended.
    running: bool,
}

impl Caps {
    pub(super) fn new(settings: &Settings) -> Self {
        let lines = settings.lines.iter();
        Self {
            lines: lines
                .map(|line| line.cap.map(|cap| Capped::new(line, cap)))
                .collect(),
            due: None,
            kept: None,
            running: true,
        }
    }

    fn of(&self, line: LineId) -> Option<&Capped> {
        self.lines.get(line.index())?.as_ref()
    }

    /// Whether a line has used up its allowance for this month.
    pub(super) fn used_up(&self, line: LineId) -> bool {
        self.of(line).is_some_and(|it| it.allowance.used_up())
    }

    pub(super) fn report(&self, line: LineId) -> Option<CapReport> {
        let of = self.of(line)?;
        Some(CapReport {
            cap: of.allowance.cap(),
            used: of.allowance.used(),
            renews: of.renews(),
        })
    }

    /// Whether the data plane is to be asked now for the bytes that lines have carried.
    pub(super) fn due(&mut self, now: Instant) -> bool {
        let due = self.lines.iter().any(Option::is_some) && self.due.is_none_or(|at| at <= now);
        if due {
            self.due = Some(now + COUNT);
        }
        due
    }

    /// A new data plane has started.
    pub(super) const fn begin(&mut self) {
        self.running = true;
    }

    /// The data plane ends, and the next one counts from zero.
    pub(super) fn end(&mut self) {
        self.running = false;
        self.capped().for_each(|it| it.seen = 0);
    }

    fn capped(&mut self) -> impl Iterator<Item = &mut Capped> {
        self.lines.iter_mut().flatten()
    }

    /// Returns the usage to write, if any is due. Without a time `now` it is due at once.
    fn keep(&mut self, now: Option<Instant>) -> Option<Vec<LineUsage>> {
        let changed = self.capped().any(|it| it.state() != it.kept);
        let much = self.capped().any(|it| {
            let (kept, used) = (it.kept.used, it.allowance.used());
            it.kept.month != it.allowance.month() || kept.abs_diff(used) >= it.allowance.cap() / 100
        });
        if let Some(now) = now {
            let since = *self.kept.get_or_insert(now);
            let wait = if much { KEEP_SOONER } else { KEEP };
            if now < since + wait {
                return None;
            }
            self.kept = Some(now);
        }
        if !changed {
            return None;
        }
        let usage = self.capped().map(|it| {
            it.kept = it.state();
            it.kept.clone()
        });
        Some(usage.collect())
    }
}

impl Lines {
    /// Sets the bytes that lines had carried before the program started.
    pub fn restore(&mut self, usage: &[LineUsage]) {
        for of in self.caps.capped() {
            if let Some(found) = usage.iter().find(|it| it.name == of.kept.name) {
                of.allowance = of.allowance.with_used(found.used, found.month);
                of.doubted = Doubted::new(found.doubt);
                of.kept = of.state();
            }
        }
    }

    /// Charges the lines for the bytes that they have carried since the data plane was made.
    pub(super) fn count(&mut self, now: Instant, out: &mut dyn Outside) {
        let caps = &mut self.caps;
        if !caps.running || caps.lines.iter().all(Option::is_none) {
            return;
        }
        let Some(carried) = out.plane().map(|plane| plane.carried()) else {
            return;
        };
        let now = Now {
            monotonic: now,
            wall: out.wall(),
        };
        for (at, &carried) in carried.iter().enumerate().take(caps.lines.len()) {
            let Some(of) = &mut caps.lines[at] else {
                continue;
            };
            let before = of.allowance.used_up();
            if let Some((level, words)) = of.charge(carried, now) {
                out.log(None, level, &words);
            }
            let used_up = of.allowance.used_up();
            if before != used_up {
                let metered = self.settings.lines.get(at).is_some_and(|it| it.metered);
                for peer in self.peers.values_mut() {
                    let spared = metered || used_up;
                    peer.set_used_up(super::number(at), used_up, spared, now.monotonic);
                }
            }
        }
        if let Some(usage) = caps.keep(Some(now.monotonic)) {
            out.keep_usage(&usage);
        }
    }

    /// Counts and saves the usage for the last time, as the program ends.
    pub fn keep(&mut self, now: Instant, out: &mut dyn Outside) {
        self.count(now, out);
        if let Some(usage) = self.caps.keep(None) {
            out.keep_usage(&usage);
        }
    }
}

/// The month of an allowance, in the router's time zone; `None` while its clock is not set.
fn month(wall: SystemTime, first_day: u8) -> Option<Month> {
    let date = netio::time::local(wall);
    let known = date.year >= YEAR_MIN;
    known.then(|| Month::of(date.year, date.month, date.day, first_day))
}

/// Formats a size as providers sell it, in decimal units.
fn gigabytes(bytes: u64) -> String {
    let (unit, name) = match bytes {
        1_000_000_000.. => (1_000_000_000, "GB"),
        _ => (1_000_000, "MB"),
    };
    match (bytes / unit, bytes % unit * 10 / unit) {
        (whole, 0) => format!("{whole} {name}"),
        (whole, tenth) => format!("{whole}.{tenth} {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::fixture::Fake;
    use std::time::UNIX_EPOCH;

    const DAY: Duration = Duration::from_secs(86_400);

    /// A line that may carry 20 MB in months that begin on the 20th.
    fn fresh() -> Lines {
        let line = Line {
            name: "lte".to_owned(),
            cap: Some(20_000_000),
            cap_day: 20,
            ..Line::default()
        };
        Lines::new(Settings {
            lines: vec![line],
            ..Settings::default()
        })
    }

    /// The same line after it has carried 1 MB in January.
    fn lines(now: Now) -> Lines {
        let mut lines = fresh();
        count(&mut lines, 1_000_000, now);
        lines
    }

    fn used(lines: &Lines) -> (u64, Option<String>) {
        let report = lines.caps.report(LineId(0)).unwrap();
        (report.used, report.renews)
    }

    fn now() -> Now {
        Now {
            monotonic: Instant::now(),
            // About noon of 2027-01-15, in any time zone of that day or its neighbours.
            wall: UNIX_EPOCH + Duration::from_secs(1_800_014_400),
        }
    }

    #[test]
    fn a_clock_that_shows_an_earlier_month_is_believed_after_a_day() {
        let mut now = now();
        let mut lines = lines(now);
        let day = |day: &str| (1_000_000, Some(day.to_owned()));
        assert_eq!(used(&lines), day("2027-01-20"));
        now.wall -= DAY * 365;
        let mut hours = |hours: u32, lines: &mut Lines| {
            for _ in 0..hours {
                now.monotonic += DAY / 24;
                now.wall += DAY / 24;
                count(lines, 1_000_000, now);
            }
        };
        hours(23, &mut lines);
        assert_eq!(used(&lines), day("2027-01-20"));
        hours(3, &mut lines);
        assert_eq!(used(&lines), day("2026-01-20"));
        // The clock's month counts now.
        hours(24 * 5, &mut lines);
        assert_eq!(used(&lines), (0, Some("2026-02-20".to_owned())));
    }

    /// Counts bytes that the line has carried.
    fn count(lines: &mut Lines, carried: u64, now: Now) {
        let mut out = Fake::new();
        (out.carried[0], out.wall) = (carried, now.wall);
        lines.count(now.monotonic, &mut out);
    }

    /// Lets hours go by, and writes the file.
    fn run(lines: &mut Lines, now: &mut Now, hours: u32, file: &mut Vec<LineUsage>) {
        let mut out = Fake::new();
        for _ in 0..hours {
            now.monotonic += DAY / 24;
            now.wall += DAY / 24;
            out.wall = now.wall;
            lines.count(now.monotonic, &mut out);
        }
        lines.keep(now.monotonic, &mut out);
        if !out.usage.is_empty() {
            *file = out.usage;
        }
    }

    /// Lines after the program has started again.
    fn restarted(file: &[LineUsage]) -> Lines {
        let mut lines = fresh();
        lines.restore(file);
        lines
    }

    #[test]
    fn a_clock_that_is_years_ahead_is_believed_after_a_day() {
        let (mut now, mut file) = (now(), Vec::new());
        let mut lines = lines(now);
        let right = now.wall;
        let before = (1_000_000, Some("2027-01-20".to_owned()));
        now.wall += DAY * 3653;
        run(&mut lines, &mut now, 20, &mut file);
        assert_eq!(used(&lines), before);
        // The clock was wrong.
        now.wall = right;
        run(&mut lines, &mut now, 1, &mut file);
        assert_eq!(used(&lines), before);
        // The clock is right: the router was switched off for years.
        now.wall += DAY * 3653;
        run(&mut lines, &mut now, 24, &mut file);
        assert_eq!(used(&lines), before);
        run(&mut lines, &mut now, 1, &mut file);
        assert_eq!(used(&lines), (0, Some("2037-01-20".to_owned())));
    }

    #[test]
    fn a_month_years_ahead_is_taken_back_although_the_router_is_restarted_each_night() {
        let (mut now, mut file) = (now(), Vec::new());
        let right = now.wall;
        now.wall += DAY * 3653;
        // Without a file, there is no reason to doubt the clock.
        let mut lines = lines(now);
        let wrong = (1_000_000, Some("2037-01-20".to_owned()));
        assert_eq!(used(&lines), wrong);
        now.wall = right;
        run(&mut lines, &mut now, 20, &mut file);
        assert_eq!(used(&lines), wrong);
        let mut lines = restarted(&file);
        assert_eq!(used(&lines), wrong);
        run(&mut lines, &mut now, 20, &mut file);
        assert_eq!(used(&lines), (1_000_000, Some("2027-01-20".to_owned())));
        // The file holds no doubt any more.
        let mut lines = restarted(&file);
        run(&mut lines, &mut now, 24 * 5, &mut file);
        assert_eq!(used(&lines), (0, Some("2027-02-20".to_owned())));
    }

    #[test]
    fn a_new_data_plane_counts_from_zero() {
        let now = now();
        let mut lines = lines(now);
        let mut out = Fake::new();
        (out.carried[0], out.wall) = (1_500_000, now.wall);
        // The last count is charged once.
        lines.end(now.monotonic, &mut out);
        lines.end(now.monotonic, &mut out);
        lines.keep(now.monotonic, &mut out);
        assert_eq!(used(&lines).0, 1_500_000);
        lines.bind(now.monotonic, &mut out);
        count(&mut lines, 400_000, now);
        assert_eq!(used(&lines).0, 1_900_000);
        // Although nobody announced it.
        count(&mut lines, 100_000, now);
        assert_eq!(used(&lines).0, 2_000_000);
        // The last one ended before it could be asked.
        out.gone = true;
        lines.end(now.monotonic, &mut out);
        out.gone = false;
        lines.bind(now.monotonic, &mut out);
        count(&mut lines, 300_000, now);
        assert_eq!(used(&lines).0, 2_300_000);
    }
}
