//! Data packets of every cipher and layout: the receiver opens or refuses whatever a stranger sends, and
//! never reaches beyond its bytes.

#![no_main]

use crypto::{Batch, Cipher, Digest, Packet};
use libfuzzer_sys::fuzz_target;
use openvpn::data::cipher;
use openvpn::data::wire::Layout;
use openvpn::keys::KeyMaterial;

fuzz_target!(|data: &[u8]| {
    let Some((&[cipher, digest, layout, split], datagrams)) = data.split_first_chunk() else {
        return;
    };
    let cipher = Cipher::ALL[usize::from(cipher) % Cipher::ALL.len()];
    let digest = Digest::ALL[usize::from(digest) % Digest::ALL.len()];
    let peer_id = 0;
    let layouts = [
        Layout::V1,
        Layout::V2 { peer_id },
        Layout::Epoch { peer_id },
    ];
    let layout = layouts[usize::from(layout) % 3];
    let keys = KeyMaterial {
        cipher: [1; 64],
        hmac: [2; 64],
    };
    let Ok(opener) = cipher::new_insecure(cipher, digest, &keys, layout) else {
        return;
    };
    let header = layout.header_len();
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
