//! apk packages, version 3: an ADB with the description and paths, and a block for each file's content.
//!
//! Slots are numbered as in apk-tools' schemas. Only the parts that OpenWrt's packages use are here.
//!
//! [`Limited`] limits how much is copied. Many words may refer to one value, so a small file could otherwise fill
//! all memory.

use std::collections::BTreeMap;
use std::io;

use thiserror::Error;

use crate::packages::adb::{
    Block, Container, ContainerError, NULL, PACKAGE, Reader, ValueError, Writer,
};
use crate::packages::hash;
use crate::packages::tree::{Tree, TreeError};

pub(crate) mod info;
mod paths;

pub use info::Info;

/// Length of a package's identity, in bytes.
const ID: usize = 20;
/// The scripts' names, by when they run, in the order of their slots.
pub const SCRIPTS: [&str; 7] = [
    "trigger",
    "pre-install",
    "post-install",
    "pre-deinstall",
    "post-deinstall",
    "pre-upgrade",
    "post-upgrade",
];

/// A package.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Apk {
    /// The package's description.
    pub info: Info,
    /// Scripts by name, as in [`SCRIPTS`].
    pub scripts: BTreeMap<String, Vec<u8>>,
    /// The files to be installed.
    pub tree: Tree,
}

/// Why bytes are not a valid package, or a package cannot be written.
#[derive(Debug, Error)]
pub enum ApkError {
    /// The container is invalid.
    #[error("{0}")]
    Container(#[from] ContainerError),
    /// A value is invalid.
    #[error("{0}")]
    Value(#[from] ValueError),
    /// A path is invalid.
    #[error("{0}")]
    Tree(#[from] TreeError),
    /// The package has content that is invalid, too large, or contradicts itself.
    #[error("apk: {0}")]
    Content(&'static str),
    /// A dependency is invalid.
    #[error("apk: {0:?} is no dependency")]
    Dependency(String),
    /// A script's name is not in [`SCRIPTS`].
    #[error("apk: no script is called {0}")]
    Script(String),
    /// Writing failed, which does not happen with a vector.
    #[error("{0}")]
    Write(#[from] io::Error),
}

/// Writes a package. This computes its identity and the size of its files.
///
/// # Errors
/// When a dependency or a script's name is invalid.
pub fn write(package: &Apk) -> Result<Vec<u8>, ApkError> {
    let mut writer = Writer::default();
    let size = package.tree.size();
    let info = Info {
        identity: vec![0; ID],
        // A size of 0 would mean a package without files.
        installed_size: size.max(1),
        file_size: 0,
        ..package.info.clone()
    };
    let info = info::write(&mut writer, &info)?;
    let directories = paths::directories(&package.tree);
    let paths = paths::write(&mut writer, &directories, package.info.date);
    let scripts = write_scripts(&mut writer, &package.scripts)?;
    let root = writer.object(&[info, paths, scripts]);
    let mut payload = writer.finish(root).ok_or(ApkError::Content("too large"))?;
    let (at, _) = place_of_identity(&payload)?;
    let identity = hash::sha256(&payload);
    payload[at..at + ID].copy_from_slice(&identity[..ID]);
    let mut container = Container::new(PACKAGE, &payload);
    for (path, directory) in (1_u32..).zip(&directories) {
        for (file, (_, entry)) in (1_u32..).zip(&directory.files) {
            let content = entry.content();
            if !content.is_empty() {
                let block = [&path.to_le_bytes()[..], &file.to_le_bytes(), content].concat();
                container.add(&Block::Data(&block));
            }
        }
    }
    Ok(container.write()?)
}

/// Reads a package, and checks every file's size and SHA-256 and the package's identity.
///
/// # Errors
/// When the package is invalid or its parts contradict each other.
pub fn read(bytes: &[u8]) -> Result<Apk, ApkError> {
    let container = Container::read(bytes, PACKAGE)?;
    let (payload, blocks) = container.blocks()?;
    let reader = Reader::new(payload)?;
    let root = reader.object(reader.root())?;
    let mut limited = Limited::new(reader);
    let info = info::read(&mut limited, Reader::slot(&root, 1))?;
    let (at, identity) = place_of_identity(payload)?;
    let mut zeroed = payload.to_vec();
    zeroed[at..at + ID].fill(0);
    if hash::sha256(&zeroed)[..ID] != *identity {
        return Err(ApkError::Content("the identity is not that of the content"));
    }
    let mut contents = blocks.iter().filter_map(|block| match block {
        Block::Data(bytes) => Some(*bytes),
        Block::Signature(_) => None,
    });
    let tree = paths::read(reader, Reader::slot(&root, 2), &mut contents)?;
    if contents.next().is_some() {
        return Err(ApkError::Content("content of no file"));
    }
    if info.installed_size != tree.size().max(1) {
        return Err(ApkError::Content("another size of all files"));
    }
    let slots = reader.object(Reader::slot(&root, 3))?;
    let mut scripts = BTreeMap::new();
    for (name, word) in SCRIPTS.iter().zip(slots) {
        if word != NULL {
            scripts.insert((*name).to_owned(), limited.blob(word)?.to_vec());
        }
    }
    Ok(Apk {
        info,
        scripts,
        tree,
    })
}

/// Computes the SHA-256 of the ADB, by which indexes identify a package.
///
/// # Errors
/// When the bytes are not a package.
pub fn identity(bytes: &[u8]) -> Result<[u8; 32], ApkError> {
    let container = Container::read(bytes, PACKAGE)?;
    Ok(hash::sha256(container.blocks()?.0))
}

/// Finds the identity's bytes in a payload; returns their offset and the bytes.
fn place_of_identity(payload: &[u8]) -> Result<(usize, &[u8]), ApkError> {
    let reader = Reader::new(payload)?;
    let root = reader.object(reader.root())?;
    let info = reader.object(Reader::slot(&root, 1))?;
    let word = Reader::slot(&info, 3);
    let identity = reader.blob(word)?;
    if identity.len() != ID {
        return Err(ApkError::Content("an identity of other than 20 bytes"));
    }
    // The bytes follow the byte with their length.
    Ok(((word & 0x0fff_ffff) as usize + 1, identity))
}

fn write_scripts(
    writer: &mut Writer,
    scripts: &BTreeMap<String, Vec<u8>>,
) -> Result<u32, ApkError> {
    let mut slots = [NULL; SCRIPTS.len()];
    for (name, script) in scripts {
        let slot = SCRIPTS.iter().position(|it| it == name);
        let slot = slot.ok_or_else(|| ApkError::Script(name.clone()))?;
        slots[slot] = writer.blob(script);
    }
    Ok(writer.object(&slots))
}

/// Maximum number of bytes of a text or a script.
pub(crate) const LONGEST: usize = 64 << 10;
/// Limit for all values of a file together, in bytes: several times OpenWrt's largest index.
const MOST: usize = 64 << 20;
/// Cost of a text besides its bytes, since even an empty text takes memory.
const TEXT: usize = 32;

/// Reads the values of one file, up to a total of [`MOST`].
#[derive(Debug)]
pub(crate) struct Limited<'a> {
    reader: Reader<'a>,
    left: usize,
}

impl<'a> Limited<'a> {
    /// Makes a reader of one file.
    pub(crate) fn new(reader: Reader<'a>) -> Self {
        let left = MOST;
        Self { reader, left }
    }

    /// Reads a number; see [`Reader::int`].
    pub(crate) fn int(&self, word: u32) -> Result<u64, ValueError> {
        self.reader.int(word)
    }

    /// Reads an array; see [`Reader::array`].
    pub(crate) fn array(&mut self, word: u32) -> Result<Vec<u32>, ApkError> {
        let words = self.reader.array(word)?;
        self.take(size_of_val(words.as_slice()))?;
        Ok(words)
    }

    /// Reads an object; see [`Reader::object`].
    pub(crate) fn object(&mut self, word: u32) -> Result<Vec<u32>, ApkError> {
        let words = self.reader.object(word)?;
        self.take(size_of_val(words.as_slice()))?;
        Ok(words)
    }

    /// Reads a blob of at most [`LONGEST`] bytes; see [`Reader::blob`].
    pub(crate) fn blob(&mut self, word: u32) -> Result<&'a [u8], ApkError> {
        let bytes = self.reader.blob(word)?;
        if bytes.len() > LONGEST {
            return Err(ApkError::Content("a text of more than 64 KiB"));
        }
        self.take(bytes.len() + TEXT)?;
        Ok(bytes)
    }

    /// Reads a blob as a text.
    pub(crate) fn text(&mut self, word: u32) -> Result<&'a str, ApkError> {
        str::from_utf8(self.blob(word)?).map_err(|_| ApkError::Content("a text that is none"))
    }

    fn take(&mut self, size: usize) -> Result<(), ApkError> {
        let left = self.left.checked_sub(size);
        self.left = left.ok_or(ApkError::Content("more than 64 MiB of texts"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::packages::compress;
    use crate::packages::tree::tests::any_tree;

    fn package(tree: Tree) -> Apk {
        Apk {
            info: Info {
                name: "millrace".to_owned(),
                version: "1.2.3-r1".to_owned(),
                architecture: "noarch".to_owned(),
                depends: vec!["kmod-tun".to_owned()],
                date: 1_700_000_000,
                ..Info::default()
            },
            scripts: [("post-install".to_owned(), b"#!/bin/sh\n".to_vec())].into(),
            tree,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn what_is_written_is_read(tree in any_tree()) {
            let package = package(tree);
            let bytes = write(&package).unwrap();
            let read = read(&bytes).unwrap();
            prop_assert_eq!(&read.tree, &package.tree);
            prop_assert_eq!(&read.scripts, &package.scripts);
            prop_assert_eq!(&read.info.depends, &package.info.depends);
            prop_assert_eq!(write(&package).unwrap(), bytes);
        }

        #[test]
        fn damage_is_found(tree in any_tree(), at in any::<proptest::sample::Index>(), bits in 1_u8..) {
            let bytes = write(&package(tree)).unwrap();
            let mut plain = compress::inflate(&bytes[4..]).unwrap();
            let index = at.index(plain.len());
            plain[index] ^= bits;
            prop_assert!(read(&plain).is_err(), "byte {}", index);
        }
    }

    #[test]
    fn the_bytes_are_those_of_before() {
        let mut tree = Tree::default();
        tree.file("usr/sbin/millrace", 0o755, b"program").unwrap();
        let bytes = write(&package(tree)).unwrap();
        // The compressed bytes may change with the deflate crate; the content must not.
        let plain = compress::inflate(&bytes[4..]).unwrap();
        assert_eq!(
            hash::hex(&plain),
            "4144422e70636b676c01000000000000580100e0086d696c6c7261636508312e322e332d7231066e6f617263681478ba\
             12afc7d9836e9f1442d9a04cad3665de17fd000000f15365086b6d6f642d74756e000000020000003c00008002000000\
             480000e010000000080000801100008021000080000000001a0000800000000000000000000000000000000000000000\
             38000020070000100000000000000000500000d004726f6f7400000004000000ed010010980000809800008003000000\
             00000000a00000e00375737203000000bc000080a00000e0201310ca2c8932dbd118668bd97442558a3e1f546b5e15c6\
             9699dfbd6024f548d80000000600000008000080a00000e00700001038000020cc000080087573722f7362696e000000\
             02000000f00000e00400000008010080a00000e0140100d004000000b00000e0c00000e01c0100e00a23212f62696e2f\
             73680a000400000000000000000000003c01008004000000580000e02c0100d0480100e0000000001300008003000000\
             0100000070726f6772616d0000000000"
        );
    }

    #[test]
    fn what_no_apk_can_say_is_refused() {
        let mut wrong = package(Tree::default());
        wrong.scripts.insert("postinst".to_owned(), Vec::new());
        assert!(matches!(write(&wrong), Err(ApkError::Script(_))));
        assert!(matches!(read(b"ADBd"), Err(ApkError::Container(_))));
    }
}
