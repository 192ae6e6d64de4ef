//! The lines of an interface: which are there, how well each peer answers on each, and which one is used.
//!
//! What is measured costs nothing while packets come and go. For the rest there are *probes*: handshakes, as there is no
//! other message that every WireGuard peer answers at once. An initiation makes the peer send to where it came from, so
//! a probe by a line that is not in use is followed by a keepalive by the one that is.

use super::effect::{Effect, PlaneRequest};
use super::machine::{Machine, Turn};
use config::lines::{LineMode, Lines as Settings};
use lines::health::{self, Fault, Health, LineState, Reason};
use lines::scheduler::{FailoverSettings, LineSettings, Mode, Scheduler, Switch};
use plane::{Endpoint, Line, LineId, PeerId, PeerState, Transport};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use wireguard::Output;

mod peer;
mod rate;
mod report;
mod theirs;

use peer::PeerLines;
pub use report::LineReport;
pub(super) use theirs::TheirLines;

/// How often lines are looked at while nothing moves, while something does, and while an answer is waited for.
const IDLE: Duration = Duration::from_secs(1);
const BUSY: Duration = Duration::from_millis(250);
const WAITING: Duration = Duration::from_millis(100);

/// How often a line of which nothing is heard is asked; while packets go by several lines at a time; one that costs money.
const PROBE_IDLE: Duration = Duration::from_secs(5);
const PROBE_SPREAD: Duration = Duration::from_secs(1);
const PROBE_METERED: Duration = Duration::from_secs(60);

/// A session by which data came so lately works, so that a probe needs no other in its place.
const WORKS: Duration = Duration::from_secs(2);

/// How often sockets that could not be opened are tried again.
const REOPEN: Duration = Duration::from_secs(5);

/// What the host says of a line's device, or of the interface that has its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineFacts {
    /// Its index.
    pub ifindex: u32,
    /// It is up and has a carrier.
    pub running: bool,
    /// It has an address from which others can be reached, or the one that the line is bound to.
    pub addressed: bool,
}

impl LineFacts {
    const fn fault(self) -> Option<Fault> {
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
struct End {
    facts: Option<LineFacts>,
    fault: Option<Fault>,
    sockets: Sockets,
    /// Why they could last not be opened.
    refused: Option<String>,
}

/// Whether a line has sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sockets {
    /// None; not to be tried before then.
    Closed(Option<Instant>),
    Asked,
    Open,
}

/// All lines of an interface.
#[derive(Debug)]
pub(super) struct Lines {
    settings: Settings,
    ends: Vec<End>,
    /// The peers that are called. Others are answered where they call from.
    peers: BTreeMap<PeerId, PeerLines>,
    /// By which line each of the others has called.
    callers: BTreeMap<PeerId, LineId>,
    look: Option<Instant>,
    /// Bits a second that the data plane was told.
    rate: Option<u64>,
}

/// A line's number. There are at most [`config::lines::LINES_MAX`].
const fn number(at: usize) -> LineId {
    LineId(at as u8)
}

impl Lines {
    fn new(settings: Settings) -> Self {
        let end = End {
            facts: None,
            fault: Some(Fault::NoDevice),
            sockets: Sockets::Closed(None),
            refused: None,
        };
        Self {
            ends: vec![end; settings.lines.len()],
            settings,
            peers: BTreeMap::new(),
            callers: BTreeMap::new(),
            look: None,
            rate: None,
        }
    }

    fn is_open(&self, line: LineId) -> bool {
        let end = self.ends.get(line.index());
        end.is_some_and(|end| end.sockets == Sockets::Open)
    }

    fn open(&self) -> impl Iterator<Item = LineId> + '_ {
        (0..self.ends.len())
            .map(number)
            .filter(|line| self.is_open(*line))
    }

