//! Runs every tunnel's cipher on secrets under qemu-user, where the plug-in `tools/traces.c` records the executed
//! instructions and the addresses of memory that they access.
//!
//! `scripts/traces-arm [TARGET ...] [-- NAME ...]` runs it with several secrets and compares.
//!
//! The argument is a digit that selects the secrets: 0 for all zeros, 1 for all ones, others for random bits. Secret
//! are keys, texts, and the place of the wrong bit in a forged packet's tag. Lengths, and which packet is forged, are
//! not secret. Each run is a process of its own, so that every byte is at the same address.
//!
//! A name is one of `count.rs`'s, or a deliberate leak. The comparison must find the leaks, or it is worth nothing. It
//! must also find the ciphers with blocks of 64 bits, whose tables leak.

mod ciphers;

use std::hint::black_box;

use ciphers::{Keys, Marks, cipher, codes};
use crypto::x25519::PrivateKey;
use crypto::{Batch, Digest, Packet, TAG_LEN};

const NAMES: [&str; 23] = [
    "leak-branch",
    "leak-table",
    "leak-comparison",
    "wireguard",
    "CHACHA20-POLY1305",
    "AES-256-GCM",
    "AES-192-GCM",
    "AES-128-GCM",
    "AES-256-GCM/64",
    "CHACHA20-POLY1305/64",
    "AES-256-CBC/SHA1",
    "AES-256-CBC/SHA256",
    "AES-256-CBC/SHA512",
    "AES-192-CBC/SHA256",
    "AES-128-CBC/SHA1",
    "none/MD5",
    "none/SHA1",
    "none/SHA224",
    "none/SHA384",
    "BF-CBC/SHA1",
    "DES-CBC/SHA1",
    "DES-EDE3-CBC/SHA1",
    "x25519",
];

/// Bytes of each packet's payload. More than eight of one length, and less than a group of others; all ends of blocks.
const LENS: [usize; 24] = [
    208, 208, 208, 208, 208, 208, 208, 208, 208, 208, 0, 1, 12, 15, 16, 17, 63, 64, 65, 130, 300,
    300, 300, 700,
];

/// Which packet is forged: one among equals, whose neighbours are genuine.
const FORGED: usize = 5;

/// Secrets of one kind.
struct Secrets {
    which: u64,
    drawn: u64,
}

impl Secrets {
    fn next(&mut self) -> u8 {
        match self.which {
            0 => 0,
            1 => 0xff,
            seed => {
                // SplitMix64, of which the upper bits are the best.
                self.drawn = self.drawn.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mixed = self.drawn ^ seed << 40;
                let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
                (mixed >> 56) as u8
            }
        }
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill_with(|| self.next());
    }

    fn keys(&mut self) -> Keys {
        let mut keys = [[0; 64]; 2];
        self.fill(keys.as_flattened_mut());
        keys
    }

