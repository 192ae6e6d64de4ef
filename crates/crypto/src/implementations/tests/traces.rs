//! Constant time where valgrind cannot look: with any secrets, a candidate executes the same instructions in the same
//! order.
//!
//! A child process works in single steps, and the test compares the addresses of its instructions. That finds a branch
//! on a secret in code for any instructions, AVX-512 included; loads are left to `secrets.rs`. Keys are made
//! beforehand. Secrets are keys, texts, and, for a forged packet, how far its tag is right.

use super::common::*;
use crate::implementations::Backend;
use crate::primitives::packet_cipher;
use crate::{Batch, Cipher, Packet};

/// Number of instructions that fit without another allocation.
const ROOM: usize = 1 << 21;

/// Collects the addresses of the instructions that `work` executes, in order. Returns whether it could be traced.
///
/// `prepare` is not traced. It runs in the child too, so that its allocations get the same addresses each time: the
/// path of a C library's `memcpy` depends on both addresses, which are not secret. So nothing may be allocated between
/// two traces that are compared, and `addresses` has room beforehand.
fn executed<S>(
    addresses: &mut Vec<u64>,
    prepare: impl FnOnce() -> S,
    work: impl FnOnce(&mut S),
) -> bool {
    // SAFETY: the child only does the following. Its allocations come from the C library, which frees its locks in a
    // child, and no destructor runs. Registers are read into a structure made for them, for which zeros are valid.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0, "a process more");
        if child == 0 {
            let mut state = prepare();
            if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0 {
                libc::_exit(1);
            }
            libc::raise(libc::SIGSTOP);
            work(&mut state);
            libc::_exit(0);
        }
        let mut status = 0;
        libc::waitpid(child, &raw mut status, 0);
        while libc::WIFSTOPPED(status) {
            let signal = libc::WSTOPSIG(status);
            if !matches!(signal, libc::SIGTRAP | libc::SIGSTOP) {
                // After a fault, every step would repeat the fault.
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, &raw mut status, 0);
                panic!("signal {signal} after {} instructions", addresses.len());
            }
            let mut registers: libc::user_regs_struct = core::mem::zeroed();
            libc::ptrace(libc::PTRACE_GETREGS, child, 0, &raw mut registers);
            addresses.push(registers.rip);
            libc::ptrace(libc::PTRACE_SINGLESTEP, child, 0, 0);
            libc::waitpid(child, &raw mut status, 0);
        }
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }
}

/// The function at an address, or the file and the offset in it if there is no symbol.
fn place_of(address: u64) -> String {
    // SAFETY: the structure is plain pointers, for which zeros are valid, and is read only where the call has filled
    // it; the names live as long as the files that they are from, which this process never unloads.
    unsafe {
        let mut found: libc::Dl_info = core::mem::zeroed();
        if libc::dladdr(address as *const _, &raw mut found) == 0 {
            return format!("{address:#x}");
        }
        let text = |name| std::ffi::CStr::from_ptr(name).to_string_lossy();
        let offset = address - found.dli_fbase as u64;
        let symbol = match found.dli_sname.is_null() {
            true => "?".into(),
            false => text(found.dli_sname),
        };
        format!("{symbol} ({}+{offset:#x})", text(found.dli_fname))
    }
}

/// Compares the instructions executed with the secrets of two seeds. The first run is ignored, because it resolves
/// functions.
fn the_same_way<S>(name: &str, prepare: impl Fn(usize) -> S, work: impl Fn(&mut S)) -> bool {
    if name == "portable" {
        // Portable code has the most instructions, each of which costs two kernel calls here, and valgrind tests the
        // same code.
        return true;
    }
    work(&mut prepare(0));
    let (mut first, mut second) = (Vec::with_capacity(ROOM), Vec::with_capacity(ROOM));
    // One closure: two would be two copies of the code, at different addresses.
    let trace = |seed, addresses: &mut _| executed(addresses, || prepare(seed), &work);
    let traced = trace(1, &mut first);
    trace(2, &mut second);
    let why = "processes may not be traced here: allow ptrace";
    if lab::require(traced.then_some(()).ok_or(why)).is_none() {
        return true;
    }
    assert!(first.len() < ROOM, "{name}: give it more room");
    if let Some(at) = (0..first.len().max(second.len())).find(|&at| first.get(at) != second.get(at))
    {
        let place = |of: &[u64]| {
            of.get(at)
                .map_or_else(|| "its end".into(), |&at| place_of(at))
        };
        let (one, other) = (place(&first), place(&second));
        println!("{name}: instruction {at} is at {one} and at {other}");
    }
    println!("{name}: {} instructions", first.len());
    first == second
}

