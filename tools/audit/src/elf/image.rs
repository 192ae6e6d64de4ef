//! An ELF file in one form for both classes and byte orders: segments, sections, symbols, and the loader's table,
//! which files keep even without section headers.
//!
//! The crate `object` parses the layout; this module keeps its results as offsets into the file, checked
//! against its length. A table that does not fit the file counts as absent: vendors' tools leave nonsense
//! in release images.

use std::ops::Range;

use object::Endianness;
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::SymbolIndex;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};

use crate::bytes::Order;

/// Maximum number of symbols read from one table. A kernel has about 100 000.
const MAX_SYMBOLS: usize = 400_000;
/// Maximum number of segments that are read; real files have about ten.
const MAX_SEGMENTS: usize = 128;
/// Maximum number of sections that are read. A kernel module with `-ffunction-sections` has thousands.
const MAX_SECTIONS: usize = 20_000;
/// Longest name that is kept, in bytes; longer mangled C++ names are cut off.
const MAX_NAME: usize = 256;
/// Maximum number of entries that are read; real files have about thirty.
const MAX_ENTRIES: usize = 4096;
/// Maximum number of buckets and chains of `DT_GNU_HASH` that are followed.
const MAX_CHAIN: usize = 400_000;

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
    #[error("the ELF header is invalid")]
    Header,
    /// `e_type` is neither program, library nor object file: a core dump, for example.
    #[error("the ELF file has type {0}, which contains no code")]
    Type(u16),
}

/// Program header.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) kind: elf::ProgramType,
    pub(super) flags: u32,
    pub(super) address: u64,
    /// Range in the file, cut off at the file's end.
    pub(super) range: Range<usize>,
}

/// Section header.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) name: String,
    pub(super) flags: u64,
    /// Range in the file, cut off at the file's end; empty for `.bss`.
    pub(super) range: Range<usize>,
}

/// The kinds of symbols that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SymbolKind {
    /// `STT_FUNC`, `STT_GNU_IFUNC`.
    Function,
    /// Mapping symbol: the letter of `$a`, `$t`, `$x`, `$d` or `$d.something`.
    Mapping(u8),
    /// Anything else.
    Other,
}

/// Symbol of a symbol table.
#[derive(Clone, Debug)]
pub(super) struct Symbol<'a> {
    pub(super) name: &'a [u8],
    pub(super) kind: SymbolKind,
    pub(super) defined: bool,
    pub(super) global: bool,
    /// Whether the symbol is in the dynamic table.
    pub(super) dynamic: bool,
    /// Offset in the file, without the T32 bit. `None` for undefined and absolute symbols.
    pub(super) offset: Option<usize>,
    /// Whether the function is T32, by the lowest bit of its address.
    pub(super) thumb: bool,
    pub(super) size: u64,
}

/// An ELF file in one form for both classes and byte orders.
#[derive(Debug)]
pub(super) struct Image<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) order: Order,
    pub(super) wide: bool,
    pub(super) machine: elf::Machine,
    pub(super) file_type: elf::FileType,
    pub(super) flags: u32,
    pub(super) entry: u64,
    pub(super) segments: Vec<Segment>,
    pub(super) sections: Vec<Section>,
    pub(super) symbols: Vec<Symbol<'a>>,
    pub(super) dynamic: Dynamic,
}

