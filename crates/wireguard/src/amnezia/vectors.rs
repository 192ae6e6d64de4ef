//! Datagrams of other programs, of each generation, rebuilt and read byte by byte.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use crypto::x25519::{PrivateKey, PublicKey};
use crypto::{Key, TAG_LEN, blake2s};
use plane::{Batch, Class, Format, Packet, Protocol, SessionName, Wire};

use super::{Kind, Profile, Settings};
use crate::cookie::Jar;
use crate::data::DataKeys;
use crate::disguise::Reader;
use crate::message::{CookieReply, IDENTIFIER, Initiation, Response};
use crate::noise::Initiator;
use crate::{Device, Output, WireGuard};

const SENDER: u32 = 0x1122_3344;

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

/// 32 bytes that count up from `first`, made an X25519 private key.
fn private(first: u8) -> PrivateKey {
    let mut bytes: [u8; 32] = core::array::from_fn(|at| first + at as u8);
    bytes[0] &= 248;
    bytes[31] = bytes[31] & 127 | 64;
    PrivateKey::new(bytes)
}

/// One section of the file.
struct Case(HashMap<String, String>);

impl Case {
    fn all() -> Vec<(String, Self)> {
        let mut cases: Vec<(String, Self)> = Vec::new();
        for line in include_str!("vectors.txt").lines() {
            if let Some(name) = line.strip_prefix('[') {
                cases.push((name.trim_end_matches(']').to_owned(), Self(HashMap::new())));
            } else if let Some((key, value)) = line.split_once(": ")
                && let Some((_, case)) = cases.last_mut()
            {
                case.0.insert(key.to_owned(), value.to_owned());
            }
        }
        cases
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        unhex(&self.0[name])
    }

    fn key(&self, name: &str) -> Key {
        Key::from(<[u8; 32]>::try_from(self.bytes(name)).unwrap())
    }

    fn profile(&self) -> Arc<Profile> {
        let mut settings = Settings::default();
        for word in self.0["settings"].split(" ; ") {
            let (name, value) = word.split_once('=').unwrap();
            settings.set(name, value).unwrap();
        }
        Profile::new(settings).unwrap().unwrap()
    }
}

/// Checks that `wire` is `plain` in the form of the profile, read and written.
fn is_form_of(profile: &Profile, kind: Kind, plain: &[u8], wire: &[u8]) {
    assert!(profile.fits(wire).has(kind), "{kind:?}");
    let start = profile.prefix(kind);
    let hidden = match kind {
        Kind::Data => 16,
        _ => plain.len(),
    };
    let end = start + plain.len();
    let mut made = [&wire[..start], plain, &wire[end..]].concat();
    profile.hide(&mut made, start..start + hidden);
    assert_eq!(crypto::hex(&made), crypto::hex(wire), "{kind:?}");
    if kind != Kind::Data {
        assert_eq!(
            profile.undress(kind, wire).unwrap().as_bytes(),
            plain,
            "{kind:?}"
        );
        let again = profile.dress(kind, plain);
        assert_eq!(profile.undress(kind, &again).unwrap().as_bytes(), plain);
    }
}

/// Opens a data packet and returns its inner packet with the padding.
fn opened(protocol: &WireGuard, keys: &DataKeys, receiver: u32, wire: &[u8]) -> Vec<u8> {
    let mut reader = Reader::default();
    protocol.prepare(&mut reader);
    let class = protocol.classify(&reader, wire);
    let Class::Data {
        session,
        counter,
        header,
        or_control,
    } = class
    else {
        panic!("{class:?}");
    };
    assert_eq!(session, SessionName::Index(receiver));
    assert!(counter < 2 && !or_control);
    let mut memory = wire.to_vec();
    let mut packets = [Packet {
        start: header as u32,
        len: (wire.len() - header) as u32,
        counter,
        authentic: false,
    }];
    let formats = protocol.formats(keys).unwrap();
    formats.open.open(&mut Batch {
        memory: &mut memory,
        packets: &mut packets,
    });
    assert!(packets[0].authentic);
    let start = packets[0].start as usize;
    memory[start..start + packets[0].len as usize].to_vec()
}

/// Seals an inner packet, padded to `len` bytes.
fn sealed(format: &dyn Format, inner: &[u8], len: usize) -> Vec<u8> {
    let head = format.head();
    let mut memory = vec![0; head + len + TAG_LEN];
    memory[head..head + inner.len()].copy_from_slice(inner);
    format.seal(&mut Batch {
        memory: &mut memory,
        packets: &mut [Packet {
            start: head as u32,
            len: len as u32,
            counter: 0,
            authentic: false,
        }],
    });
    memory
}

/// The responder's answer to the initiation, and the key with which it opens data.
fn answer(profile: &Arc<Profile>, preshared: &Key, initiation: &[u8]) -> (Vec<u8>, Key) {
    let (now, mut out) = (Instant::now(), Vec::new());
    let mut device = Device::new(now, SystemTime::now(), 1);
    device.set_private_key(Some(private(0x65)), now, &mut out);
    device.set_profile(Some(Arc::clone(profile)), now, &mut out);
    let peer = device.add_peer(private(1).public()).unwrap();
    device.set_preshared_key(peer, preshared.clone());
    let from = ([192, 0, 2, 1], 1).into();
    let received = device.receive(initiation, from, now, false, &mut out);
    assert_eq!(received, Ok(()));
    let (mut sent, mut open) = (None, None);
    for output in out {
        match output {
            Output::Send { datagram, .. } => sent = Some(datagram.as_bytes().to_vec()),
            Output::AddKeys { keys, .. } => open = Some(keys.material.open.clone()),
            _ => {}
        }
    }
    (sent.unwrap(), open.unwrap())
}

