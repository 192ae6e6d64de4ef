//! Takes the keys of a file one by one, and records a verdict on each.

use std::ops::RangeInclusive;

use toml::de::{DeTable, DeValue};
use zeroize::Zeroizing;

use crate::lines::Lines;
use crate::lines::table::{NAMES, Tables};
use crate::report::{Report, Verdict};
use crate::text::line_of;
use crate::types::decimal;

/// A table whose keys are taken one by one.
pub(super) struct Keys<'t, 'r> {
    text: &'t str,
    report: &'r mut Report,
    /// Name, value and line.
    entries: Vec<(String, DeValue<'t>, usize)>,
    /// Keys that were taken.
    taken: Vec<&'static str>,
}

impl<'t, 'r> Keys<'t, 'r> {
    /// Parses a text; `None`, with a message in the report, if it is not TOML.
    pub(super) fn parse(text: &'t str, report: &'r mut Report) -> Option<Self> {
        let line = |offset: usize| line_of(text, offset);
        match DeTable::parse(text) {
            Ok(table) => {
                let entries = table.into_inner().into_iter().map(|(name, value)| {
                    let line = line(name.span().start);
                    (name.into_inner().into_owned(), value.into_inner(), line)
                });
                Some(Self {
                    text,
                    report,
                    entries: entries.collect(),
                    taken: Vec::new(),
                })
            }
            Err(error) => {
                let line = line(error.span().map_or(0, |span| span.start));
                // The message names what the parser expected, and quotes nothing.
                let message = format!("not valid TOML: {}", error.message());
                report.push(line, "", Verdict::Refused, message);
                None
            }
        }
    }

    /// Whether the file has the key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|(name, ..)| name == key)
    }

    /// Refuses a key that is missing, or contradicts another, with a remedy.
    pub(super) fn missing(&mut self, key: &str, reason: &str) {
        let line = self.entries.iter().find(|(name, ..)| name == key);
        let line = line.map_or(0, |(.., line)| *line);
        self.report.push(line, key, Verdict::Refused, reason);
    }

    /// Leaves a key without a verdict.
    pub(super) fn skip(&mut self, key: &'static str) {
        self.taken.push(key);
    }

    /// Takes a value that `read` understands; otherwise the report gets its error.
    fn take<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&DeValue<'t>) -> Result<T, String>,
    ) -> Option<T> {
        self.taken.push(key);
        let (_, value, line) = self.entries.iter().find(|(name, ..)| name == key)?;
        match read(value) {
            Ok(value) => {
                self.report.push(*line, key, Verdict::Honoured, "");
                Some(value)
            }
            Err(reason) => {
                self.report.push(*line, key, Verdict::Refused, reason);
                None
            }
        }
    }

    /// Takes a string.
    pub(super) fn string<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        self.take(key, |value| read(text_of(value)?))
    }

    /// Takes a list of strings, or a single string.
    pub(super) fn strings<T>(
        &mut self,
        key: &'static str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        self.take(key, |value| match value {
            DeValue::Array(values) => values
                .iter()
                .map(|value| read(text_of(value.get_ref())?))
                .collect(),
            value => Ok(vec![read(text_of(value)?)?]),
        })
    }

    /// Takes a boolean.
    pub(super) fn boolean(&mut self, key: &'static str) -> Option<bool> {
        self.take(key, |value| match value {
            DeValue::Boolean(value) => Ok(*value),
            _ => Err("write true or false".to_owned()),
        })
    }

    /// Takes a number in a range that `wanted` describes.
    pub(super) fn number(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
        wanted: &str,
    ) -> Option<u64> {
        self.take(key, |value| {
            let number = match value {
                DeValue::Integer(value) if value.radix() == 10 => decimal(value.as_str()),
                _ => None,
            };
            let number = number.filter(|number| range.contains(number));
            number.ok_or_else(|| format!("write {wanted}"))
        })
    }

    /// Takes the section `[users]`: names and passwords.
    pub(super) fn users(&mut self) -> Option<Vec<(String, Zeroizing<String>)>> {
        const WANTED: &str =
            "write a section [users] with a line NAME = \"PASSWORD\" for each client";
        if !self.has("users") {
            self.missing("users", WANTED);
        }
        self.take("users", |value| {
            let DeValue::Table(users) = value else {
                return Err(WANTED.to_owned());
            };
            if users.is_empty() {
                return Err(WANTED.to_owned());
            }
            let user = |(name, password): (&toml::Spanned<_>, &toml::Spanned<DeValue<'t>>)| {
                let name: &std::borrow::Cow<'_, str> = name.get_ref();
                let password = text_of(password.get_ref())
                    .map_err(|_| format!("the password of {name} has to be in quotes"))?;
                if password.is_empty() {
                    return Err(format!("the password of {name} is empty"));
                }
                Ok((name.to_string(), Zeroizing::new(password.to_owned())))
            };
            users.iter().map(user).collect()
        })
    }

    /// Takes the tables of lines. `full` says that the tunnel takes all packets of the host; `called` is the number
    /// of peers it connects to.
    pub(super) fn lines(&mut self, full: bool, called: usize) -> Lines {
        self.taken.extend(NAMES);
        let [lines, line] = NAMES.map(|name| {
            let found = self.entries.iter().find(|(key, ..)| key == name);
            found.map(|(_, value, line)| (value, *line))
        });
        let (lines, entries) = Tables::read(self.text, lines, line).finish(full, called);
        for entry in entries {
            self.report
                .push(entry.line, &entry.key, entry.verdict, entry.reason);
        }
        lines
    }

    /// The value of `reorder` in the table `[uplinks]`, if it has one.
    pub(super) fn reorder_of_lines(&self) -> Option<bool> {
        let (_, lines, _) = self.entries.iter().find(|(key, ..)| key == NAMES[0])?;
        let DeValue::Table(lines) = lines else {
            return None;
        };
        match lines.get("reorder")?.get_ref() {
            DeValue::Boolean(value) => Some(*value),
            _ => None,
        }
    }

    /// Refuses all keys that were not taken.
    pub(super) fn refuse_rest(self) {
        for (name, _, line) in &self.entries {
            if !self.taken.contains(&name.as_str()) {
                let reason = format!(
                    "there is no such key here; {}",
                    crate::text::suggest(name, &self.taken)
                );
                self.report.push(*line, name, Verdict::Refused, reason);
            }
        }
    }
}

fn text_of<'v>(value: &'v DeValue<'_>) -> Result<&'v str, String> {
    match value {
        DeValue::String(text) => Ok(text),
        _ => Err("write it in quotes".to_owned()),
    }
}
