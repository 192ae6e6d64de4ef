//! A client's lines to its server.
//!
//! A server that knows of several lines takes packets from each of them once probes have shown it where they are
//! ([`::pptp::lines`]). All others know a call by the address of its client: with those one line is used at a time, and
//! the server is called anew by another. Whether a line works is asked there by an echo of LCP on the line of the call, and
//! on the others by a connection to the server's port that is closed at once.

use super::failures::Failures;
use super::{ClientMachine, Session};
use crate::lines::{Answers, Lines, status};
use crate::pptp::machine::{Effect, Way};
use crate::pptp::spread::{Spread, among, lines_of};
use crate::status::PeerStatus;
use ::config::lines::{LineMode, Lines as Settings};
use plane::{
    Endpoint, LINES_MAX, Line, LineCounts, LineId, LineSet, LineState, PeerId, PeerState, Times,
    Transport,
};
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

pub(super) const SERVER: PeerId = PeerId(0);

/// A server that does not answer a call for so long is not reached by the line.
const DIAL: Duration = Duration::from_secs(5);

/// How often a server that knows nothing of lines is asked by those that are not in use.
pub(super) const KNOCK: Duration = Duration::from_secs(15);

/// A server that answers at its port for so long, and not one probe, does not know the call any more.
const FORGOTTEN: Duration = Duration::from_secs(2);

/// How often, and how soon, the server is told again which lines are used after a change.
pub(super) const TELL_AGAIN: (u8, Duration) = (2, Duration::from_millis(200));

/// The client's knowledge of the server's abilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knows {
    /// Not known yet.
    Unknown,
    /// One line at a time.
    One,
    /// Several lines.
    Several,
}

/// The lines to the server.
pub(in crate::pptp) struct ServerLines {
    pub(super) lines: Lines,
    /// The mode that was written.
    pub(super) mode: LineMode,
    pub(super) knows: Knows,
    /// The line that is to be used.
    pub(super) used: Option<LineId>,
    /// The line that the server was called by, and the one that packets of the call go by, or most of them.
    pub(super) dialled: Option<LineId>,
    pub(super) current: Option<LineId>,
    /// When the server was called that has not answered yet.
    pub(super) calls: Option<Instant>,
    /// A call waits for a line.
    pub(super) waits: Option<SocketAddrV4>,
    /// It was said that there is no line.
    pub(super) said: bool,
    /// Lines by which the server takes packets of the call.
    pub(super) joined: LineSet,
    /// When it last answered a probe, by lines.
    answered: [Option<Instant>; LINES_MAX],
    /// Since when the server answers at its port, and probes by no line.
    pub(super) port_only: Option<Instant>,
    /// Calls that failed, and the lines that are not used because of that.
    pub(super) failures: Failures,
    pub(super) resting: LineSet,
    /// How packets are to be spread, by all lines and by those that have joined.
    pub(super) wanted: plane::LineMode,
    spread: Spread,
    /// The other ways of the packet that was sealed last.
    copies: Vec<Way>,
    /// When the server is told next which lines are used, and how often it is told soon after that.
    pub(super) tells: Option<(Instant, u8)>,
    times: Times,
    /// When data last came by the line in use.
    pub(super) heard: Option<Instant>,
    bytes: [u64; 2],
    counts: [LineCounts; LINES_MAX],
}

