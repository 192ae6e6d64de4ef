//! Peers that vanish, and the timers that notice.

use openvpn::session::CloseReason;

use crate::plane::Event;
use crate::setup::Setup;
use crate::world::{World, millis, secs};

fn with_pings() -> Setup {
    let mut setup = Setup::new();
    setup.server.common.timers.ping = Some(secs(10));
    setup.server.common.timers.ping_restart = Some(secs(120));
    setup
}

fn pushing(setup: Setup) -> World {
    let mut world = World::new(setup);
    world.push.push("ping 10".to_owned());
    world.push.push("ping-restart 60".to_owned());
    world.add_client();
    world.run_for(secs(2));
    assert!(world.client_is_up(0));
    world
}

#[test]
fn pings_keep_an_idle_session_up() {
    let mut world = pushing(with_pings());
    world.run_for(secs(1000));
    assert!(world.client_is_up(0));
    let pings = world.clients[0]
        .events
        .iter()
        .filter(|it| matches!(it, Event::Ping));
    assert!((95..=101).contains(&pings.count()));
    assert!(world.clients[0].plane.opened >= 95);
}

#[test]
fn a_server_that_vanishes_is_noticed() {
    let mut world = pushing(with_pings());
    world.link = Box::new(|_, _| Vec::new());
    let before = world.elapsed();
    while world.closed(0).is_none() {
        world.run_for(secs(1));
    }
    assert_eq!(world.closed(0), Some(&CloseReason::PingRestart(secs(60))));
    assert!(world.elapsed() - before <= secs(62));
    assert!(world.clients[0].plane.keys.is_empty());
}

#[test]
fn a_client_that_vanishes_is_noticed() {
    let mut world = pushing(with_pings());
    world.clients[0].alive = false;
    world.run_for(secs(125));
    assert_eq!(
        world.server_closed(),
        [&CloseReason::PingRestart(secs(120))]
    );
    assert!(world.listener.is_empty());
    assert_eq!(world.listener.next_deadline(), None);
}

#[test]
fn a_server_that_is_not_there_is_given_up() {
    let mut world = World::new(Setup::new());
    world.link = Box::new(|_, _| Vec::new());
    world.add_client();
    world.run_for(secs(70));
    assert_eq!(
        world.closed(0),
        Some(&CloseReason::HandshakeWindow(secs(60)))
    );
    // Retransmissions at 0, 2 and 6 s, and then every 8 s.
    assert!((8..=11).contains(&world.sent.len()), "{}", world.sent.len());
}

#[test]
fn a_client_that_stops_half_way_is_forgotten() {
    let mut world = World::with_client(Setup::new());
    world.run_for(millis(35));
    assert_eq!(world.listener.len(), 1);
    world.clients[0].alive = false;
    world.run_for(secs(61));
    assert!(world.listener.is_empty());
    assert_eq!(
        world.server_closed(),
        [&CloseReason::HandshakeWindow(secs(60))]
    );
}

#[test]
fn enough_is_enough() {
    let mut setup = with_pings();
    setup.client.common.timers.session_timeout = Some(secs(300));
    let mut world = pushing(setup);
    world.run_for(secs(310));
    assert_eq!(
        world.closed(0),
        Some(&CloseReason::SessionTimeout(secs(300)))
    );
}

#[test]
fn pushed_numbers_have_bounds() {
    let mut world = World::new(Setup::new());
    for option in [
        "ping 99999999",
        "tun-mtu 1",
        "ping-restart 4294967296",
        "peer-id 16777216",
    ] {
        world.push.push(option.to_owned());
    }
    world.add_client();
    world.run_for(secs(2));
    let reply = world.clients[0].events.iter().find_map(|it| match it {
        Event::Pushed(reply) => Some(reply),
        _ => None,
    });
    let reply = reply.unwrap();
    assert_eq!(reply.refused.len(), 4);
    assert_eq!((reply.ping, reply.ping_restart), (None, None));
}
