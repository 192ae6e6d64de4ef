//! OpenVPN's data channel: packets from other implementations, and round trips of random ones.

use std::sync::Arc;

use crypto::{Batch, Cipher, Digest, Packet, PacketCipher};
use openvpn::data::cipher::{CipherError, new as data_channel, new_insecure};
use openvpn::data::wire::Layout;
use openvpn::keys::KeyMaterial;
use proptest::prelude::*;

const V2: Layout = Layout::V2 { peer_id: 0 };
const EPOCH: Layout = Layout::Epoch { peer_id: 0 };

/// The payload of an OpenVPN ping.
const PING: &str = "2a187bf3641eb4cb07ed2d0a981fc748";

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.trim_start_matches('-');
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal digits"))
        .collect()
}

fn keys(cipher: &[u8], hmac: &[u8]) -> KeyMaterial {
    let mut keys = KeyMaterial {
        cipher: [0; 64],
        hmac: [0; 64],
    };
    keys.cipher[..cipher.len()].copy_from_slice(cipher);
    keys.hmac[..hmac.len()].copy_from_slice(hmac);
    keys
}

/// Opens one datagram with a header of this length.
fn open(cipher: &dyn PacketCipher, datagram: &[u8], header: usize) -> Option<(u64, Vec<u8>)> {
    let mut memory = datagram.to_vec();
    let mut packets = [Packet {
        start: header as u32,
        len: (datagram.len() - header) as u32,
        ..Packet::default()
    }];
    cipher.open(&mut Batch {
        memory: &mut memory,
        packets: &mut packets,
    });
    let payload = packets[0].start as usize..(packets[0].start + packets[0].len) as usize;
    packets[0]
        .authentic
        .then(|| (packets[0].counter, memory[payload].to_vec()))
}

/// Seals one payload behind a header.
fn seal(cipher: &dyn PacketCipher, header: &[u8], counter: u64, payload: &[u8]) -> Vec<u8> {
    let start = header.len() + cipher.head();
    let mut memory = header.to_vec();
    memory.resize(start, 0xee);
    memory.extend_from_slice(payload);
    memory.resize(memory.len() + cipher.tail(payload.len()), 0xee);
    let mut packets = [Packet {
        start: start as u32,
        len: payload.len() as u32,
        counter,
        authentic: false,
    }];
    cipher.seal(&mut Batch {
        memory: &mut memory,
        packets: &mut packets,
    });
    assert_eq!(
        (packets[0].start, packets[0].len as usize),
        (start as u32, payload.len())
    );
    memory
}

#[test]
fn packets_of_the_stock_program() {
    let file = include_str!("data/openvpn_stock.txt");
    let mut number = 0;
    for (line, text) in file.lines().enumerate() {
        let fields: Vec<_> = text.split(' ').collect();
        let [name, auth, key, hmac, datagram] = fields[..] else {
            panic!("{text}")
        };
        number = number % 3 + 1;
        let datagram = bytes(datagram);
        let (cipher, auth) = (
            Cipher::from_name(name).unwrap(),
            Digest::from_name(auth).unwrap(),
        );
        let keys = keys(&bytes(key), &bytes(hmac));
        let channel = new_insecure(cipher, auth, &keys, V2).unwrap();
        let opened = open(&*channel, &datagram, 4);
        assert_eq!(opened, Some((number, bytes(PING))), "line {}", line + 1);

        let sealed = seal(&*channel, &datagram[..4], number, &bytes(PING));
        if cipher.is_aead() {
            assert_eq!(sealed, datagram, "line {}", line + 1);
        } else {
            assert_eq!(sealed.len(), datagram.len(), "line {}", line + 1);
            assert_eq!(open(&*channel, &sealed, 4), opened, "line {}", line + 1);
        }
    }
    assert_eq!(file.lines().count(), 14 * 3);
}

