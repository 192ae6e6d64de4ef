//! Inodes and directories: whole bytes in 4.0, bit fields in 3.x.

use super::superblock::{Position, Superblock};
use super::table::{Fragments, Tables};
use crate::bytes::Order;
use crate::unpack::budget::{Budget, Fault};

/// Longest directory listing, in bytes. Kernels read up to this much.
const LONGEST_DIRECTORY: u32 = 16 << 20;

/// Size and position of a file's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileNode {
    /// Size in bytes.
    pub(super) size: u64,
    /// Offset of the first block, from the start of the image.
    pub(super) start: u64,
    /// Block sizes, as stored in the image.
    pub(super) blocks: Vec<u32>,
    /// Fragment number, and offset in the fragment, of the tail that does not fill a block.
    pub(super) fragment: Option<(u32, u32)>,
}

/// The kind of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Directory {
        /// Position in the table of directories.
        position: Position,
        /// Size of the listing.
        size: u32,
    },
    File(FileNode),
    Symlink(Vec<u8>),
    Special,
}

/// Fields of one inode, read one after the other.
struct Fields<'t, 'a, 'b> {
    tables: &'t mut Tables<'a>,
    at: Position,
    budget: &'b mut Budget,
}

impl Fields<'_, '_, '_> {
    fn take(&mut self, count: usize) -> Result<Vec<u8>, Fault> {
        let table = self.tables.superblock.inode_table;
        self.tables.read(table, &mut self.at, count, self.budget)
    }

    fn order(&self) -> Order {
        self.tables.superblock.order
    }

    fn u16(&mut self) -> Result<u16, Fault> {
        let bytes = self.take(2)?;
        Ok(self.order().u16(&bytes, 0).unwrap_or(0))
    }

    fn u32(&mut self) -> Result<u32, Fault> {
        let bytes = self.take(4)?;
        Ok(self.order().u32(&bytes, 0).unwrap_or(0))
    }

    fn u64(&mut self) -> Result<u64, Fault> {
        let bytes = self.take(8)?;
        Ok(self.order().u64(&bytes, 0).unwrap_or(0))
    }
}

impl Node {
    /// Reads the inode at `at`.
    pub(super) fn read(
        tables: &mut Tables<'_>,
        at: Position,
        budget: &mut Budget,
    ) -> Result<Self, Fault> {
        let four = tables.superblock.major == 4;
        let mut fields = Fields { tables, at, budget };
        if four {
            version_4(&mut fields)
        } else {
            version_3(&mut fields)
        }
    }

    fn directory(size: u32, block: u32, offset: u16) -> Self {
        let position = Position { block, offset };
        Self::Directory { position, size }
    }
}

fn version_4(f: &mut Fields<'_, '_, '_>) -> Result<Node, Fault> {
    let kind = f.u16()?;
    // Mode, owner, group, time, number.
    f.take(14)?;
    Ok(match kind {
        1 => {
            let block = f.u32()?;
            let _links = f.u32()?;
            let size = u32::from(f.u16()?);
            Node::directory(size, block, f.u16()?)
        }
        8 => {
            let _links = f.u32()?;
            let size = f.u32()?;
            let block = f.u32()?;
            let _parent = f.u32()?;
            let _index = f.u16()?;
            Node::directory(size, block, f.u16()?)
        }
        2 => {
            let start = u64::from(f.u32()?);
            let fragment = (f.u32()?, f.u32()?);
            let size = u64::from(f.u32()?);
            file(f, start, fragment, size)?
        }
        9 => {
            let start = f.u64()?;
            let size = f.u64()?;
            // Holes, links.
            f.take(12)?;
            let fragment = (f.u32()?, f.u32()?);
            let _attributes = f.u32()?;
            file(f, start, fragment, size)?
        }
        3 | 10 => {
            let _links = f.u32()?;
            let length = f.u32()?;
            symlink(f, length)?
        }
        4..=7 | 11..=14 => Node::Special,
        _ => return Err(Fault::part(format!("an inode has the unknown kind {kind}"))),
    })
}

