//! The window itself. [`Restart`] decides whether numbers far from it mean that the peer has restarted.

use std::time::{Duration, Instant};

use plane::{LINES_MAX, LineId};

use crate::reorder::history::{History, REMEMBERED};
use crate::reorder::line::{Copies, LineTrack, Reordering};
use crate::reorder::repair::Repair;
use crate::reorder::settings::{Jump, Late, Order, Settings};
use crate::reorder::store::Store;
use crate::reorder::window::waiting::{LateSince, Overtaking};
use crate::reorder::{Arrival, Verdict, WINDOW};

mod limit;
mod missing;
mod waiting;

/// How far below the first number others may still come: the first packets of two lines come in any order.
const LOOK_BACK: u64 = 64;
/// The value of `sole` for no line, or several.
const NO_LINE: u8 = u8::MAX;
/// The value of `in_order` when packets wait, or the window has seen none.
const NONE: u64 = u64::MAX;

/// Counters of a window, of one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The copies of all lines.
    pub copies: Copies,
    /// Numbers that were given up, including those that came later.
    pub given_up: u64,
    /// Numbers whose fate is decided: accepted or given up. Waiting packets are not counted.
    pub decided: u64,
    /// Accepted packets behind a gap: those that wait, and those that passed it.
    pub waiting: u64,
}

impl Counters {
    /// Numbers of which no copy has come. `decided` is `copies.accepted - waiting + given_up`, so this is also the
    /// packets sent minus those that came.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.given_up - self.copies.late
    }
}

/// Puts the packets of one peer back into order. The packets that wait are of type `T`.
///
/// For each packet that comes call [`Self::arrived`], deliver the packet if the verdict says so, then deliver what
/// [`Self::due`] gives until it gives nothing. At [`Self::next_deadline`] call [`Self::due`] again.
#[derive(Clone, Debug)]
pub struct Window<T> {
    /// The next number while nothing waits and nothing is due, else [`NONE`]. Numbers from `limit` up to this one have
    /// come in order, and are not entered anywhere else yet.
    in_order: u64,
    /// The only line that packets have come over. While its packets are in order, nothing is measured.
    sole: u8,
    settings: Settings,
    /// The time of the first packet.
    epoch: Option<Instant>,
    /// The lowest number that has come.
    base: u64,
    /// Numbers below this one were sent before the window began.
    floor: u64,
    /// The lowest number that has neither come in order nor been given up.
    limit: u64,
    /// One more than the greatest number that has come or was given up.
    end: u64,
    history: History,
    store: Store<T>,
    lines: Vec<LineTrack>,
    /// The expected reordering of new lines.
    expected: Reordering,
    overtaking: Overtaking,
    restart: Restart,
    /// The requests for missing numbers; `None` if none are made.
    repair: Option<Box<Repair>>,
    deadline: Option<u64>,
    /// When any line was heard last, and the end of the last silence.
    heard: u64,
    busy_since: u64,
    deviations_doubled: u64,
    late_since: LateSince,
    given_up: u64,
    /// Decided numbers from before the peer restarted.
    decided_before: u64,
}

