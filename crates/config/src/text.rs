//! The bytes of a configuration file as text.

use std::ops::Deref;

use zeroize::Zeroizing;

/// The character that stands for bytes that are not UTF-8.
const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;

/// The remedy for a line with such bytes in a value.
pub(crate) const NOT_UTF8: &str = "has characters that are not UTF-8; save the file as UTF-8";

/// A file's text.
pub(crate) enum Text<'a> {
    /// It is UTF-8.
    Whole(&'a str),
    /// Somewhere it is not, as files of old editors are: U+FFFD stands there. That does no harm in
    /// a comment, and would be another value anywhere else.
    Mended(Zeroizing<String>),
}

impl<'a> Text<'a> {
    /// Takes the bytes of a file.
    ///
    /// # Errors
    /// The line, counted from 1, of the first byte that no text has: the file is something else.
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, usize> {
        if let Ok(text) = std::str::from_utf8(bytes) {
            return Ok(Self::Whole(text));
        }
        if let Some(at) = bytes.iter().position(|&byte| byte == 0) {
            return Err(1 + bytes[..at].iter().filter(|&&byte| byte == b'\n').count());
        }
        // Reserved beforehand: a string that grows leaves copies of the keys behind.
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

    /// Whether this part of the text is not what the file says.
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

/// The line, counted from 1, that the byte at `offset` is in.
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
