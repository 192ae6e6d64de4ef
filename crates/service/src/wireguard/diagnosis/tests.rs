//! An interface, and a peer with other settings whose datagrams the data plane hands over.

use super::*;
use crate::wireguard::event::Event;
use crate::wireguard::fixture::FakeHost;
use config::types::Key32;
use config::uapi::{Request, Requests, SetDevice};
use crypto::x25519::PrivateKey;
use plane::fake::{Call, FakeDataPlane};
use plane::{Endpoint, Line, Notice, Now};
use std::sync::Arc;
use wireguard::amnezia::{Profile, Settings, TRIALS_MAX};
use wireguard::{Device, Output, WireGuard};

const PEER: PeerId = PeerId(0);
const KEYS: [[u8; 32]; 2] = [[7; 32], [9; 32]];

struct World {
    machine: Machine,
    plane: Arc<FakeDataPlane<WireGuard>>,
    host: FakeHost,
    /// The other end.
    other: Device,
    start: Now,
    seconds: u64,
}

fn public(at: usize) -> [u8; 32] {
    *PrivateKey::new(KEYS[at]).public().as_bytes()
}

fn request(lines: &str) -> SetDevice {
    let text = format!("set=1\n{lines}\n");
    match Requests::new(text.as_bytes()).next_request() {
        Ok(Some(Ok(Request::Set(set)))) => set,
        other => panic!("{lines}: {other:?}"),
    }
}

impl World {
    /// The interface has these lines of a request, the other end these settings.
    fn new(lines: &str, other: &[(&str, &str)]) -> Self {
        let start = Now::read();
        let plane = Arc::new(FakeDataPlane::new(WireGuard::new(), "wg0", 1420));
        let mut device = Device::new(start.monotonic, start.wall, 2);
        let (mut out, now) = (Vec::new(), start.monotonic);
        device.set_private_key(Some(PrivateKey::new(KEYS[0])), now, &mut out);
        let peer = device.add_peer(public(1).into()).unwrap();
        device.set_endpoint(peer, Some(([192, 0, 2, 2], 1).into()), now, &mut out);
        let mut world = Self {
            machine: Machine::new(start, 1),
            host: FakeHost::new(plane.clone()),
            plane,
            other: device,
            start,
            seconds: 0,
        };
        world.changes(other);
        let keys = [KEYS[1], public(0)].map(|key| Key32::new(key).to_hex());
        let [own, peer] = &keys;
        let lines = format!("private_key={}\n{lines}public_key={}\n", **own, **peer);
        world.set(&lines);
        world.tell(Event::Start);
        world
    }

    fn set(&mut self, lines: &str) {
        let mut cx = Cx::new(self.now(), &*self.plane, &mut self.host);
        self.machine.configure(&request(lines), &mut cx).unwrap();
    }

    /// The other end has these settings from now on.
    fn changes(&mut self, lines: &[(&str, &str)]) {
        let mut settings = Settings::default();
        for (name, value) in lines {
            settings.set(name, value).unwrap();
        }
        let (profile, now) = (Profile::new(settings).unwrap(), self.now().monotonic);
        self.other.set_profile(profile, now, &mut Vec::new());
    }

    fn now(&self) -> Now {
        let passed = Duration::from_secs(self.seconds);
        Now {
            monotonic: self.start.monotonic + passed,
            wall: self.start.wall + passed,
        }
    }

    fn tell(&mut self, event: Event) {
        let mut cx = Cx::new(self.now(), &*self.plane, &mut self.host);
        self.machine.handle(event, &mut cx);
    }

    fn receive(&mut self, from: u8, bytes: &[u8]) {
        let from = ([192, 0, 2, from], 1).into();
        self.tell(Event::Handshake {
            from: Line::udp(Endpoint::new(from)),
            bytes: bytes.into(),
            waiting: 0,
        });
    }

    /// Lets time pass; a deadline comes each second. The other end begins a handshake at the end.
    fn is_called_after(&mut self, seconds: u64) {
        self.pass(seconds);
        let (now, mut out) = (self.now(), Vec::new());
        self.other.set_wall_clock(now.monotonic, now.wall);
        self.other.probe(PEER, true, now.monotonic, &mut out);
        for output in out {
            if let Output::Send { datagram, .. } = output {
                self.receive(1, datagram.as_bytes());
            }
        }
    }

    /// Begins a handshake, which the other end answers.
    fn calls(&mut self) {
        self.plane.take_calls();
        self.tell(Event::Notices(vec![(PEER, Notice::NeedSession)]));
        let mut out = Vec::new();
        for call in self.plane.take_calls() {
            if let Call::SendToPeer(_, _, bytes) = call {
                let (from, now) = (([192, 0, 2, 1], 1).into(), self.now().monotonic);
                // Random packets before the beginning are refused.
                let _ = self.other.receive(&bytes, from, now, false, &mut out);
            }
        }
        for output in out {
            if let Output::Send { datagram, .. } = output {
                self.receive(1, datagram.as_bytes());
            }
        }
    }

    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.seconds += 1;
            self.tell(Event::Deadline);
        }
    }

    /// The peer sends a packet of a session.
    fn is_heard(&self) {
        let now = self.now().monotonic;
        let heard = |state: &mut plane::PeerState| state.times.last_received = Some(now);
        self.plane.change_peer(PEER, heard);
    }

    fn difference(&self) -> Option<String> {
        self.machine.peers[&PEER].difference(received(PEER, &*self.plane))
    }

    /// Log lines about other settings.
    fn logged(&self) -> Vec<&String> {
        let lines = self.host.said.iter();
        lines.filter(|it| it.contains("has other")).collect()
    }
}

