//! A server that is reached over two lines, which fail and recover.

use super::config_by_lines;
use super::scenarios::leave;
use super::seeds::number;
use super::world::{World, secs};
use crate::openvpn::client::event::Event;
use crate::openvpn::seeded::Random;
use config::lines::{Line, LineMode as Mode, Lines};
use config::types::Key32;
use openvpn_host::signals::Signal;
use plane::{LineId, LineMode, LineSet};
use std::net::SocketAddr;

const DSL: LineId = LineId(0);
const LTE: LineId = LineId(1);

fn begin(mode: Mode, seed: u64) -> World {
    begin_with(mode, [10, 20], seed)
}

/// Begins with these uplink priorities.
fn begin_with(mode: Mode, priorities: [u8; 2], seed: u64) -> World {
    let line = |name: &str, priority| Line {
        name: name.to_owned(),
        interface: Some(name.to_owned()),
        priority,
        rate: Some(5_000_000),
        ..Line::default()
    };
    let lines = Lines {
        mode,
        hold: secs(5),
        shape: true,
        lines: vec![line("dsl", priorities[0]), line("lte", priorities[1])],
        ..Lines::default()
    };
    let server = SocketAddr::from(([192, 0, 2, 1], 1194));
    let remote = format!("--remote {} {}", server.ip(), server.port());
    World::new(config_by_lines(&remote, lines), &[server], seed)
}

impl World {
    /// Cuts or restores a line without telling the host.
    fn cut(&mut self, line: LineId, cut: bool) {
        self.carries[line.index()] = !cut;
    }

    pub(super) fn said(&self, text: &str) -> bool {
        self.log.iter().any(|line| line.contains(text))
    }
}

#[test]
fn a_session_goes_on_by_another_line_and_back() {
    let mut world = begin(Mode::Failover, 1);
    world.handle(Event::Begin);
    world.run_for(secs(30));
    assert!(world.is_connected());
    assert_eq!(world.used, DSL);
    world.cut(DSL, true);
    world.run_for(secs(20));
    assert_eq!(world.used, LTE);
    assert!(world.said("uplink dsl is down: the peer has not answered"));
    world.renew(0);
    world.run_for(secs(60));
    world.cut(DSL, false);
    world.run_for(secs(60));
    assert_eq!(world.used, DSL);
    assert!(world.is_connected());
    assert_eq!(world.dials.len(), 1, "one session");
}

#[test]
fn a_device_that_goes_is_noticed_at_once() {
    let mut world = begin(Mode::Failover, 1);
    world.handle(Event::Begin);
    world.run_for(secs(30));
    world.devices[0] = false;
    world.handle(Event::NetworkChanged);
    assert_eq!(world.used, LTE);
    world.devices[0] = true;
    world.handle(Event::NetworkChanged);
    world.run_for(secs(60));
    assert_eq!(world.used, DSL);
    assert_eq!(world.dials.len(), 1, "one session");
}

#[test]
fn without_a_line_there_is_no_attempt_and_one_that_comes_is_used() {
    let mut world = begin(Mode::Failover, 1);
    world.devices = [false; 2];
    world.handle(Event::Begin);
    world.run_for(secs(100));
    assert!(!world.is_connected());
    assert!(world.said("cannot open any uplink"));
    world.devices[1] = true;
    world.handle(Event::NetworkChanged);
    world.run_for(secs(60));
    assert!(world.is_connected());
    assert_eq!(world.used, LTE);
}

#[test]
fn a_handshake_is_made_by_the_line_that_works() {
    let mut world = begin(Mode::Duplicate, 1);
    world.cut(DSL, true);
    world.handle(Event::Begin);
    world.run_for(secs(30));
    assert!(world.is_connected());
    assert_eq!((world.used, world.dials.len()), (LTE, 1));
    world.cut(DSL, false);
    world.run_for(secs(30));
    let both = [DSL, LTE].into_iter().collect::<LineSet>();
    assert_eq!(world.mode, LineMode::Duplicate(both));
}

