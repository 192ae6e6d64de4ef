//! Sessions that come up, and sessions that must fail.

use std::net::Ipv4Addr;
use std::time::Duration;

use pptp::gre::{Header, Packet};
use pptp::mppe::KeyLength;
use pptp::mschap::{FailureCode, Password};
use pptp::ppp::{Auth, Failure};
use pptp::session::{
    Client, DownReason, Encryption, LinkOutput, LoginError, Mode, Server, StartError,
};

use crate::world::{
    End, Network, Random, World, accounts, client_settings, entropy, packet, server_settings,
};

const MINUTES: Duration = Duration::from_secs(180);

fn down(world: &World) -> bool {
    world.client_down.is_some() && world.server_down.is_some()
}

#[test]
fn nothing_starts_that_was_not_allowed_to_be_insecure() {
    let mut settings = client_settings();
    settings.common.allow_insecure = false;
    let now = std::time::Instant::now();
    let error = Client::new(settings, entropy(1), now).unwrap_err();
    assert_eq!(error, StartError::Insecure);
    let text = error.to_string();
    assert!(
        text.contains("WireGuard") && text.contains("allow-insecure = \"pptp\""),
        "{text}"
    );
    let mut settings = server_settings();
    settings.common.allow_insecure = false;
    let error = Server::new(settings, accounts(), entropy(1)).unwrap_err();
    assert_eq!(error, StartError::Insecure);
}

#[test]
fn encryption_goes_with_no_other_login_than_ms_chap_v2() {
    let mut settings = client_settings();
    settings.common.link.auth = vec![Auth::MsChapV2, Auth::Pap];
    assert_eq!(settings.common.check(), Err(StartError::KeysNeedMsChapV2));
    settings.common.link.encryption = Encryption::None;
    assert_eq!(settings.common.check(), Ok(()));
    settings.common.link.mru = 100;
    assert_eq!(settings.common.check(), Err(StartError::Mru(100)));
}

#[test]
fn a_session_is_up_within_five_round_trips_and_the_wait_for_ccp() {
    let mut world = World::new(1, client_settings(), server_settings());
    let begin = world.now;
    assert!(world.run(MINUTES, World::both_up));
    let took = world.now - begin;
    assert!(took < Duration::from_millis(300), "{took:?}");
    let up = world.client_up.clone().unwrap();
    assert_eq!(up.mtu, 1396, "an MRU of 1400, less MPPE");
    assert_eq!(up.address, Ipv4Addr::new(10, 0, 0, 10));
}

#[test]
fn a_wrong_password_is_said_to_be_one() {
    let mut client = client_settings();
    client.password = Password::new("wrong".into());
    let mut world = World::new(1, client, server_settings());
    assert!(world.run(MINUTES, down));
    let error = LoginError::Refused(FailureCode::AuthenticationFailure);
    assert_eq!(world.client_down, Some(DownReason::Login(error)));
    assert_eq!(
        world.server_down,
        Some(DownReason::Login(LoginError::Denied))
    );
    assert_eq!(world.client_up, None);
}

#[test]
fn an_unknown_user_is_refused_by_each_login() {
    for auth in [Auth::Pap, Auth::ChapMd5, Auth::MsChapV2] {
        let (mut client, mut server) = (client_settings(), server_settings());
        client.user = "stranger".into();
        for link in [&mut client.common.link, &mut server.common.link] {
            link.encryption = Encryption::None;
            link.auth = vec![auth];
        }
        let mut world = World::new(1, client, server);
        assert!(world.run(MINUTES, down));
        assert!(
            matches!(world.client_down, Some(DownReason::Login(_))),
            "{auth}"
        );
        assert_eq!(
            world.server_down,
            Some(DownReason::Login(LoginError::Denied)),
            "{auth}"
        );
    }
}

#[test]
fn a_domain_before_the_name_changes_nothing() {
    let mut client = client_settings();
    client.user = "OFFICE\\user".into();
    let mut world = World::new(1, client, server_settings());
    assert!(world.run(MINUTES, World::both_up));
}

