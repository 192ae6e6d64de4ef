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
use super::{EntryKind, Found, Part, UnpackError, Walker};
use block::Decoder;
use inode::Node;
use superblock::{Position, Superblock};
use table::{Fragments, Tables};

/// Longest path that the walk builds, in bytes.
const LONGEST_PATH: usize = 4096;

/// Walks the file system at `at`; `None` if there is none.
pub(super) fn walk(
    part: Part<'_>,
    at: usize,
    walker: &mut Walker<'_>,
) -> Result<Option<Found>, UnpackError> {
    let image = &part.bytes[at..];
    let after_magic = Ok(Some(Found::until(at + 4)));
    let Some(superblock) = Superblock::parse(image) else {
        let first = at == 0 && part.outer.is_empty();
        let Some((name, why)) = Superblock::refusal(image, first) else {
            return Ok(None);
        };
        walker.skip(&part.origin(&name, at), &name, &why);
        return after_magic;
    };
    if !walker.budget.attempt(0) {
        return Ok(None);
    }
    let whole = usize::try_from(superblock.bytes_used).unwrap_or(usize::MAX);
    let length = whole.min(image.len());
    let image = &image[..length];
    let origin = part.origin(&format!("squashfs {}", superblock.version()), at);
    if length < whole {
        let why = format!("truncated: {length} of {whole} bytes");
        walker.skip(&origin, "squashfs", &why);
    }
    if superblock.directory_table >= length as u64 {
        // Data that begins with these letters by chance gives the same result: the scan goes on behind them.
        return after_magic;
    }
    let mut decoder = Decoder::new(&superblock);
    // The first table block reveals the vendor's form of LZMA.
    if let Err(fault) = decoder.settle(image, &superblock, &mut walker.budget) {
        walker.fault(&origin, "squashfs", fault)?;
        return after_magic;
    }
    let origin = part.origin(&format!("squashfs ({})", decoder.name()), at);
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
    Ok(Some(Found::until(at + length)))
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
            let node = Node::read(&mut self.tables, position, &mut self.walker.budget)?;
            let Node::Directory { position, size } = node else {
                return Err(Fault::part("its root is not a directory"));
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
        let fault = match Node::read(&mut self.tables, at, &mut self.walker.budget) {
            Ok(Node::Directory { .. }) => return Ok(Some(at)),
            Ok(Node::Symlink(target)) => {
                let target = String::from_utf8_lossy(&target);
                self.walker
                    .give(path, &self.origin, EntryKind::Symlink(&target), &[])?;
                return Ok(None);
            }
            Ok(Node::Special) => {
                self.walker
                    .give(path, &self.origin, EntryKind::Other, &[])?;
                return Ok(None);
            }
            Ok(Node::File(file)) if file.size > self.walker.budget.limits.file => {
                Fault::Part(too_large(file.size, &self.walker.budget.limits))
            }
            Ok(Node::File(file)) => {
                match inode::contents(&mut self.tables, fragments, &file, &mut self.walker.budget) {
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
