//! Reads TOML files by tables of their keys.

use std::io;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{FILE_MAX, Origin, SettingsError};
use crate::file;
use crate::text::line_of;
use crate::text::suggest;

/// A key of a table: its name, the values that it takes, and the function that puts such a value into a model.
pub(crate) type Row<F> = (&'static str, &'static str, F);

/// A key whose value is TOML.
pub(crate) type TomlRow<T> = Row<fn(&mut T, &DeValue<'_>) -> Option<()>>;

/// Stores a value that was understood.
pub(crate) fn put<T>(slot: &mut T, value: Option<T>) -> Option<()> {
    *slot = value?;
    Some(())
}

/// Sets a key with `apply`. `place` is the table, with a dot behind it, and `found` the value in words.
pub(crate) fn set<F: Copy>(
    rows: &[Row<F>],
    (place, key): (&str, &str),
    apply: impl FnOnce(F) -> Option<()>,
    found: impl FnOnce() -> String,
    origin: Origin,
) -> Result<(), SettingsError> {
    let Some((_, wanted, set)) = rows.iter().find(|(name, ..)| *name == key) else {
        let known: Vec<&str> = rows.iter().map(|(name, ..)| *name).collect();
        return Err(unknown(key, &known, origin));
    };
    apply(*set).ok_or_else(|| SettingsError::Value {
        origin,
        key: format!("{place}{key}"),
        found: found(),
        wanted,
    })
}

/// Sets a key of a TOML table.
pub(crate) fn set_toml<T>(
    rows: &[TomlRow<T>],
    model: &mut T,
    key: &str,
    value: &DeValue<'_>,
    origin: Origin,
) -> Result<(), SettingsError> {
    let apply = |set: fn(&mut T, &DeValue<'_>) -> Option<()>| set(model, value);
    set(rows, ("", key), apply, || shown(value), origin)
}

/// The error for a key that does not exist.
pub(crate) fn unknown(found: &str, known: &[&str], origin: Origin) -> SettingsError {
    SettingsError::Unknown {
        suggestion: suggest(found, known),
        found: found.to_owned(),
        origin,
    }
}

/// The text of a settings file.
pub(crate) fn text_of(path: &Path) -> Result<String, SettingsError> {
    let path = || path.to_owned();
    let refused = |error| SettingsError::Read {
        path: path(),
        error,
    };
    let bytes = file::read(&path(), FILE_MAX).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => SettingsError::TooLarge { path: path() },
        _ => refused(error),
    })?;
    let text = std::str::from_utf8(&bytes);
    let text = text.map_err(|error| refused(io::Error::new(io::ErrorKind::InvalidData, error)))?;
    Ok(text.to_owned())
}

/// Turns an offset in the text of a file into its place.
pub(crate) fn places(text: &str, path: &Path) -> impl Fn(usize) -> Origin {
    move |offset| Origin::File {
        path: path.to_owned(),
        line: line_of(text, offset),
    }
}

/// Parses TOML; `place` turns an offset into a place in the file.
pub(crate) fn parsed(
    text: &str,
    place: impl Fn(usize) -> Origin,
) -> Result<Spanned<DeTable<'_>>, SettingsError> {
    DeTable::parse(text).map_err(|error| SettingsError::Syntax {
        origin: place(error.span().map_or(0, |span| span.start)),
        message: error.message().to_owned(),
    })
}

/// Parses a list of at most `most` strings.
pub(crate) fn list<T>(
    value: &DeValue<'_>,
    most: usize,
    read: impl Fn(&str) -> Option<T>,
) -> Option<Vec<T>> {
    let DeValue::Array(list) = value else {
        return None;
    };
    let list: Option<Vec<T>> = list.iter().map(|it| read(word(it.get_ref())?)).collect();
    list.filter(|list| list.len() <= most)
}

/// The tables of a list, and where each begins.
pub(crate) fn tables<'a>(value: &'a DeValue<'_>) -> Option<Vec<(usize, &'a DeTable<'a>)>> {
    let DeValue::Array(list) = value else {
        return None;
    };
    let table = |it: &'a Spanned<DeValue<'_>>| match it.get_ref() {
        DeValue::Table(table) => Some((it.span().start, table)),
        _ => None,
    };
    list.iter().map(table).collect()
}

/// The strings of a list, if it has at most `most`; a single string counts as a list of one.
pub(crate) fn words<'a>(value: &'a DeValue<'_>, most: usize) -> Option<Vec<&'a str>> {
    let words: Option<Vec<&str>> = match value {
        DeValue::Array(list) => list.iter().map(|it| word(it.get_ref())).collect(),
        value => Some(vec![word(value)?]),
    };
    words.filter(|words| words.len() <= most)
}

/// The string that a value is.
pub(crate) fn word<'a>(value: &'a DeValue<'_>) -> Option<&'a str> {
    match value {
        DeValue::String(word) => Some(word),
        _ => None,
    }
}

/// The truth value that a value is.
pub(crate) const fn switch(value: &DeValue<'_>) -> Option<bool> {
    match value {
        DeValue::Boolean(on) => Some(*on),
        _ => None,
    }
}

/// The absolute path that a value is.
pub(crate) fn path(value: &DeValue<'_>) -> Option<PathBuf> {
    let is_plain = |it: &&str| it.starts_with('/') && !it.contains(char::is_control);
    word(value).filter(is_plain).map(PathBuf::from)
}

/// A value as error messages show it.
pub(crate) fn shown(value: &DeValue<'_>) -> String {
    match (list(value, usize::MAX, |it| Some(it.to_owned())), value) {
        (Some(words), _) => format!("{words:?}"),
        (None, DeValue::String(text)) => format!("{text:?}"),
        (None, DeValue::Integer(number)) => number.as_str().to_owned(),
        (None, other) => format!("a {}", other.type_str()),
    }
}
