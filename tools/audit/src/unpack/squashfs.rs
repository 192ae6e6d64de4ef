//! Squashfs 4.0 and 3.x, in both byte orders, with the compressors that firmware has.
//!
//! Follows Documentation/filesystems/squashfs.rst and `squashfs_fs.h` of Linux 6.12 for 4.0, and
//! `squashfs_fs.h` of squashfs-tools 3.4 for 3.x. Not the crate `backhand`: it pulls in C libraries for xz,
//! zstd and adaptive LZMA, and trusts its images.

mod block;
mod inode;
mod superblock;
mod table;

use std::collections::HashSet;

use super::budget::{Fault, too_large};
use super::{EntryKind, UnpackError, Walker};
use block::Decoder;
use inode::{Inode, Node};
use superblock::Superblock;
use table::{Fragments, Position, Tables};

/// The magic numbers of squashfs: 4.0 and 3.x in both orders, and numbers that vendors made up so that stock tools
/// refuse their LZMA.
pub(super) const MAGICS: [&[u8]; 6] = [b"hsqs", b"sqsh", b"qshs", b"shsq", b"tqsh", b"hsqt"];

/// Longest path that the walk builds, in bytes.
const LONGEST_PATH: usize = 4096;

/// Walks the file system at the beginning of `image`, which lies `at` bytes into the part `outer`. Returns
/// its length, or `None` if there is none.
pub(super) fn walk(
    image: &[u8],
    at: usize,
    outer: &str,
    walker: &mut Walker<'_>,
) -> Result<Option<usize>, UnpackError> {
    let first = at == 0 && outer.is_empty();
    let outer = if outer.is_empty() {
        String::new()
    } else {
        format!("{outer} > ")
    };
    let Some(superblock) = Superblock::parse(image) else {
        let Some((name, why)) = Superblock::refusal(image, first) else {
            return Ok(None);
        };
        walker.skip(&format!("{outer}{name} at {at:#x}"), &name, &why);
        return Ok(Some(4));
    };
    if !walker.budget.attempt(0) {
        return Ok(None);
    }
    let whole = usize::try_from(superblock.bytes_used).unwrap_or(usize::MAX);
    let length = whole.min(image.len());
    let image = &image[..length];
    if length < whole {
        let origin = format!("{outer}squashfs {} at {at:#x}", superblock.version());
        let why = format!("cut off: {length} bytes of {whole} are there");
        walker.skip(&origin, "squashfs", &why);
    }
    if superblock.directory_table >= length as u64 {
        // Data that begins with these letters by chance gives the same result: the scan goes on behind them.
        return Ok(Some(4));
    }
    let mut decoder = Decoder::new(&superblock);
    // The first table block reveals the vendor's form of LZMA.
    if let Err(fault) = decoder.settle(image, &superblock, &mut walker.budget) {
        let origin = format!("{outer}squashfs {} at {at:#x}", superblock.version());
        walker.fault(&origin, "squashfs", fault)?;
        return Ok(Some(4));
    }
    let origin = format!("{outer}squashfs ({}) at {at:#x}", decoder.name());
    let tables = Tables::new(image, superblock, decoder);
    let mut reader = Reader {
        tables,
        origin,
        walker,
        seen: HashSet::new(),
    };
    match reader.tree() {
        Ok(()) => {}
        Err(Fault::Walk(error)) => return Err(error),
        Err(Fault::Part(why) | Fault::Broken { why, .. }) => {
            reader.walker.skip(&reader.origin, "squashfs", &why);
        }
    }
    Ok(Some(length))
}

struct Reader<'a, 'w, 'v> {
    tables: Tables<'a>,
    origin: String,
    walker: &'w mut Walker<'v>,
    /// Directories already walked: a directory that contains itself is not walked again.
    seen: HashSet<Position>,
}

impl Reader<'_, '_, '_> {
    fn tree(&mut self) -> Result<(), Fault> {
        let mut fragments = Fragments::read(&mut self.tables, &mut self.walker.budget)?;
        let root = self.tables.superblock.root;
        let mut open = vec![(root, String::new())];
        while let Some((position, path)) = open.pop() {
            if !self.seen.insert(position) {
                continue;
            }
            let inode = Inode::read(&mut self.tables, position, &mut self.walker.budget)?;
            let Node::Directory { position, size } = inode.node else {
                return Err(Fault::part("its root is no directory"));
            };
            let entries =
                inode::directory(&mut self.tables, position, size, &mut self.walker.budget)?;
            let mut below = Vec::new();
            for (name, inode) in entries {
                let path = format!("{path}/{}", String::from_utf8_lossy(&name));
                if path.len() > LONGEST_PATH {
                    self.walker
                        .skip(&self.origin, "a directory", "its path is too long");
                    break;
                }
                if let Some(directory) = self.entry(&path, inode, &mut fragments)? {
                    // A million empty directories cost time as files do.
                    self.walker.budget.count()?;
                    below.push((directory, path));
                }
            }
            open.extend(below.into_iter().rev());
        }
        Ok(())
    }

    /// Hands over one entry, or returns its position if it is a directory. A fault in one file does not end
    /// the walk.
    fn entry(
        &mut self,
        path: &str,
        at: Position,
        fragments: &mut Fragments,
    ) -> Result<Option<Position>, Fault> {
        let result = Inode::read(&mut self.tables, at, &mut self.walker.budget);
        let fault = match result {
            Ok(Inode {
                node: Node::Directory { .. },
            }) => return Ok(Some(at)),
            Ok(Inode {
                node: Node::Symlink(target),
            }) => {
                let target = String::from_utf8_lossy(&target);
                self.walker
                    .give(path, &self.origin, EntryKind::Symlink(&target), &[])?;
                return Ok(None);
            }
            Ok(Inode {
                node: Node::Special,
            }) => {
                self.walker
                    .give(path, &self.origin, EntryKind::Other, &[])?;
                return Ok(None);
            }
            Ok(Inode {
                node: Node::File(file),
            }) if file.size > self.walker.budget.limits.file => {
                Fault::Part(too_large(file.size, &self.walker.budget.limits))
            }
            Ok(Inode {
                node: Node::File(file),
            }) => {
                match table::contents(&mut self.tables, fragments, &file, &mut self.walker.budget) {
                    Ok(data) => {
                        self.walker.file_in_tree(path, &self.origin, &data)?;
                        return Ok(None);
                    }
                    Err(fault) => fault,
                }
            }
            Err(fault) => fault,
        };
        self.walker.fault(&self.origin, path, fault)?;
        Ok(None)
    }
}
