//! Reads the content of a peer's data packets: fragments, compression framing, in-band messages, TCP options.
#![no_main]

use std::time::{Duration, Instant};

use openvpn::data::format::{Framing, Unframed};
use openvpn::data::fragment::{Fragmenter, Reassembled, Reassembler};
use openvpn::data::inband::InBand;
use plane::mss;

const MOST: usize = 1600;

fn inside(framing: Framing, payload: &[u8]) {
    let mut packet = payload.to_vec();
    let len = packet.len();
    let Unframed::Payload(at) = framing.unframe(&mut packet, 0..len) else {
        return;
    };
    let packet = &mut packet[at];
    let _ = InBand::of(packet);
    let before = packet.to_vec();
    if mss::clamp(packet, 1000) {
        assert!(!mss::clamp(packet, 1000), "clamped twice");
    } else {
        assert_eq!(before, packet);
    }
    // The unframed payload is framed again.
    let mut buffer = [
        &[0; Framing::HEAD_ROOM][..],
        &before,
        &[0; Framing::TAIL_ROOM],
    ]
    .concat();
    let place = Framing::HEAD_ROOM..Framing::HEAD_ROOM + before.len();
    if let Some(at) = framing.frame(&mut buffer, place) {
        let Unframed::Payload(at) = framing.unframe(&mut buffer, at) else {
            panic!("our own framing is refused");
        };
        assert_eq!(buffer[at], before);
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&how, mut rest)) = data.split_first() else {
        return;
    };
    let framing = [Framing::None, Framing::Lzo, Framing::Swap, Framing::V2][usize::from(how % 4)];
    let mut reassembler = Reassembler::new(MOST);
    let mut fragmenter = Fragmenter::new(usize::from(how) * 4, how);
    let mut now = Instant::now();
    // Packets one after the other, each after its length in two bytes.
    while let Some((&length, after)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_be_bytes(length)).min(MOST);
        let Some((packet, after)) = after.split_at_checked(len) else {
            return;
        };
        match reassembler.receive(packet, now) {
            Ok(Reassembled::Whole) => inside(framing, &packet[4..]),
            Ok(Reassembled::Complete(whole)) => {
                assert!(whole.len() <= MOST);
                inside(framing, whole);
            }
            Ok(Reassembled::Waiting) => {}
            Err(_) => inside(framing, packet),
        }
        assert!(reassembler.waiting() <= 25);
        if let Ok(pieces) = fragmenter.cut(packet.len()) {
            let len: usize = pieces.map(|piece| piece.range.len()).sum();
            assert_eq!(len, packet.len());
        }
        now += Duration::from_millis(len as u64);
        reassembler.expire(now);
        rest = after;
    }
});
