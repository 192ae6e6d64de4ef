//! Opens WireGuard's data packets: sealed and then damaged ones, and the input itself. A damaged packet
//! does not open, and no access goes beyond its bytes.
#![no_main]

use crypto::{Batch, Key, Packet};
use libfuzzer_sys::fuzz_target;
use plane::{Class, Protocol, Wire};
use wireguard::{DATA_HEADER_LEN, DataHeader, DataKeys, Reader, WireGuard};

const GUARD: [u8; 16] = [0xaa; 16];

fn keys() -> DataKeys {
    let key = |byte| Key::from([byte; 32]);
    DataKeys {
        remote_index: 7,
        seal: key(1),
        open: key(1),
        exchange: None,
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&[split, at, value], bytes)) = data.split_first_chunk() else {
        return;
    };
    let protocol = WireGuard::new();
    let Ok(formats) = protocol.formats(&keys());
    let mut memory = GUARD.to_vec();
    let mut packets = Vec::new();
    for (counter, inner) in (0..).zip(bytes.chunks(usize::from(split) * 8 + 1).take(16)) {
        let header = DataHeader {
            receiver: 7,
            counter,
        };
        memory.extend_from_slice(&header.emit());
        packets.push(Packet {
            start: memory.len() as u32,
            len: inner.len() as u32,
            counter,
            ..Packet::default()
        });
        memory.extend_from_slice(inner);
        memory.extend_from_slice(&[0; 16]);
    }
    memory.extend_from_slice(&GUARD);
    let plain = memory.clone();
    formats.seal.seal(&mut Batch {
        memory: &mut memory,
        packets: &mut packets,
    });
    let damaged = usize::from(at) * usize::from(split).max(1) % memory.len();
    memory[damaged] ^= value;
    for packet in &mut packets {
        let start = packet.start as usize - DATA_HEADER_LEN;
        let end = packet.start as usize + packet.len as usize + 16;
        let class = protocol.classify(&Reader::default(), &memory[start..end]);
        if !(start..end).contains(&damaged) {
            assert!(matches!(class, Class::Data { .. }));
        }
        packet.len += 16;
    }
    formats.open.open(&mut Batch {
        memory: &mut memory,
        packets: &mut packets,
    });
    for packet in &packets {
        let (start, len) = (packet.start as usize, packet.len as usize);
        let hit = value != 0 && (start..start + len + 16).contains(&damaged);
        assert_eq!(packet.authentic, !hit, "a packet that was damaged, or not");
        if packet.authentic {
            assert_eq!(memory[start..start + len], plain[start..start + len]);
        }
    }
});
