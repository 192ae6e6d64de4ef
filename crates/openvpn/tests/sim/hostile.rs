//! Strangers on the wire: each of their packets costs a drop, and disturbs no client.

use plane::{Endpoint, StreamId};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use openvpn::keyfile::StaticKey;
use openvpn::keyfile::v2::{ClientKey, Metadata, ServerKey};
use openvpn::role::Role;
use openvpn::server::{Remote, ServerOutput};
use openvpn::session::Renegotiate;
use openvpn::wrap::WrapSettings;

use crate::link::Random;
use crate::setup::{Setup, tls_settings};
use crate::world::{SERVER, World, millis, secs};

fn crypted() -> Setup {
    let key = StaticKey::generate().unwrap();
    let mut setup = Setup::new();
    setup.client.wrap = WrapSettings::tls_crypt(&key, Role::Client);
    setup.server_wrap = WrapSettings::tls_crypt(&key, Role::Server);
    setup.client.common.renegotiate = Renegotiate::every(secs(20));
    setup
}

fn assert_undisturbed(world: &mut World) {
    world.data_every = None;
    world.run_for(secs(1));
    assert!(world.client_is_up(0), "{:?}", world.closed(0));
    let id = world.up();
    let (client, server) = (&world.clients[0].plane, &world.planes[&id]);
    assert_eq!((client.lost, server.lost), (0, 0));
    assert_eq!(client.sent, server.opened);
    assert_eq!(server.sent, client.opened);
}

/// Replays every packet, from its own and from another address.
#[test]
fn replays_change_nothing() {
    let mut world = World::with_client(crypted());
    world.data_every = Some(millis(100));
    world.run_for(secs(50));
    let stranger = SocketAddr::from(([203, 0, 113, 9], 9));
    let old: Vec<_> = world.sent.clone();
    for (from, to, datagram) in old {
        if datagram[0] >> 3 == 9 {
            continue;
        }
        world.arrive(from, to, &datagram);
        if to == SERVER {
            world.arrive(stranger, to, &datagram);
        }
        world.run_for(millis(20));
    }
    assert!(world.listener.drops().replay > 0);
    // The server answers the stranger's resets, and keeps no session.
    assert_eq!(world.listener.len(), 1);
    assert_undisturbed(&mut world);
}

/// Flips single bits in packets in transit; the unchanged packets follow.
#[test]
fn forged_packets_change_nothing() {
    let mut world = World::with_client(crypted());
    world.data_every = Some(millis(100));
    let mut random = Random(5);
    let mut seen = 0;
    while world.elapsed() < secs(100) {
        world.run_for(millis(5));
        let fresh = world.sent.split_off(seen);
        world.sent.extend_from_slice(&fresh);
        for (from, to, datagram) in fresh {
            if datagram[0] >> 3 == 9 {
                continue;
            }
            let mut forged = datagram.clone();
            let at = random.below(forged.len() as u64) as usize;
            forged[at] ^= 1 << random.below(8);
            world.arrive(from, to, &forged);
            let cut = random.below(datagram.len() as u64) as usize;
            world.arrive(from, to, &datagram[..cut]);
        }
        seen = world.sent.len();
    }
    assert!(world.listener.drops().not_authentic > 0);
    assert!(world.renegotiated(0).len() >= 3);
    assert_undisturbed(&mut world);
}

/// Without a wrap any sender can make packets; the peer accepts only those with the session's id.
#[test]
fn packets_of_other_sessions_change_nothing() {
    let mut world = World::with_client(Setup::new());
    world.run_for(secs(2));
    world.data_every = Some(millis(100));
    let client = world.clients[0].address;
    let mut random = Random(11);
    for opcode in 0..32u8 {
        for key_id in 0..8u8 {
            for length in [0, 1, 8, 9, 14, 22, 26, 40, 200] {
                let mut packet: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
                packet.insert(0, opcode << 3 | key_id);
                // The simulated data packets never have these lengths.
                world.arrive(client, SERVER, &packet);
                world.arrive(SERVER, client, &packet);
            }
        }
    }
    world.run_for(secs(2));
    assert_eq!(world.listener.len(), 1);
    assert_undisturbed(&mut world);
}

