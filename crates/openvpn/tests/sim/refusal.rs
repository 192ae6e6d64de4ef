//! Clients that are admitted, refused or deferred; tokens; goodbyes.

use std::sync::Arc;

use openvpn::message::{AuthFailed, AuthFailedKind, Message, Restart};
use openvpn::push::FilterAction;
use openvpn::session::{CloseReason, Decision, Renegotiate, TokenKeeper, TokenState};

use crate::link::{Random, bad_link};
use crate::plane::Event;
use crate::setup::Setup;
use crate::world::{World, millis, reject, secs};

#[test]
fn a_refused_client_is_told_why() {
    for loss in [0, 15] {
        let mut setup = Setup::new();
        setup.login("ann", "wrong");
        let mut world = World::new(setup);
        world.judge = Box::new(|request| {
            assert_eq!(request.username, "ann");
            Some(if &**request.password == "right" {
                Decision::Accept
            } else {
                reject("no such password")
            })
        });
        world.link = bad_link(loss);
        world.add_client();
        world.run_for(secs(50));
        assert_eq!(
            world.closed(0),
            Some(&CloseReason::AuthFailed(AuthFailed::because(
                "no such password"
            )))
        );
        assert!(world.clients[0].plane.keys.is_empty());
        assert!(world.listener.is_empty());
    }
}

/// Control sees logins of any length: if a long one counted as none, a client could connect without a password.
#[test]
fn a_long_login_is_a_login() {
    let (name, password) = ("n".repeat(3000), "p".repeat(4000));
    let mut setup = Setup::new();
    setup.login(&name, &password);
    let mut world = World::new(setup);
    let expected = (name, password);
    world.judge = Box::new(move |request| {
        let shown = (&request.username, &**request.password);
        assert!(
            shown == (&expected.0, &expected.1),
            "{} bytes",
            shown.0.len() + shown.1.len()
        );
        Some(reject("no such user"))
    });
    world.add_client();
    world.run_for(secs(50));
    assert!(matches!(
        world.closed(0),
        Some(CloseReason::AuthFailed(why)) if why.reason == "no such user"
    ));
}

#[test]
fn an_answer_may_take_its_time() {
    let mut setup = Setup::new();
    setup.login("ann", "secret");
    let mut world = World::new(setup);
    world.judge = Box::new(|_| None);
    world.add_client();
    world.run_for(secs(5));
    let id = world.listener.clients().next().unwrap();
    world.server(id, |it, now, out| {
        it.authentication_pending(secs(120), now, out);
        it.send_message(&Message::InfoPre("WEB_AUTH::https://x/".into()), now, out);
    });
    world.run_for(secs(100));
    assert!(!world.client_is_up(0) && world.closed(0).is_none());
    let told: Vec<&str> = world.clients[0]
        .events
        .iter()
        .filter_map(|it| match it {
            Event::Message(text) => Some(&**text),
            _ => None,
        })
        .collect();
    assert_eq!(
        told,
        ["AUTH_PENDING,timeout 120", "INFO_PRE,WEB_AUTH::https://x/"]
    );
    world.client(0, |it, now, out| {
        it.send_message(&Message::CrResponse("eWVz".into()), now, out);
    });
    world.run_for(secs(1));
    assert!(matches!(
        world.server_events.last(),
        Some((_, Event::Message(text))) if text == "CR_RESPONSE,eWVz"
    ));
    let request = world.requests()[0].id;
    world.server(id, |it, now, out| {
        it.authenticated(request, Decision::Accept, now, out);
    });
    world.run_for(secs(1));
    assert!(world.client_is_up(0));
}

#[test]
fn an_answer_that_never_comes_is_a_refusal() {
    let mut world = World::new(Setup::new());
    world.judge = Box::new(|_| None);
    world.add_client();
    world.run_for(secs(70));
    assert!(world.listener.is_empty());
    assert!(matches!(
        world.closed(0),
        Some(CloseReason::AuthFailed(_) | CloseReason::NoPushReply(_))
    ));
}

#[test]
fn tokens_take_the_place_of_the_password() {
    let mut setup = Setup::new();
    setup.login("ann", "secret");
    setup.client.common.renegotiate = Renegotiate::every(secs(100));
    setup.server.common.renegotiate = Renegotiate::every(secs(0));
    setup.server.tokens = Some(Arc::new(TokenKeeper::new(
        &[1; 32],
        Some(secs(350)),
        secs(100),
    )));
    let mut world = World::with_client(setup);
    world.judge = Box::new(|request| {
        let good = request.token == TokenState::Authenticated || &**request.password == "secret";
        Some(if good { Decision::Accept } else { reject("no") })
    });
    world.run_for(secs(330));
    let requests = world.requests();
    assert!(
        requests.len() >= 4,
        "{:?} {:?}",
        world.clients[0].events,
        world.server_events
    );
    assert_eq!(requests[0].token, TokenState::Initial);
    assert!(!requests[0].renegotiation);
    for request in &requests[1..] {
        assert_eq!(request.token, TokenState::Authenticated);
        assert!(request.renegotiation && request.username == "ann");
    }
    let tokens: Vec<&String> = world.clients[0]
        .events
        .iter()
        .filter_map(|it| match it {
            Event::Token(token) => Some(token),
            _ => None,
        })
        .collect();
    assert_eq!(tokens.len(), world.requests().len());
    assert!(tokens.windows(2).all(|it| it[0] != it[1]));

    // The token's lifetime ends: the user must log in again.
    world.run_for(secs(200));
    let Some(CloseReason::AuthFailed(failed)) = world.closed(0) else {
        panic!("{:?}", world.closed(0));
    };
    assert_eq!(failed.kind, AuthFailedKind::Session);
}

