//! The superblocks of squashfs 4.0 (96 bytes) and 3.x (119 bytes).

use crate::bytes::{BIG, LITTLE, Order};

/// The magic numbers of squashfs: 4.0 and 3.x in both orders, and numbers that vendors made up so that stock tools
/// refuse their LZMA.
const MAGICS: [&[u8]; 6] = [b"hsqs", b"sqsh", b"qshs", b"shsq", b"tqsh", b"hsqt"];

/// Largest unpacked block of a table, in bytes.
pub(super) const METADATA: usize = 8192;

/// A position in a table: the block's offset in the packed table, and the offset in the unpacked block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Position {
    pub(super) block: u32,
    pub(super) offset: u16,
}

impl Position {
    /// Reads an inode reference: block in bits 16 to 47, offset in bits 0 to 15.
    pub(super) fn from_reference(reference: u64) -> Option<Self> {
        Some(Self {
            block: u32::try_from(reference >> 16).ok()?,
            offset: (reference & 0xffff) as u16,
        })
    }
}

/// The superblock fields that the reader uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Superblock {
    /// Byte order.
    pub(super) order: Order,
    /// 3 or 4.
    pub(super) major: u16,
    minor: u16,
    /// Block size: 4 KiB to 1 MiB.
    pub(super) block_size: u32,
    /// The compressor's number in 4.0; 1 in 3.x, which lacks the field.
    pub(super) compression: u16,
    /// Whether compressor options follow, in one table block (4.0).
    pub(super) options: bool,
    /// Whether table blocks have a marker byte after their length (3.x).
    pub(super) marker: bool,
    /// Number of fragments.
    pub(super) fragments: u32,
    /// Length of the file system.
    pub(super) bytes_used: u64,
    /// Inode of the root.
    pub(super) root: Position,
    /// Offsets from the start of the image.
    pub(super) inode_table: u64,
    /// Offset of the directory table.
    pub(super) directory_table: u64,
    /// Offset of the fragment table's index, not of its blocks.
    pub(super) fragment_table: u64,
}

impl Superblock {
    /// Parses the superblock at the beginning of `image`, if it makes sense.
    pub(super) fn parse(image: &[u8]) -> Option<Self> {
        if !MAGICS.contains(&image.get(..4)?) {
            return None;
        }
        // A vendor's magic number does not reveal the byte order; the version does.
        let order = [LITTLE, BIG];
        let order = order
            .into_iter()
            .find(|o| matches!(o.u16(image, 28), Some(3 | 4)))?;
        let major = order.u16(image, 28)?;
        let this = if major == 4 {
            Self::version_4(image, order)?
        } else {
            Self::version_3(image, order)?
        };
        let size = this.block_size;
        let sound = size.is_power_of_two()
            && (4096..=1 << 20).contains(&size)
            && this.bytes_used > 96
            && this.inode_table >= 96
            && this.inode_table < this.directory_table
            && this.directory_table < this.bytes_used;
        sound.then_some(this)
    }

    /// Explains why [`parse`](Self::parse) rejects data that has a magic number: returns a name and the
    /// reason. `None` if the data is not squashfs. `first`: nothing lies before it.
    pub(super) fn refusal(image: &[u8], first: bool) -> Option<(String, String)> {
        if !MAGICS.contains(&image.get(..4)?) {
            return None;
        }
        let there = image.len();
        let cut = |length| format!("truncated: {there} of {length} superblock bytes");
        if there < 32 {
            // Four letters alone prove nothing in the middle of an image.
            return first.then(|| ("squashfs".to_owned(), cut(96)));
        }
        let order = [LITTLE, BIG];
        let order = order
            .into_iter()
            .find(|o| matches!(o.u16(image, 28), Some(1..=9)))?;
        let (major, minor) = (order.u16(image, 28)?, order.u16(image, 30)?);
        // Every release keeps this number at one place; data that only shares the letters lacks it there.
        let log = order.u16(image, if major < 4 { 34 } else { 22 });
        if minor > 9 || !log.is_none_or(|log| (12..=20).contains(&log)) {
            return None;
        }
        let name = format!("squashfs {major}.{minor}");
        let length = if major == 3 { 119 } else { 96 };
        Some(match (major, minor) {
            (4, 0) | (3, 0 | 1) if there < length => (name, cut(length)),
            (4, 0) | (3, 0 | 1) => return None,
            _ => (
                name,
                "this version is not supported; 3.x and 4.0 are".to_owned(),
            ),
        })
    }

    fn version_4(image: &[u8], order: Order) -> Option<Self> {
        let block_size = order.u32(image, 12)?;
        let log = order.u16(image, 22)?;
        let minor = order.u16(image, 30)?;
        if minor != 0 || block_size.checked_ilog2() != Some(u32::from(log)) {
            return None;
        }
        Some(Self {
            order,
            major: 4,
            minor,
            block_size,
            compression: order.u16(image, 20)?,
            options: order.u16(image, 24)? & 0x400 != 0,
            marker: false,
            fragments: order.u32(image, 16)?,
            bytes_used: order.u64(image, 40)?,
            root: Position::from_reference(order.u64(image, 32)?)?,
            inode_table: order.u64(image, 64)?,
            directory_table: order.u64(image, 72)?,
            fragment_table: order.u64(image, 80)?,
        })
    }

    fn version_3(image: &[u8], order: Order) -> Option<Self> {
        let block_size = order.u32(image, 51)?;
        let log = order.u16(image, 34)?;
        let minor = order.u16(image, 30)?;
        if minor > 1 || block_size.checked_ilog2() != Some(u32::from(log)) {
            return None;
        }
        Some(Self {
            order,
            major: 3,
            minor,
            block_size,
            compression: 1,
            options: false,
            marker: *image.get(36)? & 4 != 0,
            fragments: order.u32(image, 55)?,
            bytes_used: order.u64(image, 63)?,
            root: Position::from_reference(order.u64(image, 43)?)?,
            inode_table: order.u64(image, 87)?,
            directory_table: order.u64(image, 95)?,
            fragment_table: order.u64(image, 103)?,
        })
    }

    /// The version, for origins.
    pub(super) fn version(&self) -> String {
        format!("{}.{}", self.major, self.minor)
    }
}
