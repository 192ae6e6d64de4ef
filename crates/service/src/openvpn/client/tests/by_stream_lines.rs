//! A server that is reached over TCP through one of two lines, which fail and recover.

use super::config_by_lines;
use super::scenarios::leave;
use super::seeds::number;
use super::world::{World, secs};
use crate::openvpn::Ended;
use crate::openvpn::client::event::Event;
use crate::openvpn::seeded::Random;
use config::lines::{Line, LineMode as Mode, Lines};
use openvpn_host::scripts::Hook;
use openvpn_host::signals::Signal;
use plane::LineId;
use std::net::SocketAddr;

const DSL: LineId = LineId(0);
const LTE: LineId = LineId(1);

const SERVER: ([u8; 4], u16) = ([192, 0, 2, 1], 1194);

const TCP: &str = "--remote 192.0.2.1 1194 tcp-client";

fn begin_with(more: &str, mode: Mode, metered: bool, seed: u64) -> World {
    let line = |name: &str, priority| Line {
        name: name.to_owned(),
        interface: Some(name.to_owned()),
        priority,
        ..Line::default()
    };
    let lte = Line {
        metered,
        ..line("lte", 20)
    };
    let lines = Lines {
        mode,
        hold: secs(5),
        lines: vec![line("dsl", 10), lte],
        ..Lines::default()
    };
    World::new(config_by_lines(more, lines), &[SERVER.into()], seed)
}

fn begin(seed: u64) -> World {
    begin_with(TCP, Mode::Failover, false, seed)
}

impl World {
    /// Cuts or restores a line without telling the host. The kernel ends a connection on a cut line.
    fn cut_stream(&mut self, line: LineId, cut: bool) {
        self.carries[line.index()] = !cut;
        if let (true, Some((_, Some(stream)))) = (cut && self.used == line, self.peer) {
            self.later(6_000, 8_000, Event::StreamClosed(stream));
        }
    }
}

#[test]
fn the_next_line_takes_over_and_the_better_one_is_gone_back_to() {
    let mut world = begin(1);
    world.handle(Event::Begin);
    world.run_for(secs(100));
    assert!(world.is_connected(), "{:?}", world.log);
    assert_eq!((world.used, world.dials.len()), (DSL, 1));
    assert_eq!(world.tries, [], "what waits is not asked");

    world.cut_stream(DSL, true);
    world.run_for(secs(30));
    assert!(world.is_connected(), "{:?}", world.log);
    assert_eq!(world.used, LTE);
    assert!(world.said("uplink dsl is down: the peer has not answered"));
    let dials = world.dials.len();
    world.run_for(secs(600));
    let tried = world.tries.len();
    assert!((35..=50).contains(&tried), "{:?}", world.tries);
    assert!(world.tries.iter().all(|it| it.1 == DSL));

    world.cut_stream(DSL, false);
    world.run_for(secs(60));
    assert!(world.is_connected(), "{:?}", world.log);
    assert_eq!((world.used, world.dials.len()), (DSL, dials + 1));
    let words = "uplink dsl is used now: it is preferred and has worked for 5 s; reconnecting";
    assert!(world.said(words), "{:?}", world.log);
    assert!(world.tries.len() <= tried + 4, "{:?}", world.tries);
}

#[test]
fn the_status_tells_which_uplink_is_used_and_what_the_others_wait_for() {
    let reports = |world: &World| {
        let reports = world.machine().line_reports().into_iter();
        reports
            .map(|it| (it.name, it.state, it.in_use, it.reason))
            .collect::<Vec<_>>()
    };
    let line = |name: &str, state: &str, in_use, reason: &str| {
        (name.to_owned(), state.to_owned(), in_use, reason.to_owned())
    };
    let mut world = begin(1);
    world.handle(Event::Begin);
    let unused = "it is idle, and is tried when needed";
    let unheard = "no packet has arrived on it yet";
    let before = [
        line("dsl", "unknown", true, unheard),
        line("lte", "unknown", false, unused),
    ];
    assert_eq!(reports(&world), before);
    world.run_for(secs(30));
    let [dsl, lte] = &reports(&world)[..] else {
        panic!("two uplinks");
    };
    assert_eq!((dsl.1.as_str(), dsl.2), ("up", true));
    assert_eq!(*lte, before[1]);
    assert_eq!(world.machine().stream_line(), Some(DSL));
    world.devices[0] = false;
    world.handle(Event::NetworkChanged);
    world.run_for(secs(10));
    let [dsl, lte] = &reports(&world)[..] else {
        panic!("two uplinks");
    };
    assert_eq!(
        *dsl,
        line("dsl", "down", false, "its device has no carrier")
    );
    assert_eq!((lte.1.as_str(), lte.2), ("up", true));
}

