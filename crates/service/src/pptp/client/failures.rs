//! Lines on which calls have failed although the server answered there.
//!
//! TCP shows whether the server is reachable, but not whether GRE passes: a firewall or NAT may pass only TCP. Only a
//! call can show that, which takes half a minute. So a line with a failed call counts as down for a while, and longer
//! each time.

use super::lines::{Knows, SERVER, ServerLines};
use ::config::lines::LineMode;
use ::pptp::session::{DownReason, LoginError};
use lines::health::Fault;
use plane::{LINES_MAX, LineId, LineSet};
use std::time::{Duration, Instant};

/// How long a line rests after a failed call on it: at first, and at most. The time doubles with each failure.
const REST: [Duration; 2] = [Duration::from_secs(3 * 60), Duration::from_secs(60 * 60)];

/// The failed calls of one line.
#[derive(Clone, Copy, Debug)]
struct Failed {
    last: Instant,
    /// How long the line rests after a failure.
    rest: Duration,
    /// End of the rest, unless no other line works.
    until: Instant,
}

/// The failed calls, by line.
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

    /// Clears a line's failures, as packets of a call have passed it.
    pub(super) fn worked(&mut self, line: LineId) {
        if let Some(of) = self.0.get_mut(line.index()) {
            *of = None;
        }
    }

    fn rests(&self, line: LineId, now: Instant) -> bool {
        let of = self.0.get(line.index()).copied().flatten();
        of.is_some_and(|of| now < of.until)
    }

    /// Puts the line that failed longest ago back into use.
    fn wake_one(&mut self, now: Instant) {
        let resting = self.0.iter_mut().flatten().filter(|of| now < of.until);
        if let Some(of) = resting.min_by_key(|of| of.last) {
            of.until = now;
        }
    }
}

impl ServerLines {
    /// Handles the end of a call on the line over which the server was called. `settled` says whether the call was up
    /// for long; `None` means that it never was up. Missing GRE or echo replies always count against the line. Our own
    /// end never does, nor a fault of login or encryption that the server's answer shows. Other reasons, such as a
    /// login that timed out, count if the call never was up.
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
        // With a server that answers probes, the probes show whether the line works.
        let chooses = self.knows != Knows::Several && self.mode != LineMode::Single;
        if blames && chooses && self.lines.all_open().len() > 1 {
            self.failures.failed(line, now);
        }
    }

    /// Marks resting lines as down, whatever is heard on them, unless the server answers probes.
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

    /// Repeats what failed calls have shown about lines, as the host's new facts may have replaced it.
    pub(super) fn rest_anew(&mut self, now: Instant) {
        self.resting = LineSet::EMPTY;
        self.rest(now);
    }

    /// If no line is known to be worth a call, puts one back into use. Returns whether it did so.
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
