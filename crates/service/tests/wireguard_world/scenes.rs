//! Single incidents of an interface, each in isolation.

use crate::host::{Host, Saying, hex};
use crate::world::World;
use config::types::{AllowedIp, Key32};
use config::uapi::{AllowedIpChange, SetDevice, SetPeer};
use crypto::x25519::PrivateKey;
use plane::DataPlane as _;
use service::wireguard::Event;
use std::net::SocketAddr;
use std::time::Duration;

/// Two hosts configured as peers, where the second has the first's endpoint.
fn pair() -> World {
    let mut world = World::new(0, 2);
    for at in [0, 1] {
        begin(&mut world, at);
    }
    let endpoint = Some(world.hosts[0].address());
    world.say(0, 1, &Saying::default());
    let saying = Saying {
        endpoint,
        ..Saying::default()
    };
    world.say(1, 0, &saying);
    world
}

/// Sets the key and the port of a started host.
fn begin(world: &mut World, at: usize) {
    let key = hex(&world.hosts[at].key);
    let text = format!("private_key={key}\nlisten_port=51820\n");
    world.configure(at, &text).unwrap();
    up(world, at, true);
    pass(world, 1);
}

fn up(world: &mut World, at: usize, up: bool) {
    world.hosts[at].link_up = up;
    world.tell(at, Event::Link { up, mtu: 1420 });
}

fn pass(world: &mut World, secs: u64) {
    let end = world.now + Duration::from_secs(secs);
    assert!(world.run(end).is_none());
}

/// Returns whether data gets from the second host to the first.
fn reaches(world: &mut World) -> bool {
    world.heard(0);
    world.send(1, 0);
    pass(world, 1);
    !world.heard(0).is_empty()
}

fn refused(host: &Host, why: &str) -> u64 {
    host.machine.refusals().to_map()[why]
}

fn public(host: &Host) -> String {
    hex(&host.public())
}

#[test]
fn a_clock_that_goes_back_costs_no_handshake() {
    let mut world = pair();
    assert!(reaches(&mut world));
    for day in 1..4 {
        world.hosts[1].wall -= Duration::from_secs(86_400 * day);
        // The silence outlasts the keys, so the next packet needs a handshake.
        pass(&mut world, 200);
        assert!(reaches(&mut world), "day {day}");
    }
    assert_eq!(refused(&world.hosts[0], "replayed"), 0);
}

/// A router without a battery-backed clock loses power repeatedly: each boot begins with an earlier time than the one
/// before, and with its data on disk. The peer accepts the first handshake each time.
#[test]
fn a_power_cut_on_a_router_without_a_clock_costs_no_handshake() {
    let mut world = pair();
    assert!(reaches(&mut world));
    let endpoint = Some(world.hosts[0].address());
    for life in 1..6 {
        let elapsed = world.now - world.start;
        let now = world.hosts[1].now(world.now, elapsed);
        // The router never sets its clock.
        let wall =
            std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 - 100_000 * life);
        world.hosts[1].begin_anew(wall, now);
        world.tell(1, Event::Start);
        begin(&mut world, 1);
        let saying = Saying {
            endpoint,
            ..Saying::default()
        };
        world.say(1, 0, &saying);
        pass(&mut world, 1);
        assert!(reaches(&mut world), "life {life}");
        // Long enough for some more handshakes.
        for _ in 0..life {
            pass(&mut world, 200);
            assert!(reaches(&mut world), "later in life {life}");
        }
    }
    assert_eq!(refused(&world.hosts[0], "replayed"), 0);
}

/// An office that knows its branch's address only from the branch's handshakes is killed. With its saved data it starts
/// a handshake with the branch after the restart; otherwise the branch would start one after 15 seconds of silence.
#[test]
fn a_killed_office_that_is_back_has_traffic_in_less_than_a_second() {
    for (moves, knows) in [(false, true), (true, true), (false, false)] {
        let mut world = pair();
        assert!(reaches(&mut world));
        // Waits for some renewals of the session.
        for _ in 0..4 {
            pass(&mut world, 100);
            assert!(reaches(&mut world));
        }
        if moves {
            world.hosts[1].ip = [10, 9, 9, 9].into();
            // The office's kernel refuses the first packet from the removed address.
            world.send(1, 0);
            assert!(reaches(&mut world));
        }
        // The office writes the file at most every 5 seconds.
        pass(&mut world, 5);
        let elapsed = world.now - world.start;
        let (wall, now) = (world.hosts[0].wall, world.hosts[0].now(world.now, elapsed));
        world.hosts[0].begin_anew(wall, now);
        world.tell(0, Event::Start);
        begin(&mut world, 0);
        world.say(0, 1, &Saying::default());
        let peers = std::mem::take(&mut world.hosts[0].outside.peers);
        let office = world.hosts[0].ip;
        assert!(
            peers
                .iter()
                .all(|(_, at)| at.source.is_some_and(|it| it.ip == office))
        );
        if knows {
            world.tell(0, Event::Recall(peers));
        }
        world.heard(0);
        let back = world.now;
        while world.heard(0).is_empty() {
            world.send(1, 0);
            assert!(world.run(world.now + Duration::from_millis(20)).is_none());
        }
        let took = world.now - back;
        assert_eq!(took < Duration::from_secs(1), knows, "{took:?}");
    }
}

