//! Every candidate between inaccessible pages: a byte read or written outside the given memory ends the process. This
//! checks C and assembly, where Rust checks no bounds.
//!
//! Batches begin at the first accessible byte, or end at the last; packets have 0 to 65,535 bytes at any alignment.
//! `MILLRACE_CRYPTO_BATCHES` sets the number of batches; 300 by default.

use super::agreement::batches;
use super::common::*;
use crate::packet_aead::{self, AeadLayout};
use crate::primitives::packet_cipher;
use crate::{Batch, Cipher, Packet, PacketCipher, checksum};

/// Maximum packet length, in bytes.
const LONGEST: usize = 65_535;

/// Accessible pages between two runs of inaccessible pages.
struct Guarded {
    map: *mut libc::c_void,
    /// Bytes of the guard in front, and of that behind: more than any implementation could want to look ahead.
    guard: usize,
    /// Bytes between the guards.
    room: usize,
}

impl Guarded {
    fn new(room: usize) -> Self {
        // 64 KiB is a multiple of every page size.
        let guard = 1 << 16;
        let room = room.next_multiple_of(guard);
        // SAFETY: a new mapping, at a place that the kernel chooses, of which the middle is made accessible.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let none = libc::PROT_NONE;
            let map = libc::mmap(core::ptr::null_mut(), room + 2 * guard, none, flags, -1, 0);
            assert_ne!(map, libc::MAP_FAILED);
            let both = libc::PROT_READ | libc::PROT_WRITE;
            assert_eq!(libc::mprotect(map.byte_add(guard), room, both), 0);
            Self { map, guard, room }
        }
    }

    /// Returns `len` bytes: directly after the front guard, or directly before the back guard.
    fn bytes(&mut self, len: usize, at_end: bool) -> &mut [u8] {
        assert!(len <= self.room);
        let start = self.guard + if at_end { self.room - len } else { 0 };
        // SAFETY: within the accessible pages, which are zeros or what was written, and borrowed as long as `self` is.
        unsafe { core::slice::from_raw_parts_mut(self.map.byte_add(start).cast(), len) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made, of which nothing is borrowed any more.
        unsafe { libc::munmap(self.map, self.room + 2 * self.guard) };
    }
}

#[test]
fn checksums_touch_no_byte_beside_their_memory() {
    let mut guarded = Guarded::new(LONGEST);
    for at_end in [false, true] {
        for len in (0..300).chain([1348, 1351, LONGEST]) {
            let bytes = guarded.bytes(len, at_end);
            core::hint::black_box(checksum::sum(bytes));
            for distance in [0, 1, 40, 64, len / 2].into_iter().filter(|it| *it <= len) {
                checksum::move_up(bytes, 0..len - distance, distance);
            }
        }
    }
}

#[cfg(all(neon, target_arch = "arm"))]
#[test]
fn what_copies_moves_fills_and_compares_touches_no_byte_beside_its_memory() {
    use crate::neon::memory::{millrace_compare, millrace_copy, millrace_fill, millrace_move};

    let (mut one, mut other) = (Guarded::new(LONGEST), Guarded::new(LONGEST));
    for (first, second) in [(false, false), (false, true), (true, false), (true, true)] {
        for len in (0..300).chain([1348, 1351, LONGEST]) {
            let from = one.bytes(len, first);
            let (start, to) = (from.as_mut_ptr(), other.bytes(len, second).as_mut_ptr());
            // SAFETY: both slices have this many bytes, and moves within one of them end where it ends.
            unsafe {
                millrace_fill(start, 0x5a, len);
                millrace_copy(to, start, len);
                millrace_move(start, to, len);
                assert_eq!(millrace_compare(to, start, len), 0);
                for distance in [1, 40, 64].into_iter().filter(|it| *it <= len) {
                    millrace_move(start.add(distance), start, len - distance);
                    millrace_move(start, start.add(distance), len - distance);
                }
            }
        }
    }
}

