//! A root file system as a directory.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::budget::too_large;
use super::{EntryKind, UnpackError, Walker, read_file};

/// Deepest nesting of directories. Deeper ones are skipped.
const DEEPEST: usize = 64;

/// Files already handed over: the first path of each, by device and inode.
type Seen = HashMap<(u64, u64), String>;

/// Walks `root` in the order of the names. It reports links but does not follow them, so it never leaves
/// `root`; it opens only regular files. A file with several names is read once, and is a link under the
/// others.
pub(super) fn walk(root: &Path, walker: &mut Walker<'_>) -> Result<(), UnpackError> {
    let mut open: Vec<(PathBuf, String, usize)> = vec![(root.to_path_buf(), String::new(), 0)];
    let mut seen = Seen::new();
    while let Some((dir, inside, depth)) = open.pop() {
        let mut names = match fs::read_dir(&dir).and_then(Iterator::collect::<Result<Vec<_>, _>>) {
            Ok(names) => names,
            Err(source) if depth == 0 => return Err(UnpackError::Read { path: dir, source }),
            Err(error) => {
                walker.skip("", &inside, &error.to_string());
                continue;
            }
        };
        names.sort_by_key(fs::DirEntry::file_name);
        let mut below = Vec::new();
        for name in names {
            let path = format!("{inside}/{}", name.file_name().to_string_lossy());
            let Ok(kind) = name.file_type() else { continue };
            if kind.is_dir() {
                if depth < DEEPEST {
                    below.push((name.path(), path, depth + 1));
                } else {
                    walker.skip("", &path, "too deep");
                }
            } else if kind.is_symlink() {
                let target = fs::read_link(name.path()).unwrap_or_default();
                walker.give(
                    &path,
                    "",
                    EntryKind::Symlink(&target.to_string_lossy()),
                    &[],
                )?;
            } else if kind.is_file() {
                file(&name, &path, walker, &mut seen)?;
            } else {
                walker.give(&path, "", EntryKind::Other, &[])?;
            }
        }
        open.extend(below.into_iter().rev());
    }
    Ok(())
}

fn file(
    name: &fs::DirEntry,
    path: &str,
    walker: &mut Walker<'_>,
    seen: &mut Seen,
) -> Result<(), UnpackError> {
    if let Ok(meta) = name.metadata() {
        if meta.nlink() > 1 {
            if let Some(first) = seen.get(&(meta.dev(), name.ino())) {
                return walker.give(path, "", EntryKind::Symlink(first), &[]);
            }
            seen.insert((meta.dev(), name.ino()), path.to_owned());
        }
        walker
            .budget
            .read(meta.len().min(walker.budget.limits.file))?;
    }
    match read_file(&name.path(), walker.budget.limits.file) {
        Ok(Some(bytes)) => return walker.file_in_tree(path, "", &bytes),
        Ok(None) => {
            let size = name.metadata().map_or(0, |m| m.len());
            walker.skip("", path, &too_large(size, &walker.budget.limits));
        }
        Err(error) => walker.skip("", path, &error.to_string()),
    }
    Ok(())
}