/// A hard reset must be message 0 of key 0, as OpenVPN 2.7.6 also requires.
#[test]
fn hard_resets_with_another_message_id_are_dropped() {
    let mut world = World::with_client(Setup::new());
    let (from, to, reset) = world.sent[0].clone();
    let resets = |world: &World| world.sent.iter().filter(|it| it.0 == SERVER).count();
    let mut wrong = reset.clone();
    *wrong.last_mut().unwrap() = 1;
    world.arrive(from, to, &wrong);
    let mut wrong = reset.clone();
    wrong[0] |= 1;
    world.arrive(from, to, &wrong);
    assert_eq!(resets(&world), 0);
    world.arrive(from, to, &reset);
    assert_eq!(resets(&world), 1);
    // Invalid resets do not end an established session either.
    world.run_for(secs(2));
    let mut wrong = reset;
    *wrong.last_mut().unwrap() = 5;
    world.arrive(from, to, &wrong);
    world.run_for(secs(5));
    assert!(world.client_is_up(0));
    assert_eq!(world.listener.len(), 1);
}

/// `connect-freq`: a client that comes too soon after another waits.
#[test]
fn sessions_begin_as_often_as_they_may() {
    let mut setup = Setup::new();
    setup.starts = Some((1, secs(20)));
    let mut world = World::with_client(setup);
    world.run_for(secs(2));
    let second = world.add_client();
    world.run_for(secs(10));
    assert!(world.client_is_up(0) && !world.client_is_up(second));
    assert_eq!(world.listener.len(), 1);
    world.run_for(secs(30));
    assert!(world.client_is_up(second));
}

/// Wrapped client keys with false lengths (CVE-2026-35058, -12932 and -13698 of OpenVPN).
#[test]
fn wrapped_keys_of_any_length_are_dropped() {
    let server = ServerKey::generate().unwrap();
    let client = ClientKey::generate(&server, &Metadata::user(b"")).unwrap();
    let mut setup = Setup::new();
    setup.client.wrap = WrapSettings::tls_crypt_v2_client(&client);
    setup.server_wrap = WrapSettings::tls_crypt_v2_server(&server, None);
    let mut world = World::with_client(setup);
    let (from, to, reset) = world.sent[0].clone();
    for length in (0..=u16::MAX).step_by(7).chain([u16::MAX]) {
        let mut wrong = reset.clone();
        let at = wrong.len() - 2;
        if wrong[at..] == length.to_be_bytes() {
            continue;
        }
        wrong[at..].copy_from_slice(&length.to_be_bytes());
        world.arrive(from, to, &wrong);
    }
    for length in 0..reset.len() {
        world.arrive(from, to, &reset[..length]);
    }
    assert!(world.listener.is_empty());
    assert!(world.sent.iter().all(|it| it.0 != SERVER));
    world.run_for(secs(2));
    assert!(world.client_is_up(0));
}

/// A router that starts before it knows the time accepts every client key, because none looks expired; once it knows
/// the time, it checks the age.
#[test]
fn the_age_of_client_keys_is_told_by_the_clock_as_it_is_now() {
    let server = ServerKey::generate().unwrap();
    let client = ClientKey::generate(&server, &Metadata::timestamp(1_700_000_000)).unwrap();
    let mut setup = Setup::new();
    setup.client.wrap = WrapSettings::tls_crypt_v2_client(&client);
    setup.server_wrap = WrapSettings::tls_crypt_v2_server(&server, Some(secs(3600)));
    let mut world = World::new(setup);
    let at = |secs| SystemTime::UNIX_EPOCH + Duration::from_secs(secs);
    world.listener.set_wall_clock(world.now, at(100));
    let early = world.add_client();
    world.run_for(secs(2));
    assert!(world.client_is_up(early));
    world.listener.set_wall_clock(world.now, at(1_700_003_700));
    let late = world.add_client();
    world.run_for(secs(10));
    assert!(!world.client_is_up(late));
    assert_eq!(world.listener.len(), 1);
    world.listener.set_wall_clock(world.now, at(1_700_003_000));
    world.run_for(secs(60));
    assert!(world.client_is_up(late));
}

/// A client can float only to an address that no other client uses.
#[test]
fn floating_takes_no_clients_place() {
    let mut setup = Setup::new();
    setup.server.common.renegotiate = Renegotiate::every(secs(10));
    let mut world = World::new(setup);
    let (a, b) = (world.add_client(), world.add_client());
    world.run_for(secs(2));
    let mut ids: Vec<_> = world.listener.clients().collect();
    ids.sort();
    assert_eq!(ids.len(), 2);
    let free = SocketAddr::from(([198, 51, 100, 77], 7777));
    world.clients[a].address = free;
    let mut out = Vec::new();
    let first = ids
        .iter()
        .copied()
        .find(|it| world.listener.remote(*it) != Some(Remote::udp(world.clients[b].address)))
        .unwrap();
    assert!(world.listener.floated(first, Endpoint::new(free), &mut out));
    assert!(out.is_empty());
    assert_eq!(world.listener.remote(first), Some(Remote::udp(free)));
    // The control channel continues at the new address.
    world.run_for(secs(20));
    assert!(!world.renegotiated(a).is_empty());
    assert!(world.client_is_up(a) && world.client_is_up(b));
}

