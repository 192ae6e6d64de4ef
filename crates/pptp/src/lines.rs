//! Several lines for one call, between two ends that support them. An extension to RFC 2637.
//!
//! A call is known by its ID and its client's address. Here the client has further lines, and sends *probes* on each. A
//! probe is a GRE packet without a sequence number, so a lost one leaves no gap. Its payload is not a PPP frame. The
//! server answers to the address that the probe came from.
//!
//! - Probes and answers are authentic: their key comes from the login ([`ProbeKey`]), like MPPE's keys. So they require
//!   MPPE. An attacker who has broken the login can forge them.
//! - Each probe has a greater number than the one before on its line, so a replayed probe is ignored.
//! - An address takes part after a probe from it has repeated a *token* that the server sent there. A probe relayed
//!   from elsewhere, or with a forged source, costs one answer of its own length.
//!
//! Each probe says which lines the client uses. The server sends the call's packets there, and accepts packets from
//! addresses that take part. The packets themselves stay unauthenticated, as in PPTP.

mod addresses;
mod probe;

use std::time::{Duration, Instant};

use crate::control::CloseReason;

pub use addresses::{ADDRESSES_MAX, ALIVE, Addresses, Probed, Refused};
pub(crate) use probe::call_of;
pub use probe::{Kind, LEN, LINES_MAX, Probe, ProbeKey, is_probe};

/// How long a call without a control connection continues without a probe or an answer.
pub(crate) const SILENT: Duration = Duration::from_secs(30);

/// Time for the first answer to a client that lost the control connection and probes at once: the server may have ended
/// the call.
pub(crate) const UNANSWERED: Duration = Duration::from_secs(5);

/// Time for the first probe to a server that lost it: its client may not have noticed, and one probe may be lost.
pub(crate) const UNASKED: Duration = Duration::from_secs(25);
const _: () = assert!(UNASKED.as_secs() > 2 * TELL.as_secs());

/// Longest interval between a client's probes on the line of its call.
pub const TELL: Duration = Duration::from_secs(10);

/// When a call without a control connection ends. It was lost at `lost`, and its lines were last heard at `heard`.
/// `first` is the time allowed until they are heard again.
pub(crate) fn ends_at(lost: Instant, heard: Option<Instant>, first: Duration) -> Instant {
    match heard {
        Some(heard) if heard > lost => heard + SILENT,
        _ => lost + first,
    }
}

/// Whether a call may continue after its control connection ended for this reason.
pub(crate) const fn outlives(reason: &CloseReason) -> bool {
    matches!(
        reason,
        CloseReason::StreamEnded | CloseReason::EchoTimeOut | CloseReason::NotReading
    )
}

/// The state of one line.
#[derive(Clone, Copy, Debug, Default)]
struct OfLine {
    /// Number of the last probe, and of the last one answered.
    sent: u64,
    answered: u64,
    token: u64,
}

/// An answer from the server.
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
