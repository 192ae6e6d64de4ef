//! A server without faults around it, one situation each.

use super::world::{Size, World};
use super::{Event, SEC};
use crate::inbox::Arrival;
use crate::openvpn::Ended;
use crate::status::PeerStatus;
use openvpn::data::inband::OCC_REQUEST;
use openvpn::message::Message;
use openvpn::server::ClientId;
use openvpn_host::signals::Signal;
use plane::{LineId, Notice};
use std::fs;

/// A server with `more` lines and its clients, before they come.
fn calm(clients: usize, more: &'static str) -> World {
    let size = Size {
        clients,
        max_clients: 10,
        troubled: SEC,
        apart: true,
        come_within: SEC,
        resets: (100_000, SEC),
        check_every: 1,
    };
    log::set_max_level(log::LevelFilter::Info);
    let mut world = World::with(1, size, more);
    world.around.jobs.plain = true;
    world.calm();
    world
}

/// A server with two clients that are in.
fn with_clients() -> World {
    let mut world = calm(2, "");
    world.run_for(SEC * 30);
    world.all_are_in();
    world
}

impl World {
    fn peers(&self) -> Vec<PeerStatus> {
        self.machine.peers(&self.data_plane.fake)
    }

    /// The peer id of the first client.
    fn first(&self) -> ClientId {
        ClientId(self.status().clients[0].peer_id)
    }

    /// Has the server read its configuration, and its clients' files, again.
    fn reload(&mut self) {
        self.tell(Event::Signal(Signal::Reload));
    }

    fn has_logged(&self, text: &str) -> bool {
        self.around.logged.iter().any(|it| it.contains(text))
    }
}

#[test]
fn names_of_certificates_stay_while_their_list_is_unreadable() {
    let place = tempfile::tempdir().unwrap();
    let list = place.path().join("clients");
    let mut lines = String::new();
    for it in &calm(2, "").around.clients {
        lines += &format!("01 {} berlin\n", it.name);
    }
    fs::write(&list, lines).unwrap();
    let line = format!("crl-verify {}/revoked dir\n", place.path().display());
    let mut world = calm(2, line.leak());
    world.run_for(SEC * 30);
    world.all_are_in();
    // A user name is not the name in a certificate.
    assert!(world.peers().iter().all(|it| it.name == it.username));
    let user = world.around.clients[0].name.clone();
    let is_known = |world: &World| world.machine.names.of(Some(&user), &user).is_some();
    assert!(is_known(&world));
    fs::remove_file(&list).unwrap();
    fs::create_dir(&list).unwrap();
    world.reload();
    assert!(world.has_logged("clients keep their earlier names"));
    assert!(is_known(&world));
    fs::remove_dir(&list).unwrap();
    world.reload();
    assert!(!is_known(&world));
}

#[test]
fn the_status_names_each_client_with_its_address_and_its_keys() {
    let world = with_clients();
    let peers = world.peers();
    assert_eq!(peers.len(), 2);
    assert!(peers[0].client_id < peers[1].client_id);
    for peer in peers {
        let user = peer.username.clone().unwrap();
        let mut clients = world.around.clients.iter();
        let client = clients.find(|it| it.name == user).unwrap();
        assert_eq!(peer.endpoint, Some(client.address.to_string()));
        assert_eq!(peer.name, Some(user));
        assert_eq!(peer.transport.as_deref(), Some("udp"));
        assert_eq!(peer.cipher.as_deref(), Some("AES-256-GCM"));
        let [range] = &peer.allowed_ips[..] else {
            panic!("{:?}", peer.allowed_ips);
        };
        assert!(
            range.starts_with("10.8.") && range.ends_with("/32"),
            "{range}"
        );
        assert!(peer.rx_bytes > 0 && peer.tx_bytes > 0);
        assert!(peer.order.is_none() && peer.lines.is_empty());
    }
}

#[test]
fn packets_of_strangers_are_counted_by_the_reason_why_they_are_refused() {
    let mut world = calm(1, "");
    let total = |world: &World| world.machine.refused().values().sum::<u64>();
    let before = world.machine.refused();
    assert!(before.values().all(|count| *count == 0) && before.len() > 3);
    for bytes in [&b"GET / HTTP/1.1"[..], &[0x38; 9], &[]] {
        world.tell(Event::Packet(Arrival {
            from: plane::Endpoint::new(([192, 0, 2, 66], 53).into()),
            line: LineId::FIRST,
            stream: None,
            bytes: bytes.into(),
        }));
    }
    assert_eq!(total(&world), 3, "{:?}", world.machine.refused());
}

/// Clients ask in order to learn whether a line works; an answer to each would be traffic that they control.
#[test]
fn a_client_that_asks_for_the_options_is_answered_once_in_a_while() {
    let mut world = with_clients();
    let id = world.first();
    for _ in 0..10 {
        world.tell(Event::Message(id, OCC_REQUEST.into()));
    }
    assert_eq!(world.data_plane.options_told, 1);
    world.run_for(SEC * 10);
    world.tell(Event::Message(id, OCC_REQUEST.into()));
    assert_eq!(world.data_plane.options_told, 2);
    // A client that has gone gets none.
    world.tell(Event::Message(ClientId(99), OCC_REQUEST.into()));
    assert_eq!(world.data_plane.options_told, 2);
}

#[test]
fn keys_are_renewed_when_the_data_plane_asks_for_it() {
    let mut world = with_clients();
    let before = world.seen().renewals;
    let id = world.first();
    world.tell(Event::Notice(id, Notice::Refresh { index: 0 }));
    world.run_for(SEC * 5);
    assert_eq!(world.seen().renewals, before + 1);
    world.all_are_in();
}

