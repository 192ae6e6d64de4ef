//! Counting instructions by class.
//!
//! The counter decodes code from start to end and skips the constants that instructions load from literal
//! pools. Two kinds of data could still pass for instructions: constants that code reaches by address
//! (tables of ciphers), and, without section headers, other data in the segment. Therefore it first judges
//! code without mapping symbols by windows of 256 bytes:
//!
//! - A32 has the condition "always" in nearly every instruction; random data has it in one word out of sixteen.
//! - A64 has a quarter of its encodings unallocated, and letters and small numbers mostly fall there.
//! - T32 uses every bit, but compilers mostly write few forms. Text has bytes below 0xe8 only, so it holds
//!   no instruction of any class.
//!
//! Where no symbol separates A32 from T32, a window is A32 if it looks like A32, else T32 if it looks like
//! T32, else constants.
//!
//! Measured on OpenSSL 3.0.20 of Debian 12, linked whole from `libcrypto.a`. With mapping symbols, armhf
//! (T32) shows 5045 NEON and 515 VFP instructions, where objdump has 5046 and 515. Stripped, it shows 5044
//! and 525; without section headers, the same. arm64 shows 2872 AES and 341 PMULL instructions with
//! symbols, 2871 and 340 without. armel has no NEON and no VFP: Debian's `libcrypto` and `openvpn` show 5
//! NEON, 2 VFP and 43 v7 instructions among 678 000. Three megabytes of random bytes in an executable
//! segment show none. A handful of any class therefore means nothing.

use std::ops::Range;

use object::elf;

use super::classes::Classes;
use super::image::{Image, Symbol};
use super::regions::{self, Mode, Region, Sure};
use super::spread::Places;
use super::{a32, a64, t32};
use crate::bytes::Order;
use crate::facts::{Counts, Spread};

/// Bytes that the counter judges at once.
const WINDOW: usize = 256;

/// Counts over the executable parts.
pub(super) struct Found {
    /// Bytes in the executable parts.
    pub(super) text: u64,
    pub(super) counts: Counts,
    pub(super) neon: Spread,
}

/// Counts the instructions of the whole file.
pub(super) fn count(image: &Image<'_>) -> Found {
    let parts = regions::executable(image);
    let mut symbols: Vec<&Symbol<'_>> = image
        .symbols
        .iter()
        .filter(|symbol| symbol.offset.is_some())
        .collect();
    symbols.sort_by_key(|symbol| (symbol.offset, symbol.size == 0));
    let mut walk = Walk {
        bytes: image.bytes,
        order: Order {
            big: image.order.big
                && image.machine == elf::EM_ARM
                && (image.flags & elf::EF_ARM_BE8.0 == 0 || image.file_type == elf::ET_REL),
        },
        skip: Vec::new(),
        base: 0,
        counts: Counts::default(),
        places: Places::new(&parts, &symbols),
        code: 0,
    };
    for part in &parts {
        walk.base = part.start;
        walk.skip = vec![0; part.len().div_ceil(32)];
        for region in regions::regions(image, part, &symbols) {
            walk.region(&region);
        }
    }
    let text = parts.iter().map(|part| part.len() as u64).sum();
    Found {
        text,
        counts: walk.counts,
        neon: walk.places.spread(walk.code),
    }
}

struct Walk<'a> {
    bytes: &'a [u8],
    /// Byte order of instructions: big-endian in old files only.
    order: Order,
    /// A bit for each four bytes of the part, set if an instruction loads them as a constant.
    skip: Vec<u8>,
    base: usize,
    counts: Counts,
    places: Places<'a>,
    /// Bytes that decoded as instructions.
    code: usize,
}

