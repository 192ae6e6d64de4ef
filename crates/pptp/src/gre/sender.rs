//! Numbers sent packets, and evaluates the peer's acknowledgements (RFC 2637, sections 4.2 and 4.4).
//!
//! The RFC requires a sender to stop when its window is full. Deployed Unix peers and this crate send regardless,
//! because the inner packets have their own congestion control. The window only serves as a measurement, along with the
//! packets in flight and the round-trip time.

use std::time::{Duration, Instant};

/// Time-out before the first measurement (the RFC names no value), and its limits.
const FIRST_TIMEOUT: Duration = Duration::from_secs(1);
const MIN_TIMEOUT: Duration = Duration::from_millis(50);
const MAX_TIMEOUT: Duration = Duration::from_secs(10);

/// The peer acknowledges a packet that was never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer acknowledges packet {0}, which was not sent")]
pub struct BadAcknowledgement(pub u32);

/// The sending state of one call.
#[derive(Debug)]
pub struct Sender {
    next: u32,
    /// The lowest number not yet acknowledged.
    oldest: u32,
    /// Packets sent, a count that does not wrap like `next`.
    total: u64,
    /// The peer's window (`limit`), and the part in use (`window`): half at first.
    limit: u32,
    window: u32,
    /// Packets acknowledged since the window last grew.
    credit: u32,
    /// The packet being timed, and when it was sent.
    timed: Option<(u32, Instant)>,
    round_trip: Option<Duration>,
    deviation: Duration,
    timeout: Duration,
}

impl Sender {
    /// A sender before its first packet. `window` is the peer's receive window, in packets.
    #[must_use]
    pub fn new(window: u16) -> Self {
        let limit = u32::from(window).max(1);
        Self {
            next: 0,
            oldest: 0,
            total: 0,
            limit,
            window: (limit / 2).max(1),
            credit: 0,
            timed: None,
            round_trip: None,
            deviation: Duration::ZERO,
            timeout: FIRST_TIMEOUT,
        }
    }

    /// The number of the packet sent now; the first is 0.
    pub fn number(&mut self, now: Instant) -> u32 {
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.total += 1;
        match self.timed {
            None => self.timed = Some((number, now)),
            Some((_, sent)) if now.saturating_duration_since(sent) >= self.timeout => {
                self.timed_out();
                self.timed = Some((number, now));
            }
            Some(_) => {}
        }
        number
    }

    /// Notes that the peer has received this packet and, as far as it knows, all earlier ones.
    ///
    /// # Errors
    /// [`BadAcknowledgement`], which changes nothing.
    pub fn acknowledged(&mut self, number: u32, now: Instant) -> Result<(), BadAcknowledgement> {
        let news = number.wrapping_sub(self.oldest).wrapping_add(1);
        if news == 0 || news > self.in_flight() {
            // Reordering may repeat an old acknowledgement, which is not an error.
            let age = u64::from(self.oldest.wrapping_sub(number));
            let done = self.total - u64::from(self.in_flight());
            return if age > 0 && age <= done {
                Ok(())
            } else {
                Err(BadAcknowledgement(number))
            };
        }
        self.oldest = number.wrapping_add(1);
        if let Some((timed, sent)) = self.timed
            && number.wrapping_sub(timed) < 1 << 31
        {
            self.measured(now.saturating_duration_since(sent));
            self.timed = None;
        }
        // RFC 2637, section 4.2.3: the window grows by one after a full window without a time-out.
        self.credit = self.credit.saturating_add(news);
        if self.credit >= self.window {
            self.credit = 0;
            self.window = (self.window + 1).min(self.limit);
        }
        Ok(())
    }

    /// Updates mean and deviation (RFC 2637, section 4.4): a new sample weighs an eighth in the mean, a quarter in the
    /// deviation.
    fn measured(&mut self, sample: Duration) {
        let mean = self.round_trip.unwrap_or(sample);
        let error = sample.abs_diff(mean);
        self.deviation = (self.deviation * 3 + error) / 4;
        let mean = (mean * 7 + sample) / 8;
        self.round_trip = Some(mean);
        self.timeout = (mean + self.deviation * 4).clamp(MIN_TIMEOUT, MAX_TIMEOUT);
    }

    /// Handles a time-out (RFC 2637, sections 4.2.3 and 4.4): halves the window, doubles the time-out, counts packets
    /// in flight as lost.
    fn timed_out(&mut self) {
        self.window = self.window.div_ceil(2);
        self.credit = 0;
        self.timeout = (self.timeout * 2).min(MAX_TIMEOUT);
        self.oldest = self.next.wrapping_sub(1);
    }

    /// Sent packets that are neither acknowledged nor given up.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.next.wrapping_sub(self.oldest)
    }

    /// Packets that may be in flight by the RFC; not enforced.
    #[must_use]
    pub const fn window(&self) -> u32 {
        self.window
    }

    /// Mean time until an acknowledgement, which peers delay by up to half a second.
    #[must_use]
    pub const fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_grows_by_one_for_each_window_acknowledged_and_never_beyond_the_peers() {
        let now = Instant::now();
        let mut sender = Sender::new(8);
        assert_eq!(sender.window(), 4);
        for _ in 0..100 {
            let number = sender.number(now);
            sender.acknowledged(number, now).unwrap();
        }
        assert_eq!(sender.window(), 8);
        assert_eq!(sender.in_flight(), 0);
    }

    #[test]
    fn a_time_out_halves_the_window_and_forgets_what_was_in_flight() {
        let now = Instant::now();
        let mut sender = Sender::new(64);
        for _ in 0..10 {
            sender.number(now);
        }
        assert_eq!(sender.in_flight(), 10);
        sender.number(now + FIRST_TIMEOUT);
        assert_eq!((sender.window(), sender.in_flight()), (16, 1));
    }

    #[test]
    fn the_round_trip_is_measured() {
        let (now, delay) = (Instant::now(), Duration::from_millis(40));
        let mut sender = Sender::new(64);
        for _ in 0..20 {
            let number = sender.number(now);
            sender.acknowledged(number, now + delay).unwrap();
        }
        assert_eq!(sender.round_trip(), Some(delay));
    }

    #[test]
    fn what_was_never_sent_is_not_acknowledged() {
        let now = Instant::now();
        let mut sender = Sender::new(64);
        assert_eq!(sender.acknowledged(0, now), Err(BadAcknowledgement(0)));
        for _ in 0..3 {
            sender.number(now);
        }
        for number in [3, 1 << 31, u32::MAX] {
            let found = sender.acknowledged(number, now);
            assert_eq!(found, Err(BadAcknowledgement(number)));
        }
        sender.acknowledged(2, now).unwrap();
        sender.acknowledged(1, now).unwrap();
        assert_eq!(sender.in_flight(), 0);
    }
}
