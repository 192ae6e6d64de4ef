//! A64, the instructions of AArch64.
//!
//! Arm Architecture Reference Manual for A-profile (DDI 0487), part C, "A64 instruction set encoding". The
//! classes of cryptography and atomics are exact; scalar and vector data processing go by their groups.

use super::classes::Classes;

/// The classes of one instruction; `None` if the word is unallocated, or belongs to SVE or SME, which no
/// router has.
pub(super) fn classes(word: u32) -> Option<Classes> {
    match word >> 25 & 15 {
        0..=3 => None,
        4 | 6 | 12 | 14 => memory(word),
        7 | 15 => floating(word),
        5 | 13 => Some(Classes::DIVIDE.when(word & 0x7fe0_f800 == 0x1ac0_0800)),
        _ => Some(Classes::NONE),
    }
}

/// The constant that an instruction loads from a literal pool: its distance from the instruction, and its
/// length.
pub(super) fn literal(word: u32) -> Option<(i32, usize)> {
    if word & 0x3b00_0000 != 0x1800_0000 {
        return None;
    }
    let size = match (word >> 30, word & 1 << 26 != 0) {
        (0, _) | (2, false) => 4,
        (1, _) => 8,
        (2, true) => 16,
        _ => return None,
    };
    // A signed distance of 19 bits, in words.
    Some((((word << 8) as i32 >> 13) * 4, size))
}

fn memory(word: u32) -> Option<Classes> {
    let simd = word & 1 << 26 != 0;
    if simd {
        return simd_memory(word);
    }
    // LDADD and the other atomic operations, and SWP. The rest of this group came with ARMv8.3 and later.
    if word & 0x3f20_0c00 == 0x3820_0000 {
        let atomic = word & 0x8000 == 0 || word >> 12 & 7 == 0;
        return Some(Classes::LSE.when(atomic));
    }
    if word & 0x3f00_0000 == 0x0800_0000 {
        let pair = word & 1 << 21 != 0;
        let ordered = word & 1 << 23 != 0;
        let no_second = word >> 10 & 31 == 31;
        let no_status = word >> 16 & 31 == 31;
        let load = word & 1 << 22 != 0;
        return match (ordered, pair) {
            // CAS
            (true, true) => no_second.then_some(Classes::LSE),
            // LDAR, STLR
            (true, false) => (no_second && no_status).then_some(Classes::NONE),
            // CASP uses the encodings of pairs of less than 32 bits.
            (false, true) if word >> 31 == 0 => no_second.then_some(Classes::LSE),
            (false, true) => (!load || no_status).then_some(Classes::EXCLUSIVE),
            (false, false) => (no_second && (!load || no_status)).then_some(Classes::EXCLUSIVE),
        };
    }
    Some(Classes::NONE)
}

/// NEON loads and stores: of structures, and of whole Q registers. Smaller ones are scalar floating point.
fn simd_memory(word: u32) -> Option<Classes> {
    let top = word >> 24;
    if matches!(top, 0x0c | 0x0d | 0x4c | 0x4d) {
        let post = word & 1 << 23 != 0;
        let several = top & 1 == 0;
        let zero =
            if several { word & 1 << 21 == 0 } else { true } && (post || word >> 16 & 31 == 0);
        let kind = matches!(word >> 12 & 15, 0 | 2 | 4 | 6 | 7 | 8 | 10);
        return (zero && (!several || kind)).then_some(Classes::NEON);
    }
    let q = match word >> 27 & 7 {
        // Pairs: the size is in the top two bits.
        5 => match word >> 30 {
            3 => return None,
            size => size == 2,
        },
        3 => word >> 30 == 2,
        // One register: a Q register has size 0 and the upper bit of the operation.
        7 => match (word >> 30, word >> 23 & 1) {
            (0, 1) => true,
            (_, 1) => return None,
            _ => false,
        },
        _ => return None,
    };
    Some(if q { Classes::NEON } else { Classes::VFP })
}

fn floating(word: u32) -> Option<Classes> {
    if word & 0xffff_cc00 == 0x4e28_4800 {
        return Some(Classes::AES);
    }
    if word & 0xbfe0_fc00 == 0x0ee0_e000 {
        return Some(Classes::PMULL);
    }
    let sha = word & 0xffe0_8c00 == 0x5e00_0000 && word >> 12 & 7 != 7
        || word & 0xffff_cc00 == 0x5e28_0800 && word >> 12 & 3 != 3
        || word & 0xffe0_f000 == 0xce60_8000 && word >> 10 & 3 != 3
        || word & 0xffff_fc00 == 0xcec0_8000;
    if sha {
        return Some(Classes::SHA);
    }
    match word >> 24 & 0xdf {
        // Scalar floating point, its conversions from and to integers, and three-source operations.
        0x1e => scalar(word),
        0x9e if word & 0xfc00 == 0 || word & 1 << 21 == 0 => scalar(word),
        0x1f if word >> 29 == 0 => (word >> 22 & 3 != 2).then_some(Classes::VFP | Classes::FMA),
        0x0e | 0x0f | 0x4e | 0x4f | 0x5e | 0x5f => vector(word),
        // SHA-3 and SM4, which count as NEON.
        0xce if word >> 29 == 6 => Some(Classes::NEON),
        _ => None,
    }
}

fn scalar(word: u32) -> Option<Classes> {
    let upper_half = word & 0xfffe_fc00 == 0x9eae_0000;
    (word >> 29 & 1 == 0 && (word >> 22 & 3 != 2 || upper_half)).then_some(Classes::VFP)
}

fn vector(word: u32) -> Option<Classes> {
    // All these instructions have bit 31 clear.
    if word >> 31 != 0 {
        return None;
    }
    let fused = word & 0xbf20_fc00 == 0x0e20_cc00
        || word & 0xaf00_b400 == 0x0f00_1000 && word >> 22 & 3 != 1;
    Some(Classes::NEON | Classes::FMA.when(fused))
}
