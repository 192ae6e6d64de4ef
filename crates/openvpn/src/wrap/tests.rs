use std::time::Duration;

use super::*;
use crate::keyfile::v2::{Metadata, ServerKey};
use crate::packet::{AckList, EarlyNegotiation, Opcode, SessionId};

const STATIC: &str = include_str!("../../tests/data/static.key");
const SERVER: &str = include_str!("../../tests/data/v2-server.key");
const CLIENT: &str = include_str!("../../tests/data/v2-client.key");
const USER: &str = include_str!("../../tests/data/v2-client-user.key");
const CAPTURED: &str = include_str!("../../tests/data/control.txt");

fn static_key() -> StaticKey {
    StaticKey::parse(STATIC).unwrap()
}

fn server_key() -> ServerKey {
    ServerKey::parse(SERVER).unwrap()
}

fn client_key() -> ClientKey {
    ClientKey::parse(CLIENT).unwrap()
}

/// The wraps of a client and of a server, named as in the captures.
fn pair(name: &str) -> (Wrap, Wrap) {
    let key = static_key();
    let auth = |digest, client, server| {
        let end = |side| Wrap::with(Keys::tls_auth(&key, side, digest).unwrap());
        (end(client), end(server))
    };
    let (normal, inverse) = (KeyDirection::Normal, KeyDirection::Inverse);
    let both = KeyDirection::Bidirectional;
    match name {
        "none" => (Wrap::with(Keys::none()), Wrap::with(Keys::none())),
        "tls-auth-sha1" => auth(Digest::Sha1, inverse, normal),
        "tls-auth-sha256" => auth(Digest::Sha256, inverse, normal),
        "tls-auth-sha512-both" => auth(Digest::Sha512, both, both),
        "tls-auth-blake2b" => auth(Digest::Blake2b512, inverse, normal),
        "tls-crypt" => (
            Wrap::with(Keys::tls_crypt(&key, Role::Client)),
            Wrap::with(Keys::tls_crypt(&key, Role::Server)),
        ),
        "tls-crypt-v2" => (
            Wrap::with(Keys::tls_crypt_v2_client(&client_key())),
            Wrap::with(Keys::tls_crypt_v2_server(client_key().key())),
        ),
        "dynamic" => {
            let (client, server) = pair("tls-auth-sha1");
            (
                client.dynamic(&[0x77; 256], Role::Client),
                server.dynamic(&[0x77; 256], Role::Server),
            )
        }
        _ => panic!("no wrap is called {name}"),
    }
}

const ALL: [&str; 8] = [
    "none",
    "tls-auth-sha1",
    "tls-auth-sha256",
    "tls-auth-sha512-both",
    "tls-auth-blake2b",
    "tls-crypt",
    "tls-crypt-v2",
    "dynamic",
];

fn captured() -> impl Iterator<Item = (&'static str, bool, Vec<u8>)> {
    CAPTURED
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let mut words = line.split(' ');
            let (name, from) = (words.next().unwrap(), words.next().unwrap());
            let hex = words.next().unwrap();
            let bytes = (0..hex.len() / 2)
                .map(|at| u8::from_str_radix(&hex[2 * at..][..2], 16).unwrap())
                .collect();
            (name, from == "c", bytes)
        })
}

fn session(byte: u8) -> SessionId {
    SessionId::new([byte; 8]).unwrap()
}

fn message(opcode: Opcode) -> ControlPacket {
    ControlPacket {
        opcode,
        key_id: 0,
        session: session(1),
        acks: [0].into_iter().collect(),
        peer_session: Some(session(2)),
        message_id: Some(1),
        payload: vec![22, 3, 1, 0, 1],
    }
}

/// Captured packets of stock can be opened, and sealing their content again yields the same bytes.
#[test]
fn packets_of_stock() {
    let mut seen = 0;
    for (name, from_client, bytes) in captured() {
        let (client, server) = pair(name);
        let (mut sender, mut receiver) = if from_client {
            (client, server)
        } else {
            (server, client)
        };
        let packet = receiver.open(&bytes).unwrap();
        assert_eq!(receiver.open(&bytes).is_ok(), name == "none", "a replay");
        let first = packet.opcode.is_hard_reset();
        assert_eq!(packet.message_id == Some(0), first);
        assert_eq!(packet.key_id, 0);
        assert!(packet.acks.as_slice().iter().all(|&id| id < 10));
        if packet.opcode == Opcode::ControlV1 {
            // Records of TLS: handshake, change of cipher, or data. Messages may begin inside one.
            assert!(!packet.payload.is_empty());
        }
        if let Some(number) = receiver.window.greatest() {
            sender.counter = Counter::after(number.id - 1);
            assert_eq!(sender.seal(&packet, number.time), bytes, "{name}");
        } else {
            assert_eq!(sender.seal(&packet, 0), bytes);
        }
        seen += 1;
    }
    assert_eq!(seen, 7 * 8);
}

