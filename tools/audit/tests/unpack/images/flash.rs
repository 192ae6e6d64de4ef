//! UBI, as `ubinize` writes it.

use super::crc32;

/// UBI volume.
pub struct Volume<'a> {
    pub name: &'a str,
    /// Whether the volume is static; else it is dynamic.
    pub fixed: bool,
    pub data: &'a [u8],
}

/// Size of an eraseblock in bytes; its headers are on two pages of 2 KiB, as on NAND.
pub const ERASEBLOCK: usize = 1 << 17;
const VOLUME_HEADER: usize = 2048;
const DATA: usize = 4096;

fn seal(header: &mut [u8]) {
    let crc = !crc32(&header[..60]);
    header[60..64].copy_from_slice(&crc.to_be_bytes());
}

/// One eraseblock with data of a volume.
pub fn eraseblock(
    volume: u32,
    number: u32,
    fixed: bool,
    blocks: u32,
    sequence: u64,
    data: &[u8],
) -> Vec<u8> {
    let mut out = vec![0xff; ERASEBLOCK];
    out[..64].fill(0);
    out[..5].copy_from_slice(b"UBI#\x01");
    out[16..20].copy_from_slice(&(VOLUME_HEADER as u32).to_be_bytes());
    out[20..24].copy_from_slice(&(DATA as u32).to_be_bytes());
    seal(&mut out[..64]);
    let header = &mut out[VOLUME_HEADER..VOLUME_HEADER + 64];
    header.fill(0);
    header[..5].copy_from_slice(b"UBI!\x01");
    header[5] = if fixed { 2 } else { 1 };
    header[8..12].copy_from_slice(&volume.to_be_bytes());
    header[12..16].copy_from_slice(&number.to_be_bytes());
    if fixed {
        header[20..24].copy_from_slice(&(data.len() as u32).to_be_bytes());
        header[24..28].copy_from_slice(&blocks.to_be_bytes());
        header[32..36].copy_from_slice(&(!crc32(data)).to_be_bytes());
    }
    header[40..48].copy_from_slice(&sequence.to_be_bytes());
    seal(header);
    out[DATA..DATA + data.len()].copy_from_slice(data);
    out
}

/// A device of volumes: its eraseblocks are out of order, one was written twice and one is bad.
pub fn ubi(volumes: &[Volume<'_>]) -> Vec<u8> {
    let room = ERASEBLOCK - DATA;
    let mut table = vec![0; 128 * 172];
    let mut blocks = Vec::new();
    for (id, volume) in volumes.iter().enumerate() {
        let record = &mut table[id * 172..(id + 1) * 172];
        let count = volume.data.len().div_ceil(room) as u32;
        record[..4].copy_from_slice(&count.to_be_bytes());
        record[12] = if volume.fixed { 2 } else { 1 };
        record[14..16].copy_from_slice(&(volume.name.len() as u16).to_be_bytes());
        record[16..16 + volume.name.len()].copy_from_slice(volume.name.as_bytes());
        for (number, data) in volume.data.chunks(room).enumerate() {
            blocks.push(eraseblock(
                id as u32,
                number as u32,
                volume.fixed,
                count,
                100,
                data,
            ));
        }
    }
    blocks.push(eraseblock(
        0,
        0,
        volumes[0].fixed,
        1,
        3,
        b"what was there before",
    ));
    blocks.reverse();
    blocks.insert(1, vec![0; ERASEBLOCK]);
    let mut out = Vec::new();
    for copy in 0..2 {
        out.extend(eraseblock(0x7fff_efff, copy, false, 2, 1, &table));
    }
    out.extend(blocks.concat());
    out
}
