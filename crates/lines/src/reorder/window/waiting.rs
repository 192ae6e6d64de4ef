//! Computes how long a gap is waited for, and learns from packets that come. [`Overtaking`] knows the inner flows whose
//! packets may pass a gap.

use std::time::{Duration, Instant};

use crate::reorder::line::{Copies, Reordering};
use crate::reorder::repair::Cause;
use crate::reorder::window::Window;

/// The interval at which the number of late packets is checked.
const LATE_PERIOD: u64 = 10_000_000;
/// The time without a late packet after which fewer deviations are waited for.
const LATE_CALM: u64 = 60_000_000;
/// Maximum deviations that are waited for, doubled.
const DEVIATIONS_DOUBLED_MAX: u64 = 32;

/// When late packets were looked at last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LateSince {
    at: u64,
    accepted: u64,
    late: u64,
    calm_since: u64,
}

const fn micros(duration: Duration) -> u64 {
    duration.as_micros() as u64
}

impl<T> Window<T> {
    /// The reordering seen on all lines.
    #[must_use]
    pub fn reordering(&self, now: Instant) -> Reordering {
        let Some(epoch) = self.epoch else {
            return self.expected;
        };
        let now = now.saturating_duration_since(epoch).as_micros() as u64;
        let lines = self.lines.iter();
        let seen = lines.filter_map(|line| line.reordering(now));
        seen.reduce(Reordering::or).unwrap_or(self.expected)
    }

    /// Sets the reordering that another window has seen. Call it before the first packet.
    pub const fn expect(&mut self, reordering: Reordering) {
        self.expected = reordering;
    }

    /// Records that the number was lost: it was given up, or came only because it was requested.
    pub(super) fn lost(&mut self, number: u64) {
        for line in &mut self.lines {
            line.lost(number);
        }
    }

    /// When the gap at the limit is given up.
    pub(super) fn deadline_of_gap(&self, now: u64) -> u64 {
        let next = self.history.next(self.limit, self.end);
        let since = next.and_then(|next| self.store.since(next)).unwrap_or(now);
        let asked = self.repair.as_ref();
        if let Some(deadline) = asked.and_then(|repair| repair.deadline(self.limit)) {
            return deadline.min(since + micros(self.settings.cap_max));
        }
        let mut late = 0;
        let mut skew = 0;
        let mut passed_by_all = 0;
        for line in &self.lines {
            let Some(alive_until) = line.alive_until(self.busy_since) else {
                continue;
            };
            let passed = line
                .first_from(self.limit)
                .map(|passed| passed + line.slack(now));
            // A line that stays silent until it counts as dead is not waited for.
            passed_by_all = passed_by_all.max(passed.unwrap_or(alive_until));
            if alive_until > now {
                late = late.max(line.late_at_most(self.deviations_doubled, now));
                skew = skew.max(line.lateness());
            }
        }
        let settings = &self.settings;
        let cap = (skew * 3 / 2).clamp(micros(settings.cap), micros(settings.cap_max));
        let waited = since + late.clamp(micros(settings.floor), cap);
        let waited = match &self.repair {
            Some(repair) if repair.may_ask(self.limit) => waited.min(since + self.late_mostly(now)),
            _ => waited,
        };
        if settings.line_rule {
            waited.min(passed_by_all)
        } else {
            waited
        }
    }

    /// Learns about a line from a number within reach.
    pub(super) fn heard_of(&mut self, line: usize, number: u64, now: u64) {
        if now > self.heard + 100_000 {
            self.busy_since = now;
        }
        self.heard = now;
        let came = self.repair.as_mut().map(|repair| repair.came(number, now));
        match came {
            None | Some(Cause::Unasked) => {}
            // The cause of a packet's time is uncertain if its number was requested.
            Some(cause) => {
                self.lines[line].spoke(now);
                if cause == Cause::Answer {
                    self.lost(number);
                }
                return;
            }
        }
        let first = self.lines.iter().filter_map(|line| line.first_from(number));
        let lateness = first.min().map_or(0, |first| now.saturating_sub(first));
        // A packet later than any that is waited for is ignored: it may be an old copy that somebody sends again.
        let lateness = Some(lateness).filter(|late| *late <= micros(self.settings.cap_max));
        self.lines[line].delivered(number, lateness, now);
    }

