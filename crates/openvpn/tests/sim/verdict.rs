//! A client's program judges its server's certificate, which takes time.

use std::sync::Arc;

use openvpn::role::Role;
use openvpn::session::CloseReason;

use crate::plane::Event;
use crate::setup::{Setup, tls_settings};
use crate::world::{World, millis, secs};

/// Starts a client that requests a verdict on its server.
fn asking() -> World {
    let mut setup = Setup::new();
    let mut tls = tls_settings(Role::Client);
    tls.ask_for_verdicts();
    setup.client.common.tls = Arc::new(tls);
    World::with_client(setup)
}

/// Key ids of the negotiations in which the client asked.
fn questions(world: &World) -> Vec<u8> {
    let asked = world.clients[0].events.iter().filter_map(|it| match it {
        Event::Judge(key_id) => Some(*key_id),
        _ => None,
    });
    asked.collect()
}

fn answer(world: &mut World, key_id: u8, verdict: Result<(), String>) {
    world.client(0, |session, now, out| {
        session.judged(key_id, verdict, now, out);
    });
}

#[test]
fn a_client_shows_nothing_of_itself_before_the_verdict() {
    let mut world = asking();
    world.run_for(secs(30));
    assert_eq!(questions(&world), [0]);
    assert!(world.requests().is_empty() && !world.client_is_up(0));
    answer(&mut world, 3, Ok(()));
    assert!(world.requests().is_empty(), "an answer to another question");
    answer(&mut world, 0, Ok(()));
    world.run_for(secs(5));
    assert!(world.client_is_up(0));
    let asked = world.requests();
    assert!(asked[0].certificate.is_some());
}

#[test]
fn a_refused_server_ends_the_session_and_is_told_at_once() {
    let mut world = asking();
    world.run_for(secs(5));
    answer(&mut world, 0, Err("not today".to_owned()));
    world.run_for(secs(1));
    let Some(CloseReason::Tls(why)) = world.closed(0) else {
        panic!("{:?}", world.closed(0));
    };
    assert!(why.contains("not today"), "{why}");
    assert!(world.requests().is_empty());
    assert!(world.listener.is_empty(), "no session waits for the client");
}

#[test]
fn a_verdict_must_come_within_the_window_of_the_negotiation() {
    let mut world = asking();
    world.run_for(secs(70));
    assert!(matches!(
        world.closed(0),
        Some(CloseReason::HandshakeWindow(_))
    ));
    answer(&mut world, 0, Ok(()));
    world.run_for(secs(5));
    assert!(!world.client_is_up(0));
}

#[test]
fn the_keys_before_go_on_while_a_renewal_waits_for_its_verdict() {
    let mut world = asking();
    world.run_for(secs(1));
    answer(&mut world, 0, Ok(()));
    world.run_for(secs(5));
    world.data_every = Some(millis(20));
    world.client(0, |session, now, out| session.renegotiate(now, out));
    world.run_for(secs(40));
    assert_eq!(questions(&world), [0, 1]);
    assert_eq!(world.renegotiated(0), []);
    answer(&mut world, 1, Ok(()));
    world.run_for(secs(10));
    world.data_every = None;
    world.run_for(secs(1));
    assert_eq!(world.renegotiated(0), [1]);
    let id = world.up();
    let (client, server) = (&world.clients[0].plane, &world.planes[&id]);
    assert_eq!((client.lost, server.lost), (0, 0));
    assert_eq!((client.sent, server.sent), (server.opened, client.opened));
}
