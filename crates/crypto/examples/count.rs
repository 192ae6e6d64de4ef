//! Instructions per byte, sealed and opened, as the plug-in `tools/count.c` counts them under qemu-user.
//!
//! `make count-arm`, or `scripts/count-arm [TARGET ...] [-- BATCH BYTES [NAME ...]]`
//!
//! A name is a cipher of OpenVPN's, with a digest behind a slash where it needs one (`AES-256-CBC/SHA1`), `wireguard`, or
//! `x25519` for a key agreement. `none/SHA1` is the HMAC alone.
//!
//! This program marks what is to be counted and prints a line for each mark; the plug-in prints the figures; the script
//! puts both together. By itself it prints the same lines and nothing is counted.

use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use crypto::openvpn::{DataCipher, Digest, Format, KeyMaterial, legacy};
use crypto::x25519::PrivateKey;
use crypto::{Batch, ChaCha20Poly1305, Packet, PacketCipher};

const NAMES: [&str; 15] = [
    "wireguard",
    "CHACHA20-POLY1305",
    "AES-256-GCM",
    "AES-128-GCM",
    "AES-256-CBC/SHA1",
    "AES-256-CBC/SHA256",
    "AES-128-CBC/SHA1",
    "AES-256-CBC/none",
    "AES-128-CBC/none",
    "none/SHA1",
    "none/SHA256",
    "none/SHA512",
    "BF-CBC/SHA1",
    "DES-EDE3-CBC/SHA1",
    "x25519",
];

/// "MARK" in ASCII; also in `tools/count.c`.
const MAGIC: c_int = 0x4d41_524b;

unsafe extern "C" {
    fn getpriority(which: c_int, who: c_uint) -> c_int;
}

/// Numbers the regions.
struct Marks {
    next: c_uint,
}

impl Marks {
    /// Runs `work` as a region and says what it was: number, name, operation, packets, bytes each, whose code.
    fn count(&mut self, what: &str, shape: (usize, usize), backend: &str, work: impl FnOnce()) {
        let id = self.next;
        self.next += 2;
        mark(id);
        work();
        mark(id + 1);
        let (packets, len) = shape;
        println!("{id}\t{what}\t{packets}\t{len}\t{backend}");
    }
}

fn mark(id: c_uint) {
    // SAFETY: takes two numbers; of a kind of priority that does not exist the kernel says so, and nothing happens.
    unsafe { getpriority(MAGIC, id) };
}

fn main() {
    let mut arguments = std::env::args().skip(1).peekable();
    let mut numbers = Vec::new();
    while let Some(number) = arguments.peek().and_then(|word| word.parse().ok()) {
        numbers.push(number);
        arguments.next();
    }
    let shapes: Vec<(usize, usize)> = match *numbers {
        [] => vec![(32, 1408), (32, 64)],
        [batch] => vec![(batch, 1408), (batch, 64)],
        [batch, ref lengths @ ..] => lengths.iter().map(|&len| (batch, len)).collect(),
    };
    let mut names: Vec<String> = arguments.collect();
    if names.is_empty() {
        names.extend(NAMES.map(str::to_owned));
    }
    let mut marks = Marks { next: 0 };
    for name in &names {
        if name == "x25519" {
            let own = PrivateKey::new([0x42; 32]);
            let peer = PrivateKey::new([0x17; 32]).public();
            marks.count("x25519\tagree", (1, 0), "aws-lc", || {
                own.agree(&peer).expect("a point of full order");
            });
            continue;
        }
        let cipher = cipher(name);
        for &(packets, len) in &shapes {
            measure(&mut marks, name, &*cipher, packets, len);
        }
    }
}

fn cipher(name: &str) -> Arc<dyn PacketCipher> {
    if name == "wireguard" {
        return Arc::new(ChaCha20Poly1305::new(&[7; 32]));
    }
    let (cipher, digest) = name.split_once('/').unwrap_or((name, "none"));
    let keys = KeyMaterial {
        cipher: core::array::from_fn(|at| at as u8),
        hmac: [9; 64],
    };
    let cipher = DataCipher::from_name(cipher).expect("a cipher of OpenVPN's");
    let digest = Digest::from_name(digest).expect("a digest of OpenVPN's");
    legacy::data_channel(cipher, digest, &keys, Format::V2).expect("every format but epochs")
}

/// Seals and opens one batch twice: once for whatever is done on first use, once counted.
fn measure(marks: &mut Marks, name: &str, cipher: &dyn PacketCipher, count: usize, len: usize) {
    let front = (4 + cipher.head()).next_multiple_of(16);
    let stride = (front + len + cipher.tail(len)).next_multiple_of(16) + 16;
    let mut memory = vec![0x5a; stride * count];
    let mut packets: Vec<_> = (0..count)
        .map(|number| Packet {
            start: (number * stride + front) as u32,
            len: len as u32,
            counter: number as u64 + 1,
            authentic: false,
        })
        .collect();
    let mut seal = |memory: &mut [u8]| {
        cipher.seal(&mut Batch {
            memory,
            packets: &mut packets,
        });
    };
    seal(&mut memory);
    let backend = cipher.backend();
    marks.count(&format!("{name}\tseal"), (count, len), backend, || {
        seal(&mut memory);
    });

    let datagrams: Vec<_> = packets
        .iter()
        .map(|packet| Packet {
            start: packet.start - cipher.head() as u32,
            len: (cipher.head() + len + cipher.tail(len)) as u32,
            ..*packet
        })
        .collect();
    let open = |memory: &mut [u8], packets: &mut [Packet]| {
        cipher.open(&mut Batch { memory, packets });
    };
    open(&mut memory.clone(), &mut datagrams.clone());
    let mut opened = datagrams;
    marks.count(&format!("{name}\topen"), (count, len), backend, || {
        open(&mut memory, &mut opened);
    });
    assert!(opened.iter().all(|packet| packet.authentic), "{name}");
}
