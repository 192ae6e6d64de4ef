//! Several lines to one peer, whose devices come and go.

use super::*;
use crate::control::fixture::Fake;
use config::lines::Line as OneLine;
use std::time::UNIX_EPOCH;

const PEER: PeerId = PeerId(1);
const A: LineId = LineId(0);
const B: LineId = LineId(1);
const SECOND: Duration = Duration::from_secs(1);

/// Lines in use, with their outside and a clock.
struct World {
    lines: Lines,
    out: Fake,
    now: Instant,
    /// The lines by which the peer answers.
    works: Vec<LineId>,
}

impl World {
    /// Two lines `a` and `b` that work, in this mode.
    fn new(mode: LineMode, change: impl FnOnce(&mut Settings)) -> Self {
        let line = |name: &str| OneLine {
            name: name.to_owned(),
            interface: Some(name.to_owned()),
            ..OneLine::default()
        };
        let mut settings = Settings {
            mode,
            lines: vec![line("a"), line("b")],
            hold: 30 * SECOND,
            ..Settings::default()
        };
        change(&mut settings);
        Self {
            lines: Lines::new(settings),
            out: Fake::new(),
            now: Instant::now(),
            works: vec![A, B],
        }
    }

    /// Opens the lines and calls the peer.
    fn begun(mut self) -> Self {
        self.lines.bind(self.now, &mut self.out);
        let address = SocketAddr::from(([203, 0, 113, 9], 51820));
        self.lines.call(PEER, address, &mut self.out);
        // The first uplink that answers is used at once.
        let works = std::mem::replace(&mut self.works, vec![A]);
        self.run(5 * SECOND);
        self.works = works;
        self.run(10 * SECOND);
        self
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            let state = PeerState {
                sealed: Some(1),
                ..PeerState::default()
            };
            self.lines.expire(self.now, &mut self.out);
            self.lines.look(self.now, |_| state, &mut self.out);
            for (call, line, _) in self.out.told() {
                if call == "probe" && self.works.contains(&LineId(line)) {
                    self.lines.answered(PEER, self.now);
                }
            }
            self.now += Duration::from_millis(100);
        }
    }

    /// Sets whether a device has its carrier.
    fn carrier(&mut self, line: LineId, running: bool) {
        if let Some(facts) = &mut self.out.facts[line.index()] {
            facts.running = running;
        }
        self.lines.read(self.now, &mut self.out);
    }

    /// The calls and log lines since the last call, without the keepalives.
    fn rest(&mut self) -> Vec<String> {
        let mut rest = self.out.rest();
        rest.retain(|it| it != "keepalive");
        rest
    }

    fn states(&self) -> Vec<(String, bool)> {
        let reports = self.lines.reports(PEER).into_iter();
        reports.map(|it| (it.state, it.in_use)).collect()
    }
}

#[test]
fn another_uplink_takes_over_at_once_and_hands_back_after_the_hold_time() {
    let mut world = World::new(LineMode::Failover, |_| ()).begun();
    assert_eq!(world.lines.used(PEER), Some(A));
    let up = |state: &str, used| (state.to_owned(), used);
    assert_eq!(world.states(), [up("up", true), up("up", false)]);
    world.rest();
    world.carrier(A, false);
    world.run(SECOND / 10);
    assert_eq!(
        world.rest(),
        [
            "uplink a is down: its device has no carrier",
            "use 1",
            "uplink b is used now: the uplink in use has failed",
        ]
    );
    assert_eq!(world.states(), [up("down", false), up("up", true)]);
    world.carrier(A, true);
    world.run(20 * SECOND);
    assert_eq!(world.lines.used(PEER), Some(B));
    world.run(30 * SECOND);
    assert_eq!(world.lines.used(PEER), Some(A));
    let rest = world.rest();
    let words = "uplink a is used now: it is preferred and has worked for 30 s";
    assert!(rest.iter().any(|it| it == words), "{rest:?}");
    // It fails soon after, so it must prove itself for longer.
    world.carrier(A, false);
    world.run(SECOND);
    world.carrier(A, true);
    world.run(50 * SECOND);
    assert_eq!(world.lines.used(PEER), Some(B));
    world.run(20 * SECOND);
    assert_eq!(world.lines.used(PEER), Some(A));
}

