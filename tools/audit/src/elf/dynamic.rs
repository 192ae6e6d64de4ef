//! `PT_DYNAMIC`: the loader's table, which files keep even without section headers.

use std::ops::Range;

use super::image::{Image, PT_DYNAMIC, text};

/// Most entries that are read; real files have about thirty.
const MAX_ENTRIES: usize = 4096;
/// Most buckets and chains of `DT_GNU_HASH` that are followed.
const MAX_CHAIN: usize = 400_000;

/// Numbers of the entries (`d_tag`).
pub(super) struct Tag;

impl Tag {
    pub(super) const NEEDED: u64 = 1;
    pub(super) const HASH: u64 = 4;
    pub(super) const STRTAB: u64 = 5;
    pub(super) const SYMTAB: u64 = 6;
    pub(super) const STRSZ: u64 = 10;
    pub(super) const INIT: u64 = 12;
    pub(super) const FINI: u64 = 13;
    pub(super) const SONAME: u64 = 14;
    pub(super) const GNU_HASH: u64 = 0x6fff_fef5;
    pub(super) const FLAGS_1: u64 = 0x6fff_fffb;
}

/// The entries, and the string table that they point into.
#[derive(Debug, Default)]
pub(super) struct Dynamic {
    entries: Vec<(u64, u64)>,
    /// `DT_STRTAB`, as a range of the file.
    pub(super) names: Option<Range<usize>>,
}

impl Dynamic {
    /// Reads the entries; an image without such a segment has none.
    pub(super) fn read(image: &Image<'_>) -> Self {
        let Some(segment) = image
            .segments
            .iter()
            .find(|segment| segment.kind == PT_DYNAMIC)
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
            .get(Tag::STRTAB)
            .and_then(|address| image.offset(address));
        dynamic.names = start.map(|start| {
            let size = dynamic
                .get(Tag::STRSZ)
                .and_then(|size| usize::try_from(size).ok())
                .unwrap_or(usize::MAX);
            start..start.saturating_add(size).min(image.bytes.len())
        });
        dynamic
    }

    /// Value of the first entry with that tag.
    pub(super) fn get(&self, tag: u64) -> Option<u64> {
        self.entries
            .iter()
            .find(|entry| entry.0 == tag)
            .map(|entry| entry.1)
    }

    /// The text that an entry points at.
    pub(super) fn text(&self, image: &Image<'_>, tag: u64) -> Option<String> {
        Some(text(image.string(self.names.as_ref()?, self.get(tag)?)))
    }

    /// Number of dynamic symbols, which only the hash tables reveal: `DT_HASH` states it; for
    /// `DT_GNU_HASH`, the longest chain must be followed to its end.
    pub(super) fn symbol_count(&self, image: &Image<'_>) -> usize {
        if let Some(at) = self
            .get(Tag::HASH)
            .and_then(|address| image.offset(address))
            && let Some(count) = image.u32(at + 4)
        {
            return count as usize;
        }
        if let Some(at) = self
            .get(Tag::GNU_HASH)
            .and_then(|address| image.offset(address))
            && let Some(count) = gnu_count(image, at)
        {
            return count;
        }
        // MIPS files without either table have `DT_MIPS_SYMTABNO`.
        const MIPS_SYMTABNO: u64 = 0x7000_0011;
        if image.machine == super::EM_MIPS {
            return self
                .get(MIPS_SYMTABNO)
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