#[test]
fn a_firewall_that_drops_gre_is_named() {
    let mut world = World::new(1, client_settings(), server_settings());
    world.network = Network {
        loss: 1000,
        ..Network::default()
    };
    assert!(world.run(MINUTES, down));
    assert_eq!(world.client_down, Some(DownReason::NoGre));
    let text = DownReason::NoGre.to_string();
    assert!(text.contains("IP protocol 47"), "{text}");
}

#[test]
fn encryption_that_is_required_is_never_done_without() {
    let mut server = server_settings();
    server.common.link.encryption = Encryption::None;
    let mut world = World::new(1, client_settings(), server);
    assert!(world.run(MINUTES, |world| world.client_down.is_some()));
    assert_eq!(
        world.client_down,
        Some(DownReason::NoEncryption(Failure::Rejected))
    );
    assert_eq!(world.client_up, None);
}

#[test]
fn keys_that_were_not_allowed_are_not_used() {
    let mut server = server_settings();
    server.common.link.encryption = Encryption::Mppe {
        keys: vec![KeyLength::Bits40],
        mode: Mode::Stateless,
    };
    let mut world = World::new(1, client_settings(), server);
    assert!(world.run(MINUTES, down));
    assert!(matches!(
        world.client_down,
        Some(DownReason::NoEncryption(_) | DownReason::Lcp(_))
    ));
    assert_eq!((world.client_up, world.server_up), (None, None));
}

#[test]
fn the_longest_key_and_a_key_for_each_packet_win() {
    let (mut client, mut server) = (client_settings(), server_settings());
    client.common.link.encryption = Encryption::Mppe {
        keys: vec![KeyLength::Bits40, KeyLength::Bits128],
        mode: Mode::PreferStateful,
    };
    server.common.link.encryption = Encryption::Mppe {
        keys: vec![KeyLength::Bits40, KeyLength::Bits56, KeyLength::Bits128],
        mode: Mode::Stateless,
    };
    let mut world = World::new(1, client, server);
    assert!(world.run(MINUTES, World::both_up));
    for up in [world.client_up.unwrap(), world.server_up.unwrap().1] {
        let protection = up.protection.unwrap();
        assert_eq!(
            (protection.key, protection.stateless),
            (KeyLength::Bits128, true)
        );
    }
}

#[test]
fn a_login_that_gives_no_keys_is_not_accepted_where_keys_are_needed() {
    let mut server = server_settings();
    server.common.link.encryption = Encryption::None;
    server.common.link.auth = vec![Auth::Pap];
    let mut world = World::new(1, client_settings(), server);
    assert!(world.run(MINUTES, down));
    let reason = world.client_down.unwrap();
    assert!(matches!(reason, DownReason::Lcp(_)), "{reason:?}");
}

#[test]
fn a_peer_that_stops_answering_is_noticed() {
    let mut server = server_settings();
    server.common.link.echo_interval = MINUTES;
    let mut world = World::new(1, client_settings(), server);
    assert!(world.run(MINUTES, World::both_up));
    world.network.loss = 1000;
    assert!(world.run(Duration::from_secs(300), down));
    assert_eq!(world.client_down, Some(DownReason::EchoTimeOut));
}

#[test]
fn an_idle_session_stays_up() {
    let mut world = World::new(1, client_settings(), server_settings());
    assert!(world.run(MINUTES, World::both_up));
    world.run(Duration::from_secs(3600), |_| false);
    assert_eq!((world.client_down, world.server_down), (None, None));
}

#[test]
fn ipv6cp_is_rejected_and_disturbs_nothing() {
    let mut world = World::new(1, client_settings(), server_settings());
    assert!(world.run(MINUTES, World::both_up));
    let request = [0x80, 0x57, 1, 1, 0, 4];
    let mut packet = forge(&world, 1000, &request);
    let mut out = Vec::new();
    world.client.receive_gre(&mut packet, world.now, &mut out);
    let [LinkOutput::Gre(reject)] = &out[..] else {
        panic!("{out:?}");
    };
    let payload = Packet::parse(reject).unwrap().payload;
    let [.., 8, _, 0, 10, 0x80, 0x57, 1, 1, 0, 4] = reject[payload] else {
        panic!("no Protocol-Reject: {reject:?}");
    };
    world.run(Duration::from_secs(60), |_| false);
    assert_eq!((world.client_down, world.server_down), (None, None));
}

