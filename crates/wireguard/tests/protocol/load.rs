//! Floods, cookies, many peers, and a bad network.

use std::time::{Duration, Instant};

use crate::sim::{Event, FORMS, Sim, assert_retransmissions, millis, secs, wall};
use crypto::x25519::PrivateKey;
use wireguard::{Activity, Device, Dropped, Output};

#[test]
fn under_load_a_handshake_takes_a_cookie_and_one_more_try() {
    let (mut sim, b, _) = Sim::pair();
    sim.hosts[1].under_load = true;
    sim.send(0, b, b"patient");
    sim.run_until(secs(4));
    assert_eq!(sim.hosts[1].count(&Event::CookieReply), 1);
    assert_eq!(sim.hosts[1].count(&Event::Response), 0);
    sim.run_until(secs(6));
    assert_eq!(sim.hosts[1].received(), [b"patient"]);
    assert_eq!(sim.hosts[1].count(&Event::CookieReply), 1);
    assert_retransmissions(&sim.hosts[0].times(&Event::Initiation));

    // The cookie stays valid for handshakes within two minutes; then the peer needs a new one.
    sim.run_until(secs(115));
    let now = sim.now;
    sim.with(0, |device, out| device.need_session(b, now, out));
    sim.run_for(secs(1));
    assert_eq!(
        (
            sim.hosts[1].count(&Event::Response),
            sim.hosts[1].count(&Event::CookieReply)
        ),
        (2, 1)
    );
    sim.run_until(secs(200));
    let now = sim.now;
    sim.with(0, |device, out| device.need_session(b, now, out));
    sim.run_for(secs(6));
    assert_eq!(
        (
            sim.hosts[1].count(&Event::Response),
            sim.hosts[1].count(&Event::CookieReply)
        ),
        (3, 2)
    );
}

#[test]
fn an_initiator_under_load_makes_the_responder_prove_itself_too() {
    let (mut sim, b, _) = Sim::pair();
    sim.hosts[0].under_load = true;
    sim.send(0, b, b"text");
    sim.run_until(secs(6));
    assert_eq!(sim.hosts[0].count(&Event::CookieReply), 1);
    assert_eq!(sim.hosts[1].count(&Event::Response), 2);
    assert_eq!(sim.hosts[1].received(), [b"text"]);
}

#[test]
fn caution_lasts_a_second() {
    let (mut sim, b, _) = Sim::pair();
    sim.hosts[1].under_load = true;
    sim.inject(sim.hosts[0].address, sim.hosts[1].address, vec![0; 10]);
    sim.run_until(millis(500));
    sim.hosts[1].under_load = false;
    sim.send(0, b, b"text");
    sim.run_until(secs(1));
    assert_eq!(sim.hosts[1].count(&Event::CookieReply), 1);
    sim.run_until(secs(6));
    assert_eq!(sim.hosts[1].count(&Event::Response), 1);
}

#[test]
fn one_source_is_slowed_down_and_another_is_not() {
    let mut sim = Sim::new();
    for _ in 0..12 {
        sim.host(PrivateKey::generate());
    }
    // Ten peers behind one address, one elsewhere.
    for host in 2..12 {
        sim.hosts[host].address.set_ip([192, 0, 2, 1].into());
        sim.hosts[host].address.set_port(1000 + host as u16);
    }
    sim.hosts[0].under_load = true;
    let servers: Vec<_> = (1..12).map(|host| sim.join(0, host).1).collect();
    for (host, server) in (1..12).zip(&servers) {
        sim.send(host, *server, b"hello");
    }
    // All peers get a cookie. Jitter spreads their retries, which gives the source some of its 20 tokens a second.
    sim.run_until(millis(100));
    assert_eq!(sim.hosts[0].count(&Event::CookieReply), 11);
    sim.run_until(secs(6));
    assert!(sim.hosts[0].received().len() >= 6);
    assert_eq!(sim.hosts[1].count(&Event::Complete), 1);
    sim.run_until(secs(30));
    assert_eq!(sim.hosts[0].received().len(), 11);
}

/// Sends 20,000 initiations from as many addresses to host 1 at once.
fn flood(sim: &mut Sim) {
    let server = sim.hosts[1].address;
    // The attacker knows the server's public key and can make a valid mac1 from any address, but sees no answer.
    let key = crypto::blake2s::hash(&[
        b"mac1----",
        sim.hosts[1].device.public_key().unwrap().as_bytes(),
    ]);
    for number in 0..20_000_u32 {
        let mut message = vec![0; 148];
        message[0] = 1;
        message[4..8].copy_from_slice(&number.to_le_bytes());
        let mac1 = crypto::blake2s::mac(&key, &[&message[..116]]);
        message[116..132].copy_from_slice(&mac1);
        let [_, x, y, z] = number.to_be_bytes();
        sim.inject(([100, x, y, z], 1).into(), server, message);
    }
}

#[test]
fn a_flood_from_random_sources_does_not_keep_a_peer_out() {
    let (mut sim, b, _) = Sim::pair();
    sim.hosts[1].under_load = true;
    flood(&mut sim);
    sim.send(0, b, b"real");
    sim.run_until(secs(6));
    assert_eq!(sim.hosts[1].received(), [b"real"]);
    assert_eq!(sim.hosts[1].count(&Event::Dropped(Dropped::Cookie)), 20_001);
    assert_eq!(sim.hosts[1].receive_keys(), 1);
}

