//! The limits for unpacking an image, and the resources left.

use std::io;
use std::path::PathBuf;

/// The limits for an image. The defaults fit firmware of any router with room to spare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one unpacked file. A larger one is skipped.
    pub file: u64,
    /// Unpacked bytes in all, from any source. Exceeding the limit ends the walk.
    pub total: u64,
    /// Bytes of a directory's files in all; the walk reads these without unpacking. Exceeding the limit
    /// ends the walk.
    pub directory: u64,
    /// Files, links and devices in all. Exceeding the limit ends the walk.
    pub files: u32,
    /// Nesting depth of images within images. Deeper ones are skipped.
    pub depth: u32,
    /// Unpacked bytes for each packed byte, once a stream has given 16 MiB. A part that exceeds it is skipped.
    pub ratio: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file: 128 << 20,
            total: 1 << 30,
            directory: 16 << 30,
            files: 200_000,
            depth: 8,
            ratio: 1000,
        }
    }
}

/// Why a walk ended early. Entries handed over before are valid.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The named file or directory cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A device, a FIFO or a socket was named.
    #[error("{}: neither a file nor a directory", .0.display())]
    NotAFile(PathBuf),
    /// The image unpacks to more bytes than [`Limits::total`].
    #[error("more than {0} bytes unpacked: the rest was not looked at")]
    TooLarge(u64),
    /// A directory's files have more bytes than [`Limits::directory`].
    #[error("files of more than {0} bytes: the rest was not looked at")]
    TooMuch(u64),
    /// There are more entries than [`Limits::files`].
    #[error("more than {0} files: the rest was not looked at")]
    TooMany(u32),
}

/// Why a part cannot be unpacked.
#[derive(Debug)]
pub(super) enum Fault {
    /// The walk has reached one of its limits.
    Walk(UnpackError),
    /// Only this part fails; the reason in words.
    Part(String),
    /// The bytes are not the format that they look like, or not to their end.
    Broken {
        /// The reason in words.
        why: String,
        /// Bytes unpacked before the fault.
        out: usize,
    },
}

impl Fault {
    /// A fault that concerns only this part.
    pub(super) fn part(why: impl Into<String>) -> Self {
        Self::Part(why.into())
    }
}

impl From<UnpackError> for Fault {
    fn from(error: UnpackError) -> Self {
        Self::Walk(error)
    }
}

/// Unpacked bytes that any stream may give, however short: long padding is not a bomb.
const RATIO_FREE: u64 = 16 << 20;

/// Maximum number of false magic numbers that the walk may try at more than a glance's cost.
const MISSES: u32 = 20_000;

/// The resources left for one walk.
#[derive(Debug)]
pub(super) struct Budget {
    /// The limits, as given.
    pub(super) limits: Limits,
    total: u64,
    /// Bytes read from a directory's files.
    read: u64,
    files: u32,
    misses: u32,
    work: u64,
}

impl Budget {
    /// The budget for an image of `image` bytes.
    pub(super) fn new(limits: Limits, image: usize) -> Self {
        let work = (image as u64).saturating_mul(16).saturating_add(64 << 20);
        Self {
            limits,
            total: 0,
            read: 0,
            files: 0,
            misses: MISSES,
            work,
        }
    }

    /// Counts an entry.
    pub(super) fn count(&mut self) -> Result<(), UnpackError> {
        if self.files >= self.limits.files {
            return Err(UnpackError::TooMany(self.limits.files));
        }
        self.files += 1;
        Ok(())
    }

    /// Counts bytes of a file in a directory that is about to be read.
    pub(super) fn read(&mut self, bytes: u64) -> Result<(), UnpackError> {
        self.read = self.read.saturating_add(bytes);
        if self.read > self.limits.directory {
            return Err(UnpackError::TooMuch(self.limits.directory));
        }
        Ok(())
    }

    /// Counts unpacked bytes, whether or not the walk uses them.
    pub(super) fn unpacked(&mut self, bytes: usize) -> Result<(), UnpackError> {
        self.total = self.total.saturating_add(bytes as u64);
        // The walk will scan the unpacked bytes.
        self.work = self.work.saturating_add((bytes as u64).saturating_mul(4));
        if self.total > self.limits.total {
            return Err(UnpackError::TooLarge(self.limits.total));
        }
        Ok(())
    }

    /// Whether unpacking `packed` bytes to `out` bytes exceeds the allowed ratio.
    pub(super) fn is_bomb(&self, out: u64, packed: u64) -> bool {
        out > RATIO_FREE && out > packed.saturating_mul(self.limits.ratio)
    }

    /// Counts a candidate before it is tried, and the `bytes` that the attempt reads. `false`: the walk may
    /// not try any more.
    pub(super) fn attempt(&mut self, bytes: usize) -> bool {
        if self.misses == 0 || self.work < bytes as u64 {
            return false;
        }
        self.misses -= 1;
        self.work -= bytes as u64;
        true
    }
}

/// Explains why a file of `size` bytes is skipped.
pub(super) fn too_large(size: u64, limits: &Limits) -> String {
    format!(
        "{size} bytes, more than the {} that one file may have",
        limits.file
    )
}
