//! Active queue management (RFC 7567) for packets waiting in the sockets: tells TCP to slow down before packets wait
//! for long.
//!
//! A socket's buffer is bounded in bytes. Bytes that last a fast machine a millisecond last a slow one a tenth of a
//! second. A buffer short enough for both would lose the bursts that arrive while the scheduler runs another process.
//! So the buffer stays long, and this module bounds the average time that packets wait in it.
//!
//! CoDel (RFC 8289) uses the shortest wait of an interval. That does not work here. Where sender, receiver and this
//! process share cores, the queue is empty every few milliseconds and megabytes long in between. So this module uses
//! the mean wait, weighted by bytes. The control law is CoDel's: one signal per interval, more often the longer signals
//! do not help, and only to packets that waited too long themselves.
//!
//! A flow without cross traffic gets no signals. Only TCP is signalled to: an ECN-capable segment is marked, any other
//! segment is dropped. UDP datagrams keep the whole buffer.
//!
//! Cross traffic ([`CrossTraffic`]): whether the arriving packets belong to more than one flow. A single flow waits
//! only behind its own packets. A shorter queue would cost it throughput and gain it nothing. So queues are kept short
//! only while other traffic would have to wait in them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::clock::{Epoch, Moment};
use crate::gro::Shape;
use crate::slot::Inner;

/// The shortest target for the mean wait. Shorter waits are scheduler noise, and mean smaller batches. A stream whose
/// ends share two cores loses a tenth of its throughput with 0.5 ms and an interval of 20 ms. It loses three hundredths
/// with the values here.
const TARGET_MIN: Duration = Duration::from_micros(750);
/// The longest target: CoDel's, which lets TCP fill a line at the round-trip times of the Internet.
const TARGET_MAX: Duration = Duration::from_millis(5);
/// Between those targets, bytes that may wait on average: enough for a TCP window to stay open over its own swings.
const TARGET_BYTES: u64 = 400_000;

/// An interval is this many targets long (RFC 8289 section 4.3), within the limits below: as long as senders need to
/// answer.
const INTERVAL: u32 = 20;
const INTERVAL_MIN: Duration = Duration::from_millis(50);
const INTERVAL_MAX: Duration = Duration::from_millis(100);

/// Number of signals in a row after which signals come no faster: an interval then has five.
///
/// CoDel's law has no such bound, because it drops the packets that fill the queue. Here UDP passes. If UDP fills the
/// queue, no signal helps. The few TCP segments between would then get all signals, in the end one in every batch. An
/// interval is the time that a sender needs to answer (RFC 8289 section 4.3). So more than one signal per interval
/// helps only with several senders.
const IN_A_ROW: u32 = 24;

/// Signals go to at most one in this many batches that waited too long. If a slow machine takes 20 ms for a batch, each
/// batch would otherwise get a signal, despite [`IN_A_ROW`].
const BATCHES: u32 = 4;

/// Measures how long packets have waited, and decides when to signal.
#[derive(Debug, Default)]
pub(crate) struct Aqm {
    /// When the current interval began.
    began: Option<Instant>,
    bytes: u64,
    /// Sum over all bytes of the microseconds that each has waited.
    waited: u64,
    /// Signals in a row that reached a sender, up to [`IN_A_ROW`].
    signals: u32,
    /// Whether the previous interval exceeded the target and its signal is still to come.
    owed: bool,
    /// Batches that have waited for too long since the last signal, up to [`BATCHES`].
    since: u32,
    /// Mean wait in the previous interval.
    mean: Duration,
    target: Duration,
}

impl Aqm {
    /// Records that `bytes` were read, the last after waiting for `waited`; `several` if they belong to [several
    /// flows](CrossTraffic). Returns whether to signal. `told` says whether a signal reached a sender since the last
    /// call.
    pub(crate) fn note(
        &mut self,
        now: Instant,
        waited: Duration,
        bytes: u64,
        several: bool,
        told: &AtomicBool,
    ) -> bool {
        let began = *self.began.get_or_insert(now);
        self.bytes += bytes;
        let micros = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.waited = self.waited.saturating_add(micros.saturating_mul(bytes));
        self.judge(now, now.saturating_duration_since(began), several, told);
        // The mean covers bursts and the pauses between them. Packets that came in a pause have not waited, so they get
        // no signal.
        if waited <= self.target {
            return false;
        }
        self.since = (self.since + 1).min(BATCHES);
        let signals = self.owed && self.since == BATCHES;
        if signals {
            (self.owed, self.since) = (false, 0);
        }
        signals
    }

