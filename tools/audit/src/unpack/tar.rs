//! Tar archives: OpenWrt's sysupgrade images, whose members are images, and root file systems.

use super::budget::too_large;
use super::{EntryKind, UnpackError, Walker, clean_path, scan};
use crate::unpack::{Part, inside};

const BLOCK: usize = 512;

/// Longest name that is accepted, in bytes: the longest possible path.
const LONGEST_NAME: usize = 4096;

struct Member<'a> {
    path: Vec<u8>,
    kind: u8,
    link: Vec<u8>,
    data: &'a [u8],
    size: u64,
}

/// Walks a part that is an archive from its first byte, and returns whether it is one.
pub(super) fn walk(part: Part<'_>, walker: &mut Walker<'_>) -> Result<bool, UnpackError> {
    let header = part.bytes.get(..BLOCK);
    if !header.is_some_and(|header| &header[257..262] == b"ustar" && checksum_holds(header)) {
        return Ok(false);
    }
    let is_root = Members::new(part.bytes)
        .take(10_000)
        .filter(|m| in_root(&m.path))
        .count()
        > 1;
    let outer = inside(part.outer, "tar");
    for member in Members::new(part.bytes) {
        let Some(path) = clean_path(&member.path) else {
            continue;
        };
        match member.kind {
            b'0' | 0 if member.size > walker.budget.limits.file && is_root => {
                let why = too_large(member.size, &walker.budget.limits);
                walker.skip(&outer, &path, &why);
            }
            b'0' | 0 if is_root => walker.file_in_tree(&path, &outer, member.data)?,
            b'0' | 0 => {
                walker.budget.count()?;
                let origin = format!("{outer} {}", &path[1..]);
                if !scan::part(part.inner(member.data, &origin), walker)? {
                    walker.file(&path, &outer, member.data)?;
                }
            }
            b'2' => walker.give(
                &path,
                &outer,
                EntryKind::Symlink(&String::from_utf8_lossy(&member.link)),
                &[],
            )?,
            // A second name of an earlier file; the walk does not look up its bytes.
            b'1' => walker.skip(&outer, &path, "a hard link in a tar archive"),
            b'3' | b'4' | b'6' => walker.give(&path, &outer, EntryKind::Other, &[])?,
            _ => walker.budget.count()?,
        }
    }
    Ok(true)
}

/// Whether a path looks like one in a root file system.
fn in_root(path: &[u8]) -> bool {
    let path = path
        .strip_prefix(b"./")
        .or_else(|| path.strip_prefix(b"/"))
        .unwrap_or(path);
    [&b"bin/"[..], b"sbin/", b"lib/", b"etc/", b"usr/"]
        .iter()
        .any(|dir| path.starts_with(dir))
}

fn checksum_holds(header: &[u8]) -> bool {
    let sum: u32 = header
        .iter()
        .enumerate()
        .map(|(i, b)| {
            if (148..156).contains(&i) {
                32
            } else {
                u32::from(*b)
            }
        })
        .sum();
    cfg!(fuzzing) || octal(&header[148..156]) == Some(u64::from(sum))
}

/// Parses a number in octal digits, or in binary if its first bit is set.
fn octal(field: &[u8]) -> Option<u64> {
    if field.first()? & 0x80 != 0 {
        let tail = field.get(field.len().saturating_sub(8)..)?;
        return Some(tail.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)));
    }
    let mut digits = field
        .iter()
        .skip_while(|b| **b == b' ')
        .take_while(|b| (b'0'..=b'7').contains(*b));
    digits.try_fold(0u64, |all, digit| {
        all.checked_mul(8)?.checked_add(u64::from(digit - b'0'))
    })
}

struct Members<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Members<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the header at the position, its data and the data's size, and moves on.
    fn block(&mut self) -> Option<(&'a [u8], &'a [u8], u64)> {
        let header = self.bytes.get(self.at..self.at.checked_add(BLOCK)?)?;
        if !checksum_holds(header) {
            return None;
        }
        let size = match header[156] {
            // Links have no data, whatever their size says.
            b'1'..=b'6' => 0,
            _ => octal(&header[124..136])?,
        };
        let start = self.at + BLOCK;
        let end = start.checked_add(usize::try_from(size).ok()?)?;
        let data = self.bytes.get(start..end)?;
        self.at = end.checked_next_multiple_of(BLOCK)?;
        Some((header, data, size))
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = Member<'a>;

    fn next(&mut self) -> Option<Member<'a>> {
        let (mut long_path, mut long_link) = (None, None);
        loop {
            let (header, data, size) = self.block()?;
            let text = |field: &[u8]| {
                field
                    .split(|byte| *byte == 0)
                    .next()
                    .unwrap_or(&[])
                    .to_vec()
            };
            match header[156] {
                b'L' => long_path = Some(text(&data[..data.len().min(LONGEST_NAME)])),
                b'K' => long_link = Some(text(&data[..data.len().min(LONGEST_NAME)])),
                // POSIX extended attributes; the path in the header suffices.
                b'x' | b'g' => {}
                kind => {
                    let mut path = text(&header[345..500]);
                    if path.is_empty() || header.get(257..263) != Some(b"ustar\0") {
                        path = text(&header[..100]);
                    } else {
                        path.push(b'/');
                        path.extend(text(&header[..100]));
                    }
                    let link = long_link.unwrap_or_else(|| text(&header[157..257]));
                    return Some(Member {
                        path: long_path.unwrap_or(path),
                        kind,
                        link,
                        data,
                        size,
                    });
                }
            }
        }
    }
}
