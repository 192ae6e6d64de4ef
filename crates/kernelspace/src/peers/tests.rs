//! Tests the order of requests with a simulated kernel, which refuses the same requests as the real one.

mod addresses;
mod news;
mod simulated;
mod times;

use super::*;
use crypto::Cipher;
use crypto::Digest;
use netio::udp::{SocketOptions, UdpSocket};
use openvpn::data::format::{Framing, Shape};
use openvpn::data::wire::Layout;
use openvpn::keys::KeyMaterial;
use openvpn::session::DataKeys;
use proptest::prelude::*;
use simulated::{Known, Simulated};
use std::net::{IpAddr, Ipv4Addr};

const PEER: PeerId = PeerId(3);
const NUMBER: u32 = 3;
const SESSION: u32 = 24;

fn peers(several: bool) -> Peers<Simulated> {
    let kernel = Simulated {
        several,
        ..Simulated::default()
    };
    let mut peers = Peers::new(kernel, several);
    peers.set_sockets(sockets(Some([127, 0, 0, 1].into())));
    peers
}

/// A peer in the kernel, with keys that only open.
fn one_with_keys() -> Peers<Simulated> {
    let mut peers = peers(false);
    peers.add(PEER);
    peers.set_line(PEER, line(1)).unwrap();
    give(&mut peers, 0);
    peers
}

fn sockets(address: Option<IpAddr>) -> Sockets {
    let options = SocketOptions {
        address,
        ..SocketOptions::default()
    };
    Sockets {
        v4: Some(UdpSocket::bind(Family::V4, &options).unwrap()),
        v6: None,
    }
}

fn line(last: u8) -> Line {
    Line::udp(Endpoint::new(([192, 0, 2, last], 1194).into()))
}

fn material(key_id: u8, peer_id: u32) -> Material {
    let bytes = |byte| KeyMaterial {
        cipher: [byte; 64],
        hmac: [byte; 64],
    };
    Material {
        keys: Box::new(DataKeys {
            key_id,
            cipher: Cipher::Aes256Gcm,
            auth: Digest::Sha256,
            layout: Layout::V2 { peer_id },
            send: bytes(1),
            receive: bytes(2),
        }),
        shape: Shape::default(),
        allow_insecure: false,
    }
}

fn give(peers: &mut Peers<Simulated>, key_id: u8) {
    let session = SESSION + u32::from(key_id);
    peers
        .add_keys(PEER, session, material(key_id, NUMBER))
        .unwrap();
}

fn add(last: u8, len: u8, peer: PeerId) -> RouteChange {
    RouteChange::Add {
        address: [10, 8, 0, last].into(),
        len,
        peer,
    }
}

fn known(peers: &Peers<Simulated>) -> &Known {
    &peers.kernel.peers[&NUMBER]
}

fn counted(peers: &mut Peers<Simulated>) -> &mut Known {
    peers.kernel.peers.get_mut(&NUMBER).unwrap()
}

#[test]
fn a_peer_comes_with_its_first_keys_and_they_seal_when_that_is_said() {
    let mut peers = peers(false);
    assert!(peers.add(PEER));
    assert!(!peers.add(PEER));
    peers.set_line(PEER, line(1)).unwrap();
    assert!(peers.kernel.asked.is_empty());
    give(&mut peers, 0);
    assert_eq!(peers.kernel.asked, ["peer 3", "key 0 Secondary"]);
    assert_eq!(
        (known(&peers).primary, known(&peers).secondary),
        (None, Some(0))
    );
    peers.send_with(PEER, SESSION).unwrap();
    assert_eq!(
        (known(&peers).primary, known(&peers).secondary),
        (Some(0), None)
    );
    // A repeated call changes nothing.
    peers.send_with(PEER, SESSION).unwrap();
    assert_eq!(peers.kernel.asked.len(), 3);
}

