//! Named fields, as in Debian's and opkg's control files and lists of packages.

use std::fmt;
use thiserror::Error;

/// Maximum number of fields of one stanza.
const MOST: usize = 64;

/// Fields in order. In the text, each further line of a value begins with a space, and an empty line is a dot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stanza(Vec<(String, String)>);

/// Why a text cannot be parsed.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("line {line}: {what}")]
pub struct StanzaError {
    /// The line number, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: &'static str,
}

impl Stanza {
    /// Adds a field, unless its value is empty.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        let value = value.to_string();
        if !value.is_empty() {
            self.0.push((name.to_owned(), value));
        }
        self
    }

    /// Inserts fields before an existing one, or at the end.
    #[must_use]
    pub fn with_before(mut self, before: &str, fields: Self) -> Self {
        let at = self.0.iter().position(|(name, _)| name == before);
        let at = at.unwrap_or(self.0.len());
        self.0.splice(at..at, fields.0);
        self
    }

    /// Returns the value of a field.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let field = self.0.iter().find(|(it, _)| it == name);
        field.map(|(_, value)| value.as_str())
    }

    /// Reads stanzas separated by empty lines.
    ///
    /// # Errors
    /// At the first line that is not part of a stanza, or repeats a field.
    pub fn parse(text: &str) -> Result<Vec<Self>, StanzaError> {
        let mut stanzas = vec![Self::default()];
        for (index, line) in text.lines().enumerate() {
            let wrong = |what| StanzaError {
                line: index + 1,
                what,
            };
            // Never fails: the list starts with one stanza.
            let Some(stanza) = stanzas.last_mut() else {
                break;
            };
            if line.is_empty() {
                stanzas.push(Self::default());
            } else if let Some(more) = line.strip_prefix(' ') {
                let (_, value) = stanza
                    .0
                    .last_mut()
                    .ok_or_else(|| wrong("it goes on with no field"))?;
                value.push('\n');
                value.push_str(if more == "." { "" } else { more });
            } else {
                let (name, value) = line.split_once(':').ok_or_else(|| wrong("no field"))?;
                let is_name = |it: char| it.is_ascii_alphanumeric() || it == '-';
                if name.is_empty() || !name.chars().all(is_name) {
                    return Err(wrong(
                        "a field's name of other than letters, digits and dashes",
                    ));
                }
                if stanza.get(name).is_some() || stanza.0.len() >= MOST {
                    return Err(wrong("a field again, or one too many"));
                }
                stanza
                    .0
                    .push((name.to_owned(), value.trim_start().to_owned()));
            }
        }
        stanzas.retain(|it| !it.0.is_empty());
        Ok(stanzas)
    }
}

impl fmt::Display for Stanza {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.0 {
            let mut lines = value.split('\n');
            writeln!(f, "{name}: {}", lines.next().unwrap_or_default())?;
            for line in lines {
                writeln!(f, " {}", if line.is_empty() { "." } else { line })?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(values in proptest::collection::vec("[!-~]{1,9}(\n([a-z]{1,9})?){0,3}", 1..6)) {
            let stanza = values.iter().enumerate().fold(Stanza::default(), |stanza, (index, value)| {
                stanza.with(&format!("Field-{index}"), value)
            });
            prop_assert_eq!(Stanza::parse(&format!("{stanza}\n{stanza}")).unwrap(), vec![stanza; 2]);
        }

        #[test]
        fn no_text_panics(text in "[ -~\n]{0,200}") {
            let _ = Stanza::parse(&text);
        }
    }

    #[test]
    fn fields_stand_once_and_lines_belong_to_one() {
        assert_eq!(Stanza::parse(" a\n").unwrap_err().line, 1);
        assert_eq!(Stanza::parse("A: 1\nA: 2\n").unwrap_err().line, 2);
        let stanza = Stanza::default()
            .with("Package", "a")
            .with("Description", "b\n\nc");
        let stanza = stanza.with_before("Description", Stanza::default().with("Size", 3));
        assert_eq!(
            stanza.to_string(),
            "Package: a\nSize: 3\nDescription: b\n .\n c\n"
        );
    }
}
