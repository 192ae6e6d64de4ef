//! Compressed blocks of squashfs. The superblock of 4.0 names the compressor. No field names a vendor's
//! form of LZMA; the decoder finds it by trying the forms on the first block of a table.

use super::superblock::{METADATA, Superblock};
use crate::bytes::LITTLE;
use crate::unpack::budget::{Budget, Fault};
use crate::unpack::decompress;

/// One block of a table, as it lies in the image.
pub(super) struct TableBlock<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) packed: bool,
    /// Offset of the data after the block.
    pub(super) end: u64,
}

impl<'a> TableBlock<'a> {
    /// The block at offset `at` of the image.
    pub(super) fn at(image: &'a [u8], superblock: &Superblock, at: u64) -> Option<Self> {
        let at = usize::try_from(at).ok()?;
        let head = superblock.order.u16(image, at)?;
        let length = usize::from(head & 0x7fff);
        let start = at + 2 + usize::from(superblock.marker);
        // Limit: a stored block of 8 KiB, plus the most that a compressor may add.
        if length > METADATA + 64 {
            return None;
        }
        let bytes = image.get(start..start + length)?;
        Some(Self {
            bytes,
            packed: head & 0x8000 == 0,
            end: (start + length) as u64,
        })
    }
}

/// Where a vendor's LZMA streams keep their properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The layout of `.lzma`: properties, dictionary, size, stream.
    Alone,
    /// Properties and dictionary, then the stream.
    Short,
    /// Not in the stream: use these `props`, after `skip` bytes of other data.
    Fixed { props: u8, skip: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Codec {
    Zlib,
    Lzma(Form),
    Xz,
    Lz4,
    Zstd,
    Unknown(&'static str),
}

/// Unpacks the blocks of one image.
pub(super) struct Decoder {
    codec: Codec,
}

/// Maximum number of bytes that may precede a stream without stored properties.
const MOST_SKIPPED: usize = 10;

impl Decoder {
    pub(super) fn new(superblock: &Superblock) -> Self {
        let codec = match superblock.compression {
            1 => Codec::Zlib,
            2 => Codec::Lzma(Form::Alone),
            3 => Codec::Unknown("lzo"),
            4 => Codec::Xz,
            5 => Codec::Lz4,
            6 => Codec::Zstd,
            _ => Codec::Unknown("an unknown compressor"),
        };
        Self { codec }
    }

    /// The compressor's name in origins.
    pub(super) fn name(&self) -> &'static str {
        match self.codec {
            Codec::Zlib => "gzip",
            Codec::Lzma(_) => "lzma",
            Codec::Xz => "xz",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
            Codec::Unknown(name) => name,
        }
    }

    /// Determines the real compressor from the first block of the inodes. 3.x and vendors' 4.0 declare gzip
    /// (or nothing) and use LZMA of some form.
    pub(super) fn settle(
        &mut self,
        image: &[u8],
        superblock: &Superblock,
        budget: &mut Budget,
    ) -> Result<(), Fault> {
        if let Codec::Unknown(name) = self.codec {
            return Err(Fault::part(format!(
                "compressed with {name}, which is not unpacked"
            )));
        }
        // Stored blocks do not reveal the compressor, so try the directories if the inodes are stored.
        let mut tried = false;
        for table in [superblock.inode_table, superblock.directory_table] {
            let block = TableBlock::at(image, superblock, table)
                .ok_or_else(|| Fault::part("it ends before its tables"))?;
            if !block.packed {
                continue;
            }
            tried = true;
            if self
                .unpack(block.bytes, METADATA)
                .is_ok_and(|out| !out.is_empty())
            {
                return Ok(());
            }
            if !matches!(self.codec, Codec::Zlib | Codec::Lzma(_)) {
                break;
            }
            if let Some(form) = find_form(block.bytes, budget)? {
                self.codec = Codec::Lzma(form);
                return Ok(());
            }
        }
        if tried {
            Err(Fault::part(
                "none of the known compressors unpacks its tables",
            ))
        } else {
            Ok(())
        }
    }

    /// Unpacks a block, to `most` bytes at most.
    pub(super) fn unpack(&self, packed: &[u8], most: usize) -> Result<Vec<u8>, String> {
        let words = |e: std::io::Error| e.to_string();
        match self.codec {
            Codec::Zlib => {
                decompress::some(flate2::bufread::ZlibDecoder::new(packed), most).map_err(words)
            }
            Codec::Lzma(form) => lzma(form, packed, most).map_err(words),
            Codec::Xz => {
                // A block's dictionary is no larger than the block, so this limit suffices.
                let reader = lzma_rust2::XzReader::new_mem_limit(packed, false, 4 << 10);
                decompress::some(reader, most).map_err(words)
            }
            Codec::Lz4 => {
                let mut out = vec![0; most];
                let count = lz4_flex::block::decompress_into(packed, &mut out)
                    .map_err(|e| e.to_string())?;
                out.truncate(count);
                Ok(out)
            }
            Codec::Zstd => {
                let reader =
                    ruzstd::decoding::StreamingDecoder::new_with_max_window_size(packed, 8 << 20)
                        .map_err(|e| e.to_string())?;
                decompress::some(reader, most).map_err(words)
            }
            Codec::Unknown(name) => Err(name.to_owned()),
        }
    }
}

fn lzma(form: Form, packed: &[u8], most: usize) -> std::io::Result<Vec<u8>> {
    let (props, skip) = match form {
        Form::Alone => (packed.first().copied(), 13),
        Form::Short => (packed.first().copied(), 5),
        Form::Fixed { props, skip } => (Some(props), skip),
    };
    let (Some(props), Some(stream)) = (props, packed.get(skip..)) else {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    };
    let size = match form {
        Form::Alone => LITTLE.u64(packed, 5),
        _ => None,
    };
    decompress::lzma_raw(
        stream,
        props,
        size.filter(|size| *size <= most as u64),
        most,
    )
}

/// Tries the forms of LZMA on the block of a table. With wrong properties a stream soon refers to bytes
/// never written, so a form that decodes to the end is correct.
fn find_form(packed: &[u8], budget: &mut Budget) -> Result<Option<Form>, Fault> {
    let ordinary = 0x5d;
    let mut forms = vec![Form::Alone, Form::Short];
    for skip in 0..=MOST_SKIPPED {
        // The range coder's first byte is always 0.
        if packed.get(skip) == Some(&0) {
            forms.push(Form::Fixed {
                props: ordinary,
                skip,
            });
        }
    }
    for skip in 0..=MOST_SKIPPED {
        if packed.get(skip) != Some(&0) {
            continue;
        }
        for (lc, lp, pb) in (0..=4)
            .flat_map(|lc| (0..=4 - lc).flat_map(move |lp| (0..=4).map(move |pb| (lc, lp, pb))))
        {
            let props = (pb * 5 + lp) * 9 + lc;
            if props != ordinary {
                forms.push(Form::Fixed { props, skip });
            }
        }
    }
    for form in forms {
        budget.unpacked(METADATA)?;
        if lzma(form, packed, METADATA).is_ok_and(|out| out.len() >= packed.len().min(METADATA)) {
            return Ok(Some(form));
        }
    }
    Ok(None)
}