/// An office with two uplinks has sent from its second address, so that the branch has moved there. One of the addresses
/// is gone then.
#[test]
fn a_branch_goes_back_to_the_address_in_its_file_when_the_other_is_silent() {
    for stays in [false, true] {
        let mut world = pair();
        assert!(reaches(&mut world));
        let first = world.hosts[0].ip;
        world.hosts[0].ip = [10, 9, 9, 9].into();
        // The office's kernel refuses the first packet from the removed address.
        world.send(0, 1);
        world.send(0, 1);
        pass(&mut world, 1);
        assert!(reaches(&mut world), "at the second address");
        if !stays {
            world.hosts[0].ip = first;
            // Its packets would tell the branch.
            world.configure(0, "replace_peers=true\n").unwrap();
            world.say(0, 1, &Saying::default());
        }
        world.wire.deaf = stays.then(|| world.hosts[0].address());
        for _ in 0..40 {
            world.send(1, 0);
            pass(&mut world, 1);
        }
        assert_eq!(!world.heard(0).is_empty(), !stays);
        // The second address is back, which the branch has not forgotten.
        world.wire.deaf = None;
        world.send(1, 0);
        pass(&mut world, 15);
        assert!(reaches(&mut world), "{stays}");
    }
}

/// A branch whose keepalive starts a handshake at once does not start a second one because it remembers the office.
#[test]
fn a_branch_that_is_back_calls_its_office_once() {
    let mut world = pair();
    let saying = Saying {
        endpoint: Some(world.hosts[0].address()),
        keepalive: 25,
        ..Saying::default()
    };
    world.say(1, 0, &saying);
    assert!(reaches(&mut world));
    pass(&mut world, 10);
    let elapsed = world.now - world.start;
    let (wall, now) = (world.hosts[1].wall, world.hosts[1].now(world.now, elapsed));
    world.hosts[1].begin_anew(wall, now);
    world.tell(1, Event::Start);
    begin(&mut world, 1);
    let peers = std::mem::take(&mut world.hosts[1].outside.peers);
    assert_eq!(peers.len(), 1);
    // In the order of `millrace up`: the peer, its endpoint, what is remembered.
    let nowhere = Saying {
        endpoint: None,
        ..saying
    };
    world.say(1, 0, &nowhere);
    let public_key = peers[0].0.clone();
    let endpoint = peers[0].1.addr.to_string().parse().unwrap();
    world.tell(
        1,
        Event::SetEndpoint {
            public_key,
            endpoint,
        },
    );
    world.tell(1, Event::Recall(peers));
    assert!(reaches(&mut world));
    assert_eq!(refused(&world.hosts[0], "flood"), 0);
}

#[test]
fn a_peer_that_is_removed_in_the_middle_of_a_handshake_is_asked_for_nothing_more() {
    for at in [0, 1] {
        let mut world = pair();
        world.send(1, 0);
        world.configure(at, "replace_peers=true\n").unwrap();
        // The simulated data plane rejects requests for unknown peers.
        pass(&mut world, 200);
        assert!(world.hosts[at].plane.is_empty());
        assert_eq!(world.hosts[at].machine.next_deadline(), None);
    }
}

#[test]
fn a_configuration_with_another_port_is_applied_as_a_whole_before_the_next() {
    let mut world = pair();
    let key = public(&world.hosts[1]);
    let first = world.configure(0, "fwmark=7\nlisten_port=5000\nreplace_peers=true\n");
    let second = world.configure(0, &format!("public_key={key}\n"));
    assert_eq!((first, second), (Ok(()), Ok(())));
    let told = world.hosts[0].told();
    assert!(told.contains("listen_port=5000\nfwmark=7\n"), "{told}");
    assert!(told.contains(&format!("public_key={key}\n")), "{told}");
    assert!(
        !told.contains("allowed_ip="),
        "the peer of before is gone: {told}"
    );
}

