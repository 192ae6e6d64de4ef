//! The lines (uplinks) of a tunnel: which are open, how well each peer answers on each, and which one is used.
//!
//! Measuring costs nothing while packets come and go. At other times *probes* are sent, messages that the peer
//! answers at once: WireGuard handshakes, OpenVPN requests of the options check, PPTP packets made for it. A probe
//! makes a WireGuard or OpenVPN peer send to where the probe came from, so a keepalive over the line in use follows.
//!
//! [`Lines`] decides and does no I/O: it calls an [`Outside`], which each protocol implements.

use crate::health::{self, Fault, Health, LineState, Reason};
use crate::scheduler::{LineSettings, Switch};
use config::lines::{LineMode, Lines as Settings};
use plane::{Endpoint, Line, LineId, PeerId, PeerState, Transport};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

mod cap;
mod change;
mod end;
#[cfg(test)]
mod fixture;
mod host;
mod outside;
mod peer;
mod rate;
mod relay;
mod report;
#[cfg(test)]
mod tests;
mod theirs;
mod usage_file;

use cap::Caps;
pub use cap::{CapReport, Doubt, LineUsage};
pub use end::LineFacts;
use end::{End, Sockets};
pub use host::read;
pub use outside::{LinePlane, Outside};
use peer::PeerLines;
use relay::Relays;
pub use report::LineReport;
pub use theirs::{TheirLines, evenly};
pub use usage_file::UsageFile;

/// How often lines are looked at while idle, while packets flow, and while an answer is awaited.
const IDLE: Duration = Duration::from_secs(1);
const BUSY: Duration = Duration::from_millis(250);
const WAITING: Duration = Duration::from_millis(100);

/// Probe intervals: of a silent line, of a line while packets go over several, and of a metered line.
pub const PROBE_IDLE: Duration = Duration::from_secs(5);
const PROBE_SPREAD: Duration = Duration::from_secs(1);
const PROBE_METERED: Duration = Duration::from_secs(60);

/// Data received this recently shows that a session works, so the session of a probe need not replace it.
const WORKS: Duration = Duration::from_secs(2);

/// How often sockets that could not be opened are tried again.
const REOPEN: Duration = Duration::from_secs(5);

/// All lines of an interface.
#[derive(Debug)]
pub struct Lines {
    settings: Settings,
    ends: Vec<End>,
    /// Peers with a configured endpoint. All others are answered over the line on which they connect.
    peers: BTreeMap<PeerId, PeerLines>,
    /// The line on which each other peer last sent.
    callers: Vec<(PeerId, LineId)>,
    look: Option<Instant>,
    /// The rates that the data plane was last given.
    rate: Option<rate::Told>,
    relays: Relays,
    caps: Caps,
    /// How peers answer; see [`Lines::set_answers`].
    answers: Option<Duration>,
    /// Use one line at a time and probe no other, whatever the mode.
    singly: bool,
}

/// The ID of the line at an index. There are at most [`config::lines::LINES_MAX`].
const fn number(at: usize) -> LineId {
    LineId(at as u8)
}

impl Lines {
    /// Makes lines that are not open yet.
    pub fn new(settings: Settings) -> Self {
        let end = End {
            facts: None,
            fault: Some(Fault::NoDevice),
            sockets: Sockets::Closed(None),
            refused: None,
        };
        Self {
            ends: vec![end; settings.lines.len()],
            relays: Relays::new(&settings),
            caps: Caps::new(&settings),
            settings,
            peers: BTreeMap::new(),
            callers: Vec::new(),
            look: None,
            rate: None,
            answers: None,
            singly: false,
        }
    }

    /// Sets whether only one line may be used at a time: peers cannot be reached over several, or not yet.
    pub const fn set_singly(&mut self, singly: bool) {
        self.singly = singly;
    }

    /// Sets how soon peers send a packet after receiving one. `None`, the default: they answer probes at once.
    /// Otherwise they do not answer probes, but send a packet within this time, if the line works.
    pub fn set_answers(&mut self, answers: Option<Duration>) {
        if std::mem::replace(&mut self.answers, answers) != answers {
            for of in self.peers.values_mut().flat_map(|peer| &mut peer.lines) {
                of.health.set_answers(answers);
            }
        }
    }

    fn is_open(&self, line: LineId) -> bool {
        let end = self.ends.get(line.index());
        end.is_some_and(|end| end.sockets == Sockets::Open)
    }

    /// Brings the next look at the lines forward to now, if one is planned.
    pub fn hurry(&mut self, now: Instant) {
        self.look = self.look.map(|_| now);
    }

    /// Whether any line has sockets.
    pub fn has_open(&self) -> bool {
        self.open().next().is_some()
    }