/// Behind a NAT a stranger can share a client's address and port, over another transport or connection. The stranger's
/// sessions do not affect the client's.
#[test]
fn sessions_of_one_address_over_two_transports_are_strangers_to_each_other() {
    let mut setup = Setup::new();
    setup.client.common.renegotiate = Renegotiate::every(secs(10));
    let mut world = World::with_client(setup);
    world.run_for(secs(2));
    let client = world.up();
    let address = world.clients[0].address;
    let reset = world.sent[0].2.clone();
    let [first, second] = [1, 2].map(|connection| Remote::tcp(address, StreamId(connection)));
    let mut own = Vec::new();
    for remote in [first, second] {
        let mut out = Vec::new();
        let now = world.now;
        world
            .listener
            .receive(&reset, remote, None, now, &mut out)
            .unwrap();
        let started = out.iter().find_map(|it| match it {
            ServerOutput::Started { client, from, .. } => Some((*client, *from)),
            _ => None,
        });
        let (id, from) = started.expect("a session of its own");
        assert_eq!(from, remote);
        let to = out.iter().filter_map(|it| match it {
            ServerOutput::Send { to, .. } => Some(*to),
            _ => None,
        });
        assert_eq!(to.collect::<Vec<_>>(), [remote], "the answer goes its way");
        own.push(id);
    }
    let mut out = Vec::new();
    assert!(
        !world
            .listener
            .floated(own[0], Endpoint::new(address), &mut out)
    );
    world.listener.disconnected(first, &mut out);
    assert!(world.listener.session(own[0]).is_none());
    assert!(world.listener.session(own[1]).is_some());
    assert!(world.listener.session(client).is_some());
    world.listener.disconnected(second, &mut out);
    // The client's own session continues, including a key renewal.
    world.run_for(secs(20));
    assert_eq!(world.up(), client);
    assert!(world.client_is_up(0) && !world.renegotiated(0).is_empty());
}

/// Any sender can begin sessions that never complete: they take no client's slot, and give way to sessions from other
/// addresses.
#[test]
fn sessions_that_never_come_up_keep_no_client_out() {
    let mut setup = Setup::new();
    setup.max_clients = 2;
    let mut world = World::with_client(setup);
    world.run_for(secs(2));
    assert!(world.client_is_up(0));
    let reset = world.sent[0].2.clone();
    let mut stranger = SocketAddr::from(([203, 0, 113, 9], 9));
    let now = world.now;
    let mut begin = |world: &mut World, connection| {
        stranger.set_port(stranger.port() + 1);
        let mut out = Vec::new();
        let remote = Remote::tcp(stranger, StreamId(connection));
        // Clients beyond the limit have to wait.
        let _ = world.listener.receive(&reset, remote, None, now, &mut out);
        world.perform_server(out);
    };
    for connection in 0..200 {
        begin(&mut world, connection);
    }
    assert!(world.listener.len() < 100, "{}", world.listener.len());
    let second = world.add_client();
    world.run_for(secs(8));
    assert!(world.client_is_up(second));
    // Two clients are connected, which is the limit: the server does not even answer a third.
    let third = world.add_client();
    world.run_for(secs(8));
    assert!(!world.client_is_up(third));
    assert!(world.listener.drops().full > 0);
    assert!(world.client_is_up(0) && world.client_is_up(second));
}

/// A stranger with a short IPv6 prefix can make every source have only one session; then the oldest gives way.
#[test]
fn sessions_of_many_networks_that_never_come_up_keep_no_client_out() {
    let mut setup = Setup::new();
    setup.max_clients = 2;
    let mut world = World::with_client(setup);
    world.run_for(secs(2));
    assert!(world.client_is_up(0));
    let reset = world.sent[0].2.clone();
    for net in 0..200 {
        let stranger = SocketAddr::from(([0x2001, 0xdb8, 0, net, 0, 0, 0, 1], 9));
        let (mut out, now) = (Vec::new(), world.now);
        let remote = Remote::tcp(stranger, StreamId(net.into()));
        // Clients beyond the limit have to wait.
        let _ = world.listener.receive(&reset, remote, None, now, &mut out);
        world.perform_server(out);
    }
    assert!(world.listener.len() < 100, "{}", world.listener.len());
    let second = world.add_client();
    world.run_for(secs(8));
    assert!(world.client_is_up(0) && world.client_is_up(second));
}

