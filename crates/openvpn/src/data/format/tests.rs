mod framing;

use super::*;
use crate::data::wire::Layout;
use crate::keys::KeyMaterial;
use crypto::{Cipher, Digest};

const INNER: [u8; 5] = [0x45, 1, 2, 3, 4];

fn material(byte: u8) -> KeyMaterial {
    KeyMaterial {
        cipher: [byte; 64],
        hmac: [byte ^ 0xff; 64],
    }
}

fn keys(cipher: Cipher, layout: Layout, back: bool) -> DataKeys {
    let (send, receive) = if back { (2, 1) } else { (1, 2) };
    DataKeys {
        key_id: 3,
        cipher,
        auth: Digest::Sha256,
        layout,
        send: material(send),
        receive: material(receive),
    }
}

/// Seals payloads as the engine does, and returns the datagrams.
fn seal(format: &DataFormat, payloads: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut memory = Vec::new();
    let mut packets = Vec::new();
    let mut datagrams = Vec::new();
    for (n, payload) in payloads.iter().enumerate() {
        let begin = memory.len();
        memory.resize(begin + format.head(), 0);
        packets.push(Packet {
            start: memory.len() as u32,
            len: payload.len() as u32,
            counter: n as u64,
            authentic: false,
        });
        memory.extend_from_slice(payload);
        memory.resize(memory.len() + format.tail(payload.len()), 0);
        datagrams.push(begin..memory.len());
    }
    format.seal(&mut Batch {
        memory: &mut memory,
        packets: &mut packets,
    });
    datagrams.into_iter().map(|d| memory[d].to_vec()).collect()
}

/// Opens a datagram whose header has `header` bytes.
fn open(format: &DataFormat, header: usize, mut datagram: Vec<u8>) -> Option<(Payload, Vec<u8>)> {
    let len = datagram.len() - header;
    let mut packets = [Packet {
        start: header as u32,
        len: len as u32,
        ..Packet::default()
    }];
    format.open(&mut Batch {
        memory: &mut datagram,
        packets: &mut packets,
    });
    if !packets[0].authentic {
        return None;
    }
    let kind = format.reveal(&mut datagram, &mut packets[0]);
    let start = packets[0].start as usize;
    Some((
        kind,
        datagram[start..start + packets[0].len as usize].to_vec(),
    ))
}