#[test]
fn a_port_that_cannot_be_had_is_refused_and_the_old_one_stays() {
    let mut world = pair();
    world.no_ports = 100;
    let refused = world.configure(0, "listen_port=5000\nreplace_peers=true\n");
    assert_eq!(refused.map_err(|it| it.errno), Err(98), "EADDRINUSE");
    let told = world.hosts[0].told();
    assert!(told.contains("listen_port=51820\n"), "{told}");
    assert!(told.contains("public_key="), "what follows is not applied");
    assert!(reaches(&mut world));
}

#[test]
fn sockets_that_a_link_that_goes_down_has_closed_are_opened_again_when_it_comes_up() {
    let mut world = pair();
    world.configure(0, "listen_port=5000\n").unwrap();
    up(&mut world, 0, false);
    up(&mut world, 0, true);
    pass(&mut world, 1);
    assert_eq!(world.hosts[0].bound(), Some(5000));
    assert_eq!(world.hosts[0].machine.next_deadline(), None);
}

#[test]
fn sockets_that_cannot_be_opened_are_tried_again_until_they_can() {
    let mut world = pair();
    up(&mut world, 0, false);
    world.no_ports = 100;
    up(&mut world, 0, true);
    pass(&mut world, 30);
    assert_eq!(world.hosts[0].bound(), None);
    world.no_ports = 0;
    pass(&mut world, 1);
    assert_eq!(world.hosts[0].bound(), Some(51820));
}

#[test]
fn a_name_is_looked_up_until_it_is_found_and_again_when_its_address_is_silent() {
    let mut world = pair();
    let public_key = Key32::new(world.hosts[0].public());
    let key = public(&world.hosts[0]);
    let inner = world.hosts[0].inner;
    let again = format!("public_key={key}\nremove=true\npublic_key={key}\nallowed_ip={inner}/32\n");
    world.configure(1, &again).unwrap();
    let endpoint = "office.example:51820".parse().unwrap();
    world.tell(
        1,
        Event::SetEndpoint {
            public_key,
            endpoint,
        },
    );
    world.send(1, 0);
    pass(&mut world, 60);
    assert!(!reaches(&mut world), "the name does not exist");
    // A captive portal answers every query with its own address.
    let portal = SocketAddr::from(([10, 7, 7, 7], 51820));
    let name = || "office.example".to_owned();
    world.names.insert(name(), portal);
    pass(&mut world, 60);
    let found = world.hosts[1].machine.names();
    assert_eq!(found[0].addresses, [portal]);
    assert!(world.hosts[1].outside.addresses.is_empty());
    let now = world.hosts[0].address();
    world.names.insert(name(), now);
    pass(&mut world, 60);
    world.send(1, 0);
    pass(&mut world, 40);
    assert!(reaches(&mut world));
    assert_eq!(world.hosts[1].outside.addresses, [(name(), now.ip())]);
    // The peer moves during silence, and its name follows.
    world.hosts[0].ip = [10, 9, 9, 9].into();
    let moved: SocketAddr = world.hosts[0].address();
    world.names.insert("office.example".to_owned(), moved);
    pass(&mut world, 200);
    world.send(1, 0);
    pass(&mut world, 40);
    assert!(reaches(&mut world));
    assert_eq!(
        world.hosts[1].outside.addresses.last(),
        Some(&(name(), moved.ip()))
    );
}

#[test]
fn peers_that_are_reached_through_another_interface_are_called_from_any_address() {
    let mut world = pair();
    assert!(reaches(&mut world));
    let source = |world: &World| {
        let fake = &world.hosts[0].plane.fake;
        fake.peer(fake.peers()[0])?.line?.endpoint.source
    };
    assert!(source(&world).is_some());
    world.tell(0, Event::NetworkChanged);
    pass(&mut world, 1);
    assert!(source(&world).is_some(), "nothing is other for this peer");
    // The default route leads over another uplink, and a rule sends packets of this source back over theirs.
    world.hosts[0].outside.ifindex = 7;
    world.hosts[0].outside.rule = Some((world.hosts[0].ip, 1));
    world.tell(0, Event::NetworkChanged);
    pass(&mut world, 1);
    assert!(source(&world).is_some(), "the rule decides");
    world.hosts[0].outside.rule = None;
    world.tell(0, Event::NetworkChanged);
    pass(&mut world, 1);
    assert!(source(&world).is_none());
}

