//! Sessions come up with every wrap, key derivation and cipher.

use crypto::Digest;
use openvpn::keyfile::v2::{ClientKey, Metadata, ServerKey};
use openvpn::keyfile::{KeyDirection, StaticKey};
use openvpn::negotiate::{Cipher, CipherList};
use openvpn::role::Role;
use openvpn::session::{CloseReason, Layout};
use openvpn::wrap::WrapSettings;

use crate::link::{Random, bad_link};
use crate::plane::Event;
use crate::setup::Setup;
use crate::world::{World, millis, secs};

/// Matching wraps of a client and a server.
fn wraps() -> Vec<(&'static str, WrapSettings, WrapSettings)> {
    let key = StaticKey::generate().unwrap();
    let server_key = ServerKey::generate().unwrap();
    let client_key = ClientKey::generate(&server_key, &Metadata::user(b"branch")).unwrap();
    let auth = |direction, digest| WrapSettings::tls_auth(&key, direction, digest).unwrap();
    let (inverse, normal) = (KeyDirection::Inverse, KeyDirection::Normal);
    vec![
        ("none", WrapSettings::none(), WrapSettings::none()),
        (
            "tls-auth SHA1",
            auth(inverse, Digest::Sha1),
            auth(normal, Digest::Sha1),
        ),
        (
            "tls-auth SHA512",
            auth(inverse, Digest::Sha512),
            auth(normal, Digest::Sha512),
        ),
        (
            "tls-auth without direction",
            auth(KeyDirection::Bidirectional, Digest::Sha256),
            auth(KeyDirection::Bidirectional, Digest::Sha256),
        ),
        (
            "tls-crypt",
            WrapSettings::tls_crypt(&key, Role::Client),
            WrapSettings::tls_crypt(&key, Role::Server),
        ),
        (
            "tls-crypt-v2",
            WrapSettings::tls_crypt_v2_client(&client_key),
            WrapSettings::tls_crypt_v2_server(&server_key, None),
        ),
    ]
}

fn assert_works(world: &mut World, what: &str) {
    assert!(world.client_is_up(0), "{what}: {:?}", world.closed(0));
    world.data_every = Some(secs(1));
    world.run_for(secs(5));
    let id = world.up();
    let (client, server) = (&world.clients[0].plane, &world.planes[&id]);
    assert_eq!((client.lost, server.lost), (0, 0), "{what}");
    assert!(client.opened >= 4 && server.opened >= 4, "{what}");
}

#[test]
fn every_wrap_with_every_derivation() {
    for (name, client, server) in wraps() {
        for (at_client, at_server, epoch) in [
            (true, true, false),
            (true, true, true),
            (false, true, true),
            (true, false, false),
            (false, false, false),
        ] {
            let mut setup = Setup::new();
            setup.client.wrap = client.clone();
            setup.server_wrap = server.clone();
            setup.client.common.exporter = at_client;
            setup.server.common.exporter = at_server;
            setup.both(|it| it.epoch = epoch);
            let mut world = World::with_client(setup);
            world.run_for(secs(2));
            let what = format!("{name}, exporter {at_client} {at_server}, epoch {epoch}");
            assert_works(&mut world, &what);
            let (_, layout) = world.clients[0].session.data_channel().unwrap();
            let exported = at_client && at_server;
            assert_eq!(
                matches!(layout, Layout::Epoch { .. }),
                epoch && exported,
                "{what}"
            );
            let Some(Event::Pushed(reply)) = world.clients[0]
                .events
                .iter()
                .find(|it| matches!(it, Event::Pushed(_)))
            else {
                panic!("nothing pushed");
            };
            assert_eq!(reply.tls_ekm, exported, "{what}");
            assert_eq!(reply.dyn_tls_crypt, exported, "{what}");
            assert!(reply.cc_exit && reply.refused.is_empty(), "{what}");
            assert_eq!(reply.tun_mtu, Some(1500), "{what}");
        }
    }
}

#[test]
fn every_cipher() {
    for cipher in Cipher::ALL {
        let mut setup = Setup::new();
        setup.both(|it| {
            it.data_ciphers = CipherList::of(&[cipher]);
            it.auth = Digest::Sha256;
        });
        let mut world = World::with_client(setup);
        world.run_for(secs(2));
        assert_works(&mut world, cipher.name());
        let keys = &world.clients[0].plane.keys[&0];
        assert_eq!(keys.cipher, cipher);
        assert_eq!(keys.auth.is_empty(), cipher.is_aead());
    }
}