#[test]
fn renewed_keys_open_first_then_seal_and_the_old_ones_go_last() {
    let mut peers = one_with_keys();
    peers.send_with(PEER, SESSION).unwrap();
    peers.kernel.asked.clear();
    give(&mut peers, 1);
    assert_eq!(
        (known(&peers).primary, known(&peers).secondary),
        (Some(0), Some(1))
    );
    peers.send_with(PEER, SESSION + 1).unwrap();
    assert_eq!(
        (known(&peers).primary, known(&peers).secondary),
        (Some(1), Some(0))
    );
    peers.remove_keys(PEER, SESSION);
    assert_eq!(
        (known(&peers).primary, known(&peers).secondary),
        (Some(1), None)
    );
    assert_eq!(
        peers.kernel.asked,
        ["key 1 Secondary", "swap", "no key Secondary"]
    );
    // The third keys replace the first, and keys that are not there are not removed.
    give(&mut peers, 2);
    give(&mut peers, 3);
    peers.kernel.asked.clear();
    peers.remove_keys(PEER, SESSION + 2);
    assert!(peers.kernel.asked.is_empty());
    assert_eq!(
        (known(&peers).primary, known(&peers).secondary),
        (Some(1), Some(3))
    );
}

#[test]
fn one_of_several_peers_waits_for_its_address() {
    let mut peers = peers(true);
    peers.add(PEER);
    peers.set_line(PEER, line(1)).unwrap();
    give(&mut peers, 0);
    peers.send_with(PEER, SESSION).unwrap();
    let minute = Duration::from_secs(60);
    peers
        .keep_alive(PEER, Some(minute / 6), Some(minute))
        .unwrap();
    assert!(peers.kernel.asked.is_empty());
    let failed = peers.change_routes(&[add(2, 32, PEER), add(64, 28, PEER)]);
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(
        peers.kernel.asked,
        ["peer 3", "timers 3 10 60", "key 0 Secondary", "swap"]
    );
    let at: Ipv4Addr = [10, 8, 0, 2].into();
    assert_eq!(known(&peers).inside, (Some(at), None));
    let network = ([10, 8, 0, 64].into(), 28);
    assert_eq!(peers.kernel.routes, [(network, IpAddr::V4(at))]);
    peers.remove(PEER);
    assert!(peers.kernel.routes.is_empty() && peers.kernel.peers.is_empty());
}

#[test]
fn an_address_goes_from_one_peer_to_another() {
    let mut peers = peers(true);
    let other = PeerId(4);
    for (id, last) in [(PEER, 2), (other, 3)] {
        peers.add(id);
        peers.set_line(id, line(last)).unwrap();
        peers.add_keys(id, id.0 * 8, material(0, id.0)).unwrap();
        assert!(peers.change_routes(&[add(last, 32, id)]).is_empty());
    }
    let failed = peers.change_routes(&[add(2, 32, other)]);
    assert!(failed.is_empty(), "{failed:?}");
    // The first peer no longer has an address, so the kernel does not need it.
    assert!(!peers.kernel.peers.contains_key(&NUMBER));
    assert_eq!(peers.peers[&other].networks.len(), 2);
}

#[test]
fn an_address_is_taken_from_one_with_many_networks_before_another_has_it() {
    let mut peers = peers(true);
    let other = PeerId(4);
    let v6 = |last: u16, peer| RouteChange::Add {
        address: [0xfd00, 0, 0, 0, 0, 0, 0, last].into(),
        len: 128,
        peer,
    };
    for (id, last) in [(PEER, 2), (other, 3)] {
        peers.add(id);
        peers.set_line(id, line(last)).unwrap();
        peers.add_keys(id, id.0 * 8, material(0, id.0)).unwrap();
        assert!(peers.change_routes(&[v6(last.into(), id)]).is_empty());
    }
    let networks = [add(2, 32, PEER), add(64, 28, PEER), add(128, 28, PEER)];
    assert!(peers.change_routes(&networks).is_empty());
    let failed = peers.change_routes(&[add(2, 32, other)]);
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(known(&peers).inside.0, None);
    let at = Some([10, 8, 0, 2].into());
    assert_eq!(peers.kernel.peers[&other.0].inside.0, at);
    // Routes lead only to a peer with an address of their family.
    assert!(peers.kernel.routes.is_empty());
}

#[test]
fn the_only_address_of_a_peer_may_be_another_and_its_own_go_to_the_next() {
    let mut peers = peers(true);
    let other = PeerId(2);
    for (id, last) in [(PEER, 2), (other, 3)] {
        peers.add(id);
        peers.set_line(id, line(last)).unwrap();
        peers.add_keys(id, id.0 * 8, material(0, id.0)).unwrap();
        assert!(peers.change_routes(&[add(last, 32, id)]).is_empty());
    }
    let gone = |last: u8, peer| RouteChange::Remove {
        address: [10, 8, 0, last].into(),
        len: 32,
        peer,
    };
    let changes = [
        gone(2, PEER),
        add(5, 32, PEER),
        gone(3, other),
        add(2, 32, other),
    ];
    let failed = peers.change_routes(&changes);
    assert!(failed.is_empty(), "{failed:?}");
    let at = |last: u8| (Some([10, 8, 0, last].into()), None);
    assert_eq!(known(&peers).inside, at(5));
    assert_eq!(peers.kernel.peers[&other.0].inside, at(2));
}

