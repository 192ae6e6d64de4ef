//! T32, the instructions of 16 and 32 bits of 32-bit ARM.
//!
//! Arm Architecture Reference Manual for A-profile (DDI 0487), part F, "T32 instruction set encoding".

use super::classes::Classes;
use super::{neon, vfp};

/// Whether a first halfword begins a 32-bit instruction.
pub(super) fn is_wide(half: u16) -> bool {
    half >= 0xe800
}

/// The classes of an instruction of 16 bits.
pub(super) fn narrow(half: u16) -> Classes {
    // CBZ, CBNZ; IT.
    Classes::V7.when(half & 0xf500 == 0xb100 || half & 0xff00 == 0xbf00 && half & 15 != 0)
}

/// The classes of a 32-bit instruction; `None` if it is not one.
pub(super) fn wide(half: u16, next: u16) -> Option<Classes> {
    if !is_wide(half) {
        return None;
    }
    let word = u32::from(half) << 16 | u32::from(next);
    if word & 0xef00_0000 == 0xef00_0000 {
        return neon::classes(0xf200_0000 | word >> 4 & 0x0100_0000 | word & 0x00ff_ffff);
    }
    if word & 0xff10_0000 == 0xf900_0000 {
        return neon::classes(0xf400_0000 | word & 0x00ff_ffff);
    }
    if word & 0xec00_0000 == 0xec00_0000 {
        return match (word >> 8 & 15, word >> 28 & 1) {
            (10 | 11, 0) => vfp::classes(word),
            (10 | 11, _) => vfp::unconditional(word),
            (14 | 15, _) => Some(Classes::NONE),
            _ => None,
        };
    }
    if word & 0xffd0_f0f0 == 0xfb90_f0f0 {
        return Some(Classes::DIVIDE | Classes::V7);
    }
    if exclusive(word) {
        return Some(Classes::EXCLUSIVE | Classes::V7 | Classes::V8.when(ordered(word)));
    }
    if ordered(word) {
        return Some(Classes::V7 | Classes::V8);
    }
    // BL and BLX: a pair of halfwords that Thumb always had.
    let call = word & 0xf800_c000 == 0xf000_c000;
    Some(Classes::V7.when(!call))
}

/// Whether an instruction is one that compilers write often and that is rare in data.
pub(super) fn usual(half: u16, next: u16) -> bool {
    match half >> 8 {
        // PUSH and POP with the return address, MOV and BX, LDR and STR of words and bytes, CBZ, NOP and IT.
        0xb5 | 0xbd | 0x46 | 0x68 | 0x60 | 0x78 | 0x70 | 0xb1 | 0xb9 | 0xbf => true,
        0x47 => matches!(half, 0x4770 | 0x4778),
        // BL and B.W, or an operation on an immediate.
        0xf0..=0xf7 => next & 0xd000 == 0xd000 || next & 0x9000 == 0x9000 || next & 0x8000 == 0,
        // Shifted registers; loads and stores with wide offsets, multiplications and shifts.
        0xea | 0xeb => next & 0x8000 == 0,
        0xf8 => half & 0xf != 15,
        0xfa => next & 0xf000 == 0xf000,
        0xe9 | 0xfb => true,
        // VFP, NEON and cryptography, which the decoder checks strictly.
        0xec..=0xef | 0xf9 | 0xfc..=0xff => {
            wide(half, next).is_some_and(|class| class.any(Classes::VECTOR))
        }
        _ => false,
    }
}

/// The constant that an instruction loads from a literal pool: its distance from the instruction's offset,
/// rounded down to four bytes, and its length.
pub(super) fn literal(half: u16, next: u16) -> Option<(i32, usize)> {
    if half >> 11 == 9 {
        return Some((4 + i32::from(half & 0xff) * 4, 4));
    }
    let (distance, size) = match half & 0xff7f {
        0xf85f => (i32::from(next & 0xfff), 4),
        0xe95f => (i32::from(next & 0xff) * 4, 8),
        _ if half & 0xff3f == 0xed1f && next & 0x0e00 == 0x0a00 => (
            i32::from(next & 0xff) * 4,
            if next & 0x100 == 0 { 4 } else { 8 },
        ),
        _ => return None,
    };
    Some((
        4 + if half & 0x80 == 0 {
            -distance
        } else {
            distance
        },
        size,
    ))
}

/// LDREX, STREX and their sizes; LDAEX, STLEX.
fn exclusive(word: u32) -> bool {
    word & 0xfff0_0f00 == 0xe850_0f00
        || word & 0xfff0_0000 == 0xe840_0000
        || word & 0xffe0_0000 == 0xe8c0_0000 && matches!(word >> 4 & 15, 4 | 5 | 7 | 12 | 13 | 14 | 15)
            // LDA and STL have the numbers 8 to 10, the table branches 0 and 1.
            && !matches!(word >> 4 & 15, 8..=10)
}

/// LDA, STL, LDAEX, STLEX and their sizes, of ARMv8.
fn ordered(word: u32) -> bool {
    word & 0xffe0_0000 == 0xe8c0_0000 && matches!(word >> 4 & 15, 8..=10 | 12..=15)
}