#[test]
fn the_wire_may_be_bad() {
    for (name, client, server) in wraps() {
        for seed in 1..=5 {
            let mut setup = Setup::new();
            setup.client.wrap = client.clone();
            setup.server_wrap = server.clone();
            let mut world = World::new(setup);
            world.random = Random(seed * 7919);
            world.link = bad_link(15);
            world.add_client();
            world.run_for(secs(55));
            assert_works(&mut world, &format!("{name}, seed {seed}"));
            assert!(world.listener.len() <= 2);
        }
    }
}

/// A server must keep no state for a sender that has not proved its address.
#[test]
fn nothing_is_kept_before_the_third_packet() {
    for (name, client, server) in wraps() {
        let mut setup = Setup::new();
        setup.client.wrap = client;
        setup.server_wrap = server;
        let mut world = World::new(setup);
        let from = world.add_client();
        let reset = world.sent[0].2.clone();
        world.clients[from].alive = false;
        let address = world.clients[from].address;
        for _ in 0..50 {
            world.arrive(address, crate::world::SERVER, &reset);
        }
        assert!(world.listener.is_empty(), "{name}");
        // The server answered each packet; beyond the limit it would not answer.
        assert_eq!(world.sent.len(), 51, "{name}");
        for _ in 0..100 {
            world.arrive(address, crate::world::SERVER, &reset);
        }
        assert_eq!(world.sent.len(), 101, "{name}");
        assert_eq!(world.listener.drops().limited, 50, "{name}");
        assert!(world.listener.is_empty(), "{name}");
    }
}

#[test]
fn a_hundred_clients_and_one_that_comes_again() {
    let mut setup = Setup::new();
    setup.both(|it| it.timers.ping = Some(secs(10)));
    let mut world = World::new(setup);
    for _ in 0..100 {
        world.add_client();
    }
    world.run_for(secs(3));
    assert!((0..100).all(|at| world.client_is_up(at)));
    assert_eq!(world.listener.len(), 100);

    // Client 7's program restarts with the same port.
    world.clients[7].alive = false;
    let address = world.clients[7].address;
    let again = world.add_client_at(address);
    world.run_for(secs(3));
    assert!(world.client_is_up(again));
    assert_eq!(world.listener.len(), 100);
    assert_eq!(world.server_closed(), [&CloseReason::Replaced]);
}

#[test]
fn no_shared_cipher_is_told_to_the_client() {
    let mut setup = Setup::new();
    setup.client.common.data_ciphers = CipherList::of(&[Cipher::Aes128Cbc]);
    let mut world = World::with_client(setup);
    world.run_for(secs(10));
    let Some(CloseReason::AuthFailed(failed)) = world.closed(0) else {
        panic!("{:?}", world.closed(0));
    };
    assert!(failed.reason.contains("no shared cipher"), "{failed}");
    assert!(world.listener.is_empty());
}

#[test]
fn options_in_many_parts_arrive_whole() {
    let mut world = World::new(Setup::new());
    world.push = (0..300)
        .map(|it| format!("route 10.{}.{}.0 255.255.255.0", it / 250, it % 250))
        .collect();
    world.link = bad_link(10);
    world.add_client();
    world.run_for(secs(40));
    let Some(Event::Pushed(reply)) = world.clients[0]
        .events
        .iter()
        .find(|it| matches!(it, Event::Pushed(_)))
    else {
        panic!("nothing pushed");
    };
    assert_eq!(reply.routes.len(), 300);
}

/// Servers before 2.5 drop a push request that arrives while they authenticate the client, so the client repeats it.
#[test]
fn options_are_asked_for_again_after_a_second() {
    let mut world = World::with_client(Setup::new());
    world.pushes = false;
    let address = world.clients[0].address;
    let sent = |world: &World| world.sent.iter().filter(|it| it.0 == address).count();
    world.run_for(millis(800));
    let asked = sent(&world);
    assert!(asked >= 4, "the handshake and the first request");
    world.run_for(millis(600));
    assert!(sent(&world) > asked);
    assert!(!world.client_is_up(0));
}
