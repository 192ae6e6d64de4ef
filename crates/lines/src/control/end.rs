//! The local end of a line.

use super::{LineEffect, Lines, number};
use crate::health::Fault;
use plane::LineId;
use std::time::Instant;

/// The host's facts about a line's device, or about the interface that has its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineFacts {
    /// Index of the device.
    pub ifindex: u32,
    /// The device is up and has a carrier.
    pub running: bool,
    /// The device has an address from which other networks can be reached, or the one to which the line is bound.
    pub addressed: bool,
}

impl LineFacts {
    /// The line's fault, if it has one.
    pub const fn fault(self) -> Option<Fault> {
        match self {
            Self { running: false, .. } => Some(Fault::NoCarrier),
            Self {
                addressed: false, ..
            } => Some(Fault::NoAddress),
            _ => None,
        }
    }
}

/// The local end of a line.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) facts: Option<LineFacts>,
    pub(super) fault: Option<Fault>,
    pub(super) sockets: Sockets,
    /// Why the last attempt to open the sockets failed.
    pub(super) refused: Option<String>,
}

/// The state of a line's sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sockets {
    /// No sockets; the time is the earliest next attempt.
    Closed(Option<Instant>),
    Asked,
    Open,
}

impl Lines {
    /// Takes the host's facts about the lines, in order; `None` for a line without a device. `bound` is the port and
    /// the mark for sockets; without it, none are opened.
    pub fn read(
        &mut self,
        facts: &[Option<LineFacts>],
        bound: Option<(u16, u32)>,
        now: Instant,
        out: &mut Vec<LineEffect>,
    ) {
        for at in 0..self.ends.len() {
            let facts = facts.get(at).copied().flatten();
            self.read_one(number(at), facts, bound, now, out);
        }
    }

    fn read_one(
        &mut self,
        line: LineId,
        facts: Option<LineFacts>,
        bound: Option<(u16, u32)>,
        now: Instant,
        out: &mut Vec<LineEffect>,
    ) {
        let index = |facts: Option<LineFacts>| facts.map(|facts| facts.ifindex);
        let Some(end) = self.ends.get_mut(line.index()) else {
            return;
        };
        // Sockets are bound to a device's index, not to its name.
        let replaced = index(end.facts) != index(facts);
        end.facts = facts;
        let fault = facts.map_or(Some(Fault::NoDevice), LineFacts::fault);
        let fault = fault.or_else(|| self.relays.fault(line));
        if end.fault != fault {
            end.fault = fault;
            for peer in self.peers.values_mut() {
                peer.fault(line, fault);
            }
        }
        if replaced {
            self.close(line, now, out);
        }
        let Some(end) = self.ends.get_mut(line.index()) else {
            return;
        };
        let closed = matches!(end.sockets, Sockets::Closed(at) if at.is_none_or(|at| at <= now));
        if let Some((port, mark)) = bound
            && fault.is_none()
            && closed
        {
            end.sockets = Sockets::Asked;
            let own = self.settings.lines.get(line.index()).and_then(|it| it.mark);
            let mark = own.unwrap_or(mark);
            out.push(LineEffect::Open { line, port, mark });
        }
    }
}