#[test]
fn handshakes_and_data_of_every_generation() {
    let (own, peer) = (private(1), private(0x65).public());
    let expected = "5714769d116bf76436ae74bc793d2c30ad1903c59ac5273805c7e2698b410c36";
    assert_eq!(peer.as_bytes()[..], unhex(expected));
    let preshared = Key::from(core::array::from_fn(|at| 0xc8 + at as u8));
    let stamp = unhex("400000006735e800075bcd15");
    let finish = |initiator: Initiator, response: &Response| {
        let agreed = initiator.agree(&own, &PublicKey::from(response.ephemeral));
        let finished = agreed
            .and_then(|it| it.finish(&preshared, &response.sealed_nothing, &mut [0; TAG_LEN]));
        finished.unwrap()
    };
    let mut seen = 0;
    for (name, case) in Case::all() {
        if !case.0.contains_key("initiation_wire") {
            continue;
        }
        println!("{name}");
        seen += 1;
        let profile = case.profile();
        let plain = case.bytes("initiation_plain");
        let wire = case.bytes("initiation_wire");
        let static_static = own.agree(&peer).unwrap();
        let (mut sealed_static, mut sealed_timestamp) = ([0; 48], [0; 28]);
        let mut start = || {
            Initiator::start(
                IDENTIFIER,
                (&own, private(0x21)),
                (&peer, &static_static),
                &stamp,
                &mut sealed_static,
                &mut sealed_timestamp,
            )
            .unwrap()
        };
        let (initiator, again) = (start(), start());
        let mut message = Initiation {
            sender: SENDER,
            ephemeral: *initiator.ephemeral().as_bytes(),
            sealed_static,
            sealed_timestamp,
        }
        .emit();
        message[..4].copy_from_slice(&plain[..4]);
        Jar::new(&peer).sign(&mut message, Instant::now());
        assert_eq!(crypto::hex(&message), crypto::hex(&plain));
        is_form_of(&profile, Kind::Initiation, &plain, &wire);

        let (answer, open) = answer(&profile, &preshared, &wire);
        assert!(profile.fits(&answer).has(Kind::Response));
        let message = profile.undress(Kind::Response, &answer).unwrap();
        let response = Response::parse(message.with_type(2).as_bytes()).unwrap();
        assert!(finish(again, &response).from_initiator == open);

        let plain = case.bytes("response_plain");
        is_form_of(
            &profile,
            Kind::Response,
            &plain,
            &case.bytes("response_wire"),
        );
        let mut typed = plain.clone();
        typed[..4].copy_from_slice(&[2, 0, 0, 0]);
        let response = Response::parse(&typed).unwrap();
        assert_eq!(response.receiver, SENDER);
        let keys = finish(initiator, &response);
        assert!(keys.from_initiator == case.key("key_i2r"));
        assert!(keys.from_responder == case.key("key_r2i"));

        let protocol = WireGuard::new();
        protocol.set_profile(Some(Arc::clone(&profile)));
        assert_eq!(protocol.prefix(), profile.prefix(Kind::Data));
        let ours = DataKeys {
            remote_index: response.sender,
            seal: keys.from_initiator.clone(),
            open: keys.from_responder.clone(),
            #[cfg(feature = "postquantum")]
            exchange: None,
        };
        let theirs = DataKeys {
            remote_index: SENDER,
            seal: keys.from_responder,
            open: keys.from_initiator,
            #[cfg(feature = "postquantum")]
            exchange: None,
        };
        let (plain, wire) = (case.bytes("data_plain"), case.bytes("data_wire"));
        is_form_of(&profile, Kind::Data, &plain, &wire);
        let inner = case.bytes("inner");
        let padded = inner.len() + case.0["data_pad"].parse::<usize>().unwrap();
        let found = opened(&protocol, &theirs, response.sender, &wire);
        assert_eq!(found.len(), padded);
        assert!(found.starts_with(&inner));
        let formats = protocol.formats(&ours).unwrap();
        let made = sealed(&*formats.seal, &inner, padded);
        assert_eq!(made.len(), wire.len());
        let tail = wire.len() - padded - TAG_LEN;
        assert_eq!(crypto::hex(&made[tail..]), crypto::hex(&wire[tail..]));
        assert_eq!(opened(&protocol, &theirs, response.sender, &made), found);

        let reply = opened(&protocol, &ours, SENDER, &case.bytes("reply_wire"));
        assert_eq!(crypto::hex(&reply), case.0["reply_plain"]);
    }
    assert_eq!(seen, 6);
}

#[test]
fn the_cookie_of_a_peer_under_load() {
    let cases = Case::all();
    let (_, case) = cases.last().unwrap();
    let profile = case.profile();
    let plain = case.bytes("cookie_plain");
    is_form_of(&profile, Kind::Cookie, &plain, &case.bytes("cookie_wire"));
    let now = Instant::now();
    let mut jar = Jar::new(&private(0x65).public());
    let mut denied = case.bytes("denied_initiation_plain");
    let before = denied.clone();
    jar.sign(&mut denied, now);
    assert_eq!(denied, before);
    assert!(jar.consume(&CookieReply::parse(&plain).unwrap(), now));
    jar.sign(&mut denied, now);
    let cookie: [u8; 16] = case.bytes("cookie").try_into().unwrap();
    let (covered, mac2) = denied.split_at(denied.len() - 16);
    assert_eq!(blake2s::mac(&cookie, &[covered])[..], *mac2);
}