#[test]
fn a_peer_that_the_kernel_lets_go_is_told_of_once_and_removed_without_ado() {
    let mut peers = one_with_keys();
    peers.kernel.peers.clear();
    assert_eq!(peers.lost(NUMBER), Some(PEER));
    assert_eq!(peers.lost(NUMBER), None);
    // Control already knows this address.
    let (peer, untold) = peers.look(PEER, Instant::now()).unwrap();
    assert!(peer.silent && untold.is_none());
    peers.remove(PEER);
    assert_eq!(peers.by_number(NUMBER), None);
}

#[test]
fn a_peer_that_was_let_go_of_without_a_word_is_found_out_once() {
    let mut peers = one_with_keys();
    let now = Instant::now();
    assert_eq!(peers.look(PEER, now).unwrap().1, None);
    peers.kernel.peers.clear();
    assert_eq!(peers.look(PEER, now).unwrap().1, Some(Notice::Silent));
    assert_eq!(peers.look(PEER, now).unwrap().1, None);
    assert_eq!(peers.lost(NUMBER), None);
}

#[test]
fn a_peer_moves_when_control_says_so_and_not_when_it_says_the_same_again() {
    let mut peers = one_with_keys();
    peers.kernel.asked.clear();
    peers.set_line(PEER, line(1)).unwrap();
    assert!(peers.kernel.asked.is_empty());
    peers.set_line(PEER, line(2)).unwrap();
    assert_eq!(peers.kernel.asked, ["move 3 192.0.2.2:1194"]);
    // The kernel has followed the peer, so going back to the old address needs a request.
    let to = ([192, 0, 2, 9], 1).into();
    assert_eq!(peers.floated(NUMBER, to), Some(PEER));
    peers.set_line(PEER, line(2)).unwrap();
    assert_eq!(peers.kernel.asked.len(), 2);
}

#[test]
fn keys_count_what_came_since_and_a_refusal_is_said() {
    let mut peers = one_with_keys();
    counted(&mut peers).figures.tx_packets = 100;
    let now = Instant::now();
    assert_eq!(peers.look(PEER, now).unwrap().0.usage(SESSION).sealed, 100);
    give(&mut peers, 1);
    counted(&mut peers).figures.tx_packets = 130;
    // Anybody can send such packets.
    counted(&mut peers).figures.rx_packets = 1;
    let (peer, _) = peers.look(PEER, now).unwrap();
    assert_eq!(peer.usage(SESSION).sealed, 130);
    assert_eq!(peer.usage(SESSION + 1).sealed, 30);
    assert_eq!((peer.heard, peer.opened_bytes()), (None, 0));
    counted(&mut peers).opened.rx_packets = 1;
    counted(&mut peers).opened.rx_bytes = 84;
    let (peer, _) = peers.look(PEER, now).unwrap();
    assert_eq!((peer.heard, peer.opened_bytes()), (Some(now), 108));
    // Pings count as data packets, but not as inner packets.
    counted(&mut peers).figures.tx_bytes = 4000;
    counted(&mut peers).opened.tx_packets = 2;
    counted(&mut peers).opened.tx_bytes = 200;
    assert_eq!(peers.look(PEER, now).unwrap().0.sealed_bytes(), 248);

    peers.remove(PEER);
    peers.kernel.refuses = true;
    peers.add(PEER);
    peers.set_line(PEER, line(1)).unwrap();
    let added = peers.add_keys(PEER, SESSION, material(0, NUMBER));
    assert!(matches!(added, Err(PeerError::Kernel(_))), "{added:?}");
}

