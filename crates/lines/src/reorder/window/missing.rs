//! Chooses the missing numbers that the sender is asked for.

use super::Window;
use crate::reorder::line::LineTrack;
use crate::reorder::repair::{Learnt, Repairs};
use std::time::Instant;

/// Minimum lateness of a missing packet before it is requested, in microseconds.
const MOSTLY_MIN: u64 = 5_000;

impl<T> Window<T> {
    /// Sets whether missing numbers are requested: only useful if the sender keeps sent packets.
    pub fn set_repair(&mut self, on: bool) {
        if on || self.repair.is_some() {
            let end = match self.in_order {
                super::NONE => self.end,
                in_order => in_order,
            };
            let repair = self.repair.get_or_insert_default();
            repair.set_on(on, end);
        }
    }

    /// The next number to ask the sender for. Call it after packets have come, and after a deadline, until it returns
    /// `None`.
    pub fn missing(&mut self, now: Instant) -> Option<u64> {
        let repair = self.repair.as_mut().filter(|repair| repair.is_on())?;
        if let Some(number) = repair.next_request() {
            return Some(number);
        }
        if self.in_order == super::NONE && self.limit < self.end {
            let now = self.micros(now);
            self.look_for_missing(now);
        }
        self.repair.as_mut()?.next_request()
    }

    /// Statistics of the other end's answers; `None` without repair.
    #[must_use]
    pub fn learnt(&self) -> Option<Learnt> {
        self.repair.as_ref().map(|repair| repair.learnt())
    }

    /// Takes over another window's statistics of the same end. Call it after [`Self::set_repair`].
    pub fn learn(&mut self, learnt: Learnt) {
        if let Some(repair) = &mut self.repair {
            repair.learn(learnt);
        }
    }

    /// The results of asking.
    #[must_use]
    pub fn repairs(&self) -> Repairs {
        let repair = self.repair.as_ref();
        repair.map_or_else(Repairs::default, |repair| repair.counts())
    }

    /// Asks for numbers that all lines have passed, and for numbers later than packets mostly are. Asks again for
    /// numbers that have not come in time.
    fn look_for_missing(&mut self, now: u64) {
        let busy = self.busy_since;
        let lines = self.lines.iter();
        let alive = lines.filter(|line| line.alive_until(busy).is_some_and(|until| until > now));
        // A line without any known passed number holds all others up, as in rule 1. While only one line is heard, the
        // others' first packets may be in transit.
        let several = alive.clone().nth(1).is_some();
        let passed = alive.map(|line| line.passed(now).unwrap_or(0)).min();
        let passed = passed.filter(|_| several).unwrap_or(0);
        let mostly = self.late_mostly(now);
        let Some(repair) = &mut self.repair else {
            return;
        };
        repair.forget(now);
        while let Some(number) = repair.overdue(now, self.limit) {
            if !repair.ask_again(number, now) {
                break;
            }
        }
        let mut number = repair.looked_at().max(self.limit);
        while number < self.end {
            if self.history.get(number) {
                number += 1;
                continue;
            }
            let next = self.history.next(number, self.end);
            let since = next.and_then(|next| self.store.since(next));
            let late = since.is_some_and(|since| since + mostly <= now);
            if number >= passed && !late {
                break;
            }
            repair.ask(number, now);
            number += 1;
        }
        repair.look_to(number);
    }

    /// The lateness that most packets do not exceed, over all lines that are alive. Asking too soon costs only a copy.
    pub(super) fn late_mostly(&self, now: u64) -> u64 {
        let busy = self.busy_since;
        let lines = self.lines.iter();
        let alive = lines.filter(|line| line.alive_until(busy).is_some_and(|until| until > now));
        let late = alive.map(LineTrack::late_mostly).max();
        late.unwrap_or(0).max(MOSTLY_MIN)
    }

    /// Decides about a packet that has not come in time. Returns whether the sender is asked for it, so that the window
    /// still waits for it.
    pub(super) fn asks(&mut self, now: u64) -> bool {
        let limit = self.limit;
        let next = self.history.next(limit, self.end);
        let since = next.and_then(|next| self.store.since(next));
        let longest = self.settings.cap_max.as_micros() as u64;
        let Some(repair) = &mut self.repair else {
            return false;
        };
        if since.is_none_or(|since| since + longest <= now) {
            return false;
        }
        if repair.ask_again(limit, now) {
            return true;
        }
        let asks = limit >= repair.looked_at() && repair.ask(limit, now);
        repair.look_to(limit + 1);
        asks
    }
}