/// The first number announces early negotiation, and the stock server requests the key again.
#[test]
fn early_negotiation_of_stock() {
    let settings = WrapSettings::tls_crypt_v2_server(&server_key(), None);
    let (mut client, _) = pair("tls-crypt-v2");
    let mut asked = false;
    for (name, from_client, bytes) in captured() {
        if name != "tls-crypt-v2" {
            continue;
        }
        if from_client
            && ControlHead::peek(&bytes)
                .unwrap()
                .opcode
                .carries_client_key()
        {
            let first = settings.open_first(&bytes, 0).unwrap();
            assert!(first.announces_early_negotiation());
            assert!(first.metadata.unwrap().made_at().is_some());
            assert_eq!(
                first.wrap.keys.material.unwrap().as_bytes(),
                client_key().key().as_bytes()
            );
        } else if !from_client {
            let packet = client.open(&bytes).unwrap();
            if packet.opcode.is_hard_reset() {
                asked = EarlyNegotiation::parse(&packet.payload)
                    .unwrap()
                    .resend_client_key;
            }
        }
    }
    assert!(asked);
}

#[test]
fn both_ways_and_never_twice() {
    for name in ALL {
        let (mut client, mut server) = pair(name);
        let packet = message(Opcode::ControlV1);
        let first = client.seal(&packet, 1000);
        let second = client.seal(&packet, 2000);
        assert_eq!(first.len(), packet.emit().len() + client.overhead());
        assert_eq!(server.open(&second), Ok(packet.clone()), "{name}");
        assert_eq!(server.open(&first), Ok(packet.clone()), "{name}");
        if name != "none" {
            assert_ne!(first, second);
            assert_eq!(server.open(&first), Err(WrapError::Replay));
            assert_eq!(server.open(&second), Err(WrapError::Replay));
        }
        let answer = server.seal(&packet, 1000);
        assert_eq!(client.open(&answer), Ok(packet));
        // A sender cannot open its own packets, unless both directions have one key.
        let reflected = server.open(&answer);
        match name {
            "none" => assert!(reflected.is_ok()),
            // With one key for both directions, only the number reveals the reflection: the client has used it too.
            "tls-auth-sha512-both" => assert_eq!(reflected, Err(WrapError::Replay)),
            _ => assert_eq!(reflected, Err(WrapError::NotAuthentic), "{name}"),
        }
    }
}

#[test]
fn every_damage_is_found() {
    for name in ALL.into_iter().filter(|&name| name != "none") {
        let (mut client, mut server) = pair(name);
        let bytes = client.seal(&message(Opcode::ControlV1), 1000);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x80;
            assert!(server.open(&damaged).is_err(), "{name}, byte {at}");
            assert!(server.open(&bytes[..at]).is_err(), "{name}, {at} bytes");
        }
        assert!(server.open(&[&bytes[..], &[0]].concat()).is_err());
        // The refused packets have not used up the number.
        assert!(server.open(&bytes).is_ok());
        let long = [&bytes[..], &[0; MAX_CONTROL_LEN]].concat();
        assert_eq!(server.open(&long), Err(WrapError::TooLong(long.len())));
    }
}

#[test]
fn opcodes_with_a_client_key_are_for_servers_that_have_one() {
    for opcode in [Opcode::HardResetClientV3, Opcode::ControlWkcV1] {
        let (mut client, mut server) = pair("tls-crypt-v2");
        let bytes = client.seal(&message(opcode), 1000);
        assert_eq!(
            bytes.len(),
            message(opcode).emit().len() + client.overhead() + client.client_key_len()
        );
        assert_eq!(server.open(&bytes), Ok(message(opcode)));
        let refused = WrapError::ClientKey(ClientKeyError::NotConfigured);
        for name in ALL {
            let (mut client, mut server) = pair(name);
            assert_eq!(client.open(&bytes), Err(refused));
            if name != "tls-crypt-v2" {
                assert_eq!(server.open(&bytes), Err(refused));
            }
        }
        let settings = WrapSettings::tls_crypt(&static_key(), Role::Server);
        assert_eq!(settings.open_first(&bytes, 0).unwrap_err(), refused);
    }
}

