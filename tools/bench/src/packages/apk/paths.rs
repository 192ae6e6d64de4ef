//! The directories and files of a package.

use super::ApkError;
use crate::packages::adb::{NULL, Reader, Writer};
use crate::packages::hash;
use crate::packages::tree::{Entry, Kind, LONGEST_PATH, LONGEST_TARGET, Tree};

/// The `st_mode` file type of a link, which precedes its target.
const LINK: u16 = 0o120_000;
/// Name of the files' user and group.
const OWNER: &[u8] = b"root";

/// A directory, and its files and links by name.
#[derive(Debug)]
pub(super) struct Directory<'a> {
    path: &'a str,
    mode: u32,
    pub(super) files: Vec<(&'a str, &'a Entry)>,
}

/// Returns the root and all directories, in the order of their paths.
pub(super) fn directories(tree: &Tree) -> Vec<Directory<'_>> {
    let directory = |path, mode| Directory {
        path,
        mode,
        files: Vec::new(),
    };
    let mut directories = vec![directory("", 0o755)];
    for (path, entry) in tree.iter() {
        if entry.kind == Kind::Directory {
            directories.push(directory(path, entry.mode));
            continue;
        }
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        // In a tree, every parent precedes its content.
        if let Ok(at) = directories.binary_search_by(|it| it.path.cmp(parent)) {
            directories[at].files.push((name, entry));
        }
    }
    directories
}

/// Writes the directories, everything with the same date, and returns their word.
pub(super) fn write(writer: &mut Writer, directories: &[Directory<'_>], date: u64) -> u32 {
    let mut paths = Vec::new();
    for directory in directories {
        let mut files = Vec::new();
        for (name, entry) in &directory.files {
            let (size, hash, target) = match &entry.kind {
                Kind::Link(target) => {
                    let bytes = [&LINK.to_le_bytes(), target.as_bytes()].concat();
                    (target.len(), NULL, writer.blob(&bytes))
                }
                _ => {
                    let content = entry.content();
                    (content.len(), writer.blob(&hash::sha256(content)), NULL)
                }
            };
            let slots = [
                writer.blob(name.as_bytes()),
                write_access(writer, entry.mode),
                writer.int(size as u64),
                writer.int(date),
                hash,
                target,
            ];
            files.push(writer.object(&slots));
        }
        let slots = [
            writer.blob(directory.path.as_bytes()),
            write_access(writer, directory.mode),
            writer.array(&files),
        ];
        paths.push(writer.object(&slots));
    }
    writer.array(&paths)
}

fn write_access(writer: &mut Writer, mode: u32) -> u32 {
    let mode = writer.int(u64::from(mode));
    let owner = writer.blob(OWNER);
    writer.object(&[mode, owner, owner])
}

/// Reads the directories. Each block after the ADB names its directory and file, and has the content.
pub(super) fn read<'a>(
    reader: Reader<'_>,
    word: u32,
    contents: &mut impl Iterator<Item = &'a [u8]>,
) -> Result<Tree, ApkError> {
    let mut tree = Tree::default();
    for (path_number, word) in (1_u32..).zip(reader.array(word)?) {
        let slots = reader.object(word)?;
        let path = text(reader, Reader::slot(&slots, 1))?;
        let mode = read_access(reader, Reader::slot(&slots, 2))?;
        match (path, path_number) {
            ("", 1) if mode == 0o755 => {}
            ("", _) => {
                return Err(ApkError::Content(
                    "the root directory is not the first entry, or its mode is not 0755",
                ));
            }
            _ => tree.add(path, Entry::directory(mode))?,
        }
        for (file_number, word) in (1_u32..).zip(reader.array(Reader::slot(&slots, 3))?) {
            let slots = reader.object(word)?;
            let name = text(reader, Reader::slot(&slots, 1))?;
            if name.contains('/') {
                return Err(ApkError::Content("a file's name has a slash"));
            }
            let mode = read_access(reader, Reader::slot(&slots, 2))?;
            let size = reader.int(Reader::slot(&slots, 3))?;
            let hash = reader.blob(Reader::slot(&slots, 5))?;
            let target = reader.blob(Reader::slot(&slots, 6))?;
            let kind = if let Some(target) = target.strip_prefix(&LINK.to_le_bytes()) {
                if target.len() > LONGEST_TARGET {
                    return Err(ApkError::Content("a link's target is too long"));
                }
                let target = str::from_utf8(target);
                let target =
                    target.map_err(|_| ApkError::Content("a link's target is not valid text"))?;
                if size != target.len() as u64 || !hash.is_empty() || mode != 0o777 {
                    return Err(ApkError::Content(
                        "a link's size differs from its target's length",
                    ));
                }
                Kind::Link(target.to_owned())
            } else if target.is_empty() {
                let content = match size {
                    0 => &[],
                    _ => block(contents.next(), path_number, file_number)?,
                };
                if content.len() as u64 != size || hash != hash::sha256(content) {
                    return Err(ApkError::Content("a file's size or SHA-256 is wrong"));
                }
                Kind::File(content.to_vec())
            } else {
                return Err(ApkError::Content("it is neither a file nor a link"));
            };
            let path = if path.is_empty() {
                name.to_owned()
            } else {
                format!("{path}/{name}")
            };
            tree.add(&path, Entry { mode, kind })?;
        }
    }
    Ok(tree)
}

/// Returns the content of a block, which must belong to the given file.
fn block(block: Option<&[u8]>, path: u32, file: u32) -> Result<&[u8], ApkError> {
    let head = [path.to_le_bytes(), file.to_le_bytes()].concat();
    let content = block.and_then(|it| it.strip_prefix(head.as_slice()));
    content.ok_or(ApkError::Content("a file's content is missing"))
}

fn read_access(reader: Reader<'_>, word: u32) -> Result<u32, ApkError> {
    let slots = reader.object(word)?;
    let owners = [2, 3].map(|number| reader.blob(Reader::slot(&slots, number)));
    if owners != [Ok(OWNER), Ok(OWNER)] {
        return Err(ApkError::Content("the owner is not root"));
    }
    let mode = reader.int(Reader::slot(&slots, 1))?;
    u32::try_from(mode).map_err(|_| ApkError::Content("a mode is invalid"))
}

fn text<'a>(reader: Reader<'a>, word: u32) -> Result<&'a str, ApkError> {
    let bytes = reader.blob(word)?;
    if bytes.len() > LONGEST_PATH {
        return Err(ApkError::Content("a path is too long"));
    }
    str::from_utf8(bytes).map_err(|_| ApkError::Content("a path is not valid text"))
}
