//! Squashfs 4.0 and 3.1, in both byte orders, with any compressor.

use std::collections::BTreeMap;

use super::{Node, directories, pad};

/// The variant of squashfs to write.
#[derive(Clone, Copy)]
pub struct Kind {
    pub magic: &'static [u8; 4],
    pub big: bool,
    /// Major version: 3 or 4.
    pub major: u16,
    /// The compressor's number, as in 4.0.
    pub compression: u16,
    pub pack: fn(&[u8]) -> Vec<u8>,
}

const BLOCK: usize = 1 << 15;

/// Writes integers in the order of the image.
#[derive(Clone, Copy)]
struct Order(bool);

impl Order {
    fn u16(self, out: &mut Vec<u8>, value: u16) {
        out.extend(if self.0 {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        });
    }
    fn u32(self, out: &mut Vec<u8>, value: u32) {
        out.extend(if self.0 {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        });
    }
    fn u64(self, out: &mut Vec<u8>, value: u64) {
        out.extend(if self.0 {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        });
    }
    /// Joins two bit fields, 16 or 32 bits in all.
    fn fields(self, first: u32, second: u32, widths: [u32; 2]) -> u32 {
        if self.0 {
            first << widths[1] | second
        } else {
            second << widths[0] | first
        }
    }
}

/// A table, packed in blocks of 8 KiB.
struct Table {
    kind: Kind,
    packed: Vec<u8>,
    open: Vec<u8>,
}

impl Table {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            packed: Vec::new(),
            open: Vec::new(),
        }
    }

    fn position(&self) -> (u32, u16) {
        (self.packed.len() as u32, self.open.len() as u16)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.open.push(*byte);
            if self.open.len() == 8192 {
                self.flush();
            }
        }
    }

    fn flush(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let packed = (self.kind.pack)(&self.open);
        let order = Order(self.kind.big);
        if packed.len() < self.open.len() {
            order.u16(&mut self.packed, packed.len() as u16);
            self.packed.extend(packed);
        } else {
            order.u16(&mut self.packed, self.open.len() as u16 | 0x8000);
            self.packed.extend(&self.open);
        }
        self.open.clear();
    }

    fn finish(mut self) -> Vec<u8> {
        self.flush();
        self.packed
    }
}

struct Writer {
    kind: Kind,
    order: Order,
    image: Vec<u8>,
    inodes: Table,
    listings: Table,
    /// Start and size of each complete fragment block.
    fragments: Vec<(u64, u32)>,
    open_fragment: Vec<u8>,
    count: u32,
}

/// An inode's position, its number, and its kind.
type Place = ((u32, u16), u32, u16);

/// The image of a root file system.
pub fn image(root: &[(String, Node)], kind: Kind) -> Vec<u8> {
    let order = Order(kind.big);
    let header = if kind.major == 4 { 96 } else { 119 };
    let mut writer = Writer {
        kind,
        order,
        image: vec![0; header],
        inodes: Table::new(kind),
        listings: Table::new(kind),
        fragments: Vec::new(),
        open_fragment: Vec::new(),
        count: 0,
    };
    let mut inside: BTreeMap<String, Vec<(String, Place)>> = BTreeMap::new();
    let split = |path: &str| match path.rsplit_once('/') {
        Some((dir, name)) => (dir.to_owned(), name.to_owned()),
        None => (String::new(), path.to_owned()),
    };
    for (path, node) in root {
        let (dir, name) = split(path);
        let place = writer.node(node);
        inside.entry(dir).or_default().push((name, place));
    }
    // Nested directories come before their parents.
    let mut root_inode = ((0, 0), 0, 0);
    for dir in directories(root).into_iter().rev() {
        let mut entries = inside.remove(&dir).unwrap_or_default();
        entries.sort();
        root_inode = writer.directory(&entries);
        if !dir.is_empty() {
            let (outer, name) = split(&dir);
            inside.entry(outer).or_default().push((name, root_inode));
        }
    }
    writer.finish(root_inode.0)
}