#[test]
fn another_user_name_in_a_renewal_is_refused() {
    let mut setup = Setup::new();
    setup.login("ann", "secret");
    let mut world = World::with_client(setup);
    world.run_for(secs(2));
    world.client(0, |it, now, out| {
        it.set_credentials(Some(openvpn::session::Credentials {
            username: b"bob".to_vec(),
            password: b"secret".to_vec(),
        }));
        it.renegotiate(now, out);
        it.expired(now, out);
    });
    world.run_for(secs(10));
    assert!(matches!(world.closed(0), Some(CloseReason::AuthFailed(_))));
    assert!(world.listener.is_empty());
}

#[test]
fn a_client_says_goodbye() {
    for exporter in [true, false] {
        let mut setup = Setup::new();
        setup.client.explicit_exit_notify = Some(2);
        setup.both(|it| it.exporter = exporter);
        let mut world = World::with_client(setup);
        world.run_for(secs(2));
        world.client(0, |it, now, out| it.leave(now, out));
        world.run_for(secs(10));
        assert_eq!(world.closed(0), Some(&CloseReason::Local));
        assert_eq!(world.server_closed(), [&CloseReason::PeerExit]);
        assert!(world.planes.values().all(|it| it.keys.is_empty()));
    }
}

/// The server notices by the client's silence. The client does not wait at times when it would send nothing.
#[test]
fn a_client_that_cannot_say_goodbye_goes_at_once() {
    for (in_band, closed) in [(true, None), (false, Some(&CloseReason::Local))] {
        let mut setup = Setup::new();
        setup.both(|it| it.exporter = false);
        setup.client.explicit_exit_notify = Some(2);
        setup.client.common.in_band = in_band;
        // The ends have not agreed on goodbyes in the control channel.
        let flags = (FilterAction::Ignore, "protocol-flags".to_owned());
        setup.client.filter.rules.push(flags);
        let mut world = World::with_client(setup);
        world.run_for(secs(2));
        world.client(0, |it, now, out| it.leave(now, out));
        assert_eq!(world.closed(0), closed);
        world.run_for(secs(10));
        assert_eq!(world.closed(0), Some(&CloseReason::Local));
    }
}

#[test]
fn a_server_says_goodbye() {
    let restart = Restart {
        next_remote: true,
        keep_credentials: false,
        reason: "maintenance".to_owned(),
    };
    let mut world = World::with_client(Setup::new());
    world.run_for(secs(2));
    world.link = bad_link(20);
    let id = world.up();
    let said = restart.clone();
    world.server(id, |it, now, out| it.restart(said, now, out));
    world.run_for(secs(20));
    assert_eq!(world.closed(0), Some(&CloseReason::Restart(restart)));
    assert!(world.listener.is_empty());
}

/// A restarting server waits until its clients have acknowledged the goodbye, and then ends.
#[test]
fn a_goodbye_is_acknowledged() {
    let mut world = World::with_client(Setup::new());
    world.run_for(secs(2));
    let id = world.up();
    world.server(id, |it, now, out| it.restart(Restart::default(), now, out));
    world.run_for(millis(100));
    assert_eq!(
        world.closed(0),
        Some(&CloseReason::Restart(Restart::default()))
    );
    assert!(world.listener.is_empty());
}

/// An answer that arrives while another message is being sent (CVE-2026-12996 of OpenVPN).
#[test]
fn answers_come_at_any_moment() {
    for delay in 0..60 {
        let mut world = World::new(Setup::new());
        world.judge = Box::new(|_| None);
        world.random = Random(delay + 1);
        world.link = bad_link(10);
        world.add_client();
        let asked = |world: &World| world.requests().first().map(|it| it.id);
        while asked(&world).is_none() {
            world.run_for(millis(10));
        }
        world.run_for(millis(delay * 331));
        let (id, request) = (world.server_events[0].0, asked(&world).unwrap());
        for _ in 0..2 {
            world.server(id, |it, now, out| {
                it.authenticated(request, Decision::Accept, now, out);
                it.expired(now, out);
            });
        }
        world.run_for(secs(35));
        assert!(world.client_is_up(0), "{delay}: {:?}", world.closed(0));
    }
}
