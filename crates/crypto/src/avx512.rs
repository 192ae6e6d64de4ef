//! ChaCha20-Poly1305 (RFC 8439) for groups of equally long packets, on AVX-512 with IFMA.
//!
//! A library sees one packet at a time and must find parallelism inside it: powers of Poly1305's key to work on several
//! blocks of one chain, and a tail of every length. A group needs none of that. ChaCha20 puts one 64-byte block of any
//! packet in each of 16 lanes; Poly1305 puts one packet in each of 8. Because the packets are equally long, all lanes
//! do the same work to the end. A column of eight 64-byte blocks goes through both ciphers while it is in registers.
//!
//! ```text
//!            block 0    block 1    block 2    block 3   ...   (ChaCha20's counter)
//! packet 0   key        column 0   column 1   column 2  ...
//!   ...
//! packet 7   key        column 0   column 1   column 2  ...
//!            `---- one pass -----' `---- one pass ----'
//! ```
//!
//! No branch and no address depends on a key or on a text.

mod chacha20;
mod groups;
mod poly1305;
pub(crate) mod transpose;

use core::arch::x86_64::*;

use zeroize::Zeroizing;

use crate::TAG_LEN;
use crate::implementations::{Place, is_right};
use chacha20::ChaCha20;
pub(crate) use groups::Groups;
use poly1305::Poly1305;
use transpose::{LANES, Rows};

/// Packets of one length and one key, in one memory, whose parts lie within it.
#[derive(Debug)]
pub(crate) struct Group {
    /// First byte of each packet's text. A lane without a packet repeats another packet's.
    starts: [usize; LANES],
    /// First byte of each packet's associated data.
    aads: [usize; LANES],
    /// First byte of each packet's tag.
    tags: [usize; LANES],
    /// Nonce of each packet.
    nonces: [[u8; 12]; LANES],
    /// The number of lanes with a packet, from the first; nothing is written for the others.
    filled: usize,
    /// Bytes of text of every packet.
    len: usize,
    /// Bytes of associated data of every packet.
    aad_len: usize,
}

impl Group {
    /// Makes a group of its first packet; `None` if the packet is longer than 65,535 bytes. So ChaCha20's counter of 32
    /// bits cannot wrap.
    pub(crate) fn new(first: &Place) -> Option<Self> {
        (first.text.len() <= usize::from(u16::MAX)).then(|| Self {
            starts: [first.text.start; LANES],
            aads: [first.aad.start; LANES],
            tags: [first.tag; LANES],
            nonces: [first.nonce; LANES],
            filled: 1,
            len: first.text.len(),
            aad_len: first.aad.len(),
        })
    }

    /// Adds a packet; `false` if the group is full or its packets have another length.
    pub(crate) fn push(&mut self, place: &Place) -> bool {
        let lane = self.filled;
        if lane == LANES || (place.text.len(), place.aad.len()) != (self.len, self.aad_len) {
            return false;
        }
        self.starts[lane] = place.text.start;
        self.aads[lane] = place.aad.start;
        self.tags[lane] = place.tag;
        self.nonces[lane] = place.nonce;
        self.filled += 1;
        true
    }

    /// Columns of 64 bytes, of which the last may be partial.
    fn columns(&self) -> usize {
        self.len.div_ceil(64)
    }

    /// Whether the group is faster beside another group: by itself its blocks are computed in pairs, and with the block
    /// for the tag's key their number is odd.
    fn wants_company(&self) -> bool {
        self.columns().is_multiple_of(2)
    }

    /// Whether the packets of both groups have equal lengths.
    fn is_like(&self, other: &Self) -> bool {
        (self.len, self.aad_len) == (other.len, other.aad_len)
    }

    /// The number of packets in the group.
    pub(crate) fn filled(&self) -> usize {
        self.filled
    }
}

/// A key on a machine with AVX-512. An instance exists only if the CPU has the instructions.
pub(crate) struct Avx512 {
    key: Zeroizing<[u32; 8]>,
}

