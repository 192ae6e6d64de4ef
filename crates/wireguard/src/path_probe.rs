//! How long packets to a peer may be, found out by asking it: datagram packetization layer path MTU discovery (RFC
//! 8899), as a machine without I/O.
//!
//! A probe is an echo request of some length to an address of the peer inside the tunnel, sealed and sent with
//! fragmentation forbidden. An answer shows that the length passes. A missing answer shows nothing by itself: the peer
//! may not answer at all, or short requests only, and packets get lost. So every long probe goes with a short one. A
//! length counts as too long once short probes were answered [`TRIES`] times and the long ones beside them were not.
//! Nothing is concluded unless some useful length was answered.
//!
//! A found length is a multiple of [`RESOLUTION`], unless the longest of all passes. A peer pads its packets to such a
//! multiple, up to its own MTU (the WireGuard paper, section 5.4.6). Where the peer's interface carries more than ours,
//! its padded answer to any other length that just passes would not pass.

use crate::message::PADDING;
use std::time::{Duration, Instant};

/// Rounds without an answer before something is concluded (MAX_PROBES, RFC 8899, section 5.1.2).
pub const TRIES: u32 = 3;

/// How long to wait for an answer. (PROBE_TIMER, section 5.1.1, has at least 1 second and usually 15 seconds; [`TRIES`]
/// rounds take less than that.)
pub const ANSWER_TIME: Duration = Duration::from_secs(3);

/// Time after the short probe's answer within which the answer to the long probe beside it counts.
pub const LATE_TIME: Duration = Duration::from_secs(1);

/// Bytes of a short probe, which passes everywhere.
pub const SHORT: u16 = 100;

/// After this the search is done once more, for paths that have become better (PMTU_RAISE_TIMER, section 5.1.1).
pub const RAISE_TIME: Duration = Duration::from_secs(600);

/// After this the length in use is asked for again, for paths that have become worse (CONFIRMATION_TIMER, section
/// 5.1.1).
pub const CONFIRM_TIME: Duration = Duration::from_secs(120);

/// A search ends when the longest length that passes and the shortest that does not are at most this many bytes apart:
/// the multiple to which peers pad.
pub const RESOLUTION: u16 = PADDING as u16;

/// An action for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeEffect {
    /// Send a probe.
    Send {
        /// The number of the probe, which its answer repeats.
        number: u64,
        /// Bytes of the inner packet.
        len: u16,
    },
    /// Packets to this peer may have this many bytes.
    Use(u16),
}

/// What is known about the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knowledge {
    /// The path was not probed yet.
    Unknown,
    /// Lengths are being tried.
    Searching,
    /// Packets of this many bytes pass.
    Found(u16),
    /// Only short probes are answered. This tells more about the answering host than about the path, so nothing is
    /// concluded.
    OnlyShort,
    /// The peer does not answer even short probes, and nothing is concluded.
    Silent,
}

/// The probes in flight.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// The numbers of the short and of the long probe.
    short: u64,
    long: u64,
    len: u16,
    short_answered: bool,
    due: Instant,
}

/// The search for one peer. The owner carries out its effects, and calls [expire](PathProbe::expire) no later than at
/// [`PathProbe::next_deadline`]; nothing is due without traffic.
#[derive(Clone, Debug)]
pub struct PathProbe {
    /// The smallest useful length in bytes, and the longest.
    least: u16,
    most: u16,
    /// `low` passes, or is the smallest useful length while no length is known to pass. `high` is the longest length
    /// not known to fail.
    low: u16,
    high: u16,
    /// A probe of length `low` was answered.
    passed: bool,
    knowledge: Knowledge,
    round: Option<Round>,
    /// Rounds of this length in which only the short probe was answered, and rounds in which neither probe was.
    long_lost: u32,
    both_lost: u32,
    next_number: u64,
    /// When to probe the length in use again, and when to probe longer ones.
    confirm: Option<Instant>,
    raise: Option<Instant>,
}

impl PathProbe {
    /// A search between `least` and `most` bytes. Probes are numbered from `first` on.
    #[must_use]
    pub fn new(least: u16, most: u16, first: u64) -> Self {
        Self {
            least,
            most: most.max(least),
            low: least,
            high: most.max(least),
            passed: false,
            knowledge: Knowledge::Unknown,
            round: None,
            long_lost: 0,
            both_lost: 0,
            next_number: first,
            confirm: None,
            raise: None,
        }
    }

    /// What is known about the path.
    #[must_use]
    pub fn knowledge(&self) -> Knowledge {
        self.knowledge
    }

