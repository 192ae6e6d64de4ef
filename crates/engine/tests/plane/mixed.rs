//! Random mixes of lengths, families, peers, super-packets, keys, damage and disorder.

use crate::packets::{joined, payload, plain, trimmed, udp, with_header, written};
use crate::toy::{Key, MESSAGE};
use crate::world::{World, install, unlimited};
use plane::{DataPlane as _, PeerId};
use proptest::prelude::*;
use std::collections::HashSet;
use std::sync::Arc;

/// The next step at the interface.
#[derive(Clone, Debug)]
enum Step {
    /// The host sends a packet of `len` bytes.
    Packet { peer: u8, v6: bool, len: usize },
    /// The host sends a super-packet.
    Joined {
        peer: u8,
        udp: bool,
        v6: bool,
        mss: usize,
        len: usize,
    },
    /// Control injects a message.
    Message { peer: u8, len: usize },
    /// The data plane processes all waiting packets.
    Take,
    /// The peer gets a new key, whose header is `extra` bytes longer.
    Rekey { peer: u8, extra: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..4_u8, any::<bool>(), 1..1300_usize)
            .prop_map(|(peer, v6, len)| Step::Packet { peer, v6, len }),
        2 => (1..4_u8, any::<bool>(), any::<bool>(), 200..1300_usize, 1..20_000_usize)
            .prop_map(|(peer, udp, v6, mss, len)| Step::Joined { peer, udp, v6, mss, len }),
        1 => (1..4_u8, 0..3000_usize).prop_map(|(peer, len)| Step::Message { peer, len }),
        2 => Just(Step::Take),
        1 => (1..4_u8, 0..32_usize).prop_map(|(peer, extra)| Step::Rekey { peer, extra }),
    ]
}

