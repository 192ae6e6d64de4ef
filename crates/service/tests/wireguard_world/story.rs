//! The story of a world: first all kinds of trouble, then only traffic, then the end.

use crate::host::{Saying, hex};
use crate::random::Random;
use crate::world::{Happening, Wire, World};
use config::types::Key32;
use crypto::x25519::PrivateKey;
use service::wireguard::Event;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Seconds of trouble.
const TROUBLE: u64 = 240;

/// Seconds until everything must work again: 90 s for an abandoned handshake, 30 s for a name, and waiting times in
/// between.
const RECOVERY: u64 = 200;

/// An incident that happens to hosts, given by number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Data(usize, usize),
    /// The host gets a new address on another interface.
    Roam(usize),
    Down(usize),
    Up(usize),
    /// The host's clock changes by this many seconds.
    Clock(usize, i64),
    /// One host removes another from its peers.
    Remove(usize, usize),
    Add(usize, usize),
    Port(usize),
    Mark(usize),
    Preshare(usize, usize),
    Keepalive(usize, usize),
    NewKey(usize),
    /// A flood of messages that cost the host time and lead to no session.
    Flood(usize),
    /// A third party replays a recorded datagram.
    Replay,
    NoNames,
}

pub(crate) struct Story {
    pub(crate) world: World,
    /// Pairs of hosts that must reach each other: sender, receiver.
    pairs: Vec<(usize, usize)>,
    /// The hosts' entries for their peers.
    sayings: BTreeMap<(usize, usize), Saying>,
    /// Peers whose endpoints are names.
    named: BTreeSet<(usize, usize)>,
    roamed: u8,
}

fn name(of: usize) -> String {
    format!("host{of}.example")
}

