//! Zip archives, as vendors hand out their images: each member is looked into as an image.

use super::budget::Fault;
use super::decompress::deflated;
use super::{UnpackError, Walker, clean_path, scan};
use crate::unpack::Part;

/// Walks a part that is an archive from its first byte, and returns whether it held anything. `None`: no
/// archive.
pub(super) fn walk(part: Part<'_>, walker: &mut Walker<'_>) -> Result<Option<bool>, UnpackError> {
    let bytes = part.bytes;
    if !bytes.starts_with(b"PK\x03\x04") {
        return Ok(None);
    }
    // The end record, followed by a comment of 64 KiB at most, says where the directory is.
    let tail = bytes.len().saturating_sub(22 + 0xffff);
    let Some(end) = memchr::memmem::rfind(&bytes[tail..], b"PK\x05\x06").map(|at| tail + at) else {
        return Ok(None);
    };
    let Some(mut at) = u32_at(bytes, end + 16) else {
        return Ok(None);
    };
    let outer = if part.outer.is_empty() {
        "zip".to_owned()
    } else {
        format!("{} > zip", part.outer)
    };
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
    Ok(Some(true))
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
        let half = |of: &[u8], i: usize| usize::from(u16::from_le_bytes([of[i], of[i + 1]]));
        let name = bytes.get(at + 46..at + 46 + half(entry, 28))?;
        let size = u32_at(entry, 20)?;
        let local = u32_at(entry, 42)?;
        let head = bytes
            .get(local..local.checked_add(30)?)
            .filter(|h| h.starts_with(b"PK\x03\x04"))?;
        let start = local + 30 + half(head, 26) + half(head, 28);
        Some(Self {
            name,
            method: u16::from_le_bytes([entry[10], entry[11]]),
            data: bytes.get(start..start.checked_add(size)?)?,
            next: at + 46 + half(entry, 28) + half(entry, 30) + half(entry, 32),
        })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    let word = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
    usize::try_from(u32::from_le_bytes(word)).ok()
}