/// Lengths of a batch: small, of a usual packet's size, or up to the longest; all alike or all different.
fn lens(numbers: &mut Numbers, most_packets: usize) -> Vec<usize> {
    let longest = [40, 300, 1500, 9000, LONGEST][numbers.below(5)];
    // At most some hundred kilobytes, for the emulator's sake.
    let most_packets = most_packets.min(1 + 400_000 / longest);
    let packets = 1 + numbers.below(most_packets);
    let alike = numbers.below(2) == 0;
    let mut len = numbers.below(longest + 1);
    let len = |_| {
        if !alike {
            len = numbers.below(longest + 1);
        }
        // Sometimes the longest length itself, and sometimes 0.
        match numbers.below(40) {
            0 => 0,
            1 => longest,
            _ => len,
        }
    };
    (0..packets).map(len).collect()
}

/// Bytes between two packets.
fn gap(numbers: &mut Numbers, number: usize) -> usize {
    if number == 0 { 0 } else { numbers.below(20) }
}

/// Places that fill the memory from the first byte to the last.
fn places(numbers: &mut Numbers, lens: &[usize]) -> (Vec<Place>, usize) {
    let behind = numbers.below(2) == 0;
    let aad_len = [0, 4, 8, 12, 13, 33][numbers.below(6)];
    let mut end = 0;
    let mut all = Vec::new();
    for (number, len) in lens.iter().enumerate() {
        let aad = end + gap(numbers, number);
        let aad = aad..aad + aad_len;
        let start = aad.end + if behind { 0 } else { TAG_LEN };
        let text = start..start + len;
        let tag = if behind { text.end } else { aad.end };
        end = text.end + if behind { TAG_LEN } else { 0 };
        let mut nonce = [0; 12];
        numbers.fill(&mut nonce);
        all.push(Place {
            aad,
            text,
            tag,
            nonce,
        });
    }
    (all, end)
}

/// Checks that `work` has the same effect on a copy of `plain` between guards, at either end, as elsewhere.
fn between_guards(name: &str, plain: &[u8], mut work: impl FnMut(&mut [u8])) -> Vec<u8> {
    let mut elsewhere = plain.to_vec();
    work(&mut elsewhere);
    let mut guarded = Guarded::new(plain.len());
    for at_end in [false, true] {
        let memory = guarded.bytes(plain.len(), at_end);
        memory.copy_from_slice(plain);
        work(memory);
        assert!(memory == elsewhere, "{name}: the same everywhere");
    }
    elsewhere
}

fn random(numbers: &mut Numbers, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    numbers.fill(&mut bytes);
    bytes
}

fn aeads_stay_inside(numbers: &mut Numbers, algorithm: AeadAlgorithm) {
    let key = random(numbers, algorithm.key_len());
    let lens = lens(numbers, CHUNK);
    let (places, len) = places(numbers, &lens);
    let plain = random(numbers, len);
    for (name, implementation) in aeads(algorithm, &key) {
        let sealed = between_guards(name, &plain, |memory| implementation.seal(memory, &places));
        let mut authentic = vec![false; places.len()];
        let opened = between_guards(name, &sealed, |memory| {
            implementation.open(memory, &places, &mut authentic);
            assert!(authentic.iter().all(|&authentic| authentic), "{name}");
        });
        assert!(places.iter().all(|place| {
            let text = place.text.clone();
            opened[text.clone()] == plain[text]
        }));
    }
}

fn cbcs_stay_inside(numbers: &mut Numbers) {
    let len = [16, 24, 32][numbers.below(3)];
    let key = random(numbers, len);
    let mut end = 0;
    let mut chains = Vec::new();
    for (number, len) in lens(numbers, CHUNK).iter().enumerate() {
        let start = end + gap(numbers, number) + 16;
        end = start + len / 16 * 16;
        chains.push(Chain::new(&(start..end), 16));
    }
    let plain = random(numbers, end);
    for (name, implementation) in cbcs(&key) {
        let sealed = between_guards(name, &plain, |memory| {
            implementation.encrypt(memory, &chains);
        });
        let opened = between_guards(name, &sealed, |memory| {
            implementation.decrypt(memory, &chains);
        });
        assert!(opened == plain, "{name}");
    }
}

