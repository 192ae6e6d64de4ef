//! Sends a client's probes.

use std::time::Instant;

use crate::lines::LINES_MAX;
use crate::lines::probe::{Kind, LEN, Probe, ProbeKey};

/// The state of one line.
#[derive(Clone, Copy, Debug, Default)]
struct OfLine {
    /// Number of the last probe, and of the last one answered.
    sent: u64,
    answered: u64,
    token: u64,
}

/// A received answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The line that was probed.
    pub line: u8,
    /// Whether the server accepts packets from the line's address and sends there. If not, send another probe at once
    /// if `again` is set.
    pub accepted: bool,
    /// Whether the server has sent a token that the next probe must repeat.
    pub again: bool,
}

/// State of one call's probes.
#[derive(Debug)]
pub struct Prober {
    key: ProbeKey,
    call_id: u16,
    peer_call_id: u16,
    number: u64,
    lines: [OfLine; LINES_MAX],
    heard: Option<Instant>,
}

impl Prober {
    /// A prober before its first probe.
    #[must_use]
    pub fn new(key: ProbeKey, call_id: u16, peer_call_id: u16) -> Self {
        Self {
            key,
            call_id,
            peer_call_id,
            number: 0,
            lines: [OfLine::default(); LINES_MAX],
            heard: None,
        }
    }

    /// A probe as the payload of an IP packet of protocol 47. `used` is the line for packets that take only one;
    /// `lines` has a bit for each line in use. `None` for an invalid line.
    pub fn probe(&mut self, line: u8, used: u8, lines: u16) -> Option<[u8; LEN]> {
        let of = self.lines.get_mut(usize::from(line))?;
        self.number += 1;
        of.sent = self.number;
        let probe = Probe {
            kind: Kind::Probe,
            line,
            used,
            lines,
            to: self.peer_call_id,
            from: self.call_id,
            number: self.number,
            token: of.token,
        };
        Some(probe.write(&self.key))
    }

    /// Takes a packet from the server. `None` if it is not an answer to a probe, or was received before.
    pub fn answered(&mut self, packet: &[u8], now: Instant) -> Option<Answered> {
        let answer = Probe::read(packet, &self.key)?;
        let Kind::Answer { accepted } = answer.kind else {
            return None;
        };
        let ours = answer.to == self.call_id && answer.from == self.peer_call_id;
        let of = self.lines.get_mut(usize::from(answer.line))?;
        if !ours || answer.number <= of.answered || answer.number > of.sent {
            return None;
        }
        of.answered = answer.number;
        let again = !accepted && of.token != answer.token;
        of.token = answer.token;
        if accepted {
            self.heard = Some(now);
        }
        Some(Answered {
            line: answer.line,
            accepted,
            again,
        })
    }

    /// When the server last confirmed that it accepts our packets.
    #[must_use]
    pub const fn heard(&self) -> Option<Instant> {
        self.heard
    }
}