    /// Waits for more deviations if many packets come late, for fewer if none do.
    pub(super) fn adapt(&mut self, now: u64) {
        let since = self.late_since;
        if now < since.at + LATE_PERIOD {
            return;
        }
        let copies: Copies = self.lines.iter().map(|line| line.copies).sum();
        let late = copies.late - since.late;
        let accepted = copies.accepted - since.accepted;
        let mut calm_since = since.calm_since;
        if late > 0 {
            calm_since = now;
        }
        if late * 1000 > accepted {
            self.deviations_doubled = (self.deviations_doubled + 2).min(DEVIATIONS_DOUBLED_MAX);
        } else if now >= calm_since + LATE_CALM {
            let least = self.settings.deviations_doubled.into();
            self.deviations_doubled = self.deviations_doubled.saturating_sub(1).max(least);
            calm_since = now;
        }
        self.late_since = LateSince {
            at: now,
            accepted: copies.accepted,
            late: copies.late,
            calm_since,
        };
    }
}

/// Maximum number of a flow's packets that may overtake a missing one: fewer than the three duplicate acknowledgements
/// that TCP takes for a loss (RFC 5681 section 3.2).
pub(super) const OVERTAKING_MAX: usize = 2;

const FLOWS: usize = 256;

#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    /// The greatest numbers that passed a gap, plus one, greatest first. 0 means none.
    passed: [u64; OVERTAKING_MAX],
    /// One more than the greatest number that was held.
    held: u64,
}

/// Remembers for each flow which packets passed a gap, and whether any wait.
///
/// Flows that share a place count as one: they overtake less, never more.
#[derive(Clone, Debug, Default)]
pub(super) struct Overtaking {
    /// Empty until the first packet comes behind a gap.
    flows: Vec<Flow>,
}

impl Overtaking {
    /// Whether packet `number` of the flow may pass `limit`, the least missing number.
    ///
    /// Overtaking is allowed if no packet of its flow waits, and if fewer than [`OVERTAKING_MAX`] of its flow have
    /// passed `limit`. Packets that passed a greater missing number have passed `limit` too, so the bound holds for
    /// each missing number.
    pub(super) fn may_pass(&self, flow: u32, limit: u64) -> bool {
        let Some(flow) = self.flows.get(place_of(flow)) else {
            return true;
        };
        flow.held <= limit && flow.passed[OVERTAKING_MAX - 1] <= limit
    }

    pub(super) fn passed(&mut self, flow: u32, number: u64) {
        let flow = self.flow(flow);
        let mut entry = number + 1;
        for passed in &mut flow.passed {
            if *passed < entry {
                std::mem::swap(passed, &mut entry);
            }
        }
    }

    pub(super) fn held(&mut self, flow: u32, number: u64) {
        let flow = self.flow(flow);
        flow.held = flow.held.max(number + 1);
    }

    pub(super) fn restart(&mut self) {
        self.flows.fill(Flow::default());
    }

    #[inline]
    fn flow(&mut self, flow: u32) -> &mut Flow {
        if self.flows.is_empty() {
            self.flows = vec![Flow::default(); FLOWS];
        }
        &mut self.flows[place_of(flow)]
    }
}

const fn place_of(flow: u32) -> usize {
    // The upper bits of a product depend on all bits of the flow.
    (flow.wrapping_mul(0x9e37_79b1) >> 24) as usize
}
const _: () = assert!(FLOWS == 1 << 8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_packets_of_a_flow_pass_and_no_third() {
        let mut overtaking = Overtaking::default();
        for number in [11, 12] {
            assert!(overtaking.may_pass(7, 10));
            overtaking.passed(7, number);
        }
        assert!(!overtaking.may_pass(7, 10));
        assert!(overtaking.may_pass(8, 10), "another flow");
        assert!(overtaking.may_pass(7, 12), "one of them was above");
    }

    #[test]
    fn no_packet_passes_one_of_its_flow_that_waits() {
        let mut overtaking = Overtaking::default();
        overtaking.held(7, 12);
        assert!(!overtaking.may_pass(7, 10));
        assert!(!overtaking.may_pass(7, 12));
        assert!(overtaking.may_pass(7, 13), "it has gone");
    }
}