#[test]
fn packets_with_epochs() {
    let file = include_str!("data/openvpn_epoch.txt");
    let mut channel: Option<(String, Arc<dyn PacketCipher>)> = None;
    for line in file.lines() {
        let fields: Vec<_> = line.split(' ').collect();
        let [name, secret, text, datagram] = fields[..] else {
            panic!("{line}")
        };
        let new = || {
            let cipher = Cipher::from_name(name).unwrap();
            let keys = keys(&bytes(secret), &[]);
            data_channel(cipher, Digest::None, &keys, EPOCH).unwrap()
        };
        // One receiver for each cipher, which moves from epoch to epoch, at most 4 ahead.
        if channel.as_ref().is_none_or(|(of, _)| of != name) {
            channel = Some((name.to_owned(), new()));
        }
        let receiver = &channel.as_ref().unwrap().1;
        let (datagram, text) = (bytes(datagram), bytes(text));
        let id = u64::from_be_bytes(datagram[4..12].try_into().unwrap());
        assert_eq!(open(&**receiver, &datagram, 4), Some((id, text.clone())));
        assert_eq!(u64::from(receiver.epoch()), id >> 48);
        let mut bad = datagram.clone();
        bad[2] ^= 1;
        assert_eq!(open(&**receiver, &bad, 4), None);

        let sender = new();
        assert_eq!(seal(&*sender, &datagram[..4], id, &text), datagram);
        assert_eq!(u64::from(sender.epoch()), id >> 48);
    }
    assert_eq!(file.lines().count(), 20);
}

#[test]
fn epochs_outside_of_the_window_do_not_open() {
    let keys = keys(&[7; 32], &[]);
    let new = || data_channel(Cipher::Aes256Gcm, Digest::None, &keys, EPOCH).unwrap();
    let header = [0x48, 0, 0, 0];
    let sealed = |epoch: u64| seal(&*new(), &header, epoch << 48 | 9, b"payload");
    let receiver = new();
    let opens = |epoch| open(&*receiver, &sealed(epoch), 4).is_some();
    assert!(!opens(6));
    assert!(opens(5));
    // The previous epoch stays valid for packets in transit.
    assert!(opens(4) && opens(5));
    assert!(!opens(3) && !opens(10));
    assert!(opens(9) && !opens(7));
    assert_eq!(receiver.epoch(), 9);
    // Epoch 0 does not exist, and 65,535 is the last one.
    let zero = bytes("48000000000000000000000900000000000000000000000000000000");
    assert_eq!(open(&*receiver, &zero, 4), None);
    assert_eq!(sealed(0xffff).len(), 4 + 8 + 7 + 16);
}

#[test]
fn insecure_ones_must_be_asked_for() {
    let keys = keys(&[], &[]);
    for cipher in Cipher::ALL {
        for digest in Digest::ALL {
            let made = data_channel(cipher, digest, &keys, V2);
            let insecure = cipher.is_insecure() || (!cipher.is_aead() && digest.is_insecure());
            assert_eq!(
                made.err(),
                insecure.then_some(CipherError::Insecure { cipher, digest })
            );
            assert!(new_insecure(cipher, digest, &keys, Layout::V1).is_ok());
            let epoch = new_insecure(cipher, digest, &keys, EPOCH);
            assert_eq!(epoch.is_ok(), cipher.is_aead());
        }
    }
    // With a one-byte header, no part of the header is authenticated.
    let channel = data_channel(Cipher::Aes128Gcm, Digest::None, &keys, Layout::V1).unwrap();
    let mut sealed = seal(&*channel, &[0x30], 1, b"x");
    sealed[0] = 0x31;
    assert_eq!(open(&*channel, &sealed, 1), Some((1, b"x".to_vec())));
}

/// Every cipher with every relevant digest.
fn channels() -> impl Strategy<Value = (Cipher, Digest, Layout)> {
    (
        prop::sample::select(Cipher::ALL.to_vec()),
        prop::sample::select(Digest::ALL.to_vec()),
        prop::sample::select(vec![Layout::V1, V2, EPOCH]),
    )
        .prop_filter("epochs are for AEADs", |(cipher, _, layout)| {
            cipher.is_aead() || !layout.has_epochs()
        })
}

