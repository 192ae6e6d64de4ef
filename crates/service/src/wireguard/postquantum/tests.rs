//! Addresses of peers inside the tunnel, and policies over changes of the configuration.

use super::*;
use crate::wireguard::event::Event;
use crate::wireguard::fixture::FakeHost;
use config::types::Key32;
use config::uapi::{SetDevice, SetPeer};
use plane::Now;
use plane::fake::FakeDataPlane;
use std::sync::Arc;
use wireguard::WireGuard;

fn addresses(target: Option<&str>, own: &[(&str, u8)], ranges: &[&str]) -> Vec<String> {
    let own: Vec<_> = own
        .iter()
        .map(|(ip, prefix)| (ip.parse().unwrap(), *prefix))
        .collect();
    let ranges: BTreeSet<AllowedIp> = ranges.iter().map(|it| it.parse().unwrap()).collect();
    let target = target.map(|it| it.parse().unwrap());
    let pairs = candidates(target, &own, &ranges);
    pairs
        .iter()
        .map(|(from, to)| format!("{from} {to}"))
        .collect()
}

#[test]
fn a_peer_is_looked_for_at_its_likeliest_addresses() {
    let server = [("10.7.0.1", 24), ("fd00:7::1", 64)];
    // The file of a client, and of a server.
    assert_eq!(
        addresses(None, &[("10.7.0.8", 32)], &["0.0.0.0/0", "::/0"]),
        ["10.7.0.8 10.7.0.1"]
    );
    assert_eq!(
        addresses(None, &server, &["10.7.0.8/32", "fd00:7::8/128"]),
        ["10.7.0.1 10.7.0.8", "fd00:7::1 fd00:7::8"]
    );
    // A client without an address of its own that the server knows.
    assert_eq!(
        addresses(None, &server[..1], &["192.168.7.0/24"]),
        ["10.7.0.1 10.7.0.1"]
    );
    assert_eq!(
        addresses(Some("10.7.0.9"), &server, &["10.7.0.8/32"]),
        ["10.7.0.1 10.7.0.9"]
    );
    let none: [&str; 0] = [];
    assert_eq!(addresses(Some("fd00::9"), &server[..1], &["::/0"]), none);
    assert_eq!(addresses(None, &[], &["10.7.0.8/32"]), none);
}

#[test]
fn addresses_take_turns_until_the_peer_is_heard() {
    let pair = |last: u8| ([10, 0, 0, 1].into(), [10, 0, 0, last].into());
    let start = Instant::now();
    let at = |second| start + Duration::from_secs(second);
    let mut carried = Carried {
        settings: PostQuantum::default(),
        heard: None,
        turn: 0,
        sent: None,
        told: Told::Nothing,
    };
    let all = [pair(7), pair(8)];
    for (second, last) in [(0, 7), (0, 7), (1, 8), (3, 7)] {
        assert_eq!(carried.way(&all, at(second)), Some(pair(last)), "{second}");
    }
    let (own, peer) = pair(9);
    carried.heard = Some((own, peer, at(4)));
    assert_eq!(carried.way(&all, at(5)), Some(pair(9)));
    assert_eq!(carried.way(&[], at(6)), Some(pair(9)));
    let later = at(4) + LATELY;
    assert!(carried.way(&all, later).is_some_and(|it| it != pair(9)));
    assert_eq!(carried.way(&[], later), None);
}

#[test]
fn a_policy_outlives_commands_that_do_not_name_it() {
    let plane = Arc::new(FakeDataPlane::new(WireGuard::new(), "wg0", 1420));
    let mut host = FakeHost::new(plane.clone());
    let mut machine = Machine::new(Now::read(), 1);
    let mut cx = Cx::new(Now::read(), &*plane, &mut host);
    let key = Key32::new([7; 32]);
    let set = |policy: Option<Policy>, remove, replace_peers| SetDevice {
        replace_peers,
        peers: vec![SetPeer {
            public_key: key.clone(),
            remove,
            post_quantum: policy.map(|policy| PostQuantum {
                policy,
                target: Some(([10, 7, 0, 1], 7).into()),
            }),
            ..SetPeer::default()
        }],
        ..SetDevice::default()
    };
    let require = Some(wireguard::PostQuantum {
        require: true,
        port: 7,
        room: 1280 - HEADERS_MAX,
        pad: false,
    });
    for (policy, remove, replace, wanted) in [
        (Some(Policy::Require), false, false, require),
        // `wg set`, `wg setconf`.
        (None, false, false, require),
        (None, false, true, require),
        (Some(Policy::Off), false, false, None),
        (Some(Policy::Require), false, true, require),
        (None, true, false, None),
    ] {
        machine
            .configure(&set(policy, remove, replace), &mut cx)
            .unwrap();
        let id = machine.peer_of(&key);
        let settings = id.and_then(|id| Some(machine.device.post_quantum(id)?.settings));
        assert_eq!(settings, wanted, "{policy:?}");
        assert_eq!(id.is_none(), remove);
    }
    machine
        .configure(&set(Some(Policy::Require), false, false), &mut cx)
        .unwrap();
    machine.handle(
        Event::Link {
            up: true,
            mtu: 1500,
        },
        &mut cx,
    );
    let id = machine.peer_of(&key).unwrap();
    let room = machine.device.post_quantum(id).unwrap().settings.room;
    assert_eq!(room, 1500 - HEADERS_MAX);
    assert_eq!(machine.protection(id), None, "no session yet");
}