#[test]
fn every_layout_and_framing_comes_back() {
    let ciphers = [
        Cipher::Aes256Gcm,
        Cipher::ChaCha20Poly1305,
        Cipher::Aes128Cbc,
    ];
    let layouts = [
        (Layout::V1, 1),
        (Layout::V2 { peer_id: 7 }, 4),
        (Layout::Epoch { peer_id: 7 }, 4),
    ];
    for cipher in ciphers {
        for (layout, header) in layouts {
            if matches!(layout, Layout::Epoch { .. }) && !cipher.is_aead() {
                continue;
            }
            for framing in [Framing::None, Framing::Lzo, Framing::Swap, Framing::V2] {
                for stream in [false, true] {
                    let shape = Shape {
                        framing,
                        stream,
                        ..Shape::default()
                    };
                    let ours = keys(cipher, layout, false);
                    let theirs = keys(cipher, layout, true);
                    let (out, _) = DataFormat::pair(&ours, &shape, false).unwrap();
                    let (_, back) = DataFormat::pair(&theirs, &shape, false).unwrap();
                    let payloads: [&[u8]; 2] = [&INNER, &PING];
                    let mut kinds = [Payload::Inner, Payload::Keepalive].into_iter();
                    for (mut datagram, payload) in seal(&out, &payloads).into_iter().zip(payloads) {
                        if stream {
                            let rest = datagram.split_off(RECORD_HEADER_LEN);
                            let len = u16::from_be_bytes([datagram[0], datagram[1]]);
                            assert_eq!(usize::from(len), rest.len());
                            datagram = rest;
                        }
                        let opened = open(&back, header, datagram);
                        let wanted = (kinds.next().unwrap(), payload.to_vec());
                        assert_eq!(opened, Some(wanted), "{cipher:?} {layout:?} {framing:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn packets_are_cut_and_joined_across_keys() {
    let shape = || Shape {
        framing: Framing::Lzo,
        fragments: Some(Arc::new(Fragments::new(100, 2000))),
        ..Shape::default()
    };
    let layout = Layout::V2 { peer_id: 0 };
    let (ours, theirs) = (shape(), shape());
    let pair = |back, shape| {
        DataFormat::pair(&keys(Cipher::Aes256Gcm, layout, back), shape, false).unwrap()
    };
    let ((out, _), (_, back)) = (pair(false, &ours), pair(true, &theirs));
    let (_, later) = pair(true, &theirs);
    let mut packet = vec![0x45; 333];
    packet[332] = 9;
    let mut pieces = Vec::new();
    out.split(&packet, &mut |header, piece| {
        pieces.push([header, piece].concat());
    });
    assert_eq!(pieces.len(), 4);
    let payloads: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
    let (mut joined, mut whole) = (Joined::Waits, Vec::new());
    for datagram in seal(&out, &payloads) {
        let (kind, piece) = open(&back, 4, datagram).unwrap();
        assert_eq!(kind, Payload::Piece);
        assert_eq!(joined, Joined::Waits);
        // The key may have changed between two pieces.
        joined = later.join(&piece, &mut whole);
    }
    assert_eq!((joined, whole), (Joined::Packet, packet));
    let mut whole = Vec::new();
    out.split(&INNER, &mut |header, piece| {
        whole.push([header, piece].concat());
    });
    let datagram = seal(&out, &[&whole[0]]).remove(0);
    assert_eq!(
        open(&back, 4, datagram),
        Some((Payload::Inner, INNER.to_vec()))
    );
}

#[test]
fn the_digest_that_was_agreed_on_is_the_one_that_authenticates() {
    for auth in Digest::ALL {
        let of = |back| DataKeys {
            auth,
            ..keys(Cipher::Aes128Cbc, Layout::V1, back)
        };
        let shape = Shape::default();
        let (out, _) = DataFormat::pair(&of(false), &shape, true).unwrap();
        let (_, back) = DataFormat::pair(&of(true), &shape, true).unwrap();
        let datagram = seal(&out, &[&INNER]).remove(0);
        // Opcode, code, IV, and one block of number, payload and padding.
        assert_eq!(datagram.len(), 1 + auth.len() + 16 + 16, "{auth}");
        let opened = open(&back, 1, datagram);
        assert_eq!(opened, Some((Payload::Inner, INNER.to_vec())), "{auth}");
    }
}

#[test]
fn broken_ciphers_need_the_switch() {
    let keys = keys(Cipher::BlowfishCbc, Layout::V1, false);
    assert!(DataFormat::pair(&keys, &Shape::default(), false).is_err());
    assert!(DataFormat::pair(&keys, &Shape::default(), true).is_ok());
}

#[test]
fn a_compressed_packet_is_unpacked_within_its_bound_and_an_unframed_one_is_refused() {
    let layout = Layout::V1;
    // A byte of literals, which is repeated 99 times.
    let packed = [0x66, 18, 0x45, 0x20, 66, 0, 0, 17, 0, 0];
    // Payloads of a peer that frames and compresses by itself.
    let plain = Shape::default();
    let keys = |back| keys(Cipher::Aes128Gcm, layout, back);
    let (out, _) = DataFormat::pair(&keys(false), &plain, false).unwrap();
    let opened = |unpacked_max, fragments: bool, payload: &[u8]| {
        let shape = Shape {
            framing: Framing::Lzo,
            fragments: fragments.then(|| Arc::new(Fragments::new(1000, 2000))),
            unpacked_max,
            ..Shape::default()
        };
        let (_, back) = DataFormat::pair(&keys(true), &shape, false).unwrap();
        let datagram = seal(&out, &[payload]).remove(0);
        let (kind, piece) = open(&back, 1, datagram)?;
        let mut whole = vec![1, 2, 3];
        (kind == Payload::Piece).then(|| (back.join(&piece, &mut whole), whole))
    };
    let whole = vec![0x45; 100];
    let unpacked = Some((Joined::Unpacked, whole));
    for room in [100, 1500] {
        assert_eq!(opened(room, false, &packed), unpacked);
        let behind_head = [&[0; 4][..], &packed].concat();
        assert_eq!(opened(room, true, &behind_head), unpacked);
    }
    for (room, payload) in [(0, &packed[..]), (99, &packed), (1500, &packed[..9])] {
        let joined = opened(room, false, payload).map(|(joined, _)| joined);
        assert_eq!(joined, Some(Joined::Compressed));
    }
    // An IP packet and a ping without the framing.
    for payload in [&[0x45; 100][..], &PING] {
        let joined = opened(1500, false, payload).map(|(joined, _)| joined);
        assert_eq!(joined, Some(Joined::Unframed));
    }
}
