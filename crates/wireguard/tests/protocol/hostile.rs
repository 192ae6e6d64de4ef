//! Datagrams that no peer should send.

use crate::sim::{Event, Sim, secs, wall};
use crypto::x25519::PrivateKey;
use proptest::prelude::*;
use wireguard::{Device, Dropped};

/// The thread that owns a device need not be the one that made it.
const _: () = {
    const fn can_move<T: Send>() {}
    can_move::<Device>();
    can_move::<wireguard::Output>();
};

#[test]
fn every_length_of_every_type() {
    let (mut sim, b, _) = Sim::pair();
    sim.send(0, b, b"text");
    sim.run_until(secs(1));
    let (now, from) = (sim.now, sim.hosts[0].address);
    for kind in 0..=255 {
        for len in (0..200).chain([1500, 65_535]) {
            let mut bytes = vec![kind; len];
            if len >= 4 {
                bytes[1..4].fill(0);
            }
            let result = sim.with(1, |device, out| {
                device.receive(&bytes, from, now, false, out)
            });
            let expected = match (kind, len) {
                (1, 148) | (2, 92) => Dropped::Mac1,
                (3, 64) => Dropped::Unexpected,
                _ => Dropped::Malformed,
            };
            assert_eq!(result, Err(expected), "type {kind}, {len} bytes");
        }
    }
}

#[test]
fn any_bit_turned_on_the_way_spoils_the_message_and_only_it() {
    for bit in (0..148 * 8).step_by(7) {
        let (mut sim, b, _) = Sim::pair();
        let mut first = true;
        sim.link = Box::new(move |_| {
            if std::mem::take(&mut first) {
                vec![]
            } else {
                vec![crate::sim::LATENCY]
            }
        });
        sim.send(0, b, b"text");
        let mut flight = sim.sent[0].clone();
        flight.bytes[bit / 8] ^= 1 << (bit % 8);
        sim.inject(flight.from, flight.to, flight.bytes);
        sim.run_until(secs(1));
        // Without load the last sixteen bytes (mac2) have no meaning.
        assert_eq!(
            sim.hosts[1].count(&Event::Response),
            usize::from(bit / 8 >= 132),
            "bit {bit}"
        );
        sim.run_until(secs(6));
        assert_eq!(sim.hosts[1].received(), [b"text"]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Fuzz input for the only entry point, including messages with a valid mac1.
    #[test]
    fn arbitrary_bytes(
        messages in prop::collection::vec(
            (0_u8..5, prop::collection::vec(any::<u8>(), 200), any::<bool>(), any::<bool>(), any::<[u8; 4]>()),
            1..20,
        )
    ) {
        let now = std::time::Instant::now();
        let mut device = Device::new(now, wall(), 0);
        let mut out = Vec::new();
        device.set_private_key(Some(PrivateKey::new([3; 32])), now, &mut out);
        device.add_peer(PrivateKey::new([4; 32]).public()).unwrap();
        let key = crypto::blake2s::hash(&[b"mac1----", device.public_key().unwrap().as_bytes()]);
        for (kind, mut bytes, signed, load, ip) in messages {
            bytes[..4].copy_from_slice(&[kind, 0, 0, 0]);
            bytes.truncate([200, 148, 92, 64, 32][usize::from(kind)]);
            if signed && bytes.len() > 32 {
                let covered = bytes.len() - 32;
                let mac1 = crypto::blake2s::mac(&key, &[&bytes[..covered]]);
                bytes[covered..covered + 16].copy_from_slice(&mac1);
            }
            out.clear();
            prop_assert!(device.receive(&bytes, (ip, 1).into(), now, load, &mut out).is_err());
            prop_assert!(out.len() <= 1, "at most a cookie");
            prop_assert!(device.next_deadline().is_none());
        }
    }
}