/// Payload lengths, and for each the datagram byte that the wire changes, if any.
fn packets() -> impl Strategy<Value = Vec<(usize, Option<usize>)>> {
    let len = prop_oneof![4 => 0..100_usize, 2 => 0..2000_usize, 1 => 0..9000_usize];
    let packet = (
        len,
        prop::option::weighted(0.2, any::<usize>()),
        1..12_usize,
    );
    prop::collection::vec(packet, 0..14).prop_map(|runs| {
        runs.into_iter()
            .flat_map(|(len, turned, count)| {
                (0..count).map(move |n| (len, turned.filter(|_| n % 2 == 0)))
            })
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn there_and_back((cipher, digest, layout) in channels(), key: [u8; 32], packets in packets()) {
        let keys = KeyMaterial { cipher: [key, key].concat().try_into().unwrap(), hmac: [key, key].concat().try_into().unwrap() };
        let channel = new_insecure(cipher, digest, &keys, layout).unwrap();
        let header = layout.header_len();
        let first = if layout.has_epochs() { 1 << 48 | 1 } else { 1 };
        let protected = cipher.is_aead() || digest != Digest::None;

        let mut memory = Vec::new();
        let mut batch = Vec::new();
        for (number, &(len, _)) in packets.iter().enumerate() {
            memory.resize(memory.len() + number % 5, 0xee);
            memory.extend_from_slice(&[0x48; 4][..header]);
            memory.resize(memory.len() + channel.head(), 0xee);
            batch.push(Packet { start: memory.len() as u32, len: len as u32, counter: first + number as u64, authentic: false });
            memory.extend((0..len).map(|at| (at * 7 + number) as u8));
            memory.resize(memory.len() + channel.tail(len), 0xee);
        }
        let plain = memory.clone();
        channel.seal(&mut Batch { memory: &mut memory, packets: &mut batch });

        let mut received = batch.clone();
        for (packet, &(len, turned)) in received.iter_mut().zip(&packets) {
            packet.start -= channel.head() as u32;
            packet.len = (channel.head() + len + channel.tail(len)) as u32;
            packet.counter = 0;
            if let Some(at) = turned.filter(|_| protected) {
                memory[packet.start as usize + at % packet.len as usize] ^= 0x20;
            }
        }
        let expected_len: Vec<_> = received.iter().map(|packet| packet.len).collect();
        channel.open(&mut Batch { memory: &mut memory, packets: &mut received });
        for (number, (opened, sent)) in received.iter().zip(&batch).enumerate() {
            let authentic = packets[number].1.is_none() || !protected;
            prop_assert_eq!(opened.authentic, authentic, "{} of {}", number, expected_len[number]);
            let place = sent.start as usize..(sent.start + sent.len) as usize;
            if authentic {
                prop_assert_eq!((opened.start, opened.len, opened.counter), (sent.start, sent.len, sent.counter));
                prop_assert_eq!(&memory[place.clone()], &plain[place]);
            } else if place.len() >= 16 && cipher != Cipher::None {
                prop_assert_ne!(&memory[place.clone()], &plain[place]);
            }
        }
    }

    #[test]
    fn nothing_panics_when_opening((cipher, digest, layout) in channels(), ranges in prop::collection::vec(any::<(u32, u32)>(), 0..20), fill: u8) {
        let keys = keys(&[], &[]);
        let channel = new_insecure(cipher, digest, &keys, layout).unwrap();
        let mut memory = [fill; 300];
        let mut packets: Vec<_> = ranges
            .iter()
            .map(|&(start, len)| Packet { start: start % 320, len: len >> (start % 32), ..Packet::default() })
            .collect();
        channel.open(&mut Batch { memory: &mut memory, packets: &mut packets });
        if digest != Digest::None {
            prop_assert!(packets.iter().all(|packet| !packet.authentic || cipher == Cipher::None));
        }
    }
}