    fn open(&self) -> impl Iterator<Item = LineId> + '_ {
        (0..self.ends.len())
            .map(number)
            .filter(|line| self.is_open(*line))
    }

    fn health(&self, line: LineId) -> Health {
        let spared = self.line_settings(line).is_spared();
        let mut health = Health::new(health::Settings {
            probe_interval: if spared { PROBE_METERED } else { PROBE_IDLE },
            probe_interval_silent: Duration::from_millis(400),
            silence: Duration::from_millis(1200),
            unanswered: match self.settings.mode {
                LineMode::Single | LineMode::Failover => 2,
                // More patient: a line that loses much is not dead, and copies continue meanwhile.
                LineMode::Duplicate => 4,
                LineMode::Critical | LineMode::Balance | LineMode::BalancePackets => 3,
            },
            answers: 2,
            ..health::Settings::default()
        });
        health.set_answers(self.answers);
        let fault = self.ends.get(line.index()).and_then(|end| end.fault);
        if fault.is_some() {
            health.fault(fault);
        }
        health
    }

    /// Whether the session that a probe makes is used. In `BalancePackets` mode it is better unused, as its packets
    /// would overtake those of the last session. The peer is a Millrace then and keeps the old session; other
    /// programs keep few unused sessions (boringtun: eight in all).
    fn renews(mode: LineMode, peer: &PeerState, now: Instant) -> bool {
        let works = peer.times.last_data_received;
        mode != LineMode::BalancePackets || works.is_none_or(|at| at + WORKS < now)
    }

    fn line_settings(&self, line: LineId) -> LineSettings {
        let settings = self.settings.lines.get(line.index());
        LineSettings {
            used_up: self.caps.used_up(line),
            ..settings.map_or_else(LineSettings::default, LineSettings::from)
        }
    }
}

/// A line to a peer's endpoint, without a relay.
const fn on(id: LineId, endpoint: Endpoint) -> Line {
    Line {
        id,
        endpoint,
        transport: Transport::Udp,
    }
}

impl Lines {
    /// Reopens the lines, each once its device exists.
    pub fn bind(&mut self, now: Instant, out: &mut dyn Outside) {
        for end in &mut self.ends {
            end.sockets = Sockets::Closed(None);
        }
        self.look = Some(now);
        self.name_relays(now);
        self.caps.begin();
        self.read(now, out);
    }

    /// Closes all lines.
    pub fn close_all(&mut self, now: Instant, out: &mut dyn Outside) {
        self.look = None;
        for at in 0..self.ends.len() {
            self.close(number(at), now, out);
        }
    }

    /// Forgets all peers and sockets, as the interface is gone.
    pub fn end(&mut self, now: Instant, out: &mut dyn Outside) {
        self.look = None;
        self.count(now, out);
        self.caps.end();
        // The next data plane has no rates yet.
        self.rate = None;
        self.peers.clear();
        for (line, end) in (0..).map(LineId).zip(&mut self.ends) {
            if std::mem::replace(&mut end.sockets, Sockets::Closed(None)) == Sockets::Open {
                out.on_plane(|plane| plane.close_line(line));
            }
        }
    }

    /// Sets the configured address of a peer.
    pub fn call(&mut self, id: PeerId, to: SocketAddr, out: &mut dyn Outside) {
        let mut peer = match self.peers.remove(&id) {
            Some(peer) => peer,
            None => PeerLines::new(self, to),
        };
        peer.address = to;
        self.callers.retain(|(caller, _)| *caller != id);
        for line in self.open() {
            let to = self.relays.lead(line, to);
            out.on_plane(|plane| plane.set_line(id, to));
        }
        self.peers.insert(id, peer);
    }

    /// Handles an authentic message of a peer other than a data packet.
    pub fn heard(&mut self, id: PeerId, from: LineId, now: Instant, out: &mut dyn Outside) {
        match self.peers.get_mut(&id) {
            Some(peer) => peer.heard(from, now),
            None => {
                out.on_plane(|plane| plane.use_line(id, from));
                match self.callers.iter_mut().find(|(caller, _)| *caller == id) {
                    Some((_, line)) => *line = from,
                    None => self.callers.push((id, from)),
                }
                self.tell_rate(out);
            }
        }
    }

    /// Handles the answer to the last probe, from any line. Returns whether there was a probe.
    pub fn answered(&mut self, id: PeerId, now: Instant) -> bool {
        let peer = self.peers.get_mut(&id);
        peer.is_some_and(|peer| peer.probe_answered(now))
    }

    /// Sends an uncounted probe over the next open line in rotation. It shows whether the peer answers probes at all. A
    /// keepalive follows, as the peer answers on the line of the last probe.
    pub fn trial(&self, id: PeerId, turn: usize, out: &mut dyn Outside) {
        let open = self.open().count().max(1);
        if let Some(peer) = self.peers.get(&id)
            && let Some(line) = self.open().nth(turn % open)
        {
            out.probe(id, self.relays.lead(line, peer.address), true);
        }
        out.keepalive(id);
    }