/// Bytes of texts: a whole group of one length, and some of other lengths.
const LENS: [usize; 11] = [200, 200, 200, 200, 200, 200, 200, 200, 17, 70, 300];

/// The index of a forged packet among equally long ones.
const FORGED: usize = 3;

#[test]
fn a_branch_on_a_secret_is_found() {
    let numbers = |seed| {
        let mut secret = [0; 8];
        Numbers(seed as u64).fill(&mut secret);
        secret
    };
    let same = the_same_way("a leak", numbers, |secret| {
        if std::hint::black_box(secret[0]) % 7 == 3 {
            std::hint::black_box(&mut *secret)[1] = 5;
        }
        for _ in 0..std::hint::black_box(secret[2]) {
            std::hint::black_box(());
        }
    });
    // Where tracing is impossible, the test proves nothing.
    assert!(!same || !executed(&mut Vec::new(), || (), |()| ()));
}

/// Turns one bit of a tag: another bit for each seed, so that a comparison that ends early would end elsewhere.
fn forge(tag: &mut [u8], seed: usize) {
    let at = [0, tag.len() / 3, tag.len() - 1][seed];
    tag[at] ^= 1 << seed;
}

#[test]
fn a_comparison_that_ends_early_is_found() {
    let forged = |seed| {
        let mut received = [0; 16];
        forge(&mut received, seed);
        received
    };
    let same = the_same_way("a leak", forged, |received| {
        let pairs = received.iter().zip(&[0; 16]);
        let right = pairs.take_while(|(a, b)| std::hint::black_box(**a) == **b);
        std::hint::black_box(right.count());
    });
    assert!(!same || !executed(&mut Vec::new(), || (), |()| ()));
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
            let plain = |seed| {
                let implementation = aeads(algorithm, &key(seed)).swap_remove(at).1;
                (implementation, secrets(seed, end))
            };
            let same = the_same_way(name, plain, |(implementation, memory)| {
                implementation.seal(memory, &places);
            });
            assert!(same, "{name} {} seals", algorithm.name());
            let sealed = |seed| {
                let (implementation, mut memory) = plain(seed);
                implementation.seal(&mut memory, &places);
                forge(&mut memory[places[FORGED].tag..][..TAG_LEN], seed);
                (implementation, memory, [false; LENS.len()])
            };
            type Sealed = (Box<dyn AeadImplementation>, Vec<u8>, [bool; LENS.len()]);
            let open = |(implementation, memory, authentic): &mut Sealed| {
                implementation.open(memory, &places, authentic);
            };
            let same = the_same_way(name, sealed, open);
            assert!(same, "{name} {} opens", algorithm.name());
            // Checks that all packets except the forged one were opened.
            let mut opened = sealed(0);
            open(&mut opened);
            let right = core::array::from_fn(|number| number != FORGED);
            assert_eq!(opened.2, right, "{name} {}", algorithm.name());
        }
    }
}

#[test]
fn chains_take_the_same_way_whatever_the_secrets() {
    // The batch has as many packets as the widest code has lanes, and one with more blocks than are decrypted at once.
    let mut lens = [48; 18];
    (lens[2], lens[9]) = (16, 320);
    let mut end = 0;
    let chains = lens.map(|len| {
        let text = end + 16..end + 16 + len;
        end = text.end;
        Chain::new(&text, 16)
    });
    for (at, (name, _)) in cbcs(&[0; 32]).iter().enumerate() {
        let secret = |seed| (cbcs(&key(seed)).swap_remove(at).1, secrets(seed, end));
        let same = the_same_way(name, secret, |(implementation, memory)| {
            implementation.encrypt(memory, &chains);
        });
        assert!(same, "{name} encrypts");
        let same = the_same_way(name, secret, |(implementation, memory)| {
            implementation.decrypt(memory, &chains);
        });
        assert!(same, "{name} decrypts");
    }
}

