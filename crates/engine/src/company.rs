//! Whether the packets that come are of more than one flow.
//!
//! A flow that is by itself waits behind itself only, and a shorter queue gains it nothing: what it would lose is throughput.
//! So queues are kept short for as long as there is something else that would have to wait in them.

use crate::clock::{Epoch, Moment};
use crate::gro::Shape;
use crate::slot::Inner;
use std::time::{Duration, Instant};

/// For so long after the last packet of another flow a flow is not by itself: what asks once a second is company.
const LASTS: Duration = Duration::from_secs(2);

/// When packets of more than one flow last came. The worker that writes a batch sets it, and the one that reads the next looks at it.
#[derive(Debug, Default)]
pub(crate) struct Company(Moment);

impl Company {
    /// Whether packets of more than one flow have come of late.
    pub(crate) fn is_there(&self, now: Instant, epoch: Epoch) -> bool {
        let seen = epoch.instant(self.0.millis());
        seen.is_some_and(|seen| now.saturating_duration_since(seen) < LASTS)
    }
}

/// The flow of the packet that was looked at last.
#[derive(Debug, Default)]
pub(crate) struct LastFlow(Option<u32>);

impl LastFlow {
    /// Looks at a batch. A packet that says nothing of its flow (ICMP; any, where packets are not joined) is another than all before it.
    pub(crate) fn follow(
        &mut self,
        batch: &[Inner],
        company: &Company,
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
            company.0.set(epoch.millis(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn one_flow_is_no_company_to_itself_and_two_are_to_each_other() {
        let (company, mut last) = (Company::default(), LastFlow::default());
        let (epoch, now) = (Epoch::new(), Instant::now());
        let mut follow = |batch: &[Inner]| {
            last.follow(batch, &company, now, epoch);
            company.is_there(now, epoch)
        };
        assert!(!follow(&[
            bulk(1),
            packet(Shape::Barrier(1)),
            Inner::Keepalive
        ]));
        assert!(!follow(&[]));
        assert!(!follow(&[Inner::Signal, bulk(1)]));
        assert!(follow(&[bulk(2)]));
        assert!(company.is_there(now + LASTS - Duration::from_millis(2), epoch));
        assert!(!company.is_there(now + LASTS, epoch));
    }

    #[test]
    fn what_says_nothing_of_its_flow_is_another() {
        let (epoch, now) = (Epoch::new(), Instant::now());
        for batch in [
            &[packet(Shape::Plain)][..],
            &[bulk(1), packet(Shape::Plain), bulk(1)],
        ] {
            let (company, mut last) = (Company::default(), LastFlow::default());
            last.follow(batch, &company, now, epoch);
            assert!(company.is_there(now, epoch));
            let later = now + LASTS;
            last.follow(&[bulk(1)], &company, later, epoch);
            assert!(
                !company.is_there(later, epoch),
                "the flow that was there before"
            );
        }
    }
}