    /// When the wait for an answer ends.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.round.map(|round| round.due)
    }

    /// Whether exactly one round has lost its long probe: a path MTU that the kernel has learned meanwhile may be the
    /// reason.
    #[must_use]
    pub fn doubts(&self) -> bool {
        self.long_lost == 1
    }

    /// Records that the tunnel has traffic in both directions. Call it a few times a minute then, and only then.
    pub fn traffic(&mut self, now: Instant, out: &mut Vec<ProbeEffect>) {
        if self.round.is_some() || self.most == self.least {
            return;
        }
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if self.knowledge == Knowledge::Unknown || is_due(self.raise) {
            self.knowledge = match self.knowledge {
                Knowledge::Found(len) => Knowledge::Found(len),
                _ => Knowledge::Searching,
            };
            (self.raise, self.confirm) = (None, None);
            (self.low, self.high, self.passed) = (self.least, self.most, false);
            // The longest first: it passes nearly always.
            self.ask(self.most, now, out);
        } else if let (Knowledge::Found(len), true) = (self.knowledge, is_due(self.confirm)) {
            (self.low, self.high, self.passed) = (self.least, len, false);
            self.ask(len, now, out);
        }
    }

    /// Takes the answer to a probe. Unknown numbers and late answers to short probes change nothing.
    pub fn answered(&mut self, number: u64, now: Instant, out: &mut Vec<ProbeEffect>) {
        let Some(round) = &mut self.round else {
            return;
        };
        if number == round.short {
            round.short_answered = true;
            round.due = round.due.min(now + LATE_TIME);
        } else if number == round.long {
            let len = round.len;
            (self.low, self.passed) = (len, true);
            self.go_on(now, out);
        }
    }

    /// Records that this host itself refused to send the probe, which is too long for the device.
    pub fn refused(&mut self, number: u64, now: Instant, out: &mut Vec<ProbeEffect>) {
        if let Some(round) = self.round.filter(|round| round.long == number) {
            self.high = round.len - 1;
            self.go_on(now, out);
        }
    }

    /// Ends the round if the [deadline](Self::next_deadline) has come.
    pub fn expire(&mut self, now: Instant, out: &mut Vec<ProbeEffect>) {
        let Some(round) = self.round.filter(|round| round.due <= now) else {
            return;
        };
        match round.short_answered {
            true => self.long_lost += 1,
            false => self.both_lost += 1,
        }
        if self.long_lost >= TRIES {
            self.high = round.len - 1;
            self.go_on(now, out);
        } else if self.both_lost >= TRIES {
            self.give_up(Knowledge::Silent, now);
        } else {
            self.ask_again(round.len, now, out);
        }
    }

    /// Continues the search in the narrower range.
    fn go_on(&mut self, now: Instant, out: &mut Vec<ProbeEffect>) {
        self.round = None;
        if self.high < self.least {
            return self.give_up(Knowledge::OnlyShort, now);
        }
        if self.high - self.low < RESOLUTION || self.low >= self.high {
            if !self.passed {
                // Only short probes were answered.
                return self.ask(self.least, now, out);
            }
            let found = self.low.min(self.most);
            if self.knowledge != Knowledge::Found(found) {
                out.push(ProbeEffect::Use(found));
            }
            self.knowledge = Knowledge::Found(found);
            return self.rest(now);
        }
        let middle = whole(self.low + (self.high - self.low).div_ceil(2));
        // `low` and `high` are at least one multiple apart.
        let len = if middle > self.low {
            middle
        } else {
            whole(self.high)
        };
        self.ask(len, now, out);
    }

    /// Ends the search without a result. An earlier result stays in use.
    fn give_up(&mut self, knowledge: Knowledge, now: Instant) {
        self.round = None;
        if !matches!(self.knowledge, Knowledge::Found(_)) {
            self.knowledge = knowledge;
        }
        self.rest(now);
    }

    fn rest(&mut self, now: Instant) {
        self.confirm = Some(now + CONFIRM_TIME);
        self.raise.get_or_insert(now + RAISE_TIME);
    }

    fn ask(&mut self, len: u16, now: Instant, out: &mut Vec<ProbeEffect>) {
        (self.long_lost, self.both_lost) = (0, 0);
        self.ask_again(len, now, out);
    }

    fn ask_again(&mut self, len: u16, now: Instant, out: &mut Vec<ProbeEffect>) {
        let short = self.next_number;
        let long = short + 1;
        self.next_number += 2;
        self.round = Some(Round {
            short,
            long,
            len,
            short_answered: false,
            due: now + ANSWER_TIME,
        });
        out.push(ProbeEffect::Send {
            number: short,
            len: SHORT,
        });
        out.push(ProbeEffect::Send { number: long, len });
    }
}

/// The longest length up to this one that needs no padding.
fn whole(len: u16) -> u16 {
    len - len % RESOLUTION
}

#[cfg(test)]
mod tests;
