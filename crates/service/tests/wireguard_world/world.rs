//! The wire, the clock and the rest of the world around the hosts.

use crate::host::{Host, Saying, configuration, peer_text};
use crate::plane::DATA;
use crate::random::Random;
use config::uapi::SetDevice;
use plane::Now;
use plane::{Endpoint, Source};
use service::wireguard::{Cx, Event, LOOKUPS_MAX, Machine, Refused};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// An event to come.
pub(crate) enum Happening {
    Datagram {
        from: SocketAddr,
        to: SocketAddr,
        bytes: Vec<u8>,
    },
    /// The end of a lookup, with the addresses at that time.
    Found(usize, service::wireguard::LookUp),
    /// A part of the story.
    Act(crate::story::Act),
}

/// Faults of the wire.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wire {
    /// Datagrams lost, in percent.
    pub(crate) loss: u64,
    /// The next handshake messages that are lost.
    pub(crate) handshakes_lost: u32,
    /// The host that no datagram reaches.
    pub(crate) deaf: Option<SocketAddr>,
    /// Datagrams that arrive twice, in percent.
    pub(crate) twice: u64,
    /// Longest delay in milliseconds: datagrams with shorter delays overtake others.
    pub(crate) delay: usize,
}

pub(crate) struct World {
    pub(crate) random: Random,
    pub(crate) start: Instant,
    pub(crate) now: Instant,
    pub(crate) hosts: Vec<Host>,
    pub(crate) wire: Wire,
    pub(crate) names: BTreeMap<String, SocketAddr>,
    /// Names do not resolve until this time.
    pub(crate) no_names: Option<Instant>,
    /// Chance in percent that opening a port fails.
    pub(crate) no_ports: u64,
    /// Recorded handshake datagrams, which an attacker may replay.
    pub(crate) recorded: Vec<(SocketAddr, SocketAddr, Vec<u8>)>,
    queue: BTreeMap<(Instant, u64), Happening>,
    number: u64,
}

impl World {
    pub(crate) fn new(seed: u64, hosts: usize) -> Self {
        let mut random = Random(seed);
        let now = Instant::now();
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let at = Now {
            monotonic: now,
            wall,
        };
        let hosts = (0..hosts).map(|number| Host::new(number, random.bytes(), at));
        let hosts = hosts.collect();
        let mut world = Self {
            random,
            start: now,
            now,
            hosts,
            wire: Wire {
                delay: 10,
                ..Wire::default()
            },
            names: BTreeMap::new(),
            no_names: None,
            no_ports: 0,
            recorded: Vec::new(),
            queue: BTreeMap::new(),
            number: 0,
        };
        for at in 0..world.hosts.len() {
            world.tell(at, Event::Start);
        }
        world
    }

    pub(crate) fn plan(&mut self, after: Duration, happening: Happening) {
        self.number += 1;
        let key = (self.now + after, self.number);
        self.queue.insert(key, happening);
    }

    /// Passes a host an event.
    pub(crate) fn tell(&mut self, at: usize, event: Event) {
        self.with(at, |machine, cx| machine.handle(event, cx));
    }

