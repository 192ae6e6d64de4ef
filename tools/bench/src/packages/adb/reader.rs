//! Reads the values of an ADB. Each value is at the offset in its word, within the payload.

use super::{HEADER, tag};
use thiserror::Error;

/// Maximum number of slots of an array.
const MOST_SLOTS: usize = 20_000;

/// Why a value cannot be read.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum ValueError {
    /// The payload is too short, or of a newer version.
    #[error("ADB: a payload of another version, or none")]
    Header,
    /// The value is of another kind.
    #[error("ADB: word {0:#010x} is of another kind")]
    Kind(u32),
    /// The value is beyond the end of the payload, or not aligned.
    #[error("ADB: word {0:#010x} refers to where nothing can stand")]
    Place(u32),
    /// An array has too many slots.
    #[error("ADB: word {0:#010x} has more than {MOST_SLOTS} slots")]
    Many(u32),
}

/// A payload to read values from.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    payload: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads the payload of an ADB block.
    ///
    /// # Errors
    /// When the header is not a known one.
    pub fn new(payload: &'a [u8]) -> Result<Self, ValueError> {
        match payload.get(..HEADER) {
            Some([0, 0, ..]) => Ok(Self { payload }),
            _ => Err(ValueError::Header),
        }
    }

    /// Returns the word of the root.
    #[must_use]
    pub fn root(self) -> u32 {
        self.u32_at(4).unwrap_or_default()
    }

    /// Reads a number.
    ///
    /// # Errors
    /// When the value is not a number.
    pub fn int(self, word: u32) -> Result<u64, ValueError> {
        let value = match word >> 28 {
            tag::INT => return Ok(u64::from(word & 0x0fff_ffff)),
            tag::INT_32 => self.u32_at(offset(word)?).map(u64::from),
            tag::INT_64 => {
                let at = offset(word)?;
                let low = self.u32_at(at).map(u64::from);
                let high = self.u32_at(at + 4).map(u64::from);
                low.zip(high).map(|(low, high)| high << 32 | low)
            }
            _ => return Err(ValueError::Kind(word)),
        };
        value.ok_or(ValueError::Place(word))
    }

    /// Reads a blob; empty for null.
    ///
    /// # Errors
    /// When the value is of another kind or outside the payload.
    pub fn blob(self, word: u32) -> Result<&'a [u8], ValueError> {
        let width = match word >> 28 {
            tag::SPECIAL if word == 0 => return Ok(&[]),
            tag::BLOB_8 => 1,
            tag::BLOB_16 => 2,
            tag::BLOB_32 => 4,
            _ => return Err(ValueError::Kind(word)),
        };
        let at = (word & 0x0fff_ffff) as usize;
        if !at.is_multiple_of(width) {
            return Err(ValueError::Place(word));
        }
        let length = self
            .payload
            .get(at..at + width)
            .ok_or(ValueError::Place(word))?;
        let length = length
            .iter()
            .rev()
            .fold(0_usize, |sum, &it| sum << 8 | usize::from(it));
        let begin = at + width;
        let end = begin.checked_add(length).ok_or(ValueError::Place(word))?;
        self.payload.get(begin..end).ok_or(ValueError::Place(word))
    }

    /// Reads the words of an array; empty for null.
    ///
    /// # Errors
    /// When the value is of another kind, too long or outside the payload.
    pub fn array(self, word: u32) -> Result<Vec<u32>, ValueError> {
        self.slots(tag::ARRAY, word)
    }

    /// Reads the words of an object, which [`Self::slot`] numbers from 1; empty for null.
    ///
    /// # Errors
    /// The errors of [`Self::array`].
    pub fn object(self, word: u32) -> Result<Vec<u32>, ValueError> {
        self.slots(tag::OBJECT, word)
    }

    /// Returns a slot of an object by its number from 1; null beyond the object's end.
    #[must_use]
    pub fn slot(object: &[u32], number: usize) -> u32 {
        object.get(number - 1).copied().unwrap_or_default()
    }

    fn slots(self, kind: u32, word: u32) -> Result<Vec<u32>, ValueError> {
        if word == 0 {
            return Ok(Vec::new());
        }
        if word >> 28 != kind {
            return Err(ValueError::Kind(word));
        }
        let at = offset(word)?;
        let count = self.u32_at(at).ok_or(ValueError::Place(word))? as usize;
        if count > MOST_SLOTS {
            return Err(ValueError::Many(word));
        }
        let slots = (1..count).map(|slot| self.u32_at(at + 4 * slot));
        slots
            .collect::<Option<Vec<u32>>>()
            .ok_or(ValueError::Place(word))
    }

    fn u32_at(self, at: usize) -> Option<u32> {
        let bytes = self.payload.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }
}

/// Returns the offset in a word, which must be aligned to 4.
fn offset(word: u32) -> Result<usize, ValueError> {
    let at = (word & 0x0fff_ffff) as usize;
    if at.is_multiple_of(4) {
        Ok(at)
    } else {
        Err(ValueError::Place(word))
    }
}
