//! Errors of imports.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::wgquick::FILE_MAX;

/// Why a file or a command line has no model. Its author can fix each one.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ImportError {
    /// A file is missing or unreadable.
    #[error("{}: cannot be read: {error}", path.display())]
    Read {
        /// The file's name as the user gave it.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
    /// A wg-quick file is above [`FILE_MAX`].
    #[error("{}: larger than {FILE_MAX} bytes; is it a wg-quick file?", path.display())]
    TooLarge {
        /// The file's name as the user gave it.
        path: PathBuf,
    },
    /// A file is not text.
    #[error("{}:{line}: not text; save the file as plain text in UTF-8", path.display())]
    NotText {
        /// The file's name as the user gave it.
        path: PathBuf,
        /// The line of the first invalid byte.
        line: usize,
    },
    /// A wg-quick file's name does not give an interface name.
    #[error(
        "{}: the file's name must be an interface name and .conf; rename the file: 1 to 15 letters, digits and _=+.- before .conf",
        path.display()
    )]
    Name {
        /// The file's name as the user gave it.
        path: PathBuf,
    },
    /// Lines are wrong, refused or missing.
    #[error("{first}{}", others(*count))]
    Lines {
        /// The first fault, with file and line or argument.
        first: String,
        /// How many faults there are.
        count: usize,
    },
}

impl ImportError {
    /// The error for a file that cannot be read.
    pub(crate) fn read(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |error| Self::Read { path, error }
    }

    /// The error for a file that is not text, with the line of the first invalid byte.
    pub(crate) fn not_text(path: &Path) -> impl FnOnce(usize) -> Self {
        let path = path.to_owned();
        |line| Self::NotText { path, line }
    }
}

fn others(count: usize) -> String {
    match count {
        0 | 1 => String::new(),
        2 => " (and 1 other fault; `millrace check` lists all)".to_owned(),
        _ => format!(
            " (and {} other faults; `millrace check` lists all)",
            count - 1
        ),
    }
}