#[test]
fn packets_that_do_not_fit_are_refused_and_not_sent() {
    let mut world = World::new(1, client_settings(), server_settings());
    let mut out = Vec::new();
    assert!(world.client.send(&[0x45; 20], &mut out).is_err(), "not up");
    assert!(world.run(MINUTES, World::both_up));
    assert!(world.client.send(&[0x45; 1396], &mut out).is_ok());
    out.clear();
    assert!(world.client.send(&[0x45; 1397], &mut out).is_err());
    assert!(
        world.client.send(&[0x60; 40], &mut out).is_err(),
        "IPv6 is not up"
    );
    assert!(world.client.send(&[], &mut out).is_err());
    assert!(out.is_empty());
}

#[test]
fn packets_from_elsewhere_are_not_looked_at() {
    let mut world = World::new(1, client_settings(), server_settings());
    assert!(world.run(MINUTES, World::both_up));
    let call_id = world.server_up.as_ref().unwrap().0;
    let header = Header {
        call_id,
        sequence: Some(1000),
        acknowledgement: None,
    };
    let (bytes, len) = header.write(4);
    let mut forged = [&bytes[..len], &[0xc0, 0x21, 5, 1]].concat();
    let mut out = Vec::new();
    let elsewhere = Ipv4Addr::new(203, 0, 113, 1);
    let now = world.now;
    assert_eq!(
        world
            .server
            .receive_gre(elsewhere, &mut forged, now, &mut out),
        None
    );
    assert_eq!((world.server.unknown_packets(), out), (1, Vec::new()));
}

/// A GRE packet with an LCP frame that appears to come from the server.
fn forge(world: &World, sequence: u32, frame: &[u8]) -> Vec<u8> {
    let header = Header {
        call_id: world.client.call_id(),
        sequence: Some(sequence),
        acknowledgement: None,
    };
    let (bytes, len) = header.write(frame.len() as u16);
    [&bytes[..len], frame].concat()
}

#[test]
fn a_server_that_does_not_decrypt_what_it_agreed_to_is_noticed() {
    let mut world = World::new(1, client_settings(), server_settings());
    assert!(world.run(MINUTES, World::both_up));
    let reject = [0xff, 0x03, 0xc0, 0x21, 8, 1, 0, 8, 0x00, 0xfd, 0x90, 0x00];
    let packet = forge(&world, 1000, &reject);
    world.gre(End::Client, packet);
    assert!(world.run(MINUTES, |world| world.client_down.is_some()));
    assert_eq!(world.client_down, Some(DownReason::MppeRejected));
}

#[test]
fn floods_of_forged_packets_cost_counters_only() {
    let mut world = World::new(1, client_settings(), server_settings());
    assert!(world.run(MINUTES, World::both_up));
    let mut random = Random(5);
    let frames: [&[u8]; 6] = [
        &[0xff, 0x03, 0xc0, 0x21, 9, 1, 0, 8, 0, 0, 0, 0],
        &[0x00, 0xfd, 0x90, 0x07, 1, 2, 3, 4],
        &[0x80, 0x57, 1, 1, 0, 4],
        &[0xc2, 0x23, 4, 1, 0, 4],
        &[0x21, 0x45, 0, 0, 0],
        &[0x80, 0xfd, 14, 1, 0, 4],
    ];
    for _ in 0..5000 {
        let frame = frames[random.below(6) as usize];
        let packet = forge(&world, random.below(1 << 32) as u32, frame);
        world.gre(End::Client, packet);
        world.run(Duration::from_micros(100), |_| false);
    }
    assert_eq!((&world.client_down, &world.server_down), (&None, &None));
    let call = world.client.call().unwrap();
    assert!(call.tunnel_counters().jumps > 0 && call.tunnel_counters().too_old > 0);
    assert_eq!(call.counters().packets, 0, "nothing got in");
    let inner = packet(&mut random, 1);
    world.send(End::Server, &inner);
    world.run(Duration::from_secs(1), |_| false);
    assert_eq!(world.received[0], [inner]);
}

