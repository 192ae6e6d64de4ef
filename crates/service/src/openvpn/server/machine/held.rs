//! Holds clients' first packets that are answered later.
//!
//! `connect-freq-initial` limits answers to unproven addresses, and memory for clients that are not admitted is limited
//! too. After a restart all clients connect at once. Each proves its address one round trip after its answer, shows its
//! certificate, and makes room for the next. Clients whose packets were dropped would return only after 2, 4 and 8
//! seconds, so packets beyond the limits wait. Strangers still get no more answers than the limits allow. Sources with
//! the fewest sessions come first, so a stranger's crowd delays no client.

use super::{Cx, Machine};
use crate::inbox::Arrival;
use crate::shares::Shares;
use plane::SourceNetwork;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long a packet is held: clients repeat it after 2, 4 and 8 seconds.
const PATIENCE: Duration = Duration::from_secs(8);

/// Limit of held packets in bytes, with overhead: two to four thousand packets without `tls-crypt-v2`. One source may
/// use half.
const ROOM: usize = 512 << 10;

/// Held reset packets, the oldest first.
#[derive(Default)]
pub(super) struct Held {
    resets: VecDeque<(Instant, Arrival)>,
    shares: Shares,
}

impl Held {
    /// Holds a packet if there is room.
    fn push(&mut self, arrival: Arrival, now: Instant) {
        self.forget(now);
        let (source, bytes) = (arrival.from.addr.into(), size(&arrival));
        if self.shares.take(source, bytes, ROOM) {
            self.resets.push_back((now + PATIENCE, arrival));
        }
    }

    /// Takes the oldest packet of a source with the lowest rank.
    fn pop(&mut self, now: Instant, rank: impl Fn(SourceNetwork) -> usize) -> Option<Arrival> {
        self.forget(now);
        let ranks = self.resets.iter().map(|(_, it)| rank(it.from.addr.into()));
        let (at, _) = ranks.enumerate().min_by_key(|(_, rank)| *rank)?;
        self.remove(at)
    }

    fn forget(&mut self, now: Instant) {
        while self.resets.front().is_some_and(|(until, _)| *until <= now) {
            self.remove(0);
        }
    }

    fn remove(&mut self, at: usize) -> Option<Arrival> {
        let (_, arrival) = self.resets.remove(at)?;
        let bytes = size(&arrival);
        self.shares.give_back(arrival.from.addr.into(), bytes);
        Some(arrival)
    }
}

fn size(arrival: &Arrival) -> usize {
    arrival.bytes.len() + size_of::<(Instant, Arrival)>()
}

impl Machine<'_> {
    /// Holds a packet that is beyond a limit.
    pub(super) fn hold(&mut self, cx: &mut Cx<'_>, arrival: Arrival) {
        self.held.push(arrival, cx.now.monotonic);
    }

    /// Answers held packets as far as the limits allow.
    pub(super) fn answer_held(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.monotonic;
        while !self.held.resets.is_empty() && self.listener.answers_resets(now) {
            let half_open = self.listener.half_open();
            let rank = |source| half_open.get(&source).copied().unwrap_or(0);
            let Some(arrival) = self.held.pop(now, rank) else {
                return;
            };
            self.arrived(cx, arrival);
        }
    }

    /// When held packets are next answered or dropped, without another event.
    pub(super) fn held_until(&self, now: Instant) -> Option<Instant> {
        let (until, _) = self.held.resets.front()?;
        let opens = self.listener.answers_resets_at(now);
        Some(opens.map_or(*until, |opens| opens.min(*until)))
    }

    /// Drops packets that were held too long.
    pub(super) fn forget_held(&mut self, cx: &mut Cx<'_>) {
        self.held.forget(cx.now.monotonic);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plane::{Endpoint, LineId};

    fn reset(host: u8, length: usize) -> Arrival {
        Arrival {
            from: Endpoint::new(([192, 0, 2, host], 1194).into()),
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
            held.push(reset(1, length), start);
        }
        held.push(reset(1, 57), start + PATIENCE / 2);
        let mut pop = |now| held.pop(now, |_| 0).map(|it| it.bytes.len());
        assert_eq!(pop(start), Some(54));
        let later = pop(start + PATIENCE);
        assert_eq!(later, Some(57), "packets 55 and 56 have expired, like 54");
        assert_eq!(pop(start + PATIENCE), None);
        assert!(held.resets.is_empty());
    }

    #[test]
    fn a_source_that_has_few_sessions_does_not_wait_for_one_that_has_many() {
        let start = Instant::now();
        let mut held = Held::default();
        for length in 50..60 {
            held.push(reset(1, length), start);
        }
        held.push(reset(2, 60), start);
        let stranger = SourceNetwork::from(reset(1, 0).from.addr);
        let mut pop = || held.pop(start, |source| usize::from(source == stranger));
        assert_eq!(pop().map(|it| it.bytes.len()), Some(60));
        assert_eq!(pop().map(|it| it.bytes.len()), Some(50));
    }

    #[test]
    fn a_crowd_that_waits_keeps_no_client_out() {
        let start = Instant::now();
        for crowd in [1, 2, 100] {
            let mut held = Held::default();
            for number in 0..100_000_u32 {
                held.push(reset((number % crowd) as u8, 100), start);
            }
            let kept = held.resets.len();
            assert!((1000..5000).contains(&kept), "{kept}");
            held.push(reset(200, 101), start + PATIENCE / 2);
            let client = SourceNetwork::from(reset(200, 0).from.addr);
            let mut pop = |now| held.pop(now, |source| usize::from(source != client));
            assert_eq!(
                pop(start + PATIENCE / 2).map(|it| it.bytes.len()),
                Some(101)
            );
            assert!(pop(start + PATIENCE / 2).is_some());
            assert!(pop(start + PATIENCE).is_none(), "the others have expired");
        }
    }
}
