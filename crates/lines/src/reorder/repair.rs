//! Chooses the missing numbers that the sender is asked to send once more.
//!
//! A number that every line that is alive has passed was lost. Without repair the window gives it up at once. With
//! repair the window requests the number, up to [`TRIES`] times, and packets behind it wait meanwhile.
//!
//! Losses on a full line also tell TCP to slow down, and must continue to do so. So at most one packet in [`COST`] can
//! be requested, and at most [`CREDIT_MAX`] at once.

use std::collections::VecDeque;

/// How often a number is requested.
const TRIES: u8 = 3;

/// Accepted packets for each number that may be requested.
const COST: u32 = 32;

/// Maximum number of requests at once after a time without losses.
const CREDIT_MAX: u32 = 64;

/// Maximum number of remembered requests, answered or not.
const ASKED_MAX: usize = 256;

/// Each number that has not come in three tries doubles the price of asking, up to this often. So a peer that does not
/// know requests costs little.
const DOUBLINGS_MAX: u32 = 8;

/// How long a closed request is remembered, in microseconds: copies of its number may still come.
const REMEMBERED: u64 = 1_000_000;

/// The wait for an answer, in microseconds: before the first answer was seen, the minimum, and the maximum.
const WAIT_FIRST: u64 = 150_000;
const WAIT_MIN: u64 = 10_000;
const WAIT_MAX: u64 = 250_000;

/// A number that was requested.
#[derive(Clone, Copy, Debug)]
struct Asked {
    number: u64,
    /// The times of the first and the last request, in microseconds of the window.
    first: u64,
    at: u64,
    tries: u8,
    /// Whether the number came, or is no longer requested.
    closed: bool,
    came: bool,
}

/// The numbers that were requested.
#[derive(Clone, Debug, Default)]
pub(super) struct Repair {
    on: bool,
    /// The requests, in the order of their numbers.
    asked: VecDeque<Asked>,
    /// Numbers to be requested that the caller has not fetched yet.
    requests: VecDeque<u64>,
    /// The number below which all missing ones were requested or given up.
    looked: u64,
    /// Accepted packets that are not spent; each request costs [`COST`] of them.
    credit: u32,
    learnt: Learnt,
    counts: Repairs,
}

/// Statistics of the other end's answers, which the next window takes over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Learnt {
    /// Mean and mean deviation of how long answers take, in microseconds; `None` before the first.
    pub round_trip: Option<(u64, u64)>,
    /// Consecutive numbers that did not come, however often they were requested.
    pub failed: u32,
}

/// Results of repair requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Numbers that were requested.
    pub asked: u64,
    /// Requested numbers that have come.
    pub came: u64,
}

/// How a packet that has come relates to the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The number was not asked for.
    Unasked,
    /// The packet came too soon to be an answer.
    Original,
    /// The packet came because it was requested. Its time says nothing about the line.
    Answer,
}

impl Repair {
    /// Sets whether numbers are requested, from `limit` on.
    pub(super) fn set_on(&mut self, on: bool, limit: u64) {
        if std::mem::replace(&mut self.on, on) != on {
            self.restart(limit);
            self.credit = COST * CREDIT_MAX / 4;
        }
    }

    pub(super) const fn is_on(&self) -> bool {
        self.on
    }

    /// Forgets all requests, because the peer has restarted at a number.
    pub(super) fn restart(&mut self, limit: u64) {
        self.asked.clear();
        self.requests.clear();
        self.looked = limit;
    }

    /// Earns credit for an accepted packet.
    pub(super) fn earn(&mut self) {
        self.credit = (self.credit + 1).min(COST * CREDIT_MAX);
    }

    /// Statistics of the other end's answers.
    pub(super) const fn learnt(&self) -> Learnt {
        self.learnt
    }

    /// Takes over another window's statistics.
    pub(super) const fn learn(&mut self, learnt: Learnt) {
        self.learnt = learnt;
    }

    #[inline]
    fn find(&mut self, number: u64) -> Option<&mut Asked> {
        if self.asked.back().is_none_or(|last| number > last.number) {
            return None;
        }
        let at = self.asked.binary_search_by_key(&number, |it| it.number);
        self.asked.get_mut(at.ok()?)
    }

