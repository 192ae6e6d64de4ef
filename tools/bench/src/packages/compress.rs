//! gzip, raw deflate and xz with fixed settings, so that the output is the same everywhere; and their readers, which
//! stop at [`LARGEST`].

use crate::packages::LARGEST;
use flate2::Compression;
use flate2::bufread::{DeflateDecoder, GzDecoder};
use flate2::write::{DeflateEncoder, GzEncoder};
use lzma_rust2::{XzOptions, XzReader, XzWriter};
use std::io::{self, Read, Write as _};
use thiserror::Error;

/// xz's preset: a dictionary of 8 MB, as in dpkg-deb.
const PRESET: u32 = 6;
/// Memory for unpacking xz, in KiB: twice what that preset needs.
const XZ_MEMORY: u32 = 32 << 10;

/// Why bytes cannot be unpacked.
#[derive(Debug, Error)]
pub enum UnpackError {
    /// The stream is damaged.
    #[error("cannot unpack: {0}")]
    Damaged(#[from] io::Error),
    /// The unpacked content is larger than a package may be.
    #[error("larger than {LARGEST} bytes when unpacked")]
    Large,
    /// The stream is followed by other bytes.
    #[error("trailing data after the compressed stream")]
    Behind,
}

/// Compresses with gzip, without name and date.
///
/// # Errors
/// Never in practice: writing to a vector does not fail.
pub fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut writer = GzEncoder::new(Vec::new(), Compression::best());
    writer.write_all(bytes)?;
    writer.finish()
}

/// Compresses with raw deflate, as in an apk.
///
/// # Errors
/// Never in practice: writing to a vector does not fail.
pub fn deflate(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut writer = DeflateEncoder::new(Vec::new(), Compression::best());
    writer.write_all(bytes)?;
    writer.finish()
}

/// Compresses with xz and a CRC-64.
///
/// # Errors
/// Never in practice: writing to a vector does not fail.
pub fn xz(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut writer = XzWriter::new(Vec::new(), XzOptions::with_preset(PRESET))?;
    writer.write_all(bytes)?;
    writer.finish()
}

/// Unpacks gzip.
///
/// # Errors
/// When the stream is damaged or too large, or other bytes follow it.
pub fn gunzip(bytes: &[u8]) -> Result<Vec<u8>, UnpackError> {
    let mut reader = GzDecoder::new(bytes);
    let unpacked = all(&mut reader)?;
    whole(unpacked, reader.into_inner())
}

/// Unpacks raw deflate.
///
/// # Errors
/// The errors of [`gunzip`].
pub fn inflate(bytes: &[u8]) -> Result<Vec<u8>, UnpackError> {
    let mut reader = DeflateDecoder::new(bytes);
    let unpacked = all(&mut reader)?;
    whole(unpacked, reader.into_inner())
}

/// Unpacks xz.
///
/// # Errors
/// When the stream is damaged, too large, or needs too much memory.
pub fn unxz(bytes: &[u8]) -> Result<Vec<u8>, UnpackError> {
    // The option for several streams makes the reader refuse other bytes after the first stream.
    all(&mut XzReader::new_mem_limit(bytes, true, XZ_MEMORY))
}

fn all(reader: &mut impl Read) -> Result<Vec<u8>, UnpackError> {
    let mut unpacked = Vec::new();
    let limit = LARGEST as u64 + 1;
    reader.take(limit).read_to_end(&mut unpacked)?;
    if unpacked.len() > LARGEST {
        return Err(UnpackError::Large);
    }
    Ok(unpacked)
}

fn whole(unpacked: Vec<u8>, rest: &[u8]) -> Result<Vec<u8>, UnpackError> {
    if rest.is_empty() {
        Ok(unpacked)
    } else {
        Err(UnpackError::Behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Unpack = fn(&[u8]) -> Result<Vec<u8>, UnpackError>;
    const UNPACK: [Unpack; 3] = [gunzip, inflate, unxz];

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(bytes in proptest::collection::vec(any::<u8>(), 0..3000), behind in 0_u8..) {
            let packed = [gzip(&bytes).unwrap(), deflate(&bytes).unwrap(), xz(&bytes).unwrap()];
            for (mut packed, unpack) in packed.into_iter().zip(UNPACK) {
                prop_assert_eq!(&unpack(&packed).unwrap(), &bytes);
                prop_assert!(unpack(&packed[..packed.len() - 1]).is_err());
                packed.push(behind);
                prop_assert!(unpack(&packed).is_err());
            }
        }

        #[test]
        fn damage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            for unpack in UNPACK {
                let _ = unpack(&bytes);
            }
        }
    }
}
