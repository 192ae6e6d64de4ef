//! An interface with two lines and a peer without support for lines, on a virtual wire and a virtual clock.

// This crate contains tests only.
#![allow(clippy::unwrap_used, clippy::panic)]

mod caps;
mod world;

use config::lines::{LineMode, Lines};
use plane::Now;
use plane::fake::{Call, FakeDataPlane};
use plane::{LineId, LineSet, Moving, PeerId, Reorder};
use service::wireguard::fixture::FakeHost;
use service::wireguard::{Cx, Event, LineFacts, Machine};
use std::sync::Arc;
use std::time::Duration;
use wireguard::WireGuard;
use world::{A, B, EACH, World, configuration};

const SECOND: Duration = Duration::from_secs(1);

/// Delays of both lines in milliseconds.
const DELAYS: [[u64; 2]; 6] = [[1, 1], [5, 40], [40, 5], [10, 300], [300, 10], [290, 310]];

#[test]
fn probes_cost_no_packet() {
    for delay in DELAYS {
        let mut world = World::new(delay);
        world.run(SECOND * 5, true);
        assert_eq!(world.states(), ["up", "up"], "{delay:?}: {:?}", world.log());
        world.run(SECOND, false);
        let lost = world.sent - world.taken;
        world.run(SECOND * 120, true);
        world.run(SECOND, false);
        assert_eq!(
            world.sent - world.taken,
            lost,
            "{delay:?}: {:?}",
            world.log()
        );
        assert_eq!(world.used(A), Some(0));
        assert_eq!(world.said("used now"), 0, "{delay:?}: {:?}", world.log());
    }
}

#[test]
fn another_line_takes_over_and_the_better_one_is_gone_back_to() {
    for (delay, number) in DELAYS.into_iter().zip(0..) {
        let mut world = World::new(delay);
        // The cut falls at different points between two probes.
        world.run(SECOND * 7 + Duration::from_millis(310 * number), true);
        assert_eq!((world.used(A), world.used(B)), (Some(0), Some(0)));
        world.cut[0] = true;
        let round_trip = Duration::from_millis(2 * delay[0].max(delay[1]));
        world.run(SECOND * 2 + round_trip * 4, true);
        assert_eq!(world.used(A), Some(1), "{delay:?}: {:?}", world.log());
        world.run(round_trip * 2, true);
        let silent = world.now - world.answered;
        assert!(silent <= round_trip + EACH, "{delay:?}: {silent:?}");
        assert_eq!(world.states(), ["down", "up"]);
        assert_eq!(
            world.said("lte is used now: the uplink in use has failed"),
            1
        );

        world.run(SECOND * 30, true);
        assert_eq!(world.used(A), Some(1));
        world.cut[0] = false;
        world.run(SECOND * 14, true);
        assert_eq!((world.used(A), world.used(B)), (Some(0), Some(0)));
        assert_eq!(world.said("dsl is used now: it is preferred"), 1);
        assert_eq!(world.said("used now"), 2, "{:?}", world.log());
    }
}

#[test]
fn packets_on_several_lines_survive_each_and_need_no_decision() {
    for delay in DELAYS {
        let mut world = World::with_mode(delay, LineMode::Duplicate);
        world.run(SECOND * 5, true);
        assert_eq!(world.states(), ["up", "up"], "{delay:?}: {:?}", world.log());
        let both = LineSet::of(LineId(0)).with(LineId(1));
        assert_eq!(world.hosts[A].mode.0, plane::LineMode::Duplicate(both));
        world.run(SECOND, false);
        let lost = world.sent - world.taken;
        for line in [0, 1] {
            world.cut[line] = true;
            let round_trip = Duration::from_millis(2 * delay[0].max(delay[1]));
            world.run(SECOND * 5 + round_trip * 10, true);
            assert_eq!(world.states()[line], "down", "{delay:?}: {:?}", world.log());
            let only = plane::LineMode::Duplicate(LineSet::of(LineId(1 - line as u8)));
            assert_eq!(world.hosts[A].mode.0, only);
            world.cut[line] = false;
            world.run(SECOND * 20, true);
            assert_eq!(world.states(), ["up", "up"], "{delay:?}: {:?}", world.log());
            assert_eq!(world.hosts[A].mode.0, plane::LineMode::Duplicate(both));
        }
        world.run(SECOND, false);
        assert_eq!(world.sent - world.taken, lost, "{delay:?}");
        // The data plane got few mode changes: some at first as lines answer, and two for each cut.
        assert!(world.hosts[A].mode.1 <= 8, "{:?}", world.hosts[A].mode);
    }
}