    fn health(&self, line: LineId) -> Health {
        let metered = self.line_settings(line).metered;
        let mut health = Health::new(health::Settings {
            probe_interval: if metered { PROBE_METERED } else { PROBE_IDLE },
            probe_interval_silent: Duration::from_millis(400),
            silence: Duration::from_millis(1200),
            unanswered: match self.settings.mode {
                LineMode::Single | LineMode::Failover => 2,
                // A line that loses much is not dead, and copies go on meanwhile.
                LineMode::Duplicate => 4,
                LineMode::Critical | LineMode::Balance | LineMode::BalancePackets => 3,
            },
            answers: 2,
            ..health::Settings::default()
        });
        let fault = self.ends.get(line.index()).and_then(|end| end.fault);
        if fault.is_some() {
            health.fault(fault);
        }
        health
    }

    /// Whether the session that a probe makes is used. Where packets of one connection go by several lines it is better not
    /// to be: those of a new session overtake those of the last. The peer is a Millrace then, which keeps the session in
    /// use; others have room for a few unused ones only (boringtun: eight of all).
    fn renews(mode: LineMode, peer: &PeerState, now: Instant) -> bool {
        let works = peer.times.last_data_received;
        mode != LineMode::BalancePackets || works.is_none_or(|at| at + WORKS < now)
    }

    fn scheduler(&self) -> Scheduler {
        let mode = match self.settings.mode {
            LineMode::Single => Mode::Single,
            LineMode::Failover => Mode::Failover,
            LineMode::Duplicate => Mode::Duplicate,
            LineMode::Critical => Mode::Critical,
            LineMode::Balance => Mode::BalanceFlows,
            LineMode::BalancePackets => Mode::BalancePackets,
        };
        let hold = self.settings.hold;
        let usual = FailoverSettings::default();
        let hold_max = usual.hold_max.max(hold);
        Scheduler::new(mode, FailoverSettings { hold, hold_max })
    }

    fn line_settings(&self, line: LineId) -> LineSettings {
        let settings = self.settings.lines.get(line.index());
        settings.map_or_else(LineSettings::default, |line| LineSettings {
            priority: line.priority,
            metered: line.metered,
            rate: line.rate,
            ..LineSettings::default()
        })
    }
}

/// A peer on a line, reached by datagrams.
const fn on(id: LineId, endpoint: Endpoint) -> Line {
    Line {
        id,
        endpoint,
        transport: Transport::Udp,
    }
}

impl Machine {
    /// The interface has these lines. To be said before [`Event::Start`](super::Event::Start); without any nothing is
    /// other than if it had not been said.
    pub fn set_lines(&mut self, settings: &Settings) {
        let several = !settings.lines.is_empty();
        self.lines = several.then(|| Box::new(Lines::new(settings.clone())));
        self.theirs = TheirLines::new(settings);
    }

    /// Opens the lines anew, each as soon as its device is found to be there. Returns `false` where there are none.
    pub(super) fn bind_lines(&mut self, turn: &mut Turn<'_>) -> bool {
        let Some(lines) = &mut self.lines else {
            return false;
        };
        for end in &mut lines.ends {
            end.sockets = Sockets::Closed(None);
        }
        lines.look = Some(turn.now.monotonic);
        turn.effects.push(Effect::ReadLines);
        true
    }

    /// Closes all lines. Returns `false` where there are none.
    pub(super) fn close_lines(&mut self, turn: &mut Turn<'_>) -> bool {
        let Some(lines) = &mut self.lines else {
            return false;
        };
        lines.look = None;
        for at in 0..lines.ends.len() {
            lines.close(number(at), turn);
        }
        true
    }

    /// The host's devices or addresses are others.
    pub(super) fn links_changed(&self, turn: &mut Turn<'_>) {
        if self.lines.is_some() {
            turn.effects.push(Effect::ReadLines);
        }
    }

    /// What the host says of the lines, in their order; nothing of those whose devices are not there.
    pub(super) fn lines_read(&mut self, facts: &[Option<LineFacts>], turn: &mut Turn<'_>) {
        let (port, mark) = (self.bound, self.mark);
        let Some(lines) = &mut self.lines else {
            return;
        };
        for at in 0..lines.ends.len() {
            let facts = facts.get(at).copied().flatten();
            lines.read(number(at), facts, port.map(|port| (port, mark)), turn);
        }
        self.look_at_lines(turn);
    }