#[test]
fn a_peer_that_falls_silent_on_one_uplink_is_reached_by_the_other() {
    let mut world = World::new(LineMode::Failover, |_| ()).begun();
    world.works = vec![B];
    world.run(20 * SECOND);
    assert_eq!(world.lines.used(PEER), Some(B));
    assert!(!world.lines.may_work(PEER, A) && world.lines.may_work(PEER, B));
    // A probe by the other uplink makes the peer send there; a keepalive calls it back.
    world.works = vec![A, B];
    world.out.rest();
    world.run(20 * SECOND);
    let rest = world.out.rest();
    assert!(rest.iter().any(|it| it == "keepalive"), "{rest:?}");
}

/// The kernel gives a device that comes back another index, and sockets stay bound to the old one.
#[test]
fn sockets_follow_a_device_that_was_replaced() {
    let mut world = World::new(LineMode::Failover, |_| ()).begun();
    world.rest();
    world.out.facts[0].as_mut().unwrap().ifindex = 9;
    world.lines.read(world.now, &mut world.out);
    assert_eq!(world.rest(), ["close 0"]);
    assert!(world.out.told().contains(&("open", 0, None)));
    assert_eq!(world.lines.all_open(), [A, B]);

    world.out.facts[1] = None;
    world.lines.read(world.now, &mut world.out);
    assert_eq!(world.rest(), ["close 1"]);
    world.run(SECOND);
    let report = world.lines.reports(PEER).remove(1);
    assert_eq!(report.reason, "its device does not exist");
    // Nothing more is open after the end.
    world.lines.close_all(world.now, &mut world.out);
    assert!(!world.lines.has_open() && world.rest().contains(&"close 0".to_owned()));
    assert_eq!(world.lines.due(), None);
}

#[test]
fn sockets_that_cannot_be_opened_are_tried_again_and_the_log_says_so_once() {
    let mut world = World::new(LineMode::Single, |settings| settings.lines.truncate(1));
    world.out.refuses = Some("port 51820 is in use".to_owned());
    let mut world = world.begun();
    let words = "uplink a: port 51820 is in use; trying again";
    assert_eq!(world.rest(), [words]);
    assert!(!world.lines.has_open());
    world.out.refuses = None;
    world.run(REOPEN);
    assert!(world.lines.has_open());
    assert_eq!(world.rest().first().map(String::as_str), Some("use 0"));
}

/// The last rate that the data plane was given after each change.
#[test]
fn queues_hold_packets_back_to_the_rates_of_the_uplinks_in_use() {
    let rated = |mode| {
        World::new(mode, |settings| {
            settings.shape = true;
            settings.lines[0].rate = Some(5_000_000);
            settings.lines[1].rate = Some(2_000_000);
        })
        .begun()
    };
    let last = |world: &mut World| {
        let rest = world.rest();
        rest.into_iter().rfind(|it| it.starts_with("rate"))
    };
    let text = |text: &str| Some(text.to_owned());
    let mut failover = rated(LineMode::Failover);
    assert_eq!(last(&mut failover), text("rate 5000000"));
    failover.carrier(A, false);
    failover.run(SECOND);
    assert_eq!(last(&mut failover), text("rate 2000000"));
    failover.run(SECOND);
    assert_eq!(last(&mut failover), None, "it is told once");
    // Copies go by all, so the slowest sets the rate.
    assert_eq!(last(&mut rated(LineMode::Duplicate)), text("rate 2000000"));
    let mut balance = rated(LineMode::Balance);
    assert_eq!(last(&mut balance), text("rates [5000000, 2000000, 0]"));
    balance.carrier(B, false);
    balance.run(5 * SECOND);
    assert_eq!(last(&mut balance), text("rates [5000000, 0, 0]"));
    assert_eq!(last(&mut rated(LineMode::Critical)), text("rate 5000000"));
}

#[test]
fn a_peer_that_calls_is_answered_by_the_uplink_of_its_call() {
    let mut world = World::new(LineMode::Failover, |settings| {
        settings.shape = true;
        settings.lines[1].rate = Some(2_000_000);
    });
    world.lines.bind(world.now, &mut world.out);
    world.lines.heard(PEER, B, world.now, &mut world.out);
    assert_eq!(world.rest(), ["use 1", "rate 2000000"]);
    assert_eq!(world.lines.reports(PEER), []);
    // It is not probed.
    world.run(20 * SECOND);
    assert_eq!(world.rest(), Vec::<String>::new());
    world.lines.forget(PEER);
    assert!(!world.lines.answered(PEER, world.now));
}