impl<'a> Image<'a> {
    /// Reads the headers and tables.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, ElfError> {
        match bytes.get(4) {
            Some(1) => Self::load::<FileHeader32<Endianness>>(bytes),
            Some(2) => Self::load::<FileHeader64<Endianness>>(bytes),
            Some(_) => Err(ElfError::Header),
            None => Err(ElfError::Short),
        }
    }

    fn load<H: FileHeader<Endian = Endianness>>(bytes: &'a [u8]) -> Result<Self, ElfError> {
        let header = H::parse(bytes).map_err(|_| {
            if bytes.len() < 64 {
                ElfError::Short
            } else {
                ElfError::Header
            }
        })?;
        let endian = header.endian().map_err(|_| ElfError::Header)?;
        let mut image = Self {
            bytes,
            order: Order {
                big: header.is_big_endian(),
            },
            wide: header.is_class_64(),
            machine: header.e_machine(endian),
            file_type: header.e_type(endian),
            flags: header.e_flags(endian).0,
            entry: header.e_entry(endian).into(),
            segments: Vec::new(),
            sections: Vec::new(),
            symbols: Vec::new(),
            dynamic: Dynamic::default(),
        };
        for segment in header
            .program_headers(endian, bytes)
            .unwrap_or_default()
            .iter()
            .take(MAX_SEGMENTS)
        {
            let (offset, size) = segment.file_range(endian);
            image.segments.push(Segment {
                kind: segment.p_type(endian),
                flags: segment.p_flags(endian).0,
                address: segment.p_vaddr(endian).into(),
                range: image.cut(offset, size),
            });
        }
        let sections = header
            .sections(endian, bytes)
            .ok()
            .filter(|sections| sections.len() > 1);
        if let Some(sections) = &sections {
            let names = header
                .section_strings_index(endian, bytes)
                .ok()
                .and_then(|at| sections.section(at).ok());
            let names = names.map(|names| {
                image.cut(names.sh_offset(endian).into(), names.sh_size(endian).into())
            });
            let names = names.unwrap_or_default();
            for section in sections.iter().take(MAX_SECTIONS) {
                let size = if section.sh_type(endian) == elf::SHT_NOBITS {
                    0
                } else {
                    section.sh_size(endian).into()
                };
                image.sections.push(Section {
                    name: text(image.string(&names, section.sh_name(endian).into())),
                    flags: Into::<u64>::into(section.sh_flags(endian).0),
                    range: image.cut(section.sh_offset(endian).into(), size),
                });
            }
            let mut seen = [false; 2];
            for (index, section) in sections.iter().enumerate().take(MAX_SECTIONS) {
                let kind = section.sh_type(endian);
                if kind != elf::SHT_SYMTAB && kind != elf::SHT_DYNSYM {
                    continue;
                }
                // ELF allows one table of each kind.
                let dynamic = kind == elf::SHT_DYNSYM;
                if std::mem::replace(&mut seen[usize::from(dynamic)], true) {
                    continue;
                }
                let index = object::SectionIndex(index);
                let Ok(table) = object::read::elf::SymbolTable::<H>::parse(
                    endian, bytes, sections, index, section,
                ) else {
                    continue;
                };
                let names = image
                    .sections
                    .get(table.string_section().0)
                    .map(|names| names.range.clone());
                let names = names.unwrap_or_default();
                for (at, symbol) in table.iter().enumerate().skip(1).take(MAX_SYMBOLS) {
                    let number = match symbol.st_shndx(endian) {
                        elf::SHN_XINDEX => table.shndx(endian, SymbolIndex(at)),
                        other => Some(u32::from(other.0)),
                    };
                    image.add_symbol(endian, symbol, &names, number, dynamic);
                }
            }
        }
        image.dynamic = Dynamic::read(&image);
        // Without section headers, find the dynamic symbols as the loader does.
        if !image.symbols.iter().any(|symbol| symbol.dynamic)
            && let (Some(table), Some(names)) = (
                image.dynamic.get(elf::DT_SYMTAB),
                image.dynamic.names.clone(),
            )
            && let Some(start) = image.offset(table)
        {
            let size = if image.wide { 24 } else { 16 };
            for at in 1..image.dynamic.symbol_count(&image).min(MAX_SYMBOLS) {
                let Some(raw) = start
                    .checked_add(at * size)
                    .and_then(|at| bytes.get(at..at + size))
                else {
                    break;
                };
                let Ok((symbol, _)) = object::pod::from_bytes::<H::Sym>(raw) else {
                    break;
                };
                let number = u32::from(symbol.st_shndx(endian).0);
                image.add_symbol(endian, symbol, &names, Some(number), true);
            }
        }
        Ok(image)
    }

    fn add_symbol<S: Sym<Endian = Endianness>>(
        &mut self,
        endian: Endianness,
        symbol: &S,
        names: &Range<usize>,
        section: Option<u32>,
        dynamic: bool,
    ) {
        let name = self.string(names, symbol.st_name(endian).into());
        let kind = match (symbol.st_type().0, name) {
            (2 | 10, _) => SymbolKind::Function,
            (
                0,
                [b'$', letter @ (b'a' | b't' | b'x' | b'd')]
                | [b'$', letter @ (b'a' | b't' | b'x' | b'd'), b'.', ..],
            ) => SymbolKind::Mapping(*letter),
            _ => SymbolKind::Other,
        };
        let mut value: u64 = symbol.st_value(endian).into();
        let thumb = self.machine == elf::EM_ARM && kind == SymbolKind::Function && value & 1 == 1;
        value &= !u64::from(thumb);
        let reserved = section
            .is_none_or(|number| number >= u32::from(elf::SHN_LORESERVE) && number <= 0xffff);
        let defined = section != Some(0);
        let offset = if !defined || reserved {
            None
        } else if self.file_type == elf::ET_REL {
            let section = section.and_then(|number| self.sections.get(number as usize));
            section.and_then(|section| within(&section.range, value))
        } else {
            self.offset(value)
        };
        self.symbols.push(Symbol {
            name,
            kind,
            defined,
            global: symbol.st_bind().0 != 0,
            dynamic,
            offset,
            thumb,
            size: symbol.st_size(endian).into(),
        });
    }

    /// A range of the file, cut off at its end.
    fn cut(&self, offset: u64, size: u64) -> Range<usize> {
        let length = self.bytes.len() as u64;
        let start = offset.min(length);
        let end = offset.saturating_add(size).clamp(start, length);
        // Both are at most the length of a slice.
        start as usize..end as usize
    }

    /// The offset in the file of an address.
    pub(super) fn offset(&self, address: u64) -> Option<usize> {
        let loads = self
            .segments
            .iter()
            .filter(|segment| segment.kind == elf::PT_LOAD);
        loads
            .filter(|s| address >= s.address)
            .find_map(|s| within(&s.range, address - s.address))
    }

    /// The first section of that name.
    pub(super) fn section(&self, name: &str) -> Option<&'a [u8]> {
        let section = self.sections.iter().find(|section| section.name == name)?;
        self.bytes.get(section.range.clone())
    }

    /// The first segment of that type.
    pub(super) fn segment(&self, kind: elf::ProgramType) -> Option<&'a [u8]> {
        let segment = self.segments.iter().find(|segment| segment.kind == kind)?;
        self.bytes.get(segment.range.clone())
    }

    pub(super) fn u32(&self, at: usize) -> Option<u32> {
        self.order.u32(self.bytes, at)
    }

    /// Reads a number of the file's class: 4 or 8 bytes.
    pub(super) fn word(&self, at: usize) -> Option<u64> {
        if self.wide {
            self.order.u64(self.bytes, at)
        } else {
            self.u32(at).map(u64::from)
        }
    }

    /// The text `at` bytes into the range, up to its zero byte, the range's end or `MAX_NAME`.
    pub(super) fn string(&self, range: &Range<usize>, at: u64) -> &'a [u8] {
        let start = within(range, at).unwrap_or(range.end);
        let end = range.end.min(start.saturating_add(MAX_NAME));
        let bytes = self.bytes.get(start..end).unwrap_or_default();
        bytes.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