#[test]
fn a_device_that_goes_is_left_at_once() {
    let mut world = begin(1);
    world.handle(Event::Begin);
    world.run_for(secs(30));
    world.devices[0] = false;
    world.handle(Event::NetworkChanged);
    let words = "uplink lte is used now: the uplink in use has failed";
    assert!(world.said(words), "{:?}", world.log);
    world.run_for(secs(10));
    assert!(world.is_connected());
    assert_eq!(world.used, LTE);
    assert_eq!(world.tries, [], "no device is available for a trial");
    world.devices[0] = true;
    world.handle(Event::NetworkChanged);
    world.run_for(secs(30));
    assert!(world.is_connected());
    assert_eq!(world.used, DSL);
}

/// The host fails to move the routes to another uplink, so the client reconnects; the recovered line is still tested.
#[test]
fn a_line_that_comes_back_is_tested_although_the_routes_cannot_follow() {
    let mut world = begin(1);
    world.handle(Event::Begin);
    world.run_for(secs(30));
    world.devices[0] = false;
    world.handle(Event::NetworkChanged);
    world.run_for(secs(10));
    assert!(world.is_connected(), "{:?}", world.log);
    assert_eq!((world.used, world.tries.len()), (LTE, 0));

    world.devices[0] = true;
    world.faults.host = 100;
    world.handle(Event::NetworkChanged);
    world.faults.host = 0;
    assert!(!world.is_connected(), "it could not follow");
    world.run_for(secs(120));
    assert!(world.is_connected(), "{:?}", world.log);
    assert_eq!(world.used, DSL, "{:?}", world.tries);
}

#[test]
fn without_a_device_there_is_no_attempt_and_one_that_comes_is_used() {
    let mut world = begin(1);
    world.devices = [false; 2];
    world.handle(Event::Begin);
    world.run_for(secs(100));
    assert_eq!(world.dials, []);
    assert!(world.said("cannot open any uplink"));
    world.devices[1] = true;
    world.handle(Event::NetworkChanged);
    world.run_for(secs(60));
    assert!(world.is_connected(), "{:?}", world.log);
    assert_eq!(world.used, LTE);
}

#[test]
fn where_no_line_works_each_has_its_turn() {
    let mut world = begin(1);
    world.carries = [false; 2];
    world.handle(Event::Begin);
    world.run_for(secs(60));
    assert!(world.dials.len() > 3);
    world.carries[1] = true;
    // The pause between attempts is now longer.
    world.run_for(secs(600));
    assert!(world.is_connected(), "{:?}", world.log);
    assert_eq!(world.used, LTE);
}

/// A restarting server refuses connections, for which the line is not to blame.
#[test]
fn a_server_that_refuses_is_called_by_the_same_line() {
    let mut world = begin(1);
    world.handle(Event::Begin);
    world.run_for(secs(30));
    world.servers[0].answers = false;
    let (_, stream) = world.peer.unwrap();
    world.handle(Event::StreamClosed(stream.unwrap()));
    world.run_for(secs(30));
    let now = world.now();
    world.servers[0].lose_everything(now);
    world.servers[0].answers = true;
    world.run_for(secs(120));
    assert!(world.is_connected(), "{:?}", world.log);
    assert_eq!((world.used, world.tries.len()), (DSL, 0));
    assert!(!world.said("is down"));
}

