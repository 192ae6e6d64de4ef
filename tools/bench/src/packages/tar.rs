//! GNU tar archives, as opkg and dpkg read them: owned by root, with a single date, sorted.
//!
//! The writer's output equals GNU tar's with `--format=gnu --numeric-owner`. Paths and targets fit into a header
//! ([`tree`](crate::packages::tree) checks that), so extensions for long names are neither written nor read.

use crate::packages::tree::{Entry, Kind, Tree, TreeError};
use thiserror::Error;

const BLOCK: usize = 512;
/// GNU tar pads archives to a multiple of this length.
const RECORD: usize = 20 * BLOCK;
const MAGIC: &[u8; 8] = b"ustar  \0";

/// Why bytes are not an archive that a package may contain.
#[derive(Debug, Error)]
pub enum TarError {
    /// The archive ends within a header or a file, or without its end marker.
    #[error("tar: it ends at byte {0}")]
    Short(usize),
    /// A header is invalid.
    #[error("tar: byte {at}: {what}")]
    Header {
        /// Where the header begins.
        at: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// Other bytes follow the end.
    #[error("tar: something stands behind its end")]
    Behind,
    /// The archive contains a path that packages may not have.
    #[error("tar: {0}")]
    Tree(#[from] TreeError),
}

/// Writes a tree as an archive: `./`, then all paths with that prefix. `date` is in seconds since 1970.
#[must_use]
pub fn write(tree: &Tree, date: u64) -> Vec<u8> {
    let mut archive = Vec::new();
    member(&mut archive, "./", &Entry::directory(0o755), date);
    for (path, entry) in tree.iter() {
        let slash = if entry.kind == Kind::Directory {
            "/"
        } else {
            ""
        };
        member(&mut archive, &format!("./{path}{slash}"), entry, date);
    }
    finish(archive)
}

/// Writes an archive of files without directories, in the given order: the outer archive of an ipk.
#[must_use]
pub fn write_files(files: &[(&str, &[u8])], date: u64) -> Vec<u8> {
    let mut archive = Vec::new();
    for (path, content) in files {
        let kind = Kind::File(content.to_vec());
        member(
            &mut archive,
            &format!("./{path}"),
            &Entry { mode: 0o644, kind },
            date,
        );
    }
    finish(archive)
}

fn finish(mut archive: Vec<u8>) -> Vec<u8> {
    let end = (archive.len() + 2 * BLOCK).next_multiple_of(RECORD);
    archive.resize(end, 0);
    archive
}

fn member(archive: &mut Vec<u8>, name: &str, entry: &Entry, date: u64) {
    let (kind, target, content) = match &entry.kind {
        Kind::File(content) => (b'0', "", content.as_slice()),
        Kind::Link(target) => (b'2', target.as_str(), &[][..]),
        Kind::Directory => (b'5', "", &[][..]),
    };
    let mut header = [0; BLOCK];
    header[..name.len()].copy_from_slice(name.as_bytes());
    octal(&mut header[100..108], u64::from(entry.mode));
    octal(&mut header[108..116], 0);
    octal(&mut header[116..124], 0);
    octal(&mut header[124..136], content.len() as u64);
    octal(&mut header[136..148], date);
    header[156] = kind;
    header[157..157 + target.len()].copy_from_slice(target.as_bytes());
    header[257..265].copy_from_slice(MAGIC);
    // The checksum has six digits, a NUL and a space. It is computed with eight spaces in this field.
    header[148..156].copy_from_slice(b"        ");
    let sum: u64 = header.iter().map(|&it| u64::from(it)).sum();
    octal(&mut header[148..155], sum);
    archive.extend_from_slice(&header);
    archive.extend_from_slice(content);
    archive.resize(archive.len().next_multiple_of(BLOCK), 0);
}

/// Writes octal digits with leading zeros and a NUL. Excess digits are cut off in front: of dates after the year
/// 2242, and of files of eight gigabytes, which are refused earlier.
fn octal(field: &mut [u8], mut value: u64) {
    let digits = field.len() - 1;
    for digit in field[..digits].iter_mut().rev() {
        *digit = b'0' + (value & 7) as u8;
        value >>= 3;
    }
    field[digits] = 0;
}

/// The content of an archive.
#[derive(Debug, PartialEq, Eq)]
pub struct Archive {
    /// The archive's entries, without `./`.
    pub tree: Tree,
    /// The newest date of the entries, in seconds since 1970.
    pub date: u64,
    /// The names as the archive has them, in order.
    pub names: Vec<String>,
}

/// Reads an archive in which root owns everything.
///
/// # Errors
/// When the archive is invalid or damaged, or contains what a package may not.
pub fn read(bytes: &[u8]) -> Result<Archive, TarError> {
    let mut archive = Archive {
        tree: Tree::default(),
        date: 0,
        names: Vec::new(),
    };
    let mut at = 0;
    loop {
        let header = bytes.get(at..at + BLOCK).ok_or(TarError::Short(at))?;
        if header.iter().all(|&it| it == 0) {
            break;
        }
        let wrong = move |what| TarError::Header { at, what };
        if &header[257..265] != MAGIC {
            return Err(wrong("not GNU tar's"));
        }
        let sum: u64 = header[..148]
            .iter()
            .chain(&header[156..])
            .map(|&it| u64::from(it))
            .sum();
        if number(&header[148..156]) != Some(sum + 8 * 32) {
            return Err(wrong("its checksum does not hold"));
        }
        let field =
            |from: usize, to: usize| number(&header[from..to]).ok_or_else(|| wrong("not a number"));
        if field(108, 116)? != 0
            || field(116, 124)? != 0
            || header[265..329].iter().any(|&it| it != 0)
        {
            return Err(wrong("an owner that is not root by number"));
        }
        let name = text(&header[..100]).ok_or_else(|| wrong("a name that is no text"))?;
        let target = text(&header[157..257]).ok_or_else(|| wrong("a target that is no text"))?;
        let mode = u32::try_from(field(100, 108)?).map_err(|_| wrong("mode"))?;
        let size = usize::try_from(field(124, 136)?).map_err(|_| wrong("size"))?;
        at += BLOCK;
        let end = at.checked_add(size).ok_or_else(|| wrong("size"))?;
        let content = bytes.get(at..end).ok_or(TarError::Short(at))?;
        let next = end.next_multiple_of(BLOCK);
        let padding = bytes.get(end..next).ok_or(TarError::Short(end))?;
        if padding.iter().any(|&it| it != 0) {
            return Err(wrong("no zeros behind the file"));
        }
        archive.date = archive.date.max(field(136, 148)?);
        archive.names.push(name.to_owned());
        let path = name
            .strip_prefix("./")
            .ok_or_else(|| wrong("a name without ./"))?;
        let (path, kind) = match (header[156], path.strip_suffix('/')) {
            (b'5', _) if path.is_empty() => (path, None),
            (b'5', Some(path)) => (path, Some(Kind::Directory)),
            (b'0', None) => (path, Some(Kind::File(content.to_vec()))),
            (b'2', None) => (path, Some(Kind::Link(target.to_owned()))),
            _ => return Err(wrong("neither a file, a directory nor a link")),
        };
        if size != 0 && header[156] != b'0' {
            return Err(wrong("content of what is no file"));
        }
        if let Some(kind) = kind {
            archive.tree.add(path, Entry { mode, kind })?;
        }
        at = next;
    }
    let rest = &bytes[at..];
    if rest.len() < 2 * BLOCK || !rest.len().is_multiple_of(BLOCK) {
        return Err(TarError::Short(bytes.len()));
    }
    if rest.iter().any(|&it| it != 0) {
        return Err(TarError::Behind);
    }
    Ok(archive)
}

/// Parses an octal number that a NUL or a space ends.
fn number(field: &[u8]) -> Option<u64> {
    let end = field.iter().position(|&it| matches!(it, 0 | b' '))?;
    let digits = str::from_utf8(&field[..end]).ok()?;
    u64::from_str_radix(digits, 8).ok()
}

/// Parses a text that NULs pad to the end of the field.
fn text(field: &[u8]) -> Option<&str> {
    let end = field.iter().position(|&it| it == 0).unwrap_or(field.len());
    if field[end..].iter().any(|&it| it != 0) {
        return None;
    }
    str::from_utf8(&field[..end]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packages::tree::tests::any_tree;
    use proptest::prelude::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::process::Command;

    proptest! {
        #[test]
        fn what_is_written_is_read(tree in any_tree(), date in 0_u64..1 << 33) {
            let archive = read(&write(&tree, date)).unwrap();
            prop_assert_eq!(archive.tree, tree);
            prop_assert_eq!(archive.date, date);
        }

        #[test]
        fn damage_never_panics(tree in any_tree(), at in any::<proptest::sample::Index>(), bits in 1_u8.., cut in any::<proptest::sample::Index>()) {
            let mut bytes = write(&tree, 1);
            let index = at.index(bytes.len());
            bytes[index] ^= bits;
            let _ = read(&bytes);
            let _ = read(&bytes[..cut.index(bytes.len())]);
        }
    }

    #[test]
    fn the_bytes_are_those_of_gnu_tar() {
        let version = Command::new("tar").arg("--version").output();
        let is_gnu = version.is_ok_and(|it| it.stdout.starts_with(b"tar (GNU tar)"));
        if !lab::require_that(is_gnu, "GNU tar: install tar") {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let mut tree = Tree::default();
        tree.file("etc/init.d/millrace", 0o755, b"#!/bin/sh\n")
            .unwrap();
        tree.file("usr/share/doc", 0o644, &[3; 700]).unwrap();
        tree.add("usr/sbin/openvpn", Entry::link("millrace"))
            .unwrap();
        let set = |path: &str, mode| {
            fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).unwrap();
        };
        for (path, entry) in tree.iter() {
            match &entry.kind {
                Kind::Directory => fs::create_dir(root.join(path)).unwrap(),
                Kind::File(content) => fs::write(root.join(path), content).unwrap(),
                Kind::Link(target) => symlink(target, root.join(path)).unwrap(),
            }
            if !matches!(entry.kind, Kind::Link(_)) {
                set(path, entry.mode);
            }
        }
        set("", 0o755);
        let output = Command::new("tar")
            .args([
                "--format=gnu",
                "--numeric-owner",
                "--owner=0",
                "--group=0",
                "--sort=name",
            ])
            .args(["--mtime=@1700000000", "-cf", "-", "-C"])
            .arg(root)
            .arg(".")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(
            output.stdout == write(&tree, 1_700_000_000),
            "GNU tar writes other bytes"
        );
    }

    #[test]
    fn what_no_package_may_hold_is_refused() {
        let mut tree = Tree::default();
        tree.file("a", 0o644, b"x").unwrap();
        let bytes = write(&tree, 1);
        let changed = |at: usize, to: &[u8]| {
            let mut bytes = bytes.clone();
            bytes[512 + at..512 + at + to.len()].copy_from_slice(to);
            let sum: u64 = bytes[512..1024]
                .iter()
                .map(|&it| u64::from(it))
                .sum::<u64>()
                - bytes[660..668].iter().map(|&it| u64::from(it)).sum::<u64>()
                + 8 * 32;
            octal(&mut bytes[660..667], sum);
            read(&bytes)
        };
        assert!(changed(0, b"./a").is_ok());
        assert!(changed(0, b"/a\0").is_err(), "absolute");
        assert!(changed(0, b"./../x").is_err(), "climbs");
        assert!(changed(108, b"0000001").is_err(), "another owner");
        assert!(changed(156, b"3").is_err(), "a device");
        assert!(
            changed(124, b"77777777777").is_err(),
            "a size beyond the end"
        );
        assert!(matches!(read(&bytes[..1536]), Err(TarError::Short(_))));
        assert!(read(b"").is_err());
    }
}