#[test]
fn a_difference_is_told_until_the_peer_is_heard_and_logged_once() {
    let mut world = World::new("s1=30\n", &[("S1", "44")]);
    let words = |there: u8| {
        format!("S1 is {there} at the other end, 30 here; give both ends the same values")
    };
    assert_eq!(world.difference(), None);
    for _ in 0..30 {
        world.is_called_after(5);
        assert_eq!(world.difference(), Some(words(44)));
    }
    assert_eq!(world.logged().len(), 1);
    assert!(
        world.logged()[0].ends_with(&words(44)),
        "{:?}",
        world.logged()
    );
    // Others are logged at most once a minute.
    for second in 1..=120 {
        let there = if second % 2 == 0 { "45" } else { "46" };
        world.changes(&[("S1", there)]);
        world.is_called_after(1);
        assert_eq!(world.difference(), Some(words(45 + (second % 2) as u8)));
    }
    assert!((3..=4).contains(&world.logged().len()));
    world.pass(1);
    world.is_heard();
    assert_eq!(world.difference(), None);
    // The peer was heard lately: it may just have been given other values.
    world.is_called_after(5);
    assert_eq!(world.difference(), None);
}

#[test]
fn the_beginning_of_a_handshake_refutes_what_beginnings_showed() {
    let mut world = World::new("s1=30\ns4=16\n", &[("S1", "44"), ("S4", "16")]);
    world.is_called_after(5);
    assert!(world.difference().unwrap().starts_with("S1 is 44"));
    world.changes(&[("S1", "30"), ("S2", "9"), ("S4", "16")]);
    world.is_called_after(5);
    assert_eq!(world.difference(), None);
}

#[test]
fn a_peer_that_answers_handshakes_only_is_told_until_it_sends_packets() {
    let mut world = World::new("s1=30\ns4=16\n", &[("S1", "30"), ("S4", "20")]);
    let peer = Key32::new(public(0)).to_hex();
    world.set(&format!("public_key={}\nendpoint=192.0.2.1:1\n", *peer));
    world.calls();
    assert_eq!(world.difference(), None);
    for _ in 0..2 {
        let now = world.now().monotonic;
        let sent = |state: &mut plane::PeerState| state.times.unanswered_since = Some(now);
        world.plane.change_peer(PEER, sent);
        // Before the device begins a handshake by itself.
        world.pass(12);
        world.calls();
        let words = world.difference().unwrap();
        assert!(words.contains("S4 or H4 may differ"), "{words}");
    }
    let told = world.host.said.iter().filter(|it| it.contains("S4 or H4"));
    assert_eq!(told.count(), 1);
    world.pass(1);
    world.is_heard();
    assert_eq!(world.difference(), None);
    let mut plain = World::new("", &[]);
    plain.calls();
    assert_eq!(plain.machine.hint(PEER), "");
}

#[test]
fn plain_wireguard_at_the_other_end_is_told() {
    let mut world = World::new("s1=30\nh1=7\n", &[]);
    world.is_called_after(1);
    let words = world.difference().unwrap();
    assert!(words.starts_with("the other end speaks plain WireGuard"));
    let mut world = World::new("", &[("H1", "7")]);
    world.is_called_after(1);
    let words = world.difference().unwrap();
    assert!(words.starts_with("the other end speaks AmneziaWG (S1 is 0, H1 includes 7)"));
}

/// The other end accepts no answer with a trailer, and calls again and again.
#[test]
fn a_peer_without_trailers_is_told_when_it_hears_no_answer() {
    let mut world = World::new("s1=30\nrandom_trailers=1\n", &[("S1", "30")]);
    for is_told in [false, false, true] {
        world.is_called_after(6);
        assert_eq!(world.difference().is_some(), is_told);
    }
    let words = world.difference().unwrap();
    assert!(words.starts_with("RandomTrailers is off at the other end, on here"));
}

#[test]
fn the_data_plane_is_asked_for_one_datagram_while_all_peers_are_heard() {
    let mut world = World::new("s1=30\n", &[("S1", "44")]);
    world.pass(100);
    assert_eq!(world.host.samples, [TRIALS_MAX], "nothing was rejected");
    world.is_called_after(1);
    world.pass(100);
    assert_eq!(world.host.samples[1..], [TRIALS_MAX]);
    for _ in 0..60 {
        world.is_heard();
        world.receive(3, &[9; 200]);
        world.pass(1);
    }
    let asked = &world.host.samples[2..];
    assert!((5..=7).contains(&asked.len()), "{asked:?}");
    assert!(asked.iter().all(|count| *count == 1), "{asked:?}");
    // The first rejected datagram shows that the peer is quiet, the next one why.
    world.is_called_after(5);
    world.is_called_after(5);
    world.is_called_after(5);
    assert!(world.difference().is_some());
    // A flood uses the trials up, and more come with time.
    for _ in 0..1000 {
        world.receive(3, &[9; 200]);
    }
    world.pass(1);
    assert_eq!(world.host.samples.last(), Some(&16));
}

#[test]
fn keepalives_without_s4_are_logged_once() {
    let mut world = World::new("s4=16\n", &[("S4", "16")]);
    world.is_called_after(1);
    let index = world.plane.sessions(PEER)[0];
    for bare in [index.wrapping_add(1), index, index] {
        world.host.bare = Some(bare);
        world.tell(Event::Notices(Vec::new()));
    }
    let lines = world.host.said.iter();
    let told = lines.filter(|it| it.contains("keepalives without S4"));
    assert_eq!(told.count(), 1, "{:?}", world.host.said);
}
