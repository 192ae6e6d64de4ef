//! The lines of an interface, and those of its peers.

use super::effect::{Effect, PlaneRequest};
use super::machine::{Machine, Turn};
use crate::lines::{LineEffect, LineFacts, LineReport, LineUsage, Lines, TheirLines};
use config::lines::Lines as Settings;
use plane::{Endpoint, Line, LineId, Moving, PeerId};
use std::time::Instant;
use wireguard::Output;

impl Machine {
    /// Sets the lines of the interface. Call it before [`Event::Start`](super::Event::Start). Without lines,
    /// behaviour is unchanged.
    pub fn set_lines(&mut self, settings: &Settings) {
        let several = !settings.lines.is_empty();
        self.lines = several.then(|| Box::new(Lines::new(settings.clone())));
        self.theirs = TheirLines::new(settings);
    }

    /// Restores the bytes that the uplinks had carried before the program started.
    pub fn restore_lines(&mut self, usage: &[LineUsage]) {
        if let Some(lines) = &mut self.lines {
            lines.restore(usage);
        }
    }

    /// Opens the lines anew, each once its device exists. Returns `false` without lines.
    pub(super) fn bind_lines(&mut self, turn: &mut Turn<'_>) -> bool {
        self.name_relays(turn.now.monotonic);
        self.with_lines(turn, |lines, turn, out| lines.bind(turn.now.monotonic, out))
    }

    /// Closes all lines. Returns `false` without lines.
    pub(super) fn close_lines(&mut self, turn: &mut Turn<'_>) -> bool {
        self.with_lines(turn, |lines, turn, out| {
            lines.close_all(turn.now.monotonic, out);
        })
    }

    /// Reads the facts of the lines again, as the host's devices or addresses have changed.
    pub(super) fn links_changed(&self, turn: &mut Turn<'_>) {
        if self.lines.is_some() {
            turn.effects.push(Effect::ReadLines);
        }
    }

    /// Takes the host's facts about the uplinks, in order; `None` where the device is missing.
    pub(super) fn lines_read(&mut self, facts: &[Option<LineFacts>], turn: &mut Turn<'_>) {
        let mark = self.mark;
        let bound = self.bound.map(|port| (port, mark));
        self.with_lines(turn, |lines, turn, out| {
            lines.read(facts, bound, turn.now.monotonic, out);
            look(lines, turn, out);
        });
    }

    /// Takes the bytes that each uplink has carried.
    pub(super) fn lines_counted(&mut self, carried: &[u64], turn: &mut Turn<'_>) {
        self.with_lines(turn, |lines, turn, out| {
            if lines.counted(carried, turn.now, out) {
                look(lines, turn, out);
            }
        });
    }

    /// Handles the result of [`Effect::OpenLine`].
    pub(super) fn line_opened(
        &mut self,
        line: LineId,
        result: Result<u16, String>,
        turn: &mut Turn<'_>,
    ) {
        if let (Some(0), Ok(port)) = (self.bound, &result) {
            self.bound = Some(*port);
        }
        self.with_lines(turn, |lines, turn, out| {
            lines.opened(line, result, turn.now.monotonic, out);
            look(lines, turn, out);
        });
    }

    /// Sets the configured address of a peer.
    pub(super) fn call_by_lines(&mut self, id: PeerId, to: Endpoint, turn: &mut Turn<'_>) {
        let several = self.with_lines(turn, |lines, turn, out| {
            lines.call(id, to.addr, out);
            look(lines, turn, out);
        });
        if !several {
            turn.plane(PlaneRequest::SetLine(id, Line::udp(to)));
        }
    }

    /// Handles an authentic handshake message of a peer.
    pub(super) fn heard_by_line(&mut self, id: PeerId, from: Line, turn: &mut Turn<'_>) {
        turn.plane(PlaneRequest::SetLine(id, from));
        self.with_lines(turn, |lines, turn, out| {
            lines.heard(id, from.id, turn.now.monotonic, out);
        });
    }

    /// Notes an initiation on the line in use, which the peer answers like a probe.
    pub(super) fn asked_by_line(&mut self, id: PeerId, now: Instant) {
        if let Some(lines) = &mut self.lines {
            lines.asked(id, now);
        }
    }

    /// Forgets a removed peer.
    pub(super) fn forget_lines(&mut self, id: PeerId) {
        if let Some(lines) = &mut self.lines {
            lines.forget(id);
        }
    }

    /// When the lines are looked at next.
    pub(super) fn lines_due(&self) -> Option<Instant> {
        self.lines.as_ref()?.due()
    }