/// Returns the `number`th payload, whose first bytes are unique.
fn data(number: u32, len: usize) -> Vec<u8> {
    let mut data = number.to_be_bytes().to_vec();
    data.resize(len.max(4), number as u8);
    data
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Each peer receives its packets once and in order, each sealed with that peer's key. Numbers of each key start at
    /// 0 without gaps.
    #[test]
    fn every_peer_receives_what_is_for_it_in_order(steps in prop::collection::vec(step(), 1..60)) {
        let mut world: World = World::new();
        let (second, remote_2, _) = world.another(2);
        let (third, remote_3, _) = world.another(3);
        let peers = [Arc::clone(&world.peer), second, third];
        let mut keys: Vec<Vec<Arc<Key>>> = vec![vec![]; 3];
        for (peer, keys) in peers.iter().zip(&mut keys) {
            let index = peer.id().0 + 100;
            let key = Key::new(index as u8, index).shared();
            install(&world.plane.tunnel, peer, index, &key, unlimited());
            keys.push(key);
        }
        // Messages overtake packets that were read at the same time, so packets and messages are tracked separately.
        let mut packets: Vec<Vec<Vec<u8>>> = vec![vec![]; 3];
        let mut messages: Vec<Vec<Vec<u8>>> = vec![vec![]; 3];
        for (number, step) in (0_u32..).zip(steps) {
            match step {
                Step::Packet { peer, v6, len } => {
                    let data = data(number, len);
                    let read = plain(&udp(v6, (9, peer), &data));
                    if world.plane.host.send(&read).is_err() {
                        world.plane.interface();
                        world.plane.host.send(&read).unwrap();
                    }
                    packets[usize::from(peer) - 1].push(data);
                }
                Step::Joined { peer, udp, v6, mss, len } => {
                    let data = data(number, len);
                    let read = with_header(&joined(udp, v6, (9, peer), mss, &data));
                    if world.plane.host.send(&read).is_err() {
                        world.plane.interface();
                        world.plane.host.send(&read).unwrap();
                    }
                    packets[usize::from(peer) - 1].extend(data.chunks(mss).map(<[u8]>::to_vec));
                }
                Step::Message { peer, len } => {
                    let message = [vec![MESSAGE], data(number, len)].concat();
                    let at = usize::from(peer) - 1;
                    world.plane.tunnel.inject(peers[at].id(), &message);
                    messages[at].push(message);
                }
                Step::Take => world.plane.interface(),
                Step::Rekey { peer, extra } => {
                    let at = usize::from(peer) - 1;
                    let index = 1000 + number;
                    let key = Key { extra, ..Key::new(number as u8, index) }.shared();
                    install(&world.plane.tunnel, &peers[at], index, &key, unlimited());
                    keys[at].push(key);
                }
            }
        }
        world.plane.interface();
        world.plane.interface();
        let remotes = [&mut world.remote, &mut { remote_2 }, &mut { remote_3 }];
        for (at, remote) in remotes.into_iter().enumerate() {
            let received = remote.receive(packets[at].len() + messages[at].len());
            let (mut got, mut got_messages, mut at_key) = (Vec::new(), Vec::new(), (0, 0));
            for datagram in &received {
                let opened = keys[at].iter().enumerate().find_map(|(i, key)| {
                    // A peer never returns to an earlier key.
                    (i >= at_key.0).then(|| key.opened(datagram)).flatten().map(|opened| (i, opened))
                });
                let (key, (number, inner)) = opened.unwrap();
                at_key = if key == at_key.0 { at_key } else { (key, 0) };
                prop_assert_eq!(number, at_key.1);
                at_key.1 += 1;
                if inner[0] == MESSAGE {
                    got_messages.push(inner);
                } else {
                    got.push(payload(&inner).to_vec());
                }
            }
            prop_assert!(got == packets[at]);
            prop_assert_eq!(got_messages.len(), messages[at].len());
            for (got, sent) in got_messages.iter().zip(&messages[at]) {
                prop_assert!(got.starts_with(sent));
            }
        }
        prop_assert_eq!(world.drops(), vec![]);
    }

    /// The data plane writes only packets that arrive for the first time, undamaged, from the sender that they name. It
    /// counts all others as drops.
    #[test]
    fn what_is_written_is_what_was_sent_once(
        datagrams in prop::collection::vec((0..30_u64, 0..900_usize, any::<bool>(), 0..12_u8), 1..80),
    ) {
        let mut world: World = World::new();
        let (mut expected, mut seen) = (Vec::new(), HashSet::new());
        let (mut repeated, mut forged, mut stolen, mut keepalives) = (0, 0, 0, 0);
        let sent: Vec<_> = datagrams
            .iter()
            .map(|&(number, len, v6, fate)| {
                let data = data(number as u32, len);
                let packet = udp(v6, (if fate == 1 { 5 } else { 1 }, 9), &data);
                let mut datagram = match fate {
                    2 => world.key.datagram(number, &[]),
                    _ => world.key.datagram(number, &packet),
                };
                if fate == 0 {
                    let at = datagram.len() - 1 - len % 3;
                    datagram[at] ^= 0x40;
                    forged += 1;
                    return datagram;
                }
                if !seen.insert(number) {
                    repeated += 1;
                    return datagram;
                }
                match fate {
                    1 => stolen += 1,
                    2 => keepalives += 1,
                    _ => expected.push((v6, packet)),
                }
                datagram
            })
            .collect();
        world.peer_sends(&sent);
        let mut got: Vec<(bool, Vec<u8>)> = Vec::new();
        for write in world.around.written.take() {
            let v6 = write[netio::tun::VNET_HDR_LEN] >> 4 == 6;
            let (parts, joined) = written(&write);
            got.extend(parts.into_iter().map(|part| {
                (v6, if joined { part } else { payload(trimmed(&part)).to_vec() })
            }));
        }
        // Flows of the two families may overtake each other; packets of one flow may not.
        for v6 in [false, true] {
            let of = |all: &[(bool, Vec<u8>)]| -> Vec<Vec<u8>> {
                all.iter().filter(|p| p.0 == v6).map(|p| p.1.clone()).collect()
            };
            let expected: Vec<_> = of(&expected).iter().map(|packet| payload(packet).to_vec()).collect();
            prop_assert!(of(&got) == expected);
        }
        let drops = world.plane.tunnel.drops();
        prop_assert_eq!(drops.duplicate.value(), repeated);
        prop_assert_eq!(drops.not_authentic.value(), forged);
        prop_assert_eq!(drops.wrong_source.value(), stolen);
        let inbound = world.plane.tunnel.inbound();
        prop_assert_eq!(inbound.packets.value(), expected.len() as u64 + stolen);
        prop_assert_eq!(world.plane.tunnel.key_usage(PeerId(1), 1).forged, forged);
        let all = forged + repeated + stolen + keepalives + expected.len() as u64;
        prop_assert_eq!(all, sent.len() as u64);
    }
}