impl Story {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random(seed ^ 0x5eed);
        let hosts = match seed % 20 {
            0..16 => 2 + random.below(6),
            16..19 => 8 + random.below(12),
            _ => 20 + random.below(31),
        };
        let star = hosts > 8 || random.chance(30);
        let mut pairs = Vec::new();
        for b in 1..hosts {
            for a in 0..b {
                if a == 0 || (!star && random.chance(60)) {
                    pairs.push((a, b));
                }
            }
        }
        let (mut sayings, mut named) = (BTreeMap::new(), BTreeSet::new());
        for &(a, b) in &pairs {
            // The host with the higher number has the other's endpoint, and often the reverse, too.
            let both = random.chance(50);
            for (at, of, calls) in [(b, a, true), (a, b, both)] {
                let keepalive = if random.chance(30) { 25 } else { 0 };
                let saying = Saying {
                    keepalive,
                    ..Saying::default()
                };
                sayings.insert((at, of), saying);
                if calls && random.chance(30) {
                    named.insert((at, of));
                } else if calls {
                    let ip = Ipv4Addr::new(10, 0, 0, of as u8 + 1).into();
                    let endpoint = std::net::SocketAddr::new(ip, 51820);
                    sayings.get_mut(&(at, of)).unwrap().endpoint = Some(endpoint);
                }
            }
        }
        Self {
            world: World::new(seed, hosts),
            pairs,
            sayings,
            named,
            roamed: 0,
        }
    }

    pub(crate) fn run(mut self) {
        self.begin();
        self.trouble();
        self.recover();
        self.end();
    }

    fn begin(&mut self) {
        for at in 0..self.world.hosts.len() {
            self.rename(at);
            let key = hex(&self.world.hosts[at].key);
            self.world
                .configure(at, &format!("private_key={key}\nlisten_port=51820\n"))
                .unwrap();
            self.world.tell(
                at,
                Event::Link {
                    up: true,
                    mtu: 1420,
                },
            );
        }
        for (at, of) in self.both_ways() {
            self.say(at, of);
        }
    }

    fn both_ways(&self) -> Vec<(usize, usize)> {
        let pairs = self.pairs.iter();
        pairs.flat_map(|&(a, b)| [(a, b), (b, a)]).collect()
    }

    fn say(&mut self, at: usize, of: usize) {
        let saying = self.sayings[&(at, of)].clone();
        self.world.say(at, of, &saying);
        if self.named.contains(&(at, of)) {
            // The host applies this after earlier requests are done.
            let endpoint = format!("{}:51820", name(of)).parse().unwrap();
            let public_key = Key32::new(self.world.hosts[of].public());
            self.world.tell(
                at,
                Event::SetEndpoint {
                    public_key,
                    endpoint,
                },
            );
        }
    }

    /// Updates the host's address at the name servers.
    fn rename(&mut self, at: usize) {
        let address = self.world.hosts[at].address();
        self.world.names.insert(name(at), address);
    }

    fn trouble(&mut self) {
        let random = &mut self.world.random;
        self.world.wire = Wire {
            loss: random.next() % 30,
            twice: random.next() % 10,
            delay: 1 + random.below(300),
            ..Wire::default()
        };
        self.world.no_ports = random.next() % 30;
        let end = self.world.now + Duration::from_secs(TROUBLE);
        for _ in 0..self.pairs.len() * 20 {
            let (a, b) = self.pairs[self.world.random.below(self.pairs.len())];
            let (a, b) = if self.world.random.chance(50) {
                (a, b)
            } else {
                (b, a)
            };
            self.plan(Act::Data(a, b));
        }
        for _ in 0..20 + 2 * self.world.hosts.len() {
            let act = self.invent();
            self.plan(act);
        }
        while let Some(act) = self.world.run(end) {
            self.act(act);
        }
    }

    fn plan(&mut self, act: Act) {
        let after = self.world.random.next() % (TROUBLE * 1000);
        self.world
            .plan(Duration::from_millis(after), Happening::Act(act));
    }

    fn invent(&mut self) -> Act {
        let hosts = self.world.hosts.len();
        let random = &mut self.world.random;
        let (host, pair) = (
            random.below(hosts),
            self.pairs[random.below(self.pairs.len())],
        );
        let (a, b) = if random.chance(50) {
            pair
        } else {
            (pair.1, pair.0)
        };
        match random.below(13) {
            0 | 1 => Act::Roam(host),
            2 => Act::Down(host),
            3 => Act::Clock(host, (random.next() % 200_000) as i64 - 100_000),
            4 | 5 => Act::Remove(a, b),
            6 => Act::Port(host),
            7 => Act::Mark(host),
            8 => Act::Preshare(a, b),
            9 => Act::Keepalive(a, b),
            10 => Act::NewKey(host),
            11 => Act::Flood(host),
            _ if random.chance(70) => Act::Replay,
            _ => Act::NoNames,
        }
    }

    fn soon(&mut self, act: Act, secs: u64) {
        let after = self.world.random.next() % (secs * 1000);
        self.world
            .plan(Duration::from_millis(after), Happening::Act(act));
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Data(from, to) => {
                for _ in 0..3 {
                    self.world.send(from, to);
                }
            }
            Act::Roam(at) => {
                self.roamed = self.roamed.wrapping_add(1);
                let host = &mut self.world.hosts[at];
                host.ip = Ipv4Addr::new(10, 1 + self.roamed, 0, at as u8 + 1).into();
                host.outside.ifindex += 1;
                self.rename(at);
                self.world.tell(at, Event::NetworkChanged);
            }
            Act::Down(at) => {
                self.world.hosts[at].link_up = false;
                let (up, mtu) = (false, 1420);
                self.world.tell(at, Event::Link { up, mtu });
                self.soon(Act::Up(at), 20);
            }
            Act::Up(at) => self.up(at),
            Act::Clock(at, secs) => {
                let wall = &mut self.world.hosts[at].wall;
                let by = Duration::from_secs(secs.unsigned_abs());
                *wall = if secs < 0 { *wall - by } else { *wall + by };
            }
            Act::Remove(at, of) => {
                let public = hex(&self.world.hosts[of].public());
                self.world
                    .configure(at, &format!("public_key={public}\nremove=true\n"))
                    .unwrap();
                self.soon(Act::Add(at, of), 20);
            }
            Act::Add(at, of) => self.say(at, of),
            Act::Port(at) => {
                let port = 51821 + self.world.random.below(1000);
                // The port may be in use.
                let _ = self.world.configure(at, &format!("listen_port={port}\n"));
            }
            Act::Mark(at) => {
                let mark = self.world.random.below(3);
                let marked = self.world.configure(at, &format!("fwmark={mark}\n"));
                marked.unwrap();
            }
            Act::Preshare(a, b) => {
                let key = self.world.random.bytes();
                for (at, of) in [(a, b), (b, a)] {
                    self.sayings.get_mut(&(at, of)).unwrap().preshared = Some(key);
                    self.say(at, of);
                }
            }
            Act::Keepalive(at, of) => {
                let saying = self.sayings.get_mut(&(at, of)).unwrap();
                saying.keepalive = if saying.keepalive == 0 { 10 } else { 0 };
                self.say(at, of);
            }
            Act::NewKey(at) => self.new_key(at),
            Act::Flood(at) => self.flood(at),
            Act::Replay => {
                if !self.world.recorded.is_empty() {
                    let which = self.world.random.below(self.world.recorded.len());
                    let (from, to, bytes) = self.world.recorded[which].clone();
                    self.world.throw(from, to, bytes);
                }
            }
            Act::NoNames => {
                self.world.no_names = Some(self.world.now + Duration::from_secs(20));
            }
        }
    }

    fn up(&mut self, at: usize) {
        self.world.hosts[at].link_up = true;
        let (up, mtu) = (true, 1420);
        self.world.tell(at, Event::Link { up, mtu });
    }

    /// A host changes its key, and its peers learn it.
    fn new_key(&mut self, at: usize) {
        let peers = self.both_ways().into_iter().filter(|(_, of)| *of == at);
        let peers: Vec<usize> = peers.map(|(peer, _)| peer).collect();
        let old = hex(&self.world.hosts[at].public());
        for &peer in &peers {
            self.world
                .configure(peer, &format!("public_key={old}\nremove=true\n"))
                .unwrap();
        }
        let key = *PrivateKey::new(self.world.random.bytes()).as_bytes();
        self.world.hosts[at].key = key;
        self.world
            .configure(at, &format!("private_key={}\n", hex(&key)))
            .unwrap();
        for peer in peers {
            self.say(peer, at);
        }
    }

    fn flood(&mut self, at: usize) {
        let until = self.world.now + Duration::from_secs(10);
        self.world.hosts[at].load = Some(until);
        for number in 0..50_u8 {
            let mut bytes = vec![number; 148];
            bytes[..4].copy_from_slice(&[1 + number % 3, 0, 0, 0]);
            let from: IpAddr = Ipv4Addr::new(203, 0, 113, number).into();
            let to = self.world.hosts[at].address();
            self.world.throw((from, 1).into(), to, bytes);
        }
    }

    fn recover(&mut self) {
        self.world.wire = Wire {
            delay: 20,
            ..Wire::default()
        };
        (self.world.no_ports, self.world.no_names) = (0, None);
        // Events planned for just after the trouble still belong to it.
        let end = self.world.now + Duration::from_secs(21);
        while let Some(act) = self.world.run(end) {
            self.act(act);
        }
        for at in 0..self.world.hosts.len() {
            self.up(at);
        }
        self.pass(1);
        for at in 0..self.world.hosts.len() {
            self.rename(at);
        }
        for (at, of) in self.both_ways() {
            let address = self.world.hosts[of].address();
            let saying = self.sayings.get_mut(&(at, of)).unwrap();
            if let Some(endpoint) = &mut saying.endpoint {
                *endpoint = address;
            }
            self.say(at, of);
        }
        for _ in 0..RECOVERY / 5 {
            self.talk();
            self.pass(5);
        }
        for at in 0..self.world.hosts.len() {
            self.world.heard(at);
        }
        self.talk();
        self.pass(1);
        for at in 0..self.world.hosts.len() {
            let heard = self.world.heard(at);
            for (of, _) in self.both_ways().into_iter().filter(|(_, to)| *to == at) {
                let inner = self.world.hosts[of].inner;
                assert!(heard.contains(&inner), "{at} hears nothing of {of}");
            }
        }
    }

    /// Sends a packet from every host to each of its peers.
    fn talk(&mut self) {
        for (from, to) in self.both_ways() {
            self.world.send(from, to);
        }
    }

    fn pass(&mut self, secs: u64) {
        let end = self.world.now + Duration::from_secs(secs);
        assert!(self.world.run(end).is_none());
    }

    fn end(&mut self) {
        for at in 0..self.world.hosts.len() {
            let peers = self.both_ways().into_iter().filter(|(it, _)| *it == at);
            let peers = peers.count();
            let told = self.world.hosts[at].told();
            assert_eq!(told.matches("\npublic_key=").count(), peers);
            assert!(!told.contains("last_handshake_time_sec=0\n"), "{told}");
            // Sends packets in the middle of other events.
            self.world.send(at, usize::from(at == 0));
            let emptied = self.world.configure(at, "replace_peers=true\n");
            emptied.unwrap();
        }
        self.pass(10);
        for host in &self.world.hosts {
            assert!(host.plane.is_empty());
            assert_eq!(host.machine.next_deadline(), None, "nothing is waited for");
            assert!(!host.told().contains("\npublic_key="));
        }
    }
}
