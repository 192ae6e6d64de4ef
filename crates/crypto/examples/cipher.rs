//! CPU seconds per gigabyte of text, sealed and opened, with and without the crate's own code.
//!
//! `cargo run --release -p millrace-crypto --example cipher [packets bytes]`
//!
//! The time this process ran, not wall time, so that a busy machine disturbs little. The best of several runs.

use crypto::{Batch, ChaCha20Poly1305, Packet, PacketCipher, TAG_LEN};

fn main() {
    let arguments: Vec<usize> = std::env::args()
        .skip(1)
        .map(|argument| argument.parse().expect("packets and bytes are numbers"))
        .collect();
    let shapes = match arguments[..] {
        [packets, len] => vec![(packets, len)],
        _ => vec![(45, 1420), (64, 96), (8, 1420), (8, 96)],
    };
    let key = [7; 32];
    for (packets, len) in shapes {
        for cipher in [
            ChaCha20Poly1305::library_only(&key),
            ChaCha20Poly1305::new(&key),
        ] {
            let (seal, open) = measure(&cipher, packets, len);
            println!(
                "{packets:3} x {len:4} B  seal {seal:.3} s/GB  open {open:.3} s/GB  {}",
                cipher.backend()
            );
        }
    }
}

/// Seconds per gigabyte, sealing and opening.
fn measure(cipher: &ChaCha20Poly1305, count: usize, len: usize) -> (f64, f64) {
    let stride = (len + TAG_LEN).next_multiple_of(16) + 16;
    let mut memory = vec![0x5a; stride * count];
    let mut packets: Vec<_> = (0..count)
        .map(|number| Packet {
            start: (number * stride) as u32,
            len: len as u32,
            counter: number as u64,
            authentic: false,
        })
        .collect();
    let turns = 100_000_000 / (count * len);
    let gigabytes = (turns * count * len) as f64 / 1e9;
    let mut best = (f64::MAX, f64::MAX);
    for _ in 0..7 {
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
                len: (len + TAG_LEN) as u32,
                ..*packet
            })
            .collect();
        let from = run_seconds();
        for _ in 0..turns {
            memory.copy_from_slice(std::hint::black_box(&sealed));
            std::hint::black_box(&mut memory);
        }
        let copying = run_seconds() - from;
        let from = run_seconds();
        for _ in 0..turns {
            memory.copy_from_slice(std::hint::black_box(&sealed));
            packets.copy_from_slice(&datagrams);
            cipher.open(&mut Batch {
                memory: &mut memory,
                packets: &mut packets,
            });
        }
        best.1 = best.1.min((run_seconds() - from - copying) / gigabytes);
        assert!(packets.iter().all(|packet| packet.authentic));
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
