//! Scans an image from magic number to magic number, whatever vendor headers lie between.
//!
//! A recognised part goes to its own reader and the scan jumps over it, so the scan reads no byte twice on
//! one level. After a header that only announces the next part, the scan notes where a stream without a
//! magic number should begin.

use super::decompress::{Format, decode};
use super::{
    Fault, UnpackError, Walker, cpio, fit, kernel, squashfs, tar, ubi, uimage, vendor, zip,
};
use crate::bytes::{BIG, LITTLE};
use crate::unpack::{Found, Part};

/// Looks into a part. `false`: it contains nothing known.
pub(super) fn part(part: Part<'_>, walker: &mut Walker<'_>) -> Result<bool, UnpackError> {
    if part.depth > walker.budget.limits.depth {
        walker.skip(part.outer, "its contents", "nested too deeply");
        return Ok(false);
    }
    vendor::metadata(part, walker)?;
    if tar::walk(part, walker)? || zip::walk(part, walker)? {
        return Ok(true);
    }
    if kernel::is_image(part.bytes) {
        kernel::hand_over(part.bytes, part.outer, part.depth, walker)?;
        return Ok(true);
    }
    let mut any = false;
    let mut told = Vec::new();
    let mut expected: Vec<(usize, Format)> = Vec::new();
    let mut at = 0;
    while let Some(next) = next_candidate(part.bytes, at, &expected) {
        let wanted = expected
            .iter()
            .find(|(offset, _)| *offset == next)
            .map(|(_, format)| *format);
        expected.retain(|(offset, _)| *offset > next);
        at = match candidate(part, next, wanted, &mut told, walker)? {
            Some(found) => {
                any = true;
                expected.extend(found.expected);
                found.end.max(next + 1)
            }
            None => next + 1,
        };
    }
    Ok(any)
}

/// First bytes of all magic numbers.
const FIRST: [bool; 256] = {
    let mut first = [false; 256];
    let all = b"hsqtHU*d0\x27\xd0\x1f\xfd\x28\x02\x5d\x6d\x31\x85\x19\x42\x89\x45-";
    let mut i = 0;
    while i < all.len() {
        first[all[i] as usize] = true;
        i += 1;
    }
    first
};

fn next_candidate(bytes: &[u8], from: usize, expected: &[(usize, Format)]) -> Option<usize> {
    let wanted = expected
        .iter()
        .map(|(at, _)| *at)
        .filter(|at| *at >= from && *at < bytes.len())
        .min();
    let end = wanted.unwrap_or(bytes.len());
    let found = bytes
        .get(from..end)?
        .iter()
        .position(|byte| FIRST[usize::from(*byte)]);
    found.map(|found| from + found).or(wanted)
}

/// Tries the candidate at `at`. `wanted`: the format that a header announced for this offset.
fn candidate(
    part: Part<'_>,
    at: usize,
    wanted: Option<Format>,
    told: &mut Vec<&'static str>,
    walker: &mut Walker<'_>,
) -> Result<Option<Found>, UnpackError> {
    let rest = &part.bytes[at..];
    if let Some(format) = wanted.or_else(|| format_at(rest)) {
        if let Some(end) = stream(part, at, format, wanted.is_some(), walker)? {
            return Ok(Some(Found::until(end)));
        }
        if wanted.is_none() {
            return Ok(None);
        }
    }
    match rest {
        [b'0', b'7', b'0', b'7', b'0', b'1' | b'2', ..] => cpio::walk(part, at, walker),
        [0xd0, 0x0d, 0xfe, 0xed, ..] => fit::walk(part, at, walker),
        _ if part.kernel => Ok(None),
        [b'h' | b's' | b'q' | b't', ..] => squashfs::walk(part, at, walker),
        [b'U', b'B', b'I', b'#', ..] => ubi::walk(part, at, walker),
        [0x27, 0x05, 0x19, 0x56, ..] => uimage::walk(part, at, walker),
        [b'H', ..] | [b'*', ..] | [b'd', ..] => vendor::header(part, at, walker),
        _ => {
            let Some((what, length)) = named_only(rest) else {
                return Ok(None);
            };
            // JFFS2 repeats its magic number in each eraseblock.
            if !told.contains(&what) {
                told.push(what);
                walker.skip(&part.origin(what, at), what, "this format is not supported");
            }
            Ok(Some(Found::until(at + length)))
        }
    }
}

