//! A client's lines to its server.
//!
//! A server that knows of several lines accepts packets on each of them once probes have shown it the client's
//! addresses ([`::pptp::lines`]). Other servers know a call by the client's address: the client uses one line at a
//! time, and calls again to use another. An LCP echo then tests the call's line. A TCP connection to the server's
//! port, closed at once, tests each other line.

use super::failures::Failures;
use super::{ClientMachine, Session};
use crate::pptp::machine::{Cx, Way};
use crate::pptp::traffic::Traffic;
use crate::status::PeerStatus;
use crate::status::lines::status;
use ::config::lines::{LineMode, Lines as Settings};
use lines::control::Lines;
use plane::{LINES_MAX, LineId, LineSet, PeerId, PeerState, Times};
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

pub(super) const SERVER: PeerId = PeerId(0);

/// How long to wait for a server's answer to a call before the line counts as failed.
const DIAL: Duration = Duration::from_secs(5);

/// How often lines not in use are tested against a server that does not know of several lines.
pub(super) const KNOCK: Duration = Duration::from_secs(15);

/// A server that answers at its port for this long, but answers no probe, has forgotten the call.
const FORGOTTEN: Duration = Duration::from_secs(2);

/// How many times, and at which interval, the server is told again which lines are used after a change.
pub(super) const TELL_AGAIN: (u8, Duration) = (2, Duration::from_millis(200));

/// What the client knows of the server's support for lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knows {
    /// The server has not shown yet whether it supports several lines.
    Unknown,
    /// The server supports only one line at a time.
    One,
    /// The server supports several lines.
    Several,
}

/// The lines to the server.
pub(in crate::pptp) struct ServerLines {
    pub(super) lines: Lines,
    /// Line mode of the configuration.
    pub(super) mode: LineMode,
    pub(super) knows: Knows,
    /// The line that the scheduler has chosen.
    pub(super) used: Option<LineId>,
    /// The line of the call to the server, and the line that carries all or most packets of the call.
    pub(super) dialled: Option<LineId>,
    pub(super) current: Option<LineId>,
    /// When the server was called, until it answers.
    pub(super) calls: Option<Instant>,
    /// The server to call once a line is open.
    pub(super) waits: Option<SocketAddrV4>,
    /// The log already says that there is no line.
    pub(super) said: bool,
    /// Lines on which the server accepts packets of the call.
    pub(super) joined: LineSet,
    /// When the server last answered a probe, by line.
    answered: [Option<Instant>; LINES_MAX],
    /// Since when the server has answered at its port, but no probe on any line.
    pub(super) port_only: Option<Instant>,
    /// Calls that failed, and the lines that rest because of that.
    pub(super) failures: Failures,
    pub(super) resting: LineSet,
    /// How to spread packets, before lines that have not joined are left out.
    pub(super) wanted: plane::LineMode,
    pub(super) traffic: Traffic,
    /// When to tell the server next which lines are used, and how many quick repetitions are left.
    pub(super) tells: Option<(Instant, u8)>,
    times: Times,
    /// When data last came over the line in use.
    pub(super) heard: Option<Instant>,
    bytes: [u64; 2],
}

impl ServerLines {
    /// Makes the lines to a server; `None` if none are configured.
    pub(in crate::pptp) fn new(settings: &Settings) -> Option<Box<Self>> {
        if settings.lines.is_empty() {
            return None;
        }
        let mut lines = Lines::new(settings.clone());
        lines.set_answers(Some(DIAL));
        lines.set_singly(true);
        Some(Box::new(Self {
            lines,
            mode: settings.mode,
            knows: Knows::Unknown,
            used: None,
            dialled: None,
            current: None,
            calls: None,
            waits: None,
            said: false,
            joined: LineSet::EMPTY,
            answered: [None; LINES_MAX],
            port_only: None,
            failures: Failures::default(),
            resting: LineSet::EMPTY,
            wanted: plane::LineMode::Single,
            traffic: Traffic::new(),
            tells: None,
            times: Times::default(),
            heard: None,
            bytes: [0; 2],
        }))
    }

    /// The line that carries all or most packets of the call.
    pub(super) fn line(&self) -> LineId {
        self.current.or(self.dialled).unwrap_or(LineId::FIRST)
    }

    /// Whether the line of the call has stopped working.
    pub(super) fn is_lost(&self) -> bool {
        !self.lines.may_work(SERVER, self.line())
    }

    /// Handles the server's answer to a probe over a line. Returns whether the line has newly joined the call.
    pub(super) fn join(&mut self, line: LineId, now: Instant) -> bool {
        self.failures.worked(line);
        self.port_only = None;
        if let Some(at) = self.answered.get_mut(line.index()) {
            *at = Some(now);
        }
        let joins = !self.joined.contains(line);
        self.joined = self.joined.with(line);
        joins
    }