    /// Calls a host's machine, and performs the effects in the world.
    fn with<T>(&mut self, at: usize, call: impl FnOnce(&mut Machine, &mut Cx<'_>) -> T) -> T {
        let elapsed = self.now - self.start;
        let host = &mut self.hosts[at];
        let now = host.now(self.now, elapsed);
        let before = host.outside.lookups.len();
        host.outside.refuses = self.random.chance(self.no_ports);
        let fake = Arc::clone(&host.plane.fake);
        let result = call(
            &mut host.machine,
            &mut Cx::new(now, &*fake, &mut host.outside),
        );
        host.plane.work(self.now);
        let lookups = &host.outside.lookups;
        assert!(lookups.len() <= LOOKUPS_MAX, "too many look-ups at a time");
        let begun: Vec<_> = lookups.iter().skip(before).cloned().collect();
        for lookup in begun {
            let after = Duration::from_millis(self.random.next() % 3000);
            self.plan(after, Happening::Found(at, lookup));
        }
        let mut events = VecDeque::new();
        self.carry(at, &mut events);
        for event in events {
            self.tell(at, event);
        }
        self.check(at);
        result
    }

    /// Moves datagrams and notices out of a data plane.
    fn carry(&mut self, at: usize, events: &mut VecDeque<Event>) {
        let host = &mut self.hosts[at];
        let notices = std::mem::take(&mut host.plane.notices);
        if !notices.is_empty() {
            events.push_back(Event::Notices(notices));
        }
        for (to, bytes) in std::mem::take(&mut host.plane.datagrams) {
            let host = &mut self.hosts[at];
            if to.source.is_some_and(|source| source.ip != host.ip) {
                host.plane.forget_source(to.addr);
                continue;
            }
            if host.bound().is_some() {
                let from = host.address();
                self.throw(from, to.addr, bytes);
            }
        }
    }

    #[allow(clippy::needless_pass_by_value, reason = "the wire takes it over")]
    pub(crate) fn throw(&mut self, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        if bytes[0] != DATA && self.recorded.len() < 1000 {
            self.recorded.push((from, to, bytes.clone()));
        }
        if self.wire.deaf == Some(to) {
            return;
        }
        let lost = &mut self.wire.handshakes_lost;
        if bytes[0] != DATA && *lost > 0 {
            *lost -= 1;
            return;
        }
        let copies = match self.random.next() % 100 {
            it if it < self.wire.loss => 0,
            it if it < self.wire.loss + self.wire.twice => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let after = Duration::from_millis(1 + self.random.below(self.wire.delay) as u64);
            let bytes = bytes.clone();
            self.plan(after, Happening::Datagram { from, to, bytes });
        }
    }

    /// Sends data from one host to another, using their tunnel addresses.
    pub(crate) fn send(&mut self, from: usize, to: usize) {
        self.number += 1;
        let (data, inner, now) = (self.number, self.hosts[to].inner, self.now);
        let mut events = VecDeque::new();
        self.hosts[from].plane.send(inner, data, now);
        self.carry(from, &mut events);
        for event in events {
            self.tell(from, event);
        }
    }

    fn arrive(&mut self, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        let called = |host: &Host| host.ip == to.ip() && host.bound() == Some(to.port());
        let Some(at) = self.hosts.iter().position(called) else {
            return;
        };
        let inner: Vec<IpAddr> = self.hosts.iter().map(|host| host.inner).collect();
        let host = &mut self.hosts[at];
        let source = Source {
            ip: host.ip,
            ifindex: host.outside.ifindex,
        };
        let from = Endpoint {
            addr: from,
            source: Some(source),
        };
        if bytes[0] != DATA {
            let waiting = if host.load.is_some_and(|it| it > self.now) {
                1000
            } else {
                0
            };
            let bytes = bytes.into();
            return self.tell(
                at,
                Event::Handshake {
                    from: plane::Line::udp(from),
                    bytes,
                    waiting,
                },
            );
        }
        if let Some((peer, data)) = host.plane.open(from, &bytes, self.now) {
            let mut inner = inner.into_iter();
            let owner = inner.find(|inner| host.plane.fake.route(*inner) == Some(peer));
            let before = host.heard.insert(data, owner.unwrap_or(host.inner));
            assert!(before.is_none(), "data came in twice");
        }
        let mut events = VecDeque::new();
        self.carry(at, &mut events);
        for event in events {
            self.tell(at, event);
        }
    }

    /// Runs the world until `end`; returns at each act of the story.
    pub(crate) fn run(&mut self, end: Instant) -> Option<crate::story::Act> {
        loop {
            let hosts = self.hosts.iter().enumerate();
            let deadlines = hosts.filter_map(|(at, it)| Some((it.machine.next_deadline()?, at)));
            let deadline = deadlines.min();
            let next = self.queue.first_key_value().map(|(key, _)| key.0);
            match (next, deadline) {
                (Some(at), timer) if at <= end && timer.is_none_or(|(timer, _)| at <= timer) => {
                    self.now = self.now.max(at);
                    let (_, happening) = self.queue.pop_first()?;
                    match happening {
                        Happening::Act(act) => return Some(act),
                        Happening::Datagram { from, to, bytes } => self.arrive(from, to, bytes),
                        Happening::Found(at, lookup) => self.found(at, lookup),
                    }
                }
                (_, Some((due, at))) if due <= end => {
                    self.now = self.now.max(due);
                    self.tell(at, Event::Deadline);
                    let next = self.hosts[at].machine.next_deadline();
                    let later = next.is_none_or(|next| next > self.now);
                    assert!(later, "a deadline that was dealt with is still due");
                }
                _ => break,
            }
        }
        self.now = end;
        None
    }

    fn found(&mut self, at: usize, lookup: service::wireguard::LookUp) {
        let host = &mut self.hosts[at];
        let lookups = &mut host.outside.lookups;
        let begun = lookups.iter().position(|it| *it == lookup);
        lookups.remove(begun.unwrap());
        let known = self.names.get(&lookup.host).copied();
        let known = known.filter(|_| self.no_names.is_none_or(|until| until <= self.now));
        let found = known
            .map(|it| vec![it])
            .ok_or_else(|| "no such name".to_owned());
        self.tell(at, Event::LookedUp { lookup, found });
    }

    /// Configures a host as `wg` would.
    pub(crate) fn configure(&mut self, at: usize, text: &str) -> Result<(), Refused> {
        self.apply(at, &configuration(text))
    }

    /// Configures a host as its file would.
    pub(crate) fn apply(&mut self, at: usize, set: &SetDevice) -> Result<(), Refused> {
        self.with(at, |machine, cx| machine.configure(set, cx))
    }

    /// Configures a host's peer `of` with this entry.
    pub(crate) fn say(&mut self, at: usize, of: usize, saying: &Saying) {
        let (public, inner) = (self.hosts[of].public(), self.hosts[of].inner);
        self.configure(at, &peer_text(&public, inner, saying))
            .unwrap();
    }

    /// Checks the invariant that a waiting machine has a deadline at which it wakes.
    fn check(&self, at: usize) {
        let host = &self.hosts[at];
        assert!(
            host.machine.latest_stamp() <= host.outside.floor,
            "a power cut now, and its peers have seen more than it knows"
        );
        let awake = host.machine.next_deadline().is_some();
        let mut waiting = host.plane.waiting();
        let waits = waiting.any(|peer| peer.line.is_some());
        assert!(
            !waits || awake,
            "packets wait, and nothing will ever happen"
        );
        let lacks = host.link_up && host.bound().is_none();
        assert!(
            !lacks || awake,
            "the sockets are not there, and nothing will ever happen"
        );
        if host.outside.lookups.is_empty() {
            let names = host.machine.names();
            let lacks = names.iter().any(|name| name.addresses.is_empty());
            assert!(
                !lacks || awake,
                "a name is not found, and nothing will ever happen"
            );
        }
    }

    /// The tunnel addresses from which a host received data since the last call.
    pub(crate) fn heard(&mut self, at: usize) -> BTreeSet<IpAddr> {
        std::mem::take(&mut self.hosts[at].heard)
            .into_values()
            .collect()
    }
}