#[test]
fn a_single_line_is_used_whatever_its_state() {
    let mut world = begin_with(TCP, Mode::Single, false, 1);
    world.handle(Event::Begin);
    world.run_for(secs(30));
    world.cut_stream(DSL, true);
    world.run_for(secs(100));
    assert!(!world.is_connected());
    world.cut_stream(DSL, false);
    world.run_for(secs(400));
    assert!(world.is_connected(), "{:?}", world.log);
    assert_eq!((world.used, world.tries.len()), (DSL, 0));
}

/// The preferred line costs nothing, so the other line is never tested.
#[test]
fn a_line_that_costs_money_is_used_only_where_no_other_works() {
    let mut world = begin_with(TCP, Mode::Failover, true, 1);
    world.carries[0] = false;
    world.handle(Event::Begin);
    world.run_for(secs(60));
    assert!(world.is_connected(), "{:?}", world.log);
    assert_eq!(world.used, LTE);
    world.carries[0] = true;
    world.run_for(secs(60));
    assert_eq!(world.used, DSL);
    assert!(world.tries.iter().all(|it| it.1 == DSL));
}

/// A file with UDP and TCP remotes lets the client switch between them.
#[test]
fn servers_over_udp_and_tcp_may_stand_in_one_file() {
    let more = format!("--remote 192.0.2.9 1194 udp {TCP} --connect-timeout 5");
    let mut world = begin_with(&more, Mode::Failover, false, 1);
    world.handle(Event::Begin);
    world.run_for(secs(60));
    assert!(world.is_connected(), "{:?}", world.log);
    let used = world.used;
    world.cut_stream(used, true);
    world.run_for(secs(120));
    assert!(world.is_connected(), "{:?}", world.log);
    let server = world.peer.map(|it| it.0);
    assert_eq!(server, Some(SocketAddr::from(SERVER)));
}

/// At least one line works in the end. Sessions may restart, but the tunnel must come back.
#[test]
fn lines_that_come_and_go_leave_a_tunnel_over_tcp_that_works() {
    let first = number("MILLRACE_TEST_SEED", 1);
    for seed in first..first + number("MILLRACE_TEST_SEEDS", 200) {
        let mut random = Random::new(seed);
        let mut world = begin(seed);
        world.handle(Event::Begin);
        for _ in 0..12 {
            let line = LineId(random.below(2) as u8);
            match random.below(4) {
                0 => world.cut_stream(line, true),
                1 => {
                    world.devices[line.index()] ^= true;
                    world.handle(Event::NetworkChanged);
                }
                2 => world.renew(0),
                _ => world.cut_stream(line, false),
            }
            world.run_for(secs(1 + random.below(90)));
        }
        (world.carries, world.devices) = ([true; 2], [true; 2]);
        world.handle(Event::NetworkChanged);
        world.run_for(secs(1_200));
        assert!(world.is_connected(), "seed {seed}: {:?}", world.log);
        leave(&mut world);
        assert!(world.ended.is_some(), "seed {seed}");
    }
}

/// An ended connection waits for a running script; meanwhile no line is checked.
#[test]
fn a_connection_that_is_left_while_up_runs_waits_for_it_without_waking_up() {
    let more = format!("{TCP} --script-security 2 --up /x --down /x");
    let mut world = begin_with(&more, Mode::Failover, false, 1);
    world.script_time = Some(secs(100));
    world.devices[0] = false;
    world.handle(Event::Begin);
    world.run_for(secs(20));
    assert_eq!((world.used, world.running), (LTE, Some(Hook::Up)));
    world.handle(Event::Signal(Signal::Exit("SIGTERM")));
    world.handle(Event::Signal(Signal::Exit("SIGTERM")));
    world.devices[0] = true;
    world.handle(Event::NetworkChanged);
    world.run_for(secs(60));
    assert_eq!((world.ended, world.running), (None, Some(Hook::Up)));
    world.run_for(secs(300));
    assert_eq!(world.ended, Some(Ended::Exit(0)));
}
