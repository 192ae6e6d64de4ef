//! Lines that reach the peer through a relay. A relay forwards only for clients that announce their address by
//! hellos. A client sends a hello every 20 seconds, and before each probe while the peer does not answer over the line,
//! as a restarted relay knows nothing of it.

use super::{Lines, Outside, number, on};
use crate::health::Fault;
use crate::names::{Name, Whose};
use crate::relay::{Clock, HELLO_EVERY, Key};
use config::lines::{Line as LineSettings, Lines as Settings};
use plane::{Endpoint, Line, LineId};
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

/// Minimum time between two hellos.
const AGAIN: Duration = Duration::from_secs(1);

/// How long a relay's address is tried while the peer does not answer through it: longer than two probes take.
const TRY: Duration = Duration::from_secs(15);

/// The relay of one line.
#[derive(Debug)]
struct Relay {
    key: Key,
    clock: Clock,
    /// The relay's address, once known.
    address: Option<SocketAddr>,
    /// The relay's name, if it is configured by name.
    name: Option<Name>,
    /// When the last hello went out over the open sockets.
    told: Option<Instant>,
    /// Since when the peer has not answered through this address, as of the last look.
    silent: Option<Instant>,
}

/// The relays of the lines that have one, by the lines' numbers.
#[derive(Debug)]
pub(super) struct Relays {
    of: Vec<Option<Relay>>,
    /// Lines whose relay has another address, which the data plane does not know yet.
    moved: Vec<LineId>,
}

impl Relays {
    pub(super) fn new(settings: &Settings) -> Self {
        let relay = |line: &LineSettings| {
            let (endpoint, key) = line.relay.as_ref().zip(line.relay_key.as_ref())?;
            Some(Relay {
                key: Key::new(key.as_bytes()),
                clock: Clock::default(),
                address: endpoint.socket_addr(),
                name: None,
                told: None,
                silent: None,
            })
        };
        Self {
            of: settings.lines.iter().map(relay).collect(),
            moved: Vec::new(),
        }
    }

    fn get(&self, line: LineId) -> Option<&Relay> {
        self.of.get(line.index())?.as_ref()
    }

    fn get_mut(&mut self, line: LineId) -> Option<&mut Relay> {
        self.of.get_mut(line.index())?.as_mut()
    }

    /// The fault of a line whose relay has no known address.
    pub(super) fn fault(&self, line: LineId) -> Option<Fault> {
        let unknown = self.get(line).is_some_and(|it| it.address.is_none());
        unknown.then_some(Fault::NoRelay)
    }

    /// Returns where to send packets over a line for a peer at this address.
    pub(super) fn lead(&self, line: LineId, peer: SocketAddr) -> Line {
        let by = self.get(line).and_then(|it| it.address);
        on(line, Endpoint::new(by.unwrap_or(peer)))
    }

    /// Sends the relay a hello at once, as the line's sockets are new.
    pub(super) fn opened(&mut self, line: LineId) {
        if let Some(relay) = self.get_mut(line) {
            relay.told = None;
        }
    }

    /// Sends a hello before a probe over a line, if one is due: if the peer does not answer over the line, its relay
    /// may not know us. Returns false if the relay's next address is tried instead: the probe waits until the data
    /// plane knows it.
    pub(super) fn before_probe(
        &mut self,
        line: LineId,
        works: bool,
        now: Instant,
        out: &mut dyn Outside,
    ) -> bool {
        let every = if works { HELLO_EVERY } else { AGAIN };
        self.say(line, (every, works), now, out)
    }

    /// Sends the hello that is due now over a line, if any. `works` says whether the peer answers over the line. If it
    /// does not for long, the relay may have moved: then the next address of its name is tried, and after the last the
    /// name is looked up again. Returns false for another address, which gets its hello once the data plane knows it.
    fn say(
        &mut self,
        line: LineId,
        (every, works): (Duration, bool),
        now: Instant,
        out: &mut dyn Outside,
    ) -> bool {
        let relay = self.of.get_mut(line.index()).and_then(Option::as_mut);
        let Some((address, relay)) = relay.and_then(|it| Some((it.address?, it))) else {
            return true;
        };
        if relay.told.is_some_and(|at| now < at + every) {
            return true;
        }
        relay.told = Some(now);
        let silent = (!works).then(|| *relay.silent.get_or_insert(now));
        let lost = silent.is_some_and(|at| now >= at + TRY);
        if works || lost {
            relay.silent = None;
        }
        let mut next = None;
        if let Some(name) = &mut relay.name {
            if works && let Some((name, address)) = name.answered(relay.address, now) {
                out.keep_address(&name, address);
            }
            next = lost.then(|| name.unanswered(now)).flatten();
        }
        if next.is_some() && next != relay.address {
            relay.address = next;
            relay.told = None;
            self.moved.push(line);
            return false;
        }
        let hello = relay.key.hello(relay.clock.stamp(out.wall()));
        let to = on(line, Endpoint::new(address));
        out.hello(&to, &hello, relay.clock.last());
        true
    }