    /// Looks at the lines, if it is time.
    pub(super) fn lines_expire(&mut self, turn: &mut Turn<'_>) {
        if self.lines_due().is_some_and(|at| at <= turn.now.monotonic) {
            self.with_lines(turn, |lines, turn, out| {
                lines.expire(turn.now.monotonic, out);
                look(lines, turn, out);
            });
        }
    }

    /// The lines of a peer; empty without lines, or for a peer that calls and is not called.
    #[must_use]
    pub fn line_reports(&self, id: PeerId) -> Vec<LineReport> {
        let lines = self.lines.as_ref();
        lines.map_or_else(Vec::new, |lines| lines.reports(id))
    }

    /// Adds a new peer to the data plane.
    pub(super) fn add_by_lines(&self, id: PeerId, turn: &mut Turn<'_>) {
        let moving = match self.theirs.gathered {
            Some(_) => Moving::Gather,
            None => Moving::Tell,
        };
        turn.plane(PlaneRequest::AddPeer(id, moving));
        if let Some(mode) = self.theirs.gathered {
            turn.plane(PlaneRequest::SetLineMode(id, mode));
        }
        if self.theirs.reorder {
            turn.plane(PlaneRequest::Reorder(id));
        }
    }

    /// Whether the answer to a handshake goes back by the line and address it came from, and not to where the peer was
    /// last heard. So the peer learns that this line works.
    pub(super) const fn answers_by_line(&self) -> bool {
        self.lines.is_some() || self.theirs.gathered.is_some()
    }

    /// Whether packets of peers are put into order.
    pub(super) const fn reorders(&self) -> bool {
        self.theirs.reorder
    }

    /// Whether each address of a peer counts as a line of its own.
    pub(super) const fn gathers(&self) -> bool {
        self.theirs.gathered.is_some()
    }

    /// Calls `f` with the lines, and carries out their effects. Returns `false` without lines.
    pub(super) fn with_lines(
        &mut self,
        turn: &mut Turn<'_>,
        call: impl FnOnce(&mut Lines, &Turn<'_>, &mut Vec<LineEffect>),
    ) -> bool {
        let Some(lines) = &mut self.lines else {
            return false;
        };
        let mut out = Vec::new();
        call(lines, turn, &mut out);
        for effect in out {
            self.by_lines(effect, turn);
        }
        true
    }

    fn by_lines(&mut self, effect: LineEffect, turn: &mut Turn<'_>) {
        match effect {
            LineEffect::Read => turn.effects.push(Effect::ReadLines),
            LineEffect::Open { line, port, mark } => {
                turn.effects.push(Effect::OpenLine { line, port, mark });
            }
            LineEffect::Close(line) => turn.effects.push(Effect::CloseLine(line)),
            LineEffect::SetLine(id, line) => turn.plane(PlaneRequest::SetLine(id, line)),
            LineEffect::UseLine(id, line) => turn.plane(PlaneRequest::UseLine(id, line)),
            LineEffect::SetLineMode(id, mode) => turn.plane(PlaneRequest::SetLineMode(id, mode)),
            LineEffect::SetRate(rate) => turn.plane(PlaneRequest::SetRate(rate)),
            LineEffect::SetLineRates(rates) => turn.plane(PlaneRequest::SetLineRates(rates)),
            LineEffect::Hello { line, works, lost } => {
                self.say_hello(line, (works, lost), turn);
            }
            LineEffect::Probe { peer, line, renew } => self.probe_by(peer, line, renew, turn),
            LineEffect::Keepalive(id) => turn.plane(PlaneRequest::SendKeepalive(id)),
            LineEffect::Count => turn.effects.push(Effect::CountLines),
            LineEffect::Keep(usage) => turn.effects.push(Effect::KeepUsage(usage)),
            LineEffect::Log(level, words) => turn.log(level, words),
            LineEffect::LogPeer(id, words) => turn.effects.push(Effect::LogPeer(id, words.into())),
        }
    }

    /// Probes with a handshake, the one message that every WireGuard peer answers at once.
    fn probe_by(&mut self, id: PeerId, line: Line, renew: bool, turn: &mut Turn<'_>) {
        let mut out = Vec::new();
        self.device.probe(id, renew, turn.now.monotonic, &mut out);
        for output in out {
            if let Output::Send { datagram, .. } = output {
                turn.plane(PlaneRequest::NoteSent(id, datagram.as_bytes().len()));
                turn.plane(PlaneRequest::Send(line, datagram));
            }
        }
    }
}

pub(super) fn look(lines: &mut Lines, turn: &Turn<'_>, out: &mut Vec<LineEffect>) {
    lines.look(turn.now.monotonic, |id| turn.peer(id), out);
}
