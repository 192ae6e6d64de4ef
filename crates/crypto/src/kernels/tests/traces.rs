//! Constant time where valgrind cannot look: whatever the secrets are, a candidate executes the same instructions in the same
//! order.
//!
//! A child process does the work in single steps, and the addresses of its instructions are compared. That finds a branch on
//! a secret in code for any instructions, AVX-512 included; it does not see what is loaded, which `secrets.rs` does. Keys are
//! made beforehand. What is secret: keys, texts, and, of a forged packet, how far its tag is right.

use super::common::*;
use crate::backend::Backend;
use crate::openvpn::{DataCipher, Format, KeyMaterial, legacy};
use crate::{Batch, Packet};

/// What a process executed: how many instructions, and a sum over their addresses in order. `None` if nothing may be traced.
fn executed(work: impl FnOnce()) -> Option<(usize, u64)> {
    // SAFETY: the child does nothing but what follows: `work` allocates nothing and takes no lock, and no destructor runs.
    // Registers are read into a structure made for them, for which zeros are valid.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0, "a process more");
        if child == 0 {
            if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0 {
                libc::_exit(1);
            }
            libc::raise(libc::SIGSTOP);
            work();
            libc::_exit(0);
        }
        let mut status = 0;
        libc::waitpid(child, &raw mut status, 0);
        let (mut count, mut sum) = (0, 0_u64);
        while libc::WIFSTOPPED(status) {
            let signal = libc::WSTOPSIG(status);
            if !matches!(signal, libc::SIGTRAP | libc::SIGSTOP) {
                // A fault would come again at every step.
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, &raw mut status, 0);
                panic!("signal {signal} after {count} instructions");
            }
            let mut registers: libc::user_regs_struct = core::mem::zeroed();
            libc::ptrace(libc::PTRACE_GETREGS, child, 0, &raw mut registers);
            sum = (sum.rotate_left(5) ^ registers.rip).wrapping_mul(0x517c_c1b7_2722_0a95);
            count += 1;
            libc::ptrace(libc::PTRACE_SINGLESTEP, child, 0, 0);
            libc::waitpid(child, &raw mut status, 0);
        }
        let ended = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
        ended.then_some((count, sum))
    }
}

/// Compares what is executed with some secrets. The first time counts for nothing: functions are looked up.
fn the_same_way(name: &str, mut work: impl FnMut(&mut Numbers)) -> bool {
    let nothing = |(): &mut (), _| ();
    the_same_way_after(name, &mut (), nothing, |(), seed| work(&mut Numbers(seed)))
}

/// The same; `prepare` is not traced. What is copied from a place of each seed is copied there: which way a C library's
/// `memcpy` takes depends on both addresses, which are no secret.
fn the_same_way_after<S>(
    name: &str,
    state: &mut S,
    prepare: impl Fn(&mut S, u64),
    mut work: impl FnMut(&mut S, u64),
) -> bool {
    if name == "portable" {
        // Most instructions, each of which costs two visits to the kernel here, and valgrind sees the same ones.
        return true;
    }
    prepare(state, 0);
    work(state, 0);
    let mut with = |seed| {
        prepare(state, seed);
        executed(|| work(state, seed))
    };
    let why = "processes may not be traced here: allow ptrace";
    let Some(first) = require::require(with(1).ok_or(why)) else {
        return true;
    };
    println!("{name}: {} instructions", first.0);
    with(2) == Some(first)
}

/// Bytes of texts: a whole group of one length, and some that are alone.
const LENS: [usize; 11] = [200, 200, 200, 200, 200, 200, 200, 200, 17, 70, 300];

/// One among equals, which is not genuine.
const FORGED: usize = 3;

#[test]
fn a_branch_on_a_secret_is_found() {
    let mut secret = [0; 8];
    let same = the_same_way("a leak", |numbers| {
        numbers.fill(&mut secret);
        if std::hint::black_box(secret[0]) % 7 == 3 {
            std::hint::black_box(&mut secret)[1] = 5;
        }
        for _ in 0..std::hint::black_box(secret[2]) {
            std::hint::black_box(());
        }
    });
    // Where nothing can be traced, nothing can be found.
    assert!(!same || executed(|| ()).is_none());
}

