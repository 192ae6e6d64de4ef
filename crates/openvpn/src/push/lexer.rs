//! Words of one option, as OpenVPN's files have them: blanks separate, quotes and backslashes protect.

/// Most words of one option.
pub(super) const MAX_WORDS: usize = 16;

/// The words, or `None` where a quote is not closed, a backslash ends the line or there are too many words.
pub(super) fn words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut chars = line.trim().chars().peekable();
    while chars.peek().is_some() {
        while chars.next_if(|it| it.is_ascii_whitespace()).is_some() {}
        let mut word = String::new();
        let mut quote = None;
        let mut any = false;
        loop {
            match (chars.next(), quote) {
                (None, None) => break,
                (None, Some(_)) => return None,
                (Some(it), Some(end)) if it == end => quote = None,
                // Single quotes protect everything.
                (Some('\\'), it) if it != Some('\'') => word.push(chars.next()?),
                (Some(it), None) if it.is_ascii_whitespace() => break,
                (Some(it @ ('"' | '\'')), None) => {
                    quote = Some(it);
                    any = true;
                }
                (Some(it), _) => word.push(it),
            }
        }
        if any || !word.is_empty() {
            words.push(word);
        }
        if words.len() > MAX_WORDS {
            return None;
        }
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn words_are_those_of_a_file() {
        let read = |line| words(line).unwrap();
        assert_eq!(
            read("route 10.0.0.0  255.0.0.0 "),
            ["route", "10.0.0.0", "255.0.0.0"]
        );
        assert_eq!(
            read(r#"echo "two words" 'a\b' c\ d "" "#),
            ["echo", "two words", r"a\b", "c d", ""]
        );
        assert_eq!(read(r#"echo "a\"b""#), ["echo", "a\"b"]);
        assert_eq!(read(""), Vec::<String>::new());
        assert_eq!(words(r#"echo "open"#), None);
        assert_eq!(words(r"echo \"), None);
        assert_eq!(words(&"a ".repeat(17)), None);
    }
}