    /// Records that a packet has come with this number, perhaps for the second time.
    pub(super) fn came(&mut self, number: u64, now: u64) -> Cause {
        let known = self.learnt.round_trip;
        let Some(asked) = self.find(number) else {
            return Cause::Unasked;
        };
        if std::mem::replace(&mut asked.came, true) {
            return Cause::Answer;
        }
        asked.closed = true;
        let took = now.saturating_sub(asked.first);
        let soon = known.is_some_and(|(mean, _)| took < mean / 2);
        if asked.tries == 1 && soon {
            return Cause::Original;
        }
        self.counts.came += 1;
        // It is not known which of several requests this packet answers. The first is assumed, so that a wait that is
        // too short grows.
        let took = took.min(WAIT_MAX);
        self.learnt.failed = 0;
        self.learnt.round_trip = Some(match known {
            None => (took, took / 2),
            Some((mean, deviation)) => (
                mean - mean / 8 + took / 8,
                deviation - deviation / 4 + mean.abs_diff(took) / 4,
            ),
        });
        Cause::Answer
    }

    /// The number below which all missing ones were requested or given up.
    pub(super) const fn looked_at(&self) -> u64 {
        self.looked
    }

    /// Records that all missing numbers below this one were looked at.
    pub(super) const fn look_to(&mut self, number: u64) {
        if number > self.looked {
            self.looked = number;
        }
    }

    /// The price in credit of asking for a number.
    fn cost(&self) -> u32 {
        let cost = COST << self.learnt.failed.min(DOUBLINGS_MAX);
        cost.min(COST * CREDIT_MAX)
    }

    /// Whether a first request for the number would be made now.
    pub(super) fn may_ask(&self, number: u64) -> bool {
        self.on && number >= self.looked && self.credit >= self.cost()
    }

    /// Requests a number for the first time, if allowed.
    #[inline]
    pub(super) fn ask(&mut self, number: u64, now: u64) -> bool {
        let cost = self.cost();
        if !self.on || self.credit < cost {
            return false;
        }
        self.credit -= cost;
        if self.asked.len() >= ASKED_MAX {
            self.asked.pop_front();
        }
        self.counts.asked += 1;
        self.asked.push_back(Asked {
            number,
            first: now,
            at: now,
            tries: 1,
            closed: false,
            came: false,
        });
        self.requests.push_back(number);
        true
    }

    /// Handles an answer that has not come in time. Returns whether the number is requested again, at the same price.
    pub(super) fn ask_again(&mut self, number: u64, now: u64) -> bool {
        let credit = self.credit;
        let Some(asked) = self.find(number).filter(|it| !it.closed) else {
            return false;
        };
        if asked.tries >= TRIES || credit < COST {
            asked.closed = true;
            self.learnt.failed += 1;
            return false;
        }
        asked.tries += 1;
        asked.at = now;
        self.credit -= COST;
        self.requests.push_back(number);
        true
    }

    /// The oldest number from `limit` on whose answer is overdue.
    pub(super) fn overdue(&self, now: u64, limit: u64) -> Option<u64> {
        let open = self
            .asked
            .iter()
            .filter(|it| !it.closed && it.number >= limit);
        let mut due = open.filter(|it| it.at + self.wait(it.tries) <= now);
        due.next().map(|it| it.number)
    }

    /// Forgets requests that are too old to matter.
    pub(super) fn forget(&mut self, now: u64) {
        let old = |it: &Asked| it.closed && it.at + REMEMBERED <= now;
        while self.asked.front().is_some_and(old) {
            self.asked.pop_front();
        }
    }

    /// The time until which an answer with this number is waited for, if the number was requested.
    pub(super) fn deadline(&self, number: u64) -> Option<u64> {
        let at = self.asked.binary_search_by_key(&number, |it| it.number);
        let asked = self.asked.get(at.ok()?).filter(|it| !it.closed)?;
        Some(asked.at + self.wait(asked.tries))
    }