/// Turns one bit of a tag: another one for each seed, so that a comparison that ends early does so elsewhere.
fn forge(tag: &mut [u8], seed: usize) {
    let at = [0, tag.len() / 3, tag.len() - 1][seed];
    tag[at] ^= 1 << seed;
}

#[test]
fn a_comparison_that_ends_early_is_found() {
    let mut received = [0; 16];
    let same = the_same_way("a leak", |numbers| {
        received = [0; 16];
        forge(&mut received, numbers.0 as usize);
        let pairs = received.iter().zip(&[0; 16]);
        let right = pairs.take_while(|(a, b)| std::hint::black_box(**a) == **b);
        std::hint::black_box(right.count());
    });
    assert!(!same || executed(|| ()).is_none());
}

#[test]
fn aeads_take_the_same_way_whatever_the_secrets() {
    for algorithm in [AeadAlgorithm::Aes256Gcm, AeadAlgorithm::ChaCha20Poly1305] {
        let mut end = 0;
        let places = LENS.map(|len| {
            let text = end + 8..end + 8 + len;
            end = text.end + TAG_LEN;
            Place {
                aad: text.start - 8..text.start,
                tag: text.end,
                text,
                nonce: [end as u8; 12],
            }
        });
        for (at, (name, _)) in aeads(algorithm, &[0; 32]).iter().enumerate() {
            // With a key of each seed, made where allocating is allowed.
            let kernels = keys().map(|key| aeads(algorithm, &key).swap_remove(at).1);
            let mut memory = vec![0; end];
            let sealed: [_; 3] = core::array::from_fn(|seed| {
                Numbers(seed as u64).fill(&mut memory);
                kernels[seed].seal(&mut memory, &places);
                forge(&mut memory[places[FORGED].tag..][..TAG_LEN], seed);
                memory.clone()
            });
            let same = the_same_way(name, |numbers| {
                let kernel = &kernels[numbers.0 as usize];
                numbers.fill(&mut memory);
                kernel.seal(&mut memory, &places);
            });
            assert!(same, "{name} {} seals", algorithm.name());
            let mut authentic = [false; LENS.len()];
            let forged =
                |memory: &mut Vec<u8>, seed| memory.copy_from_slice(&sealed[seed as usize]);
            let same = the_same_way_after(name, &mut memory, forged, |memory, seed| {
                kernels[seed as usize].open(memory, &places, &mut authentic);
            });
            assert!(same, "{name} {} opens", algorithm.name());
            if name != &"portable" {
                // What was looked at is what was meant.
                let right = core::array::from_fn(|number| number != FORGED);
                assert_eq!(authentic, right, "{name} {}", algorithm.name());
            }
        }
    }
}

#[test]
fn chains_take_the_same_way_whatever_the_secrets() {
    // As many as the widest code has lanes, and one of more blocks than it decrypts at once.
    let mut lens = [48; 18];
    (lens[2], lens[9]) = (16, 320);
    let mut end = 0;
    let chains = lens.map(|len| {
        let text = end + 16..end + 16 + len;
        end = text.end;
        Chain::new(&text, 16)
    });
    for (at, (name, _)) in cbcs(&[0; 32]).iter().enumerate() {
        let kernels = keys().map(|key| cbcs(&key).swap_remove(at).1);
        let mut memory = vec![0; end];
        let same = the_same_way(name, |numbers| {
            let kernel = &kernels[numbers.0 as usize];
            numbers.fill(&mut memory);
            kernel.encrypt(&mut memory, &chains);
        });
        assert!(same, "{name} encrypts");
        let same = the_same_way(name, |numbers| {
            let kernel = &kernels[numbers.0 as usize];
            numbers.fill(&mut memory);
            kernel.decrypt(&mut memory, &chains);
        });
        assert!(same, "{name} decrypts");
    }
}

