//! Edits the text of a TOML file: adds or removes a table of a list, such as `[[forward]]`, or sets a key before the
//! tables. All other text stays, with its comments.
//!
//! A comment above a table's head belongs to the table, unless it begins the file, or follows another line without an
//! empty line between: then it is about that line, such as a setting that was commented out.

use toml::de::{DeTable, DeValue};

use super::reader::tables;
use super::{SettingsError, reader};
use crate::file;
use std::io;
use std::path::Path;

/// The text of a settings file; empty if the file does not exist.
///
/// # Errors
/// [`SettingsError::Read`], [`SettingsError::TooLarge`].
pub fn text(path: &Path) -> Result<String, SettingsError> {
    match reader::text_of(path) {
        Err(SettingsError::Read { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
            Ok(String::new())
        }
        text => text,
    }
}

/// Refuses a file that users other than its owner can change.
///
/// # Errors
/// [`SettingsError::Read`].
pub fn check_owner(path: &Path) -> Result<(), SettingsError> {
    match file::changeable(path) {
        None => Ok(()),
        Some(words) => Err(SettingsError::Read {
            path: path.to_owned(),
            error: io::Error::new(io::ErrorKind::PermissionDenied, words),
        }),
    }
}

/// The text with `table` among the tables of the list `name`: at `place`, counted from 0, or behind all of them. `None`
/// if the text is not TOML, or writes the list in brackets.
#[must_use]
pub fn inserted(text: &str, name: &str, place: usize, table: &str) -> Option<String> {
    let found = found(text, name)?;
    let end = end_of_line(text);
    let table = table.replace('\n', end);
    let at = found.get(place).map_or(text.len(), |it| above(text, it.0));
    let (before, after) = text.split_at(at);
    let before = before.trim_end();
    let gap = if before.is_empty() {
        ""
    } else {
        &end.repeat(2)
    };
    let end = if after.is_empty() { "" } else { end };
    Some(format!("{before}{gap}{table}{end}{after}"))
}

/// The text without a table of the list `name`, from the comment above its head to its last key. `None` if there is no
/// such table, the text is not TOML, or it writes the list in brackets.
#[must_use]
pub fn removed(text: &str, name: &str, place: usize) -> Option<String> {
    let (head, end) = *found(text, name)?.get(place)?;
    let before = &text[..above(text, head)];
    let rest = &text[end..];
    // The empty lines behind the table go with it.
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if !line.trim().is_empty() {
            break;
        }
        at += line.len();
    }
    let rest = &rest[at..];
    Some(match (rest.is_empty(), before.trim_end()) {
        (true, "") => String::new(),
        (true, before) => format!("{before}{}", end_of_line(text)),
        _ => format!("{before}{rest}"),
    })
}

/// The text in which the key `key` before the tables has this value, in TOML. `None` if the text is not TOML.
#[must_use]
pub fn with_key(text: &str, key: &str, value: &str) -> Option<String> {
    let root = DeTable::parse(text).ok()?;
    let keys = || root.get_ref().iter();
    if let Some((_, old)) = keys().find(|it| it.0.get_ref() == key) {
        let old = old.span();
        return Some(format!("{}{value}{}", &text[..old.start], &text[old.end..]));
    }
    let first = keys().map(|it| it.0.span().start).min();
    let at = first.map_or(text.len(), |it| above(text, line(text, it)));
    let (before, after) = text.split_at(at);
    let end = end_of_line(text);
    let gap = if before.is_empty() || before.ends_with('\n') {
        ""
    } else {
        end
    };
    Some(format!("{before}{gap}{key} = {value}{end}{after}"))
}

/// A text as a TOML string.
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut out = "\"".to_owned();
    for it in text.chars() {
        match it {
            '"' | '\\' => out.extend(['\\', it]),
            it if it.is_control() => out += &format!("\\u{:04x}", u32::from(it)),
            it => out.push(it),
        }
    }
    out + "\""
}

/// Texts as a TOML value: a string, or a list of several.
#[must_use]
pub fn quoted_list(texts: &[String]) -> String {
    let all: Vec<String> = texts.iter().map(|it| quoted(it)).collect();
    match &all[..] {
        [one] => one.clone(),
        all => format!("[{}]", all.join(", ")),
    }
}

/// The tables of a list: the offset of each one's head, and that of the line behind its last key.
fn found(text: &str, name: &str) -> Option<Vec<(usize, usize)>> {
    let root = DeTable::parse(text).ok()?;
    let mut keys = root.get_ref().iter();
    let Some((_, list)) = keys.find(|it| it.0.get_ref() == name) else {
        return Some(Vec::new());
    };
    let end = |at: usize| text[at..].find('\n').map_or(text.len(), |it| at + it + 1);
    let places = tables(list.get_ref())?.into_iter().map(|(begin, table)| {
        let head = line(text, begin);
        let last = table.iter().map(|it| it.1.span().end).max();
        let is_head = text[head..].trim_start().starts_with("[[");
        is_head.then(|| (head, end(last.unwrap_or(begin).max(begin))))
    });
    places.collect()
}

/// The offset of the line that contains an offset.
fn line(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |it| it + 1)
}

/// The end of the text's first line.
fn end_of_line(text: &str) -> &'static str {
    match text.split_once('\n') {
        Some((line, _)) if line.ends_with('\r') => "\r\n",
        _ => "\n",
    }
}

/// The offset of the comment that belongs to a line; the line's own offset without such a comment.
fn above(text: &str, head: usize) -> usize {
    let text = &text[..head];
    let values = DeTable::parse(text).map_or(0, |it| end_of_values(it.get_ref()));
    let mut at = head;
    for line in text.split_inclusive('\n').rev() {
        let is_comment = line.trim_start().starts_with('#');
        // A line of a string may begin with `#`.
        if !is_comment || at - line.len() < values {
            return if line.trim().is_empty() { at } else { head };
        }
        at -= line.len();
    }
    head
}