fn version_3(f: &mut Fields<'_, '_, '_>) -> Result<Node, Fault> {
    let base = f.take(12)?;
    let kind = if f.order().big {
        base[0] >> 4
    } else {
        base[0] & 15
    };
    Ok(match kind {
        1 => {
            let _links = f.u32()?;
            let sizes = u64::from(f.u32()?);
            let [size, offset] = split(f.order(), sizes, [19, 13]);
            Node::directory(size, f.u32()?, offset as u16)
        }
        8 => {
            let _links = f.u32()?;
            let bytes = f.take(5)?;
            let big = f.order().big;
            let whole = (0..5).fold(0u64, |all, i| {
                all << 8 | u64::from(bytes[if big { i } else { 4 - i }])
            });
            let [size, offset] = split(f.order(), whole, [27, 13]);
            Node::directory(size, f.u32()?, offset as u16)
        }
        2 => {
            let start = f.u64()?;
            let fragment = (f.u32()?, f.u32()?);
            let size = u64::from(f.u32()?);
            file(f, start, fragment, size)?
        }
        9 => {
            let _links = f.u32()?;
            let start = f.u64()?;
            let fragment = (f.u32()?, f.u32()?);
            let size = f.u64()?;
            file(f, start, fragment, size)?
        }
        3 => {
            let _links = f.u32()?;
            let length = u32::from(f.u16()?);
            symlink(f, length)?
        }
        4..=7 => Node::Special,
        _ => return Err(Fault::part(format!("an inode has the unknown kind {kind}"))),
    })
}

/// Splits `whole` into two bit fields: the first is at the top in big-endian images, at the bottom in others.
fn split(order: Order, whole: u64, widths: [u32; 2]) -> [u32; 2] {
    let low = |value: u64, width: u32| (value & ((1 << width) - 1)) as u32;
    if order.big {
        [low(whole >> widths[1], widths[0]), low(whole, widths[1])]
    } else {
        [low(whole, widths[0]), low(whole >> widths[0], widths[1])]
    }
}

fn file(
    f: &mut Fields<'_, '_, '_>,
    start: u64,
    fragment: (u32, u32),
    size: u64,
) -> Result<Node, Fault> {
    if size > f.budget.limits.file {
        // The walk skips this file, so its block list, of any length, is not read.
        return Ok(Node::File(FileNode {
            size,
            start,
            blocks: Vec::new(),
            fragment: None,
        }));
    }
    let block_size = u64::from(f.tables.superblock.block_size);
    let fragment = (fragment.0 != u32::MAX).then_some(fragment);
    let count = if fragment.is_some() {
        size / block_size
    } else {
        size.div_ceil(block_size)
    };
    let order = f.order();
    // The default limit of 256 MiB for a file allows 65,536 blocks of 4 KiB.
    let bytes = f.take(
        usize::try_from(count)
            .unwrap_or(usize::MAX)
            .saturating_mul(4),
    )?;
    let blocks = bytes
        .chunks_exact(4)
        .map(|b| order.u32(b, 0).unwrap_or(0))
        .collect();
    Ok(Node::File(FileNode {
        size,
        start,
        blocks,
        fragment,
    }))
}

fn symlink(f: &mut Fields<'_, '_, '_>, length: u32) -> Result<Node, Fault> {
    if length > 4096 {
        return Err(Fault::part("a link's target is longer than any path"));
    }
    Ok(Node::Symlink(f.take(length as usize)?))
}

