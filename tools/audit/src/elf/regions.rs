//! Which bytes of a file are code, and in which instruction set.
//!
//! Code lies in the executable sections. Without section headers it lies in the executable segments, cut
//! down to the range between the outermost addresses that a table names as code. (ARM linkers also put
//! constants, symbols and relocations into the executable segment.)
//!
//! Mapping symbols (`$a`, `$t`, `$x`, `$d`) give the instruction set exactly, unless they are stripped.
//! Next come functions of either symbol table, whose address has the lowest bit set for T32. Where neither
//! exists, the mode is [`Mode::Unknown`], and [`count`](super::count) judges the bytes.

use std::ops::Range;

use object::elf::{self, EM_AARCH64, EM_ARM, PT_ARM_EXIDX, PT_GNU_EH_FRAME};

use super::image::{Image, Symbol, SymbolKind};

/// Minimum number of addresses named as code that suffice to cut a segment down to them.
const FEW: usize = 8;
/// Maximum number of bytes of `.fini`, of which the dynamic table gives only the start.
const TAIL: usize = 32;
/// Maximum number of unwinding table entries that are read.
const MAX_ENTRIES: usize = 200_000;
/// Longest function size that is believed.
const LONGEST: u64 = 1 << 20;

/// The instruction set of a stretch of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// A32.
    A32,
    /// T32.
    T32,
    /// A64.
    A64,
    /// A32, T32 or constants.
    Unknown,
    /// Constants, by a mapping symbol; or a machine whose instructions are not counted.
    Data,
}

/// The kind of a region by its mapping symbols. Constants among code may still be instructions: OpenSSL gives its
/// AES and SHA instructions as bytes, for assemblers that do not know them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sure {
    /// No mapping symbol covers the region.
    No,
    /// A mapping symbol says code.
    Code,
    /// A mapping symbol says constants; the mode is that of the code before them.
    Constants,
}

/// A stretch of the file in one mode.
#[derive(Clone, Debug)]
pub(super) struct Region {
    pub(super) range: Range<usize>,
    pub(super) mode: Mode,
    /// The kind by the mapping symbols.
    pub(super) sure: Sure,
}

/// The executable parts of the file, in order and without overlaps.
pub(super) fn executable(image: &Image<'_>) -> Vec<Range<usize>> {
    let sections = image
        .sections
        .iter()
        .filter(|section| section.flags & elf::SHF_EXECINSTR.0 != 0);
    let sections: Vec<_> = sections.map(|section| section.range.clone()).collect();
    let sections = merged(sections);
    if !sections.is_empty() {
        return sections;
    }
    let segments = image
        .segments
        .iter()
        .filter(|segment| segment.kind == elf::PT_LOAD && segment.flags & elf::PF_X.0 != 0);
    let segments = merged(segments.map(|segment| segment.range.clone()).collect());
    let mut known = known(image);
    known.sort_unstable();
    let cut = segments.into_iter().map(|segment| {
        let from = known.partition_point(|at| *at < segment.start);
        let to = known.partition_point(|at| *at <= segment.end);
        match &known[from..to] {
            [first, .., last] if to - from >= FEW => *first..(last + TAIL).min(segment.end),
            _ => segment,
        }
    });
    cut.collect()
}