fn macs_stay_inside(numbers: &mut Numbers, digest: Digest) {
    let len = numbers.below(200);
    let key = random(numbers, len);
    let mut end = 0;
    let mut messages = Vec::new();
    for (number, len) in lens(numbers, CHUNK).iter().enumerate() {
        let start = end + gap(numbers, number);
        end = start + len;
        messages.push(start..end);
    }
    let memory = random(numbers, end);
    for (name, implementation) in macs(digest, &key) {
        let mut first: Option<Vec<u8>> = None;
        between_guards(name, &memory, |memory| {
            let mut macs = vec![Mac::EMPTY; messages.len()];
            implementation.sign_each(memory, &messages, &mut macs);
            let all: Vec<u8> = macs
                .iter()
                .flat_map(|mac| mac.as_bytes())
                .copied()
                .collect();
            assert!(*first.get_or_insert_with(|| all.clone()) == all, "{name}");
        });
    }
}

/// Tests packets of a tunnel, up to 130 at once, by every kind of code.
fn packets_stay_inside(numbers: &mut Numbers, cipher: &dyn PacketCipher, header: usize) {
    let mut end = 0;
    let mut batch = Vec::new();
    for (number, len) in lens(numbers, 130).iter().enumerate() {
        let start = end + gap(numbers, number) + header + cipher.head();
        // A datagram cannot carry more.
        let len = *len.min(&(LONGEST - 200));
        end = start + len + cipher.tail(len);
        batch.push(Packet {
            start: start as u32,
            len: len as u32,
            counter: 1 + number as u64,
            authentic: false,
        });
    }
    let plain = random(numbers, end);
    let mut guarded = Guarded::new(end);
    for at_end in [false, true] {
        let memory = guarded.bytes(end, at_end);
        memory.copy_from_slice(&plain);
        let mut packets = batch.clone();
        cipher.seal(&mut Batch {
            memory,
            packets: &mut packets,
        });
        for packet in &mut packets {
            packet.start -= cipher.head() as u32;
            packet.len += (cipher.head() + cipher.tail(packet.len as usize)) as u32;
        }
        cipher.open(&mut Batch {
            memory,
            packets: &mut packets,
        });
        for (packet, sent) in packets.iter().zip(&batch) {
            assert!(packet.authentic, "{}", cipher.backend());
            let place = sent.range(0, 0, end).unwrap();
            assert!(memory[place.clone()] == plain[place]);
        }
    }
}

fn tunnels_stay_inside(numbers: &mut Numbers) {
    let mut keys = [[0; 64]; 2];
    numbers.fill(keys.as_flattened_mut());
    let kind = [None, Some(Backend::Portable), Some(Backend::Simd)];
    let kind = kind[numbers.below(3)];
    let ciphers = [
        Cipher::Aes128Gcm,
        Cipher::Aes256Gcm,
        Cipher::ChaCha20Poly1305,
        Cipher::Aes128Cbc,
        Cipher::Aes256Cbc,
    ];
    let digests = [Digest::Sha1, Digest::Sha256, Digest::Sha512];
    let (cipher, digest) = (ciphers[numbers.below(5)], digests[numbers.below(3)]);
    if let Some(cipher) = packet_cipher(kind, (cipher, digest), &keys) {
        packets_stay_inside(numbers, &*cipher, 4);
    }
    let cipher = Cipher::ChaCha20Poly1305;
    if let Some(numberless) = packet_aead::new(kind, cipher, &keys[0], AeadLayout::NoNumber) {
        packets_stay_inside(numbers, &*numberless, 0);
    }
}