/// Reads the bytes of a file.
pub(super) fn contents(
    tables: &mut Tables<'_>,
    fragments: &mut Fragments,
    file: &FileNode,
    budget: &mut Budget,
) -> Result<Vec<u8>, Fault> {
    let size = usize::try_from(file.size).map_err(|_| Fault::part("too large for this machine"))?;
    let block_size = tables.superblock.block_size as usize;
    let mut data = Vec::new();
    let mut start = file.start;
    for &block in &file.blocks {
        let expected = block_size.min(size - data.len());
        if block & 0x01ff_ffff == 0 {
            // A hole: zeros without stored data.
            tables.account(expected, budget)?;
            data.resize(data.len() + expected, 0);
            continue;
        }
        let bytes = tables.data(start, block, budget)?;
        let bytes = bytes
            .get(..expected)
            .ok_or_else(|| Fault::part("a block is too short"))?;
        data.extend_from_slice(bytes);
        start = start.saturating_add(u64::from(block & 0x00ff_ffff));
    }
    if let Some((index, offset)) = file.fragment {
        let part = fragments.part(tables, index, offset, size - data.len(), budget)?;
        budget.unpacked(part.len())?;
        data.extend_from_slice(part);
    }
    Ok(data)
}

/// The names in a directory, each with its inode. `size` is 3 more than the listing, for `.` and `..`.
pub(super) fn directory(
    tables: &mut Tables<'_>,
    position: Position,
    size: u32,
    budget: &mut Budget,
) -> Result<Vec<(Vec<u8>, Position)>, Fault> {
    let mut left = size.saturating_sub(3).min(LONGEST_DIRECTORY) as usize;
    let table = tables.superblock.directory_table;
    let mut at = position;
    let mut entries = Vec::new();
    while left > 0 {
        let Header {
            length,
            count,
            block,
        } = Header::read(tables, &mut at, budget)?;
        left = left.saturating_sub(length);
        for _ in 0..count {
            let (offset, name_length, length) = entry(tables, &mut at, budget)?;
            let name = tables.read(table, &mut at, name_length, budget)?;
            left = left.saturating_sub(length + name_length);
            // Names with a slash and the two dots would leave their directory.
            if name.is_empty() || name.contains(&b'/') || name == b"." || name == b".." {
                return Err(Fault::part("a name is invalid"));
            }
            entries.push((name, Position { block, offset }));
            if entries.len() > budget.limits.files as usize {
                return Err(crate::unpack::UnpackError::TooMany(budget.limits.files).into());
            }
        }
    }
    Ok(entries)
}

/// The header of a run of entries whose inodes lie in one block.
struct Header {
    /// Bytes of this header.
    length: usize,
    count: usize,
    block: u32,
}

impl Header {
    fn read(
        tables: &mut Tables<'_>,
        at: &mut Position,
        budget: &mut Budget,
    ) -> Result<Self, Fault> {
        let Superblock {
            order,
            directory_table,
            major,
            ..
        } = tables.superblock;
        let length = if major == 4 { 12 } else { 9 };
        let bytes = tables.read(directory_table, at, length, budget)?;
        let (count, block) = if major == 4 {
            (
                order.u32(&bytes, 0).unwrap_or(0) as usize,
                order.u32(&bytes, 4).unwrap_or(0),
            )
        } else {
            (usize::from(bytes[0]), order.u32(&bytes, 1).unwrap_or(0))
        };
        // The field stores the number of entries minus one; a run has 256 entries at most.
        if count >= 256 {
            return Err(Fault::part("a directory has too many names in one run"));
        }
        Ok(Self {
            length,
            count: count + 1,
            block,
        })
    }
}

/// Reads an entry without its name: the inode's offset, the name's length, the entry's length.
fn entry(
    tables: &mut Tables<'_>,
    at: &mut Position,
    budget: &mut Budget,
) -> Result<(u16, usize, usize), Fault> {
    let Superblock {
        order,
        directory_table,
        major,
        ..
    } = tables.superblock;
    let length = if major == 4 { 8 } else { 5 };
    let bytes = tables.read(directory_table, at, length, budget)?;
    let first = order.u16(&bytes, 0).unwrap_or(0);
    Ok(if major == 4 {
        (
            first,
            usize::from(order.u16(&bytes, 6).unwrap_or(0)) + 1,
            length,
        )
    } else {
        let [offset, _kind] = split(order, u64::from(first), [13, 3]);
        (offset as u16, usize::from(bytes[2]) + 1, length)
    })
}
