//! Finds the files in a firmware image by the magic numbers of its parts.
//!
//! The walk runs nothing and writes nothing: it unpacks files in memory, one after the other, and hands
//! them to a visitor. [`Limits`] bound what a hostile image can cost.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use budget::{Budget, Fault};
pub use budget::{Limits, UnpackError};

use crate::unpack::decompress::Format;

mod budget;
mod cpio;
mod decompress;
mod directory;
mod fit;
mod kernel;
mod scan;
mod squashfs;
mod tar;
mod ubi;
mod uimage;
mod vendor;
mod zip;

/// Entry points for fuzzing each parser. Not a public interface.
#[doc(hidden)]
pub mod fuzzing;

/// The kind of an entry in a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind<'a> {
    /// A file, with its bytes.
    File,
    /// A symbolic link, with its target as written. The walk does not follow it.
    Symlink(&'a str),
    /// A device, a FIFO or a socket. The walk does not open it.
    Other,
}

/// One file, link or device that the walk found. Directories show only in the paths.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The absolute path in its own file system: `/usr/lib/libcrypto.so.1.1`. A part outside any file
    /// system has its role instead: `kernel` (one that could not be unpacked), `vmlinux` (an uncompressed
    /// kernel, raw or as an ELF file), `kernel-config` (the text built into it), `dtb` (a device tree),
    /// `header` (a vendor's header, as text), `metadata` (OpenWrt's JSON for sysupgrade). A file named on
    /// the command line has its own name.
    pub path: &'a str,
    /// The containers that lead from the named file to the entry, for example `squashfs (xz) at 0x1c0040`
    /// or `tar sysupgrade-x/root > squashfs (xz) at 0x0`; empty in a directory and for the named file
    /// itself.
    pub origin: &'a str,
    /// Whether the entry is a file, a link or something else.
    pub kind: EntryKind<'a>,
    /// The bytes of a file; empty for other kinds. Modules that are compressed one by one are unpacked.
    pub data: &'a [u8],
}

/// Receives the entries that a walk finds.
pub trait Visitor {
    /// A file, a link or a device.
    fn entry(&mut self, entry: &Entry<'_>);
    /// Reports that the walk recognised `what` at `origin` but could not read all of it.
    fn skipped(&mut self, origin: &str, what: &str, why: &str);
}

/// Walks a file, an image or a directory, and hands over its entries.
///
/// # Errors
/// [`UnpackError`]: `path` cannot be read, or the walk reached a limit that ends it. Faults in parts of an
/// image go to [`Visitor::skipped`].
pub fn walk(path: &Path, limits: &Limits, visitor: &mut dyn Visitor) -> Result<(), UnpackError> {
    let read = |source| UnpackError::Read {
        path: path.to_path_buf(),
        source,
    };
    let meta = std::fs::metadata(path).map_err(read)?;
    if meta.is_dir() {
        return directory::walk(path, &mut Walker::new(limits, 0, visitor));
    }
    if !meta.is_file() {
        return Err(UnpackError::NotAFile(path.to_path_buf()));
    }
    let Some(bytes) = read_file(path, limits.total).map_err(read)? else {
        return Err(UnpackError::TooLarge(limits.total));
    };
    walk_bytes(&path.to_string_lossy(), &bytes, limits, visitor)
}

/// [`walk`] for an image in memory; `name` is its path if it turns out to be a plain file.
///
/// # Errors
/// The errors of [`walk`].
pub fn walk_bytes(
    name: &str,
    bytes: &[u8],
    limits: &Limits,
    visitor: &mut dyn Visitor,
) -> Result<(), UnpackError> {
    let mut walker = Walker::new(limits, bytes.len(), visitor);
    if !bytes.starts_with(b"\x7fELF") && scan::part(Part::new(bytes, "", 0), &mut walker)? {
        return Ok(());
    }
    walker.file(name, "", bytes)
}

/// The state of one walk: the visitor, and the budget that is left.
struct Walker<'v> {
    budget: Budget,
    visitor: &'v mut dyn Visitor,
    skipped: u32,
}

/// Maximum number of skipped parts that the walk reports one by one.
const MOST_SKIPPED: u32 = 1000;

impl<'v> Walker<'v> {
    fn new(limits: &Limits, image: usize, visitor: &'v mut dyn Visitor) -> Self {
        Self {
            budget: Budget::new(*limits, image),
            visitor,
            skipped: 0,
        }
    }

    /// Hands over a file.
    fn file(&mut self, path: &str, origin: &str, data: &[u8]) -> Result<(), UnpackError> {
        self.give(path, origin, EntryKind::File, data)
    }