#[test]
fn no_candidate_touches_a_byte_beside_its_memory() {
    let mut numbers = Numbers(0x6761_7264);
    for round in 0..batches(300) {
        let numbers = &mut numbers;
        match round % 10 {
            0 => aeads_stay_inside(numbers, AeadAlgorithm::Aes128Gcm),
            1 => aeads_stay_inside(numbers, AeadAlgorithm::Aes192Gcm),
            2 => aeads_stay_inside(numbers, AeadAlgorithm::Aes256Gcm),
            3 => aeads_stay_inside(numbers, AeadAlgorithm::ChaCha20Poly1305),
            4 => cbcs_stay_inside(numbers),
            5 => macs_stay_inside(numbers, Digest::Sha1),
            6 => macs_stay_inside(numbers, Digest::Sha256),
            7 => macs_stay_inside(numbers, Digest::Sha512),
            _ => tunnels_stay_inside(numbers),
        }
    }
}

/// Every length up to some blocks of every algorithm, and lengths around a page and the longest. Each time one packet
/// ends at the last accessible byte.
#[test]
fn no_length_makes_a_candidate_touch_a_byte_beside_its_memory() {
    let mut numbers = Numbers(3);
    let key = random(&mut numbers, 32);
    let lens = (0..=530).chain(4080..=4112).chain([LONGEST - 1, LONGEST]);
    let mut guarded = Guarded::new(LONGEST + 64);
    for len in lens {
        let place = Place {
            aad: 0..0,
            tag: 0,
            text: TAG_LEN..TAG_LEN + len,
            nonce: [9; 12],
        };
        for algorithm in [AeadAlgorithm::Aes256Gcm, AeadAlgorithm::ChaCha20Poly1305] {
            for (name, implementation) in aeads(algorithm, &key) {
                let memory = guarded.bytes(TAG_LEN + len, true);
                memory.fill(0x5a);
                implementation.seal(memory, core::slice::from_ref(&place));
                let mut authentic = [false];
                implementation.open(memory, core::slice::from_ref(&place), &mut authentic);
                assert!(authentic[0], "{name} {len}");
                assert!(memory[TAG_LEN..].iter().all(|&byte| byte == 0x5a));
            }
        }
        for (name, implementation) in cbcs(&key) {
            let end = 16 + len / 16 * 16;
            let memory = guarded.bytes(end, true);
            memory.fill(0x5a);
            let chain = [Chain::new(&(16..end), 16)];
            implementation.encrypt(memory, &chain);
            implementation.decrypt(memory, &chain);
            assert!(memory.iter().all(|&byte| byte == 0x5a), "{name} {len}");
        }
        for digest in [Digest::Sha1, Digest::Sha256, Digest::Sha512] {
            for (_, implementation) in macs(digest, &key) {
                // Fills all lanes with messages that end at the guard and begin 0 to 4 bytes into the memory.
                let memory = guarded.bytes(len, true);
                let messages: Vec<_> = (0..17).map(|lane| (lane % 5).min(len)..len).collect();
                let mut macs = vec![Mac::EMPTY; messages.len()];
                implementation.sign_each(memory, &messages, &mut macs);
            }
        }
    }
}

/// Checks that the guards exist: the kernel, which checks addresses before it reads, cannot read there.
#[test]
fn what_is_beside_the_memory_cannot_be_read() {
    let mut guarded = Guarded::new(1);
    let room = guarded.room;
    let bytes = guarded.bytes(room, false).as_mut_ptr_range();
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors, which are closed once. The kernel checks the addresses that it reads from.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        let readable = |at: *const u8| libc::write(ends[1], at.cast(), 1) == 1;
        assert!(readable(bytes.start) && readable(bytes.end.sub(1)));
        assert!(!readable(bytes.start.wrapping_sub(1)) && !readable(bytes.end));
        for end in ends {
            libc::close(end);
        }
    }
}
