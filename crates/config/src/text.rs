//! The text of a configuration file, and hints for its misspelled words.

use std::ops::Deref;
use std::time::Duration;

use zeroize::Zeroizing;

/// The character that replaces bytes that are not UTF-8.
const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;

/// The remedy for a line whose value is not UTF-8.
pub(crate) const NOT_UTF8: &str = "is not valid UTF-8; save the file as UTF-8";

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

/// A hint about what to write instead of `found`: the nearest of `known` if it is near, or else all of them.
pub(crate) fn suggest(found: &str, known: &[&str]) -> String {
    match nearest(found, known) {
        Some(word) => format!("did you mean `{word}`?"),
        None => format!("known are: {}", known.join(", ")),
    }
}

/// The nearest of `known`, if it is near.
pub(crate) fn nearest<'k>(found: &str, known: &[&'k str]) -> Option<&'k str> {
    // Long input is not a typing mistake, and the distance takes quadratic time.
    let found = if found.len() <= 64 { found } else { "" };
    known
        .iter()
        // The distance is at least the difference in length.
        .filter(|word| word.len().abs_diff(found.len()) <= word.len().div_ceil(3))
        .map(|word| {
            (
                distance(&found.to_ascii_lowercase(), &word.to_ascii_lowercase()),
                *word,
            )
        })
        .min()
        // At most a third of the word may be wrong.
        .filter(|(steps, word)| *steps <= word.len().div_ceil(3))
        .map(|(_, word)| word)
}

/// The nearest of `known` that `found` is a misspelling of: one mistake, or two in a word of eight letters or more. Shorter
/// words are near too many others; of three letters, two may be swapped.
#[must_use]
pub fn meant<'k>(found: &str, known: &[&'k str]) -> Option<&'k str> {
    let found = found.to_ascii_lowercase();
    let letters = |word: &str| {
        let mut letters = word.as_bytes().to_vec();
        letters.sort_unstable();
        letters
    };
    let near = |word: &&'k str| {
        let mistakes = 1 + usize::from(word.len() >= 8);
        let is_short = word.len() < 4;
        let fits = match is_short {
            true => word.len() == 3 && letters(&found) == letters(word),
            false => word.len().abs_diff(found.len()) <= mistakes,
        };
        let distance = fits.then(|| distance(&found, word))?;
        (distance <= mistakes).then_some((distance, *word))
    };
    let near = known.iter().filter_map(near);
    near.min_by_key(|it| it.0).map(|it| it.1)
}

/// Smallest number of bytes to insert, remove, replace or swap with a neighbour to turn `a` into `b` (optimal string
/// alignment). Keeps the whole table, as both words are short.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            if i == 0 || j == 0 {
                table[i][j] = i + j;
                continue;
            }
            let replaced = table[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let moved = table[i - 1][j].min(table[i][j - 1]) + 1;
            table[i][j] = replaced.min(moved);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                table[i][j] = table[i][j].min(table[i - 2][j - 2] + 1);
            }
        }
    }
    table[a.len()][b.len()]
}

/// Writes `count / unit` with this many decimal places, rounded. Integers only: the code that formats floating-point
/// numbers takes seven kilobytes of a router's program.
#[must_use]
pub fn decimal(count: u64, unit: u64, places: u32) -> String {
    let (scale, unit) = (10_u64.pow(places), unit.max(1));
    let (whole, rest) = (count / unit, count % unit);
    let rounded = rest.saturating_mul(scale).saturating_add(unit / 2) / unit;
    let (whole, part) = (whole + rounded / scale, rounded % scale);
    format!("{whole}.{part:0width$}", width = places as usize)
}

/// A duration in seconds, with one decimal place.
#[must_use]
pub fn seconds(of: Duration) -> String {
    decimal(of.as_millis() as u64, 1000, 1)
}

/// Text from another program or host, without control characters. Quotation marks and backslashes are harmless and
/// stay.
#[must_use]
pub fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for it in text.chars() {
        match it {
            '\'' | '"' | '\\' => shown.push(it),
            _ => shown.extend(it.escape_debug()),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_rounded_and_never_overflow() {
        for (count, unit, places, text) in [
            (0, 7, 1, "0.0"),
            (349, 1000, 1, "0.3"),
            (350, 1000, 1, "0.4"),
            (999, 1000, 1, "1.0"),
            (1_999_999, 1_000_000, 2, "2.00"),
            (1536, 1024, 2, "1.50"),
            (5, 0, 2, "5.00"),
            (u64::MAX, 1, 2, "18446744073709551615.00"),
        ] {
            assert_eq!(decimal(count, unit, places), text, "{count} / {unit}");
        }
        assert!(decimal(u64::MAX - 1, u64::MAX, 2).starts_with("0."));
    }

    #[test]
    fn what_is_no_utf8_is_marked_and_what_is_no_text_refused() {
        let text = Text::new(b"a \xe9\nb\n").ok().unwrap();
        assert_eq!(&*text, "a \u{fffd}\nb\n");
        assert!(text.is_mended("a \u{fffd}") && !text.is_mended("b"));
        let text = Text::new("a \u{fffd}".as_bytes()).ok().unwrap();
        assert!(!text.is_mended("a \u{fffd}"));
        assert!(matches!(Text::new(b"a\n\xff\0"), Err(2)));
    }

    #[test]
    fn near_words_are_named_and_far_ones_listed() {
        assert_eq!(
            suggest("ListenPrt", &["ListenPort", "MTU"]),
            "did you mean `ListenPort`?"
        );
        assert_eq!(suggest("zzzzz", &["a", "b"]), "known are: a, b");
        assert_eq!(suggest(&"x".repeat(100_000), &["abc"]), "known are: abc");
    }

    #[test]
    fn distances() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("gos", "gso"), 1);
        assert_eq!(distance("same", "same"), 0);
    }

    #[test]
    fn text_of_others_moves_no_cursor_and_keeps_its_quotation_marks() {
        for (text, wanted) in [
            ("the peer's \"net\"", "the peer's \"net\""),
            (r"DOMAIN\user", r"DOMAIN\user"),
            ("Zürich", "Zürich"),
            ("\u{1b}[2Jx\n", r"\u{1b}[2Jx\n"),
            ("a\u{202e}b", r"a\u{202e}b"),
        ] {
            assert_eq!(shown(text), wanted);
        }
    }
}