    /// Drops lines that no longer work, which have to join again. A line that has just answered stays, as it may be
    /// about to work.
    pub(super) fn drop_lost(&mut self, now: Instant) {
        let before = self.joined;
        let stays = |line: &LineId| {
            let answered = self.answered.get(line.index()).copied().flatten();
            let lately = answered.is_some_and(|at| now < at + FORGOTTEN);
            lately || self.lines.may_work(SERVER, *line)
        };
        self.joined = before.filter(stays).collect();
        if self.joined != before {
            self.follow();
        }
    }

    /// Whether the server has forgotten the call.
    pub(super) fn is_forgotten(&self, now: Instant) -> bool {
        self.port_only.is_some_and(|since| since + FORGOTTEN <= now)
    }

    /// Whether the server has not answered a call in time.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.calls.is_some_and(|at| at + DIAL <= now)
    }

    /// All lines that packets of the call go over.
    pub(super) fn in_use(&self) -> LineSet {
        let mode = self.wanted.among(self.joined);
        mode.lines().with(self.line())
    }

    /// Moves the call's packets to the chosen line once it has joined.
    pub(super) fn follow(&mut self) {
        let used = self.used.filter(|used| self.joined.contains(*used));
        if used.is_some() && self.current != used {
            self.current = used;
            self.heard = None;
        }
        self.traffic.spread.set_mode(match self.knows {
            Knows::Several => self.wanted.among(self.joined),
            _ => plane::LineMode::Single,
        });
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        [self.lines.due(), self.tells.map(|(at, _)| at)]
            .into_iter()
            .flatten()
            .min()
    }

    pub(super) fn state(&self) -> PeerState {
        PeerState {
            times: self.times,
            heard: self.heard,
            rx_bytes: self.bytes[1],
            tx_bytes: self.bytes[0],
            ..PeerState::default()
        }
    }

    /// Counts a sent packet. Returns its path, and adds the paths of its copies to `copies`.
    pub(super) fn sent(
        &mut self,
        packet: (&[u8], usize),
        to: std::net::Ipv4Addr,
        now: Instant,
        copies: &mut Vec<Way>,
    ) -> Way {
        let (line, way) = (self.line(), |line| Some(Way::by(line, to)));
        let first = self.traffic.send(packet, line, way, copies);
        self.bytes[0] += packet.1 as u64;
        self.times.last_data_sent = Some(now);
        self.times.last_sent = Some(now);
        first.unwrap_or_else(|| Way::by(line, to))
    }

    /// Counts data that has come and was opened.
    fn received(&mut self, line: LineId, bytes: usize, now: Instant) {
        self.bytes[1] += bytes as u64;
        self.times.last_data_received = Some(now);
        self.times.last_received = Some(now);
        if line == self.line() {
            self.heard = Some(now);
        }
    }

    /// Resets the state of the call, as it has ended.
    pub(super) fn hung_up(&mut self) {
        self.dialled = None;
        self.current = None;
        self.calls = None;
        self.joined = LineSet::EMPTY;
        self.port_only = None;
        self.tells = None;
        self.follow();
    }
}

impl ClientMachine {
    /// Sends a packet that is not from the interface over all lines in use.
    pub(super) fn send_by_all(&self, packet: &[u8], cx: &mut Cx<'_>) {
        let to = self.server();
        let Some(it) = &self.lines else {
            return cx.host.send(Way::first(to), packet);
        };
        let lines = match it.knows {
            Knows::Several => it.in_use(),
            _ => LineSet::of(it.line()),
        };
        for line in lines {
            cx.host.send(Way::by(line, to), packet);
        }
    }

    /// Counts a packet that has come and was opened; `line` is `None` for a packet that waited, as its line is not
    /// known.
    pub(super) fn came_by(&mut self, line: Option<LineId>, bytes: usize, now: Instant) {
        if let (Some(it), Some(line)) = (&mut self.lines, line) {
            it.received(line, bytes, now);
        }
    }

    /// Fills in the lines for `millrace status`.
    pub(super) fn describe_lines(&self, peer: &mut PeerStatus) {
        let Some(it) = &self.lines else { return };
        let now = Instant::now();
        let all = (0..LINES_MAX as u8).map(LineId);
        let all = all.map(|line| (line, self.server().into(), None));
        let known = it.traffic.describe(self.order.as_ref(), all, peer);
        let mut lines = status(it.lines.reports(SERVER), &known, now);
        let in_use = it.in_use();
        for (line, of) in (0..).map(LineId).zip(&mut lines) {
            of.in_use = self.up.is_some() && in_use.contains(line);
        }
        peer.lines = lines;
    }

    /// Handles the server's answer to an echo, which went over the call's line.
    pub(super) fn echoed(&mut self, now: Instant) {
        if let Some(it) = &mut self.lines {
            it.heard = Some(now);
        }
    }

    /// Whether the call continues without its control connection.
    pub(super) fn goes_on(&self) -> bool {
        self.session.as_ref().and_then(Session::call).is_some()
    }
}