impl Avx512 {
    /// `None` on a machine that lacks the instructions.
    pub(crate) fn new(key: &[u8; 32]) -> Option<Self> {
        let present = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512ifma");
        if !present {
            return None;
        }
        let mut words = Zeroizing::new([0; 8]);
        for (word, bytes) in words.iter_mut().zip(key.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        Some(Self { key: words })
    }

    /// Encrypts the packets in place and writes their tags.
    ///
    /// # Panics
    ///
    /// If a packet's parts do not lie within `memory`.
    fn seal(&self, memory: &mut [u8], group: &Group) {
        // SAFETY: `new` has found the features.
        let tags = unsafe { apply::<true>(&self.key, memory, group) };
        group.write(memory, &tags);
    }

    /// Seals two groups that are alike; see `seal`.
    fn seal_two(&self, memory: &mut [u8], groups: [&Group; 2]) {
        // SAFETY: `new` has found the features.
        let tags = unsafe { apply_two::<true>(&self.key, memory, groups) };
        for (group, tags) in groups.into_iter().zip(&tags) {
            group.write(memory, tags);
        }
    }

    /// Decrypts the packets in place and sets as many of `authentic` as there are packets. The texts of packets that
    /// are not authentic become zeros.
    ///
    /// # Panics
    ///
    /// If a packet's parts do not lie within `memory`.
    fn open(&self, memory: &mut [u8], group: &Group, authentic: &mut [bool]) {
        // SAFETY: `new` has found the features.
        let tags = unsafe { apply::<false>(&self.key, memory, group) };
        group.compare(memory, &tags, authentic);
    }

    /// Opens two groups that are alike; see `open`.
    fn open_two(&self, memory: &mut [u8], groups: [&Group; 2], authentic: &mut [bool]) {
        // SAFETY: `new` has found the features.
        let tags = unsafe { apply_two::<false>(&self.key, memory, groups) };
        let (first, second) = authentic.split_at_mut(groups[0].filled);
        groups[0].compare(memory, &tags[0], first);
        groups[1].compare(memory, &tags[1], second);
    }
}

impl Group {
    fn write(&self, memory: &mut [u8], tags: &[[u8; TAG_LEN]; LANES]) {
        for lane in 0..self.filled {
            memory[self.tags[lane]..][..TAG_LEN].copy_from_slice(&tags[lane]);
        }
    }

    fn compare(&self, memory: &mut [u8], tags: &[[u8; TAG_LEN]; LANES], authentic: &mut [bool]) {
        for (lane, authentic) in authentic[..self.filled].iter_mut().enumerate() {
            *authentic = is_right(&tags[lane], &memory[self.tags[lane]..][..TAG_LEN]);
            if !*authentic {
                memory[self.starts[lane]..][..self.len].fill(0);
            }
        }
    }
}

/// Turns plaintext into ciphertext (`SEAL`) or back, and returns the tags of the ciphertext.
#[target_feature(enable = "avx512f,avx512bw,avx512ifma")]
fn apply<const SEAL: bool>(
    key: &[u32; 8],
    memory: &mut [u8],
    group: &Group,
) -> [[u8; TAG_LEN]; LANES] {
    let chacha20 = ChaCha20::new(key, &group.nonces);
    let (keys, first) = chacha20.blocks(0);
    let mut work = Work::new(memory, group, keys);
    let columns = group.columns();
    if columns > 0 {
        work.column::<SEAL>(memory, 0, first);
    }
    let mut column = 1;
    while column < columns {
        let (even, odd) = chacha20.blocks(column as u32 + 1);
        work.column::<SEAL>(memory, column, even);
        if column + 1 < columns {
            work.column::<SEAL>(memory, column + 1, odd);
        }
        column += 2;
    }
    work.finish()
}

/// Applies the cipher to two groups of packets of one length, in parallel: no unneeded block is computed.
#[target_feature(enable = "avx512f,avx512bw,avx512ifma")]
fn apply_two<const SEAL: bool>(
    key: &[u32; 8],
    memory: &mut [u8],
    [first, second]: [&Group; 2],
) -> [[[u8; TAG_LEN]; LANES]; 2] {
    let chacha20 = ChaCha20::of_two(key, [&first.nonces, &second.nonces]);
    let keys = chacha20.blocks(0);
    let mut first = Work::new(memory, first, keys.0);
    let mut second = Work::new(memory, second, keys.1);
    for column in 0..first.group.columns() {
        let keystreams = chacha20.blocks(column as u32 + 1);
        first.column::<SEAL>(memory, column, keystreams.0);
        second.column::<SEAL>(memory, column, keystreams.1);
    }
    [first.finish(), second.finish()]
}

/// State of a group.
struct Work<'a> {
    group: &'a Group,
    poly1305: Poly1305,
    /// The last block of Poly1305's input: bytes of associated data and of ciphertext.
    lengths: [__m512i; 2],
}