    /// The line that carries all or most packets of a peer.
    pub fn used(&self, id: PeerId) -> Option<LineId> {
        self.peers.get(&id)?.used
    }

    /// Records a message on the line in use that, like a probe, the peer answers.
    pub fn asked(&mut self, id: PeerId, now: Instant) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.asked(now);
        }
    }

    /// Removes a peer.
    pub fn forget(&mut self, id: PeerId) {
        self.peers.remove(&id);
        self.callers.retain(|(caller, _)| *caller != id);
    }

    /// When the lines are looked at next.
    pub const fn due(&self) -> Option<Instant> {
        self.look
    }

    /// Handles the deadline. Reads the host's facts if the sockets of a line could not be opened, and returns whether
    /// it did.
    pub fn expire(&mut self, now: Instant, out: &mut dyn Outside) -> bool {
        let again = |end: &End| {
            end.fault.is_none() && matches!(end.sockets, Sockets::Closed(Some(at)) if at <= now)
        };
        let reads = self.ends.iter().any(again);
        if reads {
            self.read(now, out);
        }
        reads
    }

    /// Takes the data plane's figures, probes lines where that is due, and applies the consequences.
    pub fn look(
        &mut self,
        now: Instant,
        view: impl Fn(PeerId) -> PeerState,
        out: &mut dyn Outside,
    ) {
        if self.look.is_none() {
            // The interface is down.
            return;
        }
        let single = self.singly || self.settings.mode == LineMode::Single;
        let mut next = IDLE;
        if self.caps.due(now) {
            self.count(now, out);
        }
        self.say_hello(now, out);
        for (id, peer) in &mut self.peers {
            let state = view(*id);
            next = next.min(peer.look(&state, now));
            if let Some(line) = peer.probe(single, now)
                && self
                    .relays
                    .before_probe(line, peer.works_by(line), now, out)
            {
                let renew = Self::renews(self.settings.mode, &state, now);
                out.probe(*id, self.relays.lead(line, peer.address), renew);
            }
            if (peer.calls_back(now) || peer.tells(&state, now)) && state.sealed.is_some() {
                out.keepalive(*id);
            }
            let names = &self.settings.lines;
            let name = |line: LineId| names.get(line.index()).map_or("?", |it| it.name.as_str());
            for (line, change) in peer.judge(now) {
                let (name, state, why) = (name(line), change.to, change.reason);
                let words = format!("uplink {name} is {state}: {why}");
                out.log(Some(*id), log::Level::Info, &words);
            }
            if let Some((line, switch)) = peer.choose(now) {
                out.on_plane(|plane| plane.use_line(*id, line));
                if state.sealed.is_some() {
                    // The peer sends to the line that it last heard from.
                    out.keepalive(*id);
                }
                if let Some(Switch { reason, .. }) = switch {
                    let words = format!("uplink {} is used now: {reason}", name(line));
                    out.log(Some(*id), log::Level::Info, &words);
                }
            }
            if let Some(mode) = peer.spread(self.singly) {
                out.on_plane(|plane| plane.set_line_mode(*id, mode));
            }
        }
        if self.relays.has_moved() {
            next = WAITING;
            self.follow_relays(out);
        }
        self.tell_rate(out);
        self.look = Some(now + next);
    }

    fn close(&mut self, line: LineId, now: Instant, out: &mut dyn Outside) {
        let Some(end) = self.ends.get_mut(line.index()) else {
            return;
        };
        if std::mem::replace(&mut end.sockets, Sockets::Closed(None)) == Sockets::Open {
            out.on_plane(|plane| plane.close_line(line));
            for peer in self.peers.values_mut() {
                peer.closed(line, now);
            }
        }
    }

    /// Opens a line's sockets.
    fn open_one(&mut self, line: LineId, now: Instant, out: &mut dyn Outside) {
        let settings = self.line_settings(line);
        let own = self.settings.lines.get(line.index());
        let result = out.open(line, own.and_then(|it| it.mark));
        let Some(end) = self.ends.get_mut(line.index()) else {
            return;
        };
        if let Err(words) = result {
            end.sockets = Sockets::Closed(Some(now + REOPEN));
            if end.refused.as_ref() != Some(&words) {
                let name = own.map_or("?", |it| it.name.as_str());
                let text = format!("uplink {name}: {words}; trying again");
                out.log(None, log::Level::Warn, &text);
                end.refused = Some(words);
            }
            return;
        }
        end.sockets = Sockets::Open;
        end.refused = None;
        self.relays.opened(line);
        for (id, peer) in &mut self.peers {
            let to = self.relays.lead(line, peer.address);
            out.on_plane(|plane| plane.set_line(*id, to));
            peer.opened(line, settings);
        }
    }
}

/// The reason for a line's state, as reports name it.
fn why(state: (LineState, Option<Reason>)) -> String {
    match state {
        (_, Some(reason)) => reason.to_string(),
        (_, None) => "no packet has arrived on it yet".to_owned(),
    }
}