#[test]
fn an_uplink_that_has_used_up_its_allowance_gives_way_to_one_without_a_limit() {
    let mut world = World::new(LineMode::Failover, |settings| {
        settings.lines[0].cap = Some(2_500_000_000);
    });
    // About noon of 2027-01-15.
    world.out.wall = UNIX_EPOCH + Duration::from_secs(1_800_014_400);
    let mut world = world.begun();
    world.rest();
    world.out.carried[0] = 2_100_000_000;
    world.run(60 * SECOND);
    assert_eq!(
        world.rest(),
        [
            "uplink a has carried 80 % of the 2.5 GB that it may in a month, which begins anew on 2027-02-01"
        ]
    );
    world.out.carried[0] = 2_500_000_000;
    world.run(60 * SECOND);
    assert_eq!(
        world.rest(),
        [
            "uplink a has carried the 2.5 GB that it may in a month, which begins anew on 2027-02-01",
            "use 1",
            "uplink b is used now: the uplink in use has carried what it may in this month",
        ]
    );
    assert_eq!(
        world.lines.reports(PEER)[0].cap.as_ref().unwrap().used,
        2_500_000_000
    );
    // It still carries packets if no other uplink works.
    world.carrier(B, false);
    world.run(SECOND);
    assert_eq!(world.lines.used(PEER), Some(A));
    world.rest();
    // The next month.
    world.carrier(B, true);
    world.out.wall += Duration::from_secs(20 * 86_400);
    world.run(120 * SECOND);
    let rest = world.rest();
    let words = "uplink a: a month has begun, in which it may carry 2.5 GB again";
    assert!(rest.iter().any(|it| it == words), "{rest:?}");
}

#[test]
fn the_mode_can_change_while_peers_are_called() {
    let mut world = World::new(LineMode::Failover, |_| ()).begun();
    world.rest();
    world.lines.set_mode(LineMode::Failover);
    world.run(SECOND);
    assert_eq!(world.rest(), Vec::<String>::new());
    world.lines.set_mode(LineMode::Duplicate);
    world.run(SECOND);
    let both: plane::LineSet = [A, B].into_iter().collect();
    let mode = format!("{:?}", plane::LineMode::Duplicate(both));
    assert_eq!(world.rest(), [mode.as_str()]);
    assert_eq!(
        world.states(),
        [("up".to_owned(), true), ("up".to_owned(), true)]
    );
    // Peers that cannot be reached by several at a time.
    world.lines.set_singly(true);
    world.run(SECOND);
    assert_eq!(world.rest(), ["Single"]);
}

#[test]
fn a_trial_goes_by_each_open_uplink_in_turn() {
    let mut world = World::new(LineMode::Failover, |_| ()).begun();
    world.out.rest();
    for turn in 0..3 {
        world.lines.trial(PEER, turn, &mut world.out);
    }
    let tried: Vec<u8> = world.out.told().iter().map(|it| it.1).collect();
    assert_eq!(tried, [0, 1, 0]);
    assert_eq!(world.out.rest(), ["keepalive"; 3]);
}

#[test]
fn calls_that_fail_take_an_uplink_out_of_use_although_its_device_is_well() {
    let mut world = World::new(LineMode::Failover, |_| ()).begun();
    world.lines.set_fault(PEER, A, Some(Fault::NoCall));
    world.run(SECOND);
    assert_eq!(world.lines.used(PEER), Some(B));
    let report = world.lines.reports(PEER).remove(0);
    assert_eq!(report.reason, "the last call by it has failed");
    world.lines.set_fault(PEER, A, None);
    world.run(60 * SECOND);
    assert_eq!(world.lines.used(PEER), Some(A));
}

