//! Numbers of sent packets, and what the peer's acknowledgements tell (RFC 2637, sections 4.2 and 4.4).
//!
//! The RFC would have a sender stop when its window is full. All deployed Unix peers send regardless, as the packets
//! inside have a congestion control of their own; so does this crate. The window is kept as a figure: how much is in
//! flight, and how far away the peer is.

use std::time::{Duration, Instant};

/// The time-out before anything was measured (the RFC names no value), and its limits.
const FIRST_TIMEOUT: Duration = Duration::from_secs(1);
const MIN_TIMEOUT: Duration = Duration::from_millis(50);
const MAX_TIMEOUT: Duration = Duration::from_secs(10);

/// The peer acknowledges what was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer acknowledges packet {0}, which was not sent")]
pub struct BadAcknowledgement(pub u32);

/// The state of sending for one call.
#[derive(Debug)]
pub struct Sender {
    next: u32,
    /// The first number that was not acknowledged.
    oldest: u32,
    /// Packets sent: `next` without its wrapping.
    total: u64,
    /// The peer's window, and how much of it may be used: half at first.
    limit: u32,
    window: u32,
    /// Acknowledged since the window last grew.
    credit: u32,
    /// A packet whose acknowledgement is being timed.
    timed: Option<(u32, Instant)>,
    round_trip: Option<Duration>,
    deviation: Duration,
    timeout: Duration,
}

impl Sender {
    /// Nothing sent; the peer takes `window` packets without having acknowledged them.
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

    /// The number of the packet that is sent now; the first has 0.
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

    /// The peer has received this packet and, as far as it knows, those before it.
    ///
    /// # Errors
    /// [`BadAcknowledgement`], which changes nothing.
    pub fn acknowledged(&mut self, number: u32, now: Instant) -> Result<(), BadAcknowledgement> {
        let news = number.wrapping_sub(self.oldest).wrapping_add(1);
        if news == 0 || news > self.in_flight() {
            // An old one once more, which reordering brings about, is no fault.
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
        // RFC 2637, section 4.2.3: one more after a window without a time-out.
        self.credit = self.credit.saturating_add(news);
        if self.credit >= self.window {
            self.credit = 0;
            self.window = (self.window + 1).min(self.limit);
        }
        Ok(())
    }

    /// RFC 2637, section 4.4: an eighth of what is new counts for the mean, a quarter for the deviation.
    fn measured(&mut self, sample: Duration) {
        let mean = self.round_trip.unwrap_or(sample);
        let error = sample.abs_diff(mean);
        self.deviation = (self.deviation * 3 + error) / 4;
        let mean = (mean * 7 + sample) / 8;
        self.round_trip = Some(mean);
        self.timeout = (mean + self.deviation * 4).clamp(MIN_TIMEOUT, MAX_TIMEOUT);
    }

    /// RFC 2637, sections 4.2.3 and 4.4: the window is halved, the time-out doubled; what is in flight counts as lost.
    fn timed_out(&mut self) {
        self.window = self.window.div_ceil(2);
        self.credit = 0;
        self.timeout = (self.timeout * 2).min(MAX_TIMEOUT);
        self.oldest = self.next.wrapping_sub(1);
    }

    /// Packets that were sent and neither acknowledged nor given up.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.next.wrapping_sub(self.oldest)
    }

    /// How many may be in flight by the RFC; not enforced.
    #[must_use]
    pub const fn window(&self) -> u32 {
        self.window
    }

    /// The mean time until an acknowledgement, which peers delay by up to half a second.
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
