//! Digests and their hexadecimal form.

use aws_lc_rs::digest::{SHA256, SHA512, digest};
use std::fmt::Write as _;

/// Computes the SHA-256 digest.
#[must_use]
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut value = [0; 32];
    value.copy_from_slice(digest(&SHA256, bytes).as_ref());
    value
}

/// Computes the SHA-512 digest.
#[must_use]
pub fn sha512(bytes: &[u8]) -> [u8; 64] {
    let mut value = [0; 64];
    value.copy_from_slice(digest(&SHA512, bytes).as_ref());
    value
}

/// Formats each byte as two lower-case hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
