//! Reads which instructions MIPS files use: from `.MIPS.abiflags`, or from `e_flags` in files of older tools.

use super::image::Image;
use crate::facts::MipsFlags;

/// `PT_MIPS_ABIFLAGS`. (The same number is something else on other machines.)
const PT_MIPS_ABIFLAGS: u32 = 0x7000_0003;

/// Reads the flags; every file has `e_flags`.
pub(super) fn read(image: &Image<'_>) -> MipsFlags {
    let table = image
        .section(".MIPS.abiflags")
        .or_else(|| image.segment(PT_MIPS_ABIFLAGS));
    table
        .and_then(|table| abiflags(table, image.big))
        .unwrap_or_else(|| header(image.flags))
}

/// Parses `Elf_MIPS_ABIFlags_v0`: 24 bytes; only version 0 exists.
fn abiflags(bytes: &[u8], big: bool) -> Option<MipsFlags> {
    let bytes = bytes.get(..24)?;
    let word = |at: usize| {
        let bytes = bytes[at..at + 4].try_into().ok()?;
        Some(if big {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        })
    };
    if bytes[..2] != [0, 0] {
        return None;
    }
    Some(MipsFlags {
        isa_level: bytes[2],
        isa_rev: bytes[3],
        fp_abi: bytes[7],
        isa_ext: word(8)?,
        ases: word(12)?,
    })
}

/// Decodes `e_flags`: `EF_MIPS_ARCH` in the top four bits, `EF_MIPS_MACH` for chips with their own
/// instructions.
fn header(flags: u32) -> MipsFlags {
    let (isa_level, isa_rev) = match flags >> 28 {
        level @ 0..=4 => (level as u8 + 1, 0),
        5 => (32, 1),
        6 => (64, 1),
        7 => (32, 2),
        8 => (64, 2),
        9 => (32, 6),
        10 => (64, 6),
        _ => (0, 0),
    };
    // The numbers are those that `.MIPS.abiflags` uses.
    let isa_ext = match flags >> 16 & 0xff {
        0x8b => 5,
        0x8d => 2,
        0x8e => 19,
        _ => 0,
    };
    MipsFlags {
        isa_level,
        isa_rev,
        fp_abi: 0,
        ases: 0,
        isa_ext,
    }
}