impl<'a> Work<'a> {
    /// Begins with the first block of each packet's keystream, which has Poly1305's keys.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512ifma")]
    fn new(memory: &[u8], group: &'a Group, keys: Rows) -> Self {
        let mut poly1305 = Poly1305::new(&transpose::words64(keys));
        poly1305.absorb(memory, &group.aads, group.aad_len);
        let lengths = [
            _mm512_set1_epi64(group.aad_len as i64),
            _mm512_set1_epi64(group.len as i64),
        ];
        Self {
            group,
            poly1305,
            lengths,
        }
    }

    /// The tags, after all columns.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512ifma")]
    fn finish(mut self) -> [[u8; TAG_LEN]; LANES] {
        if self.group.len.is_multiple_of(64) {
            self.poly1305.step([self.lengths]);
        }
        self.poly1305.finish()
    }

    /// XORs the keystream into a column and authenticates its ciphertext; with a partial last column, the lengths too.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512ifma")]
    fn column<const SEAL: bool>(&mut self, memory: &mut [u8], column: usize, keystream: Rows) {
        let bytes = (self.group.len - column * 64).min(64);
        if bytes == 64 {
            let [a, b, c, d] = self.xor::<SEAL, true>(memory, column, 64, keystream);
            self.poly1305.step([a, b, c, d]);
            return;
        }
        let [a, b, c, d] = self.xor::<SEAL, false>(memory, column, bytes, keystream);
        match bytes.div_ceil(16) {
            1 => self.poly1305.step([a, self.lengths]),
            2 => self.poly1305.step([a, b, self.lengths]),
            3 => self.poly1305.step([a, b, c, self.lengths]),
            _ => {
                self.poly1305.step([a, b, c, d]);
                self.poly1305.step([self.lengths]);
            }
        }
    }

    /// XORs the keystream into `bytes` of each packet and returns the ciphertext, padded with zeros to four blocks.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512ifma")]
    fn xor<const SEAL: bool, const WHOLE: bool>(
        &self,
        memory: &mut [u8],
        column: usize,
        bytes: usize,
        keystream: Rows,
    ) -> [[__m512i; 2]; 4] {
        let mask = if WHOLE { !0 } else { (1 << bytes) - 1 };
        let mut ciphertext = keystream;
        for lane in 0..LANES {
            let at = self.group.starts[lane] + column * 64;
            let text = &mut memory[at..at + bytes];
            // SAFETY: `text` has as many bytes as the mask has ones, which is all 64 of them in a whole column.
            let before = unsafe {
                if WHOLE {
                    _mm512_loadu_si512(text.as_ptr().cast())
                } else {
                    _mm512_maskz_loadu_epi8(mask, text.as_ptr().cast())
                }
            };
            let after = _mm512_xor_si512(before, keystream[lane]);
            if lane < self.group.filled {
                // SAFETY: as above.
                unsafe {
                    if WHOLE {
                        _mm512_storeu_si512(text.as_mut_ptr().cast(), after);
                    } else {
                        _mm512_mask_storeu_epi8(text.as_mut_ptr().cast(), mask, after);
                    }
                }
            }
            ciphertext[lane] = match (SEAL, WHOLE) {
                (false, _) => before,
                (true, true) => after,
                (true, false) => _mm512_maskz_mov_epi8(mask, after),
            };
        }
        let [a, b, c, d, e, f, g, h] = transpose::words64(ciphertext);
        [[a, b], [c, d], [e, f], [g, h]]
    }
}
