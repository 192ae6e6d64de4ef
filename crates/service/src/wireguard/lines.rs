//! The lines of an interface, and those of its peers.

use super::machine::{Cx, Machine};
use config::lines::Lines as Settings;
use lines::control::{LineEffect, LineReport, LineUsage, Lines, TheirLines};
use plane::{Endpoint, Line, LineId, Moving, PeerId, Reorder};
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
    pub(super) fn bind_lines(&mut self, cx: &mut Cx<'_>) -> bool {
        self.with_lines(cx, |lines, cx, out| lines.bind(cx.now.monotonic, out))
    }

    /// Closes all lines. Returns `false` without lines.
    pub(super) fn close_lines(&mut self, cx: &mut Cx<'_>) -> bool {
        self.with_lines(cx, |lines, cx, out| {
            lines.close_all(cx.now.monotonic, out);
        })
    }

    /// Reads the facts of the lines again, as the host's devices or addresses have changed.
    pub(super) fn read_lines(&mut self, cx: &mut Cx<'_>) {
        if self.lines.is_none() {
            return;
        }
        let facts = cx.host.line_facts();
        let bound = self.bound.map(|port| (port, self.mark));
        self.with_lines(cx, |lines, cx, out| {
            lines.read(&facts, bound, cx.now.monotonic, out);
            look(lines, cx, out);
        });
    }

    /// Charges lines for the bytes that they have carried.
    pub(super) fn count_lines(&mut self, cx: &mut Cx<'_>) {
        let carried = cx.plane.carried();
        self.with_lines(cx, |lines, cx, out| {
            if lines.counted(&carried, cx.now, out) {
                look(lines, cx, out);
            }
        });
    }

    /// Handles the result of opening a line's sockets.
    fn line_opened(&mut self, line: LineId, result: Result<u16, String>, cx: &mut Cx<'_>) {
        if let (Some(0), Ok(port)) = (self.bound, &result) {
            self.bound = Some(*port);
        }
        self.with_lines(cx, |lines, cx, out| {
            lines.opened(line, result, cx.now.monotonic, out);
            look(lines, cx, out);
        });
    }

    /// Sets the configured address of a peer.
    pub(super) fn call_by_lines(&mut self, id: PeerId, to: Endpoint, cx: &mut Cx<'_>) {
        let several = self.with_lines(cx, |lines, cx, out| {
            lines.call(id, to.addr, out);
            look(lines, cx, out);
        });
        if !several {
            cx.plane.set_line(id, Line::udp(to));
        }
    }

    /// Handles an authentic handshake message of a peer.
    pub(super) fn heard_by_line(&mut self, id: PeerId, from: Line, cx: &mut Cx<'_>) {
        cx.plane.set_line(id, from);
        self.with_lines(cx, |lines, cx, out| {
            lines.heard(id, from.id, cx.now.monotonic, out);
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
    pub(super) fn lines_expire(&mut self, cx: &mut Cx<'_>) {
        if self.lines_due().is_some_and(|at| at <= cx.now.monotonic) {
            self.with_lines(cx, |lines, cx, out| {
                lines.expire(cx.now.monotonic, out);
                look(lines, cx, out);
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
    pub(super) fn add_by_lines(&self, id: PeerId, cx: &mut Cx<'_>) {
        let moving = match self.theirs.gathered {
            Some(_) => Moving::Gather,
            None => Moving::Tell,
        };
        cx.plane.add_peer(id, moving);
        if let Some(mode) = self.theirs.gathered {
            cx.plane.set_line_mode(id, mode);
        }
        if self.theirs.reorder {
            cx.plane.set_reorder(id, Some(Reorder::default()));
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
        cx: &mut Cx<'_>,
        call: impl FnOnce(&mut Lines, &Cx<'_>, &mut Vec<LineEffect>),
    ) -> bool {
        let Some(lines) = &mut self.lines else {
            return false;
        };
        let mut out = Vec::new();
        call(lines, cx, &mut out);
        // These look at the lines again, and must find everything else in force: what they put out is newer.
        let looks_again = |it: &LineEffect| {
            matches!(
                it,
                LineEffect::Read | LineEffect::Open { .. } | LineEffect::Count
            )
        };
        let (later, first): (Vec<_>, Vec<_>) = out.into_iter().partition(looks_again);
        for effect in first.into_iter().chain(later) {
            self.by_lines(effect, cx);
        }
        true
    }

    fn by_lines(&mut self, effect: LineEffect, cx: &mut Cx<'_>) {
        match effect {
            LineEffect::Read => self.read_lines(cx),
            LineEffect::Open { line, port, mark } => {
                let opened = cx.host.open_sockets(line, port, mark);
                self.line_opened(line, opened, cx);
            }
            LineEffect::Plane(call) => call.on(cx.plane),
            LineEffect::Hello(line) => {
                let lines = self.lines.as_mut();
                if let Some((to, hello)) = lines.and_then(|it| it.hello(line, cx.now.wall)) {
                    self.keep_floor(cx);
                    cx.plane.send(&to, &hello);
                }
            }
            LineEffect::KeepAddress(name, address) => cx.host.keep_address(&name, address),
            // Its route is part of what the owner plans.
            LineEffect::RelayAt(_) => cx.host.changed(),
            LineEffect::Probe { peer, line, renew } => self.probe_by(peer, line, renew, cx),
            LineEffect::Keepalive(id) => {
                cx.plane.send_keepalive(id);
            }
            LineEffect::Count => self.count_lines(cx),
            LineEffect::Keep(usage) => cx.host.keep_usage(&usage),
            LineEffect::Log(level, words) => cx.log(level, &words),
            LineEffect::LogPeer(id, words) => self.log_peer(id, &words, cx),
        }
    }

    /// Probes with a handshake, the one message that every WireGuard peer answers at once.
    fn probe_by(&mut self, id: PeerId, line: Line, renew: bool, cx: &mut Cx<'_>) {
        let mut out = Vec::new();
        self.device.probe(id, renew, cx.now.monotonic, &mut out);
        self.keep_floor(cx);
        for output in out {
            if let Output::Send { datagram, .. } = output {
                let bytes = datagram.as_bytes();
                cx.plane.note_sent(id, cx.now.monotonic, bytes.len());
                cx.plane.send(&line, bytes);
            }
        }
    }
}

pub(super) fn look(lines: &mut Lines, cx: &Cx<'_>, out: &mut Vec<LineEffect>) {
    lines.look(cx.now.monotonic, |id| cx.peer(id), out);
}
