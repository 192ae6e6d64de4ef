//! Unpacks compressed streams whole into memory, within the [`Budget`].

use std::io::{self, ErrorKind, Read};

use super::budget::{Budget, Fault, too_large};

/// Largest dictionary of a decoder, in KiB. `xz -9` uses 64 MiB; nothing on a router uses more. The fuzzer
/// allows no allocation that large.
const DICTIONARY_KIB: u32 = if cfg!(fuzzing) { 32 << 10 } else { 72 << 10 };

/// Largest block of LZ4's legacy format, which the kernel uses.
const LZ4_BLOCK: usize = 8 << 20;

/// Stream formats that occur on their own in a file or an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// RFC 1952.
    Gzip,
    /// `.xz`.
    Xz,
    /// `.lzma`: properties, dictionary, size, stream.
    Lzma,
    /// RFC 8878.
    Zstd,
    /// LZ4's legacy format, older than frames, which the kernel still uses.
    Lz4,
}

impl Format {
    /// The format's name in origins.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Lzma => "lzma",
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
        }
    }
}

/// Unpacks the stream at the start of `packed`, and returns its packed length as well.
pub(super) fn decode(
    format: Format,
    packed: &[u8],
    budget: &mut Budget,
) -> Result<(Vec<u8>, usize), Fault> {
    match format {
        Format::Gzip => {
            let mut reader = flate2::bufread::GzDecoder::new(packed);
            let out = drain(&mut reader, |r| packed.len() - r.get_ref().len(), budget)?;
            Ok((out, packed.len() - reader.get_ref().len()))
        }
        Format::Xz => {
            let mut reader = lzma_rust2::XzReader::new_mem_limit(packed, false, DICTIONARY_KIB);
            let out = drain(&mut reader, |r| packed.len() - r.inner().len(), budget)?;
            Ok((out, packed.len() - reader.inner().len()))
        }
        Format::Lzma => {
            let mut reader = lzma_rust2::LzmaReader::new_mem_limit(packed, DICTIONARY_KIB, None)
                .map_err(|e| broken(&e, 0))?;
            let out = drain(&mut reader, |r| packed.len() - r.inner().len(), budget)?;
            let (rest, unused) = reader.into_parts();
            Ok((out, packed.len() - rest.len() - unused.len()))
        }
        Format::Zstd => {
            let mut reader = ruzstd::decoding::StreamingDecoder::new_with_max_window_size(
                packed,
                u64::from(DICTIONARY_KIB) << 10,
            )
            .map_err(|e| broken(&e, 0))?;
            let out = drain(&mut reader, |r| packed.len() - r.get_ref().len(), budget)?;
            Ok((out, packed.len() - reader.get_ref().len()))
        }
        Format::Lz4 => lz4_blocks(packed, budget),
    }
}

/// Unpacks a deflate stream (RFC 1951), as in zip archives.
pub(super) fn deflated(packed: &[u8], budget: &mut Budget) -> Result<Vec<u8>, Fault> {
    let mut reader = flate2::bufread::DeflateDecoder::new(packed);
    drain(&mut reader, |r| packed.len() - r.get_ref().len(), budget)
}

fn broken(why: &dyn std::fmt::Display, out: usize) -> Fault {
    Fault::Broken {
        why: why.to_string(),
        out,
    }
}

/// Reads to the end and checks the budget after each piece. `used` returns the number of packed bytes read
/// so far.
fn drain<R: Read>(
    reader: &mut R,
    used: impl Fn(&R) -> usize,
    budget: &mut Budget,
) -> Result<Vec<u8>, Fault> {
    let mut out = Vec::new();
    let mut piece = vec![0; 64 << 10];
    loop {
        let count = match reader.read(&mut piece) {
            Ok(0) => return Ok(out),
            Ok(count) => count,
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => return Err(broken(&e, out.len())),
        };
        grow(&mut out, &piece[..count], used(reader), budget)?;
    }
}

fn grow(out: &mut Vec<u8>, piece: &[u8], used: usize, budget: &mut Budget) -> Result<(), Fault> {
    budget.unpacked(piece.len())?;
    let size = (out.len() + piece.len()) as u64;
    if size > budget.limits.file {
        return Err(Fault::part(too_large(size, &budget.limits)));
    }
    if budget.is_bomb(size, used as u64) {
        return Err(Fault::part(format!(
            "{size} bytes unpacked from {used}: implausible"
        )));
    }
    out.extend_from_slice(piece);
    Ok(())
}

/// Unpacks blocks that follow their sizes. There is no end mark: the first impossible block ends the stream.
fn lz4_blocks(packed: &[u8], budget: &mut Budget) -> Result<(Vec<u8>, usize), Fault> {
    let mut out = Vec::new();
    let mut at = 4;
    let mut block = Vec::new();
    while let Some(size) = packed.get(at..at + 4) {
        let size = u32::from_le_bytes([size[0], size[1], size[2], size[3]]) as usize;
        let Some(bytes) = packed
            .get(at + 4..)
            .and_then(|rest| rest.get(..size))
            .filter(|b| !b.is_empty())
        else {
            break;
        };
        // Each packed byte gives 255 bytes at most.
        block.resize(LZ4_BLOCK.min(size.saturating_mul(255)), 0);
        let Ok(count) = lz4_flex::block::decompress_into(bytes, &mut block) else {
            budget.unpacked(block.len())?;
            break;
        };
        at += 4 + size;
        grow(&mut out, &block[..count], at, budget)?;
        if count < LZ4_BLOCK {
            break;
        }
    }
    if out.is_empty() {
        return Err(broken(&"it contains no LZ4 block", 0));
    }
    Ok((out, at))
}

/// Unpacks a raw LZMA stream, with or without an end mark, to `most` bytes at most. `size` is the unpacked
/// size, if known. `Err`: the stream is corrupt, not merely cut off.
pub(super) fn lzma_raw(
    packed: &[u8],
    props: u8,
    size: Option<u64>,
    most: usize,
) -> io::Result<Vec<u8>> {
    let dictionary = u32::try_from(most)
        .unwrap_or(u32::MAX)
        .min(DICTIONARY_KIB << 10);
    let size = size.unwrap_or(u64::MAX);
    let mut reader = lzma_rust2::LzmaReader::new_with_props(packed, size, props, dictionary, None)?;
    reader.set_defer_errors(true);
    some(reader, most)
}

/// Reads `most` bytes at most. An early end is an error only if the reader gave nothing.
pub(super) fn some(mut reader: impl Read, most: usize) -> io::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(most.min(1 << 20));
    let mut piece = vec![0; most.clamp(1, 16 << 10)];
    while out.len() < most {
        let left = piece.len().min(most - out.len());
        match reader.read(&mut piece[..left]) {
            Ok(0) => break,
            Ok(count) => out.extend_from_slice(&piece[..count]),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::UnexpectedEof && !out.is_empty() => break,
            Err(e) => return Err(e),
        }
    }
    Ok(out)
}
