//! Headers and trailers of vendors around an image: TRX, CHK, DNI, uImage, FIT, OpenWrt's metadata.

use super::{crc32, pad};

/// Broadcom's TRX, version 1 (three offsets) or 2 (four), little-endian.
pub fn trx(version: u16, parts: &[&[u8]]) -> Vec<u8> {
    let offsets = if version == 1 { 3 } else { 4 };
    let mut body = Vec::new();
    let mut table = Vec::new();
    for part in parts {
        table.push((16 + offsets * 4 + body.len()) as u32);
        body.extend(*part);
        // The header has 28 or 32 bytes; parts begin at multiples of four.
        pad(&mut body, 4, 0);
    }
    table.resize(offsets, 0);
    let mut tail = Vec::new();
    tail.extend(0u16.to_le_bytes());
    tail.extend(version.to_le_bytes());
    for offset in table {
        tail.extend(offset.to_le_bytes());
    }
    tail.extend(body);
    let mut out = b"HDR0".to_vec();
    out.extend((tail.len() as u32 + 12).to_le_bytes());
    out.extend((!crc32(&tail)).to_le_bytes());
    out.extend(tail);
    out
}

/// NETGEAR's CHK around a kernel and root file system, big-endian. Its checksums, an algorithm of NETGEAR's
/// own, are blank.
pub fn chk(board: &str, image: &[u8]) -> Vec<u8> {
    let mut out = b"*#$^".to_vec();
    let length = 40 + board.len() as u32 + 1;
    out.extend(length.to_be_bytes());
    out.extend([1, 1, 0, 2, 48, 0, 0, 0]);
    for number in [0, 0, image.len() as u32, 0, 0, 0] {
        out.extend(u32::to_be_bytes(number));
    }
    out.extend(board.bytes());
    out.push(0);
    out.extend(image);
    out
}

/// DNI's text header, and the checksum at the end.
pub fn dni(board: &str, image: &[u8]) -> Vec<u8> {
    let mut out = format!("device:{board}\nversion:V1.0.2.68\nregion:\n").into_bytes();
    out.resize(128, 0);
    out.extend(image);
    let sum = out.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    out.push(!sum);
    out
}

/// U-Boot's old header. `kind`: 2 for a kernel, 3 for a RAM disk; `compression`: 0 none, 1 gzip, 3 lzma.
pub fn uimage(kind: u8, compression: u8, data: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 64];
    header[..4].copy_from_slice(&0x2705_1956u32.to_be_bytes());
    header[12..16].copy_from_slice(&(data.len() as u32).to_be_bytes());
    header[24..28].copy_from_slice(&crc32(data).to_be_bytes());
    header[28..32].copy_from_slice(&[5, 2, kind, compression]);
    header[32..45].copy_from_slice(b"Linux-5.4.188");
    let crc = crc32(&header);
    header[4..8].copy_from_slice(&crc.to_be_bytes());
    header.extend(data);
    header
}

/// A flattened device tree, written node by node.
#[derive(Default)]
pub struct Tree {
    structure: Vec<u8>,
    strings: Vec<u8>,
}

impl Tree {
    fn word(&mut self, word: u32) {
        self.structure.extend(word.to_be_bytes());
    }

    pub fn begin(&mut self, name: &str) {
        self.word(1);
        self.structure.extend(name.bytes());
        self.structure.push(0);
        pad(&mut self.structure, 4, 0);
    }

    pub fn end(&mut self) {
        self.word(2);
    }

    pub fn property(&mut self, name: &str, value: &[u8]) {
        self.word(3);
        self.word(value.len() as u32);
        let offset = self.strings.len() as u32;
        self.word(offset);
        self.strings.extend(name.bytes());
        self.strings.push(0);
        self.structure.extend(value);
        pad(&mut self.structure, 4, 0);
    }

    pub fn text(&mut self, name: &str, value: &str) {
        self.property(name, format!("{value}\0").as_bytes());
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.word(9);
        let (structure, strings) = (self.structure.len() as u32, self.strings.len() as u32);
        let start = 40 + 16;
        let mut out = Vec::new();
        let fields = [
            0xd00d_feed,
            start + structure + strings,
            start,
            start + structure,
            40,
            17,
            16,
            0,
            strings,
        ];
        for field in fields.into_iter().chain([structure]) {
            out.extend(u32::to_be_bytes(field));
        }
        out.extend([0; 16]);
        out.extend(self.structure);
        out.extend(self.strings);
        out
    }
}

/// A board's device tree.
pub fn dtb(compatible: &str) -> Vec<u8> {
    let mut tree = Tree::default();
    tree.begin("");
    tree.text("compatible", compatible);
    tree.end();
    tree.finish()
}

/// How a FIT image stores the bytes of its images.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    Inside,
    Offset,
    Position,
}

/// A FIT image of images by name, type and compression.
pub fn fit(images: &[(&str, &str, &str, &[u8])], keep: Keep) -> Vec<u8> {
    let write = |size: usize| {
        let mut tree = Tree::default();
        let mut outside = Vec::new();
        tree.begin("");
        tree.text("description", "a test");
        tree.begin("images");
        for (name, kind, compression, data) in images {
            tree.begin(name);
            tree.text("type", kind);
            tree.text("compression", compression);
            if keep == Keep::Inside {
                tree.property("data", data);
            } else {
                let at = outside.len() + if keep == Keep::Position { size } else { 0 };
                let name = if keep == Keep::Position {
                    "data-position"
                } else {
                    "data-offset"
                };
                tree.property(name, &(at as u32).to_be_bytes());
                tree.property("data-size", &(data.len() as u32).to_be_bytes());
                outside.extend(*data);
                pad(&mut outside, 4, 0);
            }
            tree.end();
        }
        tree.end();
        tree.end();
        (tree.finish(), outside)
    };
    // Positions count from the start of the tree, whose length they do not change.
    let size = write(0).0.len().next_multiple_of(4);
    let (mut out, outside) = write(size);
    pad(&mut out, 4, 0);
    out.extend(outside);
    out
}

/// OpenWrt's trailer.
pub fn metadata(json: &str) -> Vec<u8> {
    let mut out = vec![0; 8];
    out.extend(json.bytes());
    let length = out.len() as u32 + 16;
    out.extend(b"FWx0");
    out.extend([0; 4]);
    out.extend([1, 0, 0, 0]);
    out.extend(length.to_be_bytes());
    out
}
