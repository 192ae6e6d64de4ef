//! The host's way to the server changes: the TCP connection, or the attempt to make one, keeps an address that no longer
//! leads there.

use super::config;
use super::scenarios::{begin, begin_with, leave};
use super::world::{Faults, World, secs};
use crate::openvpn::client::event::Event;
use openvpn_host::scripts::Hook;
use std::net::SocketAddr;
use std::time::Duration;

/// With pauses that no test waits for.
const TCP: &str = "--proto tcp-client --connect-retry 200 300";

/// Tells the client that it has moved.
fn moves(world: &mut World) {
    // Skips the check that a pause precedes the next dial.
    world.was_up = true;
    world.handle(Event::Moved);
}

/// Expects a tunnel after so many dials, all to the same server.
fn is_up_after(world: &mut World, dials: usize) {
    assert!(world.is_connected(), "{:?}", world.log);
    let first = world.dials[0].1;
    assert!(world.dials.iter().all(|it| it.1 == first));
    assert_eq!(world.dials.len(), dials, "{:?}", world.log);
    world.run_for(secs(60));
    assert_eq!(world.dials.len(), dials, "nothing late disturbs it");
    leave(world);
    assert!(world.ended.is_some());
}

#[test]
fn a_connection_is_made_again_at_once() {
    let mut world = begin(TCP, 2);
    world.run_for(secs(20));
    assert!(world.is_connected());
    moves(&mut world);
    world.run_for(secs(5));
    assert!(world.said("the uplink has changed; reconnecting"));
    is_up_after(&mut world, 2);
}

#[test]
fn a_handshake_that_has_lost_its_way_begins_anew_at_once() {
    let mut world = begin(TCP, 2);
    while world.machine().connection().is_none() {
        world.run_for(Duration::from_millis(1));
    }
    assert!(!world.is_connected());
    moves(&mut world);
    world.run_for(secs(5));
    is_up_after(&mut world, 2);
}

/// The first dial gets no answer, as its packets leave by an uplink that is gone. Its failure comes late, and belongs to
/// no attempt any more.
#[test]
fn a_dial_that_has_lost_its_way_is_made_again_at_once() {
    let mut world = World::new(
        config(&format!("--remote 192.0.2.1 1194 {TCP}")),
        &[SocketAddr::from(([192, 0, 2, 1], 1194))],
        1,
    );
    world.carries = [false; 2];
    world.handle(Event::Begin);
    assert!(world.machine().calls_by_stream());
    world.carries = [true; 2];
    moves(&mut world);
    world.run_for(secs(2));
    is_up_after(&mut world, 2);
}

/// The dial has succeeded, but the client has not learnt of it yet.
#[test]
fn a_connection_of_an_abandoned_dial_is_closed() {
    let mut world = begin(TCP, 1);
    moves(&mut world);
    world.run_for(secs(5));
    is_up_after(&mut world, 2);
}

#[test]
fn a_connection_that_waits_for_a_script_is_made_again_after_it() {
    let mut world = begin(&format!("{TCP} --script-security 2 --up /x"), 1);
    world.script_time = Some(secs(50));
    world.run_for(secs(20));
    assert_eq!(world.running, Some(Hook::Up));
    moves(&mut world);
    assert_eq!(world.dials.len(), 1, "`up` must end first");
    world.was_up = true;
    world.run_for(secs(110));
    is_up_after(&mut world, 2);
}

/// UDP takes every way; a pause ends, as the server may be reached again.
#[test]
fn without_a_connection_only_a_pause_ends() {
    let mut world = begin("", 1);
    world.run_for(secs(20));
    world.handle(Event::Moved);
    world.run_for(secs(1));
    is_up_after(&mut world, 1);

    let faults = Faults {
        dials: 100,
        ..Faults::default()
    };
    let mut world = begin_with(TCP, 1, faults);
    world.run_for(secs(20));
    world.faults.dials = 0;
    assert!(!world.machine().calls_by_stream());
    moves(&mut world);
    world.run_for(secs(5));
    assert!(world.is_connected(), "{:?}", world.log);
}

/// A default route appears while an attempt goes on that began without it, and that must fail.
#[test]
fn an_attempt_that_began_too_early_is_followed_by_another_at_once() {
    for (remote, more) in [
        ("192.0.2.1", TCP),
        ("vpn.example", "--connect-retry 200 300"),
    ] {
        let text = format!("--remote {remote} 1194 {more}");
        let server = SocketAddr::from(([192, 0, 2, 1], 1194));
        let mut world = World::new(config(&text), &[server], 1);
        (world.line, world.carries) = (false, [false; 2]);
        world.handle(Event::Begin);
        world.handle(Event::Hurry);
        (world.line, world.carries) = (true, [true; 2]);
        world.was_up = true;
        world.run_for(secs(20));
        assert!(world.is_connected(), "{remote}: {:?}", world.log);
    }
}