/// The uplink changes while there is no session, and the first handshake leaves by the old one, which still has an
/// address.
#[test]
fn an_unanswered_handshake_is_repeated_from_any_address() {
    let mut world = pair();
    assert!(reaches(&mut world));
    let source = |world: &World| {
        let fake = &world.hosts[0].plane.fake;
        fake.peer(fake.peers()[0])?.line?.endpoint.source
    };
    // Keys are erased nine minutes after the last handshake.
    pass(&mut world, 700);
    world.hosts[0].outside.ifindex = 7;
    world.tell(0, Event::NetworkChanged);
    pass(&mut world, 1);
    assert!(source(&world).is_some(), "nothing is sent yet");
    world.wire.deaf = Some(world.hosts[1].address());
    world.send(0, 1);
    pass(&mut world, 1);
    assert!(source(&world).is_some(), "the first handshake");
    pass(&mut world, 6);
    assert!(source(&world).is_none());
}

#[test]
fn under_load_who_comes_back_with_a_cookie_is_served() {
    let mut world = pair();
    world.hosts[0].load = Some(world.now + Duration::from_secs(60));
    world.send(1, 0);
    pass(&mut world, 4);
    assert_eq!(refused(&world.hosts[0], "cookie"), 1);
    assert!(world.heard(0).is_empty());
    pass(&mut world, 3);
    assert!(
        !world.heard(0).is_empty(),
        "the second initiation has the cookie"
    );
}

/// The key of the peer that has ranges, and the number of all peers.
fn owner(host: &Host) -> (String, usize) {
    let told = host.told();
    let (mut key, mut owner, mut count) = ("", String::new(), 0);
    for line in told.lines() {
        if let Some(public) = line.strip_prefix("public_key=") {
            (key, count) = (public, count + 1);
        } else if line.starts_with("allowed_ip=") {
            assert_eq!(owner, "", "{told}");
            key.clone_into(&mut owner);
        }
    }
    (owner, count)
}

/// The office's file names the old key of a branch and its new one, until a command settles it.
#[cfg(feature = "server")]
#[test]
fn the_first_session_with_a_new_key_ends_the_old_one() {
    let mut world = pair();
    assert!(reaches(&mut world));
    let inner = AllowedIp::new(world.hosts[1].inner, 32).unwrap();
    let keys = [world.hosts[1].key, [7; 32]];
    let [old, new] = keys.map(|it| Key32::new(*PrivateKey::new(it).public().as_bytes()));
    let peer = |public_key: &Key32| SetPeer {
        public_key: public_key.clone(),
        replace_allowed_ips: true,
        ..SetPeer::default()
    };
    let file = SetDevice {
        peers: vec![
            SetPeer {
                allowed_ips: vec![AllowedIpChange::Add(inner)],
                ..peer(&old)
            },
            SetPeer {
                replaces: Some(Box::new(old.clone())),
                ..peer(&new)
            },
        ],
        ..SetDevice::default()
    };
    let [old, new] = [old, new].map(|it| hex(it.as_bytes()));
    let key_of_branch = |world: &mut World, at: usize| {
        world.hosts[1].key = keys[at];
        let text = format!("private_key={}\n", hex(&keys[at]));
        world.configure(1, &text).unwrap();
    };
    // The old key goes on, however often the file is read.
    for _ in 0..3 {
        world.apply(0, &file).unwrap();
        assert_eq!(owner(&world.hosts[0]), (old.clone(), 2));
        assert!(reaches(&mut world));
    }
    // An initiation with the new key, which someone records and sends to the office.
    world.wire.loss = 100;
    key_of_branch(&mut world, 1);
    world.recorded.clear();
    world.send(1, 0);
    let (_, to, initiation) = world.recorded[0].clone();
    world.wire.loss = 0;
    key_of_branch(&mut world, 0);
    world.throw(([203, 0, 113, 6], 6).into(), to, initiation);
    pass(&mut world, 10);
    world.apply(0, &file).unwrap();
    assert_eq!(owner(&world.hosts[0]), (old.clone(), 2));
    assert!(reaches(&mut world));

    pass(&mut world, 10);
    key_of_branch(&mut world, 1);
    world.send(1, 0);
    pass(&mut world, 1);
    assert_eq!(owner(&world.hosts[0]), (new.clone(), 1));
    let said = world.hosts[0].outside.said.join("\n");
    assert!(
        said.contains("uses its new file; its old key is out"),
        "{said}"
    );
    for _ in 0..3 {
        assert!(reaches(&mut world));
        world.heard(1);
        world.send(0, 1);
        pass(&mut world, 1);
        assert!(!world.heard(1).is_empty());
        world.apply(0, &file).unwrap();
        assert_eq!(owner(&world.hosts[0]), (new.clone(), 1));
    }
    key_of_branch(&mut world, 0);
    pass(&mut world, 10);
    assert!(!reaches(&mut world), "the old key is out");
    // A person gives the old key back.
    let by_hand = SetDevice {
        peers: vec![SetPeer {
            allowed_ips: vec![AllowedIpChange::Add(inner)],
            ..peer(&Key32::new(world.hosts[1].public()))
        }],
        replace_peers: true,
        ..SetDevice::default()
    };
    world.apply(0, &by_hand).unwrap();
    assert_eq!(owner(&world.hosts[0]), (old, 1));
}

