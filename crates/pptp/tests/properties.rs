//! Untrusted bytes cause no panic and use bounded memory; written messages are read back unchanged.

#![allow(clippy::unwrap_used)]

use proptest::collection::vec;
use proptest::prelude::*;

use pptp::control::{COOKIE, Message};
use pptp::gre::{Header, Packet};
use pptp::lines::{Addresses, Kind, Probe, ProbeKey, Prober, is_probe};
use pptp::ppp::{Framing, parse_frame};
use pptp::{fuzz, session};

/// Random bytes behind lengths, codes and numbers that parsers look for.
fn pieces(heads: &'static [&'static [u8]]) -> impl Strategy<Value = Vec<u8>> {
    let piece = (0..heads.len(), vec(any::<u8>(), 0..40));
    vec(piece, 0..30).prop_map(move |pieces| {
        let mut bytes = Vec::new();
        for (head, tail) in pieces {
            let piece = [heads[head], &tail].concat();
            bytes.push(piece.len() as u8);
            bytes.extend(piece);
        }
        bytes
    })
}

/// A control connection message with arbitrary fields.
fn message() -> impl Strategy<Value = Vec<u8>> {
    (0_u16..17, vec(any::<u8>(), 220)).prop_map(|(kind, mut bytes)| {
        let len = Message::len_of(kind).unwrap_or(16);
        bytes.truncate(len);
        bytes[..2].copy_from_slice(&(len as u16).to_be_bytes());
        bytes[2..4].copy_from_slice(&[0, 1]);
        bytes[4..8].copy_from_slice(&COOKIE.to_be_bytes());
        bytes[8..10].copy_from_slice(&kind.to_be_bytes());
        bytes
    })
}

/// The start of a packet for the call of `fuzz::session`, whose random bytes are all 7.
const SESSION: &[&[u8]] = &[
    &[
        0x30, 0x01, 0x88, 0x0b, 0, 20, 7, 7, 0, 0, 0, 0, 0xff, 0x03, 0xc0, 0x21, 1, 1, 0, 8,
    ],
    &[
        0x30, 0x01, 0x88, 0x0b, 0, 12, 7, 7, 0, 0, 0, 1, 0xff, 0x03, 0xc0, 0x21, 1, 2, 0, 4,
    ],
    &[
        0x30, 0x01, 0x88, 0x0b, 0, 12, 7, 7, 0, 0, 0, 2, 0xff, 0x03, 0xc0, 0x21, 5, 2, 0, 4,
    ],
    &[
        0x30, 0x81, 0x88, 0x0b, 0, 10, 7, 7, 0, 0, 0, 3, 0, 0, 0, 0, 0xc2, 0x23,
    ],
    &[
        0x30, 0x01, 0x88, 0x0b, 0, 17, 7, 7, 0, 0, 0, 4, 0xff, 0x03, 0xc0, 0x21, 0, 1, 0, 13, 0, 0,
        0, 0, 2, b'M', b'R',
    ],
    &[
        0x20, 0x01, 0x88, 0x0b, 0, 44, 7, 7, b'M', b'R', b'L', b'1', 1, 0, 0, 0,
    ],
    &[],
];

proptest! {
    #[test]
    fn the_control_connection(bytes in vec(message(), 0..40)) {
        fuzz::control(&bytes.concat());
    }

    #[test]
    fn the_control_connection_of_noise(bytes in vec(any::<u8>(), 0..600)) {
        fuzz::control(&bytes);
    }

    #[test]
    fn one_message(bytes in message()) {
        if let Ok(message) = Message::parse(&bytes) {
            let mut written = Vec::new();
            message.write(&mut written);
            prop_assert_eq!(written.len(), bytes.len());
            prop_assert_eq!(Message::parse(&written), Ok(message));
        }
    }

    #[test]
    fn packets_of_gre(bytes in pieces(&[&[0x30, 0x01, 0x88, 0x0b, 0, 1, 0, 1], &[0x30, 0x81, 0x88, 0x0b], &[]])) {
        fuzz::gre(&bytes);
    }

    #[test]
    fn a_probe(kind in 0..3_u8, line in 0..16_u8, used: u8, lines: u16, to: u16, from: u16, number: u64, token: u64) {
        let kind = match kind {
            0 => Kind::Probe,
            it => Kind::Answer { accepted: it == 1 },
        };
        let key = ProbeKey::new([5; 32].into());
        let probe = Probe { kind, line, used, lines, to, from, number, token };
        let bytes = probe.write(&key);
        prop_assert!(is_probe(&bytes));
        prop_assert_eq!(Probe::read(&bytes, &key), Some(probe));
        prop_assert_eq!(Probe::read(&bytes, &ProbeKey::new([6; 32].into())), None);
        // Without its token a probe is ignored, whatever else it contains.
        let secret = ProbeKey::new([7; 32].into());
        let mut addresses = Addresses::new(key.clone(), secret, to, from);
        let now = std::time::Instant::now();
        let probed = addresses.probed(std::net::Ipv4Addr::new(192, 0, 2, 1).into(), &bytes, now);
        prop_assert!(!probed.is_ok_and(|it| it.accepted));
        prop_assert_eq!(Prober::new(key, to, from).answered(&bytes, now), None);
    }

    #[test]
    fn a_header_of_gre(call_id: u16, sequence: Option<u32>, acknowledgement: Option<u32>, payload in vec(any::<u8>(), 0..50)) {
        let header = Header { call_id, sequence, acknowledgement };
        let (bytes, len) = header.write(payload.len() as u16);
        prop_assert_eq!(len, header.header_len());
        let whole = [&bytes[..len], &payload].concat();
        match Packet::parse(&whole) {
            Ok(packet) => {
                prop_assert_eq!(packet.header, header);
                prop_assert_eq!(&whole[packet.payload], &payload[..]);
            }
            Err(_) => prop_assert!(sequence.is_none() && !payload.is_empty()),
        }
    }

    #[test]
    fn frames(bytes in pieces(&[&[1, 1, 0, 10], &[1, 2, 0, 10, 3, 6], &[3, 1, 0, 10], &[4, 1, 0, 4], &[2, 1, 0, 10], &[5, 1, 0, 4], &[1, 1, 0, 10, 18, 6], &[]])) {
        fuzz::ppp(&bytes);
    }

    #[test]
    fn encrypted_packets(bytes in pieces(&[&[0x90, 0], &[0x90, 1], &[0x10, 0], &[0x10, 1], &[0x9f, 0xff], &[]])) {
        fuzz::mppe(&bytes);
    }

    #[test]
    fn logins(head in 0_u8..9, id: u8, tail in vec(any::<u8>(), 0..80)) {
        let len = tail.len() as u8 + 4;
        fuzz::login(&[&[head, id, 0, len], &tail[..]].concat());
        fuzz::login(&tail);
    }

    #[test]
    fn sessions(bytes in pieces(SESSION)) {
        fuzz::session(&bytes);
    }

    #[test]
    fn framing(acfc: bool, pfc: bool, number in 0_u16..0x8000) {
        // A protocol number's lower byte is odd, and its upper byte even.
        let number = (number << 1 | 1) & 0xfeff;
        let (bytes, len) = Framing { acfc, pfc }.header(number);
        let whole = [&bytes[..len], &[0]].concat();
        prop_assert_eq!(parse_frame(&whole), Some((number, len)));
    }

    #[test]
    fn the_mtu_never_exceeds_the_path(path: u16, mru: u16, encrypted: bool) {
        let mtu = session::mtu(path, mru, encrypted);
        prop_assert!(mtu <= path && mtu <= mru);
    }
}
