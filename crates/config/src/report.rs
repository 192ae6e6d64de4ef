//! The verdict on every line of an imported file.

use std::fmt;

use crate::error::ImportError;

/// The verdicts on one file's lines, in the order of the file.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// The file's name as the user gave it.
    pub file: String,
    /// One verdict for each line that is not empty, a comment or a section head; a second one if a part of the line
    /// is treated differently.
    pub entries: Vec<Entry>,
}

/// The result for a file that is honoured as a whole or not at all: a report on all lines, and a model if no line was
/// refused.
#[derive(Debug)]
pub struct Import<T> {
    /// The verdict on each line.
    pub report: Report,
    model: Option<T>,
}

impl<T> Import<T> {
    /// Sorts the report by line, and keeps the model only if nothing was refused.
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

    /// Refuses the line of `key` if `wrong` says that the model as a whole does not permit it.
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

    /// The model, by reference.
    #[must_use]
    pub const fn model(&self) -> Option<&T> {
        self.model.as_ref()
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
    /// Line counted from 1; 0 for the whole file.
    pub line: usize,
    /// The key, in its usual spelling if known; empty if there is none.
    pub key: String,
    /// The verdict.
    pub verdict: Verdict,
    /// Reason for the verdict, and the remedy. May be empty when honoured. Never holds a key's value.
    pub reason: String,
}

/// The verdict on a line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// The line has its effect.
    Honoured,
    /// The line has no effect, which does no harm.
    Ignored,
    /// The line is wrong, or requests something unsupported.
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

    /// Marks the honoured settings of a line as without effect.
    pub(crate) fn ignore(&mut self, line: usize, reason: &str) {
        self.judge_again(&[line], Verdict::Ignored, reason);
    }

    /// Refuses a line because of a fault found later, whose text begins as [`Report::describe`] writes it. Without a
    /// matching honoured line, refuses the whole file.
    pub fn refuse(&mut self, fault: &str) {
        let honoured = |entry: &&Entry| entry.verdict == Verdict::Honoured;
        let reason = |entry: &Entry| {
            let place = self.describe(&Entry {
                reason: String::new(),
                ..entry.clone()
            });
            let rest = fault.strip_prefix(&place)?;
            let about = rest.starts_with([':', ' ']);
            about.then(|| rest.trim_start_matches([':', ' ']).to_owned())
        };
        let mut entries = self.entries.iter().enumerate().rev();
        let found = entries.find_map(|(at, entry)| {
            Some(entry).filter(honoured)?;
            Some((at, reason(entry)?))
        });
        match found.and_then(|(at, reason)| Some((self.entries.get_mut(at)?, reason))) {
            Some((entry, reason)) => {
                entry.verdict = Verdict::Refused;
                entry.reason = reason;
            }
            None => self.push(0, "", Verdict::Refused, fault),
        }
    }

    /// Changes the verdict of the honoured entries of these lines, all for one reason.
    pub(crate) fn judge_again(&mut self, lines: &[usize], verdict: Verdict, reason: &str) {
        let honoured =
            |entry: &&mut Entry| lines.contains(&entry.line) && entry.verdict == Verdict::Honoured;
        for entry in self.entries.iter_mut().filter(honoured) {
            entry.verdict = verdict;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_that_is_found_later_goes_to_its_line() {
        let mut report = Report {
            file: "a.ovpn".to_owned(),
            entries: Vec::new(),
        };
        report.push(2, "tls-auth", Verdict::Ignored, "overridden at line 3");
        report.push(3, "tls-auth", Verdict::Honoured, "");
        report.push(4, "user", Verdict::Honoured, "");
        report.push(5, "username", Verdict::Honoured, "");
        report.refuse("a.ovpn:3: tls-auth: the block is empty");
        report.refuse("a.ovpn:4: user nosuch: there is none");
        report.refuse("there is no certificate");
        let told: Vec<_> = report.with(Verdict::Refused).collect();
        let of = |at: usize| (told[at].line, &*told[at].key, &*told[at].reason);
        assert_eq!(of(0), (3, "tls-auth", "the block is empty"));
        assert_eq!(of(1), (4, "user", "nosuch: there is none"));
        assert_eq!(of(2), (0, "", "there is no certificate"));
        assert_eq!(told.len(), 3);
    }
}