/// A stranger's endless TLS message fills its session's buffer, which is limited for each source and for many together.
#[test]
fn strangers_have_so_many_bytes_and_keep_no_client_out() {
    for hosts in [1, 250] {
        let mut world = World::with_client(Setup::new());
        world.run_for(secs(2));
        assert!(world.client_is_up(0));
        let reset = world.sent[0].2.clone();
        let (mut most, mut begun) = (0, 0);
        for connection in 0..1000_u16 {
            let host = [203, 0, 113, (connection % hosts) as u8];
            let stranger = SocketAddr::from((host, 10_000 + connection));
            let remote = Remote::tcp(stranger, StreamId(connection.into()));
            let (mut out, now) = (Vec::new(), world.now);
            // A session that cannot begin must wait.
            let _ = world.listener.receive(&reset, remote, None, now, &mut out);
            let answer = out.iter().find_map(|it| match it {
                ServerOutput::Send { datagram, .. } => Some(datagram[1..9].to_vec()),
                _ => None,
            });
            let Some(theirs) = answer else { continue };
            begun += 1;
            // Records of 16,000 bytes that carry one message of 60,000.
            let mut records = [[7; 16_005]; 3];
            for record in &mut records {
                record[..5].copy_from_slice(&[22, 3, 1, 0x3e, 0x80]);
            }
            records[0][5..11].copy_from_slice(&[1, 0, 0xea, 0x60, 3, 3]);
            let hello = records.concat();
            for (number, part) in (1_u32..).zip(hello.chunks(1200)) {
                let mut packet = vec![4 << 3];
                packet.extend(&reset[1..9]);
                packet.extend([1, 0, 0, 0, 0]);
                packet.extend(&theirs);
                packet.extend(number.to_be_bytes());
                packet.extend(part);
                // The session may have ended, because the largest session gives way.
                let _ = world.listener.receive(&packet, remote, None, now, &mut out);
            }
            world.perform_server(out);
            most = most.max(world.listener.stranger_bytes());
            world.run_for(millis(1));
        }
        assert!((5 << 19..3 << 20).contains(&most), "{hosts}: {most}");
        assert!(begun > 30, "{hosts}: {begun}");
        let second = world.add_client();
        world.run_for(secs(8));
        assert!(
            world.client_is_up(0) && world.client_is_up(second),
            "{hosts}"
        );
        world.run_for(secs(100));
        assert_eq!(world.listener.stranger_bytes(), 0);
    }
}

/// A client whose handshake waits for the server's CPU is not evicted.
#[test]
fn sessions_that_wait_for_the_server_give_way_to_none() {
    let mut setup = Setup::new();
    let mut tls = tls_settings(Role::Server);
    tls.hand_out_handshakes();
    setup.server.common.tls = Arc::new(tls);
    let mut world = World::new(setup);
    world.handshakes.take = secs(5);
    for host in 0..300_u16 {
        let [high, low] = host.to_be_bytes();
        world.add_client_at(SocketAddr::from(([198, 51, high, low], 40_000)));
    }
    world.run_for(secs(50));
    let up = (0..300).filter(|at| world.client_is_up(*at)).count();
    let limited = world.listener.drops().limited;
    assert!(
        up == 300 && limited > 0,
        "{up} are up, {limited} had to wait"
    );
    assert!(world.server_closed().is_empty());
}

/// A server that ends sends goodbyes and admits no client meanwhile: a returning client would get no answer.
#[test]
fn a_server_that_ends_lets_no_client_in() {
    let mut world = World::with_client(Setup::new());
    world.run_for(secs(2));
    let id = world.up();
    world.listener.close();
    world.server(id, |session, now, out| {
        session.restart(openvpn::message::Restart::default(), now, out);
    });
    world.run_for(secs(1));
    assert!(world.closed(0).is_some(), "told");
    let again = world.add_client();
    world.run_for(secs(5));
    assert!(world.listener.is_empty());
    let to = world.clients[again].address;
    assert!(world.sent.iter().all(|it| it.1 != to), "no answer");
}
