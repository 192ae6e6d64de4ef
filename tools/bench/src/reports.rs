//! Reports that owners of routers send in (`millrace doctor --report`): a reader that refuses what is not exactly a
//! report, and the page "Figures from real routers". The program `millrace-reports` checks and shows them.
//!
//! The tests of this module keep `docs/report.schema.json` and `docs/benchmarks/routers.md` up to date:
//! `MILLRACE_WRITE=1 cargo test -p millrace-tools --lib reports` writes both.

mod page;

pub use page::page;

use report::{Report, SCHEMA, SIZE_MAX};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a file is not a report.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file is larger than any report.
    #[error("it has more than {SIZE_MAX} bytes; a report has about 3,000")]
    Large,
    /// The text is no JSON, or has other fields or values than a report. The text is a stranger's and not repeated.
    #[error(
        "it is no report: line {line}, column {column}; docs/report.schema.json has the fields"
    )]
    Fields {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
    },
    /// The report has another schema.
    #[error("it has another schema than {SCHEMA}; use the tools of the release that wrote it")]
    Schema,
    /// A field is missing.
    #[error("it lacks fields; send the file as `millrace doctor --report` wrote it")]
    Missing,
    /// The digest is not the report's.
    #[error("its digest is wrong: it was changed or cut; send it again as the program wrote it")]
    Changed,
}

/// Reads a report.
///
/// # Errors
/// Why the text is not a whole report of this schema.
pub fn read(text: &[u8]) -> Result<Report, ReadError> {
    if text.len() > SIZE_MAX {
        return Err(ReadError::Large);
    }
    let fields = |error: serde_json::Error| ReadError::Fields {
        line: error.line(),
        column: error.column(),
    };
    let value: serde_json::Value = serde_json::from_slice(text).map_err(fields)?;
    let schema = value.get("schema").and_then(serde_json::Value::as_u64);
    if schema.is_some_and(|it| it != u64::from(SCHEMA)) {
        return Err(ReadError::Schema);
    }
    // From the text, as a value has lost fields that stand twice.
    let report: Report = serde_json::from_slice(text).map_err(fields)?;
    // A missing field reads as null.
    if serde_json::to_value(&report).map_err(fields)? != value {
        return Err(ReadError::Missing);
    }
    match report.is_whole() {
        true => Ok(report),
        false => Err(ReadError::Changed),
    }
}

/// Reads the report of a file.
///
/// # Errors
/// The errors of [`read`], and of reading the file.
pub fn read_file(path: &Path) -> Result<Report, ReadError> {
    let mut text = Vec::new();
    let file = File::open(path)?;
    file.take(SIZE_MAX as u64 + 1).read_to_end(&mut text)?;
    read(&text)
}

/// The files named `*.json` in a directory, in the order of their names; a path that is no directory stands for itself.
///
/// # Errors
/// The directory cannot be read.
pub fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path)?.collect::<io::Result<Vec<_>>>()?;
    let paths = entries.into_iter().map(|it| it.path());
    let is_report = |path: &PathBuf| path.extension().is_some_and(|it| it == "json");
    let mut paths: Vec<PathBuf> = paths.filter(is_report).collect();
    paths.sort();
    Ok(paths)
}

/// The JSON Schema of reports, as `docs/report.schema.json` has it.
#[must_use]
pub fn schema() -> String {
    // A value can always be written.
    let text = serde_json::to_string_pretty(&report::schema()).unwrap_or_default();
    text + "\n"
}

#[cfg(test)]
mod tests;