/// The data plane's mode is the last one that the lines have chosen, although opening a line causes another choice.
#[test]
fn lines_of_a_link_that_comes_up_again_are_used_together() {
    for (mode, used) in [
        (LineMode::Duplicate, 0),
        (LineMode::Critical, 1),
        (LineMode::Balance, 2),
    ] {
        let mut world = World::with_mode([10, 20], mode);
        world.run(SECOND * 5, true);
        for up in [false, true] {
            world.tell(A, Event::Link { up, mtu: 1420 });
        }
        world.run(SECOND * 3, true);
        assert_eq!(world.states(), ["up", "up"], "{mode:?}: {:?}", world.log());
        let both = LineSet::of(LineId(0)).with(LineId(1));
        let is_both = match world.hosts[A].mode.0 {
            plane::LineMode::Duplicate(lines) => used == 0 && lines == both,
            plane::LineMode::Critical(lines) => used == 1 && lines == both,
            plane::LineMode::Balance(shares) => used == 2 && shares[0] > 0 && shares[1] > 0,
            _ => false,
        };
        assert!(is_both, "{mode:?}: {:?}", world.hosts[A].mode);
    }
}

#[test]
fn probes_of_lines_that_are_used_together_are_few() {
    for mode in LineMode::ALL.into_iter().filter(|mode| mode.spreads()) {
        for delay in [[1, 1], [5, 40], [10, 300]] {
            let mut world = World::with_mode(delay, mode);
            world.run(SECOND * 5, true);
            let before = (world.hosts[A].asked, world.hosts[A].begun);
            world.run(SECOND * 100, true);
            // The host probes each line once a second.
            let asked = world.hosts[A].asked - before.0;
            assert!((50..=210).contains(&asked), "{mode:?} {delay:?}: {asked}");
            let begun = world.hosts[A].begun - before.1;
            // Where one connection's packets use several lines, probes do not renew keys.
            let most = match mode {
                LineMode::BalancePackets => 2,
                _ => 210,
            };
            assert!(begun <= most, "{mode:?} {delay:?}: {begun}");
            assert_eq!(world.states(), ["up", "up"], "{mode:?} {delay:?}");
            let before = world.hosts[A].asked;
            world.run(SECOND * 10, false);
            world.run(SECOND * 100, false);
            let asked = world.hosts[A].asked - before;
            assert!(asked <= 50, "{mode:?} {delay:?} idle: {asked}");
        }
    }
}

#[test]
fn a_peer_that_has_lost_its_keys_gets_others_although_it_answers_on_each_line() {
    for mode in LineMode::ALL.into_iter().filter(|mode| mode.spreads()) {
        for delay in [[1, 1], [5, 40], [10, 300]] {
            let mut world = World::with_mode(delay, mode);
            world.run(SECOND * 5, true);
            world.forget();
            world.run(SECOND * 6, true);
            let silent = world.now - world.answered;
            assert!(silent < SECOND, "{mode:?} {delay:?}: {silent:?}");
        }
    }
}

