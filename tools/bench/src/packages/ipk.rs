//! opkg's packages: a gzip'd tar of `debian-binary`, `data.tar.gz` and `control.tar.gz`, in this order.
//!
//! The archives are made as by OpenWrt's `scripts/ipkg-build`. Other systems use `ar` archives as ipk, which opkg
//! also reads.

use crate::packages::compress::{self, UnpackError};
use crate::packages::tar::{self, TarError};
use crate::packages::tree::Tree;
use std::io;
use thiserror::Error;

/// The text of `debian-binary`.
pub const VERSION: &[u8] = b"2.0\n";

/// The content of the two archives in an ipk or a deb.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// `control`, lists of files, and scripts.
    pub control: Tree,
    /// The files to be installed.
    pub data: Tree,
}

/// Why bytes are not a valid ipk or deb.
#[derive(Debug, Error)]
pub enum PackageError {
    /// The outer archive of a deb is damaged.
    #[error("ar: byte {at}: {what}")]
    Ar {
        /// Offset of the fault.
        at: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// The package lacks parts, has unknown ones, or has them in another order.
    #[error("not debian-binary (2.0), a control.tar and a data.tar, in the format's order")]
    Parts,
    /// A part cannot be unpacked.
    #[error("{part}: {error}")]
    Unpack {
        /// Name of the part.
        part: &'static str,
        /// Cause of the failure.
        error: UnpackError,
    },
    /// A part is not a valid archive.
    #[error("{part}: {error}")]
    Tar {
        /// Name of the part.
        part: &'static str,
        /// Cause of the failure.
        error: TarError,
    },
    /// The package has no control file.
    #[error("no control file")]
    NoControl,
}

/// Writes a package in which everything has the same date.
///
/// # Errors
/// Never in practice: writing to a vector does not fail.
pub fn write(content: &Content, date: u64) -> io::Result<Vec<u8>> {
    let data = compress::gzip(&tar::write(&content.data, date))?;
    let control = compress::gzip(&tar::write(&content.control, date))?;
    let parts: [(&str, &[u8]); 3] = [
        ("debian-binary", VERSION),
        ("data.tar.gz", &data),
        ("control.tar.gz", &control),
    ];
    compress::gzip(&tar::write_files(&parts, date))
}

/// Reads a package.
///
/// # Errors
/// When the package is invalid, or this crate would not have written it.
pub fn read(bytes: &[u8]) -> Result<Content, PackageError> {
    let outer = archive("the package", compress::gunzip(bytes))?;
    let parts = ["./debian-binary", "./data.tar.gz", "./control.tar.gz"];
    if outer.names != parts || outer.tree.content("debian-binary") != Some(VERSION) {
        return Err(PackageError::Parts);
    }
    let part = |name| outer.tree.content(name).ok_or(PackageError::Parts);
    let data = archive("data.tar.gz", compress::gunzip(part("data.tar.gz")?))?;
    let control = archive("control.tar.gz", compress::gunzip(part("control.tar.gz")?))?;
    content(control, data)
}

/// Reads the archive of an unpacked part.
pub(crate) fn archive(
    part: &'static str,
    bytes: Result<Vec<u8>, UnpackError>,
) -> Result<tar::Archive, PackageError> {
    let bytes = bytes.map_err(|error| PackageError::Unpack { part, error })?;
    tar::read(&bytes).map_err(|error| PackageError::Tar { part, error })
}

/// The content of the two archives, if there is a control file.
pub(crate) fn content(control: tar::Archive, data: tar::Archive) -> Result<Content, PackageError> {
    match control.tree.content("control") {
        Some(_) => Ok(Content {
            control: control.tree,
            data: data.tree,
        }),
        None => Err(PackageError::NoControl),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packages::hash;
    use crate::packages::tree::tests::any_tree;
    use proptest::prelude::*;

    fn content(data: Tree) -> Content {
        let mut control = Tree::default();
        control.file("control", 0o644, b"Package: a\n").unwrap();
        Content { control, data }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_is_written_is_read(data in any_tree()) {
            let content = content(data);
            let bytes = write(&content, 7).unwrap();
            prop_assert_eq!(&read(&bytes).unwrap(), &content);
            prop_assert_eq!(write(&content, 7).unwrap(), bytes);
        }

        #[test]
        fn damage_never_panics(at in any::<proptest::sample::Index>(), bits in 1_u8..) {
            let mut bytes = write(&content(Tree::default()), 7).unwrap();
            let index = at.index(bytes.len());
            bytes[index] ^= bits;
            let _ = read(&bytes);
        }
    }

    #[test]
    fn the_bytes_are_those_of_before() {
        let mut data = Tree::default();
        data.file("usr/sbin/millrace", 0o755, b"program").unwrap();
        let bytes = write(&content(data), 1_700_000_000).unwrap();
        // The compressed bytes depend on the version of the compressor; the archives inside do not.
        let outer = compress::gunzip(&bytes).unwrap();
        let outer = tar::read(&outer).unwrap().tree;
        let data = compress::gunzip(outer.content("data.tar.gz").unwrap()).unwrap();
        assert_eq!(
            hash::hex(&hash::sha256(&data)),
            "c1229d0b01fb77d56dbecec1054d3fa3a3a6b955dbb029fa63e14d997268cc08"
        );
        assert_eq!(
            bytes[..10],
            *b"\x1f\x8b\x08\0\0\0\0\0\x02\xff",
            "gzip without a date"
        );
    }
}