impl ServerLines {
    /// `None` where there are no lines.
    pub(in crate::pptp) fn new(settings: &Settings) -> Option<Box<Self>> {
        if settings.lines.is_empty() {
            return None;
        }
        let mut lines = Lines::new(settings.clone());
        lines.set_answers(Answers::Within(DIAL));
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
            spread: Spread::new(),
            copies: Vec::new(),
            tells: None,
            times: Times::default(),
            heard: None,
            bytes: [0; 2],
            counts: [LineCounts::default(); LINES_MAX],
        }))
    }

    /// Packets of the call go by this line, or most of them.
    pub(super) fn line(&self) -> LineId {
        self.current.or(self.dialled).unwrap_or(LineId::FIRST)
    }

    /// The line of the call does not work.
    pub(super) fn is_lost(&self) -> bool {
        !self.lines.may_work(SERVER, self.line())
    }

    /// The server has answered a probe by a line. Returns whether it takes packets of the call by one more.
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

    /// Lines that do not work any more have to join again. One that has just answered may be about to work.
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

    /// The server has forgotten the call.
    pub(super) fn is_forgotten(&self, now: Instant) -> bool {
        self.port_only.is_some_and(|since| since + FORGOTTEN <= now)
    }

    /// The server has been called, and has not answered in time.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.calls.is_some_and(|at| at + DIAL <= now)
    }

    /// All lines that packets of the call go by.
    pub(super) fn in_use(&self) -> LineSet {
        lines_of(among(self.wanted, self.joined)).with(self.line())
    }

    /// The line to be used may be another, or may have become possible.
    pub(super) fn follow(&mut self) {
        let used = self.used.filter(|used| self.joined.contains(*used));
        if used.is_some() && self.current != used {
            self.current = used;
            self.heard = None;
        }
        self.spread.set_mode(match self.knows {
            Knows::Several => among(self.wanted, self.joined),
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

    /// A packet goes out. Returns its way; those of its copies are [`Self::copies`].
    fn sent(&mut self, packet: &[u8], sealed: usize, to: std::net::Ipv4Addr, now: Instant) -> Way {
        self.copies.clear();
        let line = self.line();
        let first = match self.spread.is_single() {
            true => line,
            false => {
                let mut lines = self.spread.pick(packet, line);
                let first = lines.next().unwrap_or(line);
                self.copies.extend(lines.map(|line| Way::by(line, to)));
                first
            }
        };
        for line in self.copies.iter().map(|it| it.line).chain([first]) {
            if let Some(counts) = self.counts.get_mut(line.index()) {
                counts.sent += 1;
                counts.sent_bytes += sealed as u64;
            }
        }
        self.bytes[0] += sealed as u64;
        self.times.last_data_sent = Some(now);
        self.times.last_sent = Some(now);
        Way::by(first, to)
    }

    /// Data has come, and was opened.
    fn received(&mut self, line: LineId, bytes: usize, now: Instant) {
        self.bytes[1] += bytes as u64;
        self.times.last_data_received = Some(now);
        self.times.last_received = Some(now);
        if line == self.line() {
            self.heard = Some(now);
        }
    }

    /// There is no call any more.
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
    /// A packet was sealed: the way that it goes.
    pub(super) fn way_of(&mut self, packet: &[u8], sealed: usize, now: Instant) -> Way {
        let to = self.server();
        match &mut self.lines {
            None => Way::first(to),
            Some(it) => it.sent(packet, sealed, to, now),
        }
    }

    /// The other ways of that packet.
    pub(super) fn other_ways(&self) -> &[Way] {
        self.lines.as_ref().map_or(&[], |it| &it.copies)
    }

    /// Sends what is no packet of the interface by all lines in use.
    pub(super) fn send_by_all(&self, packet: Vec<u8>, effects: &mut Vec<Effect>) {
        let to = self.server();
        let Some(it) = &self.lines else {
            return effects.push(Effect::Gre(Way::first(to), packet));
        };
        let lines = match it.knows {
            Knows::Several => it.in_use(),
            _ => LineSet::of(it.line()),
        };
        for line in lines {
            effects.push(Effect::Gre(Way::by(line, to), packet.clone()));
        }
    }

    /// A packet has come by a line, and was opened; `None` where it has waited, and its line is not known.
    pub(super) fn came_by(&mut self, line: Option<LineId>, bytes: usize, now: Instant) {
        if let (Some(it), Some(line)) = (&mut self.lines, line) {
            it.received(line, bytes, now);
        }
    }

    /// A packet of the call has come by a line.
    pub(super) fn count_by(&mut self, line: LineId, bytes: usize, first: bool) {
        let counts = self.lines.as_mut().map(|it| &mut it.counts);
        if let Some(counts) = counts.and_then(|counts| counts.get_mut(line.index())) {
            counts.received_bytes += bytes as u64;
            counts.accepted += u64::from(first);
        }
    }

    /// Fills in what `millrace status` shows of the lines.
    pub(super) fn describe_lines(&self, peer: &mut PeerStatus) {
        let Some(it) = &self.lines else { return };
        let now = Instant::now();
        let counts = |line: LineId| {
            let counts = it.counts[line.index()];
            self.order
                .as_ref()
                .map_or(counts, |order| order.counts_of(line, counts))
        };
        let state = |line: LineId| LineState {
            line: Line {
                id: line,
                endpoint: Endpoint::new((self.server(), 0).into()),
                transport: Transport::Gre,
            },
            heard: None,
            counts: counts(line),
        };
        let all = (0..LINES_MAX as u8).map(LineId);
        let mut known = plane::PeerLines {
            lines: all.map(state).collect(),
            ..plane::PeerLines::default()
        };
        if let Some(order) = &self.order {
            known.order = order.counts();
            peer.order = Some(crate::lines::order_status(&known));
        }
        let mut lines = status(it.lines.reports(SERVER), &known, now);
        let in_use = it.in_use();
        for (line, of) in (0..).map(LineId).zip(&mut lines) {
            of.in_use = self.up.is_some() && in_use.contains(line);
        }
        peer.lines = lines;
    }

    /// The server has answered an echo, which goes by the line of the call.
    pub(super) fn echoed(&mut self, now: Instant) {
        if let Some(it) = &mut self.lines {
            it.heard = Some(now);
        }
    }

    /// Whether the call goes on without its control connection.
    pub(super) fn goes_on(&self) -> bool {
        self.session.as_ref().and_then(Session::call).is_some()
    }
}