    /// A number less than `end`: random, or the first or the last for secrets that are not random.
    fn below(&mut self, end: usize) -> usize {
        usize::from(self.next()) * end / 256
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let digit = arguments.next().and_then(|digit| digit.parse().ok());
    let which = digit.expect("which secrets: one digit");
    let mut names: Vec<String> = arguments.collect();
    if names.is_empty() {
        names.extend(NAMES.map(str::to_owned));
    }
    let mut marks = Marks::default();
    for name in &names {
        let mut secrets = Secrets { which, drawn: 0 };
        match &**name {
            "leak-branch" | "leak-table" | "leak-comparison" => {
                leak(&mut marks, name, &mut secrets);
            }
            "x25519" => {
                let peer = PrivateKey::new([0x17; 32]).public();
                let mut secret = [0; 32];
                secrets.fill(&mut secret);
                let (id, _) = marks.around(|| {
                    let own = PrivateKey::new(secret);
                    (
                        own.public(),
                        own.agree(&peer).expect("a point of full order"),
                    )
                });
                println!("{id}\t{name}\tagree\tsimd\taws-lc");
            }
            _ => {
                for code in codes(name) {
                    for packets in [LENS.len(), 2] {
                        trace(&mut marks, name, &code, packets, &mut secrets);
                    }
                }
            }
        }
    }
}

/// Makes a key, seals a batch and opens it, with a forged packet in it, each a region.
fn trace(marks: &mut Marks, name: &str, code: &str, packets: usize, secrets: &mut Secrets) {
    let keys = secrets.keys();
    let (id, cipher) = marks.around(|| cipher(name, &keys));
    let say = |id, what| println!("{id}\t{name}\t{what} {packets}\t{code}");
    say(id, "key");

    let mut memory = Vec::new();
    let mut batch = Vec::new();
    // Backwards, so that a small batch has a long packet.
    for (number, &len) in LENS.iter().rev().take(packets).enumerate() {
        let start = (memory.len() + 4 + cipher.head()).next_multiple_of(16);
        // Headers are not secret.
        memory.resize(start, 0x5a);
        memory.resize(start + len + cipher.tail(len), 0);
        secrets.fill(&mut memory[start..][..len]);
        let mut counter = number as u64 + 1;
        if name.ends_with("/64") {
            counter |= 1 << 48;
        }
        batch.push(Packet {
            start: start as u32,
            len: len as u32,
            counter,
            authentic: false,
        });
    }
    let mut seal = || {
        cipher.seal(&mut Batch {
            memory: &mut memory,
            packets: &mut batch,
        });
    };
    let (id, ()) = marks.around(&mut seal);
    say(id, "seal");

    for (packet, &len) in batch.iter_mut().zip(LENS.iter().rev()) {
        packet.start -= cipher.head() as u32;
        packet.len = (cipher.head() + len + cipher.tail(len)) as u32;
    }
    let forged = (packets > 2).then_some(FORGED);
    if let Some(forged) = forged {
        let packet = &batch[forged];
        let tag = tag(name, packet.start as usize, packet.len as usize);
        memory[tag.start + secrets.below(tag.len())] ^= 1 << secrets.below(8);
    }
    let mut open = || {
        cipher.open(&mut Batch {
            memory: &mut memory,
            packets: &mut batch,
        });
    };
    let (id, ()) = marks.around(&mut open);
    say(id, "open");
    for (number, packet) in batch.iter().enumerate() {
        assert_eq!(packet.authentic, Some(number) != forged, "{name} {number}");
    }
}

/// The range of the tag in a packet that begins at `start` and has `len` bytes.
fn tag(name: &str, start: usize, len: usize) -> core::ops::Range<usize> {
    match name.split_once('/') {
        None if name == "wireguard" => start + len - TAG_LEN..start + len,
        // Behind the number, and in front of the text.
        None => start + 4..start + 4 + TAG_LEN,
        Some((_, "64")) => start + len - TAG_LEN..start + len,
        Some((_, digest)) => {
            let digest = Digest::from_name(digest).expect("a digest");
            start..start + digest.len()
        }
    }
}

/// Leaks that must be found: a branch and a table by a secret, and a comparison that ends at the first difference.
fn leak(marks: &mut Marks, name: &str, secrets: &mut Secrets) {
    static TABLE: [u8; 256] = [0x63; 256];
    let mut secret = [0; 16];
    secrets.fill(&mut secret);
    let received = [0xff; 16];
    let (id, sum) = marks.around(|| match name {
        "leak-branch" => {
            let odd = secret.iter().filter(|&&byte| black_box(byte) & 1 == 1);
            odd.fold(0, |sum, _| black_box(sum + 1))
        }
        "leak-table" => secret
            .iter()
            .fold(0, |sum, &byte| sum ^ black_box(&TABLE)[usize::from(byte)]),
        _ => {
            let pairs = secret.iter().zip(&received);
            pairs.take_while(|(a, b)| black_box(**a) == **b).count() as u8
        }
    });
    // Otherwise the compiler could remove the work.
    black_box(sum);
    println!("{id}\t{name}\tleak\tnone\tnone");
}
