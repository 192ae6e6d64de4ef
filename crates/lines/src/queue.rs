//! A fair queue of inner flows in front of a line that is the bottleneck.
//!
//! A tunnel hides its flows from every queue behind it: all of them look like one, and a download delays a call by
//! everything that waits in the modem. Where a line's rate is known, packets wait in this queue instead, and it knows
//! the flows. It is FQ-CoDel (RFC 8290): it serves flows in turn, sparse ones first. It drops packets of flows whose
//! queue stands, or marks them if they can be marked (RFC 3168). Where the rate is not known nothing is held back, and
//! [`Queue::engaged`] says that packets need not pass through the queue at all.
//!
//! A queue takes packets before they are numbered and sealed, so that a packet it drops leaves no gap.
//!
//! [`Pacer`] computes when a line of a given rate has sent everything that was queued.

use std::time::{Duration, Instant};

use codel::{Head, Parameters};
use flows::{Flows, Waiting};
use plane::Ecn;

use crate::inner::Inner;

mod codel;
mod flows;
#[cfg(test)]
mod tests;

/// Packets that are dropped at once when the queue is full, so that the search for the longest flow is rare (RFC 8290
/// section 4.1).
const DROPPED_AT_ONCE: usize = 64;
/// A packet of full size on most lines.
const FULL_SIZE: usize = 1514;

/// The settings of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The line's rate in bits a second, all headers included. `None` means no limit.
    pub rate: Option<u64>,
    /// The line's rate in bits a second, where a [`Pacer`] limits it instead of the queue.
    pub carries: Option<u64>,
    /// Bytes that each packet costs the line beyond its own length: headers of tunnel, UDP, IP and the link.
    pub overhead: usize,
    /// The number of flows that are told apart.
    pub flows: u16,
    /// Bytes that a flow sends in its turn.
    pub quantum: usize,
    /// Maximum number of packets that wait.
    pub packets_max: usize,
    /// Maximum bytes that wait.
    pub bytes_max: usize,
    /// Accepted standing delay. It grows by itself to the time that one and a half packets take on the line.
    pub target: Duration,
    /// A usual round trip.
    pub interval: Duration,
    /// The time whose bytes may be sent at once after a pause: the amount by which timers are late.
    pub burst: Duration,
}

impl Default for Settings {
    /// The parameters of RFC 8290, with bounds for a router: 1024 flows, 2048 packets or 4 MiB; a quantum of 300 bytes,
    /// which gives small packets their turn sooner on slow lines.
    fn default() -> Self {
        Self {
            rate: None,
            carries: None,
            overhead: 80,
            flows: 1024,
            quantum: 300,
            packets_max: 2048,
            bytes_max: 4 << 20,
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            burst: Duration::from_millis(2),
        }
    }
}

/// Counters of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that were taken out and sent.
    pub sent: u64,
    /// Sent packets that were marked.
    pub marked: u64,
    /// Packets that CoDel dropped.
    pub dropped: u64,
    /// Packets that were dropped because the queue was full.
    pub overflowed: u64,
}

/// A packet whose turn has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Popped<T> {
    /// Removed packet.
    pub packet: T,
    /// Whether the packet's ECN field must be set to *congestion experienced*.
    pub mark: bool,
}

/// The queue in front of one line, of packets of type `T`.
#[derive(Clone, Debug)]
pub struct Queue<T> {
    settings: Settings,
    parameters: Parameters,
    flows: Flows<T>,
    pacer: Pacer,
    counters: Counters,
}