    /// Hands over an entry of any kind, and counts it.
    fn give(
        &mut self,
        path: &str,
        origin: &str,
        kind: EntryKind<'_>,
        data: &[u8],
    ) -> Result<(), UnpackError> {
        self.budget.count()?;
        self.visitor.entry(&Entry {
            path,
            origin,
            kind,
            data,
        });
        Ok(())
    }

    /// Hands over a file of a file system: unpacks compressed kernel modules and looks into kernels.
    fn file_in_tree(&mut self, path: &str, origin: &str, data: &[u8]) -> Result<(), UnpackError> {
        let format = match path.rsplit_once(".ko.") {
            Some((_, "gz")) => Format::Gzip,
            Some((_, "xz")) => Format::Xz,
            Some((_, "zst")) => Format::Zstd,
            _ => {
                self.file(path, origin, data)?;
                if is_boot_kernel(path) {
                    scan::part(Part::new(data, &inside(origin, path), 1), self)?;
                }
                return Ok(());
            }
        };
        match decompress::decode(format, data, &mut self.budget) {
            Ok((module, _)) => self.file(path, origin, &module),
            Err(fault) => self.fault(origin, path, fault),
        }
    }

    /// Reports a skipped part. The number of reports is limited: a hostile image could make the list endless.
    fn skip(&mut self, origin: &str, what: &str, why: &str) {
        self.skipped += 1;
        match self.skipped {
            ..MOST_SKIPPED => self.visitor.skipped(origin, what, why),
            MOST_SKIPPED => {
                let why = "too many parts were skipped to list them all";
                self.visitor.skipped("", "and more", why);
            }
            _ => {}
        }
    }

    /// Reports a part that could not be unpacked; returns an error only for a limit of the whole walk.
    fn fault(&mut self, origin: &str, what: &str, fault: Fault) -> Result<(), UnpackError> {
        match fault {
            Fault::Walk(error) => Err(error),
            Fault::Part(why) | Fault::Broken { why, .. } => {
                self.skip(origin, what, &why);
                Ok(())
            }
        }
    }
}

/// Reads a regular file of at most `most` bytes; `None` if it is larger. Opening never waits, and a path
/// that then turns out to be a FIFO or a device is not read.
fn read_file(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    let file: File = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ));
    }
    if meta.len() > most {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or(0));
    // The read stops here even if the file grows meanwhile.
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}

/// Whether a path names a kernel in `/boot`.
fn is_boot_kernel(path: &str) -> bool {
    let Some(name) = path.strip_prefix("/boot/") else {
        return false;
    };
    let names = [
        "vmlinuz", "zImage", "bzImage", "uImage", "Image", "fitImage", "kernel",
    ];
    names.iter().any(|prefix| name.starts_with(prefix)) || name.ends_with(".itb")
}

/// Makes an archive's path absolute. `None` for a path that leaves the archive, and for the root itself.
fn clean_path(path: &[u8]) -> Option<String> {
    let path = String::from_utf8_lossy(path);
    let mut clean = String::with_capacity(path.len() + 1);
    for name in path.split('/').filter(|name| !matches!(*name, "" | ".")) {
        if name == ".." {
            return None;
        }
        clean.push('/');
        clean.push_str(name);
    }
    (!clean.is_empty()).then_some(clean)
}

/// A stretch of an image, with where it lies.
#[derive(Clone, Copy)]
struct Part<'a> {
    /// All bytes of the part.
    bytes: &'a [u8],
    /// The containers around the part; see [`Entry::origin`].
    outer: &'a str,
    /// Number of images around the part.
    depth: u32,
    /// Whether this is an uncompressed kernel: it may hold a root file system and device trees, and bytes
    /// that look like any other format.
    kernel: bool,
}

impl<'a> Part<'a> {
    /// A part that is not an uncompressed kernel.
    fn new(bytes: &'a [u8], outer: &'a str, depth: u32) -> Self {
        Self {
            bytes,
            outer,
            depth,
            kernel: false,
        }
    }

    /// The origin of `what`, `at` bytes into this part.
    fn origin(&self, what: &str, at: usize) -> String {
        inside(self.outer, &format!("{what} at {at:#x}"))
    }

    /// A part inside this one, with these bytes.
    fn inner<'b>(&self, bytes: &'b [u8], outer: &'b str) -> Part<'b> {
        Part::new(bytes, outer, self.depth + 1)
    }
}

/// The containers that lead to `what`, which lies in `outer`.
fn inside(outer: &str, what: &str) -> String {
    if outer.is_empty() {
        what.to_owned()
    } else {
        format!("{outer} > {what}")
    }
}

/// The result of a reader that recognised its format.
struct Found {
    /// Offset at which the scan continues.
    end: usize,
    /// Offsets and formats of streams that a header announced.
    expected: Vec<(usize, Format)>,
}

impl Found {
    /// A result that announces no streams.
    fn until(end: usize) -> Self {
        Self {
            end,
            expected: Vec::new(),
        }
    }
}
