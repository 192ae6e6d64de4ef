//! VFP of 32-bit ARM: coprocessors 10 and 11, the same bits in A32 and in T32.
//!
//! Arm Architecture Reference Manual for A-profile (DDI 0487), part F, "Floating-point data-processing",
//! "Advanced SIMD and floating-point 64-bit move", "32-bit move" and "load/store".

use super::classes::Classes;

/// The classes of a word whose bits 27 to 24 are 1100 to 1110 and whose bits 11 to 9 are 101; `None` if it
/// is something else or unallocated. The top four bits are ignored.
pub(super) fn classes(word: u32) -> Option<Classes> {
    if word & 0x0e00 != 0x0a00 {
        return None;
    }
    let class = match word >> 24 & 15 {
        12 | 13 => return memory(word),
        14 if word & 0x10 == 0 => processing(word),
        14 => transfer(word),
        _ => None,
    };
    class.map(|class| class | Classes::DOUBLE.when(word & 0x100 != 0))
}

/// The classes of the ARMv8 instructions that have 1111 in the condition field: VSEL, VMAXNM, VCVTA, VRINTA
/// and similar ones.
pub(super) fn unconditional(word: u32) -> Option<Classes> {
    let double = word & 0x100 != 0;
    if word & 0xff00_0e10 != 0xfe00_0a00 {
        return None;
    }
    let names_n = match word >> 20 & 0xb {
        0..=3 if word & 0x40 == 0 => true,
        8 => true,
        11 if word & 0x40 != 0 && word & 0x000c_0000 == 0x0008_0000 => false,
        11 if word & 0x40 != 0 && word & 0x000c_0000 == 0x000c_0000 => false,
        _ => return None,
    };
    let named = 1 << 22 | 1 << 5 | if names_n { 1 << 7 } else { 0 };
    let class = Classes::VFP | Classes::V8 | Classes::DOUBLE.when(double);
    some(class, double && word & named != 0)
}

fn processing(word: u32) -> Option<Classes> {
    let double = word & 0x100 != 0;
    let (d, n, m) = (1 << 22, 1 << 7, 1 << 5);
    let low = word & 0x40 == 0;
    let mut class = Classes::VFP;
    let mut named = d | n | m;
    match word >> 20 & 0xb {
        0..=3 => {}
        8 if low => {}
        9 | 10 => class = class | Classes::FMA,
        // VMOV (immediate)
        11 if low && word & 0xa0 == 0 => named = d,
        11 if !low => {
            let top = word & 0x80 != 0;
            // In a conversion one operand may be single while the other is double. Bit 8 is the size of the
            // floating-point operand; between single and double, of the source.
            named = match word >> 16 & 15 {
                0 | 1 => d | m,
                // Half precision: single registers only, except in ARMv8.
                2 | 3 => 0,
                4 => d | m,
                5 if word & 0x2f == 0 => d,
                6 => d | m,
                7 if !top => d | m,
                7 => return some(class, double && word & m != 0 || !double && word & d != 0),
                8 => d,
                10 | 11 | 14 | 15 => d,
                12 | 13 => m,
                _ => return None,
            };
        }
        _ => return None,
    }
    some(class, double && word & named != 0)
}

fn some(class: Classes, up: bool) -> Option<Classes> {
    Some(class | Classes::D16_UP.when(up))
}

/// Moves between core registers and VFP registers, one at a time.
fn transfer(word: u32) -> Option<Classes> {
    let load = word & 1 << 20 != 0;
    let opcode = word >> 21 & 7;
    if word >> 12 & 15 == 15 && !(load && opcode == 7) {
        return None;
    }
    if word & 0x100 == 0 {
        return match opcode {
            0 if word & 0x6f == 0 => Some(Classes::VFP),
            // VMRS and VMSR accept FPSID, FPSCR, MVFR2 to MVFR0, FPEXC, and two registers of VFPv2.
            7 if word & 0xef == 0 && matches!(word >> 16 & 15, 0 | 1 | 5..=10) => {
                Some(Classes::VFP)
            }
            _ => None,
        };
    }
    let up = word & 0x80 != 0;
    if word & 0xf != 0 {
        return None;
    }
    if !load && opcode & 4 != 0 {
        // VDUP: both size bits at once are unallocated.
        let q_and_odd = word & 1 << 21 != 0 && word & 1 << 16 != 0;
        let size = word & 1 << 22 != 0 && word & 1 << 5 != 0;
        return if word & 0x40 != 0 || q_and_odd || size {
            None
        } else {
            some(Classes::NEON, up)
        };
    }
    let halves = word & 1 << 22 != 0 || word & 1 << 5 != 0;
    match (halves, word & 0x40 != 0) {
        (true, _) => some(Classes::NEON, up),
        // VFP has the moves of 32 bits of a D register.
        (false, false) if opcode & 4 == 0 => some(Classes::VFP, up),
        _ => None,
    }
}

fn memory(word: u32) -> Option<Classes> {
    let double = word & 0x100 != 0;
    let (pre, up, back) = (
        word & 1 << 24 != 0,
        word & 1 << 23 != 0,
        word & 1 << 21 != 0,
    );
    let high = double && word & 1 << 22 != 0;
    if !pre && !up && !back {
        // Moves between two core registers and one D register or two S registers.
        let two = word & 0x0fe0_00d0 == 0x0c40_0010;
        let core = word >> 16 & 15 != 15 && word >> 12 & 15 != 15;
        return if two && core {
            let class = Classes::VFP | Classes::DOUBLE.when(double);
            some(class, double && word & 1 << 5 != 0)
        } else {
            None
        };
    }
    if pre && !back {
        return some(Classes::VFP | Classes::DOUBLE.when(double), high);
    }
    // VLDM, VSTM, VPUSH, VPOP: upwards from the base or, with write-back, downwards from it.
    if pre == up || word >> 16 & 15 == 15 {
        return None;
    }
    let count = word & 0xff;
    let (first, registers) = if double {
        (word >> 12 & 15 | word >> 18 & 16, count / 2)
    } else {
        (word >> 11 & 30 | word >> 22 & 1, count)
    };
    if registers == 0 || first + registers > 32 || double && registers > 16 {
        return None;
    }
    some(Classes::VFP, double && first + registers > 16)
}