impl<T> Window<T> {
    /// Makes a window that has seen nothing.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        debug_assert!((1..=WINDOW as usize).contains(&settings.packets_max));
        debug_assert!(settings.floor <= settings.cap && settings.cap <= settings.cap_max);
        Self {
            in_order: NONE,
            sole: NO_LINE,
            settings,
            epoch: None,
            base: 0,
            floor: 0,
            limit: 0,
            end: 0,
            history: History::default(),
            store: Store::new(),
            lines: Vec::new(),
            expected: Reordering::default(),
            overtaking: Overtaking::default(),
            restart: Restart::default(),
            repair: None,
            deadline: None,
            heard: 0,
            busy_since: 0,
            deviations_doubled: settings.deviations_doubled.into(),
            late_since: LateSince::default(),
            given_up: 0,
            decided_before: 0,
        }
    }

    /// Takes a packet that has come. `hold` gives the packet itself; it is called for [`Verdict::Held`] only.
    #[inline]
    pub fn arrived(
        &mut self,
        arrival: &Arrival,
        now: Instant,
        hold: impl FnOnce() -> T,
    ) -> Verdict {
        if self.arrived_in_order(arrival.number, 1, arrival.line) {
            return Verdict::Deliver;
        }
        self.arrived_otherwise(arrival, now, hold)
    }

    /// Takes `count` packets that came over one line, numbered from `first` on. Returns whether all are to be
    /// delivered. If not, the window is unchanged, and the caller must call [`Self::arrived`] for each.
    #[inline]
    pub fn arrived_in_order(&mut self, first: u64, count: u64, line: LineId) -> bool {
        let in_order = first == self.in_order && first != NONE && line.0 == self.sole;
        if in_order {
            self.in_order += count;
        }
        in_order
    }

    /// Takes the next packet that is due at `now`.
    #[inline]
    pub fn due(&mut self, now: Instant) -> Option<T> {
        if self.in_order != NONE {
            return None;
        }
        self.due_otherwise(now)
    }

    /// When a gap will be given up, if nothing comes before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let deadline = Duration::from_micros(self.deadline?);
        self.epoch.map(|epoch| epoch + deadline)
    }

    /// Makes all waiting packets due, as when a session ends.
    pub fn flush(&mut self) {
        self.enter_run();
        self.give_up_to(self.end);
        let end = self.end;
        if let Some(repair) = &mut self.repair {
            repair.restart(end);
        }
        self.settle(0);
    }

    /// Packets and bytes that wait.
    #[must_use]
    pub const fn waiting(&self) -> (usize, usize) {
        (self.store.waiting(), self.store.waiting_bytes())
    }

    /// The counters so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let run = self.run();
        let mut copies: Copies = self.lines.iter().map(|line| line.copies).sum();
        copies.accepted += run;
        let decided = self.decided_before + (self.limit - self.base) + run;
        Counters {
            copies,
            given_up: self.given_up,
            decided,
            waiting: copies.accepted + self.given_up - decided,
        }
    }

    /// The counters of one line.
    #[must_use]
    pub fn line_copies(&self, line: LineId) -> Copies {
        let mut copies = self
            .lines
            .get(line.index())
            .map_or_else(Copies::default, |line| line.copies);
        if line.0 == self.sole {
            copies.accepted += self.run();
        }
        copies
    }

    /// The number of packets that came in order and are not entered yet.
    const fn run(&self) -> u64 {
        if self.in_order == NONE {
            0
        } else {
            self.in_order - self.limit
        }
    }

    fn micros(&mut self, now: Instant) -> u64 {
        let epoch = *self.epoch.get_or_insert(now);
        // 2^64 microseconds are 584,000 years.
        now.saturating_duration_since(epoch).as_micros() as u64
    }

    #[inline(never)]
    fn due_otherwise(&mut self, now: Instant) -> Option<T> {
        if let Some(packet) = self.store.pop_due() {
            if self.store.due() == 0 && self.deadline.is_none() {
                self.settle(0);
            }
            return Some(packet);
        }
        let deadline = self.deadline?;
        let now = self.micros(now);
        if deadline > now {
            return None;
        }
        while self.deadline.is_some_and(|deadline| deadline <= now) {
            if !self.asks(now) {
                self.lost(self.limit);
                self.give_up_gap(self.end);
            }
            self.settle(now);
        }
        // Packets may have passed the gap, so that none waits behind it.
        let packet = self.store.pop_due();
        if self.store.due() == 0 && self.deadline.is_none() {
            self.settle(now);
        }
        packet
    }

    #[inline(never)]
    fn arrived_otherwise(
        &mut self,
        arrival: &Arrival,
        now: Instant,
        hold: impl FnOnce() -> T,
    ) -> Verdict {
        let first = self.epoch.is_none();
        let now = self.micros(now);
        let line = arrival.line.index().min(LINES_MAX - 1);
        let number = arrival.number.min(NONE - 1 - WINDOW);
        self.enter_run();
        if first {
            self.begin_at(number);
        }
        self.make_line(line, now);
        let verdict = self.judge(number, line, arrival, now, hold);
        self.adapt(now);
        self.settle(now);
        verdict
    }

    fn judge(
        &mut self,
        number: u64,
        line: usize,
        arrival: &Arrival,
        now: u64,
        hold: impl FnOnce() -> T,
    ) -> Verdict {
        if number < self.limit {
            return self.below(number, line, arrival, now, hold);
        }
        if number < self.end && self.history.get(number) {
            self.heard_of(line, number, now);
            self.lines[line].copies.duplicated_within += 1;
            return Verdict::Duplicate;
        }
        // If the caller fetches due packets, none are due here.
        if self.store.due() > self.settings.packets_max {
            self.lines[line].copies.ignored += 1;
            return Verdict::Ignored;
        }
        if number >= self.end + WINDOW && self.settings.jump == Jump::Agreed {
            if !self.restart.agrees(arrival.line, number) {
                self.lines[line].copies.ignored += 1;
                return Verdict::Ignored;
            }
        } else {
            self.restart.refuted(arrival.line);
        }
        self.heard_of(line, number, now);
        self.accept(number, line, arrival, now, hold)
    }

    /// Handles a packet below the limit.
    fn below(
        &mut self,
        number: u64,
        line: usize,
        arrival: &Arrival,
        now: u64,
        hold: impl FnOnce() -> T,
    ) -> Verdict {
        let remembered = self.end - number <= REMEMBERED;
        if remembered && (self.floor..self.base).contains(&number) {
            // The window began too high: the numbers between count as given up now.
            self.history.clear_range(number, self.base);
            self.given_up += self.base - number;
            self.base = number;
        }
        if number < self.base || !remembered {
            if self.settings.jump == Jump::Agreed && self.restart.agrees(arrival.line, number) {
                return self.begin_anew(number, line, (arrival.bytes, now), hold);
            }
            self.lines[line].copies.ancient += 1;
            return Verdict::Ancient;
        }
        self.heard_of(line, number, now);
        let copies = &mut self.lines[line].copies;
        if self.history.get(number) {
            copies.duplicated_below += 1;
            return Verdict::Duplicate;
        }
        copies.late += 1;
        self.history.set(number);
        match self.settings.late {
            Late::Deliver => Verdict::DeliverLate,
            Late::Drop => Verdict::Late,
        }
    }

    fn accept(
        &mut self,
        number: u64,
        line: usize,
        arrival: &Arrival,
        now: u64,
        hold: impl FnOnce() -> T,
    ) -> Verdict {
        self.give_up_to((number + 1).saturating_sub(WINDOW));
        let bytes = arrival.bytes;
        if number > self.limit {
            let late = self.settings.order == Order::ByFlow;
            let passes = |flow| late && self.overtaking.may_pass(flow, self.limit);
            if arrival.urgent || arrival.flow.is_some_and(passes) {
                self.enter(number, line, now);
                if let (Some(flow), false) = (arrival.flow, arrival.urgent) {
                    self.overtaking.passed(flow, number);
                }
                return Verdict::DeliverPast;
            }
            self.make_room(number, bytes);
        }
        self.enter(number, line, now);
        if number > self.limit {
            self.lines[line].copies.buffered += 1;
            if let Some(flow) = arrival.flow {
                self.overtaking.held(flow, number);
            }
            self.store.hold(number, bytes, hold());
            return Verdict::Held;
        }
        self.limit += 1;
        let verdict = self.in_turn(line, bytes, hold);
        self.advance();
        verdict
    }

    /// Delivers the packet whose turn it is, or queues it behind those that are due.
    fn in_turn(&mut self, line: usize, bytes: usize, hold: impl FnOnce() -> T) -> Verdict {
        if self.store.due() == 0 {
            return Verdict::Deliver;
        }
        // Other packets go first: those that had to make room, or that were not fetched.
        self.lines[line].copies.buffered += 1;
        self.store.push_due(bytes, hold());
        Verdict::Held
    }

    /// Marks as accepted the run of packets that came in order.
    fn enter_run(&mut self) {
        let run = self.run();
        if run > 0 {
            self.history.set_range(self.limit, self.in_order);
            self.limit = self.in_order;
            self.end = self.limit;
            if let Some(line) = self.lines.get_mut(usize::from(self.sole)) {
                line.copies.accepted += run;
            }
        }
        self.in_order = NONE;
    }

    /// Sets the next expectation: a packet in order, or a deadline.
    fn settle(&mut self, now: u64) {
        if self.limit < self.end {
            self.in_order = NONE;
            self.deadline = Some(self.deadline_of_gap(now));
            return;
        }
        self.deadline = None;
        if self.epoch.is_some() && self.store.due() == 0 {
            self.in_order = self.limit;
        }
    }

    fn make_line(&mut self, line: usize, now: u64) {
        if self.lines.len() <= line {
            let sole = self.lines.is_empty();
            let expected = self.expected;
            self.lines
                .resize_with(line + 1, || LineTrack::new(expected, now));
            self.sole = if sole { line as u8 } else { NO_LINE };
        }
        if usize::from(self.sole) != line {
            self.sole = NO_LINE;
        }
    }

    fn begin_at(&mut self, number: u64) {
        self.base = number;
        self.floor = number.saturating_sub(LOOK_BACK);
        self.limit = number;
        self.end = number;
    }

    /// Restarts the window: the peer has restarted with this number, or a little below.
    fn begin_anew(
        &mut self,
        number: u64,
        line: usize,
        (bytes, now): (usize, u64),
        hold: impl FnOnce() -> T,
    ) -> Verdict {
        self.give_up_to(self.end);
        self.decided_before += self.limit - self.base;
        self.overtaking.restart();
        if let Some(repair) = &mut self.repair {
            repair.restart(number + 1);
        }
        for line in &mut self.lines {
            line.restart(now);
        }
        self.history.clear_range(0, NONE);
        self.begin_at(number);
        self.history.set(number);
        self.limit = number + 1;
        self.end = self.limit;
        self.lines[line].copies.accepted += 1;
        self.in_turn(line, bytes, hold)
    }
}