    /// Ends the interval if it is over, and decides whether its packets waited too long.
    fn judge(&mut self, now: Instant, elapsed: Duration, several: bool, told: &AtomicBool) {
        if elapsed < INTERVAL_MIN / (self.signals + 1).isqrt() {
            return;
        }
        let target = self.target(elapsed);
        let interval = (target * INTERVAL).clamp(INTERVAL_MIN, INTERVAL_MAX);
        if elapsed < interval / (self.signals + 1).isqrt() {
            return;
        }
        self.target = target;
        self.mean = Duration::from_micros(self.waited.checked_div(self.bytes).unwrap_or(0));
        // After a pause, the wait says nothing about a standing queue.
        self.owed = several && self.mean > target && elapsed < 2 * interval;
        self.signals = match (self.owed, told.swap(false, Ordering::Relaxed)) {
            (true, true) => (self.signals + 1).min(IN_A_ROW),
            (true, false) => self.signals,
            (false, _) => self.signals / 2,
        };
        (self.began, self.bytes, self.waited) = (Some(now), 0, 0);
    }

    /// The mean wait allowed at the present rate.
    fn target(&self, elapsed: Duration) -> Duration {
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        let time = TARGET_BYTES.saturating_mul(micros).checked_div(self.bytes);
        time.map_or(TARGET_MAX, Duration::from_micros)
            .clamp(TARGET_MIN, TARGET_MAX)
    }

