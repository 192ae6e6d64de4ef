//! An interface and one peer, a path that loses packets that are too long, and a clock.

use super::*;
use crate::now::Now;
use crate::wireguard::event::Event;
use config::uapi::{SetDevice, SetPeer};
use plane::{Endpoint, Line, PeerState};
use std::cell::RefCell;

const KEY: [u8; 32] = [7; 32];
const TARGETS: [&str; 2] = ["10.0.0.9", "10.0.0.2"];

struct World {
    machine: Machine,
    start: Now,
    seconds: u64,
    state: RefCell<PeerState>,
    /// The longest inner packet that passes the path.
    carries: usize,
    /// Longest packet in bytes that this host's device takes.
    device: usize,
    /// The targets that answer.
    answers: Vec<&'static str>,
    token: u64,
    probes: usize,
    looks: usize,
}

impl World {
    fn new(carries: usize, answers: &[&'static str]) -> Self {
        let start = Now::read();
        let line = Line::udp(Endpoint::new(([192, 0, 2, 1], 51820).into()));
        let state = PeerState {
            line: Some(line),
            sealed: Some(1),
            ..PeerState::default()
        };
        let mut world = Self {
            machine: Machine::new(start, 1),
            start,
            seconds: 0,
            state: RefCell::new(state),
            carries,
            device: 9000,
            answers: answers.to_vec(),
            token: 0,
            probes: 0,
            looks: 0,
        };
        let set = SetDevice {
            private_key: Some(Key32::new([9; 32])),
            peers: vec![SetPeer {
                public_key: Key32::new(KEY),
                ..SetPeer::default()
            }],
            ..SetDevice::default()
        };
        world.tell(Event::Configure { client: 0, set });
        world.plan(1420);
        world
    }

    fn plan(&mut self, most: u16) {
        let targets = TARGETS.map(|to| ("10.0.0.1".parse().unwrap(), to.parse().unwrap()));
        let plan = ProbePlan {
            least: 1280,
            most,
            peers: vec![(Key32::new(KEY), targets.into())],
        };
        self.tell(Event::ProbePaths(Some(Box::new(plan))));
    }

    fn now(&self) -> Now {
        Now {
            monotonic: self.start.monotonic + Duration::from_secs(self.seconds),
            ..self.start
        }
    }

    fn tell(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let mut effects = Vec::new();
            let (now, state) = (self.now(), *self.state.borrow());
            let view = |_| Some(state);
            self.machine.handle(event, now, &view, &mut effects);
            for effect in effects {
                match effect {
                    Effect::WatchEchoes(token) => self.token = token,
                    Effect::LookAtPath => self.looks += 1,
                    Effect::Plane(PlaneRequest::Probe(id, number, packet)) => {
                        self.probes += 1;
                        self.state.borrow_mut().tx_bytes += packet.len() as u64 + 60;
                        events.extend(self.travel(id, number, &packet));
                    }
                    _ => {}
                }
            }
        }
    }

    fn travel(&self, id: PeerId, number: u64, packet: &[u8]) -> Option<Event> {
        if packet.len() > self.device {
            return Some(Event::ProbeTooLong(id, number));
        }
        let answer = echo::answer_to(packet).unwrap();
        let from = Answer::parse(&answer).unwrap().from.to_string();
        let answers = self.answers.contains(&from.as_str());
        if !answers || packet.len() > self.carries {
            return None;
        }
        let watch = echo::EchoWatch::default();
        watch.watch(self.token);
        assert!(
            watch.takes(&answer),
            "the TUN would get an answer to a probe"
        );
        self.state.borrow_mut().rx_bytes += answer.len() as u64 + 60;
        Some(Event::Message(id, answer[..148.min(answer.len())].into()))
    }

    /// Lets time pass, with this many bytes of other traffic in each second. Deadlines come every second.
    fn run(&mut self, seconds: u64, bytes: u64) {
        for _ in 0..seconds {
            self.seconds += 1;
            self.state.borrow_mut().tx_bytes += bytes;
            self.tell(Event::Deadline);
        }
    }

    fn found(&self) -> Option<u32> {
        self.machine.probed_path(&|_| None).map(|path| path.bytes)
    }

    fn report(&self) -> String {
        self.machine.probe_report().unwrap()
    }
}

#[test]
fn nothing_is_asked_on_an_idle_tunnel_and_little_on_a_good_path() {
    let mut world = World::new(1420, &TARGETS);
    // Keepalives only.
    world.run(600, 10);
    assert_eq!((world.probes, world.token), (0, 0));
    assert_eq!(world.report(), "10.0.0.9 was not asked yet");
    world.run(60, 2000);
    assert_eq!((world.probes, world.token, world.found()), (2, 0, None));
    assert_eq!(world.report(), "10.0.0.9 answers up to 1420 bytes");
    // The probes themselves do not count as traffic.
    world.run(3600, 10);
    assert_eq!(world.probes, 2);
}

#[test]
fn a_black_hole_narrows_the_mtu_and_its_end_widens_it() {
    let mut world = World::new(1372, &["10.0.0.9"]);
    world.run(90, 2000);
    let found = world.found().unwrap();
    assert!((1357..=1372).contains(&found), "{found}");
    assert_eq!(world.token, 0, "nothing is waited for any more");
    let path = world.machine.probed_path(&|_| None).unwrap();
    assert_eq!(
        (path.to.to_string(), path.overhead),
        ("192.0.2.1".to_owned(), 60)
    );
    world.carries = 1420;
    world.run(700, 2000);
    assert_eq!(world.found(), None);
    // The path gets narrower, which the probe of every two minutes finds.
    world.carries = 1300;
    world.run(300, 2000);
    let found = world.found().unwrap();
    assert!((1285..=1300).contains(&found), "{found}");
    // The peer has moved, so the probes start anew.
    world.carries = 1420;
    let elsewhere = Line::udp(Endpoint::new(([192, 0, 2, 2], 51820).into()));
    world.state.borrow_mut().line = Some(elsewhere);
    let looks = world.looks;
    world.run(20, 2000);
    assert_eq!(world.found(), None);
    assert!(world.looks > looks, "the owner is told");
}

#[test]
fn what_does_not_answer_changes_nothing_and_another_address_is_asked() {
    let mut world = World::new(1300, &[]);
    world.run(120, 2000);
    assert_eq!((world.found(), world.probes), (None, 12));
    assert_eq!(world.report(), "10.0.0.2 answers no pings");
    let mut world = World::new(1300, &["10.0.0.2"]);
    world.run(200, 2000);
    assert!(world.found().is_some_and(|found| found <= 1300));
}

#[test]
fn the_device_may_refuse_and_the_line_may_change() {
    let mut world = World::new(1420, &TARGETS);
    world.device = 1400;
    world.run(30, 2000);
    let found = world.found().unwrap();
    assert!((1385..=1400).contains(&found), "{found}");
    world.plan(1380);
    assert_eq!(world.found(), None, "less is wanted already");
    world.tell(Event::ProbePaths(None));
    assert_eq!(world.machine.probe_report(), None);
}
