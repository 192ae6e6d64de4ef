//! Lines by which calls have failed although the server answered there.
//!
//! TCP shows whether the server is reached, not whether GRE is: a firewall or NAT on the way may let the one through only.
//! That is found out by a call, which takes half a minute. So a line by which one has failed counts as down for a while,
//! and for longer each time.

use super::lines::{Knows, SERVER, ServerLines};
use ::config::lines::LineMode;
use ::pptp::session::{DownReason, LoginError};
use lines::health::Fault;
use plane::{LINES_MAX, LineId};
use std::time::{Duration, Instant};

/// How long a line is left out after a call by it has failed. It doubles with each that fails, up to the second.
const REST: [Duration; 2] = [Duration::from_secs(3 * 60), Duration::from_secs(60 * 60)];

/// The calls by one line that failed.
#[derive(Clone, Copy, Debug)]
struct Failed {
    last: Instant,
    /// How long the line rests for that.
    rest: Duration,
    /// Until then, unless there is no other.
    until: Instant,
}

/// The calls that failed, by lines.
#[derive(Debug, Default)]
pub(super) struct Failures([Option<Failed>; LINES_MAX]);

impl Failures {
    fn failed(&mut self, line: LineId, now: Instant) {
        if let Some(of) = self.0.get_mut(line.index()) {
            let rest = of.map_or(REST[0], |of| (of.rest * 2).min(REST[1]));
            *of = Some(Failed {
                last: now,
                rest,
                until: now + rest,
            });
        }
    }

    /// Packets of a call have gone by the line.
    pub(super) fn worked(&mut self, line: LineId) {
        if let Some(of) = self.0.get_mut(line.index()) {
            *of = None;
        }
    }

    fn rests(&self, line: LineId, now: Instant) -> bool {
        let of = self.0.get(line.index()).copied().flatten();
        of.is_some_and(|of| now < of.until)
    }

    /// The line that has rested for the longest time rests no longer.
    fn wake_one(&mut self, now: Instant) {
        let resting = self.0.iter_mut().flatten().filter(|of| now < of.until);
        if let Some(of) = resting.min_by_key(|of| of.last) {
            of.until = now;
        }
    }
}

impl ServerLines {
    /// A call by the line that the server was called by is over; `settled` says that it was up for long, `None` that it
    /// never was. `reason` does not say anything against the line where the server has answered by it.
    pub(super) fn ended(&mut self, reason: &DownReason, settled: Option<bool>, now: Instant) {
        let Some(line) = self.dialled else { return };
        if settled == Some(true) {
            self.failures.worked(line);
        }
        let blames = match reason {
            DownReason::NoGre | DownReason::EchoTimeOut => true,
            DownReason::Local | DownReason::NoLogin | DownReason::NoEncryption(_) => false,
            DownReason::Login(error) => matches!(error, LoginError::TimeOut) && settled.is_none(),
            _ => settled.is_none(),
        };
        // Probes show it where the server answers them.
        let chooses = self.knows != Knows::Several && self.mode != LineMode::Single;
        if blames && chooses && self.lines.all_open().len() > 1 {
            self.failures.failed(line, now);
        }
    }

    /// Lines that rest do not work, whatever is heard by them, unless the server answers probes.
    pub(super) fn rest(&mut self, now: Instant) {
        for line in (0..LINES_MAX as u8).map(LineId) {
            let rests = self.knows != Knows::Several && self.failures.rests(line, now);
            if rests == self.resting.contains(line) {
                continue;
            }
            self.lines
                .set_fault(SERVER, line, rests.then_some(Fault::NoCall));
            self.resting = match rests {
                true => self.resting.with(line),
                false => self.resting.filter(|it| *it != line).collect(),
            };
        }
    }

    /// Where no line is known to be worth a call, one of those that rest is tried. Returns whether there is such a one.
    pub(super) fn wakes(&mut self, now: Instant) -> bool {
        let mut open = self.lines.all_open().into_iter();
        if self.resting.is_empty() || open.any(|line| self.lines.may_work(SERVER, line)) {
            return false;
        }
        self.failures.wake_one(now);
        self.rest(now);
        true
    }
}
