//! An interface and one peer, a path that loses packets that are too long, and a clock.

use super::*;
use crate::wireguard::event::Event;
use crate::wireguard::fixture::FakeHost;
use config::uapi::{SetDevice, SetPeer};
use plane::Now;
use plane::fake::{Call, FakeDataPlane};
use plane::{Endpoint, Line};
use wireguard::WireGuard;

const KEY: [u8; 32] = [7; 32];
const TARGETS: [&str; 2] = ["10.0.0.9", "10.0.0.2"];
const PEER: PeerId = PeerId(0);

struct World {
    machine: Machine,
    plane: Arc<FakeDataPlane<WireGuard>>,
    host: FakeHost,
    start: Now,
    seconds: u64,
    /// The longest inner packet that passes the path.
    carries: usize,
    /// Longest packet in bytes that this host's device takes.
    device: usize,
    /// The targets that answer.
    answers: Vec<&'static str>,
    probes: usize,
}

impl World {
    fn new(carries: usize, answers: &[&'static str]) -> Self {
        let start = Now::read();
        let plane = Arc::new(FakeDataPlane::new(WireGuard::new(), "wg0", 1420));
        let mut world = Self {
            machine: Machine::new(start, 1),
            host: FakeHost::new(plane.clone()),
            plane,
            start,
            seconds: 0,
            carries,
            device: 9000,
            answers: answers.to_vec(),
            probes: 0,
        };
        let set = SetDevice {
            private_key: Some(Key32::new([9; 32])),
            peers: vec![SetPeer {
                public_key: Key32::new(KEY),
                ..SetPeer::default()
            }],
            ..SetDevice::default()
        };
        let mut cx = Cx::new(start, &*world.plane, &mut world.host);
        world.machine.configure(&set, &mut cx).unwrap();
        world
            .plane
            .change_peer(PEER, |state| state.sealed = Some(1));
        world.is_at(1);
        world.plan(1420);
        world
    }

    fn plan(&mut self, most: u16) {
        let targets = TARGETS.map(|to| ("10.0.0.1".parse().unwrap(), to.parse().unwrap()));
        let plan = ProbePlan {
            least: 1280,
            most,
            peers: vec![(Key32::new(KEY), targets.into())],
            prefix: 0,
        };
        self.tell(Event::ProbePaths(Some(Box::new(plan))));
    }

    fn now(&self) -> Now {
        Now {
            monotonic: self.start.monotonic + Duration::from_secs(self.seconds),
            ..self.start
        }
    }

    /// The peer is at this address.
    fn is_at(&self, last: u8) {
        let line = Line::udp(Endpoint::new(([192, 0, 2, last], 51820).into()));
        self.plane
            .change_peer(PEER, |state| state.line = Some(line));
    }

    fn tell(&mut self, event: Event) {
        self.plane.set_longest(self.device);
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let now = self.now();
            let mut cx = Cx::new(now, &*self.plane, &mut self.host);
            self.machine.handle(event, &mut cx);
            for call in self.plane.take_calls() {
                if let Call::SendWhole(id, packet) = call {
                    self.probes += 1;
                    let bytes = packet.len() as u64 + 60;
                    self.plane.change_peer(id, |state| state.tx_bytes += bytes);
                    events.extend(self.travel(id, &packet));
                }
            }
        }
    }

    fn travel(&self, id: PeerId, packet: &[u8]) -> Option<Event> {
        if packet.len() > self.device {
            return None;
        }
        let answer = echo::answer_to(packet).unwrap();
        let from = Answer::parse(&answer).unwrap().from.to_string();
        let answers = self.answers.contains(&from.as_str());
        if !answers || packet.len() > self.carries {
            return None;
        }
        let watch = echo::EchoWatch::default();
        // A probe may have been sent before the refusal of a longer one ended the search.
        watch.watch(self.host.last_token);
        assert!(
            watch.takes(&answer),
            "the TUN would get an answer to a probe"
        );
        let bytes = answer.len() as u64 + 60;
        self.plane.change_peer(id, |state| state.rx_bytes += bytes);
        Some(Event::Message(id, answer[..148.min(answer.len())].into()))
    }

    /// Lets time pass, with this many bytes of other traffic in each second. A deadline comes every second.
    fn run(&mut self, seconds: u64, bytes: u64) {
        for _ in 0..seconds {
            self.seconds += 1;
            self.plane
                .change_peer(PEER, |state| state.tx_bytes += bytes);
            self.tell(Event::Deadline);
        }
    }

    fn found(&self) -> Option<u32> {
        let path = self.machine.probed_path(&*self.plane);
        path.map(|path| path.bytes)
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
    assert_eq!((world.probes, world.host.token), (0, 0));
    assert_eq!(world.report(), "10.0.0.9 has not been pinged yet");
    world.run(60, 2000);
    assert_eq!(
        (world.probes, world.host.token, world.found()),
        (2, 0, None)
    );
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
    assert_eq!(world.host.token, 0, "nothing is waited for any more");
    let path = world.machine.probed_path(&*world.plane).unwrap();
    assert_eq!(
        (path.to.to_string(), path.overhead),
        ("192.0.2.1".to_owned(), 60)
    );
    world.carries = 1420;
    world.run(700, 2000);
    assert_eq!(world.found(), None);
    // The MTU of the path decreases, which the probe of every two minutes detects.
    world.carries = 1300;
    world.run(300, 2000);
    let found = world.found().unwrap();
    assert!((1285..=1300).contains(&found), "{found}");
    // The peer has moved, so the search starts again.
    world.carries = 1420;
    world.is_at(2);
    let looks = world.host.path_looks;
    world.run(20, 2000);
    assert_eq!(world.found(), None);
    assert!(world.host.path_looks > looks, "the owner is notified");
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

/// The owner reads the path's MTU again, once for many refusals.
#[cfg(feature = "amnezia")]
#[test]
fn refusals_of_long_datagrams_and_changes_of_s4_are_changes_of_the_path() {
    use plane::Notice;
    let mut world = World::new(1420, &[]);
    let before = world.host.changes;
    for _ in 0..3 {
        world.tell(Event::Notices(vec![(PEER, Notice::TooLong); 2]));
    }
    assert_eq!(world.host.changes, before);
    world.run(10, 0);
    assert_eq!(world.host.changes, before + 1);
    for (name, value, changes) in [("Jc", "3", 1), ("S4", "20", 2), ("S4", "20", 2)] {
        let mut settings = world.machine.device.settings();
        settings.set(name, value).unwrap();
        let set = SetDevice {
            amnezia: config::amnezia::Change::whole(&settings),
            ..SetDevice::default()
        };
        let now = world.now();
        let mut cx = Cx::new(now, &*world.plane, &mut world.host);
        world.machine.configure(&set, &mut cx).unwrap();
        assert_eq!(world.host.changes, before + changes);
    }
}
