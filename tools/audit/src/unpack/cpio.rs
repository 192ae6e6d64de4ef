//! Archives of the kind `newc`: initial RAM file systems (Linux, Documentation/driver-api/early-userspace/
//! buffer-format.rst).

use std::collections::HashMap;

use super::budget::too_large;
use super::{EntryKind, UnpackError, Walker, clean_path};
use crate::unpack::{Found, Part};

/// Bytes of a header: a magic number of six, and thirteen numbers of eight hexadecimal digits.
const HEADER: usize = 110;

struct Header {
    inode: u32,
    mode: u32,
    links: u32,
    size: usize,
    name: usize,
}

impl Header {
    fn read(bytes: &[u8]) -> Option<Self> {
        let header = bytes
            .get(..HEADER)
            .filter(|h| h.starts_with(b"070701") || h.starts_with(b"070702"))?;
        let number = |i: usize| {
            let digits = header
                .get(6 + i * 8..14 + i * 8)
                .filter(|d| d.iter().all(u8::is_ascii_hexdigit))?;
            u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
        };
        let size = usize::try_from(number(6)?).ok()?;
        let name = usize::try_from(number(11)?)
            .ok()
            .filter(|name| (1..=4096).contains(name))?;
        Some(Self {
            inode: number(0)?,
            mode: number(1)?,
            links: number(4)?,
            size,
            name,
        })
    }
}

/// Walks the archive at `at`; `None` if there is none.
pub(super) fn walk(
    part: Part<'_>,
    at: usize,
    walker: &mut Walker<'_>,
) -> Result<Option<Found>, UnpackError> {
    let archive = &part.bytes[at..];
    if Header::read(archive).is_none() {
        return Ok(None);
    }
    let origin = part.origin("cpio", at);
    // Only the last entry of a file with several names has the bytes.
    let mut waiting: HashMap<u32, Vec<String>> = HashMap::new();
    let mut position = 0;
    let whole = loop {
        let Some((header, path, data, next)) = member(archive, position) else {
            break false;
        };
        position = next;
        if path == b"TRAILER!!!" {
            break true;
        }
        let Some(path) = clean_path(path) else {
            continue;
        };
        match header.mode & 0o17_0000 {
            0o10_0000 if header.size as u64 > walker.budget.limits.file => {
                let why = too_large(header.size as u64, &walker.budget.limits);
                walker.skip(&origin, &path, &why);
            }
            0o10_0000 if header.links > 1 && data.is_empty() => {
                walker.budget.count()?;
                waiting.entry(header.inode).or_default().push(path);
            }
            0o10_0000 => {
                for other in waiting
                    .remove(&header.inode)
                    .filter(|_| header.links > 1)
                    .unwrap_or_default()
                {
                    walker.file_in_tree(&other, &origin, data)?;
                }
                walker.file_in_tree(&path, &origin, data)?;
            }
            0o12_0000 => walker.give(
                &path,
                &origin,
                EntryKind::Symlink(&String::from_utf8_lossy(data)),
                &[],
            )?,
            // Directories count, because they cost time as well.
            0o04_0000 => walker.budget.count()?,
            _ => walker.give(&path, &origin, EntryKind::Other, &[])?,
        }
    };
    // Files that are empty under all of their names.
    for path in waiting.into_values().flatten() {
        walker.file(&path, &origin, &[])?;
    }
    if !whole {
        walker.skip(&origin, "cpio", "it ends before its end mark");
        // Skip the header that breaks the archive off, so that the scan does not take it for a new archive.
        position += HEADER;
    }
    Ok(Some(Found::until(at + position)))
}

/// The member at `position`: its header, name, bytes, and where the next one is.
fn member(archive: &[u8], position: usize) -> Option<(Header, &[u8], &[u8], usize)> {
    let header = Header::read(archive.get(position..)?)?;
    let name = position + HEADER;
    let path = archive.get(name..name + header.name)?;
    let path = path.split(|byte| *byte == 0).next()?;
    let start = (name + header.name).next_multiple_of(4);
    let end = start.checked_add(header.size)?;
    let data = archive.get(start..end)?;
    Some((header, path, data, end.checked_next_multiple_of(4)?))
}
