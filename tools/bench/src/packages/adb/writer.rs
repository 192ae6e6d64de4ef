//! Writes the values of an ADB.

use super::{HEADER, REACH, tag};
use std::collections::HashMap;

/// The word of an absent value.
pub const NULL: u32 = 0;

/// The payload so far. Values precede the words that refer to them; the root comes last.
#[derive(Debug)]
pub struct Writer {
    payload: Vec<u8>,
    /// Offsets of the bytes written so far, to share equal ones.
    known: HashMap<Vec<u8>, usize>,
}

impl Default for Writer {
    fn default() -> Self {
        Self {
            payload: vec![0; HEADER],
            known: HashMap::new(),
        }
    }
}

impl Writer {
    /// Writes a number and returns its word.
    pub fn int(&mut self, value: u64) -> u32 {
        match u32::try_from(value) {
            Ok(small) if small < 1 << 28 => word(tag::INT, small as usize),
            Ok(value) => word(tag::INT_32, self.place(&value.to_le_bytes(), 4)),
            Err(_) => word(tag::INT_64, self.place(&value.to_le_bytes(), 4)),
        }
    }

    /// Writes a blob and returns its word; null if it is empty.
    pub fn blob(&mut self, bytes: &[u8]) -> u32 {
        let Some((kind, alignment, bytes)) = with_length(bytes) else {
            return NULL;
        };
        word(kind, self.place(&bytes, alignment))
    }

    /// Writes a blob that is not shared with equal ones, because it is overwritten later.
    pub fn own_blob(&mut self, bytes: &[u8]) -> u32 {
        let Some((kind, alignment, bytes)) = with_length(bytes) else {
            return NULL;
        };
        word(kind, self.append(&bytes, alignment))
    }

    /// Writes an array of values of one kind.
    pub fn array(&mut self, words: &[u32]) -> u32 {
        self.slots(tag::ARRAY, words)
    }

    /// Writes an object from its slots, which count from 1.
    pub fn object(&mut self, words: &[u32]) -> u32 {
        self.slots(tag::OBJECT, words)
    }

    /// Returns the payload with its root; `None` if it is too large for the offset in a word.
    #[must_use]
    pub fn finish(mut self, root: u32) -> Option<Vec<u8>> {
        self.payload[4..8].copy_from_slice(&root.to_le_bytes());
        (self.payload.len() < REACH).then_some(self.payload)
    }

    /// Writes slots without the nulls at the end; an object of nulls only is null itself.
    fn slots(&mut self, kind: u32, words: &[u32]) -> u32 {
        let Some(last) = words.iter().rposition(|&it| it != NULL) else {
            return NULL;
        };
        let count = last as u32 + 2;
        let bytes: Vec<u8> = [count]
            .iter()
            .chain(&words[..=last])
            .flat_map(|it| it.to_le_bytes())
            .collect();
        word(kind, self.place(&bytes, 4))
    }

    fn place(&mut self, bytes: &[u8], alignment: usize) -> usize {
        match self.known.get(bytes) {
            Some(&at) if at.is_multiple_of(alignment) => at,
            _ => {
                let at = self.append(bytes, alignment);
                self.known.insert(bytes.to_vec(), at);
                at
            }
        }
    }

    fn append(&mut self, bytes: &[u8], alignment: usize) -> usize {
        let at = self.payload.len().next_multiple_of(alignment);
        self.payload.resize(at, 0);
        self.payload.extend_from_slice(bytes);
        at
    }
}

/// The tag, the alignment, and the length followed by the bytes.
fn with_length(bytes: &[u8]) -> Option<(u32, usize, Vec<u8>)> {
    let length = bytes.len();
    let (kind, alignment) = match length {
        0 => return None,
        1..=0xff => (tag::BLOB_8, 1),
        0x100..=0xffff => (tag::BLOB_16, 2),
        _ => (tag::BLOB_32, 4),
    };
    let length = (length as u64).to_le_bytes();
    Some((kind, alignment, [&length[..alignment], bytes].concat()))
}

/// Builds a word, cutting the value to 28 bits. [`Writer::finish`] checks that no value was cut.
fn word(kind: u32, value: usize) -> u32 {
    kind << 28 | (value & (REACH - 1)) as u32
}
