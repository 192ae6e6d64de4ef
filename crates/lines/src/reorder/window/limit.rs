//! Moves the limit of a window over numbers that have come, or that it gives up.

use super::Window;
use crate::reorder::settings::Settings;
use crate::reorder::store::Store;

impl<T> Window<T> {
    /// Marks a number as accepted.
    pub(super) fn enter(&mut self, number: u64, line: usize, now: u64) {
        self.lines[line].copies.accepted += 1;
        if let Some(repair) = &mut self.repair {
            repair.earn();
        }
        if number >= self.end {
            self.history.clear_range(self.end, number);
            self.end = number + 1;
        }
        if number > self.limit {
            // The time of the first packet with this number or a greater one.
            let next = self.history.next(number + 1, self.end);
            let since = next.and_then(|next| self.store.since(next));
            self.store.set_since(number, since.unwrap_or(now));
        }
        self.history.set(number);
    }

    /// Gives up gaps until one more packet may wait. It gives up numbers below `number` only.
    pub(super) fn make_room(&mut self, number: u64, bytes: usize) {
        let Settings {
            packets_max,
            bytes_max,
            ..
        } = self.settings;
        let full = |store: &Store<T>| {
            let (packets, held) = (store.waiting(), store.waiting_bytes());
            packets >= packets_max || packets > 0 && held + bytes > bytes_max
        };
        while number > self.limit && full(&self.store) {
            let until = self.history.next(self.limit, self.end);
            let until = until.unwrap_or(number).min(number);
            self.given_up += until - self.limit;
            self.limit = until;
            self.advance();
        }
    }

    /// Gives up the first gap, up to `until` at most.
    pub(super) fn give_up_gap(&mut self, until: u64) {
        let next = self.history.next(self.limit, until).unwrap_or(until);
        self.give_up_to(next);
    }

    /// Gives up all missing numbers below `limit`.
    pub(super) fn give_up_to(&mut self, limit: u64) {
        while self.limit < limit {
            let known = limit.min(self.end);
            let next = self.history.next(self.limit, known).unwrap_or(limit);
            self.given_up += next - self.limit;
            self.limit = next;
            if self.limit > self.end {
                self.history.clear_range(self.end, self.limit);
                self.end = self.limit;
            }
            self.advance();
        }
    }

    /// Moves the limit over numbers that have come.
    pub(super) fn advance(&mut self) {
        while self.limit < self.end && self.history.get(self.limit) {
            self.store.turn(self.limit);
            self.limit += 1;
        }
    }
}