#[test]
#[cfg(feature = "amnezia")]
fn without_cookies_such_a_flood_does_not_keep_a_peer_out_either() {
    let (mut sim, b, _) = Sim::pair();
    sim.hosts[1].under_load = true;
    let profile = crate::amneziawg::profile("DisableCookies=on");
    let now = sim.now;
    sim.with(1, |device, out| device.set_profile(profile, now, out));
    flood(&mut sim);
    sim.send(0, b, b"real");
    sim.run_until(secs(4));
    assert_eq!(sim.hosts[1].received(), [b"real"]);
    let limited = sim.hosts[1].count(&Event::Dropped(Dropped::RateLimited));
    assert!(limited > 19_000, "{limited}");
    assert_eq!(sim.hosts[1].count(&Event::CookieReply), 0);
}

#[test]
fn ten_thousand_peers() {
    const PEERS: usize = 10_000;
    const TALKING: usize = 300;
    let mut sim = Sim::new();
    sim.host(PrivateKey::generate());
    for _ in 0..TALKING {
        let host = sim.host(PrivateKey::generate());
        let (_, server) = sim.join(0, host);
        sim.send(host, server, b"storm");
    }
    // The other peers are configured with a keepalive each, and are offline. Their keys need no device.
    let now = sim.now;
    for number in TALKING..PEERS {
        let mut key = [9; 32];
        key[..8].copy_from_slice(&(number as u64).to_le_bytes());
        sim.with(0, |device, out| {
            let id = device.add_peer(key.into()).unwrap();
            device.set_persistent_keepalive(id, 25, now, out);
            assert!(out.is_empty(), "a peer without an endpoint costs nothing");
        });
    }
    sim.run_until(secs(1));
    assert_eq!(sim.hosts[0].received().len(), TALKING);
    assert_eq!(sim.hosts[0].receive_keys(), TALKING);
    // Each of them has one deadline; handling a due one does not touch the rest.
    assert_eq!(
        sim.hosts[0].device.next_deadline(),
        Some(sim.start + millis(30) + secs(10))
    );
    sim.run_until(secs(60));
    assert_eq!(sim.hosts[0].count(&Event::Keepalive), TALKING);
    assert_eq!(sim.hosts[0].count(&Event::Initiation), 0);
}

/// All peers connect at once, as after a restart of the server.
#[test]
fn a_storm_of_ten_thousand_handshakes() {
    let now = Instant::now();
    let mut out = Vec::new();
    let mut server = Device::new(now, wall(), 0);
    let address = ([10, 0, 0, 1], 1).into();
    server.set_private_key(Some(PrivateKey::generate()), now, &mut out);
    for number in 0..10_000_u32 {
        let mut client = Device::new(now, wall(), number.into());
        client.set_private_key(Some(PrivateKey::generate()), now, &mut out);
        let at_server = server.add_peer(client.public_key().unwrap()).unwrap();
        let at_client = client.add_peer(server.public_key().unwrap()).unwrap();
        client.set_endpoint(at_client, Some(address), now, &mut out);
        client.need_session(at_client, now, &mut out);
        let Some(Output::Send { datagram, .. }) = out.pop() else {
            panic!("no initiation")
        };
        let [_, x, y, z] = number.to_be_bytes();
        server
            .receive(
                datagram.as_bytes(),
                ([11, x, y, z], 1).into(),
                now,
                false,
                &mut out,
            )
            .unwrap();
        let Some(Output::Send { datagram, peer, .. }) = out.pop() else {
            panic!("no response")
        };
        assert_eq!(peer, Some(at_server));
        client
            .receive(datagram.as_bytes(), address, now, false, &mut out)
            .unwrap();
        out.clear();
    }
    // When they expire, the keys of all peers are zeroed in one call, each with its own outputs.
    assert_eq!(server.next_deadline(), Some(now + secs(540)));
    server.expired(now + secs(540), |_| Activity::default(), &mut out);
    assert_eq!(out.len(), 10_000);
    assert_eq!(server.next_deadline(), None);
}

/// A quarter of the packets is lost, some arrive twice, all out of order: each is accepted once, and retransmissions
/// succeed.
#[test]
fn a_bad_network() {
    #[cfg(feature = "amnezia")]
    let others = [crate::amneziawg::V31];
    #[cfg(not(feature = "amnezia"))]
    let others = [];
    let forms = FORMS.iter().chain(&others).cycle();
    for (seed, form) in (1..=8_u64).zip(forms) {
        let (mut sim, b, a) = Sim::pair_in(form);
        let mut state = seed;
        let mut random = move |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        sim.link = Box::new(move |_| {
            let copies = [0, 1, 1, 2][random(4) as usize];
            (0..copies)
                .map(|_| Duration::from_millis(1 + random(400)))
                .collect()
        });
        for number in 0..1500_u32 {
            sim.send(0, b, &number.to_be_bytes());
            sim.send(1, a, &number.to_be_bytes());
            sim.run_for(secs(1));
        }
        for host in &sim.hosts {
            let mut received = host.received();
            let all = received.len();
            received.sort();
            received.dedup();
            assert_eq!(received.len(), all, "something came twice");
            assert!(all > 1000, "seed {seed}: only {all} of 1500 arrived");
            assert!(host.receive_keys() <= 3);
            assert!(host.count(&Event::Complete) >= 8);
            assert_eq!(host.count(&Event::DropStaged), 0);
        }
        // After a long silence, all state is removed.
        sim.run_for(secs(2000));
        assert!(
            sim.hosts
                .iter()
                .all(|host| host.receive_keys() == 0 && host.device.next_deadline().is_none())
        );
    }
}