/// The entries, and the string table that they point into.
#[derive(Debug, Default)]
pub(super) struct Dynamic {
    entries: Vec<(u64, u64)>,
    /// `DT_STRTAB`, as a range of the file.
    names: Option<Range<usize>>,
}

impl Dynamic {
    /// Reads the entries; an image without a dynamic segment has none.
    fn read(image: &Image<'_>) -> Self {
        let Some(segment) = image
            .segments
            .iter()
            .find(|segment| segment.kind == elf::PT_DYNAMIC)
        else {
            return Self::default();
        };
        let size = if image.wide { 8 } else { 4 };
        let mut dynamic = Self::default();
        for at in segment.range.clone().step_by(2 * size).take(MAX_ENTRIES) {
            let (Some(tag), Some(value)) = (image.word(at), image.word(at + size)) else {
                break;
            };
            if tag == 0 {
                break;
            }
            dynamic.entries.push((tag, value));
        }
        let start = dynamic
            .get(elf::DT_STRTAB)
            .and_then(|address| image.offset(address));
        dynamic.names = start.map(|start| {
            let size = dynamic
                .get(elf::DT_STRSZ)
                .and_then(|size| usize::try_from(size).ok())
                .unwrap_or(usize::MAX);
            start..start.saturating_add(size).min(image.bytes.len())
        });
        dynamic
    }