#[test]
fn macs_take_the_same_way_whatever_the_secrets() {
    // With fewer messages than lanes, some code leaves them to the library.
    let mut lens = [30; 17];
    lens[16] = 70;
    let mut end = 0;
    let messages = lens.map(|len| {
        end += len;
        end - len..end
    });
    for digest in [Digest::Sha1, Digest::Sha256, Digest::Sha512] {
        for (at, (name, _)) in macs(digest, &[0; 32]).iter().enumerate() {
            let secret = |seed| {
                let implementation = macs(digest, &key(seed)).swap_remove(at).1;
                (implementation, secrets(seed, end), [Mac::EMPTY; 17])
            };
            let same = the_same_way(name, secret, |(implementation, memory, found)| {
                implementation.sign_each(memory, &messages, found);
            });
            assert!(same, "{name} {digest}");
        }
    }
}

/// Tests the code around the candidates: numbers, padding, and the comparison of codes.
#[test]
fn packets_take_the_same_way_whatever_the_secrets() {
    for (cipher, digest) in [
        (Cipher::Aes256Gcm, Digest::None),
        (Cipher::Aes256Cbc, Digest::Sha256),
        (Cipher::None, Digest::Sha1),
    ] {
        // Asks for a kind of code, because other tests import choices and would change the pick.
        let with_key = |seed| {
            let mut secrets = [[0; 64]; 2];
            for secret in &mut secrets {
                secret[..32].copy_from_slice(&key(seed));
            }
            packet_cipher(Some(Backend::Simd), (cipher, digest), &secrets).unwrap()
        };
        let a_cipher = with_key(0);
        let (head, mut end) = (a_cipher.head(), 0);
        let batch = LENS.map(|len| {
            let start = end + 4 + head;
            end = start + len + a_cipher.tail(len);
            Packet {
                start: start as u32,
                len: len as u32,
                counter: 1,
                authentic: false,
            }
        });
        let datagrams = batch.map(|packet| Packet {
            start: packet.start - head as u32,
            len: (head + packet.len as usize + a_cipher.tail(packet.len as usize)) as u32,
            ..packet
        });
        let plain = |seed| (with_key(seed), secrets(seed, end), batch);
        type Packets = (
            std::sync::Arc<dyn crate::PacketCipher>,
            Vec<u8>,
            [Packet; LENS.len()],
        );
        let seal = |(cipher, memory, packets): &mut Packets| {
            cipher.seal(&mut Batch { memory, packets });
        };
        let sealed = |seed| {
            let mut packets = plain(seed);
            seal(&mut packets);
            let head = datagrams[FORGED].start as usize;
            let tag = match cipher.is_aead() {
                true => &mut packets.1[head + 4..][..TAG_LEN],
                false => &mut packets.1[head..][..digest.len()],
            };
            forge(tag, seed);
            packets.2 = datagrams;
            packets
        };
        let open = |(cipher, memory, packets): &mut Packets| {
            cipher.open(&mut Batch { memory, packets });
        };
        let name = cipher.name();
        assert!(the_same_way(name, plain, seal), "{name} seals");
        assert!(the_same_way(name, sealed, open), "{name} opens");
        let mut opened = sealed(0);
        open(&mut opened);
        for (number, packet) in opened.2.iter().enumerate() {
            assert_eq!(packet.authentic, number != FORGED, "{name} {number}");
        }
    }
}

/// The key of a seed.
fn key(seed: usize) -> [u8; 32] {
    let mut key = [0; 32];
    Numbers(seed as u64 + 99).fill(&mut key);
    key
}

/// `len` bytes that depend on the seed.
fn secrets(seed: usize, len: usize) -> Vec<u8> {
    let mut memory = vec![0; len];
    Numbers(seed as u64).fill(&mut memory);
    memory
}
