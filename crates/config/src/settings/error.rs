//! Errors of settings files.

use super::{ENVIRONMENT, FILE_MAX};
use crate::report::Entry;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Where a setting stands.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Origin {
    /// A line, counted from 1, of a settings file.
    File {
        /// The file's name as the user gave it.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
    },
    /// The variable [`ENVIRONMENT`].
    Environment,
    /// A `--set` argument.
    CommandLine,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment => f.write_str(ENVIRONMENT),
            Self::CommandLine => f.write_str("--set"),
        }
    }
}

/// Why the settings cannot be used. The administrator can fix each one; the message says how.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The file is missing or unreadable.
    #[error("{}: cannot be read: {error}", path.display())]
    Read {
        /// The file's name as the user gave it.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
    /// The file is above [`FILE_MAX`].
    #[error("{}: larger than {FILE_MAX} bytes; is it a settings file?", path.display())]
    TooLarge {
        /// The file's name as the user gave it.
        path: PathBuf,
    },
    /// The file is not TOML.
    #[error("{origin}: not valid TOML: {message}")]
    Syntax {
        /// The file and line, or other source.
        origin: Origin,
        /// The TOML parser's error.
        message: String,
    },
    /// An override without a section or a value.
    #[error("{origin}: `{found}` is no setting; write for example dataplane.udp-gso=off")]
    Assignment {
        /// The file and line, or other source.
        origin: Origin,
        /// Override as given.
        found: String,
    },
    /// The setting does not exist.
    #[error("{origin}: there is no setting `{found}`; {suggestion}")]
    Unknown {
        /// The file and line, or other source.
        origin: Origin,
        /// Unknown name as given.
        found: String,
        /// The nearest name, or all of them.
        suggestion: String,
    },
    /// The setting does not accept the value.
    #[error("{origin}: {key} cannot be {found}; write {wanted}")]
    Value {
        /// The file and line, or other source.
        origin: Origin,
        /// Section and name.
        key: String,
        /// Value as given.
        found: String,
        /// Description of the accepted values.
        wanted: &'static str,
    },
    /// A policy entry or a line lacks a key, or has one that does not fit.
    #[error("{origin}: {words}")]
    Entry {
        /// The file and line, or other source.
        origin: Origin,
        /// A sentence about the fault.
        words: String,
    },
}

/// The error for lines that fit no tunnel.
pub(super) fn wrong_line(path: &Path, entry: &Entry) -> SettingsError {
    let parts = [entry.key.as_str(), entry.reason.as_str()];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    SettingsError::Entry {
        origin: Origin::File {
            path: path.to_owned(),
            line: entry.line,
        },
        words: parts.join(": "),
    }
}
