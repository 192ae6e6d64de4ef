//! Tests random batches of mixed lengths against an independent implementation of the same cipher.

use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{ChaCha20Poly1305 as Reference, KeyInit, Nonce};
use crypto::packet_aead::{self, AeadLayout};
use crypto::{Backend, Batch, Cipher, Packet, PacketCipher, TAG_LEN};
use proptest::prelude::*;
use std::sync::Arc;

/// Returns a ChaCha20-Poly1305 cipher whose packets carry no packet number, or `None` if the machine lacks the backend.
fn cipher(backend: Option<Backend>, key: &[u8; 32]) -> Option<Arc<dyn PacketCipher>> {
    packet_aead::new(backend, Cipher::ChaCha20Poly1305, key, AeadLayout::NoNumber)
}

/// A planned packet: the gap before it, its payload, its counter, and the bit that the wire flips, if any.
type Plan = (usize, Vec<u8>, u64, Option<usize>);

fn plan() -> impl Strategy<Value = Plan> {
    let text = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..100),
        2 => prop::collection::vec(any::<u8>(), 0..2000),
        1 => prop::collection::vec(any::<u8>(), 1400..1500),
    ];
    (
        0..40_usize,
        text,
        any::<u64>(),
        prop::option::weighted(0.3, any::<usize>()),
    )
}

/// Generates runs of equal-length packets, which the cipher may process together. Payload, counter and flipped bit
/// differ within a run.
fn runs() -> impl Strategy<Value = Vec<Plan>> {
    let run = (plan(), 1..24_usize).prop_map(|((gap, text, counter, turned), count)| {
        (0..count)
            .map(|number| {
                let text = text.iter().map(|byte| byte ^ number as u8).collect();
                let turned = turned.filter(|bit| (bit >> number) & 1 == 0);
                (gap, text, counter.wrapping_add(number as u64), turned)
            })
            .collect::<Vec<_>>()
    });
    prop::collection::vec(run, 0..6).prop_map(|runs| runs.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sealing_and_opening_match_the_reference(
        key: [u8; 32],
        plans in prop_oneof![prop::collection::vec(plan(), 0..20), runs()],
        backend in prop::sample::select(vec![None, Some(Backend::Portable), Some(Backend::Simd)]),
    ) {
        let cipher = cipher(backend, &key).or_else(|| cipher(None, &key)).unwrap();
        let reference = Reference::new(&key.into());
        let mut memory = Vec::new();
        let mut packets = Vec::new();
        let mut expected = Vec::new();
        for (gap, text, counter, _) in &plans {
            memory.resize(memory.len() + gap, 0xee);
            expected.resize(memory.len(), 0xee);
            packets.push(Packet {
                start: memory.len() as u32,
                len: text.len() as u32,
                counter: *counter,
                authentic: false,
            });
            memory.extend_from_slice(text);
            memory.resize(memory.len() + TAG_LEN, 0);

            let mut nonce = [0; 12];
            nonce[4..].copy_from_slice(&counter.to_le_bytes());
            let start = expected.len();
            expected.extend_from_slice(text);
            let tag = reference
                .encrypt_inout_detached(&Nonce::from(nonce), &[], expected[start..].as_mut().into())
                .unwrap();
            expected.extend_from_slice(&tag);
        }

        cipher.seal(&mut Batch { memory: &mut memory, packets: &mut packets });
        prop_assert_eq!(&memory, &expected);

        for (packet, (_, text, _, turned)) in packets.iter_mut().zip(&plans) {
            packet.len += TAG_LEN as u32;
            if let Some(bit) = turned {
                let bit = bit % ((text.len() + TAG_LEN) * 8);
                memory[packet.start as usize + bit / 8] ^= 1 << (bit % 8);
            }
        }
        cipher.open(&mut Batch { memory: &mut memory, packets: &mut packets });
        for (packet, (_, text, _, turned)) in packets.iter().zip(&plans) {
            let found = &memory[packet.start as usize..][..text.len()];
            prop_assert_eq!(packet.authentic, turned.is_none());
            if packet.authentic {
                prop_assert_eq!(packet.len as usize, text.len());
                prop_assert_eq!(found, &text[..]);
            } else {
                prop_assert!(found.iter().all(|&byte| byte == 0));
            }
        }
    }

    #[test]
    fn no_range_panics_when_opening(key: [u8; 32], ranges in prop::collection::vec(any::<(u32, u32)>(), 0..8)) {
        let mut memory = [0; 64];
        let mut packets: Vec<_> = ranges
            .iter()
            .map(|&(start, len)| Packet { start: start % 80, len: len >> (start % 32), ..Packet::default() })
            .collect();
        cipher(None, &key).unwrap().open(&mut Batch { memory: &mut memory, packets: &mut packets });
        prop_assert!(packets.iter().all(|packet| !packet.authentic));
    }
}
