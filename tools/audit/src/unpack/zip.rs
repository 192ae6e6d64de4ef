//! Zip archives, as vendors hand out their images: each member is looked into as an image.

use super::budget::Fault;
use super::decompress::deflated;
use super::{UnpackError, Walker, clean_path, scan};
use crate::bytes::LITTLE;
use crate::unpack::{Part, inside};

/// Walks a part that is an archive from its first byte, and returns whether it is one.
pub(super) fn walk(part: Part<'_>, walker: &mut Walker<'_>) -> Result<bool, UnpackError> {
    let bytes = part.bytes;
    if !bytes.starts_with(b"PK\x03\x04") {
        return Ok(false);
    }
    // The end record, followed by a comment of 64 KiB at most, says where the directory is.
    let tail = bytes.len().saturating_sub(22 + 0xffff);
    let Some(end) = memchr::memmem::rfind(&bytes[tail..], b"PK\x05\x06").map(|at| tail + at) else {
        return Ok(false);
    };
    let Some(mut at) = LITTLE.u32(bytes, end + 16).map(|at| at as usize) else {
        return Ok(false);
    };
    let outer = inside(part.outer, "zip");
    while let Some(member) = Member::read(bytes, at) {
        at = member.next;
        let Some(path) = clean_path(member.name) else {
            continue;
        };
        walker.budget.count()?;
        let origin = format!("{outer} {}", path.get(1..).unwrap_or(""));
        // A hostile archive can let many members share their bytes.
        if !walker.budget.attempt(member.data.len()) {
            walker.skip(&origin, &path, "there are too many members");
            break;
        }
        let data = match member.method {
            0 => Ok(None),
            8 => deflated(member.data, &mut walker.budget).map(Some),
            other => Err(Fault::part(format!("packed with method {other}"))),
        };
        match data {
            Ok(unpacked) => {
                let data = unpacked.as_deref().unwrap_or(member.data);
                if !scan::part(part.inner(data, &origin), walker)? && !data.is_empty() {
                    walker.file(&path, &outer, data)?;
                }
            }
            Err(fault) => walker.fault(&outer, &path, fault)?,
        }
    }
    Ok(true)
}

struct Member<'a> {
    name: &'a [u8],
    method: u16,
    data: &'a [u8],
    /// Offset of the next entry in the directory.
    next: usize,
}

impl<'a> Member<'a> {
    /// Reads the directory entry at `at`, and the member that it refers to.
    fn read(bytes: &'a [u8], at: usize) -> Option<Self> {
        let entry = bytes
            .get(at..at.checked_add(46)?)
            .filter(|e| e.starts_with(b"PK\x01\x02"))?;
        let half = |of: &[u8], i: usize| LITTLE.u16(of, i).map(usize::from);
        let word = |of: &[u8], i: usize| usize::try_from(LITTLE.u32(of, i)?).ok();
        let name = bytes.get(at + 46..at + 46 + half(entry, 28)?)?;
        let size = word(entry, 20)?;
        let local = word(entry, 42)?;
        let head = bytes
            .get(local..local.checked_add(30)?)
            .filter(|h| h.starts_with(b"PK\x03\x04"))?;
        let start = local + 30 + half(head, 26)? + half(head, 28)?;
        Some(Self {
            name,
            method: LITTLE.u16(entry, 10)?,
            data: bytes.get(start..start.checked_add(size)?)?,
            next: at + 46 + half(entry, 28)? + half(entry, 30)? + half(entry, 32)?,
        })
    }
}
