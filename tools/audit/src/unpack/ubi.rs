//! UBI: volumes in the eraseblocks of raw flash (Linux, drivers/mtd/ubi/ubi-media.h).
//!
//! Every physical eraseblock begins with a header that counts its erasures; a second header names its
//! volume and its logical eraseblock. The reader assembles a volume from the newest copy of each logical
//! eraseblock.

use std::collections::BTreeMap;

use super::{UnpackError, Walker, scan};
use crate::bytes::BIG;
use crate::unpack::{Found, Part};

/// Maximum number of volumes that UBI allows.
const VOLUMES: u32 = 128;

/// The volume that holds the table of volumes.
const LAYOUT: u32 = 0x7fff_efff;

/// Bytes of a record in the table of volumes.
const RECORD: usize = 172;

/// Consecutive eraseblocks without a header that end the device. Bad ones are rare.
const MOST_MISSING: usize = 64;

/// Smallest eraseblock, in bytes.
const SMALLEST: usize = 4096;

#[derive(Clone, Copy)]
struct Block {
    /// Counter that grows with each write: of two copies, the larger number is valid.
    sequence: u64,
    /// Offset of the data.
    start: usize,
    /// Length of the data: the used bytes in a static volume, all bytes in a dynamic one.
    length: usize,
}

/// Logical eraseblocks by their numbers.
type Blocks = BTreeMap<u32, Block>;

/// Walks the device at `at`; `None` if there is none.
pub(super) fn walk(
    part: Part<'_>,
    at: usize,
    walker: &mut Walker<'_>,
) -> Result<Option<Found>, UnpackError> {
    let device = &part.bytes[at..];
    if EraseHeader::read(device).is_none() || !walker.budget.attempt(device.len()) {
        return Ok(None);
    }
    let size = eraseblock_size(device);
    let (volumes, end) = volumes(device, size);
    let origin = part.origin("UBI", at);
    if volumes.is_empty() {
        walker.skip(&origin, "UBI", "no eraseblock in it holds data");
        return Ok(Some(Found::until(at + end)));
    }
    let names = volumes
        .get(&LAYOUT)
        .and_then(|blocks| blocks.get(&0))
        .map(|block| names(device, *block));
    let names = names.unwrap_or_default();
    for (id, blocks) in volumes.iter().filter(|(id, _)| **id < VOLUMES) {
        let name = names.get(id).cloned().unwrap_or_else(|| id.to_string());
        let origin = format!("{origin} > volume {name}");
        let Some(data) = assemble(device, blocks, device.len()) else {
            walker.skip(
                &origin,
                "a UBI volume",
                "its eraseblocks do not fit together",
            );
            continue;
        };
        walker.budget.unpacked(data.len())?;
        scan::part(part.inner(&data, &origin), walker)?;
    }
    Ok(Some(Found::until(at + end)))
}

/// The header that counts erasures.
struct EraseHeader {
    /// Offset of the volume header, from the start of the eraseblock.
    volume_header: usize,
    /// Offset of the data, from the start of the eraseblock.
    data: usize,
}

impl EraseHeader {
    fn read(block: &[u8]) -> Option<Self> {
        let header = sound(block, b"UBI#")?;
        let this = Self {
            volume_header: BIG.u32(header, 16)? as usize,
            data: BIG.u32(header, 20)? as usize,
        };
        (this.volume_header >= 64 && this.data > this.volume_header && this.data < 1 << 20)
            .then_some(this)
    }
}

/// The 64 bytes of a header, if its magic number and checksum are correct.
fn sound<'a>(bytes: &'a [u8], magic: &[u8]) -> Option<&'a [u8]> {
    let header = bytes.get(..64).filter(|header| header.starts_with(magic))?;
    let mut crc = flate2::Crc::new();
    crc.update(&header[..60]);
    // The kernel's crc32() starts with all ones as usual, but does not invert the result.
    (cfg!(fuzzing) || BIG.u32(header, 60)? == !crc.sum()).then_some(header)
}

/// The eraseblock size: the least distance between two headers. Bad eraseblocks give larger distances.
fn eraseblock_size(device: &[u8]) -> usize {
    let mut last: Option<usize> = None;
    let mut least = device.len();
    for at in memchr::memmem::find_iter(device, b"UBI#") {
        // The headers of a device nested in this one lie between this device's headers.
        if at % 512 == 0 && EraseHeader::read(&device[at..]).is_some() {
            if let Some(distance) = last
                .map(|last| at - last)
                .filter(|distance| *distance >= SMALLEST)
            {
                least = least.min(distance);
            }
            last = Some(at);
        }
    }
    least.max(SMALLEST)
}

/// Returns the eraseblocks by volume, and the offset after the last eraseblock with a valid header.
fn volumes(device: &[u8], size: usize) -> (BTreeMap<u32, Blocks>, usize) {
    let mut volumes: BTreeMap<u32, Blocks> = BTreeMap::new();
    let mut missing = 0;
    let mut end = 64;
    for (index, block) in device.chunks(size).enumerate() {
        let Some(header) = EraseHeader::read(block) else {
            missing += 1;
            if missing > MOST_MISSING {
                break;
            }
            continue;
        };
        missing = 0;
        let at = index * size;
        end = at + block.len();
        let Some(volume) = block
            .get(header.volume_header..)
            .and_then(|bytes| sound(bytes, b"UBI!"))
        else {
            continue;
        };
        let field = |at| BIG.u32(volume, at).unwrap_or(0);
        let (id, number, used, padding) = (field(8), field(12), field(20), field(28));
        let sequence = BIG.u64(volume, 40).unwrap_or(0);
        let Some(room) = block
            .len()
            .checked_sub(header.data)
            .and_then(|room| room.checked_sub(padding as usize))
        else {
            continue;
        };
        // Type 2 is a static volume.
        let length = if volume[5] == 2 {
            room.min(used as usize)
        } else {
            room
        };
        let new = Block {
            sequence,
            start: at + header.data,
            length,
        };
        let kept = volumes.entry(id).or_default().entry(number).or_insert(new);
        if kept.sequence < sequence {
            *kept = new;
        }
    }
    (volumes, end)
}

/// Assembles a volume's bytes. `None` if a block number is so high that the volume exceeds `most` bytes.
fn assemble(device: &[u8], blocks: &Blocks, most: usize) -> Option<Vec<u8>> {
    let room = blocks.values().map(|block| block.length).max()?;
    let (last, _) = blocks.last_key_value()?;
    let whole = usize::try_from(*last)
        .ok()?
        .checked_add(1)?
        .checked_mul(room)
        .filter(|whole| *whole <= most)?;
    let mut data = Vec::with_capacity(whole);
    for (number, block) in blocks {
        // A block that was never written reads as erased flash.
        data.resize(usize::try_from(*number).ok()? * room, 0xff);
        data.extend_from_slice(device.get(block.start..block.start + block.length)?);
    }
    Some(data)
}

/// The volumes' names, from the table of volumes.
fn names(device: &[u8], table: Block) -> BTreeMap<u32, String> {
    let Some(table) = device.get(table.start..table.start + table.length) else {
        return BTreeMap::new();
    };
    let records = (0..VOLUMES).zip(table.chunks_exact(RECORD));
    let named = records.filter_map(|(id, record)| {
        let length = usize::from(BIG.u16(record, 14)?);
        let name = record
            .get(16..16 + length)
            .filter(|name| !name.is_empty() && name.len() < 128)?;
        Some((id, String::from_utf8_lossy(name).into_owned()))
    });
    named.collect()
}