    /// The end of [`Effect::OpenLine`].
    pub(super) fn line_opened(
        &mut self,
        line: LineId,
        result: Result<u16, String>,
        turn: &mut Turn<'_>,
    ) {
        if let (Some(0), Ok(port)) = (self.bound, &result) {
            self.bound = Some(*port);
        }
        if let Some(lines) = &mut self.lines {
            lines.opened(line, result, turn);
        }
        self.look_at_lines(turn);
    }

    /// Where a peer is, by configuration.
    pub(super) fn call_by_lines(&mut self, id: PeerId, to: SocketAddr, turn: &mut Turn<'_>) {
        let Some(lines) = &mut self.lines else {
            return turn.plane(PlaneRequest::SetLine(id, Line::udp(Endpoint::new(to))));
        };
        let mut peer = match lines.peers.remove(&id) {
            Some(peer) => peer,
            None => PeerLines::new(lines, to),
        };
        peer.address = to;
        lines.callers.remove(&id);
        for line in lines.open() {
            turn.plane(PlaneRequest::SetLine(id, on(line, Endpoint::new(to))));
        }
        lines.peers.insert(id, peer);
        self.look_at_lines(turn);
    }

    /// An authentic handshake message of a peer came in.
    pub(super) fn heard_by_line(&mut self, id: PeerId, from: Line, turn: &mut Turn<'_>) {
        turn.plane(PlaneRequest::SetLine(id, from));
        let Some(lines) = &mut self.lines else {
            return;
        };
        match lines.peers.get_mut(&id) {
            Some(peer) => peer.heard(from.id, turn.now.monotonic),
            None => {
                turn.plane(PlaneRequest::UseLine(id, from.id));
                lines.callers.insert(id, from.id);
                lines.tell_rate(turn);
            }
        }
    }

    /// An initiation goes out by the line that is in use: that asks as a probe does.
    pub(super) fn asked_by_line(&mut self, id: PeerId, now: Instant) {
        let peer = self.lines.as_mut().and_then(|it| it.peers.get_mut(&id));
        if let Some(peer) = peer {
            peer.asked(now);
        }
    }

    /// A peer is no more.
    pub(super) fn forget_lines(&mut self, id: PeerId) {
        if let Some(lines) = &mut self.lines {
            lines.peers.remove(&id);
            lines.callers.remove(&id);
        }
    }

    /// When the lines are looked at next.
    pub(super) fn lines_due(&self) -> Option<Instant> {
        self.lines.as_ref()?.look
    }

    /// Looks at the lines, if it is time.
    pub(super) fn lines_expire(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.monotonic;
        let Some(lines) = &mut self.lines else {
            return;
        };
        if lines.look.is_none_or(|at| at > now) {
            return;
        }
        let again = |end: &End| {
            end.fault.is_none() && matches!(end.sockets, Sockets::Closed(Some(at)) if at <= now)
        };
        if lines.ends.iter().any(again) {
            turn.effects.push(Effect::ReadLines);
        }
        self.look_at_lines(turn);
    }

