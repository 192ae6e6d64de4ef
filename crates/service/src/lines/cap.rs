//! What lines may carry in a month, what they have carried in this one, and what comes of it.
//!
//! A line that has carried what it may is used where no other works. What it has carried is kept on file, so that it is
//! known after a restart.

use super::{LineEffect, Lines};
use crate::now::Now;
use config::lines::{Line, Lines as Settings};
use lines::scheduler::{Allowance, Month};
use log::Level;
use plane::LineId;
use std::time::{Duration, Instant, SystemTime};

/// How often it is counted: a line may carry more than it may for so long.
const COUNT: Duration = Duration::from_secs(1);

/// How often what has changed is written, and how often where it is more than a hundredth of a cap. Routers keep files in
/// flash memory, which every write wears.
const KEEP: Duration = Duration::from_secs(600);
const KEEP_SOONER: Duration = Duration::from_secs(60);

/// A clock that shows an earlier year was not set: many routers begin with 1970, or with the year of their firmware.
const YEAR_MIN: i32 = 2024;

/// The hundredths of a cap whose reaching is told.
const TOLD: [u8; 2] = [80, 100];

/// What a line has carried, as it is kept over a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineUsage {
    /// The line's name.
    pub name: String,
    /// The month that was counted; `None` while the clock was not set.
    pub month: Option<Month>,
    /// Bytes of both directions.
    pub used: u64,
}

/// A line's cap, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapReport {
    /// Bytes that it may carry in a month.
    pub cap: u64,
    /// Bytes that it has carried in this one.
    pub used: u64,
    /// The day that the next one begins with, `YEAR-MONTH-DAY`; `None` while the clock is not set.
    pub renews: Option<String>,
}

/// A line that has a cap.
#[derive(Debug)]
struct Capped {
    name: String,
    first_day: u8,
    allowance: Allowance,
    /// What the data plane has counted that is charged.
    seen: u64,
    /// What is on file.
    kept: (Option<Month>, u64),
    /// The hundredths of the cap whose reaching was told last.
    told: u8,
}

impl Capped {
    fn new(line: &Line, cap: u64) -> Self {
        Self {
            name: line.name.clone(),
            first_day: line.cap_day,
            allowance: Allowance::new(cap),
            seen: 0,
            kept: (None, 0),
            told: 0,
        }
    }

    const fn state(&self) -> (Option<Month>, u64) {
        (self.allowance.month(), self.allowance.used())
    }

    /// When another month begins, if it is known which this one is.
    fn renews(&self) -> Option<String> {
        let next = self.allowance.month()?.next();
        Some(format!("{next}-{:02}", self.first_day))
    }

    /// Charges what was carried since the last time. Returns what is to be said of it.
    fn charge(&mut self, carried: u64, wall: SystemTime) -> Option<(Level, String)> {
        let before = self.allowance.month();
        if let Some(month) = month(wall, self.first_day) {
            self.allowance.begin(month);
        }
        let begins = before.is_some() && before < self.allowance.month();
        let used_up = self.told == TOLD[1];
        if begins {
            self.told = 0;
        }
        // What was carried about midnight counts for the new month.
        self.allowance.charge(carried.saturating_sub(self.seen));
        self.seen = carried;
        let (name, cap) = (&self.name, gigabytes(self.allowance.cap()));
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
            let words =
                format!("line {name} has carried {share}the {cap} that it may in a month{anew}");
            return Some((Level::Warn, words));
        }
        let words = || format!("line {name}: a month has begun, in which it may carry {cap} again");
        (begins && used_up).then(|| (Level::Info, words()))
    }
}

/// Whether what is counted is of a data plane that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plane {
    Runs,
    /// It was asked for the last time.
    Ends,
    Ended,
}

/// Of all lines.
#[derive(Debug)]
pub(super) struct Caps {
    /// By number.
    lines: Vec<Option<Capped>>,
    /// When it is counted next.
    due: Option<Instant>,
    /// When it was written last.
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

    /// Whether a line has carried what it may in this month.
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

    /// Whether what lines have carried is to be asked for now.
    pub(super) fn due(&mut self, now: Instant) -> bool {
        let due = self.lines.iter().any(Option::is_some) && self.due.is_none_or(|at| at <= now);
        if due {
            self.due = Some(now + COUNT);
        }
        due
    }

    /// There is a data plane.
    pub(super) const fn begin(&mut self) {
        self.plane = Plane::Runs;
    }

    /// The data plane is about to end: the next one begins to count with zero. Returns whether it is to be asked once more.
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

    /// What is to be written, if anything is: at once where it is the last time.
    fn keep(&mut self, now: Option<Instant>) -> Option<Vec<LineUsage>> {
        let changed = self.capped().any(|it| it.state() != it.kept);
        let much = self.capped().any(|it| {
            let (kept, used) = (it.kept.1, it.allowance.used());
            it.kept.0 != it.allowance.month() || kept.abs_diff(used) >= it.allowance.cap() / 100
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
            let (month, used) = it.kept;
            let name = it.name.clone();
            LineUsage { name, month, used }
        });
        Some(usage.collect())
    }
}

impl Lines {
    /// What lines had carried before the program was started.
    pub(crate) fn restore(&mut self, usage: &[LineUsage]) {
        for of in self.caps.capped() {
            if let Some(LineUsage { month, used, .. }) = usage.iter().find(|it| it.name == of.name)
            {
                of.allowance = of.allowance.with_used(*used, *month);
                of.kept = of.state();
            }
        }
    }

    /// What each line has carried since the data plane was made, in bytes: the answer to [`LineEffect::Count`]. Returns
    /// whether the lines are to be looked at, as another may be used now.
    pub(crate) fn counted(&mut self, carried: &[u64], now: Now, out: &mut Vec<LineEffect>) -> bool {
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
            let said = of.charge(carried, now.wall);
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

    /// The program ends: nothing is counted any more.
    pub(crate) fn keep(&mut self, out: &mut Vec<LineEffect>) {
        out.extend(self.caps.keep(None).map(LineEffect::Keep));
    }
}

/// The month of an account, as the router's time zone has it; `None` while its clock is not set.
fn month(wall: SystemTime, first_day: u8) -> Option<Month> {
    let date = netio::time::local(wall);
    let known = date.year >= YEAR_MIN;
    known.then(|| Month::of(date.year, date.month, date.day, first_day))
}

/// As providers sell them: decimal.
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
