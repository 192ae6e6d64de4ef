//! Compressors.

use std::io::Write;

use lzma_rust2::{LzmaOptions, LzmaWriter, XzOptions, XzWriter};

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

pub fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

pub fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

pub fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut options = XzOptions::with_preset(3);
    options.lzma_options.dict_size = 1 << 16;
    let mut writer = XzWriter::new(Vec::new(), options).unwrap();
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

pub fn lz4(bytes: &[u8]) -> Vec<u8> {
    lz4_flex::block::compress(bytes)
}

/// The LZ4 format that the kernel uses.
pub fn lz4_kernel(bytes: &[u8]) -> Vec<u8> {
    let mut out = 0x184c_2102u32.to_le_bytes().to_vec();
    for block in bytes.chunks(8 << 20) {
        let block = lz4(block);
        out.extend((block.len() as u32).to_le_bytes());
        out.extend(block);
    }
    out
}

/// Literal context, literal position and position bits.
type Bits = (u32, u32, u32);

fn lzma_stream(bytes: &[u8], (lc, lp, pb): Bits, mark: bool) -> Vec<u8> {
    let mut options = LzmaOptions::with_preset(3);
    (options.lc, options.lp, options.pb) = (lc, lp, pb);
    options.dict_size = 1 << 16;
    let mut writer = LzmaWriter::new_no_header(Vec::new(), &options, mark).unwrap();
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

/// `.lzma` with the size unknown and an end mark, as squashfs-tools and the kernel's build write it.
pub fn lzma(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0x5d];
    out.extend((1u32 << 16).to_le_bytes());
    out.extend(u64::MAX.to_le_bytes());
    out.extend(lzma_stream(bytes, (3, 0, 2), true));
    out
}

/// `.lzma` with the size known and its own properties, as in Broadcom's kernels.
pub fn lzma_sized(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![(2 * 5 + 2) * 9];
    out.extend((1u32 << 16).to_le_bytes());
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(lzma_stream(bytes, (0, 2, 2), false));
    out
}

/// LZMA after only its properties and its dictionary size.
pub fn lzma_short(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0x5d];
    out.extend((1u32 << 16).to_le_bytes());
    out.extend(lzma_stream(bytes, (3, 0, 2), false));
    out
}

/// LZMA without stored properties, which have the usual values.
pub fn lzma_bare(bytes: &[u8]) -> Vec<u8> {
    lzma_stream(bytes, (3, 0, 2), false)
}

/// LZMA without stored properties, which have unusual values, after four arbitrary bytes.
pub fn lzma_odd(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0x6c, 0x7a, 0x6d, 0x61];
    out.extend(lzma_stream(bytes, (1, 2, 0), false));
    out
}