    /// Whether a relay has another address that the data plane does not know yet.
    pub(super) fn has_moved(&self) -> bool {
        !self.moved.is_empty()
    }
}

impl Lines {
    /// Sends the hellos that are due, over all open lines.
    pub(super) fn say_hello(&mut self, now: Instant, out: &mut dyn Outside) {
        for line in (0..self.ends.len()).map(number) {
            if self.is_open(line) {
                let works = self.peers.values().any(|peer| peer.works_by(line));
                self.relays.say(line, (HELLO_EVERY, works), now, out);
            }
        }
    }

    /// Makes the timestamps of hellos later than this one, which an earlier run of this end may have sent.
    pub fn set_stamp_floor(&mut self, floor: SystemTime) {
        for relay in self.relays.of.iter_mut().flatten() {
            relay.clock = relay.clock.max(Clock::after(floor));
        }
    }

    /// The latest stamp of a hello; 1970 before the first.
    pub fn latest_stamp(&self) -> SystemTime {
        let relays = self.relays.of.iter().flatten();
        let latest = relays.map(|relay| relay.clock.last()).max();
        latest.unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Has relays that are configured by name looked up from now on.
    pub fn name_relays(&mut self, now: Instant) {
        for (relay, line) in self.relays.of.iter_mut().zip(&self.settings.lines) {
            if let (Some(relay), Some(endpoint)) = (relay, &line.relay) {
                relay.name = relay.name.take().or_else(|| Name::of(endpoint, now));
            }
        }
    }

    /// The names of relays.
    pub fn relay_names(&mut self) -> impl Iterator<Item = (Whose, &mut Name)> {
        let relays = (0..).map(LineId).zip(&mut self.relays.of);
        relays.filter_map(|(line, it)| Some((Whose::Relay(line), it.as_mut()?.name.as_mut()?)))
    }

    /// When the next name of a relay is to be looked up.
    pub fn relays_due(&self) -> Option<Instant> {
        let relays = self.relays.of.iter().flatten();
        relays.filter_map(|it| it.name.as_ref()?.due()).min()
    }

    /// Repeats at once the look-ups of relays that failed for lack of an uplink.
    pub fn hurry_relays(&mut self, now: Instant) {
        self.relay_names().for_each(|(_, name)| name.hurry(now));
    }

    /// Takes the result of a look-up of a line's relay.
    pub fn relay_looked_up(
        &mut self,
        line: LineId,
        found: Result<Vec<SocketAddr>, String>,
        now: Instant,
        out: &mut dyn Outside,
    ) {
        let Some(relay) = self.relays.get_mut(line) else {
            return;
        };
        let Some(name) = &mut relay.name else { return };
        match name.looked_up(found, relay.address, now) {
            Ok(Some(address)) => self.set_relay(line, address, now, out),
            Ok(None) | Err(None) => {}
            Err(Some(words)) => out.log(None, log::Level::Warn, &words),
        }
    }

    /// The address of a line's relay, if known.
    pub fn relay(&self, line: LineId) -> Option<SocketAddr> {
        self.relays.get(line)?.address
    }

    /// All known addresses of relays.
    pub fn relays(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.relays.of.iter().filter_map(|it| it.as_ref()?.address)
    }

    /// Sets the address that was found for a line's relay.
    fn set_relay(
        &mut self,
        line: LineId,
        address: SocketAddr,
        now: Instant,
        out: &mut dyn Outside,
    ) {
        let Some(relay) = self.relays.get_mut(line) else {
            return;
        };
        relay.told = None;
        let is_first = relay.address.replace(address).is_none();
        self.relays.moved.push(line);
        self.follow_relays(out);
        if is_first && self.look.is_some() {
            // Now the line can be opened.
            self.read(now, out);
        }
    }

    /// Sets new addresses of relays in the data plane.
    pub(super) fn follow_relays(&mut self, out: &mut dyn Outside) {
        for line in std::mem::take(&mut self.relays.moved) {
            let Some(address) = self.relays.get(line).and_then(|it| it.address) else {
                continue;
            };
            out.relay_at(address);
            if self.is_open(line) {
                let to = on(line, Endpoint::new(address));
                for id in self.peers.keys() {
                    out.on_plane(|plane| plane.set_line(*id, to));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::fixture::Fake;
    use crate::relay::Hello;
    use config::lines::LineMode;
    use config::types::Key32;
    use plane::{PeerId, PeerState};

    const PEER: PeerId = PeerId(1);
    const SERVER: ([u8; 4], u16) = ([203, 0, 113, 9], 51820);
    const RELAY: ([u8; 4], u16) = ([198, 51, 100, 7], 51821);
    const SECOND: Duration = Duration::from_secs(1);

    /// A line through the device `eth0`, and one through a relay.
    fn lines(relay: &str) -> Lines {
        let direct = LineSettings {
            name: "direct".to_owned(),
            interface: Some("eth0".to_owned()),
            ..LineSettings::default()
        };
        let relayed = LineSettings {
            name: "relayed".to_owned(),
            relay: Some(relay.parse().unwrap()),
            relay_key: Some(Key32::new([7; 32])),
            ..LineSettings::default()
        };
        Lines::new(Settings {
            mode: LineMode::Duplicate,
            lines: vec![direct, relayed],
            ..Settings::default()
        })
    }

    #[test]
    fn a_relay_is_told_before_the_peer_is_asked_by_it() {
        let mut now = Instant::now();
        let (mut lines, mut out) = (lines("198.51.100.7:51821"), Fake::new());
        let (server, relay) = (SERVER.into(), RELAY.into());
        lines.bind(now, &mut out);
        lines.call(PEER, server, &mut out);
        lines.look(now, |_| PeerState::default(), &mut out);
        assert_eq!(
            out.told(),
            [
                ("read", 0, None),
                ("open", 0, None),
                ("open", 1, None),
                ("set", 0, Some(server)),
                ("set", 1, Some(relay)),
                ("hello", 1, None),
                ("probe", 1, Some(relay)),
            ]
        );
        let (to, first) = out.hellos.remove(0);
        assert_eq!((to.id, to.endpoint.addr), (LineId(1), relay));

        // While the peer answers, only the interval repeats the hello.
        for _ in 0..4 {
            lines.heard(PEER, LineId(1), now, &mut out);
            now += SECOND * 2;
            lines.look(now, |_| PeerState::default(), &mut out);
            lines.heard(PEER, LineId(1), now, &mut out);
        }
        assert!(!out.told().iter().any(|it| it.0 == "hello"));
        now += HELLO_EVERY - SECOND * 8;
        lines.look(now, |_| PeerState::default(), &mut out);
        assert!(out.told().contains(&("hello", 1, None)));
        let (_, second) = out.hellos.remove(0);
        let stamp = |bytes: &[u8]| {
            let hello = Hello::parse(bytes).unwrap().unwrap();
            assert!(hello.is_of(&Key::new(&[7; 32])));
            hello.stamp
        };
        assert!(stamp(&second) > stamp(&first));
    }

    #[test]
    fn a_relay_by_which_no_peer_answers_is_told_with_each_probe() {
        let mut now = Instant::now();
        let (mut lines, mut out) = (lines("198.51.100.7:51821"), Fake::new());
        lines.bind(now, &mut out);
        lines.call(PEER, SERVER.into(), &mut out);
        let mut all = Vec::new();
        for _ in 0..200 {
            lines.look(now, |_| PeerState::default(), &mut out);
            all.extend(out.told());
            now += SECOND / 10;
        }
        let count = |what| all.iter().filter(|it| it.0 == what).count();
        let (hellos, probes) = (count("hello"), count("probe"));
        assert!(hellos > 3 && hellos <= probes, "{all:?}");
    }

    #[test]
    fn a_line_waits_until_its_relay_is_found_and_follows_it() {
        let now = Instant::now();
        let (mut lines, mut out) = (lines("relay.example:51821"), Fake::new());
        lines.bind(now, &mut out);
        lines.call(PEER, SERVER.into(), &mut out);
        let set = ("set", 0, Some(SERVER.into()));
        assert_eq!(out.told(), [("read", 0, None), ("open", 0, None), set]);
        lines.look(now, |_| PeerState::default(), &mut out);
        let report = lines.reports(PEER).remove(1);
        assert_eq!(report.state, "down");
        assert!(report.reason.contains("relay"), "{}", report.reason);
        out.told();

        lines.set_relay(LineId(1), RELAY.into(), now, &mut out);
        let set = ("set", 1, Some(RELAY.into()));
        assert_eq!(out.told(), [("read", 0, None), ("open", 1, None), set]);
        lines.look(now, |_| PeerState::default(), &mut out);
        assert!(out.told().contains(&("hello", 1, None)));

        let moved = SocketAddr::from(([198, 51, 100, 8], 51821));
        lines.set_relay(LineId(1), moved, now, &mut out);
        assert_eq!(out.told(), [("set", 1, Some(moved))]);
        lines.look(now, |_| PeerState::default(), &mut out);
        assert!(out.told().contains(&("hello", 1, None)));
        assert_eq!(lines.relays().collect::<Vec<_>>(), [moved]);
    }
}
