//! Splits one line into words, by the rules of OpenVPN.
//!
//! Words are separated by white space, which `"…"` and `'…'` keep; a closing quotation mark ends the word. Outside
//! `'…'` a backslash escapes a backslash, a quotation mark or white space, and may precede nothing else. `#` and `;`
//! begin a comment where a word could begin.

use thiserror::Error;
use zeroize::Zeroizing;

/// Longest line of a file, in bytes, as in stock OpenVPN; inline blocks and arguments may be longer.
pub const LINE_MAX: usize = 256;

/// Longest word, in bytes.
pub const WORD_MAX: usize = 256;

/// Maximum number of words of a directive, its name included.
pub const WORDS_MAX: usize = 16;

/// Why a line cannot be split.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum LexError {
    /// A line above [`LINE_MAX`].
    #[error("the line is longer than {LINE_MAX} bytes; split it, or use an inline block")]
    Line,
    /// A word above [`WORD_MAX`].
    #[error("a word is longer than {WORD_MAX} bytes")]
    Word,
    /// A line of more than [`WORDS_MAX`] words.
    #[error("more than {WORDS_MAX} words")]
    Words,
    /// A word without its closing quotation mark.
    #[error("the closing quotation mark {0} is missing")]
    Quote(char),
    /// A backslash before a character that needs no escape.
    #[error("a backslash is allowed only before `\\`, `\"` and white space; double it")]
    Backslash,
    /// A backslash at the end of the last word.
    #[error("a backslash ends the line; double it")]
    Trailing,
}

/// Splits a command, the value of a directive such as `up`, into the program and its arguments,
/// by the same rules, of any length.
///
/// # Errors
/// [`LexError`].
pub(crate) fn split_command(text: &str) -> Result<Vec<String>, LexError> {
    Ok(plain(split_words(text, false)?))
}

fn plain(words: Vec<Zeroizing<String>>) -> Vec<String> {
    let words = words.into_iter();
    words.map(|mut word| std::mem::take(&mut *word)).collect()
}

enum State {
    Between,
    Plain,
    Quoted(char),
}

/// Splits a line; an empty line or a comment has no words.
///
/// # Errors
/// [`LexError`], if stock refuses the line or would silently drop words.
pub fn split(line: &str) -> Result<Vec<String>, LexError> {
    let words = split_words(line, false)?;
    if line.len() > LINE_MAX && !words.is_empty() {
        return Err(LexError::Line);
    }
    Ok(plain(words))
}

/// Splits a line of any length into words, which may be passwords. A `lenient` split ignores the words beyond
/// [`WORDS_MAX`], and takes `\'` for a quotation mark.
///
/// # Errors
/// [`LexError`].
pub fn split_words(line: &str, lenient: bool) -> Result<Vec<Zeroizing<String>>, LexError> {
    let mut words = Vec::new();
    let mut word = Zeroizing::new(String::new());
    let mut state = State::Between;
    let mut backslash = false;
    for c in line.chars() {
        if !backslash && c == '\\' && !matches!(state, State::Quoted('\'')) {
            backslash = true;
            continue;
        }
        let escaped = std::mem::take(&mut backslash);
        match state {
            State::Between if is_space(c) => continue,
            State::Between if c == '#' || c == ';' => break,
            State::Between => {
                if words.len() == WORDS_MAX {
                    return lenient.then_some(words).ok_or(LexError::Words);
                }
                if !escaped && (c == '"' || c == '\'') {
                    state = State::Quoted(c);
                    continue;
                }
                state = State::Plain;
            }
            State::Plain if !escaped && is_space(c) => {
                words.push(std::mem::take(&mut word));
                state = State::Between;
                continue;
            }
            State::Quoted(mark) if !escaped && c == mark => {
                words.push(std::mem::take(&mut word));
                state = State::Between;
                continue;
            }
            State::Plain | State::Quoted(_) => {}
        }
        if escaped && !(c == '\\' || c == '"' || is_space(c) || lenient && c == '\'') {
            return Err(LexError::Backslash);
        }
        if word.len() + c.len_utf8() > WORD_MAX {
            return Err(LexError::Word);
        }
        word.push(c);
    }
    match state {
        State::Quoted(mark) => return Err(LexError::Quote(mark)),
        State::Plain if backslash => return Err(LexError::Trailing),
        State::Plain => words.push(word),
        // Stock accepts a backslash after the last word.
        State::Between => {}
    }
    Ok(words)
}

/// A word, made fit to print: cut to 60 characters, without control characters.
pub(crate) fn shown(word: &str) -> String {
    let cut: String = word.chars().take(60).collect();
    crate::shown(&cut)
}

/// White space of the C locale.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\x0b' | '\x0c' | '\r')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(line: &str) -> Vec<String> {
        split(line).unwrap()
    }

    #[test]
    fn words_quotes_escapes_and_comments() {
        assert_eq!(
            words("remote  a.example\t1194\r"),
            ["remote", "a.example", "1194"]
        );
        assert_eq!(words("up \"/bin/a b\" 'c\\d'"), ["up", "/bin/a b", "c\\d"]);
        assert_eq!(
            words(r#"push "route 10.0.0.0 \"x\"""#),
            ["push", "route 10.0.0.0 \"x\""]
        );
        assert_eq!(words(r"a b\ c \\"), ["a", "b c", "\\"]);
        assert_eq!(words("verb 3 # loud"), ["verb", "3"]);
        assert_eq!(words("verb 3 ;loud"), ["verb", "3"]);
        assert_eq!(words("verb 3#quiet"), ["verb", "3#quiet"]);
        assert_eq!(words("a ''"), ["a", ""]);
        assert_eq!(words("\"a\"b"), ["a", "b"]);
        assert!(words("  # nothing").is_empty());
        assert!(words("").is_empty());
    }

    #[test]
    fn what_stock_refuses() {
        assert_eq!(split("a \"b"), Err(LexError::Quote('"')));
        assert_eq!(split("a 'b"), Err(LexError::Quote('\'')));
        assert_eq!(split(r"up C:\dir\file"), Err(LexError::Backslash));
        assert_eq!(split("a b\\"), Err(LexError::Trailing));
        assert_eq!(split(r"a \\\"), Err(LexError::Trailing));
        assert_eq!(split("ca \"f\"\\").unwrap(), ["ca", "f"]);
        assert_eq!(split("a \\'"), Err(LexError::Backslash));
        assert_eq!(split(&"a ".repeat(17)), Err(LexError::Words));
        assert_eq!(split(&"a ".repeat(16)).unwrap().len(), 16);
        assert_eq!(split(&"a".repeat(257)), Err(LexError::Word));
        assert_eq!(
            split(&format!("a {}", "b ".repeat(3).repeat(50))),
            Err(LexError::Words)
        );
        assert_eq!(
            split(&format!("a{}b", " ".repeat(300))),
            Err(LexError::Line)
        );
        assert!(split(&format!("#{}", "x".repeat(1000))).is_ok());
    }

    proptest! {
        #[test]
        fn no_line_panics(line in "\\PC{0,300}") {
            if let Ok(words) = split(&line) {
                prop_assert!(words.len() <= WORDS_MAX);
            }
        }

        #[test]
        fn quoting_keeps_words(words in proptest::collection::vec("[ -~]{0,40}", 1..5)) {
            let quote = |word: &String| format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""));
            let line = words.iter().map(quote).collect::<Vec<_>>().join(" ");
            prop_assume!(line.len() <= LINE_MAX);
            prop_assert_eq!(split(&line).unwrap(), words);
        }
    }
}
