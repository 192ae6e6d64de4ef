//! gzip, raw deflate and xz, in one way each, so that the same bytes come out everywhere; and their readers, which stop
//! at [`LARGEST`].

use crate::LARGEST;
use flate2::Compression;
use flate2::bufread::{DeflateDecoder, GzDecoder};
use flate2::write::{DeflateEncoder, GzEncoder};
use lzma_rust2::{XzOptions, XzReader, XzWriter};
use std::io::{self, Read, Write as _};
use thiserror::Error;

/// The preset of xz: a dictionary of 8 MB, as dpkg-deb's own.
const PRESET: u32 = 6;
/// The memory for unpacking xz, in KiB: twice the need of that preset.
const XZ_MEMORY: u32 = 32 << 10;

/// Why bytes cannot be unpacked.
#[derive(Debug, Error)]
pub enum UnpackError {
    /// The stream is damaged.
    #[error("cannot be unpacked: {0}")]
    Damaged(#[from] io::Error),
    /// More comes out than a package may have.
    #[error("larger than {LARGEST} bytes when unpacked")]
    Large,
    /// Bytes that belong to no stream.
    #[error("something stands behind the compressed stream")]
    Behind,
}

/// gzip without a name or a date.
///
/// # Errors
/// None of a vector's.
pub fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut writer = GzEncoder::new(Vec::new(), Compression::best());
    writer.write_all(bytes)?;
    writer.finish()
}

/// Raw deflate, as in an apk.
///
/// # Errors
/// None of a vector's.
pub fn deflate(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut writer = DeflateEncoder::new(Vec::new(), Compression::best());
    writer.write_all(bytes)?;
    writer.finish()
}

/// xz with a CRC-64.
///
/// # Errors
/// None of a vector's.
pub fn xz(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut writer = XzWriter::new(Vec::new(), XzOptions::with_preset(PRESET))?;
    writer.write_all(bytes)?;
    writer.finish()
}

/// Unpacks gzip.
///
/// # Errors
/// When it is damaged, too large, or not all of the bytes.
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
/// When it is damaged, too large or needs too much memory.
pub fn unxz(bytes: &[u8]) -> Result<Vec<u8>, UnpackError> {
    // More streams: the reader then looks behind the first and refuses what is none.
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
