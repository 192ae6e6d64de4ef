//! Cross traffic: whether the arriving packets belong to more than one flow.
//!
//! A single flow waits only behind its own packets. A shorter queue would cost it throughput and gain it nothing. So
//! queues are kept short only while other traffic would have to wait in them.

use crate::clock::{Epoch, Moment};
use crate::gro::Shape;
use crate::slot::Inner;
use std::time::Instant;

/// Milliseconds that cross traffic lasts after the last packet of another flow. Long enough for continuous traffic;
/// short enough to end soon after what starts a flow (a DNS lookup, the connection that requests a download).
const LASTS: u64 = 300;
/// The same time, once other flows have come for [`STAYS`] or longer; traffic that comes once a second is cross
/// traffic.
const LASTS_STAYING: u64 = 2000;
/// Milliseconds after which cross traffic counts as staying.
const STAYS: u64 = 500;

/// The period in which packets of more than one flow have come. The worker that writes a batch sets it; the worker that
/// reads the next batch checks it.
#[derive(Debug, Default)]
pub(crate) struct CrossTraffic {
    since: Moment,
    until: Moment,
}

impl CrossTraffic {
    fn seen(&self, millis: u64) {
        let until = self.until.millis();
        if until == 0 || millis.saturating_sub(until) >= LASTS_STAYING {
            self.since.set(millis);
        }
        self.until.set(millis);
    }

    /// Whether packets of more than one flow have come recently.
    pub(crate) fn is_there(&self, now: Instant, epoch: Epoch) -> bool {
        let (since, until) = (self.since.millis(), self.until.millis());
        let lasts = match until.saturating_sub(since) >= STAYS {
            true => LASTS_STAYING,
            false => LASTS,
        };
        until > 0 && epoch.millis(now).saturating_sub(until) < lasts
    }
}

/// The flow of the last packet.
#[derive(Debug, Default)]
pub(crate) struct LastFlow(Option<u32>);

impl LastFlow {
    /// Looks at a batch. A packet of unknown flow (ICMP, or any packet where joining is off) counts as another flow.
    pub(crate) fn follow(
        &mut self,
        batch: &[Inner],
        cross_traffic: &CrossTraffic,
        now: Instant,
        epoch: Epoch,
    ) {
        let mut several = false;
        for inner in batch {
            let Inner::Packet { shape, .. } = inner else {
                continue;
            };
            match *shape {
                Shape::Plain => several = true,
                Shape::Flow { hash, .. } | Shape::Barrier(hash) => {
                    several |= self.0.is_some_and(|last| last != hash);
                    self.0 = Some(hash);
                }
            }
        }
        if several {
            cross_traffic.seen(epoch.millis(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn packet(shape: Shape) -> Inner {
        Inner::Packet { len: 1400, shape }
    }

    fn bulk(hash: u32) -> Inner {
        packet(Shape::Flow {
            hash,
            udp: false,
            v6: false,
            header: 52,
        })
    }

    /// Whether there is cross traffic at `then`, after batches at the given milliseconds.
    fn after(batches: &[(u64, &[Inner])], then: u64) -> bool {
        let (cross_traffic, mut last) = (CrossTraffic::default(), LastFlow::default());
        let (epoch, start) = (Epoch::new(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        for (millis, batch) in batches {
            last.follow(batch, &cross_traffic, at(*millis), epoch);
        }
        cross_traffic.is_there(at(then), epoch)
    }

    #[test]
    fn one_flow_has_no_cross_traffic_and_two_have_each_other() {
        let one: &[Inner] = &[bulk(1), packet(Shape::Barrier(1)), Inner::Keepalive];
        let other: &[Inner] = &[Inner::Signal, bulk(2)];
        assert!(!after(&[(0, one), (900, &[]), (1000, one)], 1000));
        assert!(after(&[(0, one), (800, other), (900, one)], 900));
    }

    #[test]
    fn what_says_nothing_of_its_flow_is_another() {
        let ping: &[Inner] = &[packet(Shape::Plain)];
        let among: &[Inner] = &[bulk(1), packet(Shape::Plain), bulk(1)];
        for batch in [ping, among] {
            assert!(after(&[(0, batch)], 0));
        }
    }

    #[test]
    fn cross_traffic_is_forgotten_soon_unless_it_comes_again_and_again() {
        let ping: &[Inner] = &[packet(Shape::Plain)];
        // A single packet that precedes a flow.
        assert!(after(&[(0, ping), (100, ping)], 399));
        assert!(!after(&[(0, ping), (100, ping)], 400));
        // Packets once a second.
        assert!(after(&[(0, ping), (1000, ping)], 2999));
        assert!(!after(&[(0, ping), (1000, ping)], 3000));
        // Packets once in three seconds.
        assert!(!after(&[(0, ping), (3000, ping)], 3300));
    }
}
