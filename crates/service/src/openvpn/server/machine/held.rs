//! First packets of clients that are answered later.
//!
//! `connect-freq-initial` limits the answers to addresses that are not proven. After a restart all clients come at once, each
//! proves its address one round trip after its answer, and makes room for the next. Were those beyond the limit dropped, they
//! would come again only after 2, 4 and 8 seconds. So they wait, and strangers get no answer more than the limit allows.

use super::Machine;
use crate::inbox::Arrival;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long one waits: then its client has sent another (`tls-timeout`, 2 seconds unless a client is told otherwise).
const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes of those that wait, with what keeping one takes. Without `tls-crypt-v2` there are a thousand to two thousand in it.
const ROOM: usize = 256 << 10;

/// Resets that wait for an answer, the oldest first.
#[derive(Default)]
pub(super) struct Held {
    resets: VecDeque<(Instant, Arrival)>,
    bytes: usize,
}

impl Held {
    /// Keeps one, if there is room.
    fn push(&mut self, arrival: Arrival, now: Instant) -> bool {
        self.forget(now);
        let bytes = size(&arrival);
        let fits = self.bytes + bytes <= ROOM;
        if fits {
            self.bytes += bytes;
            self.resets.push_back((now + PATIENCE, arrival));
        }
        fits
    }

    /// The oldest that still waits.
    fn pop(&mut self, now: Instant) -> Option<Arrival> {
        self.forget(now);
        self.remove()
    }

    fn forget(&mut self, now: Instant) {
        while self.resets.front().is_some_and(|(until, _)| *until <= now) {
            self.remove();
        }
    }

    fn remove(&mut self) -> Option<Arrival> {
        let (_, arrival) = self.resets.pop_front()?;
        self.bytes -= size(&arrival);
        Some(arrival)
    }
}

fn size(arrival: &Arrival) -> usize {
    arrival.bytes.len() + size_of::<(Instant, Arrival)>()
}

impl Machine<'_> {
    /// A reset beyond the limit. Returns whether it waits.
    pub(super) fn hold(&mut self, arrival: Arrival) -> bool {
        self.held.push(arrival, self.now.instant)
    }

    /// Answers those that wait, as far as the limit allows.
    pub(super) fn answer_held(&mut self) {
        let now = self.now.instant;
        while !self.held.resets.is_empty() && self.listener.answers_resets(now) {
            let Some(arrival) = self.held.pop(now) else {
                return;
            };
            self.arrived(arrival);
        }
    }

    /// When those that wait are answered or forgotten, unless something happens before.
    pub(super) fn held_until(&self) -> Option<Instant> {
        let (until, _) = self.held.resets.front()?;
        let opens = self.listener.answers_resets_at();
        Some(opens.map_or(*until, |opens| opens.min(*until)))
    }

    /// Forgets those that have waited too long.
    pub(super) fn forget_held(&mut self) {
        self.held.forget(self.now.instant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plane::{Endpoint, LineId};

    fn reset(length: usize) -> Arrival {
        Arrival {
            from: Endpoint::new(([192, 0, 2, 1], 1194).into()),
            line: LineId::FIRST,
            stream: None,
            bytes: vec![0; length].into(),
        }
    }

    #[test]
    fn they_wait_in_order_and_not_for_long() {
        let start = Instant::now();
        let mut held = Held::default();
        for length in [54, 55, 56] {
            assert!(held.push(reset(length), start));
        }
        assert!(held.push(reset(57), start + PATIENCE / 2));
        let first = held.pop(start).map(|it| it.bytes.len());
        assert_eq!(first, Some(54));
        let later = held.pop(start + PATIENCE).map(|it| it.bytes.len());
        assert_eq!(later, Some(57), "those that came with it are too old");
        assert!(held.pop(start + PATIENCE).is_none());
        assert_eq!(held.bytes, 0);
    }

    #[test]
    fn what_waits_is_bounded() {
        let start = Instant::now();
        let mut held = Held::default();
        let kept = (0..100_000).filter(|_| held.push(reset(100), start));
        let kept = kept.count();
        assert!((1000..3000).contains(&kept), "{kept}");
        assert!(held.bytes <= ROOM);
        assert!(held.push(reset(100), start + PATIENCE));
        assert_eq!(held.resets.len(), 1);
    }
}