#[test]
fn the_preferred_line_may_stand_last() {
    for mode in [Mode::Failover, Mode::Single] {
        let mut world = begin_with(mode, [20, 10], 1);
        world.handle(Event::Begin);
        world.run_for(secs(10));
        assert!(world.is_connected(), "{:?}", world.log);
        assert_eq!((world.used, world.dials.len()), (LTE, 1));
    }
}

#[test]
fn a_rate_is_told_to_each_data_plane() {
    let mut world = begin(Mode::Failover, 1);
    world.handle(Event::Begin);
    world.run_for(secs(10));
    assert_eq!(world.plane.rate, Some(5_000_000));
    world.handle(Event::Signal(Signal::Restart));
    world.run_for(secs(60));
    assert!(world.is_connected());
    assert_eq!((world.plane.rate, world.dials.len()), (Some(5_000_000), 2));
    let mut world = begin(Mode::Balance, 1);
    world.handle(Event::Begin);
    world.run_for(secs(60));
    let told = [[5_000_000, 0], [5_000_000; 2]];
    assert_eq!(
        world.plane.rates, told,
        "only the first until the server follows"
    );
    world.cut(LTE, true);
    world.run_for(secs(60));
    assert_eq!(world.plane.rates.last(), Some(&[5_000_000, 0]));
}

#[test]
fn a_line_that_has_carried_what_it_may_is_left_until_a_month_begins() {
    let line = |name: &str, cap| Line {
        name: name.to_owned(),
        interface: Some(name.to_owned()),
        cap,
        ..Line::default()
    };
    let lines = Lines {
        hold: secs(5),
        lines: vec![line("dsl", Some(10_000_000)), line("lte", None)],
        ..Lines::default()
    };
    let server = SocketAddr::from(([192, 0, 2, 1], 1194));
    let config = config_by_lines("--remote 192.0.2.1 1194", lines);
    let mut world = World::new(config, &[server], 1);
    world.handle(Event::Begin);
    world.run_for(secs(30));
    assert_eq!(world.used, DSL);
    world.carried[0] = 6_000_000;
    world.run_for(secs(30));
    // A new interface's data plane counts from zero.
    world.handle(Event::Signal(Signal::Restart));
    world.run_for(secs(60));
    assert!(world.is_connected() && world.carried[0] == 0);
    world.carried[0] = 3_900_000;
    world.run_for(secs(30));
    assert_eq!(world.used, DSL);
    assert!(world.said("uplink dsl has used 80 % of its monthly 10 MB"));
    world.carried[0] += 100_000;
    world.run_for(secs(30));
    assert_eq!(world.used, LTE, "{:?}", world.log);
    world.wall += secs(31 * 86_400);
    world.run_for(secs(30));
    assert_eq!(world.used, DSL, "{:?}", world.log);
    world.carried[0] += 5;
    leave(&mut world);
    let written = world.usage.len();
    world.with_machine(|machine, cx| machine.lines_end(cx));
    assert!(world.usage.len() > written, "although all else is over");
    let usage = world.usage.last().unwrap();
    assert_eq!((&*usage[0].name, usage[0].used), ("dsl", 5));
}

/// The server's kernel decrypts its data packets and ignores requests.
#[test]
fn a_server_that_answers_no_request_is_judged_by_what_it_sends() {
    let mut world = begin(Mode::Failover, 1);
    world.servers[0].has_options = false;
    world.handle(Event::Begin);
    world.run_for(secs(200));
    assert!(world.is_connected());
    assert_eq!((world.used, world.dials.len()), (DSL, 1));
    assert!(!world.said("is down"), "{:?}", world.log);
    world.data = true;
    world.cut(DSL, true);
    world.run_for(secs(50));
    assert_eq!((world.used, world.dials.len()), (LTE, 1), "{:?}", world.log);
    assert!(world.is_connected());
}

