//! CPU seconds per gigabyte of payload, sealed and opened.
//!
//! `cargo run --release -p millrace-crypto --example cipher [packets bytes [names ...]]`
//!
//! A name is a cipher of OpenVPN's, with a digest behind a slash where it needs one (`AES-256-CBC/SHA1`), or `wireguard`;
//! `@portable` or `@simd` behind it takes the fastest code of that kind.
//! The time this process ran, not wall time, so that a busy machine disturbs little. The best of several runs.

use std::sync::Arc;

use crypto::openvpn::{DataCipher, Digest, Format, KeyMaterial, legacy};
use crypto::{Backend, Batch, ChaCha20Poly1305, Packet, PacketCipher};

const NAMES: [&str; 13] = [
    "wireguard",
    "AES-256-GCM",
    "AES-128-GCM",
    "CHACHA20-POLY1305",
    "AES-256-CBC/none",
    "none/SHA1",
    "none/SHA256",
    "none/SHA512",
    "AES-256-CBC/SHA1",
    "AES-128-CBC/SHA256",
    "AES-256-CBC/SHA512",
    "BF-CBC/SHA1",
    "DES-EDE3-CBC/SHA1",
];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = || {
        let argument = arguments.next()?;
        Some(argument.parse().expect("packets and bytes are numbers"))
    };
    let shapes: Vec<(usize, usize)> = match (number(), number()) {
        (Some(packets), Some(len)) => vec![(packets, len)],
        _ => vec![(64, 1400), (64, 96), (1, 1400)],
    };
    let mut names: Vec<String> = arguments.collect();
    if names.is_empty() {
        names.extend(NAMES.map(str::to_owned));
    }
    for (packets, len) in shapes {
        for name in &names {
            let cipher = cipher(name);
            let (seal, open) = measure(&*cipher, packets, len);
            println!(
                "{packets:3} x {len:4} B  seal {seal:.3} s/GB  open {open:.3} s/GB  {name}: {}",
                cipher.backend()
            );
        }
    }
}

fn cipher(name: &str) -> Arc<dyn PacketCipher> {
    let (name, backend) = match name.split_once('@') {
        Some((name, backend)) => (name, Some(backend.parse::<Backend>().expect("a back end"))),
        None => (name, None),
    };
    if name == "wireguard" {
        let cipher = ChaCha20Poly1305::on(backend, &[7; 32]);
        return Arc::new(cipher.expect("a back end of this machine"));
    }
    let (cipher, digest) = name.split_once('/').unwrap_or((name, "none"));
    let keys = KeyMaterial {
        cipher: core::array::from_fn(|at| at as u8),
        hmac: [9; 64],
    };
    let cipher = DataCipher::from_name(cipher).expect("a cipher of OpenVPN's");
    let digest = Digest::from_name(digest).expect("a digest of OpenVPN's");
    legacy::data_channel_on(backend, cipher, digest, &keys, Format::V2)
        .expect("every format but epochs, and a back end of this machine")
}

/// Seconds per gigabyte, sealing and opening.
fn measure(cipher: &dyn PacketCipher, count: usize, len: usize) -> (f64, f64) {
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
    // The kernel may count in ticks of some milliseconds: enough turns for a quarter of a second.
    let from = std::time::Instant::now();
    let mut turns = 0;
    while from.elapsed().as_millis() < 250 {
        turns += 1;
        cipher.seal(&mut Batch {
            memory: &mut memory,
            packets: &mut packets,
        });
    }
    let gigabytes = (turns * count * len) as f64 / 1e9;
    let mut best = (f64::MAX, f64::MAX);
    for _ in 0..5 {
        let from = run_seconds();
        for _ in 0..turns {
            cipher.seal(&mut Batch {
                memory: &mut memory,
                packets: &mut packets,
            });
        }
        best.0 = best.0.min((run_seconds() - from) / gigabytes);

        // What was opened is no ciphertext any more, so each turn opens a fresh copy. The copying is measured alone and
        // taken off.
        cipher.seal(&mut Batch {
            memory: &mut memory,
            packets: &mut packets,
        });
        let sealed = memory.clone();
        let datagrams: Vec<_> = packets
            .iter()
            .map(|packet| Packet {
                start: packet.start - cipher.head() as u32,
                len: (cipher.head() + len + cipher.tail(len)) as u32,
                ..*packet
            })
            .collect();
        let mut opened = datagrams.clone();
        let from = run_seconds();
        for _ in 0..turns {
            memory.copy_from_slice(std::hint::black_box(&sealed));
            opened.copy_from_slice(std::hint::black_box(&datagrams));
            std::hint::black_box(&mut memory);
        }
        let copying = run_seconds() - from;
        let from = run_seconds();
        for _ in 0..turns {
            memory.copy_from_slice(std::hint::black_box(&sealed));
            opened.copy_from_slice(std::hint::black_box(&datagrams));
            cipher.open(&mut Batch {
                memory: &mut memory,
                packets: &mut opened,
            });
        }
        best.1 = best.1.min((run_seconds() - from - copying) / gigabytes);
        assert!(opened.iter().all(|packet| packet.authentic));
    }
    best
}

/// CPU time of this process in seconds, as the scheduler counts it.
fn run_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("the kernel counts run time");
    let nanoseconds = text
        .split(' ')
        .next()
        .and_then(|field| field.parse::<u64>().ok());
    nanoseconds.expect("the first field is run time in nanoseconds") as f64 / 1e9
}
