//! Wycheproof's vectors, through every way in. Their origin is told in `tests/data/README.md`.

use crate::x25519::{LowOrder, PrivateKey, PublicKey};
use crate::{Batch, ChaCha20Poly1305, Key, Packet, TAG_LEN, aead};

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.trim_start_matches('-');
    assert!(digits.len().is_multiple_of(2));
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect()
}

fn array<const N: usize>(hex: &str) -> [u8; N] {
    bytes(hex).try_into().unwrap()
}

struct Vector<const NONCE: usize> {
    id: u32,
    valid: bool,
    key: [u8; 32],
    nonce: [u8; NONCE],
    aad: Vec<u8>,
    text: Vec<u8>,
    sealed: Vec<u8>,
}

fn vectors<const NONCE: usize>(file: &str) -> Vec<Vector<NONCE>> {
    let parse = |line: &str| {
        let fields: Vec<_> = line.split(' ').collect();
        let [id, result, key, nonce, aad, text, sealed, tag] = fields[..] else {
            panic!("{line}")
        };
        let sealed = [bytes(sealed), bytes(tag)].concat();
        let (id, valid) = (id.parse().unwrap(), result == "valid");
        Vector {
            id,
            valid,
            key: array(key),
            nonce: array(nonce),
            aad: bytes(aad),
            text: bytes(text),
            sealed,
        }
    };
    file.lines().map(parse).collect()
}

/// A slot that holds each of `messages`, with a gap of changing size before each so that no alignment is left out, and
/// room for a tag after those that have none yet.
fn slot(messages: &[&[u8]], tag_room: usize) -> (Vec<u8>, Vec<Packet>) {
    let mut memory = Vec::new();
    let mut packets = Vec::new();
    for (number, message) in messages.iter().enumerate() {
        memory.resize(memory.len() + 1 + number % 17, 0xa5);
        let len = message.len() + tag_room - TAG_LEN;
        packets.push(Packet {
            start: memory.len() as u32,
            len: len as u32,
            counter: number as u64,
            authentic: false,
        });
        memory.extend_from_slice(message);
        memory.resize(memory.len() + tag_room, 0);
    }
    (memory, packets)
}

#[test]
fn chacha20_poly1305_in_batches_of_good_and_bad() {
    let vectors = vectors::<12>(include_str!("../tests/data/chacha20_poly1305.txt"));
    assert_eq!(vectors.len(), 316);
    let mut mixed = 0;
    for (number, vector) in vectors.iter().enumerate() {
        let cipher = ChaCha20Poly1305::new(&vector.key);

        // Opened: the vector stands between a copy of it with a wrong tag and one of a neighbour under another key.
        let mut broken = vector.sealed.clone();
        *broken.last_mut().unwrap() ^= 0x80;
        let neighbour = &vectors[(number + 1) % vectors.len()];
        let messages = [
            &broken[..],
            &vector.sealed,
            &neighbour.sealed,
            &vector.sealed,
        ];
        let (mut memory, mut packets) = slot(&messages, 0);
        cipher.open_with(
            &mut Batch {
                memory: &mut memory,
                packets: &mut packets,
            },
            |_| vector.nonce,
            &vector.aad,
        );
        let neighbour_too = neighbour.valid
            && (neighbour.key, neighbour.nonce, &neighbour.aad)
                == (vector.key, vector.nonce, &vector.aad);
        let authentic: Vec<_> = packets.iter().map(|packet| packet.authentic).collect();
        // A vector that is invalid by the very bit that was turned has become valid.
        let broken_too = !vector.valid && authentic[0];
        assert_eq!(
            authentic,
            [broken_too, vector.valid, neighbour_too, vector.valid],
            "case {}",
            vector.id
        );
        mixed += usize::from(vector.valid);
        for (packet, text) in
            packets
                .iter()
                .zip([&vector.text, &vector.text, &neighbour.text, &vector.text])
        {
            let found = &memory[packet.start as usize..][..packet.len as usize];
            if packet.authentic {
                assert_eq!(found, text, "case {}", vector.id);
            } else {
                assert!(
                    found.iter().all(|&byte| byte == 0),
                    "case {} left something behind",
                    vector.id
                );
            }
        }

        // Sealed: three times, at three alignments.
        if vector.valid {
            let (mut memory, mut packets) = slot(&[&vector.text[..]; 3], TAG_LEN);
            cipher.seal_with(
                &mut Batch {
                    memory: &mut memory,
                    packets: &mut packets,
                },
                |_| vector.nonce,
                &vector.aad,
            );
            for packet in &packets {
                let found = &memory[packet.start as usize..][..vector.sealed.len()];
                assert_eq!(found, vector.sealed, "case {}", vector.id);
            }
        }
    }
    assert!(mixed > 200);
}