impl Walk<'_> {
    fn region(&mut self, region: &Region) {
        let range = region.range.clone();
        match region.mode {
            Mode::Data => {}
            mode if region.sure == Sure::Constants => self.constants(range, mode),
            Mode::A32 | Mode::A64 if region.sure == Sure::Code => self.words(range, region.mode),
            Mode::T32 => _ = self.halves(range.start, range.end),
            mode => {
                let mut at = range.start;
                let mut after_code = false;
                while at < range.end {
                    // Windows end at multiples of their size, except the last.
                    let end = (at - at % WINDOW + WINDOW).min(range.end);
                    let looks = match mode {
                        Mode::Unknown | Mode::A32 if self.is_a32(at..end) => Some(Mode::A32),
                        Mode::Unknown if self.is_t32(at..end) => Some(Mode::T32),
                        Mode::A64 if self.is_a64(at..end) => Some(Mode::A64),
                        _ => None,
                    };
                    match looks {
                        // An instruction may reach into the next window.
                        Some(Mode::T32) => {
                            at = self.halves(at, end);
                            after_code = true;
                            continue;
                        }
                        Some(mode) => self.words(at..end, mode),
                        // A table that begins within a window makes the code before it look like constants.
                        None if mode != Mode::Unknown && after_code => {
                            self.constants(at..end, mode);
                        }
                        None => {}
                    }
                    after_code = looks.is_some();
                    at = end;
                }
            }
        }
    }

    fn words(&mut self, range: Range<usize>, mode: Mode) {
        let start = range.start.next_multiple_of(4);
        for at in (start..range.end).step_by(4) {
            if self.skipped(at) {
                continue;
            }
            let Some(word) = self.word(at) else { break };
            let (class, literal) = match mode {
                Mode::A32 => (a32::classes(word), a32::literal(word)),
                _ => (a64::classes(word), a64::literal(word)),
            };
            if let Some(class) = class {
                self.found(at, class);
                self.code += 4;
            }
            if let Some((distance, size)) = literal {
                self.pass_over(at, distance, size);
            }
        }
    }

    /// Decodes T32 up to `end`, and returns where the last instruction ended.
    fn halves(&mut self, start: usize, end: usize) -> usize {
        let mut at = start.next_multiple_of(2);
        while at < end {
            if at.is_multiple_of(4) && self.skipped(at) {
                at += 4;
                continue;
            }
            let Some(half) = self.half(at) else { break };
            let next = self.half(at + 2).unwrap_or(0);
            if let Some((distance, size)) = t32::literal(half, next) {
                self.pass_over(at & !3, distance, size);
            }
            if t32::is_wide(half) {
                if let Some(class) = t32::wide(half, next) {
                    self.found(at, class);
                    self.code += 4;
                }
                at += 4;
            } else {
                self.found(at, t32::narrow(half));
                self.code += 2;
                at += 2;
            }
        }
        at.max(end)
    }

    /// Counts instructions that the source gave as bytes: only those of cryptography, whose encodings are
    /// so narrow that one word of 10 000 matches by chance.
    fn constants(&mut self, range: Range<usize>, mode: Mode) {
        // T32 may begin at any halfword, but sources give such bytes four at a time.
        for at in (range.start.next_multiple_of(2)..range.end).step_by(4) {
            let class = match mode {
                _ if self.skipped(at) => None,
                Mode::A32 => self.word(at).and_then(a32::classes),
                Mode::A64 => self.word(at).and_then(a64::classes),
                _ => self
                    .half(at)
                    .zip(self.half(at + 2))
                    .and_then(|(half, next)| t32::wide(half, next)),
            };
            if let Some(class) = class.filter(|class| class.any(Classes::CRYPTO)) {
                self.found(at, class);
            }
        }
    }

    fn found(&mut self, at: usize, class: Classes) {
        class.count(&mut self.counts);
        if class.any(Classes::SIMD | Classes::DOUBLE) {
            self.places.found(self.base, at, class);
        }
    }

    fn is_a32(&self, range: Range<usize>) -> bool {
        let (words, likely) = self.words_that(range, a32::plausible);
        likely * 5 > words * 2
    }

    fn is_a64(&self, range: Range<usize>) -> bool {
        let (words, none) = self.words_that(range, |word| a64::classes(word).is_none());
        none * 10 <= words
    }

    /// The number of words that are not constants, and how many of these fit.
    fn words_that(&self, range: Range<usize>, fits: impl Fn(u32) -> bool) -> (u32, u32) {
        let (mut words, mut fitting) = (0, 0);
        for at in (range.start.next_multiple_of(4)..range.end).step_by(4) {
            if !self.skipped(at)
                && let Some(word) = self.word(at)
            {
                words += 1;
                fitting += u32::from(fits(word));
            }
        }
        (words, fitting)
    }

    fn is_t32(&self, range: Range<usize>) -> bool {
        let (mut count, mut likely) = (0, 0);
        let mut at = range.start.next_multiple_of(2);
        while at < range.end {
            let Some(half) = self.half(at) else { break };
            if at.is_multiple_of(4) && self.skipped(at) {
                at += 4;
                continue;
            }
            count += 1;
            likely += u32::from(t32::usual(half, self.half(at + 2).unwrap_or(0)));
            at += if t32::is_wide(half) { 4 } else { 2 };
        }
        likely * 4 > count
    }

    fn word(&self, at: usize) -> Option<u32> {
        self.order.u32(self.bytes, at)
    }

    fn half(&self, at: usize) -> Option<u16> {
        self.order.u16(self.bytes, at)
    }

    fn skipped(&self, at: usize) -> bool {
        let word = (at - self.base) / 4;
        self.skip
            .get(word / 8)
            .is_some_and(|bits| bits & 1 << (word % 8) != 0)
    }

    fn pass_over(&mut self, at: usize, distance: i32, size: usize) {
        let target = (at as i64).saturating_add(i64::from(distance));
        let Some(start) = usize::try_from(target)
            .ok()
            .and_then(|target| target.checked_sub(self.base))
        else {
            return;
        };
        for word in start / 4..(start + size).div_ceil(4) {
            if let Some(bits) = self.skip.get_mut(word / 8) {
                *bits |= 1 << (word % 8);
            }
        }
    }
}
