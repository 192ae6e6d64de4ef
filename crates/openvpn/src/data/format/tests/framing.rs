//! Compression framing.

use proptest::prelude::*;

use crate::data::format::*;

const ALL: [Framing; 4] = [Framing::None, Framing::Lzo, Framing::Swap, Framing::V2];

fn framed(framing: Framing, packet: &[u8]) -> Vec<u8> {
    let mut buffer = [&[0; 2][..], packet, &[0]].concat();
    let at = framing.frame(&mut buffer, 2..2 + packet.len()).unwrap();
    buffer[at].to_vec()
}

fn unframed(framing: Framing, bytes: &[u8]) -> Result<Vec<u8>, Unframed> {
    let mut buffer = bytes.to_vec();
    match framing.unframe(&mut buffer, 0..bytes.len()) {
        Unframed::Payload(at) => Ok(buffer[at].to_vec()),
        other => Err(other),
    }
}

#[test]
fn on_the_wire() {
    let packet = [0x45, 1, 2];
    assert_eq!(framed(Framing::None, &packet), packet);
    assert_eq!(framed(Framing::Lzo, &packet), [0xfa, 0x45, 1, 2]);
    assert_eq!(framed(Framing::Swap, &packet), [0xfb, 1, 2, 0x45]);
    assert_eq!(framed(Framing::V2, &packet), packet);
    assert_eq!(framed(Framing::V2, &[0x50, 9]), [0x50, 0, 0x50, 9]);
    assert_eq!(framed(Framing::Swap, &[0x45]), [0xfb, 0x45]);
}

#[test]
fn compressed_packets_are_told_from_other_framings() {
    use Compression::{Lz4, Lzo};
    let compressed = |framing, bytes: &[u8]| unframed(framing, bytes).unwrap_err();
    assert_eq!(
        compressed(Framing::Lzo, &[0x66, 1, 2]),
        Unframed::Compressed(Lzo)
    );
    assert_eq!(
        compressed(Framing::Swap, &[0x69, 1, 2]),
        Unframed::Compressed(Lz4)
    );
    assert_eq!(
        compressed(Framing::V2, &[0x50, 1, 2]),
        Unframed::Compressed(Lz4)
    );
    assert_eq!(
        compressed(Framing::V2, &[0x50, 2, 2]),
        Unframed::Compressed(Lzo)
    );
    for (framing, bytes) in [
        (Framing::Lzo, &[0x45, 0, 0][..]),
        (Framing::Lzo, &[0xfb, 0, 0]),
        (Framing::Lzo, &[]),
        (Framing::Swap, &[0x45, 0, 0]),
        (Framing::Swap, &[0xfa, 0, 0]),
        (Framing::Swap, &[0xfb]),
        (Framing::Swap, &[]),
        (Framing::V2, &[0x50]),
        (Framing::V2, &[0x50, 3]),
        (Framing::V2, &[]),
    ] {
        assert_eq!(
            compressed(framing, bytes),
            Unframed::Malformed,
            "{framing:?} {bytes:?}"
        );
    }
    // The stock sender escapes with another number than the stock receiver expects.
    assert_eq!(unframed(Framing::V2, &[0x50, 10, 0x50]), Ok(vec![0x50]));
}

/// A packet as each framing carries it compressed.
fn compressed(framing: Framing, packet: &[u8]) -> Vec<u8> {
    let lz4 = lz4_flex::block::compress(packet);
    match framing {
        Framing::Swap => [&[LZ4_COMPRESSED], &lz4[1..], &lz4[..1]].concat(),
        Framing::V2 => [&[V2_INDICATOR, V2_LZ4][..], &lz4].concat(),
        // A run of literals, as for data that cannot be compressed.
        _ => {
            let run = [&[LZO_COMPRESSED, 0, packet.len() as u8 - 18][..], packet];
            [&run.concat()[..], &[17, 0, 0]].concat()
        }
    }
}

#[test]
fn what_the_peer_compressed_comes_out_within_the_room_and_not_beyond() {
    let packet: Vec<u8> = (0..200).map(|at| at / 8).collect();
    for framing in [Framing::Lzo, Framing::Swap, Framing::V2] {
        let wire = compressed(framing, &packet);
        let unpack = |room| {
            let mut unpacked = vec![0; room];
            let len = framing.unpack(&mut wire.clone(), &mut unpacked)?;
            unpacked.truncate(len);
            Some(unpacked)
        };
        assert_eq!(unpack(200).as_ref(), Some(&packet), "{framing:?}");
        assert_eq!(unpack(1500).as_ref(), Some(&packet), "{framing:?}");
        for room in [0, 1, 199] {
            assert_eq!(unpack(room), None, "{framing:?}");
        }
        for other in ALL.into_iter().filter(|other| *other != framing) {
            assert_eq!(other.unpack(&mut wire.clone(), &mut [0; 1500]), None);
        }
    }
    for (framing, wire) in [
        (Framing::Swap, &mut [LZ4_COMPRESSED][..]),
        (Framing::Lzo, &mut [LZO_COMPRESSED]),
        (Framing::V2, &mut [V2_INDICATOR, V2_LZ4]),
        (Framing::V2, &mut [V2_INDICATOR, V2_LZO]),
        (Framing::Lzo, &mut []),
    ] {
        assert_eq!(framing.unpack(wire, &mut [0; 1500]), None);
    }
}

#[test]
fn room_is_checked() {
    for framing in [Framing::Lzo, Framing::V2] {
        assert_eq!(framing.frame(&mut [0x50, 0], 0..2), None);
    }
    assert_eq!(Framing::Swap.frame(&mut [0x45, 0], 0..2), None);
    for framing in ALL {
        assert_eq!(framing.frame(&mut [0; 4], 2..2), None);
        assert_eq!(framing.frame(&mut [0; 4], 2..5), None);
        assert_eq!(framing.unframe(&mut [0; 4], 2..5), Unframed::Malformed);
    }
}

proptest! {
    #[test]
    fn comes_back(packet in prop::collection::vec(any::<u8>(), 1..50), first in prop::sample::select(&[0x45, 0x50, 0x60, 0xfa, 0xfb][..])) {
        let mut packet = packet;
        packet[0] = first;
        for framing in ALL {
            let bytes = framed(framing, &packet);
            prop_assert_eq!(unframed(framing, &bytes), Ok(packet.clone()));
        }
    }

    #[test]
    fn anything_at_all(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
        for framing in ALL {
            if let Ok(packet) = unframed(framing, &bytes) {
                prop_assert!(packet.len() <= bytes.len());
            }
            let mut unpacked = [0; 100];
            let len = framing.unpack(&mut bytes.clone(), &mut unpacked);
            prop_assert!(len.is_none_or(|len| len <= 100));
        }
    }
}