/// Packets of one line that must agree on a restart.
const AGREEING: u8 = 3;

/// Counts consecutive packets of one line that are out of reach.
#[derive(Clone, Copy, Debug, Default)]
struct Restart {
    line: LineId,
    last: u64,
    count: u8,
}

impl Restart {
    /// Records a packet out of reach. Returns whether it and those before it agree on a restart.
    fn agrees(&mut self, line: LineId, number: u64) -> bool {
        let follows = self.count > 0
            && line == self.line
            && number > self.last
            && number - self.last <= WINDOW;
        self.count = if follows { self.count + 1 } else { 1 };
        self.line = line;
        self.last = number;
        if self.count < AGREEING {
            return false;
        }
        self.count = 0;
        true
    }

    /// Records a packet within reach over this line, which refutes a restart.
    fn refuted(&mut self, line: LineId) {
        if line == self.line {
            self.count = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_that_follow_one_another_on_one_line_agree() {
        let (a, b) = (LineId(0), LineId(1));
        let mut restart = Restart::default();
        assert!(!restart.agrees(a, 1_000_000));
        assert!(!restart.agrees(a, 1_000_001));
        assert!(!restart.agrees(b, 1_000_002), "another line");
        assert!(!restart.agrees(a, 1_000_003));
        assert!(!restart.agrees(a, 1_000_003), "does not follow");
        assert!(!restart.agrees(a, 9_000_000), "too far");
        assert!(!restart.agrees(a, 9_000_004));
        restart.refuted(a);
        assert!(!restart.agrees(a, 9_000_005));
        assert!(!restart.agrees(a, 9_000_006));
        assert!(restart.agrees(a, 9_000_007));
    }
}
