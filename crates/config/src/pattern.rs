//! Patterns for names: `*` stands for any text, and `?` for any character.

/// Whether a name fits a pattern. Both are ASCII, as names of clients and servers are; letters of other case differ.
///
/// After a mismatch, only the last `*` takes one more character: the time is at most the product of both lengths.
#[must_use]
pub fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut wanted, mut at) = (0, 0);
    // The last asterisk, and where the text begins that follows it.
    let mut asterisk = None;
    while at < name.len() {
        match pattern.get(wanted) {
            Some(b'*') => {
                asterisk = Some((wanted, at));
                wanted += 1;
            }
            Some(it) if *it == b'?' || *it == name[at] => {
                wanted += 1;
                at += 1;
            }
            _ => {
                let Some((place, begin)) = asterisk else {
                    return false;
                };
                asterisk = Some((place, begin + 1));
                (wanted, at) = (place + 1, begin + 1);
            }
        }
    }
    pattern[wanted..].iter().all(|it| *it == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_asterisks_and_question_marks() {
        for (pattern, name, wanted) in [
            ("store-*", "store-7", true),
            ("store-*", "store-", true),
            ("store-*", "my-store-7", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("*7", "store-77", true),
            ("s*-*7", "store-17", true),
            ("store-?", "store-17", false),
            ("store-??", "store-17", true),
            ("**a**", "bab", true),
            ("a*a", "a", false),
            ("store", "store-7", false),
            ("*-?", "store-17", false),
            ("*-1?", "store-1-17", true),
            ("Store", "store", false),
        ] {
            assert_eq!(fits(pattern, name), wanted, "{pattern} {name}");
        }
    }
}