#[test]
fn macs_take_the_same_way_whatever_the_secrets() {
    // With fewer than a lane each, some code leaves them to the library.
    let mut lens = [30; 17];
    lens[16] = 70;
    let mut end = 0;
    let messages = lens.map(|len| {
        end += len;
        end - len..end
    });
    for digest in [Digest::Sha1, Digest::Sha256, Digest::Sha512] {
        for (at, (name, _)) in macs(digest, &[0; 32]).iter().enumerate() {
            let kernels = keys().map(|key| macs(digest, &key).swap_remove(at).1);
            let mut memory = vec![0; end];
            let mut found = [Mac::EMPTY; 17];
            let same = the_same_way(name, |numbers| {
                let kernel = &kernels[numbers.0 as usize];
                numbers.fill(&mut memory);
                kernel.sign_each(&memory, &messages, &mut found);
            });
            assert!(same, "{name} {digest}");
        }
    }
}

/// What is around the candidates: numbers, padding, and codes compared.
#[test]
fn packets_take_the_same_way_whatever_the_secrets() {
    for (cipher, digest) in [
        (DataCipher::Aes256Gcm, Digest::None),
        (DataCipher::Aes256Cbc, Digest::Sha256),
        (DataCipher::None, Digest::Sha1),
    ] {
        // The kind keeps what is picked from changing: other tests import choices.
        let ciphers = keys().map(|key| {
            let mut secrets = KeyMaterial {
                cipher: [0; 64],
                hmac: [0; 64],
            };
            secrets.cipher[..32].copy_from_slice(&key);
            secrets.hmac[..32].copy_from_slice(&key);
            let simd = Some(Backend::Simd);
            legacy::data_channel_on(simd, cipher, digest, &secrets, Format::V2).unwrap()
        });
        let (head, mut end) = (ciphers[0].head(), 0);
        let batch = LENS.map(|len| {
            let start = end + 4 + head;
            end = start + len + ciphers[0].tail(len);
            Packet {
                start: start as u32,
                len: len as u32,
                counter: 1,
                authentic: false,
            }
        });
        let datagrams = batch.map(|packet| Packet {
            start: packet.start - head as u32,
            len: (head + packet.len as usize + ciphers[0].tail(packet.len as usize)) as u32,
            ..packet
        });
        let mut memory = vec![0; end];
        let seal = |seed: usize, memory: &mut [u8]| {
            Numbers(seed as u64).fill(memory);
            let mut packets = batch;
            ciphers[seed].seal(&mut Batch {
                memory,
                packets: &mut packets,
            });
        };
        let sealed: [_; 3] = core::array::from_fn(|seed| {
            seal(seed, &mut memory);
            let head = datagrams[FORGED].start as usize;
            let tag = match cipher.is_aead() {
                true => &mut memory[head + 4..][..TAG_LEN],
                false => &mut memory[head..][..digest.len()],
            };
            forge(tag, seed);
            memory.clone()
        });
        let name = cipher.name();
        let same = the_same_way(name, |numbers| seal(numbers.0 as usize, &mut memory));
        assert!(same, "{name} seals");
        let mut opened = datagrams;
        let forged = |memory: &mut Vec<u8>, seed| memory.copy_from_slice(&sealed[seed as usize]);
        let same = the_same_way_after(name, &mut memory, forged, |memory, seed| {
            opened = datagrams;
            ciphers[seed as usize].open(&mut Batch {
                memory,
                packets: &mut opened,
            });
        });
        assert!(same, "{name} opens");
        for (number, packet) in opened.iter().enumerate() {
            assert_eq!(packet.authentic, number != FORGED, "{name} {number}");
        }
    }
}

/// A key for each seed.
fn keys() -> [[u8; 32]; 3] {
    core::array::from_fn(|seed| {
        let mut key = [0; 32];
        Numbers(seed as u64 + 99).fill(&mut key);
        key
    })
}
