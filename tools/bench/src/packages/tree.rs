//! The files that a package installs: files, directories and links by path, all owned by root.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};
use thiserror::Error;

/// The longest path, in bytes: with `./` in front it must fit into the field of a tar header.
pub const LONGEST_PATH: usize = 97;

/// The longest target of a link, in bytes, for the same reason.
pub const LONGEST_TARGET: usize = 99;

/// Maximum number of entries of a tree.
pub const MOST_ENTRIES: usize = 10_000;

/// The kind of entry at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A file with its content.
    File(Vec<u8>),
    /// A symbolic link with its target.
    Link(String),
}

/// A path's kind and permissions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The permission bits, at most 0o7777. A link has 0o777.
    pub mode: u32,
    /// The kind of entry.
    pub kind: Kind,
}

/// Why an entry cannot be in a tree.
#[derive(Debug, Error)]
pub enum TreeError {
    /// The path is absolute, empty or too long, contains `..`, or has a character that lists of files cannot hold.
    #[error(
        "{0:?}: not a path of a package (relative, without `..` or control characters, at most {LONGEST_PATH} bytes)"
    )]
    Path(String),
    /// The link's target is empty, too long or has a control character.
    #[error("{path}: a link to {target:?} cannot be packed")]
    Target {
        /// Path of the link.
        path: String,
        /// Target of the link.
        target: String,
    },
    /// Another entry exists at this path, or a file or link at a parent.
    #[error("{0}: something else stands there or above it")]
    Taken(String),
    /// The mode has bits that are not permissions.
    #[error("{path}: mode {mode:o}")]
    Mode {
        /// The path.
        path: String,
        /// Mode of the path.
        mode: u32,
    },
    /// The tree has too many entries.
    #[error("more than {MOST_ENTRIES} files and directories")]
    Many,
    /// A directory of this machine holds something that is neither a file, a directory nor a link.
    #[error("{0}: neither a file, a directory nor a link")]
    Special(String),
    /// A directory of this machine cannot be read.
    #[error("{path}: {error}")]
    Read {
        /// The path.
        path: String,
        /// Cause of the failure.
        error: io::Error,
    },
}

/// Entries by relative path, sorted by bytes, so that a directory precedes its content.
///
/// Invariant: the parent of every path is in the tree and is a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree(BTreeMap<String, Entry>);

impl Tree {
    /// Adds an entry, and missing parent directories (0755). Adding an equal directory again is allowed.
    ///
    /// # Errors
    /// When the path or entry is invalid, or the path is taken.
    pub fn add(&mut self, path: &str, entry: Entry) -> Result<(), TreeError> {
        let is_clean = !path.is_empty()
            && path.len() <= LONGEST_PATH
            && !path.chars().any(char::is_control)
            && path.split('/').all(|it| !matches!(it, "" | "." | ".."));
        if !is_clean {
            return Err(TreeError::Path(path.to_owned()));
        }
        if entry.mode & !0o7777 != 0 {
            return Err(TreeError::Mode {
                path: path.to_owned(),
                mode: entry.mode,
            });
        }
        if let Kind::Link(target) = &entry.kind {
            let is_sound = !target.is_empty()
                && target.len() <= LONGEST_TARGET
                && !target.chars().any(char::is_control);
            if !is_sound {
                return Err(TreeError::Target {
                    path: path.to_owned(),
                    target: target.clone(),
                });
            }
        }
        if let Some((parent, _)) = path.rsplit_once('/') {
            match self.0.get(parent).map(|it| &it.kind) {
                Some(Kind::Directory) => {}
                Some(_) => return Err(TreeError::Taken(path.to_owned())),
                None => self.add(parent, Entry::directory(0o755))?,
            }
        }
        match self.0.get(path) {
            Some(there) if *there == entry && entry.kind == Kind::Directory => return Ok(()),
            Some(_) => return Err(TreeError::Taken(path.to_owned())),
            None => {}
        }
        if self.0.len() >= MOST_ENTRIES {
            return Err(TreeError::Many);
        }
        self.0.insert(path.to_owned(), entry);
        Ok(())
    }

    /// Adds a file.
    ///
    /// # Errors
    /// The errors of [`Self::add`].
    pub fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> Result<(), TreeError> {
        let kind = Kind::File(content.to_owned());
        self.add(path, Entry { mode, kind })
    }

    /// Adds the content of a directory of this machine, with modes by [`mode_of`]. Only content, paths and links are
    /// read, so the owner and modes of the checkout do not matter.
    ///
    /// # Errors
    /// When the directory cannot be read, or an entry cannot be added.
    pub fn add_directory(&mut self, directory: &Path) -> Result<(), TreeError> {
        self.below(directory, "")
    }

    fn below(&mut self, directory: &Path, prefix: &str) -> Result<(), TreeError> {
        let fault = |path: &Path| {
            let path = path.display().to_string();
            move |error| TreeError::Read { path, error }
        };
        for entry in fs::read_dir(directory).map_err(fault(directory))? {
            let entry = entry.map_err(fault(directory))?;
            let real = entry.path();
            let name = entry.file_name().into_string();
            let name = name.map_err(|name| TreeError::Path(name.display().to_string()))?;
            // `.gitkeep` keeps an otherwise empty directory in the repository.
            if name == ".gitkeep" {
                continue;
            }
            let path = format!("{prefix}{name}");
            let kind = entry.file_type().map_err(fault(&real))?;
            if kind.is_dir() {
                // The directory may be in the tree already, with another mode.
                if self.get(&path).map(|it| &it.kind) != Some(&Kind::Directory) {
                    self.add(&path, Entry::directory(0o755))?;
                }
                self.below(&real, &format!("{path}/"))?;
            } else if kind.is_symlink() {
                let target = fs::read_link(&real).map_err(fault(&real))?;
                self.add(&path, Entry::link(&target.to_string_lossy()))?;
            } else if kind.is_file() {
                let content = fs::read(&real).map_err(fault(&real))?;
                let mode = mode_of(&path, &content);
                self.file(&path, mode, &content)?;
            } else {
                return Err(TreeError::Special(real.display().to_string()));
            }
        }
        Ok(())
    }

