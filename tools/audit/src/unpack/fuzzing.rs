//! Runs each parser alone and discards the entries. The test is that the parser ends within its limits.

use super::{
    Entry, Limits, UnpackError, Visitor, Walker, cpio, fit, squashfs, tar, ubi, uimage, vendor,
    walk_bytes, zip,
};
use crate::unpack::Part;

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

fn with(bytes: &[u8], parser: impl FnOnce(Part<'_>, &mut Walker<'_>) -> Result<(), UnpackError>) {
    let mut count = Count::default();
    let mut walker = Walker::new(&LIMITS, bytes.len(), &mut count);
    let _ = parser(
        Part {
            bytes,
            outer: "",
            depth: 0,
            kernel: false,
        },
        &mut walker,
    );
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
    with(bytes, |part, walker| {
        squashfs::walk(part.bytes, 0, "", walker).map(|_| ())
    });
}

/// Any bytes as UBI. Fuzzing builds ignore checksums.
pub fn ubi(bytes: &[u8]) {
    with(bytes, |part, walker| ubi::walk(part, 0, walker).map(|_| ()));
}

/// Any bytes as a FIT image.
pub fn fit(bytes: &[u8]) {
    with(bytes, |part, walker| fit::walk(part, 0, walker).map(|_| ()));
}

/// Any bytes as a cpio archive.
pub fn cpio(bytes: &[u8]) {
    with(bytes, |part, walker| {
        cpio::walk(part, 0, walker).map(|_| ())
    });
}

/// Any bytes as a tar archive, and as a zip archive. Fuzzing builds ignore checksums.
pub fn archive(bytes: &[u8]) {
    with(bytes, |part, walker| tar::walk(part, walker).map(|_| ()));
    with(bytes, |part, walker| zip::walk(part, walker).map(|_| ()));
}

/// Any bytes as the headers and trailers of vendors, and as a uImage.
pub fn headers(bytes: &[u8]) {
    with(bytes, |part, walker| {
        vendor::header(part, 0, walker).map(|_| ())
    });
    with(bytes, vendor::metadata);
    with(bytes, |part, walker| {
        uimage::walk(part, 0, walker).map(|_| ())
    });
}