impl Writer {
    fn block(&mut self, bytes: &[u8]) -> u32 {
        let packed = (self.kind.pack)(bytes);
        if packed.len() < bytes.len() {
            self.image.extend(&packed);
            packed.len() as u32
        } else {
            self.image.extend(bytes);
            bytes.len() as u32 | 1 << 24
        }
    }

    fn flush_fragment(&mut self) {
        if !self.open_fragment.is_empty() {
            let start = self.image.len() as u64;
            let bytes = std::mem::take(&mut self.open_fragment);
            let size = self.block(&bytes);
            self.fragments.push((start, size));
        }
    }

    /// The fields that every inode begins with.
    fn base(&mut self, kind: u16, mode: u16) -> Vec<u8> {
        self.count += 1;
        let mut out = Vec::new();
        if self.kind.major == 4 {
            self.order.u16(&mut out, kind);
            self.order.u16(&mut out, mode);
            out.extend([0; 8]);
        } else {
            let fields = self.order.fields(kind.into(), mode.into(), [4, 12]) as u16;
            self.order.u16(&mut out, fields);
            out.extend([0, 0, 0, 0, 0, 0]);
        }
        self.order.u32(&mut out, self.count);
        out
    }

    fn place(&mut self, inode: &[u8], kind: u16) -> Place {
        let place = (self.inodes.position(), self.count, kind);
        self.inodes.write(inode);
        place
    }

    fn node(&mut self, node: &Node) -> Place {
        let order = self.order;
        match node {
            Node::Link(target) => {
                let mut inode = self.base(3, 0o777);
                order.u32(&mut inode, 1);
                if self.kind.major == 4 {
                    order.u32(&mut inode, target.len() as u32);
                } else {
                    order.u16(&mut inode, target.len() as u16);
                }
                inode.extend(target.as_bytes());
                self.place(&inode, 3)
            }
            Node::File(bytes) => {
                let whole = bytes.len() / BLOCK * BLOCK;
                let tail = &bytes[whole..];
                if self.open_fragment.len() + tail.len() > BLOCK {
                    self.flush_fragment();
                }
                let start = self.image.len() as u64;
                let mut sizes = Vec::new();
                for block in bytes[..whole].chunks(BLOCK) {
                    sizes.push(if block.iter().all(|byte| *byte == 0) {
                        0
                    } else {
                        self.block(block)
                    });
                }
                let fragment = (self.fragments.len() as u32, self.open_fragment.len() as u32);
                let (index, offset) = if tail.is_empty() {
                    (u32::MAX, 0)
                } else {
                    fragment
                };
                self.open_fragment.extend(tail);
                let mut inode = self.base(2, 0o755);
                if self.kind.major == 4 {
                    order.u32(&mut inode, start as u32);
                } else {
                    order.u64(&mut inode, start);
                }
                order.u32(&mut inode, index);
                order.u32(&mut inode, offset);
                order.u32(&mut inode, bytes.len() as u32);
                for size in sizes {
                    order.u32(&mut inode, size);
                }
                self.place(&inode, 2)
            }
        }
    }

