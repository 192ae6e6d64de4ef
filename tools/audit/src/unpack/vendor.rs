//! Vendors' headers and trailers. The scan finds the wrapped parts by their own magic numbers; this module
//! names the wrapper, and announces streams without a magic number.

use super::decompress::Format;
use super::{UnpackError, Walker};
use crate::bytes::{BIG, LITTLE};
use crate::unpack::{Found, Part};

/// Reads a TRX, CHK or DNI header at `at`; `None` if there is none.
pub(super) fn header(
    part: Part<'_>,
    at: usize,
    walker: &mut Walker<'_>,
) -> Result<Option<Found>, UnpackError> {
    let rest = &part.bytes[at..];
    if rest.starts_with(b"HDR0") {
        return Ok(trx(rest, at));
    }
    // CHK and DNI occur only at the very beginning of a file.
    let (what, text, length) = match rest {
        _ if at != 0 => return Ok(None),
        [b'*', b'#', b'$', b'^', ..] => match chk(rest) {
            Some((board, length)) => ("CHK", format!("board_id:{board}\n"), length),
            None => return Ok(None),
        },
        _ if rest.starts_with(b"device:") && rest.len() >= DNI => {
            let end = rest[..DNI]
                .iter()
                .position(|byte| *byte == 0)
                .unwrap_or(DNI);
            (
                "DNI",
                String::from_utf8_lossy(&rest[..end]).into_owned(),
                DNI,
            )
        }
        _ => return Ok(None),
    };
    walker.file("header", &part.origin(what, at), text.as_bytes())?;
    Ok(Some(Found::until(at + length)))
}

/// Bytes of the text header of DNI's images (mkdniimg.c of OpenWrt's firmware-utils).
const DNI: usize = 128;

/// Broadcom's TRX: magic, length, checksum, flags, version, and three (version 1) or four (version 2) offsets,
/// little-endian (trx.c of OpenWrt's firmware-utils).
fn trx(rest: &[u8], at: usize) -> Option<Found> {
    let parts = match LITTLE.u32(rest, 12)? >> 16 {
        1 => 3,
        2 => 4,
        _ => return None,
    };
    let header = 16 + parts * 4;
    let mut expected = Vec::new();
    for i in 0..parts {
        let offset = usize::try_from(LITTLE.u32(rest, 16 + i * 4)?).ok()?;
        // LZMA kernels may have any properties; the scan finds other parts by their magic numbers.
        if offset >= header
            && rest
                .get(offset)
                .is_some_and(|props| *props < 225 && !MAGIC_FIRST.contains(props))
        {
            expected.push((at + offset, Format::Lzma));
        }
    }
    Some(Found {
        end: at + header,
        expected,
    })
}

/// First bytes of the parts that have a magic number: squashfs, gzip, uImage, device trees, UBI.
const MAGIC_FIRST: [u8; 8] = [b'h', b's', b'q', b't', 0x1f, 0x27, 0xd0, b'U'];

/// NETGEAR's CHK: magic, length of the header, seven more words, big-endian, and the board's name
/// (mkchkimg.c of OpenWrt's firmware-utils).
fn chk(rest: &[u8]) -> Option<(String, usize)> {
    let length = BIG.u32(rest, 4)?;
    let length = usize::try_from(length)
        .ok()
        .filter(|length| (40..=1024).contains(length))?;
    let board = rest.get(40..length)?;
    let end = board
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(board.len());
    Some((String::from_utf8_lossy(&board[..end]).into_owned(), length))
}

/// OpenWrt's trailer with JSON about the boards that an image is for (fwtool.c): each block ends in its magic,
/// a checksum, a kind and its length, big-endian.
pub(super) fn metadata(part: Part<'_>, walker: &mut Walker<'_>) -> Result<(), UnpackError> {
    let mut end = part.bytes.len();
    // The JSON, a signature, and blocks that OpenWrt may add later.
    for _ in 0..4 {
        let Some(trailer) = end
            .checked_sub(16)
            .and_then(|start| part.bytes.get(start..end))
        else {
            break;
        };
        let start = BIG
            .u32(trailer, 12)
            .and_then(|length| usize::try_from(length).ok())
            .filter(|length| *length >= 16)
            .and_then(|l| end.checked_sub(l));
        let (true, Some(start)) = (trailer.starts_with(b"FWx0"), start) else {
            break;
        };
        let block = &part.bytes[start..end - 16];
        if let Some(json) = block
            .iter()
            .position(|byte| *byte == b'{')
            .filter(|_| trailer[8] == 1)
        {
            walker.file("metadata", &part.origin("metadata", start), &block[json..])?;
        }
        end = start;
    }
    Ok(())
}
