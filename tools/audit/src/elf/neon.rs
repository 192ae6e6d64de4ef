//! Advanced SIMD of 32-bit ARM, in the encoding of A32; T32 places three bits differently.
//!
//! The decoder rejects unallocated encodings, because data that is taken for code would otherwise count.
//! Arm Architecture Reference Manual for A-profile (DDI 0487), part F, "Advanced SIMD instructions" in the
//! A32 encoding index.

use super::classes::Classes;

/// The classes of a word whose top byte is 0xf2 or 0xf3 (data processing) or 0xf4 (loads and stores of
/// elements and structures); `None` if it is unallocated.
pub(super) fn classes(word: u32) -> Option<Classes> {
    match word >> 24 {
        0xf2 | 0xf3 => processing(word),
        0xf4 if word & 0x0010_0000 == 0 => memory(word),
        _ => None,
    }
}

/// Top bit of each register field that a form may have: set for D16 and up.
const D: u32 = 1 << 22;
const N: u32 = 1 << 7;
const M: u32 = 1 << 5;
/// Lowest bit of each register number, which must be 0 for a Q register.
const VD0: u32 = 1 << 12;
const VN0: u32 = 1 << 16;
const VM0: u32 = 1;

fn found(word: u32, named: u32, class: Classes) -> Classes {
    class | Classes::D16_UP.when(word & named != 0)
}

fn processing(word: u32) -> Option<Classes> {
    let q = word & 1 << 6 != 0;
    if word & 1 << 23 == 0 {
        return three_same(word, q);
    }
    if word & 1 << 4 != 0 {
        return if word & 0x0038_0080 == 0 {
            immediate(word, q)
        } else {
            shift(word, q)
        };
    }
    match (word >> 20 & 3, word >> 24 & 1, q) {
        // VEXT
        (3, 0, _) if q && word & (VD0 | VN0 | VM0) == 0 || !q && word & 0x800 == 0 => {
            Some(found(word, D | N | M, Classes::NEON))
        }
        (3, 0, _) => None,
        (3, ..) => two_misc(word, q),
        (_, _, false) => three_long(word),
        (_, _, true) => scalar(word),
    }
}

fn three_same(word: u32, q: bool) -> Option<Classes> {
    let size = word >> 20 & 3;
    let unsigned = word & 1 << 24 != 0;
    let op = word & 1 << 4 != 0;
    let opcode = word >> 8 & 15;
    if opcode == 12 && !op {
        // SHA1C, SHA1P, SHA1M, SHA1SU0; SHA256H, SHA256H2, SHA256SU1.
        let sha = q && word & (VD0 | VN0 | VM0) == 0 && (!unsigned || size != 3);
        return sha.then(|| found(word, D | N | M, Classes::SHA));
    }
    if q && word & (VD0 | VN0 | VM0) != 0 {
        return None;
    }
    // Only single precision: half precision came with ARMv8.2.
    let single = size & 1 == 0;
    let allocated = match (opcode, op) {
        (0..=2 | 9, false) | (3 | 6 | 7, _) | (8, true) => size != 3,
        (0..=2, true) | (4 | 5, _) | (8, false) => true,
        (9, true) => size != 3 && (!unsigned || size == 0),
        (10, _) => size != 3 && !q,
        (11, false) => size == 1 || size == 2,
        (11, true) => !unsigned && size != 3 && !q,
        (12, _) => !unsigned && single,
        (13, false) => single && !(unsigned && size == 0 && q),
        (13, true) => single && !(unsigned && size == 2),
        (14, false) => single && (unsigned || size == 0),
        (14, true) => single && unsigned,
        (15, false) => single && !(unsigned && q),
        (15, true) => single,
        _ => false,
    };
    let fma = Classes::FMA.when(opcode == 12);
    allocated.then(|| found(word, D | N | M, Classes::NEON | fma))
}

fn immediate(word: u32, q: bool) -> Option<Classes> {
    let undefined = word & 0xf20 == 0xf20 || q && word & VD0 != 0;
    (!undefined).then(|| found(word, D, Classes::NEON))
}

fn shift(word: u32, q: bool) -> Option<Classes> {
    let long = word & 1 << 7 != 0;
    let unsigned = word & 1 << 24 != 0;
    let even = !q || word & (VD0 | VM0) == 0;
    let allocated = match word >> 8 & 15 {
        0..=3 | 5 | 7 => even,
        4 | 6 => even && unsigned,
        8 | 9 => !long && word & VM0 == 0,
        10 => !long && !q && word & VD0 == 0,
        14 | 15 => !long && word & 1 << 21 != 0 && even,
        _ => false,
    };
    allocated.then(|| found(word, D | M, Classes::NEON))
}

fn three_long(word: u32) -> Option<Classes> {
    let size = word >> 20 & 3;
    let unsigned = word & 1 << 24 != 0;
    let mut class = Classes::NEON;
    let even = match word >> 8 & 15 {
        1 | 3 => word & (VD0 | VN0) == 0,
        4 | 6 => word & (VN0 | VM0) == 0,
        9 | 11 | 13 if unsigned || size == 0 => false,
        14 if unsigned || size == 1 => false,
        15 => false,
        opcode => {
            if opcode == 14 && size == 2 {
                class = Classes::PMULL;
            }
            word & VD0 == 0
        }
    };
    even.then(|| found(word, D | N | M, class))
}

