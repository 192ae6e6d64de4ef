//! Why there is no model.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a configuration gives no model. All are its author's to mend.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenVpnError {
    /// A file is missing or unreadable.
    #[error("{}: cannot be read: {error}", path.display())]
    Read {
        /// The file as it was named.
        path: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
    /// A file is no text.
    #[error("{}:{line}: not text; save the file as plain text", path.display())]
    NotText {
        /// The file as it was named.
        path: PathBuf,
        /// The line with the first byte that is wrong.
        line: usize,
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