/// The end of the last value in a table.
fn end_of_values(table: &DeTable<'_>) -> usize {
    let of = |value: &toml::Spanned<DeValue<'_>>| match (value.get_ref(), tables(value.get_ref())) {
        (_, Some(tables)) => tables
            .iter()
            .map(|it| end_of_values(it.1))
            .max()
            .unwrap_or(0),
        (DeValue::Table(table), _) => end_of_values(table),
        _ => value.span().end,
    };
    table.iter().map(|it| of(it.1)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# my file\n\n# of the first\n[[a]] # one\nx = 1\ny = [\n  1, # in a list\n]  # last\n# after it\n\n\
        [[a]]\nx = \"\"\"\n[[a]]\n\"\"\"\n\n# of the third\n  [[ a ]]\n# the end";

    #[test]
    fn one_table_goes_or_comes_and_the_rest_stays() {
        let first = "# of the first\n[[a]] # one\nx = 1\ny = [\n  1, # in a list\n]  # last\n";
        let second = "[[a]]\nx = \"\"\"\n[[a]]\n\"\"\"\n\n";
        let third = "# of the third\n  [[ a ]]\n";
        for (place, gone) in [(0, first), (1, second), (2, third)] {
            assert_eq!(removed(FILE, "a", place).unwrap(), FILE.replace(gone, ""));
        }
        assert_eq!(removed(FILE, "a", 3), None);
        let new = "[[a]]\nz = 2\n";
        for (place, before) in [
            (0, "# of the first"),
            (1, "[[a]]\nx = \"\"\""),
            (2, "# of the third"),
        ] {
            let wanted = FILE.replace(before, &format!("{new}\n{before}"));
            assert_eq!(inserted(FILE, "a", place, new).unwrap(), wanted);
            assert_eq!(removed(&wanted, "a", place).unwrap(), FILE);
        }
        assert_eq!(
            inserted(FILE, "a", 3, new).unwrap(),
            format!("{FILE}\n\n{new}")
        );
        assert_eq!(
            inserted("# mine\n", "a", 0, new).unwrap(),
            format!("# mine\n\n{new}")
        );
        assert_eq!(removed(new, "a", 0).unwrap(), "");
        assert_eq!(removed("# mine\n[[a]]\n", "a", 0).unwrap(), "# mine\n");
        for text in ["a = [{ x = 1 }]\n", "a = 1\n", "[[a]\n"] {
            assert_eq!(inserted(text, "a", 0, new), None, "{text}");
            assert_eq!(removed(text, "a", 0), None, "{text}");
        }
    }

    #[test]
    fn only_comments_of_a_table_go_with_it() {
        let last = "[[a]]\nx = 1\n";
        for (before, own) in [
            // A string's last line.
            ("x = \"\"\"\n\n# b\"\"\"\n", ""),
            ("[[a]]\nx = \"\"\"\n\n# b\"\"\"\n", ""),
            ("[b]\nx = \"\"\"\n\n# b\"\"\"\n", ""),
            // A setting of the table above.
            ("[[a]]\nx = 1\n# y = 2\n", ""),
            ("[[a]]\nx = 1\n# y = 2\n\n", "# its own\n# too\n"),
        ] {
            let text = format!("{before}{own}{last}");
            let place = text.matches("[[a]]").count() - 1;
            let left = removed(&text, "a", place).unwrap();
            assert_eq!(left, format!("{}\n", before.trim_end()));
            let more = inserted(&text, "a", place, last).unwrap();
            let wanted = format!("{}\n\n{last}\n{own}{last}", before.trim_end());
            assert_eq!(more, wanted);
        }
    }

    #[test]
    fn lines_keep_their_ends() {
        let crlf = |text: &str| text.replace('\n', "\r\n");
        let text = crlf(FILE);
        let new = "[[a]]\nz = 2\n";
        for place in 0..4 {
            let more = inserted(&text, "a", place, new).unwrap();
            assert_eq!(more, crlf(&inserted(FILE, "a", place, new).unwrap()));
            assert_eq!(
                removed(&more, "a", place).unwrap(),
                crlf(&removed(&inserted(FILE, "a", place, new).unwrap(), "a", place).unwrap())
            );
        }
        let keyed = with_key(&text, "x", "3").unwrap();
        assert_eq!(keyed, crlf(&with_key(FILE, "x", "3").unwrap()));
    }

    #[test]
    fn a_key_before_the_tables_changes_or_is_added() {
        for (text, wanted) in [
            ("x = [1,\n 2] # two\n", "x = 3 # two\n"),
            ("# mine\ny = 1\n", "# mine\nx = 3\ny = 1\n"),
            (
                "# mine\n\n# its\n[[a]]\nx = 1\n",
                "# mine\n\nx = 3\n# its\n[[a]]\nx = 1\n",
            ),
            ("# mine", "# mine\nx = 3\n"),
            ("", "x = 3\n"),
        ] {
            assert_eq!(with_key(text, "x", "3").as_deref(), Some(wanted));
        }
        assert_eq!(with_key("x = ", "x", "3"), None);
    }

    #[test]
    fn any_text_is_read_again() {
        let text = "a \"b\" \\ c\n\u{1b}\u{85} ü";
        let file = format!("x = {}\n", quoted_list(&[text.to_owned(), String::new()]));
        let root = DeTable::parse(&file).unwrap();
        let (_, value) = root.get_ref().iter().next().unwrap();
        let words = reader::words(value.get_ref(), 2).unwrap();
        assert_eq!(words, [text, ""]);
    }
}
