//! Splits bytes into lines, and lines into words, by the rules of OpenVPN's configuration files.

use config::openvpn::{LexError, WORD_MAX, split_words};
use zeroize::Zeroizing;

/// Longest line in bytes without its end, as in stock.
pub(crate) const LINE_MAX: usize = 1024;

/// A word; it may be a password.
pub(crate) type Word = Zeroizing<String>;

/// Joins bytes into lines.
#[derive(Default)]
pub(crate) struct Lines {
    waiting: Zeroizing<Vec<u8>>,
    /// Skips the rest of a line that was too long.
    skipping: bool,
}

/// Line from a management client.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Line {
    /// A line without its end.
    Whole(Zeroizing<String>),
    /// A line of more than [`LINE_MAX`] bytes, which is dropped.
    TooLong,
}

impl Lines {
    /// Adds received bytes. Holds at most one line and the bytes of one call.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.waiting.extend_from_slice(bytes);
    }

    /// Takes the next complete line.
    pub(crate) fn next_line(&mut self) -> Option<Line> {
        loop {
            let Some(end) = self.waiting.iter().position(|&byte| byte == b'\n') else {
                if self.waiting.len() <= LINE_MAX {
                    return None;
                }
                self.waiting.clear();
                let first = !std::mem::replace(&mut self.skipping, true);
                return first.then_some(Line::TooLong);
            };
            let rest = self.waiting.split_off(end + 1);
            let line = std::mem::replace(&mut self.waiting, Zeroizing::new(rest));
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            let line = &line[..end];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.len() > LINE_MAX {
                return Some(Line::TooLong);
            }
            // Only names and passwords have characters beyond ASCII, and senders write them in UTF-8.
            let line = String::from_utf8_lossy(line).into_owned();
            return Some(Line::Whole(Zeroizing::new(line)));
        }
    }

    /// Drops all pending bytes.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Line {
    /// Whether a first line is of another protocol. A web page can make a browser connect to any local port, and it
    /// controls every line after the first. HTTP starts with a request line, whose target may exceed the line limit;
    /// TLS and STUN start with bytes that no command has.
    pub(crate) fn is_of_another_protocol(&self) -> bool {
        let Self::Whole(line) = self else { return true };
        let version = line.rsplit(' ').next().unwrap_or_default();
        let control = |byte: u8| byte.is_ascii_control() && byte != b'\t';
        version.starts_with("HTTP/") || line.bytes().any(control)
    }
}