/// A branch got several new files. The office's file names all keys all the time, and is read again after each use.
#[cfg(feature = "server")]
#[test]
fn the_first_session_of_any_new_key_ends_those_that_it_replaces() {
    let secrets: [[u8; 32]; 5] = [7, 8, 9, 10, 11].map(|it| [it; 32]);
    let public = secrets.map(|it| Key32::new(*PrivateKey::new(it).public().as_bytes()));
    let chain = [None, Some(0), Some(1), Some(2), Some(3)];
    // By hand: two that replace the first, keys in a circle, and keys that replace themselves.
    let two = [None, Some(0), Some(1), Some(2), Some(0)];
    let circle = [Some(2), Some(0), Some(1), Some(3), None];
    // The keys that the file's keys replace, and the uses of keys in their order. For each use, the number of keys that
    // the office knows then.
    for (replaced, uses) in [
        (chain, &[(1, 4), (2, 3), (3, 2), (4, 1)][..]),
        (chain, &[(2, 3), (4, 1)]),
        (chain, &[(4, 1)]),
        (two, &[(1, 4), (2, 3), (3, 2)]),
        (two, &[(4, 4)]),
        (circle, &[(1, 3), (1, 3)]),
        ([None; 5], &[(0, 5), (0, 5)]),
        ([Some(0), None, None, None, None], &[(0, 5), (0, 5)]),
    ] {
        let mut world = pair();
        let inner = AllowedIp::new(world.hosts[1].inner, 32).unwrap();
        let peers = public.iter().enumerate().map(|(at, key)| SetPeer {
            public_key: key.clone(),
            replace_allowed_ips: true,
            replaces: replaced[at].map(|it| Box::new(public[it].clone())),
            allowed_ips: match at {
                0 => vec![AllowedIpChange::Add(inner)],
                _ => Vec::new(),
            },
            ..SetPeer::default()
        });
        let file = SetDevice {
            peers: peers.collect(),
            ..SetDevice::default()
        };
        let begun = SetDevice {
            replace_peers: true,
            ..file.clone()
        };
        world.apply(0, &begun).unwrap();
        for (used, left) in uses {
            world.hosts[1].key = secrets[*used];
            let text = format!("private_key={}\n", hex(&secrets[*used]));
            world.configure(1, &text).unwrap();
            world.send(1, 0);
            pass(&mut world, 10);
            let wanted = (hex(public[*used].as_bytes()), *left);
            for _ in 0..3 {
                assert_eq!(owner(&world.hosts[0]), wanted, "{replaced:?} {uses:?}");
                assert!(reaches(&mut world), "{replaced:?} {uses:?}");
                world.apply(0, &file).unwrap();
            }
        }
        // The office starts anew with this file, and the branch comes back.
        let (last, _) = uses[uses.len() - 1];
        let elapsed = world.now - world.start;
        let (wall, now) = (world.hosts[0].wall, world.hosts[0].now(world.now, elapsed));
        world.hosts[0].begin_anew(wall, now);
        world.tell(0, Event::Start);
        begin(&mut world, 0);
        world.apply(0, &begun).unwrap();
        pass(&mut world, 200);
        assert!(reaches(&mut world), "{replaced:?} {uses:?}");
        let (key, _) = owner(&world.hosts[0]);
        assert_eq!(key, hex(public[last].as_bytes()));
    }
}
