//! Scripts run slowly while all else continues.

use super::scenarios::{begin, leave};
use super::world::{World, secs};
use crate::openvpn::Ended;
use crate::openvpn::client::event::Event;
use openvpn::message::Restart;
use openvpn_host::management::State;
use openvpn_host::scripts::Hook;
use openvpn_host::signals::Signal;

const AROUND: &str = "--script-security 2 --up /x --down /x --route-up /x --route-pre-down /x";

/// A client whose scripts each take this long and have no other effect.
fn slow(more: &str, seconds: u64) -> World {
    let mut world = begin(more, 1);
    world.script_time = Some(secs(seconds));
    world
}

#[test]
fn a_server_is_not_missed_while_up_runs_longer_than_it_may_be_silent() {
    let mut world = slow(AROUND, 100);
    world.run_for(secs(90));
    assert_eq!(world.running, Some(Hook::Up));
    assert!(
        world.plane.keys.is_empty(),
        "nothing comes out of the tunnel before"
    );
    assert!(!world.host.routes);
    world.run_for(secs(60));
    assert_eq!(
        (world.running, world.plane.keys.len()),
        (Some(Hook::RouteUp), 1)
    );
    assert!(!world.states.contains(&State::Connected));
    world.run_for(secs(300));
    assert!(world.states.contains(&State::Connected));
    assert_eq!(world.dials.len(), 1);
}

#[test]
fn keys_are_renewed_while_a_script_runs() {
    let mut world = slow("--script-security 2 --route-up /x --ipchange /x", 1000);
    world.run_for(secs(20));
    world.renew(0);
    world.run_for(secs(400));
    assert_eq!(
        (world.running, world.plane.installed),
        (Some(Hook::RouteUp), 2)
    );
    world.run_for(secs(2000));
    assert_eq!(world.scripts, [Hook::RouteUp, Hook::IpChange]);
    assert!(world.is_connected());
    assert_eq!(world.dials.len(), 1);
}

#[test]
fn a_client_that_is_to_leave_while_up_runs_waits_for_it_and_runs_down() {
    let mut world = slow(AROUND, 30);
    world.run_for(secs(10));
    assert_eq!(world.running, Some(Hook::Up));
    for _ in 0..2 {
        world.handle(Event::Signal(Signal::Exit("SIGTERM")));
    }
    world.run_for(secs(10));
    assert_eq!((world.running, world.ended), (Some(Hook::Up), None));
    world.run_for(secs(90));
    assert_eq!(world.ended, Some(Ended::Exit(0)));
    assert_eq!(world.scripts, [Hook::Up, Hook::RoutePreDown, Hook::Down]);
}

#[test]
fn scripts_of_an_end_see_what_they_are_told_of_and_the_next_connection_waits_for_them() {
    let mut world = slow(AROUND, 5);
    world.run_for(secs(60));
    assert!(world.is_connected());
    world.scripts.clear();
    world.send_away(0, &Restart::default());
    world.run_for(secs(3));
    assert_eq!(world.running, Some(Hook::RoutePreDown));
    assert!(world.host.routes && world.plane.keys.is_empty());
    world.run_for(secs(5));
    assert_eq!(world.running, Some(Hook::Down));
    assert!(world.host.set.is_none() && world.interface);
    assert_eq!(world.dials.len(), 1);
    world.run_for(secs(60));
    assert_eq!(world.dials.len(), 2);
    assert!(world.is_connected());
    leave(&mut world);
    world.run_for(secs(10));
    assert_eq!(world.ended, Some(Ended::Exit(0)));
    let of_an_end = [Hook::RoutePreDown, Hook::Down];
    assert_eq!(world.scripts[..2], of_an_end);
    assert_eq!(world.scripts[4..], of_an_end);
}

#[test]
fn an_interface_that_is_deleted_while_up_runs_is_taken_down_when_it_has_run() {
    for persist in ["", "--persist-tun"] {
        let mut world = slow(&format!("{AROUND} {persist} --up-restart"), 30);
        world.run_for(secs(10));
        for _ in 0..3 {
            world.handle(Event::InterfaceGone);
        }
        assert_eq!(world.running, Some(Hook::Up));
        world.run_for(secs(300));
        assert!(world.is_connected());
        assert_eq!(
            world.scripts[..3],
            [Hook::Up, Hook::RoutePreDown, Hook::Down]
        );
        assert_eq!(world.dials.len(), 2);
    }
}

#[test]
fn a_server_that_tls_verify_refuses_learns_nothing_of_the_client() {
    let mut world = slow("--script-security 2 --tls-verify /x", 30);
    world.run_for(secs(20));
    assert_eq!(world.servers[0].admitted, 0);
    world.run_for(secs(20));
    assert!(world.is_connected());
    let passed = |line: &&String| line.starts_with("VERIFY SCRIPT OK: depth=");
    assert_eq!(world.log.iter().filter(passed).count(), 2);

    let mut world = slow("--script-security 2 --tls-verify /x", 1);
    world.faults.scripts = 100;
    world.run_for(secs(100));
    assert!(world.dials.len() > 3);
    assert_eq!(world.servers[0].admitted, 0);
    assert!(
        world
            .log
            .iter()
            .any(|line| line.contains("the script failed"))
    );
}

#[test]
fn a_verdict_about_the_server_of_before_is_not_the_next_one_s() {
    let mut world = slow("--script-security 2 --tls-verify /x", 40);
    world.run_for(secs(10));
    world.handle(Event::Signal(Signal::Restart));
    world.run_for(secs(35));
    assert_eq!(world.servers[0].admitted, 0);
    world.run_for(secs(30));
    assert!(world.is_connected());
}

#[test]
fn names_in_routes_do_not_hold_up_a_client_that_leaves() {
    let mut world = begin("--route a.example 255.255.255.255", 1);
    while world.plans == 0 {
        world.run_for(secs(1));
    }
    world.handle(Event::Signal(Signal::Exit("SIGTERM")));
    world.run_for(secs(1));
    assert_eq!(world.ended, Some(Ended::Exit(0)));
}
