//! The lines of an interface, and those of its peers.

use super::machine::{Cx, Machine};
use config::lines::Lines as Settings;
use lines::control::{LineFacts, LinePlane, LineReport, LineUsage, Lines, Outside, TheirLines};
use log::Level;
use plane::{Endpoint, Line, LineId, Moving, PeerId, Reorder};
use std::net::{IpAddr, SocketAddr};
use std::time::{Instant, SystemTime};
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

    /// Reopens the lines, each once its device exists.
    pub(super) fn bind_lines(&mut self, cx: &mut Cx<'_>) {
        self.with_lines(cx, |lines, now, out| {
            lines.bind(now, out);
            look(lines, now, out);
        });
    }

    /// Closes all lines. Returns `false` without lines.
    pub(super) fn close_lines(&mut self, cx: &mut Cx<'_>) -> bool {
        self.with_lines(cx, |lines, now, out| lines.close_all(now, out))
    }

    /// Reads the facts of the lines again, as the host's devices or addresses have changed.
    pub(super) fn read_lines(&mut self, cx: &mut Cx<'_>) {
        self.with_lines(cx, |lines, now, out| {
            lines.read(now, out);
            look(lines, now, out);
        });
    }

    /// Sets the configured address of a peer.
    pub(super) fn call_by_lines(&mut self, id: PeerId, to: Endpoint, cx: &mut Cx<'_>) {
        let several = self.with_lines(cx, |lines, now, out| {
            lines.call(id, to.addr, out);
            look(lines, now, out);
        });
        if !several {
            cx.plane.set_line(id, Line::udp(to));
        }
    }

    /// Handles an authentic handshake message of a peer.
    pub(super) fn heard_by_line(&mut self, id: PeerId, from: Line, cx: &mut Cx<'_>) {
        cx.plane.set_line(id, from);
        self.with_lines(cx, |lines, now, out| {
            lines.heard(id, from.id, now, out);
        });
    }

    /// Records an initiation on the line in use, which the peer answers like a probe.
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
            self.with_lines(cx, |lines, now, out| {
                lines.expire(now, out);
                look(lines, now, out);
            });
        }
    }

    /// The lines of a peer; empty without lines, or for a peer that connects to this host only.
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

    /// Whether the answer to a handshake goes back over the line and address it came from, and not to where the peer
    /// was last heard. So the peer learns that this line works.
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

    /// Calls the lines. Returns `false` without lines.
    pub(super) fn with_lines(
        &mut self,
        cx: &mut Cx<'_>,
        call: impl FnOnce(&mut Lines, Instant, &mut Around<'_, '_>),
    ) -> bool {
        let Some(mut lines) = self.lines.take() else {
            return false;
        };
        let (now, machine) = (cx.now.monotonic, &mut *self);
        call(&mut lines, now, &mut Around { machine, cx });
        self.lines = Some(lines);
        true
    }
}

/// The outside of an interface's lines.
pub(super) struct Around<'x, 'a> {
    machine: &'x mut Machine,
    cx: &'x mut Cx<'a>,
}

impl Outside for Around<'_, '_> {
    fn wall(&self) -> SystemTime {
        self.cx.now.wall
    }

    fn plane(&mut self) -> Option<&mut dyn LinePlane> {
        Some(&mut self.cx.plane)
    }

    fn facts(&mut self) -> Vec<Option<LineFacts>> {
        self.cx.host.line_facts()
    }

    fn open(&mut self, line: LineId, mark: Option<u32>) -> Result<(), String> {
        let port = self.machine.bound.unwrap_or(0);
        let mark = mark.unwrap_or(self.machine.mark);
        let opened = self.cx.host.open_sockets(line, port, mark)?;
        if port == 0 {
            // All lines have the port of the first.
            self.machine.bound = Some(opened);
        }
        Ok(())
    }

    /// Probes with a handshake, the one message that every WireGuard peer answers at once.
    fn probe(&mut self, peer: PeerId, line: Line, renew: bool) {
        let (mut out, now) = (Vec::new(), self.cx.now.monotonic);
        let device = &mut self.machine.device;
        device.probe(peer, renew, now, &mut out);
        let stamp = device.latest_timestamp();
        self.machine.keep_floor(stamp, self.cx);
        for output in out {
            if let Output::Send { datagram, .. } = output {
                let bytes = datagram.as_bytes();
                for junk in datagram.before() {
                    self.cx.plane.send(&line, junk);
                }
                self.cx.plane.note_sent(peer, now, bytes.len());
                self.cx.plane.send(&line, bytes);
            }
        }
    }

    fn keepalive(&mut self, peer: PeerId) {
        self.cx.plane.send_keepalive(peer);
    }

    fn hello(&mut self, to: &Line, hello: &[u8], stamp: SystemTime) {
        self.machine.keep_floor(stamp, self.cx);
        self.cx.plane.send(to, hello);
    }

    /// The relay's route is part of what the owner plans.
    fn relay_at(&mut self, _: SocketAddr) {
        self.cx.host.changed();
    }

    fn keep_address(&mut self, name: &str, address: IpAddr) {
        self.cx.host.keep_address(name, address);
    }

    fn keep_usage(&mut self, usage: &[LineUsage]) {
        self.cx.host.keep_usage(usage);
    }

    fn log(&mut self, peer: Option<PeerId>, level: Level, words: &str) {
        match peer {
            Some(id) => self.machine.log_peer(id, words, self.cx),
            None => self.cx.log(level, words),
        }
    }
}

/// Looks at the lines.
pub(super) fn look(lines: &mut Lines, now: Instant, out: &mut Around<'_, '_>) {
    let plane = out.cx.plane;
    lines.look(now, |id| plane.peer(id).unwrap_or_default(), out);
}
