//! Peers that roam, peers that must not roam, and peers whose address vanishes.

use crate::packets::{plain, udp};
use crate::remote::Remote;
use crate::world::World;
use engine::Moving;
use netio::simulated::Call;
use netio::udp::{Endpoint, Family, Source};
use plane::{DataPlane as _, LineId, Notice, PeerId};
use std::io::Error;
use std::net::Ipv4Addr;

fn outbound() -> Vec<u8> {
    plain(&udp(false, (9, 1), b"to the peer"))
}

#[test]
fn answers_follow_a_peer_to_where_its_last_authentic_packet_came_from() {
    let mut world: World = World::new();
    world.peer.set_moving(Moving::Tell);
    let from = std::mem::replace(&mut world.remote, Remote::new());
    let new = world.remote.addr();
    // A forged packet does not move the endpoint.
    let mut forged = world.key.datagram(5, b"");
    forged[17] ^= 1;
    world.peer_sends(&[forged]);
    assert_eq!(world.peer.endpoint().unwrap().addr, from.addr());
    let keepalive = world.key.datagram(0, &[]);
    world.peer_sends(std::slice::from_ref(&keepalive));
    assert_eq!(world.peer.endpoint().unwrap().addr, new);
    // A replayed packet does not move it either.
    let mut old = std::mem::replace(&mut world.remote, from);
    world.peer_sends(&[keepalive]);
    assert_eq!(world.peer.endpoint().unwrap().addr, new);
    let moved = Notice::Moved {
        line: LineId::FIRST,
    };
    assert_eq!(world.around.control.notices(), [(PeerId(1), moved)]);
    world.host_sends(&[outbound()]);
    assert_eq!(old.receive(1).len(), 1);
}

#[test]
fn a_peer_that_stays_is_not_believed_from_elsewhere() {
    let mut world: World = World::new();
    world.peer.set_moving(Moving::Stay);
    let packet = udp(false, (1, 9), b"inner");
    let datagrams = [0, 1].map(|number| world.key.datagram(number, &packet));
    let own = std::mem::replace(&mut world.remote, Remote::new());
    world.peer_sends(&datagrams);
    assert_eq!(world.drops(), [("wrong_address", 2)]);
    assert!(world.around.written.take().is_empty());
    assert_eq!(world.peer.times().last_received, None);
    // Dropped packets leave the replay window unchanged: the same number is accepted later.
    world.remote = own;
    world.peer_sends(&datagrams[..1]);
    assert_eq!(world.around.written.packets(), [packet]);
}

#[test]
fn a_peer_whose_endpoint_is_not_known_is_found_by_what_it_sends() {
    let mut world: World = World::new();
    let (tunnel, remote) = (&world.plane.tunnel, Remote::new());
    let peer = world.around.peer(tunnel, 2, None);
    world.key = crate::toy::Key::new(2, 2).shared();
    crate::world::install(tunnel, &peer, 2, &world.key, crate::world::unlimited());
    assert!(!tunnel.send_keepalive(peer.id()));
    world.remote = remote;
    let keepalive = world.key.datagram(0, &[]);
    world.peer_sends(&[keepalive]);
    assert_eq!(peer.endpoint().map(|e| e.addr), Some(world.remote.addr()));
    assert!(world.plane.tunnel.send_keepalive(peer.id()));
}

#[test]
fn a_source_address_that_is_gone_is_forgotten_and_nothing_is_lost() {
    let mut world: World = World::new();
    let source = Some(Source {
        ip: Ipv4Addr::LOCALHOST.into(),
        ifindex: 0,
    });
    let sockets = world.plane.tunnel.sockets();
    // The kernel returns EINVAL for every packet with a source address.
    sockets
        .of(Family::V4)
        .unwrap()
        .faults
        .set(|call| match call {
            Call::Send { trains, .. } if trains[0].endpoint.source.is_some() => {
                Some(Err(Error::from_raw_os_error(22)))
            }
            _ => None,
        });
    let addr = world.remote.addr();
    for keepalive in [false, true] {
        world.peer.set_endpoint(Endpoint { addr, source });
        if keepalive {
            assert!(world.plane.tunnel.send_keepalive(world.peer.id()));
        } else {
            world.host_sends(&[outbound()]);
        }
        assert_eq!(world.peer.endpoint(), Some(Endpoint::new(addr)));
        assert_eq!(world.peer_receives(1).len(), 1);
    }
    assert_eq!(world.drops(), []);
}

#[test]
fn traffic_is_told_of_once_until_control_waits_for_it_again() {
    let mut world: World = World::new();
    for _ in 0..2 {
        world.host_sends(&[outbound()]);
        let keepalive = world.key.datagram(world.peer.sent_on_key().unwrap(), &[]);
        world.peer_sends(&[keepalive]);
    }
    let active = crate::world::Event::Notice(PeerId(1), Notice::Active);
    assert_eq!(world.around.control.take(), *std::slice::from_ref(&active));
    world.peer.disarm();
    world.host_sends(&[outbound()]);
    assert_eq!(world.around.control.take(), [active]);
}
