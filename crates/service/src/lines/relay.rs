//! Lines that reach the peer through a relay. A relay forwards only for clients that announce their address by
//! hellos. A client sends a hello every 20 seconds, and before each probe while the peer does not answer by the line,
//! as a restarted relay knows nothing of it.

use super::{Lines, Sockets, effect::LineEffect, number, on};
use config::lines::{Line as LineSettings, Lines as Settings};
use lines::health::Fault;
use lines::relay::{Clock, HELLO_EVERY, HELLO_LEN, Key};
use plane::{Endpoint, Line, LineId};
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

/// The least time between two hellos.
const AGAIN: Duration = Duration::from_secs(1);

/// How long a relay's address is tried while the peer does not answer by it: longer than two probes take.
const TRY: Duration = Duration::from_secs(15);

/// The relay of one line.
#[derive(Debug)]
struct Relay {
    key: Key,
    clock: Clock,
    /// The relay's address, once known.
    address: Option<SocketAddr>,
    /// When the last hello went out by the open sockets.
    told: Option<Instant>,
    /// Since when the peer has not answered by this address, as of the last look.
    silent: Option<Instant>,
}

/// The relays of the lines that have one, by the lines' numbers.
#[derive(Debug)]
pub(super) struct Relays(Vec<Option<Relay>>);

impl Relays {
    pub(super) fn new(settings: &Settings) -> Self {
        let relay = |line: &LineSettings| {
            let (endpoint, key) = line.relay.as_ref().zip(line.relay_key.as_ref())?;
            Some(Relay {
                key: Key::new(key.as_bytes()),
                clock: Clock::default(),
                address: endpoint.socket_addr(),
                told: None,
                silent: None,
            })
        };
        Self(settings.lines.iter().map(relay).collect())
    }

    fn get(&self, line: LineId) -> Option<&Relay> {
        self.0.get(line.index())?.as_ref()
    }

    fn get_mut(&mut self, line: LineId) -> Option<&mut Relay> {
        self.0.get_mut(line.index())?.as_mut()
    }

    /// The fault of a line whose relay has no known address.
    pub(super) fn fault(&self, line: LineId) -> Option<Fault> {
        let unknown = self.get(line).is_some_and(|it| it.address.is_none());
        unknown.then_some(Fault::NoRelay)
    }

    /// Returns where to send packets by a line for a peer at this address.
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

    /// Returns the hello to send before a probe by a line, if one is due: if the peer does not answer by the line,
    /// its relay may not know us.
    pub(super) fn before_probe(
        &mut self,
        line: LineId,
        works: bool,
        now: Instant,
    ) -> Option<LineEffect> {
        let every = if works { HELLO_EVERY } else { AGAIN };
        self.due(line, every, works, now)
    }

    /// Returns the hello that is due now by a line, if any, and counts it as sent. `works` says whether the peer
    /// answers by the line.
    fn due(
        &mut self,
        line: LineId,
        every: Duration,
        works: bool,
        now: Instant,
    ) -> Option<LineEffect> {
        let relay = self.get_mut(line).filter(|it| it.address.is_some())?;
        if relay.told.is_some_and(|at| now < at + every) {
            return None;
        }
        relay.told = Some(now);
        let silent = (!works).then(|| *relay.silent.get_or_insert(now));
        let lost = silent.is_some_and(|at| now >= at + TRY);
        if works || lost {
            relay.silent = None;
        }
        Some(LineEffect::Hello { line, works, lost })
    }
}

impl Lines {
    /// Sends the hellos that are due, by all open lines.
    pub(super) fn say_hello(&mut self, now: Instant, out: &mut Vec<LineEffect>) {
        for line in (0..self.ends.len()).map(number) {
            if self.is_open(line) {
                let works = self.peers.values().any(|peer| peer.works_by(line));
                out.extend(self.relays.due(line, HELLO_EVERY, works, now));
            }
        }
    }

