//! Runs each parser alone and discards the entries. The test is that the parser ends within its limits.

use super::{
    Entry, Limits, UnpackError, Visitor, Walker, cpio, fit, squashfs, tar, ubi, uimage, vendor,
    walk_bytes, zip,
};
use crate::unpack::{Found, Part};

/// Limits small enough for a fuzzer to make progress.
const LIMITS: Limits = Limits {
    file: 1 << 20,
    total: 4 << 20,
    directory: 4 << 20,
    files: 200,
    depth: 4,
    ratio: 1000,
};

/// Counts entries.
#[derive(Default)]
struct Count {
    entries: u32,
}

impl Visitor for Count {
    fn entry(&mut self, entry: &Entry<'_>) {
        self.entries += 1;
        assert!(entry.data.len() as u64 <= LIMITS.file);
        assert!(!entry.path.starts_with('/') || !entry.path.split('/').any(|name| name == ".."));
    }

    fn skipped(&mut self, _: &str, _: &str, _: &str) {}
}

type Parser = fn(Part<'_>, usize, &mut Walker<'_>) -> Result<Option<Found>, UnpackError>;

fn with(bytes: &[u8], parser: Parser) {
    let mut count = Count::default();
    let mut walker = Walker::new(&LIMITS, bytes.len(), &mut count);
    let _ = parser(Part::new(bytes, "", 0), 0, &mut walker);
    assert!(count.entries <= LIMITS.files);
}

/// Any bytes as an image.
pub fn image(bytes: &[u8]) {
    let mut count = Count::default();
    let _ = walk_bytes("image", bytes, &LIMITS, &mut count);
    assert!(count.entries <= LIMITS.files);
}

/// Any bytes as a squashfs.
pub fn squashfs(bytes: &[u8]) {
    with(bytes, squashfs::walk);
}

/// Any bytes as UBI. Fuzzing builds ignore checksums.
pub fn ubi(bytes: &[u8]) {
    with(bytes, ubi::walk);
}

/// Any bytes as a FIT image.
pub fn fit(bytes: &[u8]) {
    with(bytes, fit::walk);
}

/// Any bytes as a cpio archive.
pub fn cpio(bytes: &[u8]) {
    with(bytes, cpio::walk);
}

/// Any bytes as a tar archive, and as a zip archive. Fuzzing builds ignore checksums.
pub fn archive(bytes: &[u8]) {
    with(bytes, |part, _, walker| {
        tar::walk(part, walker).map(|_| None)
    });
    with(bytes, |part, _, walker| {
        zip::walk(part, walker).map(|_| None)
    });
}

/// Any bytes as the headers and trailers of vendors, and as a uImage.
pub fn headers(bytes: &[u8]) {
    with(bytes, vendor::header);
    with(bytes, |part, _, walker| {
        vendor::metadata(part, walker).map(|()| None)
    });
    with(bytes, uimage::walk);
}
