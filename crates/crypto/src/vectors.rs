//! Wycheproof's and NIST's vectors, through every entry point. `tests/data/README.md` names their origin.

use crate::implementations::AEADS;
use crate::packet_aead::{AeadAlgorithm, Layout, PacketAead};
use crate::x25519::{LowOrder, PrivateKey, PublicKey};
use crate::{Batch, Key, Packet, PacketCipher, TAG_LEN, aead};

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
    id: String,
    valid: bool,
    key: Vec<u8>,
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
        let (id, valid) = (id.to_owned(), result == "valid");
        Vector {
            id,
            valid,
            key: bytes(key),
            nonce: array(nonce),
            aad: bytes(aad),
            text: bytes(text),
            sealed,
        }
    };
    file.lines().map(parse).collect()
}

/// Reads associated data from the memory in front of the packet, and takes every packet's nonce from the vector.
struct AsInVector {
    nonce: [u8; 12],
    aad_len: usize,
}

impl Layout for AsInVector {
    const NUMBER: usize = 0;
    const TAG_BEHIND: bool = true;

    fn header(&self) -> usize {
        self.aad_len
    }

    fn write_number(&self, _: u64, _: &mut [u8]) -> bool {
        true
    }

    fn read_number(&self, _: &[u8], given: u64) -> u64 {
        given
    }

    fn nonce(&self, _: u64) -> [u8; 12] {
        self.nonce
    }
}

/// Makes a slot that holds each of `messages` behind its associated data, and `behind` bytes after it. Gaps of changing
/// size cover every alignment.
fn slot(messages: &[(&[u8], &[u8])], behind: usize) -> (Vec<u8>, Vec<Packet>) {
    let mut memory = Vec::new();
    let mut packets = Vec::new();
    for (number, (aad, message)) in messages.iter().enumerate() {
        memory.resize(memory.len() + 1 + number % 17, 0xa5);
        memory.extend_from_slice(aad);
        packets.push(Packet {
            start: memory.len() as u32,
            len: message.len() as u32,
            counter: number as u64,
            authentic: false,
        });
        memory.extend_from_slice(message);
        memory.resize(memory.len() + behind, 0);
    }
    (memory, packets)
}

/// Tests every vector with every candidate of the machine, among broken copies of itself: singly, and in runs of fewer
/// packets than a group has lanes, as many, and more.
fn in_batches_of_good_and_bad(algorithm: fn(&[u8]) -> AeadAlgorithm, file: &str) -> usize {
    let mut valid = 0;
    for (turned, vector) in vectors::<12>(file).into_iter().enumerate() {
        let algorithm = algorithm(&vector.key);
        let ciphers = AEADS.iter().filter_map(|candidate| {
            let implementation = (candidate.make)(algorithm, &vector.key)?;
            let layout = AsInVector {
                nonce: vector.nonce,
                aad_len: vector.aad.len(),
            };
            Some(PacketAead::with_implementation(
                implementation,
                algorithm,
                layout,
            ))
        });
        valid += usize::from(vector.valid);
        for (cipher, count) in ciphers.flat_map(|cipher| {
            let cipher = std::rc::Rc::new(cipher);
            [1, 5, 8, 21].map(|count| (std::rc::Rc::clone(&cipher), count))
        }) {
            let broken = |number| number % 3 == 1;
            let mut bad = vector.sealed.clone();
            let turned = turned % bad.len();
            bad[turned] ^= 0x10;
            let messages: Vec<_> = (0..count)
                .map(|number| {
                    let message = if broken(number) { &bad } else { &vector.sealed };
                    (&vector.aad[..], &message[..])
                })
                .collect();
            let (mut memory, mut packets) = slot(&messages, 0);
            let sent = packets.clone();
            cipher.open(&mut Batch {
                memory: &mut memory,
                packets: &mut packets,
            });
            let (mut expected, _) = slot(&messages, 0);
            for (number, packet) in packets.iter().enumerate() {
                // A vector that is invalid because of the turned bit has become valid.
                let valid = if broken(number) {
                    !vector.valid && packet.authentic
                } else {
                    vector.valid
                };
                assert_eq!(packet.authentic, valid, "case {}", vector.id);
                // NIST gives no text for invalid vectors.
                let text_len = vector.sealed.len() - TAG_LEN;
                let text = &mut expected[sent[number].start as usize..][..text_len];
                if valid {
                    assert_eq!(packet.len as usize, vector.text.len());
                    text.copy_from_slice(&vector.text);
                } else {
                    text.fill(0);
                }
            }
            assert_eq!(memory, expected, "case {}", vector.id);

            if vector.valid {
                let (mut memory, mut packets) =
                    slot(&vec![(&vector.aad[..], &vector.text[..]); count], TAG_LEN);
                cipher.seal(&mut Batch {
                    memory: &mut memory,
                    packets: &mut packets,
                });
                let (expected, _) = slot(&vec![(&vector.aad[..], &vector.sealed[..]); count], 0);
                assert_eq!(memory, expected, "case {}", vector.id);
            }
        }
    }
    valid
}

#[test]
fn chacha20_poly1305() {
    let file = include_str!("../tests/data/chacha20_poly1305.txt");
    assert_eq!(file.lines().count(), 316);
    assert!(in_batches_of_good_and_bad(|_| AeadAlgorithm::ChaCha20Poly1305, file) > 200);
}

#[test]
fn aes_gcm() {
    let file = include_str!("../tests/data/aes_gcm.txt");
    assert_eq!(file.lines().count(), 197);
    assert!(in_batches_of_good_and_bad(aes_gcm_with, file) > 100);
}

#[test]
fn aes_gcm_of_nist() {
    let file = include_str!("../tests/data/aes_gcm_nist.txt");
    assert_eq!(file.lines().count(), 600);
    assert_eq!(in_batches_of_good_and_bad(aes_gcm_with, file), 450);
}

fn aes_gcm_with(key: &[u8]) -> AeadAlgorithm {
    match key.len() {
        16 => AeadAlgorithm::Aes128Gcm,
        24 => AeadAlgorithm::Aes192Gcm,
        _ => AeadAlgorithm::Aes256Gcm,
    }
}

#[test]
fn xchacha20_poly1305() {
    let vectors = vectors::<24>(include_str!("../tests/data/xchacha20_poly1305.txt"));
    assert_eq!(vectors.len(), 306);
    for vector in vectors {
        let key = Key::from(<[u8; 32]>::try_from(&vector.key[..]).unwrap());
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
        // "Acceptable" vectors leave implementations a choice. RFC 7748 leaves it only for the zero secret, and the
        // handshake rejects that.
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