/// Splits a line into words, by the rules of configuration files. The words beyond 16 are left out, as in stock.
///
/// # Errors
/// Returns stock's text.
pub(crate) fn words(line: &str) -> Result<Vec<Word>, String> {
    // C's strings end at a NUL.
    let line = line.split('\0').next().unwrap_or_default();
    split_words(line, true).map_err(|error| match error {
        LexError::Quote('\'') => {
            "Options error: No closing single quotation (') in TCP:0".to_owned()
        }
        LexError::Quote(mark) => format!("Options error: No closing quotation ({mark}) in TCP:0"),
        LexError::Trailing => "Options error: Residual parse state (2) in TCP:0".to_owned(),
        LexError::Backslash => "Options warning: Bad backslash ('\\') usage in TCP:0".to_owned(),
        LexError::Word => {
            format!("Options error: Parameter at TCP:0 is too long ({WORD_MAX} chars max)")
        }
        other => other.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::openvpn::WORDS_MAX;
    use proptest::prelude::*;

    fn split(line: &str) -> Result<Vec<String>, String> {
        Ok(words(line)?.iter().map(|word| word.to_string()).collect())
    }

    #[test]
    fn words_are_those_of_configuration_files() {
        let ok = |line: &str, expected: &[&str]| assert_eq!(split(line).unwrap(), expected);
        ok("  state  on 5 ", &["state", "on", "5"]);
        ok(
            "password Auth \"p \\\"w\\\\\"",
            &["password", "Auth", "p \"w\\"],
        );
        ok("a 'b \\ c' d\\ e", &["a", "b \\ c", "d e"]);
        ok("kill \"\"", &["kill", ""]);
        ok("a # b", &["a"]);
        ok("a#b ;c", &["a#b"]);
        ok("", &[]);
        ok("\t", &[]);
        ok("pid\0 x", &["pid"]);
        let many = "x ".repeat(20);
        assert_eq!(split(&many).unwrap().len(), WORDS_MAX);
    }

    #[test]
    fn broken_lines_are_refused() {
        let error = |line: &str| split(line).unwrap_err();
        assert_eq!(
            error("\"a"),
            "Options error: No closing quotation (\") in TCP:0"
        );
        assert_eq!(
            error("'a"),
            "Options error: No closing single quotation (') in TCP:0"
        );
        assert_eq!(
            error("a\\"),
            "Options error: Residual parse state (2) in TCP:0"
        );
        assert_eq!(
            error("a \\n"),
            "Options warning: Bad backslash ('\\') usage in TCP:0"
        );
        assert_eq!(
            error(&"x".repeat(257)),
            "Options error: Parameter at TCP:0 is too long (256 chars max)"
        );
        assert!(split(&"x".repeat(256)).is_ok());
    }

    fn whole(text: &str) -> Line {
        Line::Whole(Zeroizing::new(text.to_owned()))
    }

    #[test]
    fn lines_are_put_together_and_bounded() {
        let mut lines = Lines::default();
        lines.push(b"pi");
        assert_eq!(lines.next_line(), None);
        lines.push(b"d\r\nstate\n\n");
        assert_eq!(lines.next_line(), Some(whole("pid")));
        assert_eq!(lines.next_line(), Some(whole("state")));
        assert_eq!(lines.next_line(), Some(whole("")));
        assert_eq!(lines.next_line(), None);
        // One error per overlong line, and the next line is read again.
        for _ in 0..3 {
            lines.push(&[b'x'; LINE_MAX]);
        }
        assert_eq!(lines.next_line(), Some(Line::TooLong));
        lines.push(&[b'x'; LINE_MAX + 1]);
        assert_eq!(lines.next_line(), None);
        lines.push(b"x\npid\n");
        assert_eq!(lines.next_line(), Some(whole("pid")));
        lines.push(&[b'y'; LINE_MAX + 1]);
        lines.push(b"\nexit\n");
        assert_eq!(lines.next_line(), Some(Line::TooLong));
        assert_eq!(lines.next_line(), Some(whole("exit")));
    }

    proptest! {
        #[test]
        fn no_line_does_harm(line in "\\PC*|[ -~]{0,400}|(\\\\|\"|'| |a){0,60}") {
            if let Ok(words) = words(&line) {
                prop_assert!(words.len() <= WORDS_MAX);
                for word in words {
                    prop_assert!(word.len() <= WORD_MAX);
                }
            }
        }

        #[test]
        fn quoting_brings_any_word_across(word in "[ -~]{0,120}") {
            let quoted = word.replace('\\', "\\\\").replace('"', "\\\"");
            prop_assert_eq!(split(&format!("x \"{quoted}\"")).unwrap(), ["x", word.as_str()]);
        }

        #[test]
        fn pieces_do_not_matter(text in "[a-z \\r\\n]{0,200}", cuts in prop::collection::vec(1usize..9, 0..40)) {
            let collect = |lines: &mut Lines| std::iter::from_fn(|| lines.next_line()).collect::<Vec<_>>();
            let mut at_once = Lines::default();
            at_once.push(text.as_bytes());
            let expected = collect(&mut at_once);
            let mut piecewise = Lines::default();
            let mut got = Vec::new();
            let mut rest = text.as_bytes();
            for cut in cuts {
                let (piece, more) = rest.split_at(cut.min(rest.len()));
                piecewise.push(piece);
                got.extend(collect(&mut piecewise));
                rest = more;
            }
            piecewise.push(rest);
            got.extend(collect(&mut piecewise));
            prop_assert_eq!(got, expected);
        }

        #[test]
        fn what_waits_is_bounded(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..700), 0..20)) {
            let mut lines = Lines::default();
            for piece in pieces {
                lines.push(&piece);
                while lines.next_line().is_some() {}
                prop_assert!(lines.waiting.len() <= LINE_MAX);
            }
        }
    }
}
