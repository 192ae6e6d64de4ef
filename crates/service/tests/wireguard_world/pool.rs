//! A client with a pool of servers that die and come back: data always reaches one that lives.

use crate::host::hex;
use crate::world::World;
use config::pool::{Choose, Pool, Server};
use config::tunnel::{Peer, Tunnel};
use config::types::Key32;
use service::wireguard::{Event, Rotation};
use std::time::Duration;

/// The client comes behind the servers.
const SERVERS: usize = 4;
const CLIENT: usize = SERVERS;

struct Pooled {
    world: World,
    rotation: Rotation,
    calling: bool,
    /// Keys of the client's peers.
    running: Vec<Key32>,
}

impl Pooled {
    fn new(seed: u64) -> Self {
        let mut world = World::new(seed, SERVERS + 1);
        world.wire.loss = world.random.next() % 20;
        for at in 0..=CLIENT {
            let key = hex(&world.hosts[at].key);
            let text = format!("private_key={key}\nlisten_port=51820\n");
            world.configure(at, &text).unwrap();
            lives(&mut world, at, true);
        }
        let servers = (0..SERVERS).map(|at| {
            world.say(at, CLIENT, &crate::host::Saying::default());
            Server {
                name: format!("server{at}"),
                endpoint: world.hosts[at].address().into(),
                public_key: Some(Key32::new(world.hosts[at].public())),
            }
        });
        let servers: Vec<Server> = servers.collect();
        let choose = Choose::ALL[world.random.below(3)];
        let peer = Peer {
            public_key: Key32::new([9; 32]),
            endpoint: Some("192.0.2.1:1".parse().unwrap()),
            allowed_ips: vec!["0.0.0.0/0".parse().unwrap()],
            ..Peer::default()
        };
        let tunnel = Tunnel {
            peers: vec![peer],
            pool: Some(Pool {
                wanted: vec!["*".to_owned()],
                choose,
                servers,
            }),
            ..Tunnel::default()
        };
        let mut rotation = Rotation::new(&tunnel, seed, None, world.now).unwrap();
        rotation.begin(|_| true);
        let mut pooled = Self {
            world,
            rotation,
            calling: true,
            running: Vec::new(),
        };
        pooled.apply(true);
        pooled
    }

    /// Gives the client the servers in use, as the owner of an interface does.
    fn apply(&mut self, anew: bool) {
        let set = self.rotation.changes(&self.running, anew);
        self.world.apply(CLIENT, &set).unwrap();
        let peers = self.rotation.peers();
        self.running = peers.iter().map(|it| it.public_key.clone()).collect();
        if anew {
            for peer in peers {
                self.world.tell(
                    CLIENT,
                    Event::SetEndpoint {
                        public_key: peer.public_key,
                        endpoint: peer.endpoint.unwrap(),
                    },
                );
            }
            self.world.tell(CLIENT, Event::Call(self.running.clone()));
        }
    }

    /// Lets time pass while the client sends.
    fn pass(&mut self, time: Duration) {
        let end = self.world.now + time;
        while self.world.now < end {
            self.world.send(CLIENT, 0);
            let step = self.world.now + Duration::from_millis(200);
            assert!(self.world.run(step).is_none());
            let client = &self.world.hosts[CLIENT];
            let heard = client.machine.heard(self.world.now, &*client.plane.fake);
            if heard.silent {
                if self.rotation.silent(self.world.now, |_| true) {
                    self.calling = true;
                    self.apply(true);
                }
            } else if let Some(first) = heard.first.filter(|_| self.calling) {
                self.rotation.answered(&first);
                self.calling = false;
                self.apply(false);
            }
        }
    }

    /// Whether data of the client reaches a server.
    fn reaches(&mut self) -> bool {
        (0..SERVERS).for_each(|at| drop(self.world.heard(at)));
        self.pass(Duration::from_secs(1));
        (0..SERVERS).any(|at| !self.world.heard(at).is_empty())
    }

    /// Waits until data reaches a server. After 20 seconds of silence the servers are called in turn, each for at most a
    /// minute; a handshake may be lost.
    fn reaches_at_last(&mut self) {
        let seconds = 30 + 2 * 60 * SERVERS;
        assert!((0..seconds).any(|_| self.reaches()));
    }
}

fn lives(world: &mut World, at: usize, up: bool) {
    world.hosts[at].link_up = up;
    world.tell(at, Event::Link { up, mtu: 1420 });
}

/// The client sends to the first server, which answers, while its first renewal of keys loses this many messages.
pub(crate) fn keeps(lost: u32) {
    let mut pooled = Pooled::new(0);
    pooled.world.wire.loss = 0;
    pooled.reaches_at_last();
    let called = |pooled: &Pooled| pooled.rotation.called().next().cloned();
    let before = called(&pooled);
    let server = before.as_ref().unwrap().name.trim_start_matches("server");
    let server = server.parse().unwrap();
    pooled.world.wire.handshakes_lost = lost;
    let failures = pooled.rotation.failures();
    for second in 0..240 {
        pooled.world.send(server, CLIENT);
        pooled.pass(Duration::from_secs(1));
        assert_eq!(called(&pooled), before, "{lost} lost, second {second}");
        assert!(
            !pooled.world.heard(server).is_empty(),
            "{lost} lost, second {second}"
        );
    }
    assert_eq!(
        (
            pooled.world.wire.handshakes_lost,
            pooled.rotation.failures()
        ),
        (0, failures)
    );
}

/// Nothing reaches the server in use any more, while its own handshakes arrive.
pub(crate) fn leaves_a_deaf_server() {
    let mut pooled = Pooled::new(0);
    pooled.world.wire.loss = 0;
    pooled.reaches_at_last();
    let name = |pooled: &Pooled| pooled.rotation.called().next().unwrap().name.clone();
    let before = name(&pooled);
    let server: usize = before.trim_start_matches("server").parse().unwrap();
    pooled.world.wire.deaf = Some(pooled.world.hosts[server].address());
    // It sends once, and then asks for an answer.
    pooled.world.send(server, CLIENT);
    pooled.pass(Duration::from_secs(50));
    assert_ne!(name(&pooled), before);
    assert!(pooled.reaches());
}

/// Runs the story of this seed.
pub(crate) fn run(seed: u64) {
    let mut pooled = Pooled::new(seed);
    let mut alive = [true; SERVERS];
    for _ in 0..6 {
        for (at, alive) in alive.iter_mut().enumerate() {
            *alive = pooled.world.random.chance(40);
            lives(&mut pooled.world, at, *alive);
        }
        let some = alive.iter().any(|it| *it);
        let waits = pooled.world.random.next() % 100;
        pooled.pass(Duration::from_secs(waits));
        if some {
            pooled.reaches_at_last();
        }
    }
    lives(&mut pooled.world, 0, true);
    pooled.reaches_at_last();
    assert_eq!(pooled.rotation.called().count(), 1);
    assert_eq!(pooled.running.len(), 1);
    let told = pooled.world.hosts[CLIENT].told();
    assert!(told.contains("allowed_ip=0.0.0.0/0"), "{told}");
}
