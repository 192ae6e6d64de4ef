//! CoDel for one flow (RFC 8289).

use std::time::{Duration, Instant};

/// The parameters of CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parameters {
    /// Accepted standing delay.
    pub(super) target: Duration,
    /// The time within which a standing delay must go below the target: a usual round trip.
    pub(super) interval: Duration,
}

/// The state of RFC 8289 section 5.3.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CoDel {
    /// When the delay will have been above the target for an interval; `None` while it is below.
    first_above: Option<Instant>,
    dropping: bool,
    next_drop: Option<Instant>,
    count: u32,
    last_count: u32,
}

/// The facts about the packet at the head of a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// How long the packet has waited.
    pub(super) sojourn: Duration,
    /// Whether the queue holds at most one packet of full size, and so is not a standing queue.
    pub(super) short: bool,
}

impl CoDel {
    /// Returns whether to drop or mark the packet at the head. Called for each packet that is taken from the queue, and
    /// again for the next one after a drop.
    #[inline]
    pub(super) fn signals(&mut self, head: Head, parameters: Parameters, now: Instant) -> bool {
        let above = self.above_for_an_interval(head, parameters, now);
        if self.dropping {
            if !above {
                self.dropping = false;
                return false;
            }
            let Some(next) = self.next_drop.filter(|next| now >= *next) else {
                return false;
            };
            self.count = self.count.saturating_add(1);
            self.next_drop = Some(next + spacing(parameters.interval, self.count));
            return true;
        }
        if !above {
            return false;
        }
        self.dropping = true;
        // If a standing queue soon returns, dropping starts at about the rate that ended the last one.
        let delta = self.count.saturating_sub(self.last_count);
        let recent = self
            .next_drop
            .is_some_and(|next| now.saturating_duration_since(next) < 16 * parameters.interval);
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.next_drop = Some(now + spacing(parameters.interval, self.count));
        self.last_count = self.count;
        true
    }

    /// Records that the queue is empty.
    pub(super) const fn empty(&mut self) {
        self.first_above = None;
        self.dropping = false;
    }

    fn above_for_an_interval(&mut self, head: Head, parameters: Parameters, now: Instant) -> bool {
        if head.sojourn < parameters.target || head.short {
            self.first_above = None;
            return false;
        }
        match self.first_above {
            Some(since) => now >= since,
            None => {
                self.first_above = Some(now + parameters.interval);
                false
            }
        }
    }
}

/// The control law: the interval divided by the square root of the count.
#[inline]
fn spacing(interval: Duration, count: u32) -> Duration {
    let root = (u64::from(count) << 20).isqrt();
    let nanos = (interval.as_nanos() as u64) << 10;
    Duration::from_nanos(nanos / root.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const PARAMETERS: Parameters = Parameters {
        target: Duration::from_millis(5),
        interval: Duration::from_millis(100),
    };

    /// The times of drops from a queue that stands at `delay` for a second, with one packet a millisecond.
    fn drops(codel: &mut CoDel, start: Instant, delay: Duration) -> Vec<u128> {
        (0..1000)
            .filter(|at| {
                let head = Head {
                    sojourn: delay,
                    short: false,
                };
                codel.signals(head, PARAMETERS, start + MS * *at)
            })
            .map(u128::from)
            .collect()
    }

    #[test]
    fn drops_come_closer_by_the_root_of_their_count() {
        let found = drops(&mut CoDel::default(), Instant::now(), MS * 20);
        // 100, then + 100 / sqrt(n) for n of 1, 2, 3 and on.
        assert_eq!(&found[..6], [100, 200, 271, 329, 379, 424]);
    }

    #[test]
    fn a_delay_below_the_target_costs_nothing() {
        assert!(drops(&mut CoDel::default(), Instant::now(), MS * 4).is_empty());
    }

    #[test]
    fn a_queue_that_comes_back_is_met_where_the_last_was_left() {
        let start = Instant::now();
        let mut codel = CoDel::default();
        let first = drops(&mut codel, start, MS * 20).len();
        drops(&mut codel, start + MS * 1000, MS);
        let again = drops(&mut codel, start + MS * 1100, MS * 20).len();
        assert!(again > first, "{again} {first}");
    }

    #[test]
    fn one_packet_is_no_standing_queue() {
        let mut codel = CoDel::default();
        let start = Instant::now();
        for at in 0..1000 {
            let head = Head {
                sojourn: MS * 50,
                short: true,
            };
            assert!(!codel.signals(head, PARAMETERS, start + MS * at));
        }
    }
}
