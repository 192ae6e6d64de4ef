//! A reader that limits how much is copied. Many words may refer to one value, so a small file could otherwise fill
//! all memory.

use super::ApkError;
use crate::adb::{Reader, ValueError};

/// The most bytes of a text or a script.
pub(crate) const LONGEST: usize = 64 << 10;
/// Limit for all values of a file together, in bytes: several times OpenWrt's largest index.
const MOST: usize = 64 << 20;
/// Cost of a text besides its bytes, since even an empty text takes memory.
const TEXT: usize = 32;

/// Reads the values of one file, up to a total of [`MOST`].
#[derive(Debug)]
pub(crate) struct Limited<'a> {
    reader: Reader<'a>,
    left: usize,
}

impl<'a> Limited<'a> {
    /// Makes a reader of one file.
    pub(crate) fn new(reader: Reader<'a>) -> Self {
        let left = MOST;
        Self { reader, left }
    }

    /// Reads a number; see [`Reader::int`].
    pub(crate) fn int(&self, word: u32) -> Result<u64, ValueError> {
        self.reader.int(word)
    }

    /// Reads an array; see [`Reader::array`].
    pub(crate) fn array(&mut self, word: u32) -> Result<Vec<u32>, ApkError> {
        let words = self.reader.array(word)?;
        self.take(size_of_val(words.as_slice()))?;
        Ok(words)
    }

    /// Reads an object; see [`Reader::object`].
    pub(crate) fn object(&mut self, word: u32) -> Result<Vec<u32>, ApkError> {
        let words = self.reader.object(word)?;
        self.take(size_of_val(words.as_slice()))?;
        Ok(words)
    }

    /// Reads a blob of at most [`LONGEST`] bytes; see [`Reader::blob`].
    pub(crate) fn blob(&mut self, word: u32) -> Result<&'a [u8], ApkError> {
        let bytes = self.reader.blob(word)?;
        if bytes.len() > LONGEST {
            return Err(ApkError::Content("a text of more than 64 KiB"));
        }
        self.take(bytes.len() + TEXT)?;
        Ok(bytes)
    }

    /// Reads a blob as a text.
    pub(crate) fn text(&mut self, word: u32) -> Result<&'a str, ApkError> {
        str::from_utf8(self.blob(word)?).map_err(|_| ApkError::Content("a text that is none"))
    }

    fn take(&mut self, size: usize) -> Result<(), ApkError> {
        let left = self.left.checked_sub(size);
        self.left = left.ok_or(ApkError::Content("more than 64 MiB of texts"))?;
        Ok(())
    }
}
