//! Instructions per byte, sealed and opened, as the plug-in `tools/count.c` counts them under qemu-user.
//!
//! `make count-arm`, or `scripts/count-arm [TARGET ...] [-- BATCH BYTES [NAME ...]]`
//!
//! A name is a cipher, with a digest behind a slash where it needs one (`AES-256-CBC/SHA1`), `wireguard`, or
//! `x25519` for a key agreement. `none/SHA1` is only the HMAC. `rsa-2048`, `dsa-2048` and `ecdsa-p256` sign and verify.
//!
//! Each cipher is counted with each code that this CPU has for it, not only the fastest; a cipher with an HMAC with
//! each pair of one kind. Accelerators are left out: their cost is not in instructions. `memory` counts the functions
//! that copy, move and fill memory, which the linker adds.
//!
//! This program marks the parts to count and prints a line for each; the plug-in prints the counts; the script joins
//! both. By itself it prints the same lines, without counts.

mod ciphers;

use std::hint::black_box;

use ciphers::{Marks, cipher, codes};
use crypto::Backend;
use crypto::primitives::{self, Operation};
use crypto::x25519::PrivateKey;
use crypto::{Batch, Packet, PacketCipher};

const NAMES: [&str; 16] = [
    "memory",
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

/// Counts `work` and prints its number, name, operation, packets, bytes of each, and code.
fn count(marks: &mut Marks, what: &str, shape: (usize, usize), code: &str, work: impl FnOnce()) {
    let (id, ()) = marks.around(work);
    let (packets, len) = shape;
    println!("{id}\t{what}\t{packets}\t{len}\t{code}");
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
    let mut marks = Marks::default();
    let keys = [core::array::from_fn(|at| at as u8), [9; 64]];
    for name in &names {
        if sign_and_verify(&mut marks, name) {
            continue;
        }
        if name == "memory" {
            shapes.iter().for_each(|&shape| memory(&mut marks, shape));
            continue;
        }
        if name == "x25519" {
            let own = PrivateKey::new([0x42; 32]);
            let peer = PrivateKey::new([0x17; 32]).public();
            count(&mut marks, "x25519\tagree", (1, 0), "\taws-lc", || {
                own.agree(&peer).expect("a point of full order");
            });
            continue;
        }
        for code in codes(name) {
            let cipher = cipher(name, &keys);
            for &(packets, len) in &shapes {
                measure(&mut marks, name, &code, &*cipher, (packets, len));
            }
        }
    }
}

/// Number of operations to count: no two signatures execute quite the same instructions.
const SIGNATURES: usize = 16;

/// Counts signing and verifying as `millrace speed` does them: only AWS-LC's code, with a fresh key. Returns whether
/// `name` is a signature algorithm.
fn sign_and_verify(marks: &mut Marks, name: &str) -> bool {
    let algorithm = primitives::Algorithm::from_name(name);
    let Some(algorithm) = algorithm.filter(|it| it.operations().contains(&Operation::Sign)) else {
        return false;
    };
    for &operation in algorithm.operations() {
        let mut task = Backend::ALL
            .into_iter()
            .find_map(|backend| primitives::task(algorithm, operation, backend, 1, 0))
            .expect("there is one code for it");
        let mut run = || assert!(task.run(), "{name} {operation}");
        // The first run initialises everything that is made on first use.
        run();
        let what = format!("{name}\t{operation}");
        count(marks, &what, (SIGNATURES, 0), "\taws-lc", || {
            (0..SIGNATURES).for_each(|_| run());
        });
    }
    true
}

/// Counts `memcpy` and similar functions, on adjacent packets.
fn memory(marks: &mut Marks, (packets, len): (usize, usize)) {
    let from = vec![0x5a_u8; packets * len];
    let mut to = from.clone();
    // `black_box` keeps the compiler from inlining the copy or replacing it by another function.
    let mut each = |what, work: fn(&mut [u8], &[u8])| {
        count(marks, what, (packets, len), "\tlinked", || {
            for (to, from) in to.chunks_exact_mut(len).zip(from.chunks_exact(len)) {
                work(black_box(to), black_box(from));
            }
        });
    };
    each("memcpy\tcopy", |to, from| to.copy_from_slice(from));
    each("memmove\tup", |to, _| to.copy_within(..to.len() - 1, 1));
    each("memmove\tdown", |to, _| to.copy_within(1.., 0));
    each("memset\tfill", |to, from| to.fill(from[0]));
}

/// Seals and opens one batch twice: once to initialise everything, once counted.
fn measure(
    marks: &mut Marks,
    name: &str,
    code: &str,
    cipher: &dyn PacketCipher,
    (packets, len): (usize, usize),
) {
    let front = (4 + cipher.head()).next_multiple_of(16);
    let stride = (front + len + cipher.tail(len)).next_multiple_of(16) + 16;
    let mut memory = vec![0x5a; stride * packets];
    let mut batch: Vec<_> = (0..packets)
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
            packets: &mut batch,
        });
    };
    seal(&mut memory);
    count(
        marks,
        &format!("{name}\tseal"),
        (packets, len),
        code,
        || {
            seal(&mut memory);
        },
    );

    let datagrams: Vec<_> = batch
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
    count(
        marks,
        &format!("{name}\topen"),
        (packets, len),
        code,
        || {
            open(&mut memory, &mut opened);
        },
    );
    assert!(opened.iter().all(|packet| packet.authentic), "{name}");
}