/// A line uses a relay, configured by name, that forgets the client when it restarts.
#[test]
fn a_line_may_lead_by_a_relay() {
    let direct = Line {
        name: "direct".to_owned(),
        interface: Some("dsl".to_owned()),
        ..Line::default()
    };
    let relayed = Line {
        name: "relayed".to_owned(),
        relay: Some("relay.example:51821".parse().unwrap()),
        relay_key: Some(Key32::new([7; 32])),
        priority: 20,
        ..Line::default()
    };
    let lines = Lines {
        mode: Mode::Failover,
        hold: secs(5),
        lines: vec![direct, relayed],
        ..Lines::default()
    };
    let server = SocketAddr::from(([192, 0, 2, 1], 1194));
    let mut world = World::new(
        config_by_lines("--remote 192.0.2.1 1194", lines),
        &[server],
        1,
    );
    world.handle(Event::Begin);
    world.run_for(secs(30));
    assert!(world.is_connected(), "{:?}", world.log);
    assert_eq!((world.used, world.relayed[0]), (DSL, None));
    assert!(world.relayed[1].is_some() && world.told);

    world.told = false;
    world.cut(DSL, true);
    world.run_for(secs(30));
    assert_eq!(world.used, LTE, "{:?}", world.log);
    world.renew(0);
    let hellos = world.hellos;
    world.run_for(secs(600));
    assert!(world.is_connected(), "{:?}", world.log);
    assert!(
        (25..=60).contains(&(world.hellos - hellos)),
        "{}",
        world.hellos - hellos
    );
    world.cut(DSL, false);
    world.run_for(secs(60));
    assert_eq!((world.used, world.dials.len()), (DSL, 1));

    // A new session also works through the relay.
    world.cut(DSL, true);
    world.handle(Event::Signal(Signal::Restart));
    world.run_for(secs(60));
    assert!(world.is_connected(), "{:?}", world.log);
    assert_eq!((world.used, world.dials.len()), (LTE, 2));
}

/// A relay forwards nothing for a client that it does not know.
#[test]
fn a_relay_is_told_before_the_first_packet_by_it() {
    let relayed = Line {
        name: "relayed".to_owned(),
        relay: Some("relay.example:51821".parse().unwrap()),
        relay_key: Some(Key32::new([7; 32])),
        ..Line::default()
    };
    let lines = Lines {
        mode: Mode::Failover,
        lines: vec![relayed],
        ..Lines::default()
    };
    let server = SocketAddr::from(([192, 0, 2, 1], 1194));
    let config = config_by_lines("--remote 192.0.2.1 1194", lines);
    let mut world = World::new(config, &[server], 1);
    world.handle(Event::Begin);
    world.run_for(secs(30));
    assert!(world.is_connected(), "{:?}", world.log);
    assert!(world.relayed[0].is_some() && world.told);
    assert_eq!(world.unannounced, 0);
}

/// At least one line works almost all the time. Sessions may restart, but the tunnel must come back.
#[test]
fn lines_that_come_and_go_leave_a_tunnel_that_works() {
    let first = number("MILLRACE_TEST_SEED", 1);
    for seed in first..first + number("MILLRACE_TEST_SEEDS", 200) {
        let mut random = Random::new(seed);
        let mode = Mode::ALL[(seed % 6) as usize];
        let mut world = begin(mode, seed);
        world.servers[0].has_options = !random.percent(20);
        world.faults.loss = random.below(10);
        world.handle(Event::Begin);
        for _ in 0..12 {
            let line = LineId(random.below(2) as u8);
            match random.below(4) {
                0 => world.cut(line, true),
                1 => {
                    world.devices[line.index()] ^= true;
                    world.handle(Event::NetworkChanged);
                }
                2 => world.renew(0),
                _ => world.cut(line, false),
            }
            world.run_for(secs(1 + random.below(90)));
        }
        (world.carries, world.devices) = ([true; 2], [true; 2]);
        world.handle(Event::NetworkChanged);
        // The longest pause, plus an attempt with a server that lost its state.
        world.run_for(secs(1_200));
        assert!(
            world.is_connected(),
            "seed {seed}, {mode:?}: {:?}",
            world.log
        );
        leave(&mut world);
        assert!(world.ended.is_some(), "seed {seed}");
    }
}