/// The same vectors as runs of equal length, so that they go through the crate's own code where the machine can run it.
#[test]
fn chacha20_poly1305_in_groups_of_good_and_bad() {
    for vector in vectors::<12>(include_str!("../tests/data/chacha20_poly1305.txt")) {
        let cipher = ChaCha20Poly1305::new(&vector.key);
        // Fewer packets than lanes, as many, and more.
        for count in [5, 8, 21] {
            let broken = |number| number % 3 == 1;
            let mut bad = vector.sealed.clone();
            let turned = vector.id as usize % bad.len();
            bad[turned] ^= 0x10;
            let messages: Vec<_> = (0..count)
                .map(|number| if broken(number) { &bad } else { &vector.sealed })
                .map(Vec::as_slice)
                .collect();
            let (mut memory, mut packets) = slot(&messages, 0);
            let mut batch = Batch {
                memory: &mut memory,
                packets: &mut packets,
            };
            cipher.open_with(&mut batch, |_| vector.nonce, &vector.aad);
            let (mut expected, _) = slot(&messages, 0);
            for (number, packet) in packets.iter().enumerate() {
                // A vector that is invalid by the very bit that was turned has become valid.
                let valid = if broken(number) {
                    !vector.valid && packet.authentic
                } else {
                    vector.valid
                };
                assert_eq!(packet.authentic, valid, "case {}", vector.id);
                let text = &mut expected[packet.start as usize..][..packet.len as usize];
                match valid {
                    true => text.copy_from_slice(&vector.text),
                    false => text.fill(0),
                }
            }
            assert_eq!(memory, expected, "case {}", vector.id);

            if vector.valid {
                let (mut memory, mut packets) = slot(&vec![&vector.text[..]; count], TAG_LEN);
                let mut batch = Batch {
                    memory: &mut memory,
                    packets: &mut packets,
                };
                cipher.seal_with(&mut batch, |_| vector.nonce, &vector.aad);
                let (expected, _) = slot(&vec![&vector.sealed[..]; count], 0);
                assert_eq!(memory, expected, "case {}", vector.id);
            }
        }
    }
}

#[test]
fn xchacha20_poly1305() {
    let vectors = vectors::<24>(include_str!("../tests/data/xchacha20_poly1305.txt"));
    assert_eq!(vectors.len(), 306);
    for vector in vectors {
        let key = Key::from(vector.key);
        let mut message = vector.sealed.clone();
        let opened = aead::xopen(&key, &vector.nonce, &vector.aad, &mut message);
        assert_eq!(opened.is_ok(), vector.valid, "case {}", vector.id);
        if vector.valid {
            assert_eq!(opened.unwrap(), vector.text, "case {}", vector.id);
            aead::xseal(&key, &vector.nonce, &vector.aad, &mut message);
            assert_eq!(message, vector.sealed, "case {}", vector.id);
        }
    }
}

#[test]
fn x25519() {
    let (mut agreed, mut refused) = (0, 0);
    for line in include_str!("../tests/data/x25519.txt").lines() {
        let fields: Vec<_> = line.split(' ').collect();
        let [id, _, public, private, shared] = fields[..] else {
            panic!("{line}")
        };
        let secret = PrivateKey::new(array(private)).agree(&PublicKey::from(array(public)));
        // "Acceptable" vectors leave implementations a choice. RFC 7748 makes it for all but the zero secret, and the
        // handshake makes that one.
        if array(shared) == [0; 32] {
            assert_eq!(secret, Err(LowOrder), "case {id}");
            refused += 1;
        } else {
            assert_eq!(secret, Ok(Key::from(array(shared))), "case {id}");
            agreed += 1;
        }
    }
    assert_eq!((agreed, refused), (487, 31));
}
