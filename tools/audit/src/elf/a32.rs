//! A32, the 32-bit instructions of 32-bit ARM.
//!
//! Arm Architecture Reference Manual for A-profile (DDI 0487), part F, "A32 instruction set encoding".

use super::classes::Classes;
use super::{neon, vfp};

/// The condition "always", which nine instructions out of ten have.
const ALWAYS: u32 = 14;

/// The classes of one instruction; `None` if the word fails the checks made here.
pub(super) fn classes(word: u32) -> Option<Classes> {
    if word >> 28 == 15 {
        return unconditional(word);
    }
    match word >> 24 & 15 {
        12..=14 => return coprocessor(word),
        _ if word & 0x0fd0_f0f0 == 0x0710_f010 => return Some(Classes::DIVIDE),
        1 if exclusive(word) => {
            return Some(Classes::EXCLUSIVE | Classes::V8.when(word & 0x100 == 0));
        }
        1 if acquire(word) => return Some(Classes::V8),
        _ => {}
    }
    // MOVW, MOVT; BFC, BFI; SBFX, UBFX; RBIT; MLS.
    let v7 = word & 0x0fb0_0000 == 0x0300_0000
        || word & 0x0fe0_0070 == 0x07c0_0010
        || word & 0x0fa0_0070 == 0x07a0_0050
        || word & 0x0fff_0ff0 == 0x06ff_0f30
        || word & 0x0ff0_00f0 == 0x0060_0090;
    Some(Classes::V7.when(v7))
}

/// Whether a word is likely in code and rare in data: an instruction that always executes.
pub(super) fn plausible(word: u32) -> bool {
    match word >> 28 {
        // SVC counts only with number 0, which Linux uses: others look like T32's NEON read out of step.
        ALWAYS if word >> 24 & 15 == 15 => word & 0x00ff_ffff == 0,
        ALWAYS | 15 => classes(word).is_some(),
        _ => false,
    }
}

/// The constant that an instruction loads from a literal pool: its distance from the instruction, and its
/// length.
pub(super) fn literal(word: u32) -> Option<(i32, usize)> {
    if word >> 28 == 15 {
        return None;
    }
    let (distance, size) = if word & 0x0f7f_0000 == 0x051f_0000 {
        (word & 0xfff, 4)
    } else if word & 0x0f7f_00f0 == 0x014f_00d0 {
        (word >> 4 & 0xf0 | word & 15, 8)
    } else if word & 0x0f3f_0e00 == 0x0d1f_0a00 {
        ((word & 0xff) * 4, if word & 0x100 == 0 { 4 } else { 8 })
    } else {
        return None;
    };
    // The distance is less than 4096.
    let distance = distance as i32;
    Some((
        8 + if word & 1 << 23 == 0 {
            -distance
        } else {
            distance
        },
        size,
    ))
}

fn unconditional(word: u32) -> Option<Classes> {
    // DMB, DSB, ISB came with v7; older code writes to coprocessor 15 instead.
    if word & 0xffff_ff00 == 0xf57f_f000 && matches!(word >> 4 & 15, 4..=6) {
        return Some(Classes::V7);
    }
    match word >> 24 {
        0xf2 | 0xf3 => neon::classes(word),
        0xf4 if word & 0x0010_0000 == 0 => neon::classes(word),
        // PLD, PLI, CLREX, SETEND, CPS; BLX.
        0xf1 if word & 0xfff0_0000 == 0xf100_0000 => Some(Classes::NONE),
        0xf4..=0xf7 if word & 0xf000 == 0xf000 => Some(Classes::NONE),
        0xfa | 0xfb => Some(Classes::NONE),
        0xfe => vfp::unconditional(word),
        _ => None,
    }
}

fn coprocessor(word: u32) -> Option<Classes> {
    match word >> 8 & 15 {
        10 | 11 => vfp::classes(word),
        14 | 15 => Some(Classes::NONE),
        _ => None,
    }
}

/// LDREX, STREX and their sizes; LDAEX, STLEX.
fn exclusive(word: u32) -> bool {
    let load = word & 0x0f90_0fff;
    let store = word & 0x0f90_0ff0;
    matches!(load, 0x0190_0f9f | 0x0190_0e9f) || matches!(store, 0x0180_0f90 | 0x0180_0e90)
}

/// LDA, STL and their sizes, of ARMv8.
fn acquire(word: u32) -> bool {
    word & 0x0f90_0fff == 0x0190_0c9f || word & 0x0f90_fff0 == 0x0180_fc90
}