fn scalar(word: u32) -> Option<Classes> {
    let size = word >> 20 & 3;
    // In most of these forms this bit means "Q registers"; elsewhere it means "unsigned".
    let wide = word & 1 << 24 != 0;
    let even = word & VD0 == 0;
    let allocated = match word >> 8 & 15 {
        0 | 4 | 8 | 12 | 13 => size != 0 && (!wide || even && word & VN0 == 0),
        1 | 5 | 9 => size == 2 && (!wide || even && word & VN0 == 0),
        2 | 6 | 10 => size != 0 && even,
        3 | 7 | 11 => size != 0 && even && !wide,
        _ => false,
    };
    // The scalar is in one of the lower sixteen or lower eight registers.
    allocated.then(|| found(word, D | N, Classes::NEON))
}

fn two_misc(word: u32, q: bool) -> Option<Classes> {
    let size = word >> 18 & 3;
    if word & 0x800 != 0 {
        return match word >> 7 & 31 {
            // VTBL, VTBX with one to four registers, all of which must exist.
            16..=23 => {
                let first = word >> 16 & 15 | word >> 3 & 16;
                let last = first + (word >> 8 & 3);
                let up = Classes::D16_UP.when(last > 15 || word & (D | M) != 0);
                (last < 32).then_some(Classes::NEON | up)
            }
            // VDUP (scalar): one bit of the size field is set.
            24 if word >> 16 & 7 != 0 && !(q && word & VD0 != 0) => {
                Some(found(word, D | M, Classes::NEON))
            }
            _ => None,
        };
    }
    let even = !q || word & (VD0 | VM0) == 0;
    let opcode = word >> 7 & 15;
    let mut class = Classes::NEON;
    let allocated = match (word >> 16 & 3, opcode) {
        // VREV: the reversed elements are smaller than the group that contains them.
        (0, 0..=2) => even && size + opcode < 3,
        (0, 6 | 7) => {
            class = Classes::AES;
            size == 0 && word & (VD0 | VM0) == 0
        }
        (0, 4 | 5 | 8 | 9 | 12..=15) => even && size != 3,
        (0, 10 | 11) => even && size == 0,
        (1, 5) => {
            class = Classes::SHA;
            size == 2 && q && word & (VD0 | VM0) == 0
        }
        (1, 0..=4 | 6 | 7) => even && size != 3,
        (1, 8..=12 | 14 | 15) => even && size == 2,
        (2, 0) => even && size == 0,
        (2, 1..=3) => even && size != 3,
        (2, 4 | 5) => size != 3 && word & VM0 == 0,
        (2, 6) => !q && size != 3 && word & VD0 == 0,
        (2, 7) => {
            class = Classes::SHA;
            size == 2 && word & (VD0 | VM0) == 0
        }
        // VRINT, of ARMv8.
        (2, 8..=11 | 13 | 15) => even && size == 2,
        // VCVT between half and single precision.
        (2, 12) => !q && size == 1 && word & VM0 == 0,
        (2, 14) => !q && size == 1 && word & VD0 == 0,
        (3, _) => even && size == 2,
        _ => false,
    };
    allocated.then(|| found(word, D | M, class))
}

fn memory(word: u32) -> Option<Classes> {
    let load = word & 1 << 21 != 0;
    let index = word >> 8 & 15;
    let align = word >> 4 & 3;
    if word >> 16 & 15 == 15 {
        return None;
    }
    let first = word >> 12 & 15 | word >> 18 & 16;
    let last = if word & 1 << 23 == 0 {
        // Several elements: the type says how many registers.
        let size = word >> 6 & 3;
        let (count, step, allocated) = match index {
            7 => (1, 1, align & 2 == 0),
            10 => (2, 1, align != 3),
            6 => (3, 1, align & 2 == 0),
            2 => (4, 1, true),
            8 => (2, 1, size != 3 && align != 3),
            9 => (2, 2, size != 3 && align != 3),
            3 => (4, 1, size != 3),
            4 => (3, 1, size != 3 && align & 2 == 0),
            5 => (3, 2, size != 3 && align & 2 == 0),
            0 => (4, 1, size != 3),
            1 => (4, 2, size != 3),
            _ => return None,
        };
        if !allocated {
            return None;
        }
        first + (count - 1) * step
    } else {
        let size = word >> 10 & 3;
        let count = word >> 8 & 3;
        let step = if size == 3 {
            if !load {
                return None;
            }
            // All lanes: bit 5 is the step or, for one element, the number of registers.
            if count == 0 { 1 } else { 1 + (word >> 5 & 1) }
        } else {
            // The bits for the alignment and the step; unused ones must be 0.
            let low = word >> 4 & 3;
            let allocated = match (count, size) {
                (0, 0) | (2, 0 | 1) => low & 1 == 0,
                (0, 1) | (1, 2) => low & 2 == 0,
                (0, 2) => word & 1 << 6 == 0 && matches!(low, 0 | 3),
                (2, 2) => low == 0,
                (3, 2) => low != 3,
                _ => true,
            };
            if !allocated {
                return None;
            }
            let step = match size {
                1 => word >> 5 & 1,
                2 => word >> 6 & 1,
                _ => 0,
            };
            1 + step
        };
        let extra = if size == 3 && count == 0 {
            word >> 5 & 1
        } else {
            0
        };
        first + count * step + extra
    };
    (last < 32).then(|| Classes::NEON | Classes::D16_UP.when(last > 15))
}