    /// The datagram for [`LineEffect::Hello`], and where to send it.
    pub(crate) fn hello(
        &mut self,
        line: LineId,
        wall: SystemTime,
    ) -> Option<(Line, [u8; HELLO_LEN])> {
        let relay = self.relays.get_mut(line)?;
        let to = on(line, Endpoint::new(relay.address?));
        Some((to, relay.key.hello(relay.clock.stamp(wall))))
    }

    /// Makes stamps of hellos later than this, as an earlier run of this end may have sent it.
    pub(crate) fn set_stamp_floor(&mut self, floor: SystemTime) {
        for relay in self.relays.0.iter_mut().flatten() {
            relay.clock = relay.clock.max(Clock::after(floor));
        }
    }

    /// The latest stamp of a hello; 1970 before the first.
    pub(crate) fn latest_stamp(&self) -> SystemTime {
        let relays = self.relays.0.iter().flatten();
        let latest = relays.map(|relay| relay.clock.last()).max();
        latest.unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// The address of a line's relay, if known.
    pub(crate) fn relay(&self, line: LineId) -> Option<SocketAddr> {
        self.relays.get(line)?.address
    }

    /// All known addresses of relays.
    pub(crate) fn relays(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.relays.0.iter().filter_map(|it| it.as_ref()?.address)
    }

    /// Sets the address that was found for a line's relay.
    pub(crate) fn set_relay(
        &mut self,
        line: LineId,
        address: SocketAddr,
        out: &mut Vec<LineEffect>,
    ) {
        let Some(relay) = self.relays.get_mut(line) else {
            return;
        };
        relay.told = None;
        if relay.address.replace(address).is_none() && self.look.is_some() {
            // Now the line can be opened.
            out.push(LineEffect::Read);
        }
        let end = self.ends.get(line.index());
        if end.is_some_and(|end| end.sockets == Sockets::Open) {
            for (id, peer) in &self.peers {
                out.push(LineEffect::SetLine(
                    *id,
                    self.relays.lead(line, peer.address),
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::LineFacts;
    use config::lines::LineMode;
    use config::types::Key32;
    use lines::relay::Hello;
    use plane::{PeerId, PeerState};

    const PEER: PeerId = PeerId(1);
    const SERVER: ([u8; 4], u16) = ([203, 0, 113, 9], 51820);
    const RELAY: ([u8; 4], u16) = ([198, 51, 100, 7], 51821);
    const SECOND: Duration = Duration::from_secs(1);

    /// A line by the device `eth0`, and one by a relay.
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

    fn facts() -> [Option<LineFacts>; 2] {
        let there = LineFacts {
            ifindex: 0,
            running: true,
            addressed: true,
        };
        [Some(there); 2]
    }

    /// The effects that have an address, in order.
    fn told(out: &mut Vec<LineEffect>) -> Vec<(&'static str, u8, Option<SocketAddr>)> {
        let effect = |it| match it {
            LineEffect::Open { line, .. } => Some(("open", line.0, None)),
            LineEffect::SetLine(_, line) => Some(("set", line.id.0, Some(line.endpoint.addr))),
            LineEffect::Probe { line, .. } => Some(("probe", line.id.0, Some(line.endpoint.addr))),
            LineEffect::Hello { line, lost, .. } => {
                Some((if lost { "lost" } else { "hello" }, line.0, None))
            }
            LineEffect::Read => Some(("read", 0, None)),
            _ => None,
        };
        out.drain(..).filter_map(effect).collect()
    }

    #[test]
    fn a_relay_is_told_before_the_peer_is_asked_by_it() {
        let mut now = Instant::now();
        let (mut lines, mut out) = (lines("198.51.100.7:51821"), Vec::new());
        let (server, relay) = (SERVER.into(), RELAY.into());
        lines.bind(now, &mut out);
        lines.call(PEER, server, &mut out);
        lines.read(&facts(), Some((5, 0)), now, &mut out);
        lines.opened(LineId(1), Ok(5), now, &mut out);
        lines.look(now, |_| PeerState::default(), &mut out);
        assert_eq!(
            told(&mut out),
            [
                ("read", 0, None),
                ("open", 0, None),
                ("open", 1, None),
                ("set", 1, Some(relay)),
                ("hello", 1, None),
                ("probe", 1, Some(relay)),
            ]
        );
        let wall = SystemTime::UNIX_EPOCH;
        let (to, first) = lines.hello(LineId(1), wall).unwrap();
        assert_eq!((to.id, to.endpoint.addr), (LineId(1), relay));
        let (_, second) = lines.hello(LineId(1), wall).unwrap();
        let stamp = |bytes: &[u8]| {
            let hello = Hello::parse(bytes).unwrap().unwrap();
            assert!(hello.is_of(&Key::new(&[7; 32])));
            hello.stamp
        };
        assert!(stamp(&second) > stamp(&first));
        assert_eq!(lines.hello(LineId(0), wall), None);

        // While the peer answers, only the interval repeats the hello.
        for _ in 0..4 {
            lines.heard(PEER, LineId(1), now, &mut out);
            now += SECOND * 2;
            lines.look(now, |_| PeerState::default(), &mut out);
            lines.heard(PEER, LineId(1), now, &mut out);
        }
        assert!(!told(&mut out).iter().any(|it| it.0 == "hello"));
        now += HELLO_EVERY - SECOND * 8;
        lines.look(now, |_| PeerState::default(), &mut out);
        assert!(told(&mut out).contains(&("hello", 1, None)));
    }

    #[test]
    fn a_relay_by_which_no_peer_answers_is_told_with_each_probe_and_given_up_in_the_end() {
        let mut now = Instant::now();
        let (mut lines, mut out) = (lines("198.51.100.7:51821"), Vec::new());
        lines.bind(now, &mut out);
        lines.call(PEER, SERVER.into(), &mut out);
        lines.read(&facts(), Some((5, 0)), now, &mut out);
        lines.opened(LineId(1), Ok(5), now, &mut out);
        let mut all = Vec::new();
        for _ in 0..200 {
            lines.look(now, |_| PeerState::default(), &mut out);
            all.extend(told(&mut out));
            now += SECOND / 10;
        }
        let count = |what| all.iter().filter(|it| it.0 == what).count();
        let (hellos, probes) = (count("hello") + count("lost"), count("probe"));
        assert!(hellos > 3 && hellos <= probes, "{all:?}");
        assert_eq!(count("lost"), 1, "{all:?}");
    }

    #[test]
    fn a_line_waits_until_its_relay_is_found_and_follows_it() {
        let now = Instant::now();
        let (mut lines, mut out) = (lines("relay.example:51821"), Vec::new());
        lines.bind(now, &mut out);
        lines.call(PEER, SERVER.into(), &mut out);
        lines.read(&facts(), Some((5, 0)), now, &mut out);
        assert_eq!(told(&mut out), [("read", 0, None), ("open", 0, None)]);
        lines.look(now, |_| PeerState::default(), &mut out);
        let report = lines.reports(PEER).remove(1);
        assert_eq!(report.state, "down");
        assert!(report.reason.contains("relay"), "{}", report.reason);
        out.clear();

        lines.set_relay(LineId(1), RELAY.into(), &mut out);
        assert_eq!(told(&mut out), [("read", 0, None)]);
        lines.read(&facts(), Some((5, 0)), now, &mut out);
        lines.opened(LineId(1), Ok(5), now, &mut out);
        let set = ("set", 1, Some(RELAY.into()));
        assert_eq!(told(&mut out), [("open", 1, None), set]);
        lines.look(now, |_| PeerState::default(), &mut out);
        assert!(told(&mut out).contains(&("hello", 1, None)));

        let moved = SocketAddr::from(([198, 51, 100, 8], 51821));
        lines.set_relay(LineId(1), moved, &mut out);
        assert_eq!(told(&mut out), [("set", 1, Some(moved))]);
        lines.look(now, |_| PeerState::default(), &mut out);
        assert!(told(&mut out).contains(&("hello", 1, None)));
        assert_eq!(lines.relays().collect::<Vec<_>>(), [moved]);
    }
}
