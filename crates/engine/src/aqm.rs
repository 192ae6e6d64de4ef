//! Active queue management (RFC 7567) of what waits in the sockets: TCP is told to send slower before packets wait for long.
//!
//! A socket's buffer is bounded by bytes. Bytes that are a millisecond for a fast machine are a tenth of a second for a slow
//! one, and a buffer that is short enough for both loses the bursts that come while the scheduler runs something else. So the
//! buffer stays long, and what is bounded is how long packets wait in it on average.
//!
//! CoDel (RFC 8289) looks at the shortest wait of an interval. Here that is no measure: where the sender, the receiver and
//! this process share cores the queue is empty every few milliseconds and megabytes long in between. So it is the mean, by
//! bytes. From CoDel is the control law: one signal an interval, more often the longer they do not help.
//!
//! A flow that is by itself is let wait: [`CrossTraffic`].
//!
//! Only TCP is signalled to: an ECN-capable segment is marked, another is dropped. Datagrams of UDP keep the whole buffer.

#[cfg(doc)]
use crate::cross_traffic::CrossTraffic;
use std::time::{Duration, Instant};

/// The shortest wait that is aimed at. Less is noise of the scheduler, and smaller batches: with 0.5 ms and an interval of 20 ms a
/// stream whose ends share two cores is a tenth slower than without this, with what stands here by three hundredths.
const TARGET_MIN: Duration = Duration::from_micros(750);
/// The longest: CoDel's, which leaves TCP with the round trip times of the Internet enough to fill a line.
const TARGET_MAX: Duration = Duration::from_millis(5);
/// Between the two, bytes that may wait on average: what a window of TCP needs to stay open over its own swings.
const TARGET_BYTES: u64 = 400_000;

/// An interval is so many times the target (RFC 8289 section 4.3), within these limits: as long as senders need to answer.
const INTERVAL: u32 = 20;
const INTERVAL_MIN: Duration = Duration::from_millis(50);
const INTERVAL_MAX: Duration = Duration::from_millis(100);

/// Watches how long packets have waited, and says when to signal.
#[derive(Debug, Default)]
pub(crate) struct Aqm {
    /// When the present interval began.
    began: Option<Instant>,
    bytes: u64,
    /// Microseconds that each byte has waited, added up.
    waited: u64,
    /// Signals in a row.
    signals: u32,
    /// Of the interval before this one.
    mean: Duration,
}

impl Aqm {
    /// So many bytes were read, of which the last had waited for so long, and they are of [several flows](CrossTraffic) or of one.
    /// Returns whether to signal.
    pub(crate) fn note(
        &mut self,
        now: Instant,
        waited: Duration,
        bytes: u64,
        several: bool,
    ) -> bool {
        let began = *self.began.get_or_insert(now);
        self.bytes += bytes;
        let micros = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.waited = self.waited.saturating_add(micros.saturating_mul(bytes));
        let elapsed = now.saturating_duration_since(began);
        if elapsed < INTERVAL_MIN / (self.signals + 1).isqrt() {
            return false;
        }
        let target = self.target(elapsed);
        let interval = (target * INTERVAL).clamp(INTERVAL_MIN, INTERVAL_MAX);
        if elapsed < interval / (self.signals + 1).isqrt() {
            return false;
        }
        self.mean = Duration::from_micros(self.waited.checked_div(self.bytes).unwrap_or(0));
        // After a pause what waited says nothing of a queue that stands.
        let over = several && self.mean > target && elapsed < 2 * interval;
        self.signals = match over {
            true => self.signals.saturating_add(1),
            false => self.signals / 2,
        };
        (self.began, self.bytes, self.waited) = (Some(now), 0, 0);
        over
    }

    /// How long packets may wait on average at the present rate.
    fn target(&self, elapsed: Duration) -> Duration {
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        let time = TARGET_BYTES.saturating_mul(micros).checked_div(self.bytes);
        time.map_or(TARGET_MAX, Duration::from_micros)
            .clamp(TARGET_MIN, TARGET_MAX)
    }

    /// How long packets have waited on average, by bytes, in the last interval that is over.
    pub(crate) fn mean(&self) -> Duration {
        self.mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads 64 KB every so many microseconds for a second. Returns the signals.
    fn a_second(aqm: &mut Aqm, start: Instant, each: u64, waited: impl Fn(u64) -> u64) -> u32 {
        let mut signals = 0;
        for at in (0..1_000_000).step_by(each as usize) {
            let now = start + Duration::from_micros(at);
            signals += u32::from(aqm.note(now, Duration::from_micros(waited(at)), 65_536, true));
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
        // Of what had waited before.
        assert!(a_second(&mut aqm, later, 100, short) <= 1);
        assert!(aqm.mean() < Duration::from_micros(300));
    }

    #[test]
    fn a_slow_machine_may_have_a_longer_queue_and_not_a_very_long_one() {
        let start = Instant::now();
        // 65 MB/s: 5 ms and no more.
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
        // Of what had waited before.
        assert!(third <= 1, "{third}");
        let again = a_second(&mut aqm, start + Duration::from_secs(3), 1000, |_| 50_000);
        assert!(again < second, "{again}, {second}");
    }

    #[test]
    fn a_flow_that_is_by_itself_waits_for_as_long_as_it_likes_and_begins_anew_beside_others() {
        let (mut aqm, start) = (Aqm::default(), Instant::now());
        let wait = Duration::from_millis(50);
        let mut note = |millis, several| {
            aqm.note(start + Duration::from_millis(millis), wait, 65_536, several)
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
            assert!(!aqm.note(now, Duration::from_millis(40), 65_536, true));
        }
    }
}