/// A repeated client key that is cut off or has a false length is skipped or refused without reading beyond its ends:
/// CVE-2026-13698 of OpenVPN.
#[test]
fn cve_2026_13698_a_client_key_that_comes_again() {
    let (mut client, mut server) = pair("tls-crypt-v2");
    let bytes = client.seal(&message(Opcode::ControlWkcV1), 1000);
    for len in 0..bytes.len() {
        assert!(server.open(&bytes[..len]).is_err(), "{len} bytes");
    }
    let end = bytes.len() - 2;
    for length in [0, 1, 40, 289, 290, 291, 1023, 1024, 1025, 0xffff_u16] {
        let mut lying = bytes.clone();
        lying[end..].copy_from_slice(&length.to_be_bytes());
        assert!(server.open(&lying).is_err(), "length {length}");
    }
    // Only the length of the key is checked now; its content was checked when it first came.
    let mut other = bytes.clone();
    other[end - 50] ^= 1;
    assert!(server.open(&other).is_ok());
}

/// A reset for one client has no bytes of another client's packet: CVE-2026-40215 of OpenVPN was a reused buffer.
#[test]
fn cve_2026_40215_answers_have_nothing_of_other_clients() {
    let settings = WrapSettings::tls_crypt_v2_server(&server_key(), None);
    let mut client = Wrap::with(Keys::tls_crypt_v2_client(&client_key()));
    let mut long = message(Opcode::HardResetClientV3);
    long.payload = vec![0xee; 1000];
    settings.open_first(&client.seal(&long, 1000), 0).unwrap();
    let first = settings.open_first(&client.seal(&message(Opcode::HardResetClientV3), 1000), 0);
    let mut first = first.unwrap();
    let reply = ControlPacket {
        opcode: Opcode::HardResetServerV2,
        key_id: 0,
        session: session(9),
        acks: [0].into_iter().collect(),
        peer_session: Some(first.packet.session),
        message_id: Some(0),
        payload: EarlyNegotiation {
            resend_client_key: first.announces_early_negotiation(),
        }
        .emit(),
    };
    let bytes = first.wrap.seal(&reply, 1000);
    assert_eq!(bytes.len(), 9 + 8 + 32 + 1 + 4 + 8 + 4 + 6);
    assert_eq!(client.open(&bytes), Ok(reply));
}

/// The wrap of renegotiations owns its keys and outlives the session's wrap: CVE-2026-13117 of OpenVPN was a use after
/// free here.
#[test]
fn cve_2026_13117_the_dynamic_wrap_outlives_its_origin() {
    let (client, server) = pair("tls-crypt-v2");
    let mut dynamic = (
        client.dynamic(&[1; 256], Role::Client),
        server.dynamic(&[1; 256], Role::Server),
    );
    drop((client, server));
    let bytes = dynamic.0.seal(&message(Opcode::SoftResetV1), 5);
    assert!(dynamic.1.open(&bytes).is_ok());
    // A key file that differs between the ends, or an export that differs, yields other keys.
    let mut other = pair("tls-crypt").1.dynamic(&[1; 256], Role::Server);
    assert!(other.open(&bytes).is_err());
    let mut other = pair("tls-crypt-v2").1.dynamic(&[2; 256], Role::Server);
    assert!(other.open(&bytes).is_err());
    // Without a key file the key consists of the export alone.
    let mut plain = (
        Wrap::with(Keys::none()).dynamic(&[1; 256], Role::Client),
        Wrap::with(Keys::tls_crypt(&StaticKey::new(&[1; 256]), Role::Server)),
    );
    let bytes = plain.0.seal(&message(Opcode::SoftResetV1), 5);
    assert!(plain.1.open(&bytes).is_ok());
}