#[test]
fn a_peer_that_is_made_again_is_counted_anew() {
    let mut peers = peers(true);
    peers.add(PEER);
    peers.set_line(PEER, line(1)).unwrap();
    let address = [add(2, 32, PEER)];
    assert!(peers.change_routes(&address).is_empty());
    give(&mut peers, 0);
    counted(&mut peers).figures.tx_packets = 100;
    counted(&mut peers).opened.rx_packets = 100;
    let now = Instant::now();
    assert!(peers.look(PEER, now).is_some());
    let none = RouteChange::Remove {
        address: [10, 8, 0, 2].into(),
        len: 32,
        peer: PEER,
    };
    assert!(peers.change_routes(&[none]).is_empty());
    assert!(peers.change_routes(&address).is_empty());
    give(&mut peers, 1);
    counted(&mut peers).figures.tx_packets = 30;
    let (peer, _) = peers.look(PEER, now).unwrap();
    assert_eq!(peer.usage(SESSION + 1).sealed, 30);
    assert_eq!(peer.opened_bytes(), 0);
}

#[test]
fn a_network_may_begin_with_the_peers_own_address() {
    let mut peer = Peer::default();
    peer.networks
        .extend([([10, 8, 0, 64].into(), 32), ([10, 8, 0, 64].into(), 28)]);
    let via: IpAddr = [10, 8, 0, 64].into();
    assert_eq!(peer.behind(), [((via, 28), via)]);
    // An address takes routes of its family only.
    let other: IpAddr = "fd00::".parse().unwrap();
    assert!(peer.unled().is_empty());
    peer.networks[1] = (other, 64);
    assert!(peer.behind().is_empty());
    assert_eq!(peer.unled(), [(other, 64)]);
    peer.networks.push(("fd01::2".parse().unwrap(), 128));
    assert!(peer.unled().is_empty());
    assert_eq!(peer.behind().len(), 1);
    // Even a peer's own address takes no default route.
    let everything: (IpAddr, u8) = ([0; 4].into(), 0);
    peer.networks.push(everything);
    assert_eq!(peer.unled(), [everything]);
    assert_eq!(peer.behind().len(), 1);
}

#[test]
fn packets_that_the_kernel_does_not_know_are_refused_by_name() {
    let mut peers = peers(false);
    peers.add(PEER);
    peers.set_line(PEER, line(1)).unwrap();
    let mut refusal = |change: fn(&mut Material)| {
        let mut material = material(0, NUMBER);
        change(&mut material);
        let refused = peers.add_keys(PEER, SESSION, material);
        assert!(peers.kernel.asked.is_empty());
        refused.unwrap_err().to_string()
    };
    assert!(refusal(|it| it.keys.cipher = Cipher::Aes256Cbc).contains("AES-256-CBC"));
    assert!(refusal(|it| it.keys.layout = Layout::V1).contains("peer-id"));
    assert!(refusal(|it| it.keys.layout = Layout::Epoch { peer_id: 1 }).contains("epoch"));
    let framings: [fn(&mut Material); 3] = [
        |it| it.shape.framing = Framing::Lzo,
        |it| it.shape.framing = Framing::Swap,
        |it| it.shape.framing = Framing::V2,
    ];
    for framed in framings {
        assert_eq!(
            refusal(framed),
            "the kernel's data plane cannot carry packets framed by comp-lzo or compress, even `comp-lzo no`; set \
             dataplane.kind=user, or remove the option at the server"
        );
    }
    assert!(refusal(|it| it.shape.stream = true).contains("UDP"));
}

proptest! {
    /// Whatever the session requests, the sealing keys in the kernel are those named last, as long as they exist.
    #[test]
    fn the_keys_that_seal_are_those_that_were_named(
        asked in proptest::collection::vec((0u8..3, 0u8..8), 1..40),
    ) {
        let mut peers = peers(false);
        peers.add(PEER);
        peers.set_line(PEER, line(1)).unwrap();
        let mut sealing = None;
        for (what, key_id) in asked {
            let session = SESSION + u32::from(key_id);
            match what {
                0 => {
                    give(&mut peers, key_id);
                    sealing = sealing.filter(|it| *it != key_id);
                }
                1 => {
                    let there = peers.peers[&PEER].slots.find(session).is_some();
                    peers.send_with(PEER, session).unwrap();
                    if there {
                        sealing = Some(key_id);
                    }
                }
                _ => {
                    peers.remove_keys(PEER, session);
                    sealing = sealing.filter(|it| *it != key_id);
                }
            }
            if let Some(known) = peers.kernel.peers.get(&NUMBER) {
                prop_assert_eq!(known.primary, sealing);
                let slots = peers.peers[&PEER].slots;
                let number = |slot: Option<u32>| slot.map(|it| (it - SESSION) as u8);
                prop_assert_eq!(number(slots.primary), known.primary);
                prop_assert_eq!(number(slots.secondary), known.secondary);
            }
        }
    }
}
