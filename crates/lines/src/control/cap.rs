//! Counts the monthly allowances of lines: the bytes that a line may carry in a month and those that it has carried.
//!
//! A line that has used up its allowance serves only where no other line works. A file keeps its count over a
//! restart.

mod doubt;

pub use doubt::Doubt;

use super::{LineEffect, Lines};
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// The usage that the file holds, and the line's name.
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
                month: None,
                used: 0,
                doubt: None,
            },
            told: 0,
        }
    }

    fn usage(&self) -> LineUsage {
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
        // A smaller count comes from a new data plane; the last count of the old one was not received.
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

/// State of the data plane whose bytes are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plane {
    Runs,
    /// Control has asked for its last count.
    Ends,
    Ended,
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
    plane: Plane,
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
            plane: Plane::Runs,
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
    pub(super) fn begin(&mut self) {
        if self.plane == Plane::Ends {
            // The old data plane ended before it could report its last count.
            self.capped().for_each(|it| it.seen = 0);
        }
        self.plane = Plane::Runs;
    }

    /// The data plane is about to end, and the next one counts from zero. Returns whether to ask for its last count.
    pub(super) fn end(&mut self) -> bool {
        let asked = self.lines.iter().any(Option::is_some) && self.plane == Plane::Runs;
        if asked {
            self.plane = Plane::Ends;
        }
        asked
    }

    fn capped(&mut self) -> impl Iterator<Item = &mut Capped> {
        self.lines.iter_mut().flatten()
    }

    /// Returns the usage to write, if any is due. Without a time `now` it is due at once.
    fn keep(&mut self, now: Option<Instant>) -> Option<Vec<LineUsage>> {
        let changed = self.capped().any(|it| it.usage() != it.kept);
        let much = self.capped().any(|it| {
            let more = it.kept.used.abs_diff(it.allowance.used());
            it.kept.month != it.allowance.month() || more >= it.allowance.cap() / 100
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
            it.kept = it.usage();
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
                of.kept = of.usage();
            }
        }
    }

    /// Takes the bytes that each line has carried since the data plane was made: the answer to [`LineEffect::Count`].
    /// Returns whether to look at the lines, as another may have to be used now.
    pub fn counted(&mut self, carried: &[u64], now: Now, out: &mut Vec<LineEffect>) -> bool {
        let caps = &mut self.caps;
        if caps.plane == Plane::Ended {
            return false;
        }
        let mut changed = false;
        let ends = caps.plane == Plane::Ends;
        if ends {
            caps.plane = Plane::Ended;
        }
        for (at, &carried) in carried.iter().enumerate().take(caps.lines.len()) {
            let Some(of) = &mut caps.lines[at] else {
                continue;
            };
            let before = of.allowance.used_up();
            let said = of.charge(carried, now);
            out.extend(said.map(|(level, words)| LineEffect::Log(level, words)));
            let used_up = of.allowance.used_up();
            if before != used_up {
                let metered = self.settings.lines.get(at).is_some_and(|it| it.metered);
                for peer in self.peers.values_mut() {
                    let spared = metered || used_up;
                    peer.set_used_up(super::number(at), used_up, spared, now.monotonic);
                }
                changed = true;
            }
            if ends {
                of.seen = 0;
            }
        }
        out.extend(caps.keep(Some(now.monotonic)).map(LineEffect::Keep));
        changed
    }

    /// Writes the usage for the last time, as the program ends.
    pub fn keep(&mut self, out: &mut Vec<LineEffect>) {
        out.extend(self.caps.keep(None).map(LineEffect::Keep));
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
        lines.counted(&[1_000_000], now, &mut Vec::new());
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
        let mut hours = |count: u32, lines: &mut Lines| {
            for _ in 0..count {
                now.monotonic += DAY / 24;
                now.wall += DAY / 24;
                lines.counted(&[1_000_000], now, &mut Vec::new());
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

    /// Lets hours go by, and writes the file.
    fn run(lines: &mut Lines, now: &mut Now, hours: u32, file: &mut Vec<LineUsage>) {
        let mut out = Vec::new();
        for _ in 0..hours {
            now.monotonic += DAY / 24;
            now.wall += DAY / 24;
            lines.counted(&[0], *now, &mut out);
        }
        lines.keep(&mut out);
        for effect in out {
            if let LineEffect::Keep(usage) = effect {
                *file = usage;
            }
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
    fn a_data_plane_that_was_gone_too_soon_does_not_hide_what_the_next_one_counts() {
        let now = now();
        let mut lines = lines(now);
        let mut out = Vec::new();
        lines.end(&mut out);
        assert!(matches!(out[..], [LineEffect::Count]));
        lines.bind(now.monotonic, &mut out);
        lines.counted(&[1_500_000], now, &mut out);
        assert_eq!(used(&lines).0, 2_500_000);
        // The last count, asked for in time, is charged once.
        lines.end(&mut out);
        lines.counted(&[1_600_000], now, &mut out);
        lines.counted(&[1_600_000], now, &mut out);
        assert_eq!(used(&lines).0, 2_600_000);
        lines.bind(now.monotonic, &mut out);
        lines.counted(&[400_000], now, &mut out);
        // A new data plane counts from zero, although nobody announced it.
        lines.counted(&[100_000], now, &mut out);
        assert_eq!(used(&lines).0, 3_100_000);
    }
}
