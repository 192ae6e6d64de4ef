//! The strings of a record: a length, the bytes, a NUL.

use crate::key_method::{KeyMethodError, RECORD_MAX, TooLongToSend};

/// Why reading ended early.
pub(super) enum Stop {
    Incomplete,
    Bad(KeyMethodError),
}

impl From<KeyMethodError> for Stop {
    fn from(error: KeyMethodError) -> Self {
        Self::Bad(error)
    }
}

/// A string of a record.
pub(super) enum Text<'a> {
    /// The bytes, without the NUL.
    Fits(&'a [u8]),
    /// The length, with the NUL.
    TooLong(usize),
}

/// Reads a record from its front.
pub(super) struct Reader<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], Stop> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Stop::Incomplete)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// Reads a string, up to its first NUL. A string that is too long is skipped.
    pub(super) fn string(&mut self, max: usize) -> Result<Text<'a>, Stop> {
        let len = usize::from(u16::from_be_bytes(self.array()?));
        if len > max {
            // A string that no record can hold is refused before it is waited for.
            self.take(len.min(RECORD_MAX))?;
            return Ok(Text::TooLong(len));
        }
        let bytes = self.take(len)?;
        let end = bytes
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or_else(|| len.saturating_sub(1));
        Ok(Text::Fits(&bytes[..end.min(len)]))
    }
}

/// Appends a string; `max` counts its NUL and is below 65536.
pub(super) fn put_string(
    out: &mut Vec<u8>,
    field: &'static str,
    text: &[u8],
    max: usize,
) -> Result<(), TooLongToSend> {
    let len = text.len() + 1;
    if len > max {
        return Err(TooLongToSend { field, len, max });
    }
    // `max` is below 65536.
    out.extend_from_slice(&(len as u16).to_be_bytes());
    out.extend_from_slice(text);
    out.push(0);
    Ok(())
}