    /// Mean wait of packets, weighted by bytes, in the last complete interval.
    pub(crate) fn mean(&self) -> Duration {
        self.mean
    }
}

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
    use std::time::Duration;

    use super::*;

    /// The last signal reached a segment.
    fn told() -> AtomicBool {
        AtomicBool::new(true)
    }

    /// Reads 64 KB every `each` microseconds for a second, with a TCP segment in each batch. Returns the number of
    /// signals.
    fn a_second(aqm: &mut Aqm, start: Instant, each: u64, waited: impl Fn(u64) -> u64) -> u32 {
        let mut signals = 0;
        for at in (0..1_000_000).step_by(each as usize) {
            let now = start + Duration::from_micros(at);
            let waited = Duration::from_micros(waited(at));
            signals += u32::from(aqm.note(now, waited, 65_536, true, &told()));
        }
        signals
    }

    #[test]
    fn a_queue_that_is_long_on_average_is_signalled_although_it_is_empty_in_between() {
        let (mut aqm, start) = (Aqm::default(), Instant::now());
        // 650 MB/s: a target of 0.75 ms. Every 4 ms a burst that has waited for up to 3 ms.
        let bursts = |at: u64| (at % 4000).saturating_sub(1000);
        assert!(a_second(&mut aqm, start, 100, bursts) > 40);
        assert!(aqm.mean() > Duration::from_micros(700), "{:?}", aqm.mean());
        let later = start + Duration::from_secs(1);
        let short = |at: u64| (at % 4000) / 8;
        // One signal may remain from the earlier waits.
        assert!(a_second(&mut aqm, later, 100, short) <= 1);
        assert!(aqm.mean() < Duration::from_micros(300));
    }

    #[test]
    fn a_slow_machine_may_have_a_longer_queue_and_not_a_very_long_one() {
        let start = Instant::now();
        // At 65 MB/s, the target is its maximum of 5 ms.
        for (waited, signalled) in [(3000, false), (4900, false), (5100, true), (80_000, true)] {
            let signals = a_second(&mut Aqm::default(), start, 1000, |_| waited);
            assert_eq!(signals > 0, signalled, "{waited} µs: {signals}");
        }
    }

    #[test]
    fn signals_come_faster_while_they_do_not_help_and_slower_when_they_did() {
        let (mut aqm, start) = (Aqm::default(), Instant::now());
        let first = a_second(&mut aqm, start, 1000, |_| 50_000);
        let second = a_second(&mut aqm, start + Duration::from_secs(1), 1000, |_| 50_000);
        assert!(first >= 10 && second > first, "{first}, {second}");
        let third = a_second(&mut aqm, start + Duration::from_secs(2), 1000, |_| 0);
        // One signal may remain from the earlier waits.
        assert!(third <= 1, "{third}");
        let again = a_second(&mut aqm, start + Duration::from_secs(3), 1000, |_| 50_000);
        assert!(again < second, "{again}, {second}");
    }

    #[test]
    fn a_flow_that_is_by_itself_waits_for_as_long_as_it_likes_and_begins_anew_beside_others() {
        let (mut aqm, start) = (Aqm::default(), Instant::now());
        let wait = Duration::from_millis(50);
        let mut note = |millis, several| {
            let now = start + Duration::from_millis(millis);
            aqm.note(now, wait, 65_536, several, &told())
        };
        assert!(!(0..5000).any(|at| note(at, false)));
        let signals = (5000..6000).filter(|at| note(*at, true)).count();
        assert!((10..30).contains(&signals), "{signals}");
        assert_eq!(aqm.mean(), wait);
    }

    #[test]
    fn one_late_packet_after_a_pause_is_no_queue() {
        let (mut aqm, start) = (Aqm::default(), Instant::now());
        for second in 0..10 {
            let now = start + Duration::from_secs(second);
            assert!(!aqm.note(now, Duration::from_millis(40), 65_536, true, &told()));
        }
    }

    #[test]
    fn where_signals_do_not_help_most_batches_have_none_however_long_that_lasts() {
        let (mut aqm, start) = (Aqm::default(), Instant::now());
        let mut last = 0;
        for second in 0..300 {
            let now = start + Duration::from_secs(second);
            // 1,000 batches.
            last = a_second(&mut aqm, now, 1000, |_| 50_000);
        }
        assert!((40..=50).contains(&last), "{last}");
    }

    #[test]
    fn a_machine_that_takes_long_for_a_batch_does_not_signal_to_each() {
        let (mut aqm, start) = (Aqm::default(), Instant::now());
        for minute in 0..5 {
            let now = start + Duration::from_secs(60 * minute);
            let mut signals = 0;
            // 2,400 batches.
            for at in (0..60_000).step_by(25) {
                let now = now + Duration::from_millis(at);
                let wait = Duration::from_millis(100);
                signals += u32::from(aqm.note(now, wait, 65_536, true, &told()));
            }
            assert!((500..=600).contains(&signals), "{signals}");
        }
    }

    #[test]
    fn signals_that_reach_no_sender_come_no_faster() {
        let (mut aqm, start) = (Aqm::default(), Instant::now());
        let wait = Duration::from_millis(50);
        let mut signals = 0;
        for at in 0..60_000 {
            let now = start + Duration::from_millis(at);
            signals += u32::from(aqm.note(now, wait, 65_536, true, &AtomicBool::new(false)));
        }
        assert!((590..=600).contains(&signals), "{signals}");
        // Signals start at the slowest rate, because none of the earlier ones reached a sender.
        let now = start + Duration::from_secs(60);
        let first = a_second(&mut aqm, now, 1000, |_| 50_000);
        assert!(first < 30, "{first}");
    }

    #[test]
    fn only_a_batch_that_has_itself_waited_is_signalled_to() {
        let (mut aqm, start) = (Aqm::default(), Instant::now());
        // Every 4 ms a batch has waited for 40 ms; the others, even those at the intervals' ends, have not waited.
        let waited = |at: u64| if at % 4 == 3 { 40 } else { 0 };
        let mut signals = 0;
        for at in 0..2_000 {
            let (now, waited) = (start + Duration::from_millis(at), waited(at));
            let wait = Duration::from_millis(waited);
            if aqm.note(now, wait, 65_536, true, &told()) {
                assert!(waited > 0, "at {at}");
                signals += 1;
            }
        }
        assert!(signals > 40, "{signals}");
        // A pending signal is dropped once the queue is short.
        let mut note = |millis: u64, wait| {
            let now = start + Duration::from_millis(2_000 + millis);
            aqm.note(now, Duration::from_millis(wait), 65_536, true, &told())
        };
        assert!(!(0..1_000).any(|at| note(at, 1)));
        assert!(!note(1_000, 50));
    }

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
