//! Splits pppd's files into words: separated by white space, grouped by quotes, with escapes as in C; `#` begins a
//! comment.

use zeroize::Zeroizing;

/// Longest word, in bytes, as in pppd, which cuts longer ones.
const WORD_MAX: usize = 1023;

/// A word of a file, with its quotes removed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Word {
    /// The word without quotes and escapes; perhaps a secret.
    pub(super) text: Zeroizing<String>,
    /// The line on which the word begins, counted from 1.
    pub(super) line: usize,
    /// Whether the word is the first on its line.
    pub(super) first: bool,
}

/// Why a text cannot be split, with the line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fault {
    /// A word is longer than pppd accepts.
    TooLong(usize),
    /// A quotation mark is not closed.
    Unended(usize),
    /// Escapes yield bytes that are not UTF-8.
    NotText(usize),
}

impl Fault {
    /// The line and the fault in words.
    pub(super) const fn describe(self) -> (usize, &'static str) {
        match self {
            Self::TooLong(line) => (line, "a word is longer than 1023 bytes"),
            Self::Unended(line) => (line, "a quotation mark has no second one"),
            Self::NotText(line) => (line, "escapes give characters that are not UTF-8"),
        }
    }
}

/// A position in a text.
struct Reader<'t> {
    bytes: &'t [u8],
    at: usize,
    line: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        self.line += usize::from(byte == b'\n');
        Some(byte)
    }

    /// Skips to the next word. Returns whether a line ended in between, or `None` at the end of the text.
    fn skip(&mut self) -> Option<bool> {
        let mut ended = false;
        loop {
            match self.peek()? {
                b'\\' if self.bytes.get(self.at + 1) == Some(&b'\n') => {
                    self.at += 2;
                    self.line += 1;
                }
                b'#' => {
                    while self.peek().is_some_and(|byte| byte != b'\n') {
                        self.at += 1;
                    }
                }
                byte if is_space(byte) => {
                    ended |= byte == b'\n';
                    self.next();
                }
                _ => return Some(ended),
            }
        }
    }

    /// Reads up to `most` digits of a number, and returns its lowest eight bits.
    fn number(&mut self, radix: u32, most: usize) -> u8 {
        let mut value = 0_u32;
        for _ in 0..most {
            let Some(digit) = self
                .peek()
                .and_then(|byte| char::from(byte).to_digit(radix))
            else {
                break;
            };
            value = value * radix + digit;
            self.at += 1;
        }
        value as u8
    }

    /// Reads an escape and returns its byte; `None` if it yields no byte.
    fn escape(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        if (b'0'..b'8').contains(&byte) {
            return Some(self.number(8, 3));
        }
        self.next();
        match byte {
            b'\n' => None,
            b'a' => Some(7),
            b'b' => Some(8),
            b'f' => Some(12),
            b'n' => Some(b'\n'),
            b'r' => Some(b'\r'),
            b's' => Some(b' '),
            b't' => Some(b'\t'),
            b'x' => Some(self.number(16, 2)),
            other => Some(other),
        }
    }

    fn word(&mut self) -> Result<Zeroizing<String>, Fault> {
        let line = self.line;
        // Reserve the size first: a buffer that grows leaves copies of a secret behind.
        let mut word = Zeroizing::new(Vec::with_capacity(WORD_MAX + 1));
        let mut quote = None;
        while let Some(byte) = self.peek() {
            let stored = match (byte, quote) {
                (b'\\', _) => {
                    self.at += 1;
                    self.escape()
                }
                (byte, Some(quoted)) if byte == quoted => {
                    self.at += 1;
                    quote = None;
                    None
                }
                (b'"' | b'\'', None) => {
                    self.at += 1;
                    quote = Some(byte);
                    None
                }
                (byte, None) if is_space(byte) || byte == b'#' => break,
                (byte, _) => {
                    self.next();
                    Some(byte)
                }
            };
            word.extend(stored);
            if word.len() > WORD_MAX {
                return Err(Fault::TooLong(line));
            }
        }
        if quote.is_some() {
            return Err(Fault::Unended(line));
        }
        let text = std::str::from_utf8(&word).map_err(|_| Fault::NotText(line))?;
        Ok(Zeroizing::new(text.to_owned()))
    }
}

/// White space as in C.
const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// The words of a text.
pub(super) fn words(text: &str) -> Result<Vec<Word>, Fault> {
    let mut reader = Reader {
        bytes: text.as_bytes(),
        at: 0,
        line: 1,
    };
    let mut words = Vec::new();
    while let Some(ended) = reader.skip() {
        let line = reader.line;
        words.push(Word {
            text: reader.word()?,
            line,
            first: ended || words.is_empty(),
        });
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(text: &str) -> Vec<String> {
        let found = words(text).unwrap();
        found.iter().map(|word| word.text.to_string()).collect()
    }

    #[test]
    fn words_are_those_that_pppd_has() {
        for (text, expected) in [
            ("a b\tc\n", &["a", "b", "c"][..]),
            ("# all of it\n\n", &[]),
            ("a#b\nc", &["a", "c"]),
            ("\"a b\"'c # d' e", &["a bc # d", "e"]),
            ("a\\ b \\#c \\\"d \\\\", &["a b", "#c", "\"d", "\\"]),
            ("\"a\\\"b\" 'x\\sy'", &["a\"b", "x y"]),
            ("\\101\\x42z \\1234", &["ABz", "S4"]),
            ("one\\\ntwo \\\n three", &["onetwo", "three"]),
            ("\"\" x", &["", "x"]),
            ("name DOMAIN\\\\user", &["name", "DOMAIN\\user"]),
        ] {
            assert_eq!(texts(text), expected, "{text}");
        }
    }

    #[test]
    fn words_know_their_lines() {
        let found = words("a b\n# c\nd\\\ne f\n").unwrap();
        let places: Vec<(usize, bool)> = found.iter().map(|it| (it.line, it.first)).collect();
        assert_eq!(places, [(1, true), (1, false), (3, true), (4, false)]);
    }

    #[test]
    fn what_pppd_only_warns_of_is_a_fault() {
        assert_eq!(words("a\n\"b c\n"), Err(Fault::Unended(2)));
        assert_eq!(words(&"x".repeat(1024)), Err(Fault::TooLong(1)));
        assert_eq!(words("a \\xff"), Err(Fault::NotText(1)));
        assert_eq!(texts(&"x".repeat(1023))[0].len(), 1023);
    }

    /// Quotes a word in one of the possible ways.
    fn quoted(word: &str, way: u8) -> String {
        match way {
            0 => format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"")),
            1 => format!("'{}'", word.replace('\\', "\\\\").replace('\'', "\\'")),
            _ => {
                let octal = word.bytes().map(|byte| format!("\\{byte:03o}"));
                format!("{}\"\"", octal.collect::<String>())
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_quoted_comes_back(
            words in proptest::collection::vec(("[^\0]{0,20}", 0_u8..3), 0..8)
        ) {
            let text: Vec<String> = words.iter().map(|(word, way)| quoted(word, *way)).collect();
            let expected: Vec<String> = words.into_iter().map(|(word, _)| word).collect();
            prop_assert_eq!(texts(&text.join(" ")), expected);
        }

        #[test]
        fn any_text_has_words_or_a_fault(text in "[ \t\na\"'\\\\#x7\u{e9}]{0,60}") {
            match words(&text) {
                Ok(words) => prop_assert!(words.iter().all(|it| it.line <= 1 + text.matches('\n').count())),
                Err(fault) => prop_assert!(fault.describe().0 >= 1),
            }
        }
    }
}