    /// Returns the entry at a path.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Entry> {
        self.0.get(path)
    }

    /// Returns the content of the file at a path.
    #[must_use]
    pub fn content(&self, path: &str) -> Option<&[u8]> {
        match &self.0.get(path)?.kind {
            Kind::File(content) => Some(content),
            _ => None,
        }
    }

    /// Returns all entries, sorted by the bytes of their paths.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.0.iter().map(|(path, entry)| (path.as_str(), entry))
    }

    /// Total size of all files, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.0.values().map(|it| it.content().len() as u64).sum()
    }

    /// Whether the tree has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Entry {
    /// Makes a directory.
    #[must_use]
    pub fn directory(mode: u32) -> Self {
        let kind = Kind::Directory;
        Self { mode, kind }
    }

    /// Makes a symbolic link.
    #[must_use]
    pub fn link(target: &str) -> Self {
        Self {
            mode: 0o777,
            kind: Kind::Link(target.to_owned()),
        }
    }

    /// The content of a file; empty for directories and links.
    #[must_use]
    pub fn content(&self) -> &[u8] {
        match &self.kind {
            Kind::File(content) => content,
            _ => &[],
        }
    }
}

/// Directories of executable programs and scripts. If netifd may not execute a protocol handler, it retries a
/// thousand times a second.
const EXECUTED: [&str; 8] = [
    "bin/",
    "etc/init.d/",
    "etc/uci-defaults/",
    "lib/netifd/proto/",
    "sbin/",
    "usr/bin/",
    "usr/libexec/",
    "usr/sbin/",
];

/// Directories that may contain keys and passwords.
const SECRET: [&str; 2] = ["etc/config/", "etc/millrace/"];

/// Chooses the permission bits of a file by its path and by its first bytes: scripts are executable.
#[must_use]
pub fn mode_of(path: &str, content: &[u8]) -> u32 {
    let stands = |directories: &[&str]| directories.iter().any(|it| path.starts_with(it));
    if stands(&SECRET) {
        0o600
    } else if stands(&EXECUTED) || content.starts_with(b"#!") {
        0o755
    } else {
        0o644
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Generates trees of moderate size: files, links and directories, three levels deep.
    pub(crate) fn any_tree() -> impl Strategy<Value = Tree> {
        let path = proptest::collection::vec("[a-zA-Z0-9+_ -][a-zA-Z0-9+_. -]{0,9}", 1..4)
            .prop_map(|it| it.join("/"));
        let mode = prop_oneof![Just(0o644), Just(0o755), Just(0o600), 0_u32..0o7777];
        let content = prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..600),
            // Lengths around which tar and ADB change their encoding.
            prop_oneof![
                Just(255),
                Just(256),
                Just(511),
                Just(512),
                Just(513),
                Just(65_536)
            ]
            .prop_map(|length| vec![7; length]),
        ];
        let kind = prop_oneof![
            Just(Kind::Directory),
            content.prop_map(Kind::File),
            "[a-z./]{1,30}".prop_map(Kind::Link),
        ];
        proptest::collection::vec((path, mode, kind), 0..12).prop_map(|entries| {
            let mut tree = Tree::default();
            for (path, mode, kind) in entries {
                let mode = match kind {
                    Kind::Link(_) => 0o777,
                    _ => mode,
                };
                // An entry that conflicts with another one is left out.
                let _ = tree.add(&path, Entry { mode, kind });
            }
            tree
        })
    }

    #[test]
    fn parents_come_by_themselves_and_before_what_is_in_them() {
        let mut tree = Tree::default();
        tree.file("usr/sbin/millrace", 0o755, b"x").unwrap();
        let paths: Vec<&str> = tree.iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["usr", "usr/sbin", "usr/sbin/millrace"]);
        assert_eq!(tree.get("usr"), Some(&Entry::directory(0o755)));
        assert_eq!(tree.size(), 1);
    }

    #[test]
    fn what_could_leave_the_root_or_break_a_list_is_refused() {
        let mut tree = Tree::default();
        let long = "a".repeat(LONGEST_PATH + 1);
        for path in [
            "", "/etc", "../x", "a/../b", "a//b", "a/", "./a", "a\nb", &long,
        ] {
            assert!(tree.file(path, 0o644, b"").is_err(), "{path:?}");
        }
        assert!(tree.add("a", Entry::link("")).is_err());
        assert!(tree.add("a", Entry::link("b\0c")).is_err());
        assert!(tree.file("a", 0o170_644, b"").is_err());
        tree.file("a", 0o644, b"").unwrap();
        assert!(tree.file("a/b", 0o644, b"").is_err(), "below a file");
        assert!(tree.file("a", 0o644, b"").is_err(), "twice");
    }

    #[test]
    fn modes_are_by_place_not_by_checkout() {
        for (path, content, mode) in [
            ("lib/netifd/proto/millrace.sh", "", 0o755),
            ("etc/init.d/millrace", "", 0o755),
            ("etc/hotplug.d/iface/90-millrace", "#!/bin/sh\n", 0o755),
            ("etc/config/millrace", "", 0o600),
            ("www/luci-static/resources/protocol/millrace.js", "", 0o644),
        ] {
            assert_eq!(mode_of(path, content.as_bytes()), mode, "{path}");
        }
    }
}
