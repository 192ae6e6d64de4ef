//! Text fields of a fixed size.

use core::fmt;

/// `N` bytes of text, padded with zeros (RFC 2637, section 2.1: "Host Name", "Vendor String" and others).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text<const N: usize>(pub [u8; N]);

impl<const N: usize> Text<N> {
    /// The first bytes of `text` that leave room for a closing zero, which readers in C expect.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut bytes = [0; N];
        let len = text.len().min(N.saturating_sub(1));
        bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
        Self(bytes)
    }

    /// The text before the first zero, without characters that could upset a terminal or a log.
    #[must_use]
    pub fn printable(&self) -> String {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(N);
        String::from_utf8_lossy(&self.0[..end])
            .chars()
            .filter(|character| !character.is_control())
            .collect()
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.printable())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_and_ends_with_zero() {
        let text = Text::<4>::new("abcdef");
        assert_eq!(text.0, *b"abc\0");
        assert_eq!(text.printable(), "abc");
    }

    #[test]
    fn what_is_no_text_prints_without_control_characters() {
        assert_eq!(Text(*b"a\x1b[2J\xff").printable(), "a[2J\u{fffd}");
    }
}