/// The stretches of one executable part.
pub(super) fn regions(
    image: &Image<'_>,
    part: &Range<usize>,
    symbols: &[&Symbol<'_>],
) -> Vec<Region> {
    let default = match image.machine {
        EM_ARM => Mode::Unknown,
        EM_AARCH64 => Mode::A64,
        _ => Mode::Data,
    };
    let mut regions = Vec::new();
    let mut add = |range: Range<usize>, mode, sure| {
        if !range.is_empty() {
            regions.push(Region { range, mode, sure });
        }
    };
    let first = symbols.partition_point(|symbol| symbol.offset < Some(part.start));
    let end = symbols.partition_point(|symbol| symbol.offset < Some(part.end));
    let symbols = &symbols[first..end];
    if symbols
        .iter()
        .any(|symbol| matches!(symbol.kind, SymbolKind::Mapping(_)))
    {
        let (mut at, mut mode, mut sure) = (part.start, default, Sure::No);
        for symbol in symbols {
            let (SymbolKind::Mapping(letter), Some(next)) = (symbol.kind, symbol.offset) else {
                continue;
            };
            add(at..next, mode, sure);
            (mode, sure) = match letter {
                b'a' if image.machine == EM_ARM => (Mode::A32, Sure::Code),
                b't' if image.machine == EM_ARM => (Mode::T32, Sure::Code),
                b'x' if image.machine == EM_AARCH64 => (Mode::A64, Sure::Code),
                _ if sure == Sure::No => (Mode::Data, Sure::No),
                _ => (mode, Sure::Constants),
            };
            at = next;
        }
        add(at..part.end, mode, sure);
    } else if default == Mode::Unknown {
        let mut at = part.start;
        let mut functions = symbols
            .iter()
            .filter(|symbol| symbol.kind == SymbolKind::Function)
            .peekable();
        while let Some(symbol) = functions.next() {
            let Some(start) = symbol.offset.map(|start| start.max(at)) else {
                continue;
            };
            let next = functions
                .peek()
                .and_then(|next| next.offset)
                .unwrap_or(part.end);
            // Assembly often gives no size.
            let end = if symbol.size == 0 {
                next
            } else {
                start.saturating_add(size(symbol)).min(next)
            };
            add(at..start, Mode::Unknown, Sure::No);
            add(
                start..end,
                if symbol.thumb { Mode::T32 } else { Mode::A32 },
                Sure::No,
            );
            at = at.max(end);
        }
        add(at..part.end, Mode::Unknown, Sure::No);
    } else {
        add(part.clone(), default, Sure::No);
    }
    regions
}

fn size(symbol: &Symbol<'_>) -> usize {
    usize::try_from(symbol.size).unwrap_or(usize::MAX)
}

fn merged(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            // Adjacent ranges stay apart: one of them may be a procedure linkage table.
            Some(last) if range.start < last.end => last.end = last.end.max(range.end),
            _ if range.is_empty() => {}
            _ => merged.push(range),
        }
    }
    merged
}

/// Offsets that a table names as code.
fn known(image: &Image<'_>) -> Vec<usize> {
    let mut known = Vec::new();
    let mut add =
        |address: Option<u64>| known.extend(address.and_then(|address| image.offset(address & !1)));
    add(Some(image.entry).filter(|entry| *entry != 0));
    add(image.dynamic.get(elf::DT_INIT));
    add(image.dynamic.get(elf::DT_FINI));
    // ELF allows one table of each kind.
    let tables =
        [PT_ARM_EXIDX, PT_GNU_EH_FRAME].map(|kind| image.segments.iter().find(|s| s.kind == kind));
    for segment in tables.into_iter().flatten() {
        let range = segment.range.clone();
        match segment.kind {
            // The table of unwinding instructions, by the functions' addresses.
            PT_ARM_EXIDX if image.machine == EM_ARM => {
                for at in range.clone().step_by(8).take(MAX_ENTRIES) {
                    // A signed distance of 31 bits from the word's own address.
                    let Some(word) = image.u32(at) else { break };
                    let distance = i64::from((word << 1) as i32 >> 1);
                    let place = segment.address.wrapping_add((at - range.start) as u64);
                    add(Some(place.wrapping_add_signed(distance) & 0xffff_ffff));
                }
            }
            PT_GNU_EH_FRAME => {
                // Version 1, with a sorted table of pairs of signed 32-bit distances from the header: what
                // every linker writes (Linux Standard Base, "DWARF extensions").
                if image
                    .bytes
                    .get(range.clone())
                    .is_none_or(|header| !header.starts_with(&[1, 0x1b, 3, 0x3b]))
                {
                    continue;
                }
                let count = image.u32(range.start + 8).unwrap_or(0) as usize;
                for at in range.skip(12).step_by(8).take(count.min(MAX_ENTRIES)) {
                    let pair = image.u32(at).zip(image.u32(at + 4));
                    let Some((function, entry)) = pair else { break };
                    let from_here =
                        |word| segment.address.wrapping_add_signed(i64::from(word as i32));
                    let start = from_here(function);
                    add(Some(start));
                    // The function's entry holds its length after two words of its own and the start address.
                    let entry = image.offset(from_here(entry));
                    let size = entry
                        .and_then(|entry| image.u32(entry + 12))
                        .map_or(0, u64::from);
                    add(Some(start.wrapping_add(size)).filter(|_| size < LONGEST));
                }
            }
            _ => {}
        }
    }
    let functions = image
        .symbols
        .iter()
        .filter(|symbol| symbol.kind == SymbolKind::Function);
    for symbol in functions {
        known.extend(symbol.offset);
        let sized = symbol.offset.filter(|_| symbol.size < LONGEST);
        known.extend(sized.map(|start| start + size(symbol)));
    }
    known
}
