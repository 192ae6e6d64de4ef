//! `.ARM.attributes`: the instructions that a 32-bit ARM file was built for, as its builder recorded them.
//!
//! ABI for the Arm Architecture, "Addenda: Build Attributes": a letter `A`, then subsections with a length,
//! a vendor's name and, for the vendor `aeabi`, attributes of the file as a whole (tag 1), of sections (2)
//! and of symbols (3). This module reads tag 1 only; no toolchain writes the others.
//!
//! [`mips_flags`] reads which instructions MIPS files use: from `.MIPS.abiflags`, or from `e_flags` in files of older
//! tools.

use crate::bytes::Order;
use crate::elf::image::Image;
use crate::facts::{ArmAttributes, MipsFlags};

/// Longest section that is read; real ones have less than 100 bytes.
const MAX_BYTES: usize = 64 * 1024;

/// Reads the contents of the section. `None` if they violate the ABI.
pub(super) fn read(bytes: &[u8], order: Order) -> Option<ArmAttributes> {
    let mut rest = Cursor {
        bytes: bytes.get(..MAX_BYTES).unwrap_or(bytes),
        order,
    };
    if rest.byte()? != b'A' {
        return None;
    }
    while !rest.bytes.is_empty() {
        let mut section = rest.counted(0)?;
        if section.text()? != b"aeabi" {
            continue;
        }
        while !section.bytes.is_empty() {
            // The length includes the tag before it.
            let tag = section.uleb()?;
            let mut attributes = section.counted(1)?;
            if tag == 1 {
                return file(&mut attributes);
            }
        }
    }
    None
}

/// Finds the section by its byte pattern. No segment covers it: without section headers, its bytes may
/// still lie behind the segments.
pub(super) fn find(bytes: &[u8], order: Order) -> Option<ArmAttributes> {
    const NAME: &[u8] = b"aeabi\0\x01";
    let mut from = 0;
    // Toolchain programs contain this text as well, but with no length before it.
    for _ in 0..64 {
        let at = from + memchr::memmem::find(bytes.get(from..)?, NAME)?;
        from = at + NAME.len();
        let Some(section) = at.checked_sub(5).and_then(|start| bytes.get(start..)) else {
            continue;
        };
        let length = Cursor {
            bytes: section.get(1..)?,
            order,
        }
        .u32()? as usize;
        if section.first() != Some(&b'A') || length > MAX_BYTES {
            continue;
        }
        let attributes = section
            .get(..length + 1)
            .and_then(|section| read(section, order));
        if let Some(found) = attributes.filter(|found| found.cpu_arch.is_some()) {
            return Some(found);
        }
    }
    None
}

fn file(rest: &mut Cursor<'_>) -> Option<ArmAttributes> {
    let mut found = ArmAttributes::default();
    while !rest.bytes.is_empty() {
        let tag = rest.uleb()?;
        // Up to 32 each tag has its own form; from there on odd ones are texts.
        match tag {
            4 => _ = rest.text()?,
            5 => found.cpu_name = Some(super::image::text(rest.text()?)),
            32 => _ = (rest.uleb()?, rest.text()?),
            33.. if tag % 2 == 1 => _ = rest.text()?,
            _ => {
                let value = rest.uleb()?;
                let place = match tag {
                    6 => &mut found.cpu_arch,
                    10 => &mut found.fp_arch,
                    12 => &mut found.simd_arch,
                    28 => &mut found.vfp_args,
                    30 => &mut found.optimization_goals,
                    42 | 70 => &mut found.mp_extension,
                    44 => &mut found.div_use,
                    _ => continue,
                };
                *place = Some(value);
            }
        }
    }
    Some(found)
}

struct Cursor<'a> {
    bytes: &'a [u8],
    order: Order,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(head)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u32(&mut self) -> Option<u32> {
        self.order.u32(self.take(4)?, 0)
    }

    /// Splits off the part that a length field spans; the length includes itself and `before` bytes before it.
    fn counted(&mut self, before: usize) -> Option<Self> {
        let length = (self.u32()? as usize).checked_sub(4 + before)?;
        Some(Self {
            bytes: self.take(length)?,
            order: self.order,
        })
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let end = self.bytes.iter().position(|byte| *byte == 0)?;
        let text = self.take(end)?;
        self.byte()?;
        Some(text)
    }

    /// Reads seven bits a byte, the lowest first. Numbers beyond 64 bits give `None`.
    fn uleb(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

/// Reads the flags; every file has `e_flags`.
pub(super) fn mips_flags(image: &Image<'_>) -> MipsFlags {
    let table = image
        .section(".MIPS.abiflags")
        .or_else(|| image.segment(object::elf::PT_MIPS_ABIFLAGS));
    table
        .and_then(|table| abiflags(table, image.order))
        .unwrap_or_else(|| header(image.flags))
}

/// Parses `Elf_MIPS_ABIFlags_v0`: 24 bytes; only version 0 exists.
fn abiflags(bytes: &[u8], order: Order) -> Option<MipsFlags> {
    let bytes = bytes.get(..24)?;
    if bytes[..2] != [0, 0] {
        return None;
    }
    Some(MipsFlags {
        isa_level: bytes[2],
        isa_rev: bytes[3],
        fp_abi: bytes[7],
        isa_ext: order.u32(bytes, 8)?,
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
        isa_ext,
    }
}