    /// Value of the first entry with that tag.
    pub(super) fn get(&self, tag: elf::DynamicTag) -> Option<u64> {
        self.entries
            .iter()
            .find(|entry| entry.0 == tag.0 as u64)
            .map(|entry| entry.1)
    }

    /// The text that an entry points at.
    pub(super) fn text(&self, image: &Image<'_>, tag: elf::DynamicTag) -> Option<String> {
        Some(text(image.string(self.names.as_ref()?, self.get(tag)?)))
    }

    /// Number of dynamic symbols, which only the hash tables reveal: `DT_HASH` states it; for
    /// `DT_GNU_HASH`, the longest chain must be followed to its end.
    fn symbol_count(&self, image: &Image<'_>) -> usize {
        if let Some(at) = self
            .get(elf::DT_HASH)
            .and_then(|address| image.offset(address))
            && let Some(count) = image.u32(at + 4)
        {
            return count as usize;
        }
        if let Some(at) = self
            .get(elf::DT_GNU_HASH)
            .and_then(|address| image.offset(address))
            && let Some(count) = gnu_count(image, at)
        {
            return count;
        }
        // MIPS files without either table have `DT_MIPS_SYMTABNO`.
        if image.machine == elf::EM_MIPS {
            return self
                .get(elf::DT_MIPS_SYMTABNO)
                .and_then(|count| usize::try_from(count).ok())
                .unwrap_or(0);
        }
        0
    }
}

fn gnu_count(image: &Image<'_>, at: usize) -> Option<usize> {
    let buckets = image.u32(at)? as usize;
    let first = image.u32(at + 4)? as usize;
    let bloom = image.u32(at + 8)? as usize;
    let start = at
        .checked_add(16)?
        .checked_add(bloom.checked_mul(if image.wide { 8 } else { 4 })?)?;
    let mut last = 0;
    for bucket in 0..buckets.min(MAX_CHAIN) {
        let Some(symbol) = image.u32(start.checked_add(bucket * 4)?) else {
            break;
        };
        last = last.max(symbol as usize);
    }
    if last < first {
        return Some(first);
    }
    let chains = start.checked_add(buckets.checked_mul(4)?)?;
    for _ in 0..MAX_CHAIN {
        let hash = image.u32(chains.checked_add((last - first).checked_mul(4)?)?)?;
        last += 1;
        if hash & 1 == 1 {
            break;
        }
    }
    Some(last)
}

/// The offset `at` bytes into a range, if it lies in the range.
fn within(range: &Range<usize>, at: u64) -> Option<usize> {
    let at = usize::try_from(at).ok()?;
    (at < range.len()).then(|| range.start + at)
}

/// A name for display: UTF-8, of bounded length.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.get(..MAX_NAME).unwrap_or(bytes)).into_owned()
}