/// A known format that the crate does not unpack: its name, and the bytes to jump over.
fn named_only(rest: &[u8]) -> Option<(&'static str, usize)> {
    match rest {
        // A superblock node (type 6) of UBIFS.
        [0x31, 0x18, 0x10, 0x06, ..] if rest.get(20) == Some(&6) => Some(("UBIFS", 24)),
        // A directory entry or an inode node of JFFS2 that begins an erase block, with a credible length.
        [0x85, 0x19, 1 | 2, 0xe0, ..] => {
            let length = LITTLE.u32(rest, 4)?;
            (12..1 << 16).contains(&length).then_some(("JFFS2", 12))
        }
        [0x19, 0x85, 0xe0, 1 | 2, ..] => {
            let length = BIG.u32(rest, 4)?;
            (12..1 << 16).contains(&length).then_some(("JFFS2", 12))
        }
        [b'-', b'r', b'o', b'm', b'1', b'f', b's', b'-', ..] => Some(("romfs", 16)),
        [0x45, 0x3d, 0xcd, 0x28, ..] if rest.get(16..32) == Some(b"Compressed ROMFS") => {
            Some(("cramfs", 76))
        }
        [0x89, b'L', b'Z', b'O', 0, 0x0d, 0x0a, 0x1a, 0x0a, ..] => Some(("an LZO stream", 9)),
        [
            b'B',
            b'Z',
            b'h',
            b'1'..=b'9',
            0x31,
            0x41,
            0x59,
            0x26,
            0x53,
            0x59,
            ..,
        ] => Some(("a bzip2 stream", 10)),
        _ => None,
    }
}

/// The format of the stream that begins here, if its first bytes make sense.
pub(super) fn format_at(rest: &[u8]) -> Option<Format> {
    match rest {
        [
            0x1f,
            0x8b,
            8,
            flags,
            _,
            _,
            _,
            _,
            0 | 2 | 4,
            0..=13 | 255,
            ..,
        ] if flags & 0xe0 == 0 => Some(Format::Gzip),
        [0xfd, b'7', b'z', b'X', b'Z', 0, 0, 0 | 1 | 4 | 10, ..] => Some(Format::Xz),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Format::Zstd),
        [0x02, 0x21, 0x4c, 0x18, ..] => Some(Format::Lz4),
        [0x5d | 0x6d, d0, d1, d2, d3, size @ ..] if is_lzma([*d0, *d1, *d2, *d3], size) => {
            Some(Format::Lzma)
        }
        _ => None,
    }
}

/// Whether this is `.lzma`, which has no magic number: the dictionary is a power of two, the size is
/// unknown or credible, and the stream's first byte is 0.
fn is_lzma(dictionary: [u8; 4], rest: &[u8]) -> bool {
    let dictionary = u32::from_le_bytes(dictionary);
    let credible = |size| size == u64::MAX || (16..1 << 30).contains(&size);
    dictionary.is_power_of_two()
        && (1 << 12..=1 << 26).contains(&dictionary)
        && LITTLE.u64(rest, 0).is_some_and(credible)
        && rest.get(8) == Some(&0)
}

/// Unpacks a stream and looks into it. `None`: the bytes are not a stream after all.
fn stream(
    part: Part<'_>,
    at: usize,
    format: Format,
    wanted: bool,
    walker: &mut Walker<'_>,
) -> Result<Option<usize>, UnpackError> {
    if !walker.budget.attempt(0) {
        return Ok(None);
    }
    let origin = part.origin(format.name(), at);
    let (data, length) = match decode(format, &part.bytes[at..], &mut walker.budget) {
        Ok(done) => done,
        // Bytes that only looked like a stream are not reported.
        Err(Fault::Broken { out, .. }) if !wanted && out < WORTH_TELLING => return Ok(None),
        Err(fault) => {
            walker.fault(&origin, &format!("a stream of {}", format.name()), fault)?;
            return Ok(None);
        }
    };
    if part.kernel && !data.starts_with(b"07070") {
        return Ok(None);
    }
    kernel::unpacked(&data, &origin, part.depth + 1, walker)?;
    Ok(Some(at + length))
}

/// A broken stream that gave at least this many bytes was a real one.
const WORTH_TELLING: usize = 64 << 10;