    fn directory(&mut self, entries: &[(String, Place)]) -> Place {
        let order = self.order;
        let (block, offset) = self.listings.position();
        let mut length = 0;
        let mut rest = entries;
        while let Some((_, (first, number, _))) = rest.first() {
            let run = rest
                .iter()
                .take(256)
                .take_while(|(_, (at, _, _))| at.0 == first.0)
                .count();
            let mut out = Vec::new();
            if self.kind.major == 4 {
                order.u32(&mut out, run as u32 - 1);
            } else {
                out.push((run - 1) as u8);
            }
            order.u32(&mut out, first.0);
            order.u32(&mut out, *number);
            for (name, (at, own, kind)) in &rest[..run] {
                let difference = (*own as i32 - *number as i32) as i16 as u16;
                if self.kind.major == 4 {
                    order.u16(&mut out, at.1);
                    order.u16(&mut out, difference);
                    order.u16(&mut out, *kind);
                    order.u16(&mut out, name.len() as u16 - 1);
                } else {
                    let fields = order.fields(at.1.into(), (*kind).into(), [13, 3]) as u16;
                    order.u16(&mut out, fields);
                    out.push(name.len() as u8 - 1);
                    order.u16(&mut out, difference);
                }
                out.extend(name.as_bytes());
            }
            length += out.len() as u32;
            self.listings.write(&out);
            rest = &rest[run..];
        }
        let mut inode = self.base(1, 0o755);
        if self.kind.major == 4 {
            order.u32(&mut inode, block);
            order.u32(&mut inode, 2);
            order.u16(&mut inode, length as u16 + 3);
            order.u16(&mut inode, offset);
            order.u32(&mut inode, 1);
        } else {
            order.u32(&mut inode, 2);
            let fields = order.fields(length + 3, offset.into(), [19, 13]);
            order.u32(&mut inode, fields);
            order.u32(&mut inode, block);
            order.u32(&mut inode, 1);
        }
        self.place(&inode, 1)
    }

    fn finish(mut self, root: (u32, u16)) -> Vec<u8> {
        let order = self.order;
        self.flush_fragment();
        let inode_table = self.image.len() as u64;
        self.image.extend(self.inodes.finish());
        let directory_table = self.image.len() as u64;
        self.image.extend(self.listings.finish());
        let blocks = self.image.len() as u64;
        let mut table = Table::new(self.kind);
        for (start, size) in &self.fragments {
            let mut entry = Vec::new();
            order.u64(&mut entry, *start);
            order.u32(&mut entry, *size);
            order.u32(&mut entry, 0);
            table.write(&entry);
        }
        self.image.extend(table.finish());
        let fragment_table = self.image.len() as u64;
        order.u64(&mut self.image, blocks);
        // One owner and one group, root.
        let owners = self.image.len() as u64;
        if self.kind.major == 4 {
            let mut table = Table::new(self.kind);
            table.write(&[0; 4]);
            self.image.extend(table.finish());
        } else {
            self.image.extend([0; 8]);
        }
        let owner_index = self.image.len() as u64;
        if self.kind.major == 4 {
            order.u64(&mut self.image, owners);
        }
        let used = self.image.len() as u64;
        let reference = u64::from(root.0) << 16 | u64::from(root.1);
        let mut head = self.kind.magic.to_vec();
        order.u32(&mut head, self.count);
        if self.kind.major == 4 {
            order.u32(&mut head, 0);
            order.u32(&mut head, BLOCK as u32);
            order.u32(&mut head, self.fragments.len() as u32);
            for field in [self.kind.compression, BLOCK.ilog2() as u16, 0x200, 1, 4, 0] {
                order.u16(&mut head, field);
            }
            let none = u64::MAX;
            for field in [
                reference,
                used,
                owner_index,
                none,
                inode_table,
                directory_table,
                fragment_table,
                none,
            ] {
                order.u64(&mut head, field);
            }
        } else {
            head.extend([0; 20]);
            for field in [3, 1, BLOCK as u16, BLOCK.ilog2() as u16] {
                order.u16(&mut head, field);
            }
            // Flags, one owner, one group.
            head.extend([0, 1, 1]);
            order.u32(&mut head, 0);
            order.u64(&mut head, reference);
            order.u32(&mut head, BLOCK as u32);
            order.u32(&mut head, self.fragments.len() as u32);
            order.u32(&mut head, 0);
            for field in [
                used,
                owners,
                owners,
                inode_table,
                directory_table,
                fragment_table,
                u64::MAX,
            ] {
                order.u64(&mut head, field);
            }
        }
        self.image[..head.len()].copy_from_slice(&head);
        pad(&mut self.image, 4096, 0);
        self.image
    }
}
