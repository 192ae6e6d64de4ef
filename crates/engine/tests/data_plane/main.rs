//! The engine as the data plane of control: peers by number, key material, several lines, running workers.

// Every function serves tests only.
#![allow(clippy::unwrap_used)]

mod lines;
mod missing;
mod site;

use plane::{DataPlane, KeyError, LineId, Moving, Notice, PeerId};
use site::{PEER, Site, route, session_keys};
use std::net::Ipv4Addr;

#[test]
fn a_peer_is_sent_to_by_the_line_that_is_used_and_heard_by_all_that_it_has() {
    let site = Site::new();
    let plane = &site.plane;
    assert!(plane.add_peer(PEER, Moving::Stay));
    plane.set_line(PEER, site.line(0));
    site.keys(24, 9, false);
    plane.send_with(PEER, 24);
    plane.change_routes(&[route()]);

    site.outward(1);
    assert_eq!(site.peer_receives(), (site.port(0), 9, 0, 1));
    site.peer_sends(1, 24, 0, 50);
    site.until("a line that the peer does not have", |site| {
        site.drops("wrong_address") == 1
    });
    plane.set_line(PEER, site.line(1));
    for (number, line) in [(1, 1), (2, 0)] {
        site.peer_sends(line, 24, number.into(), 50 + number);
        assert_eq!(site.written(), 50 + number);
    }
    site.outward(2);
    assert_eq!(site.peer_receives(), (site.port(0), 9, 1, 2));
    plane.use_line(PEER, LineId(1));
    site.outward(3);
    assert_eq!(site.peer_receives(), (site.port(1), 9, 2, 3));
    // A packet arrived on this line, so the local address to which the peer sends is known.
    let used = plane.peer(PEER).unwrap().line.unwrap();
    assert_eq!(
        (used.id, used.endpoint.addr),
        (LineId(1), site.line(1).endpoint.addr)
    );
    assert_eq!(used.endpoint.source.unwrap().ip, Ipv4Addr::LOCALHOST);
    assert!(plane.send_to_peer(PEER, None, b"c"));
    let mut message = [0; 8];
    let (len, from) = site.peer.recv_from(&mut message).unwrap();
    assert_eq!((&message[..len], from.port()), (&b"c"[..], site.port(1)));
}

#[test]
fn a_packet_that_came_by_two_lines_is_written_once_and_the_second_is_a_duplicate() {
    let site = Site::new();
    assert!(site.plane.add_peer(PEER, Moving::Tell));
    site.plane.set_line(PEER, site.line(0));
    site.plane.set_line(PEER, site.line(1));
    site.keys(24, 9, false);
    site.plane.change_routes(&[route()]);
    site.peer_sends(0, 24, 5, 1);
    assert_eq!(site.written(), 1);
    site.peer_sends(1, 24, 5, 1);
    site.until("the duplicate is counted", |site| {
        site.drops("duplicate") == 1
    });
    site.peer_sends(1, 24, 6, 2);
    assert_eq!(site.written(), 2);
    assert_eq!(site.drops("replayed"), 0);
    assert_eq!(site.plane.key_usage(PEER, 24).opened, 6);
}

#[test]
fn keys_that_are_to_be_confirmed_seal_once_the_peer_has_shown_that_it_has_them() {
    let site = Site::new();
    let plane = &site.plane;
    assert!(plane.add_peer(PEER, Moving::Tell));
    plane.set_line(PEER, site.line(0));
    plane.change_routes(&[route()]);
    site.keys(24, 9, false);
    plane.send_with(PEER, 24);
    site.keys(25, 10, true);
    site.outward(1);
    assert_eq!(site.peer_receives(), (site.port(0), 9, 0, 1));
    site.peer_sends(0, 25, 0, 2);
    assert_eq!(site.written(), 2);
    let confirmed = (PEER, Notice::Confirmed { index: 25 });
    site.until("the confirmation is told", |site| {
        site.notices.0.lock().unwrap().contains(&confirmed)
    });
    site.outward(3);
    assert_eq!(site.peer_receives(), (site.port(0), 10, 0, 3));
    // Control repeats its request after the notice: packet numbers continue.
    plane.send_with(PEER, 25);
    site.outward(4);
    assert_eq!(site.peer_receives(), (site.port(0), 10, 1, 4));
    assert_eq!(plane.key_usage(PEER, 25).sealed, 2);
    plane.remove_keys(PEER, 25);
    assert_eq!(plane.peer(PEER).unwrap().sealed, None);
}

#[test]
fn a_session_of_one_peer_is_not_taken_from_it_by_another_and_new_keys_of_it_wait_to_be_sent_with() {
    let site = Site::new();
    let plane = &site.plane;
    let other = PeerId(8);
    assert!(plane.add_peer(PEER, Moving::Tell) && plane.add_peer(other, Moving::Tell));
    plane.set_line(PEER, site.line(0));
    plane.change_routes(&[route()]);
    site.keys(24, 9, false);
    plane.send_with(PEER, 24);
    let taken = plane.add_keys(other, session_keys(24, 9, false));
    assert_eq!(taken.unwrap_err(), KeyError::Taken(24));
    plane.remove_peer(other);
    site.peer_sends(0, 24, 0, 1);
    assert_eq!(site.written(), 1);
    assert_eq!(plane.peer(PEER).unwrap().sealed, Some(0));
    // Installing the same key again would restart its packet numbers, so the engine seals nothing with it by itself.
    site.keys(24, 9, false);
    assert_eq!(plane.peer(PEER).unwrap().sealed, None);
}

#[test]
fn a_peer_that_is_removed_leaves_no_route_and_no_session() {
    let site = Site::new();
    let plane = &site.plane;
    plane.send_with(PEER, 24);
    assert!(plane.add_peer(PEER, Moving::Tell));
    assert!(!plane.add_peer(PEER, Moving::Tell));
    plane.set_line(PEER, site.line(0));
    site.keys(24, 9, false);
    plane.send_with(PEER, 24);
    plane.change_routes(&[route()]);
    site.outward(1);
    assert_eq!(site.peer_receives().3, 1);
    plane.remove_peer(PEER);
    assert_eq!(plane.peer(PEER), None);
    site.outward(2);
    site.until("the route is gone", |site| site.drops("no_route") == 1);
    site.peer_sends(0, 24, 0, 3);
    site.until("the session is gone", |site| site.drops("no_session") == 1);
}
