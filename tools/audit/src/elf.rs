//! Reads the facts of an ELF file: bytes in, [`Facts`] out. The reader trusts nothing in a file: it checks
//! offsets, counts and lengths, and limits every list.
//!
//! [`image`] brings headers and symbols into one form, [`dynamic`] reads the loader's table, [`attributes`]
//! reads the instruction sets that the builder recorded, and [`notes`] the texts. [`count`]
//! decodes the code: [`regions`] locates it, the decoders classify instructions, and [`spread`] locates
//! NEON.

mod a32;
mod a64;
mod attributes;
mod classes;
mod count;
mod dynamic;
mod image;
mod neon;
mod notes;
mod regions;
mod spread;
mod t32;
mod vfp;

use std::collections::BTreeSet;

use dynamic::Tag;
use image::{Image, PT_INTERP, SymbolKind};

use crate::facts::{Facts, Kind, Machine};

const ET_REL: u16 = 1;
const ET_EXEC: u16 = 2;
const ET_DYN: u16 = 3;
const EM_386: u16 = 3;
const EM_MIPS: u16 = 8;
const EM_PPC: u16 = 20;
const EM_PPC64: u16 = 21;
const EM_ARM: u16 = 40;
const EM_X86_64: u16 = 62;
const EM_AARCH64: u16 = 183;
/// Flag of linked files: big-endian data and little-endian code.
const EF_ARM_BE8: u32 = 0x0080_0000;
/// Flag of the N32 convention: 64-bit registers in ELFCLASS32.
const EF_MIPS_ABI2: u32 = 0x20;
const DF_1_PIE: u64 = 0x0800_0000;

/// Most names in a set. A kernel has some 60 000 functions.
const MAX_NAMES: usize = 100_000;

/// Why a file has no facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    /// The magic number is missing.
    #[error("not an ELF file")]
    Magic,
    /// The file ends within its header.
    #[error("the ELF header is cut off")]
    Short,
    /// The class, byte order or version has an undefined value.
    #[error("the ELF header says nothing that makes sense")]
    Header,
    /// `e_type` is neither program, library nor object file: a core dump, for example.
    #[error("an ELF file of type {0}, which holds no code of its own")]
    Type(u16),
}

/// Whether bytes begin as an ELF file does.
pub fn is_elf(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF")
}

/// Reads the facts of one complete ELF file.
///
/// # Errors
///
/// See [`ElfError`]: only faults in the first 64 bytes. Broken tables count as absent.
pub fn read(bytes: &[u8]) -> Result<Facts, ElfError> {
    if !is_elf(bytes) {
        return Err(ElfError::Magic);
    }
    let image = Image::parse(bytes)?;
    let machine = machine(&image);
    let interpreted = image.segment(PT_INTERP).is_some();
    let kind = kind(&image, interpreted)?;
    let arm = matches!(machine, Machine::Arm { .. }).then(|| {
        let section = image.section(".ARM.attributes");
        let read = section.and_then(|section| attributes::read(section, image.order));
        read.or_else(|| attributes::find(bytes, image.order))
    });
    let found = count::count(&image);
    Ok(Facts {
        machine,
        kind,
        flags: image.flags,
        is_static: kind == Kind::Program
            && !interpreted
            && image.dynamic.get(Tag::NEEDED).is_none(),
        arm: arm.flatten(),
        mips: matches!(machine, Machine::Mips { .. }).then(|| attributes::mips_flags(&image)),
        imports: names(&image, |symbol| !symbol.defined),
        functions: names(&image, |symbol| {
            symbol.defined && symbol.kind == SymbolKind::Function
        }),
        soname: image.dynamic.text(&image, Tag::SONAME),
        modinfo: notes::modinfo(&image),
        notes: notes::notes(bytes),
        text: found.text,
        counts: found.counts,
        neon: found.neon,
    })
}

fn machine(image: &Image<'_>) -> Machine {
    let (big, wide) = (image.order.big, image.wide);
    match image.machine {
        EM_ARM => Machine::Arm { big },
        EM_AARCH64 => Machine::Aarch64 { big },
        EM_MIPS => Machine::Mips {
            big,
            wide: wide || image.flags & EF_MIPS_ABI2 != 0,
        },
        EM_PPC | EM_PPC64 => Machine::PowerPc { wide },
        EM_386 | EM_X86_64 => Machine::X86 { wide },
        other => Machine::Other(other),
    }
}

fn kind(image: &Image<'_>, interpreted: bool) -> Result<Kind, ElfError> {
    match image.file_type {
        ET_EXEC => Ok(Kind::Program),
        ET_DYN if interpreted => Ok(Kind::Program),
        ET_DYN => {
            let flags = image.dynamic.get(Tag::FLAGS_1).unwrap_or(0);
            // No flag: a static program exports nothing. musl's library also has an entry point and needs
            // nothing, but it exports all of C.
            let has = |tag| image.dynamic.get(tag).is_some();
            let exports = image
                .symbols
                .iter()
                .any(|symbol| symbol.dynamic && symbol.defined && symbol.global);
            let alone = image.entry != 0 && !has(Tag::NEEDED) && !has(Tag::SONAME) && !exports;
            Ok(if flags & DF_1_PIE != 0 || alone {
                Kind::Program
            } else {
                Kind::Library
            })
        }
        ET_REL if image.section(".modinfo").is_some() => Ok(Kind::Module),
        ET_REL => Ok(Kind::Object),
        other => Err(ElfError::Type(other)),
    }
}

fn names(image: &Image<'_>, wanted: impl Fn(&image::Symbol<'_>) -> bool) -> BTreeSet<String> {
    let symbols = image
        .symbols
        .iter()
        .filter(|symbol| !symbol.name.is_empty() && wanted(symbol));
    let mut names = BTreeSet::new();
    for symbol in symbols {
        if names.len() == MAX_NAMES {
            break;
        }
        names.insert(image::text(symbol.name));
    }
    names
}