    /// Takes what the data plane knows, asks where an answer is due, and follows what comes of it.
    fn look_at_lines(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.monotonic;
        let Some(lines) = &mut self.lines else {
            return;
        };
        if lines.look.is_none() {
            // The interface is down.
            return;
        }
        let single = lines.settings.mode == LineMode::Single;
        let mut next = IDLE;
        for (id, peer) in &mut lines.peers {
            let state = turn.peer(*id);
            next = next.min(peer.look(&state, now));
            if let Some(line) = peer.probe(single, now) {
                let to = peer.address;
                let mut out = Vec::new();
                let renew = Lines::renews(lines.settings.mode, &state, now);
                self.device.probe(*id, renew, now, &mut out);
                for output in out {
                    if let Output::Send { datagram, .. } = output {
                        let bytes = datagram.as_bytes().len();
                        turn.plane(PlaneRequest::NoteSent(*id, bytes));
                        let line = on(line, Endpoint::new(to));
                        turn.plane(PlaneRequest::Send(line, datagram));
                    }
                }
            }
            if peer.calls_back(now) && state.sealed.is_some() {
                turn.plane(PlaneRequest::SendKeepalive(*id));
            }
            let names = &lines.settings.lines;
            let name = |line: LineId| names.get(line.index()).map_or("?", |it| it.name.as_str());
            for (line, change) in peer.judge(now) {
                let (name, state, why) = (name(line), change.to, change.reason);
                let words = format!("line {name} is {state}: {why}");
                turn.effects.push(Effect::LogPeer(*id, words.into()));
            }
            if let Some((line, switch)) = peer.choose(now) {
                turn.plane(PlaneRequest::UseLine(*id, line));
                if state.sealed.is_some() {
                    // The peer sends to where it last heard from.
                    turn.plane(PlaneRequest::SendKeepalive(*id));
                }
                if let Some(Switch { reason, .. }) = switch {
                    let words = format!("line {} is used now: {reason}", name(line));
                    turn.effects.push(Effect::LogPeer(*id, words.into()));
                }
            }
            if let Some(mode) = peer.spread() {
                turn.plane(PlaneRequest::SetLineMode(*id, mode));
            }
        }
        lines.tell_rate(turn);
        lines.look = Some(now + next);
    }
}

impl Lines {
    fn close(&mut self, line: LineId, turn: &mut Turn<'_>) {
        let now = turn.now.monotonic;
        let Some(end) = self.ends.get_mut(line.index()) else {
            return;
        };
        if std::mem::replace(&mut end.sockets, Sockets::Closed(None)) == Sockets::Open {
            turn.effects.push(Effect::CloseLine(line));
            for peer in self.peers.values_mut() {
                peer.closed(line, now);
            }
        }
    }

    fn read(
        &mut self,
        line: LineId,
        facts: Option<LineFacts>,
        bound: Option<(u16, u32)>,
        turn: &mut Turn<'_>,
    ) {
        let now = turn.now.monotonic;
        let index = |facts: Option<LineFacts>| facts.map(|facts| facts.ifindex);
        let Some(end) = self.ends.get_mut(line.index()) else {
            return;
        };
        // Sockets are bound to a device, not to its name.
        let replaced = index(end.facts) != index(facts);
        end.facts = facts;
        let fault = facts.map_or(Some(Fault::NoDevice), LineFacts::fault);
        if end.fault != fault {
            end.fault = fault;
            for peer in self.peers.values_mut() {
                peer.fault(line, fault);
            }
        }
        if replaced {
            self.close(line, turn);
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
            turn.effects.push(Effect::OpenLine { line, port, mark });
        }
    }

    fn opened(&mut self, line: LineId, result: Result<u16, String>, turn: &mut Turn<'_>) {
        let settings = self.line_settings(line);
        let Some(end) = self.ends.get_mut(line.index()) else {
            return;
        };
        if end.sockets != Sockets::Asked {
            // They were closed meanwhile.
            if result.is_ok() {
                turn.effects.push(Effect::CloseLine(line));
            }
            return;
        }
        if let Err(words) = result {
            end.sockets = Sockets::Closed(Some(turn.now.monotonic + REOPEN));
            if end.refused.as_ref() != Some(&words) {
                let name = self.settings.lines.get(line.index());
                let name = name.map_or("?", |it| it.name.as_str());
                turn.log(
                    log::Level::Warn,
                    format!("line {name}: {words}; trying again"),
                );
                end.refused = Some(words);
            }
            return;
        }
        end.sockets = Sockets::Open;
        end.refused = None;
        for (id, peer) in &mut self.peers {
            let to = Endpoint::new(peer.address);
            turn.plane(PlaneRequest::SetLine(*id, on(line, to)));
            peer.opened(line, settings);
        }
    }
}

/// Why a line is in its state, as reports say it.
fn why(state: (LineState, Option<Reason>)) -> String {
    match state {
        (_, Some(reason)) => reason.to_string(),
        (_, None) => "nothing has come by it yet".to_owned(),
    }
}