#[test]
fn what_is_shared_leaves_a_line_that_is_cut() {
    let modes = [LineMode::Balance, LineMode::BalancePackets];
    for (delay, mode) in DELAYS
        .into_iter()
        .flat_map(|delay| modes.map(|mode| (delay, mode)))
    {
        let mut world = World::with_mode(delay, mode);
        world.run(SECOND * 5, true);
        assert_eq!(world.states(), ["up", "up"], "{delay:?}: {:?}", world.log());
        let shares = |world: &World| match world.hosts[A].mode.0 {
            plane::LineMode::Balance(shares) | plane::LineMode::BalancePackets(shares) => {
                [shares[0], shares[1]].map(|share| share > 0)
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(shares(&world), [true, true]);
        world.cut[1] = true;
        let round_trip = Duration::from_millis(2 * delay[0].max(delay[1]));
        world.run(SECOND * 3 + round_trip * 4, true);
        assert_eq!(
            shares(&world),
            [true, false],
            "{delay:?}: {:?}",
            world.log()
        );
        world.run(round_trip * 2, true);
        let (sent, taken) = (world.sent, world.taken);
        world.run(SECOND, true);
        world.run(SECOND, false);
        assert!(world.taken - taken >= world.sent - sent, "{delay:?}");
        world.cut[1] = false;
        world.run(SECOND * 15, true);
        assert_eq!(shares(&world), [true, true], "{delay:?}: {:?}", world.log());
    }
}

#[test]
fn peers_with_several_lines_are_answered_on_each() {
    let now = Now::read();
    let mut machine = Machine::new(now, 1);
    machine.set_lines(&Lines {
        mode: LineMode::Duplicate,
        reorder: true,
        ..Lines::default()
    });
    let plane = Arc::new(FakeDataPlane::new(WireGuard::new(), "wg0", 1420));
    let mut host = FakeHost::new(plane.clone());
    let mut cx = Cx::new(now, &*plane, &mut host);
    machine.configure(&configuration(B), &mut cx).unwrap();
    let first = LineSet::of(LineId::FIRST);
    let peer = PeerId(0);
    let wanted = [
        Call::AddPeer(peer, Moving::Gather),
        Call::SetLineMode(peer, plane::LineMode::Duplicate(first)),
        Call::SetReorder(peer, Some(Reorder::default())),
    ];
    assert!(plane.take_calls().windows(3).any(|calls| calls == wanted));
}

#[test]
fn an_idle_tunnel_notices_and_one_that_only_listens_does() {
    let mut world = World::new([10, 20]);
    world.run(SECOND * 20, false);
    assert_eq!(world.states(), ["up", "up"]);
    world.cut[0] = true;
    world.run(SECOND * 9, false);
    assert_eq!((world.used(A), world.used(B)), (Some(1), Some(1)));
    world.run(SECOND, true);
    assert!(world.taken > 40, "{}", world.taken);
}

#[test]
fn a_device_that_goes_takes_its_line_along_at_once() {
    let mut world = World::new([10, 20]);
    world.run(SECOND * 5, true);
    world.set_facts(0, None);
    assert_eq!(world.used(A), Some(1));
    assert_eq!(
        world.said("uplink dsl is down: its device does not exist"),
        1
    );
    world.run(SECOND * 5, true);
    assert!(world.now - world.answered < SECOND / 10);
    let without_address = LineFacts {
        ifindex: 9,
        running: true,
        addressed: false,
    };
    world.set_facts(0, Some(without_address));
    world.run(SECOND * 5, true);
    assert_eq!(world.states(), ["down", "up"]);
    assert_eq!(world.said("its device has no address"), 1);
}

#[test]
fn without_lines_nothing_is_asked_and_nothing_wakes() {
    let now = Now::read();
    let mut machine = Machine::new(now, 1);
    machine.set_lines(&Lines::default());
    let plane = Arc::new(FakeDataPlane::new(WireGuard::new(), "wg0", 1420));
    let mut host = FakeHost::new(plane.clone());
    for event in [
        Event::Start,
        Event::LinksChanged,
        Event::Link {
            up: true,
            mtu: 1420,
        },
    ] {
        machine.handle(event, &mut Cx::new(now, &*plane, &mut host));
    }
    assert_eq!(host.reads, 0);
    let opened = |call: &Call| matches!(call, Call::OpenLine(_));
    assert_eq!(plane.take_calls().into_iter().filter(opened).count(), 1);
    assert_eq!(machine.next_deadline(), None);
    assert_eq!(machine.line_reports(PeerId(0)), []);
}

#[test]
fn the_data_plane_is_told_what_the_lines_in_use_carry() {
    let rates = [5_000_000, 2_000_000];
    for (mode, both, gone) in [
        (LineMode::Single, rates[0], 1),
        (LineMode::Failover, rates[0], 0),
        (LineMode::Critical, rates[0], 0),
        (LineMode::Duplicate, rates[1], 1),
    ] {
        let mut world = World::with_lines([10, 20], mode, rates.map(Some));
        world.run(SECOND * 10, true);
        assert_eq!(world.hosts[A].rate, Some(both), "{mode:?}");
        let facts = world.set_facts(gone, None);
        world.run(SECOND * 5, true);
        assert_eq!(world.hosts[A].rate, Some(rates[1 - gone]), "{mode:?}");
        world.set_facts(gone, facts);
        world.run(SECOND * 60, true);
        assert_eq!(world.hosts[A].rate, Some(both), "{mode:?}, back again");
    }
    for mode in [LineMode::Balance, LineMode::BalancePackets] {
        let mut world = World::with_lines([10, 20], mode, rates.map(Some));
        for gone in [0, 1] {
            world.run(SECOND * 10, true);
            assert_eq!(world.hosts[A].rates, rates, "{mode:?}");
            let facts = world.set_facts(gone, None);
            world.run(SECOND * 5, true);
            let mut left = rates;
            left[gone] = 0;
            assert_eq!(world.hosts[A].rates, left, "{mode:?}");
            world.set_facts(gone, facts);
            world.run(SECOND * 60, true);
        }
        assert_eq!(world.hosts[A].rates, rates, "{mode:?}, back again");
        assert_eq!(world.hosts[A].rate, None);
    }
    let mut world = World::new([10, 20]);
    world.run(SECOND * 5, true);
    assert_eq!((world.hosts[A].rate, world.hosts[A].rates), (None, [0; 2]));
}
