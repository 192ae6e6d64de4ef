//! Control packets under every wrap: as strangers send them, and as a peer that has the keys does.
//!
//! The first byte chooses the wrap, and whether the rest is a datagram as it is or a packet that the peer seals. What
//! opens goes on to the windows and to the server's cookie.
#![no_main]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crypto::Digest;
use openvpn::cookie::CookieKeeper;
use openvpn::keyfile::{KeyDirection, StaticKey};
use openvpn::packet::{ControlPacket, EarlyNegotiation};
use openvpn::reliable::{Acks, Message, RECEIVE_WINDOW, ReceiveWindow, SendWindow};
use openvpn::role::Role;
use openvpn::wrap::{Wrap, WrapSettings};

fn pair(kind: u8) -> (Wrap, Wrap) {
    let key = StaticKey::new(&[0x5a; 256]);
    let auth = |digest| {
        let end = |direction| {
            WrapSettings::tls_auth(&key, direction, digest)
                .expect("it is not none")
                .wrap()
        };
        (end(KeyDirection::Inverse), end(KeyDirection::Normal))
    };
    let crypt = || {
        (
            WrapSettings::tls_crypt(&key, Role::Client).wrap(),
            WrapSettings::tls_crypt(&key, Role::Server).wrap(),
        )
    };
    match kind % 8 {
        0..=2 => (WrapSettings::none().wrap(), WrapSettings::none().wrap()),
        3 => auth(Digest::Sha1),
        4 => auth(Digest::Sha512),
        5 | 6 => crypt(),
        _ => {
            let (client, server) = auth(Digest::Md5);
            (
                client.dynamic(&[1; 256], Role::Client),
                server.dynamic(&[1; 256], Role::Server),
            )
        }
    }
}

fn go_on(packet: ControlPacket, now: Instant) {
    let from = SocketAddr::from(([192, 0, 2, 1], 1));
    let cookies = CookieKeeper::new(&[3; 32], Duration::from_secs(60), now);
    assert!(
        cookies.check(&packet, from, now).is_err(),
        "a cookie was guessed"
    );
    let _ = EarlyNegotiation::parse(&packet.payload);
    let mut sent = SendWindow::new(Duration::from_secs(2));
    while sent.push(packet.opcode, Vec::new(), now).is_ok() {}
    sent.acknowledge(&packet.acks, now);
    assert!(sent.pop_due(now).is_some() || sent.is_empty());
    let Some(id) = packet.message_id else {
        return;
    };
    let mut received = ReceiveWindow::new();
    let mut acks = Acks::new();
    let message = Message {
        opcode: packet.opcode,
        payload: packet.payload,
    };
    if received.insert(id, message).is_acknowledged() {
        acks.push(id);
        assert_eq!(acks.take(4).as_slice(), [id]);
    }
    assert_eq!(received.pop().is_some(), id == 0);
    assert!((received.next_id() as usize) < RECEIVE_WINDOW);
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&kind, bytes)) = data.split_first() else {
        return;
    };
    let now = Instant::now();
    let (mut client, mut server) = pair(kind);
    if kind & 0x80 == 0 {
        if let Ok(packet) = server.open(bytes) {
            assert!(kind % 8 < 3, "a forgery was taken");
            assert_eq!(packet.emit(), bytes);
            go_on(packet, now);
        }
        let key = StaticKey::new(&[0x5a; 256]);
        let _ = WrapSettings::tls_crypt(&key, Role::Server).open_first(bytes, 0);
        return;
    }
    let Ok(packet) = ControlPacket::parse(bytes) else {
        return;
    };
    assert_eq!(packet.emit(), bytes);
    let sealed = client.seal(&packet, 1_700_000_000);
    assert_eq!(sealed.len(), bytes.len() + client.overhead());
    match server.open(&sealed) {
        Ok(opened) => {
            assert_eq!(opened, packet);
            go_on(opened, now);
        }
        // The packet should end in a wrapped key and does not, or is too long.
        Err(_) => assert!(packet.opcode.carries_client_key() || sealed.len() > 4096),
    }
});
