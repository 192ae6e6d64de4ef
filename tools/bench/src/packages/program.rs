//! The dynamic loader of a program to pack. Routers have other C libraries than the build machine, so programs of packages
//! are static.

/// Returns the dynamic loader that an ELF file asks for. `None` for a static program and for any other file.
#[must_use]
pub fn loader(bytes: &[u8]) -> Option<String> {
    const PT_INTERP: u64 = 3;
    let file = File {
        bytes,
        is_wide: *bytes.strip_prefix(b"\x7fELF")?.first()? == 2,
        is_big: *bytes.get(5)? == 2,
    };
    // Offsets in the header: table of segments, size of an entry, number of entries.
    let [table, size, count] = match file.is_wide {
        true => [file.address(32)?, file.number(54, 2)?, file.number(56, 2)?],
        false => [file.address(28)?, file.number(42, 2)?, file.number(44, 2)?],
    };
    // Offsets in an entry: place in the file, size in the file.
    let [place, length] = if file.is_wide { [8, 32] } else { [4, 16] };
    let mut segments = (0..count).filter_map(|index| table.checked_add(index * size));
    let segment = segments.find(|&it| file.number(it, 4) == Some(PT_INTERP))?;
    let begin = file.address(segment.checked_add(place)?)?;
    let end = begin.checked_add(file.address(segment.checked_add(length)?)?)?;
    let name = bytes.get(usize::try_from(begin).ok()?..usize::try_from(end).ok()?)?;
    Some(String::from_utf8_lossy(name.strip_suffix(b"\0").unwrap_or(name)).into_owned())
}

struct File<'a> {
    bytes: &'a [u8],
    is_wide: bool,
    is_big: bool,
}

impl File<'_> {
    /// The number of `size` bytes at an offset.
    fn number(&self, at: u64, size: usize) -> Option<u64> {
        let at = usize::try_from(at).ok()?;
        let bytes = self.bytes.get(at..at.checked_add(size)?)?.iter();
        let add = |sum, byte: &u8| sum << 8 | u64::from(*byte);
        Some(match self.is_big {
            true => bytes.fold(0, add),
            false => bytes.rev().fold(0, add),
        })
    }

    /// A number that is as wide as the machine's addresses.
    fn address(&self, at: u64) -> Option<u64> {
        self.number(at, if self.is_wide { 8 } else { 4 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An ELF file with two segments, of which the second has this type.
    fn elf(is_wide: bool, is_big: bool, kind: u64) -> Vec<u8> {
        let mut file = vec![0; 256];
        file[..4].copy_from_slice(b"\x7fELF");
        file[4] = 1 + u8::from(is_wide);
        file[5] = 1 + u8::from(is_big);
        let mut set = |at: usize, size: usize, number: u64| match is_big {
            true => file[at..at + size].copy_from_slice(&number.to_be_bytes()[8 - size..]),
            false => file[at..at + size].copy_from_slice(&number.to_le_bytes()[..size]),
        };
        let ([table, size, count], [place, length], width, entry) = match is_wide {
            true => ([32, 54, 56], [8, 32], 8, 56),
            false => ([28, 42, 44], [4, 16], 4, 32),
        };
        set(table, width, 64);
        set(size, 2, entry as u64);
        set(count, 2, 2);
        set(64, 4, 1);
        set(64 + entry, 4, kind);
        set(64 + entry + place, width, 200);
        set(64 + entry + length, width, 12);
        file[200..212].copy_from_slice(b"/lib/ld.so.1");
        file
    }

    #[test]
    fn every_class_and_order_is_read() {
        for (is_wide, is_big) in [(true, true), (true, false), (false, true), (false, false)] {
            let found = loader(&elf(is_wide, is_big, 3));
            assert_eq!(found.as_deref(), Some("/lib/ld.so.1"));
            assert_eq!(loader(&elf(is_wide, is_big, 2)), None);
        }
        assert_eq!(loader(b"#!/bin/sh\n"), None);
    }

    proptest! {
        #[test]
        fn damage_never_panics(is_wide: bool, is_big: bool, at in 4_usize..200, bits in 1_u8.., cut in 0_usize..=256) {
            let mut file = elf(is_wide, is_big, 3);
            file[at] ^= bits;
            let _ = loader(&file[..cut]);
        }
    }
}
