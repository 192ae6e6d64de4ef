//! Data packets of every cipher and layout: whatever a stranger sends is opened or refused, and never
//! reaches beyond its own bytes.

#![no_main]

use crypto::openvpn::{DataCipher, Digest, Format, KeyMaterial, legacy};
use crypto::{Batch, Packet};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&[cipher, digest, format, split], datagrams)) = data.split_first_chunk() else {
        return;
    };
    let cipher = DataCipher::ALL[usize::from(cipher) % DataCipher::ALL.len()];
    let digest = Digest::ALL[usize::from(digest) % Digest::ALL.len()];
    let format = [Format::V1, Format::V2, Format::Epoch][usize::from(format) % 3];
    let keys = KeyMaterial {
        cipher: [1; 64],
        hmac: [2; 64],
    };
    let Ok(opener) = legacy::data_channel(cipher, digest, &keys, format) else {
        return;
    };
    let header = if format == Format::V1 { 1 } else { 4 };
    // Several packets in one batch, of lengths that the input chooses.
    let mut memory = vec![0xaa; 16];
    let mut packets = Vec::new();
    for datagram in datagrams.chunks(usize::from(split) * 8 + 1).take(64) {
        memory.extend_from_slice(&[0; 4][..header]);
        packets.push(Packet {
            start: memory.len() as u32,
            len: datagram.len() as u32,
            ..Packet::default()
        });
        memory.extend_from_slice(datagram);
    }
    let end = memory.len();
    memory.extend_from_slice(&[0xaa; 16]);
    let places: Vec<_> = packets.iter().map(|p| (p.start, p.len)).collect();
    opener.open(&mut Batch {
        memory: &mut memory,
        packets: &mut packets,
    });
    assert!(
        memory[..16]
            .iter()
            .chain(&memory[end..])
            .all(|byte| *byte == 0xaa)
    );
    for (packet, (start, len)) in packets.iter().zip(places) {
        if packet.authentic {
            assert!(packet.start >= start && packet.start + packet.len <= start + len);
        }
    }
});
