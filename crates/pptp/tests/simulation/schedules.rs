//! Random schedules of loss, reordering and duplication.

use std::collections::BTreeSet;
use std::time::Duration;

use pptp::mppe::KeyLength;
use pptp::ppp::Auth;
use pptp::session::{DownReason, Encryption, Mode, Protection};

use crate::world::{End, Network, Random, World, client_settings, packet, server_settings};

const MINUTES: Duration = Duration::from_secs(180);

/// Plays one session: up, packets over a bad network, packets over a good one, down.
fn play(seed: u64) {
    let mut random = Random(seed);
    let key = [KeyLength::Bits128, KeyLength::Bits56, KeyLength::Bits40][(seed % 3) as usize];
    let mode =
        [Mode::Stateless, Mode::PreferStateless, Mode::PreferStateful][(seed / 3 % 3) as usize];
    let encrypted = seed % 10 != 9;
    let (mut client, mut server) = (client_settings(), server_settings());
    for link in [&mut client.common.link, &mut server.common.link] {
        if encrypted {
            link.encryption = Encryption::Mppe {
                keys: vec![key],
                mode,
            };
        } else {
            link.encryption = Encryption::None;
            link.auth = vec![[Auth::Pap, Auth::ChapMd5, Auth::MsChapV2][(seed / 10 % 3) as usize]];
        }
    }
    let stateful = encrypted && mode == Mode::PreferStateful;
    let mut world = World::new(seed, client, server);
    world.network = Network {
        loss: random.below(150),
        duplication: random.below(100),
        jitter: Duration::from_millis(random.below(40)),
    };
    assert!(
        world.run(MINUTES, World::both_up),
        "seed {seed}: {:?} {:?}",
        world.client_down,
        world.server_down
    );

    let up = world.client_up.clone().unwrap();
    let (_, other) = world.server_up.clone().unwrap();
    assert_eq!(
        (Some(up.address), up.peer),
        (other.peer, Some(other.address)),
        "seed {seed}"
    );
    assert_eq!(up.dns[0], Some([10, 0, 0, 53].into()), "seed {seed}");
    let protection = encrypted.then_some(Protection {
        key,
        stateless: !stateful,
    });
    assert_eq!(
        (up.protection, other.protection),
        (protection, protection),
        "seed {seed}"
    );
    assert_eq!(other.user.as_deref(), Some("user"));

    let mut sent: [Vec<(u32, Vec<u8>)>; 2] = [Vec::new(), Vec::new()];
    let mut number = 0;
    let mut exchange = |world: &mut World, count: u32, sent: &mut [Vec<(u32, Vec<u8>)>; 2]| {
        for _ in 0..count {
            for (at, end) in [(0, End::Server), (1, End::Client)] {
                number += 1;
                let inner = packet(&mut random, number);
                let sequence = world.send(end, &inner);
                sent[at].push((sequence, inner));
            }
            let gap = Duration::from_micros(200 + random.below(2000));
            world.run(gap, |_| false);
        }
    };
    exchange(&mut world, 400, &mut sent);
    // Packets in transit arrive, and both directions resynchronise.
    world.network = Network::default();
    world.run(Duration::from_secs(5), |_| false);
    let bad: [usize; 2] = [0, 1].map(|at| sent[at].len());
    exchange(&mut world, 10, &mut sent);
    world.run(Duration::from_secs(3), |_| false);
    exchange(&mut world, 10, &mut sent);
    world.run(Duration::from_secs(3), |_| false);

    for at in [0, 1] {
        let received: BTreeSet<&Vec<u8>> = world.received[at].iter().collect();
        assert_eq!(
            received.len(),
            world.received[at].len(),
            "seed {seed}: none came twice"
        );
        let all: BTreeSet<&Vec<u8>> = sent[at].iter().map(|(_, inner)| inner).collect();
        assert!(received.is_subset(&all), "seed {seed}: none was changed");
        for (place, (sequence, inner)) in sent[at].iter().enumerate() {
            let arrived = world.arrived[at].contains(sequence);
            if !stateful {
                assert_eq!(
                    arrived,
                    received.contains(inner),
                    "seed {seed}: packet {place}"
                );
            } else if place >= bad[at] + 10 {
                assert!(
                    received.contains(inner),
                    "seed {seed}: the stream has begun anew"
                );
            }
        }
    }

    let mut out = Vec::new();
    world.client.stop(world.now, &mut out);
    world.flush(out, Vec::new());
    assert!(
        world.run(MINUTES, |world| world.closed && world.client.is_finished()),
        "seed {seed}"
    );
    assert_eq!(world.client_down, Some(DownReason::Local), "seed {seed}");
    assert!(world.server_down.is_some(), "seed {seed}");
    assert_eq!(
        world.server.occupancy(),
        (0, 4),
        "seed {seed}: the address is free again"
    );
}

#[test]
fn sessions_come_up_carry_packets_and_end_whatever_the_network_does() {
    for seed in 0..240 {
        play(seed);
    }
}

#[test]
fn packets_that_were_changed_on_their_way_cost_counters() {
    for seed in 0..60 {
        let mut world = World::new(seed, client_settings(), server_settings());
        assert!(world.run(MINUTES, World::both_up));
        world.tamper = Some(|random, packet| {
            if random.below(3) == 0 {
                let at = random.below(packet.len() as u64) as usize;
                packet[at] ^= 1 << random.below(8);
            }
            if random.below(20) == 0 {
                let len = random.below(packet.len() as u64 + 1) as usize;
                packet.truncate(len);
            }
        });
        let mut random = Random(seed);
        for number in 0..300 {
            if world.client_down.is_some() || world.server_down.is_some() {
                break;
            }
            let inner = packet(&mut random, number);
            world.send(End::Client, &inner);
            world.send(End::Server, &inner);
            world.run(Duration::from_millis(1), |_| false);
        }
        assert_eq!(world.client_down, None, "seed {seed}");
        assert_eq!(world.server_down, None, "seed {seed}");
        let counted = world.client.call().unwrap().tunnel_counters();
        assert!(counted.malformed > 0, "seed {seed}");
    }
}
