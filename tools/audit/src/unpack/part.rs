//! Parts of images, and the results of their readers.

use super::decompress::Format;

/// A stretch of an image, with where it lies.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    /// All bytes of the part.
    pub(super) bytes: &'a [u8],
    /// The containers that lead to it; see [`Entry::origin`](super::Entry::origin).
    pub(super) outer: &'a str,
    /// Number of images around it.
    pub(super) depth: u32,
    /// Whether this is an uncompressed kernel: it may hold a root file system and device trees, and bytes
    /// that look like any other format.
    pub(super) kernel: bool,
}

impl Part<'_> {
    /// The origin of `what`, `at` bytes into this part.
    pub(super) fn origin(&self, what: &str, at: usize) -> String {
        if self.outer.is_empty() {
            format!("{what} at {at:#x}")
        } else {
            format!("{} > {what} at {at:#x}", self.outer)
        }
    }

    /// A part inside this one, with these bytes.
    pub(super) fn inner<'a>(&self, bytes: &'a [u8], outer: &'a str) -> Part<'a> {
        Part {
            bytes,
            outer,
            depth: self.depth + 1,
            kernel: false,
        }
    }
}

/// The result of a reader that recognised its format.
pub(super) struct Found {
    /// Offset at which the scan continues.
    pub(super) end: usize,
    /// Offsets and formats of streams that a header announced.
    pub(super) expected: Vec<(usize, Format)>,
}

impl Found {
    /// A result that announces no streams.
    pub(super) fn until(end: usize) -> Self {
        Self {
            end,
            expected: Vec::new(),
        }
    }
}
