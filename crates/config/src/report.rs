//! What became of every line of an imported file.

use std::fmt;

use crate::error::ImportError;

/// The verdicts on one file's lines, in the order of the file.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// The file as it was named.
    pub file: String,
    /// One verdict for each line that is neither empty nor a comment nor a section's head; a
    /// second one where a part of a line fares otherwise.
    pub entries: Vec<Entry>,
}

/// What a file gave of which nothing is honoured as long as anything is refused: a report on all its lines, and a model if
/// none was.
#[derive(Debug)]
pub struct Import<T> {
    /// What became of each line.
    pub report: Report,
    model: Option<T>,
}

impl<T> Import<T> {
    /// Takes a report, which is put into the order of the lines, and a model, which is kept only if nothing was refused.
    pub(crate) fn new(mut report: Report, model: Option<T>) -> Self {
        report.entries.sort_by_key(|entry| entry.line);
        let model = model.filter(|_| report.is_clean());
        Self { report, model }
    }

    /// True when [`Import::into_model`] would succeed.
    #[must_use]
    pub const fn is_usable(&self) -> bool {
        self.model.is_some()
    }

    /// Refuses a line for what the whole file is.
    pub fn refuse_where(&mut self, key: &str, reason: &str, wrong: impl FnOnce(&T) -> bool) {
        if !self.model.as_ref().is_some_and(wrong) {
            return;
        }
        self.model = None;
        let entries = self.report.entries.iter_mut();
        for entry in entries.filter(|it| it.key == key) {
            entry.verdict = Verdict::Refused;
            reason.clone_into(&mut entry.reason);
        }
    }

    /// The model.
    ///
    /// # Errors
    /// [`ImportError::Lines`] with the first line that was refused.
    pub fn into_model(self) -> Result<T, ImportError> {
        let report = &self.report;
        self.model.ok_or_else(|| {
            let mut refused = report.with(Verdict::Refused);
            ImportError::Lines {
                first: refused
                    .next()
                    .map_or_else(String::new, |entry| report.describe(entry)),
                count: 1 + refused.count(),
            }
        })
    }
}

/// The verdict on a line or a part of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// Line counted from 1; 0 for the file as a whole.
    pub line: usize,
    /// The key, in its usual spelling where it is known; empty for none.
    pub key: String,
    /// What became of it.
    pub verdict: Verdict,
    /// Why, and what to do about it. May be empty when honoured. Never holds a key's value.
    pub reason: String,
}

/// What became of a line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// It does what it says.
    Honoured,
    /// It does nothing, and that does no harm.
    Ignored,
    /// It is wrong, or asks for something that is not done.
    Refused,
}

impl Verdict {
    /// The word that reports use.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Honoured => "honoured",
            Self::Ignored => "ignored",
            Self::Refused => "refused",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Report {
    /// The entries with this verdict.
    pub fn with(&self, verdict: Verdict) -> impl Iterator<Item = &Entry> {
        self.entries
            .iter()
            .filter(move |entry| entry.verdict == verdict)
    }

    /// Says that what this line of the file sets has no effect after all.
    pub(crate) fn ignore(&mut self, line: usize, reason: &str) {
        let honoured =
            |entry: &&mut Entry| entry.line == line && entry.verdict == Verdict::Honoured;
        for entry in self.entries.iter_mut().filter(honoured) {
            entry.verdict = Verdict::Ignored;
            reason.clone_into(&mut entry.reason);
        }
    }

    /// True when nothing was refused.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.with(Verdict::Refused).next().is_none()
    }

    /// `FILE:LINE: KEY: REASON`, the way compilers write it, for a log or an error.
    #[must_use]
    pub fn describe(&self, entry: &Entry) -> String {
        let mut text = self.file.clone();
        if entry.line != 0 {
            text += &format!(":{}", entry.line);
        }
        if !entry.key.is_empty() {
            text += &format!(": {}", entry.key);
        }
        if !entry.reason.is_empty() {
            text += &format!(": {}", entry.reason);
        }
        text
    }

    pub(crate) fn push(
        &mut self,
        line: usize,
        key: &str,
        verdict: Verdict,
        reason: impl Into<String>,
    ) {
        self.entries.push(Entry {
            line,
            key: key.to_owned(),
            verdict,
            reason: reason.into(),
        });
    }
}