#[test]
fn a_client_that_compresses_or_does_not_frame_is_told_of_with_the_remedy() {
    let compressed = |unpacked| Notice::Compressed { unpacked };
    let cases = [
        (compressed(true), "VORACLE", "compress migrate"),
        (compressed(false), "they are dropped", "compress migrate"),
        (
            Notice::Unframed,
            "lack the agreed framing",
            "both at both ends",
        ),
    ];
    for (notice, words, remedy) in cases {
        let mut world = with_clients();
        let id = world.first();
        world.tell(Event::Notice(id, notice));
        assert!(world.has_logged(words), "{:?}", world.around.logged);
        assert!(world.has_logged(remedy));
        world.all_are_in();
    }
}

#[test]
fn networks_behind_clients_follow_their_files_while_sessions_go_on() {
    let mut world = with_clients();
    let before = world.first();
    let ranges = |world: &World| {
        let peers = world.peers().into_iter();
        peers.flat_map(|it| it.allowed_ips).collect::<Vec<_>>()
    };
    assert_eq!(ranges(&world).len(), 2);
    world.around.file = Some("iroute 172.16.5.0 255.255.255.0".to_owned());
    world.reload();
    let behind = "172.16.5.0/24".to_owned();
    assert!(ranges(&world).contains(&behind), "{:?}", ranges(&world));
    assert!(
        world
            .data_plane
            .routes
            .contains_key(&([172, 16, 5, 0].into(), 24))
    );
    world.around.file = Some("iroute 172.16.6.0 255.255.255.0".to_owned());
    world.reload();
    assert!(!ranges(&world).contains(&behind));
    assert!(
        !world
            .data_plane
            .routes
            .contains_key(&([172, 16, 5, 0].into(), 24))
    );
    world.around.file = None;
    world.reload();
    assert_eq!(ranges(&world).len(), 2);
    assert_eq!(world.first(), before, "the session goes on");
    world.run_for(SEC * 60);
    world.all_are_in();
}

#[test]
fn clients_whose_options_have_changed_come_again_and_those_that_are_disabled_do_not() {
    let mut world = with_clients();
    let numbers = |world: &World| {
        let peers = world.peers().into_iter();
        peers.filter_map(|it| it.client_id).collect::<Vec<_>>()
    };
    let before = numbers(&world);
    world.around.file = Some("push \"route 10.77.0.0 255.255.0.0\"".to_owned());
    world.reload();
    world.run_for(SEC * 60);
    world.all_are_in();
    let after = numbers(&world);
    assert!(
        before.iter().all(|it| !after.contains(it)),
        "{before:?} {after:?}"
    );
    world.around.file = Some("disable".to_owned());
    world.reload();
    world.run_for(SEC * 60);
    assert!(numbers(&world).is_empty());
    assert!(world.has_logged("its file in client-config-dir disables it"));
}

#[test]
fn a_certificate_is_renewed_where_the_key_is_not_readable_any_more() {
    let mut world = with_clients();
    let before = world.first();
    world.around.unreadable = true;
    world.reload();
    assert!(world.has_logged("not readable any more"));
    assert_eq!(world.around.renewals, 1);
    assert_eq!(world.first(), before, "the session goes on");
}

const ASKS: &str = "client-crresponse /bin/respond\n";

#[test]
fn an_answer_goes_to_the_script_that_waits_for_it() {
    let mut world = calm(1, ASKS);
    world.around.jobs.asks = true;
    let answer = |world: &mut World, text: &str| {
        let message = Message::CrResponse(text.to_owned());
        world.client(0, |session, now, out| {
            session.send_message(&message, now, out);
        });
        world.run_for(SEC * 2);
    };
    world.run_for(SEC * 10);
    assert_eq!(world.peers().len(), 0, "the login is pending");
    answer(&mut world, "MTIzNDU2");
    assert_eq!(world.around.jobs.responses, ["MTIzNDU2"]);
    // One answer after the other.
    world.around.jobs.takes = Some(SEC * 5);
    answer(&mut world, "Mg==");
    answer(&mut world, "Mw==");
    assert_eq!(world.around.jobs.responses.len(), 2);
}

#[test]
fn a_login_whose_answer_no_script_takes_is_refused() {
    let mut world = calm(1, ASKS);
    world.around.jobs.asks = true;
    world.run_for(SEC * 10);
    let message = Message::CrResponse("broken".to_owned());
    world.client(0, |session, now, out| {
        session.send_message(&message, now, out);
    });
    world.run_for(SEC * 2);
    assert!(
        world.has_logged("TLS Auth Error: it failed"),
        "{:?}",
        world.around.logged
    );
    assert_eq!(world.peers().len(), 0);
}

#[test]
fn a_server_that_cannot_go_on_ends_and_says_why() {
    let mut world = with_clients();
    world.tell(Event::Failed("the interface is gone".to_owned()));
    world.run_for(SEC * 10);
    assert_eq!(world.around.ended, Some(Ended::Exit(1)));
    assert!(world.has_logged("the interface is gone"));
    world.nothing_is_left();
}

#[test]
fn a_restart_of_a_server_is_what_remap_usr1_says() {
    for (more, ended) in [
        ("remap-usr1 SIGTERM\n", Some(Ended::Exit(0))),
        ("remap-usr1 SIGHUP\n", Some(Ended::Reload)),
        // Clients come again, to the same process.
        ("", None),
    ] {
        let mut world = calm(1, more);
        world.run_for(SEC * 20);
        world.all_are_in();
        world.tell(Event::Signal(Signal::Restart));
        world.run_for(SEC * 60);
        assert_eq!(world.around.ended, ended, "{more}");
        if ended.is_none() {
            world.all_are_in();
        }
    }
}