#[test]
fn a_server_without_state() {
    let settings =
        WrapSettings::tls_auth(&static_key(), KeyDirection::Normal, Digest::Sha1).unwrap();
    let (mut client, _) = pair("tls-auth-sha1");
    let mut reset = message(Opcode::HardResetClientV2);
    reset.acks = AckList::new();
    reset.peer_session = None;
    reset.message_id = Some(0);
    let bytes = client.seal(&reset, 1000);
    // Works any number of times: the settings remember no packet.
    for _ in 0..3 {
        let mut first = settings.open_first(&bytes, 1000).unwrap();
        assert_eq!(first.packet, reset);
        assert!(!first.announces_early_negotiation());
        // A session that begins with the packet does remember it.
        assert_eq!(first.wrap.open(&bytes), Err(WrapError::Replay));
    }
    let mut first = settings.open_first(&bytes, 1000).unwrap();
    let reply = first.wrap.seal(&message(Opcode::HardResetServerV2), 1001);
    client.open(&reply).unwrap();
    // The session continues after a reset that another wrap has sealed.
    let third = client.seal(&message(Opcode::ControlV1), 1002);
    let mut third = settings.open_first(&third, 1003).unwrap();
    third.wrap.skip_reset();
    let fourth = third.wrap.seal(&message(Opcode::ControlV1), 1001);
    client.open(&fourth).unwrap();
}

#[test]
fn which_clients_a_server_takes() {
    let key = static_key();
    let mut plain = Wrap::with(Keys::none());
    let mut crypt = Wrap::with(Keys::tls_crypt(&key, Role::Client));
    let mut v2 = Wrap::with(Keys::tls_crypt_v2_client(&client_key()));
    let reset = |opcode| ControlPacket {
        message_id: Some(0),
        ..message(opcode)
    };
    let packets = [
        plain.seal(&reset(Opcode::HardResetClientV2), 1),
        crypt.seal(&reset(Opcode::HardResetClientV2), 1),
        v2.seal(&reset(Opcode::HardResetClientV3), 1),
    ];
    let only_v2 = WrapSettings::tls_crypt_v2_server(&server_key(), None);
    let crypt = WrapSettings::tls_crypt(&key, Role::Server);
    let both = crypt.clone().and_tls_crypt_v2(&server_key(), None);
    for (settings, taken) in [
        (WrapSettings::none(), [true, false, false]),
        (crypt, [false, true, false]),
        (only_v2, [false, false, true]),
        (both, [false, true, true]),
    ] {
        for (packet, taken) in packets.iter().zip(taken) {
            // Without a wrap, the counter of tls-crypt is read as a message's number, and it is not 0.
            let begins = settings
                .open_first(packet, 1)
                .is_ok_and(|first| first.packet.begins_session());
            assert_eq!(begins, taken, "{settings:?}");
        }
    }
}

#[test]
fn keys_that_are_too_old() {
    const DAY: u64 = 86_400;
    let open = |text: &str, max_age: Option<u64>, now: u64| {
        let key = ClientKey::parse(text).unwrap();
        let bytes = Wrap::with(Keys::tls_crypt_v2_client(&key))
            .seal(&message(Opcode::HardResetClientV3), 1);
        let max_age = max_age.map(Duration::from_secs);
        WrapSettings::tls_crypt_v2_server(&server_key(), max_age)
            .open_first(&bytes, now)
            .map(|_| ())
    };
    let too_old = Err(WrapError::ClientKey(ClientKeyError::TooOld));
    let (_, metadata) = client_key::Wrapper::new(&server_key())
        .unwrap(client_key().wrapped())
        .unwrap();
    let made = metadata.made_at().unwrap();
    assert_eq!(open(CLIENT, None, u64::MAX), Ok(()));
    assert_eq!(open(CLIENT, Some(DAY), made + DAY), Ok(()));
    assert_eq!(open(CLIENT, Some(DAY), made + DAY + 1), too_old);
    assert_eq!(open(CLIENT, Some(DAY), made - DAY), Ok(()));
    assert_eq!(open(CLIENT, Some(0), u64::MAX), too_old);
    // This key has no timestamp.
    assert_eq!(open(USER, Some(u64::MAX), made), too_old);
    assert_eq!(open(USER, None, made), Ok(()));
    // A truncated time counts as missing.
    let short = Metadata::from_wire(&[1, 0, 0]);
    let key = ClientKey::generate(&server_key(), &short).unwrap();
    assert_eq!(open(&key.to_text(), Some(DAY), made), too_old);
}

#[test]
fn debug_shows_no_key() {
    for name in ALL {
        let shown = format!("{:?}", pair(name));
        assert!(shown.len() < 2500, "{name}: {shown}");
        let settings = WrapSettings::tls_crypt_v2_client(&client_key());
        assert!(!format!("{settings:?}").contains("StaticKey(["));
    }
}
