//! Stretches of images, and what readers say of them.

use super::decompress::Format;

/// A stretch of an image, with where it lies.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    /// All of it.
    pub(super) bytes: &'a [u8],
    /// The way to it; see [`Entry::origin`](super::Entry::origin).
    pub(super) outer: &'a str,
    /// Images around it.
    pub(super) depth: u32,
    /// A kernel as it lies in memory: it may hold a root file system and device trees, and bytes that look
    /// like anything else.
    pub(super) kernel: bool,
}

impl Part<'_> {
    /// The origin of `what`, `at` so many bytes into this part.
    pub(super) fn origin(&self, what: &str, at: usize) -> String {
        if self.outer.is_empty() {
            format!("{what} at {at:#x}")
        } else {
            format!("{} > {what} at {at:#x}", self.outer)
        }
    }

    /// A part with these bytes inside this one.
    pub(super) fn inner<'a>(&self, bytes: &'a [u8], outer: &'a str) -> Part<'a> {
        Part {
            bytes,
            outer,
            depth: self.depth + 1,
            kernel: false,
        }
    }
}

/// Something recognised.
pub(super) struct Found {
    /// Where to go on.
    pub(super) end: usize,
    /// Streams to be expected, by their offsets.
    pub(super) expected: Vec<(usize, Format)>,
}

impl Found {
    /// Nothing to be expected.
    pub(super) fn until(end: usize) -> Self {
        Self {
            end,
            expected: Vec::new(),
        }
    }
}