#[test]
fn forged_packets_within_the_window_get_nothing_in_and_keep_nothing_out() {
    let mut world = World::new(1, client_settings(), server_settings());
    assert!(world.run(MINUTES, World::both_up));
    let mut random = Random(1);
    let first = packet(&mut random, 0);
    world.send(End::Server, &first);
    world.run(Duration::from_secs(1), |_| false);
    assert_eq!(world.received[0].pop(), Some(first));
    let next = world.arrived[0].last().unwrap() + 1;
    for at in 0..600_u32 {
        let frame: &[u8] = if at % 2 == 0 {
            &[0x21, 0x45, 0, 0, 0]
        } else {
            &[0x00, 0xfd, 0x90, at as u8, 1, 2, 3, 4]
        };
        let packet = forge(&world, next + 100 + at, frame);
        world.gre(End::Client, packet);
        world.run(Duration::from_millis(50), |_| false);
    }
    let counters = *world.client.call().unwrap().counters();
    assert_eq!(counters.packets, 1, "nothing got in");
    assert_eq!(counters.unencrypted, 300);
    assert!(counters.undecryptable + counters.late > 290, "{counters:?}");
    for number in 1..50 {
        let inner = packet(&mut random, number);
        world.send(End::Server, &inner);
        world.run(Duration::from_secs(1), |_| false);
        assert_eq!(world.received[0].pop(), Some(inner), "packet {number}");
    }
    assert_eq!((world.client_down, world.server_down), (None, None));
}

#[test]
fn a_server_that_does_not_know_the_password_is_found_out() {
    let mut world = World::new(1, client_settings(), server_settings());
    world.tamper = Some(|_, packet| {
        if let Some(at) = packet.windows(2).position(|two| two == b"S=") {
            packet[at + 2] = if packet[at + 2] == b'0' { b'1' } else { b'0' };
        }
    });
    assert!(world.run(MINUTES, |world| world.client_down.is_some()));
    let reason = DownReason::Login(LoginError::BadProof);
    assert_eq!(world.client_down, Some(reason));
    assert_eq!(world.client_up, None);
}

/// A forged second CCP negotiation would reuse the first login's keys, and anyone who can spoof the peer's address can
/// start one. A keystream that was used is never used again.
#[test]
fn encryption_is_not_begun_twice_with_the_same_keys() {
    for mode in [Mode::Stateless, Mode::PreferStateful] {
        let (mut client, mut server) = (client_settings(), server_settings());
        for link in [&mut client.common.link, &mut server.common.link] {
            link.encryption = Encryption::Mppe {
                keys: vec![KeyLength::Bits128],
                mode,
            };
        }
        let mut world = World::new(1, client, server);
        assert!(world.run(MINUTES, World::both_up));
        let inner = packet(&mut Random(1), 1);
        let first = world.send(End::Server, &inner);
        world.run(Duration::from_secs(1), |_| false);
        // A request with another identifier, and options that differ from the acknowledged ones.
        let bits = if mode == Mode::Stateless { 0x41 } else { 0x01 };
        let request = [0x80, 0xfd, 1, 99, 0, 10, 18, 6, bits, 0, 0, 0x40];
        let forged = forge(&world, first + 1, &request);
        world.gre(End::Client, forged);
        world.run(MINUTES, |world| {
            world.client_down.is_some() && world.server_down.is_some()
        });
        let keys_used = Some(DownReason::KeysUsed);
        assert!(
            world.client_down == keys_used || world.server_down == keys_used,
            "{:?} {:?}",
            world.client_down,
            world.server_down
        );
        let call = world.server_up.as_ref().unwrap().0;
        let sent = world.server.send(call, &inner, world.now, &mut Vec::new());
        assert!(sent.is_err(), "nothing more is encrypted");
    }
}

#[test]
fn a_server_that_stops_says_so_to_its_clients() {
    let mut world = World::new(1, client_settings(), server_settings());
    assert!(world.run(MINUTES, World::both_up));
    let mut out = Vec::new();
    let now = world.now;
    world.server.stop(now, &mut out);
    world.flush(Vec::new(), out);
    assert!(world.run(MINUTES, |world| world.client.is_finished()));
    assert!(world.client_down.is_some());
    assert_eq!(world.server_down, Some(DownReason::Local));
}