impl<T> Queue<T> {
    /// Creates an empty queue.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            parameters: parameters(&settings),
            flows: Flows::new(settings.flows),
            pacer: Pacer::new(settings.rate, settings.burst),
            counters: Counters::default(),
        }
    }

    /// The line's rate in bits a second, if known.
    #[must_use]
    pub const fn rate(&self) -> Option<u64> {
        self.settings.rate
    }

    /// Whether packets must pass through the queue: the line has a rate, or packets still wait.
    #[must_use]
    pub const fn engaged(&self) -> bool {
        self.settings.rate.is_some() || self.flows.packets() > 0
    }

    /// Sets another rate of the line, and forgets how long the line is busy at the old one.
    pub fn set_rate(&mut self, rate: Option<u64>) {
        self.settings.rate = rate;
        self.pacer.set_rate(rate);
        self.parameters = parameters(&self.settings);
    }

    /// Sets another rate of the line that something other than the queue limits ([`Settings::carries`]).
    pub fn set_carries(&mut self, carries: Option<u64>) {
        self.settings.carries = carries;
        self.parameters = parameters(&self.settings);
    }

    /// Puts a packet in. If there is no room, the first ones of the longest flow are dropped.
    pub fn push(&mut self, packet: T, inner: &Inner, now: Instant) {
        let place = self.flows.place_of(inner.flow);
        let waiting = Waiting {
            packet,
            bytes: inner.length + self.settings.overhead,
            ecn: inner.ecn,
            since: now,
        };
        self.flows.push(place, waiting, self.settings.quantum);
        if self.full() {
            self.drop_from_fattest();
        }
    }

    /// Takes out the next packet, if the line can send one at `now`.
    pub fn pop(&mut self, now: Instant) -> Option<Popped<T>> {
        if !self.pacer.is_idle(now) {
            return None;
        }
        let quantum = self.settings.quantum;
        while let Some(place) = self.flows.turn(quantum) {
            let Some((waiting, mark)) = self.pop_of(place, now) else {
                self.flows.turn_ends(place);
                continue;
            };
            self.flows.charge(place, waiting.bytes);
            self.pacer.occupy(waiting.bytes, now);
            self.counters.sent += 1;
            self.counters.marked += u64::from(mark);
            return Some(Popped {
                packet: waiting.packet,
                mark,
            });
        }
        None
    }

    /// Replaces the estimated cost of the packet that was taken out last by its real cost, `bytes`.
    pub fn settle(&mut self, bytes: usize) {
        self.pacer.settle(bytes);
    }

    /// When the line can send the next waiting packet.
    #[must_use]
    pub fn next_deadline(&self, now: Instant) -> Option<Instant> {
        if self.flows.packets() == 0 {
            return None;
        }
        Some(self.pacer.idle_at().map_or(now, |idle| idle.max(now)))
    }

    /// Packets and bytes that wait; bytes as the line counts them.
    #[must_use]
    pub const fn waiting(&self) -> (usize, usize) {
        (self.flows.packets(), self.flows.bytes())
    }

    /// The counters so far.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Takes the first packet of a flow that CoDel lets through, and says whether to mark it.
    fn pop_of(&mut self, place: u16, now: Instant) -> Option<(Waiting<T>, bool)> {
        loop {
            let waiting = self.flows.pop(place)?;
            let (codel, bytes) = self.flows.codel(place);
            let head = Head {
                sojourn: now.saturating_duration_since(waiting.since),
                short: bytes <= FULL_SIZE,
            };
            if !codel.signals(head, self.parameters, now) {
                return Some((waiting, false));
            }
            if waiting.ecn != Ecn::NotEct {
                return Some((waiting, true));
            }
            self.counters.dropped += 1;
        }
    }

    fn full(&self) -> bool {
        self.flows.packets() > self.settings.packets_max
            || self.flows.bytes() > self.settings.bytes_max
    }

    fn drop_from_fattest(&mut self) {
        let fattest = self.flows.fattest();
        let half = self.flows.bytes_of(fattest) / 2;
        for count in 0.. {
            let enough = count >= DROPPED_AT_ONCE || self.flows.bytes_of(fattest) <= half;
            if enough && !self.full() {
                break;
            }
            if self.flows.pop(fattest).is_none() {
                break;
            }
            self.counters.overflowed += 1;
        }
        // The queue is still full here only if one packet exceeds the whole bound, or the bounds are 0.
        while self.full() && self.flows.packets() > 0 {
            let fattest = self.flows.fattest();
            self.flows.pop(fattest);
            self.counters.overflowed += 1;
        }
    }
}

/// Raises the target on a slow line, where one packet takes longer than that (RFC 8290 section 5.2.2).
fn parameters(settings: &Settings) -> Parameters {
    let carries = settings.rate.or(settings.carries);
    let packet = carries.filter(|rate| *rate > 0).map_or(0, |rate| {
        (FULL_SIZE + settings.overhead) as u64 * 8_000_000_000 / rate
    });
    let target = settings.target.max(Duration::from_nanos(packet * 3 / 2));
    Parameters {
        target,
        interval: settings.interval.max(target),
    }
}

/// Paces the packets sent over one line. Time lost to a late timer may be made up for, up to a bound.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    /// The rate in bits a second; `None` means no limit.
    rate: Option<u64>,
    burst: Duration,
    /// When the line will have sent everything that was queued.
    idle_at: Option<Instant>,
    /// When sending of the last packet begins.
    began: Option<Instant>,
}

impl Pacer {
    /// A line that is idle.
    #[must_use]
    pub const fn new(rate: Option<u64>, burst: Duration) -> Self {
        Self {
            rate,
            burst,
            idle_at: None,
            began: None,
        }
    }

    /// Bits a second.
    #[must_use]
    pub const fn rate(&self) -> Option<u64> {
        self.rate
    }

    /// Sets another rate of the line, and forgets how long the line is busy at the old one.
    pub const fn set_rate(&mut self, rate: Option<u64>) {
        self.rate = rate;
        (self.idle_at, self.began) = (None, None);
    }

    /// When the line can send again; `None` if it was never busy.
    #[must_use]
    pub const fn idle_at(&self) -> Option<Instant> {
        self.idle_at
    }

    /// Whether the line can send now.
    #[must_use]
    pub fn is_idle(&self, now: Instant) -> bool {
        self.idle_at.is_none_or(|idle| idle <= now)
    }

    /// Makes the line busy with this many more bytes.
    #[inline]
    pub fn occupy(&mut self, bytes: usize, now: Instant) {
        if self.rate.is_none_or(|rate| rate == 0) {
            (self.idle_at, self.began) = (None, None);
            return;
        }
        let earliest = now.checked_sub(self.burst).unwrap_or(now);
        let from = self.idle_at.map_or(now, |idle| idle.max(earliest));
        self.began = Some(from);
        self.idle_at = Some(from + self.takes(bytes));
    }

    /// Corrects the size of the last packet to this many bytes.
    pub fn settle(&mut self, bytes: usize) {
        if let Some(began) = self.began {
            self.idle_at = Some(began + self.takes(bytes));
        }
    }

    /// Time in which the line sends `bytes`.
    fn takes(&self, bytes: usize) -> Duration {
        let rate = self.rate.unwrap_or(0).max(1);
        Duration::from_nanos((bytes as u64).saturating_mul(8_000_000_000) / rate)
    }
}
