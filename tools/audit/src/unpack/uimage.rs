//! U-Boot's old header, 64 bytes, big-endian (U-Boot, include/image.h).
//!
//! Vendors write arbitrary values into its sizes and checksums, so the reader only learns what follows it.

use super::decompress::Format;
use super::{UnpackError, Walker, kernel};
use crate::bytes::BIG;
use crate::unpack::{Found, Part};

/// Bytes of the header.
const HEADER: usize = 64;

/// Walks the header at `at`; `None` if there is none.
pub(super) fn walk(
    part: Part<'_>,
    at: usize,
    walker: &mut Walker<'_>,
) -> Result<Option<Found>, UnpackError> {
    let Some(header) = part.bytes.get(at..at + HEADER) else {
        return Ok(None);
    };
    let (system, machine, kind, compression) = (header[28], header[29], header[30], header[31]);
    if system > 40 || machine > 40 || kind == 0 || kind > 60 || compression > 6 {
        return Ok(None);
    }
    let start = at + HEADER;
    let size = BIG.u32(header, 12).unwrap_or(0) as usize;
    let data = &part.bytes[start..start.saturating_add(size).min(part.bytes.len())];
    check(&part, at, header, data);
    let format = match compression {
        0 => None,
        1 => Some(Format::Gzip),
        3 => Some(Format::Lzma),
        5 => Some(Format::Lz4),
        6 => Some(Format::Zstd),
        other => {
            let name = if other == 2 { "bzip2" } else { "lzo" };
            let origin = part.origin("uImage", at);
            walker.skip(&origin, "its contents", &format!("compressed with {name}"));
            if kind == 2 {
                walker.file("kernel", &origin, data)?;
            }
            return Ok(Some(Found::until(start)));
        }
    };
    if let Some(format) = format {
        return Ok(Some(Found {
            end: start,
            expected: vec![(start, format)],
        }));
    }
    // An uncompressed kernel is handed over whole; the scan finds anything else by its own magic number.
    if kind == 2 && walker.budget.attempt(data.len()) && kernel::is_unpacked(data, walker)? {
        kernel::hand_over(data, &part.origin("uImage", at), part.depth + 1, walker)?;
        return Ok(Some(Found::until(start + data.len())));
    }
    Ok(Some(Found::until(start)))
}

/// Reports wrong checksums and continues: vendors patch headers afterwards.
fn check(part: &Part<'_>, at: usize, header: &[u8], data: &[u8]) {
    let crc = |bytes: &[u8]| {
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        crc.sum()
    };
    let mut blank = header.to_vec();
    blank[4..8].fill(0);
    if crc(&blank).to_be_bytes() != header[4..8] {
        log::info!(
            "{}: the header's checksum does not hold",
            part.origin("uImage", at)
        );
    } else if crc(data).to_be_bytes() != header[24..28] {
        log::info!(
            "{}: the checksum of its data does not hold",
            part.origin("uImage", at)
        );
    }
}
