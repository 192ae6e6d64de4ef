//! Reads the facts of an ELF file: bytes in, [`Facts`] out. The reader trusts nothing in a file: it checks
//! offsets, counts and lengths, and limits every list.
//!
//! [`image`] brings headers, symbols and the loader's table into one form, [`attributes`]
//! reads the instruction sets that the builder recorded, and [`notes`] the texts. [`count`]
//! decodes the code: [`regions`] locates it, the decoders classify instructions, and [`spread`] locates
//! NEON.

mod a32;
mod a64;
mod attributes;
mod classes;
mod count;
mod image;
mod neon;
mod notes;
mod regions;
mod spread;
mod t32;
mod vfp;

use std::collections::BTreeSet;

use object::elf;

pub use image::ElfError;
use image::{Image, SymbolKind};

use crate::facts::{Facts, Kind, Machine};

/// Maximum number of names in a set. A kernel has some 60 000 functions.
const MAX_NAMES: usize = 100_000;

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
    let interpreted = image.segment(elf::PT_INTERP).is_some();
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
            && image.dynamic.get(elf::DT_NEEDED).is_none(),
        arm: arm.flatten(),
        mips: matches!(machine, Machine::Mips { .. }).then(|| attributes::mips_flags(&image)),
        imports: names(&image, |symbol| !symbol.defined),
        functions: names(&image, |symbol| {
            symbol.defined && symbol.kind == SymbolKind::Function
        }),
        soname: image.dynamic.text(&image, elf::DT_SONAME),
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
        elf::EM_ARM => Machine::Arm { big },
        elf::EM_AARCH64 => Machine::Aarch64 { big },
        elf::EM_MIPS => Machine::Mips {
            big,
            wide: wide || image.flags & elf::EF_MIPS_ABI2.0 != 0,
        },
        elf::EM_PPC | elf::EM_PPC64 => Machine::PowerPc { wide },
        elf::EM_386 | elf::EM_X86_64 => Machine::X86 { wide },
        other => Machine::Other(other.0),
    }
}

fn kind(image: &Image<'_>, interpreted: bool) -> Result<Kind, ElfError> {
    match image.file_type {
        elf::ET_EXEC => Ok(Kind::Program),
        elf::ET_DYN if interpreted => Ok(Kind::Program),
        elf::ET_DYN => {
            let flags = image.dynamic.get(elf::DT_FLAGS_1).unwrap_or(0);
            // No flag: a static program exports nothing. musl's library also has an entry point and needs
            // nothing, but it exports all of C.
            let has = |tag| image.dynamic.get(tag).is_some();
            let exports = image
                .symbols
                .iter()
                .any(|symbol| symbol.dynamic && symbol.defined && symbol.global);
            let alone =
                image.entry != 0 && !has(elf::DT_NEEDED) && !has(elf::DT_SONAME) && !exports;
            Ok(if flags & elf::DF_1_PIE.0 != 0 || alone {
                Kind::Program
            } else {
                Kind::Library
            })
        }
        elf::ET_REL if image.section(".modinfo").is_some() => Ok(Kind::Module),
        elf::ET_REL => Ok(Kind::Object),
        other => Err(ElfError::Type(other.0)),
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
