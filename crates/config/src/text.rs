//! Decodes the bytes of a configuration file.

use std::ops::Deref;

use zeroize::Zeroizing;

/// The character that replaces bytes that are not UTF-8.
const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;

/// The remedy for a line whose value is not UTF-8.
pub(crate) const NOT_UTF8: &str = "has characters that are not UTF-8; save the file as UTF-8";

/// The text of a file.
pub(crate) enum Text<'a> {
    /// The file is UTF-8.
    Whole(&'a str),
    /// The file is partly not UTF-8, as old editors write it: U+FFFD replaces those bytes. This is harmless in a
    /// comment, but changes a value anywhere else.
    Mended(Zeroizing<String>),
}

impl<'a> Text<'a> {
    /// Decodes the bytes of a file.
    ///
    /// # Errors
    /// The line, counted from 1, of the first byte that no text has: the file is not text.
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, usize> {
        if let Ok(text) = std::str::from_utf8(bytes) {
            return Ok(Self::Whole(text));
        }
        if let Some(at) = bytes.iter().position(|&byte| byte == 0) {
            return Err(1 + bytes[..at].iter().filter(|&&byte| byte == b'\n').count());
        }
        // Reserve the size first: a string that grows leaves copies of the keys behind.
        let chunks = || bytes.utf8_chunks();
        let more = chunks().count() * REPLACEMENT.len_utf8();
        let mut text = Zeroizing::new(String::with_capacity(bytes.len() + more));
        for chunk in chunks() {
            text.push_str(chunk.valid());
            if !chunk.invalid().is_empty() {
                text.push(REPLACEMENT);
            }
        }
        Ok(Self::Mended(text))
    }

    /// Whether this part of the text contains replaced bytes.
    pub(crate) fn is_mended(&self, part: &str) -> bool {
        matches!(self, Self::Mended(_)) && part.contains(REPLACEMENT)
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Whole(text) => text,
            Self::Mended(text) => text,
        }
    }
}

/// The line, counted from 1, of the byte at `offset`.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().iter().take(offset);
    1 + before.filter(|&&byte| byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_utf8_is_marked_and_what_is_no_text_refused() {
        let text = Text::new(b"a \xe9\nb\n").ok().unwrap();
        assert_eq!(&*text, "a \u{fffd}\nb\n");
        assert!(text.is_mended("a \u{fffd}") && !text.is_mended("b"));
        let text = Text::new("a \u{fffd}".as_bytes()).ok().unwrap();
        assert!(!text.is_mended("a \u{fffd}"));
        assert!(matches!(Text::new(b"a\n\xff\0"), Err(2)));
    }
}
