//! The file around an ADB: a schema and blocks, either plain or deflated.

use crate::packages::compress::{self, UnpackError};
use std::io;
use thiserror::Error;

/// Schema of a package.
pub const PACKAGE: [u8; 4] = *b"pckg";
/// Schema of an index.
pub const INDEX: [u8; 4] = *b"indx";

const PLAIN: &[u8] = b"ADB.";
const DEFLATED: &[u8] = b"ADBd";
/// Blocks are aligned to this many bytes, counted from the first block.
const ALIGNMENT: usize = 8;
/// Maximum number of blocks: one for each file, and a few others.
const MOST_BLOCKS: usize = 20_000;

/// The content of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block<'a> {
    /// A signature of the ADB.
    Signature(&'a [u8]),
    /// The content of a file in a package.
    Data(&'a [u8]),
}

/// Why bytes are not a valid ADB file.
#[derive(Debug, Error)]
pub enum ContainerError {
    /// The file has another format.
    #[error("not an ADB file")]
    Magic,
    /// The ADB has another schema.
    #[error("an ADB file of another schema")]
    Schema,
    /// The file cannot be unpacked.
    #[error("{0}")]
    Unpack(#[from] UnpackError),
    /// A block is not allowed at its position.
    #[error("ADB: block {0}: {1}")]
    Block(usize, &'static str),
}

/// The unpacked content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    schema: [u8; 4],
    /// The blocks, without the schema.
    bytes: Vec<u8>,
}

impl Container {
    /// Starts a file with an ADB block.
    #[must_use]
    pub fn new(schema: [u8; 4], payload: &[u8]) -> Self {
        let bytes = Vec::new();
        let mut container = Self { schema, bytes };
        container.push(0, &[payload]);
        container
    }

    /// Adds a block. Signatures come before data.
    pub fn add(&mut self, block: &Block<'_>) {
        match block {
            Block::Signature(bytes) => self.push(1, &[bytes]),
            Block::Data(bytes) => self.push(2, &[bytes]),
        }
    }

    fn push(&mut self, kind: u32, payload: &[&[u8]]) {
        let length: usize = payload.iter().map(|it| it.len()).sum();
        // 30 bits suffice: packages are far below a gigabyte.
        let size = (length + 4) as u32 & 0x3fff_ffff;
        self.bytes
            .extend_from_slice(&(kind << 30 | size).to_le_bytes());
        for part in payload {
            self.bytes.extend_from_slice(part);
        }
        let end = self.bytes.len().next_multiple_of(ALIGNMENT);
        self.bytes.resize(end, 0);
    }

    /// Writes the file, deflated.
    ///
    /// # Errors
    /// Never in practice: writing to a vector does not fail.
    pub fn write(&self) -> io::Result<Vec<u8>> {
        let plain = [PLAIN, &self.schema, &self.bytes].concat();
        Ok([DEFLATED, &compress::deflate(&plain)?].concat())
    }

    /// Reads a plain or deflated file of the given schema.
    ///
    /// # Errors
    /// When the file is invalid. [`Self::blocks`] checks the blocks.
    pub fn read(bytes: &[u8], schema: [u8; 4]) -> Result<Self, ContainerError> {
        let plain = match bytes.strip_prefix(DEFLATED) {
            Some(deflated) => compress::inflate(deflated)?,
            None => bytes.to_vec(),
        };
        let rest = plain.strip_prefix(PLAIN).ok_or(ContainerError::Magic)?;
        let bytes = rest.strip_prefix(&schema).ok_or(ContainerError::Schema)?;
        let bytes = bytes.to_vec();
        Ok(Self { schema, bytes })
    }

    /// Returns the payload of the ADB and the blocks after it.
    ///
    /// # Errors
    /// When the first block is not an ADB, or blocks are out of order or exceed the file.
    pub fn blocks(&self) -> Result<(&[u8], Vec<Block<'_>>), ContainerError> {
        let mut payload = None;
        let mut blocks = Vec::new();
        let mut at = 0;
        while at < self.bytes.len() {
            let number = blocks.len();
            let wrong = move |what| ContainerError::Block(number, what);
            if number >= MOST_BLOCKS {
                return Err(wrong("one too many"));
            }
            let head = self.bytes.get(at..at + 4).ok_or_else(|| wrong("it ends"))?;
            let head = u32::from_le_bytes(head.try_into().map_err(|_| wrong("it ends"))?);
            let size = (head & 0x3fff_ffff) as usize;
            let content = self
                .bytes
                .get(at + 4..at + size)
                .ok_or_else(|| wrong("a size beyond the end"))?;
            let next = (at + size).next_multiple_of(ALIGNMENT);
            let padding = self
                .bytes
                .get(at + size..next)
                .ok_or_else(|| wrong("no padding"))?;
            if padding.iter().any(|&it| it != 0) {
                return Err(wrong("something in the padding"));
            }
            match (head >> 30, payload, blocks.last()) {
                (0, None, None) => payload = Some(content),
                (1, Some(_), None | Some(Block::Signature(_))) => {
                    blocks.push(Block::Signature(content));
                }
                (2, Some(_), _) => blocks.push(Block::Data(content)),
                _ => return Err(wrong("a kind that cannot stand there")),
            }
            at = next;
        }
        let payload = payload.ok_or(ContainerError::Block(0, "no ADB"))?;
        Ok((payload, blocks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(payload in proptest::collection::vec(any::<u8>(), 0..50), data in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 0..4)) {
            let mut container = Container::new(PACKAGE, &payload);
            container.add(&Block::Signature(b"signature"));
            for bytes in &data {
                container.add(&Block::Data(bytes));
            }
            let read = Container::read(&container.write().unwrap(), PACKAGE).unwrap();
            let (found, blocks) = read.blocks().unwrap();
            prop_assert_eq!(found, payload);
            let expected: Vec<Block<'_>> = [Block::Signature(b"signature")].into_iter().chain(data.iter().map(|it| Block::Data(it))).collect();
            prop_assert_eq!(blocks, expected);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = Container::read(&bytes, PACKAGE);
            let plain = [&b"ADB.pckg"[..], &bytes].concat();
            let _ = Container::read(&plain, PACKAGE).unwrap().blocks();
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let mut container = Container::new(INDEX, &[1, 2, 3]);
        container.add(&Block::Data(&[9; 4]));
        let plain = compress::inflate(&container.write().unwrap()[4..]).unwrap();
        assert_eq!(
            plain,
            *b"ADB.indx\x07\0\0\0\x01\x02\x03\0\x08\0\0\x80\x09\x09\x09\x09"
        );
        assert!(matches!(
            Container::read(&plain, PACKAGE),
            Err(ContainerError::Schema)
        ));
    }
}