    /// The wait for an answer after `tries` requests: twice as long each time.
    fn wait(&self, tries: u8) -> u64 {
        let wait = match self.learnt.round_trip {
            None => WAIT_FIRST,
            Some((mean, deviation)) => mean + 4 * deviation,
        };
        (wait.max(WAIT_MIN) << (tries - 1)).min(WAIT_MAX)
    }

    /// The next number that the sender is to be asked for.
    pub(super) fn next_request(&mut self) -> Option<u64> {
        self.requests.pop_front()
    }

    pub(super) const fn counts(&self) -> Repairs {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on() -> Repair {
        let mut repair = Repair::default();
        repair.set_on(true, 0);
        repair
    }

    #[test]
    fn a_number_is_asked_for_three_times() {
        let mut repair = on();
        assert!(repair.ask(7, 0));
        assert_eq!(repair.deadline(7), Some(WAIT_FIRST));
        assert!(repair.ask_again(7, WAIT_FIRST));
        assert!(repair.ask_again(7, 2 * WAIT_FIRST));
        assert!(!repair.ask_again(7, 3 * WAIT_FIRST));
        assert_eq!(repair.deadline(7), None);
        let requests: Vec<u64> = std::iter::from_fn(|| repair.next_request()).collect();
        assert_eq!(requests, [7; 3]);
        assert!(!repair.ask_again(8, 0), "it was not asked for");
    }

    #[test]
    fn the_wait_follows_what_answers_take() {
        let mut repair = on();
        for number in 0..16 {
            let at = number * 100_000;
            assert!(repair.ask(number, at));
            assert_eq!(repair.came(number, at + 30_000), Cause::Answer);
            assert_eq!(repair.came(number, at + 31_000), Cause::Answer, "a copy");
        }
        repair.credit = COST;
        assert!(repair.ask(100, 10_000_000));
        let wait = repair.deadline(100).unwrap() - 10_000_000;
        assert!((30_000..45_000).contains(&wait), "{wait}");
        assert_eq!(repair.came(100, 10_001_000), Cause::Original);
        assert_eq!(repair.came(101, 0), Cause::Unasked);
        assert_eq!(
            repair.counts(),
            Repairs {
                asked: 17,
                came: 16
            }
        );
    }

    #[test]
    fn a_wait_that_is_too_short_grows() {
        let mut repair = on();
        repair.learn(Learnt {
            round_trip: Some((10_000, 0)),
            failed: 0,
        });
        let mut now = 0;
        for number in 0..200 {
            repair.credit = COST * CREDIT_MAX;
            assert!(repair.ask(number, now));
            // The answer takes 160 ms, however often the number is requested meanwhile.
            let comes = now + 160_000;
            while repair.deadline(number).is_some_and(|at| at < comes) {
                repair.ask_again(number, repair.deadline(number).unwrap());
            }
            assert_eq!(repair.came(number, comes), Cause::Answer);
            now = comes;
        }
        assert!(repair.wait(1) >= 160_000, "{}", repair.wait(1));
        assert_eq!(repair.learnt().failed, 0);
    }

    #[test]
    fn only_so_many_of_all_packets_are_asked_for() {
        let mut repair = on();
        let mut asked = (0..1000).filter(|number| repair.ask(*number, 0)).count();
        assert_eq!(asked as u32, CREDIT_MAX / 4);
        for number in 1000..33_000 {
            repair.earn();
            asked += usize::from(repair.ask(number, 0));
        }
        assert_eq!(asked as u32, CREDIT_MAX / 4 + 1000);
        assert!(repair.asked.len() <= ASKED_MAX);
    }

    #[test]
    fn an_end_that_answers_no_request_is_asked_rarely() {
        let mut repair = on();
        let mut asked = 0;
        for number in 0..100_000 {
            repair.earn();
            if repair.ask(number, 0) {
                asked += 1;
                while repair.ask_again(number, 0) {}
            }
        }
        assert!(asked < 80, "{asked}");
        let last = repair.asked.back().unwrap().number;
        // A number that comes after all shows that asking is worthwhile.
        assert_eq!(repair.came(last, 0), Cause::Answer);
        assert_eq!(repair.learnt().failed, 0);
    }
}