#[test]
fn an_address_of_a_relay_is_kept_once_the_peer_has_answered_by_it() {
    let mut world = World::new(LineMode::Failover, |settings| {
        settings.lines[1].relay = Some("relay.example:51821".parse().unwrap());
        settings.lines[1].relay_key = Some(config::types::Key32::new([7; 32]));
    });
    let floor = UNIX_EPOCH + Duration::from_secs(1_900_000_000);
    world.lines.set_stamp_floor(floor);
    let mut world = world.begun();
    let names: Vec<_> = world.lines.relay_names().map(|(whose, _)| whose).collect();
    assert_eq!(names, [crate::names::Whose::Relay(B)]);
    assert!(world.lines.relays_due().is_some());
    let find = |world: &mut World, found| {
        for (whose, name) in world.lines.relay_names() {
            name.begin(whose, 0);
        }
        let (now, out) = (world.now, &mut world.out);
        world.lines.relay_looked_up(B, found, now, out);
    };
    find(&mut world, Err("no answer".to_owned()));
    let rest = world.rest();
    let words = "endpoint relay.example:51821: no answer; trying again until it is found";
    assert_eq!(rest.last().map(String::as_str), Some(words));
    assert_eq!(world.lines.relay(B), None);
    // A new uplink of the host: the name is looked up at once.
    world.lines.hurry_relays(world.now);
    assert_eq!(world.lines.relays_due(), Some(world.now));
    let relay = |last| SocketAddr::from(([198, 51, 100, last], 51821));
    find(&mut world, Ok(vec![relay(7), relay(8)]));
    assert_eq!(world.lines.relay(B), Some(relay(7)));
    // The peer does not answer by this address, so the next one is tried.
    world.works = vec![A];
    world.run(20 * SECOND);
    assert_eq!(world.lines.relay(B), Some(relay(8)));
    world.rest();
    world.works = vec![A, B];
    world.run(60 * SECOND);
    let rest = world.rest();
    assert!(
        rest.contains(&"keep relay.example 198.51.100.8".to_owned()),
        "{rest:?}"
    );
    // An earlier run may have sent hellos with times up to the floor.
    assert!(world.lines.latest_stamp() > floor);
}

#[test]
fn the_host_says_which_devices_are_there() {
    let line = |interface: Option<&str>, source: Option<&str>| OneLine {
        interface: interface.map(str::to_owned),
        source: source.map(|it| it.parse().unwrap()),
        ..OneLine::default()
    };
    let facts = read(&Settings {
        lines: vec![
            line(Some("lo"), Some("127.0.0.1")),
            line(None, Some("127.0.0.1")),
            line(Some("no-such-device"), None),
            line(None, Some("192.0.2.77")),
            line(None, None),
        ],
        ..Settings::default()
    });
    let [of_device, of_address, no_device, no_address, any] = facts[..] else {
        panic!("{facts:?}");
    };
    let of_device = of_device.unwrap();
    assert!(of_device.addressed && of_device.ifindex != 0);
    assert_eq!(of_address, Some(of_device));
    assert_eq!((no_device, no_address), (None, None));
    // It reaches its relay by any device.
    assert_eq!(any.unwrap().fault(), None);
}

#[test]
fn peers_that_call_by_several_addresses_are_answered_in_the_mode_of_the_file() {
    let settings = |mode, lines: usize| Settings {
        mode,
        lines: vec![OneLine::default(); lines],
        reorder: true,
        ..Settings::default()
    };
    let their = |mode, lines| TheirLines::new(&settings(mode, lines)).gathered;
    let first = plane::LineSet::of(A);
    let mut shares = [0; plane::LINES_MAX];
    shares[0] = 1;
    assert_eq!(their(LineMode::Failover, 0), None);
    assert_eq!(
        their(LineMode::Duplicate, 0),
        Some(plane::LineMode::Duplicate(first))
    );
    assert_eq!(
        their(LineMode::Critical, 0),
        Some(plane::LineMode::Critical(first))
    );
    assert_eq!(
        their(LineMode::Balance, 0),
        Some(plane::LineMode::Balance(shares))
    );
    let packets = plane::LineMode::BalancePackets(shares);
    assert_eq!(their(LineMode::BalancePackets, 0), Some(packets));
    // A peer's address does not show which of our own uplinks leads there.
    assert_eq!(their(LineMode::Balance, 2), None);
    assert!(TheirLines::new(&settings(LineMode::Balance, 2)).reorder);
}
