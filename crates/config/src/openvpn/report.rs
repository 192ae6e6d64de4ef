//! Turns verdicts into the report on one file.

use super::directive::Origin;
use super::table;
use crate::report::{Entry, Report, Verdict};

/// The name of the command line in messages, as in stock.
pub(crate) const COMMAND_LINE: &str = "[CMD-LINE]";

/// Replaces every message about a line of an included file, which may be any file of the machine.
pub(crate) const CONCEALED: &str = "`millrace check` of that file says more";

/// A verdict on a directive, with its full place.
pub(crate) struct Judged {
    pub origin: Origin,
    pub name: String,
    pub verdict: Verdict,
    pub reason: String,
    /// Whether the refusal leaves no usable tunnel.
    pub fatal: bool,
}

/// Removes an included file's words from the verdicts: it may be any file of the machine.
pub(crate) fn conceal(judged: &mut [Judged]) {
    for judged in judged.iter_mut().filter(|it| it.origin.included) {
        if table::find(&judged.name).is_none() {
            judged.name.clear();
        }
        if !judged.reason.is_empty() {
            CONCEALED.clone_into(&mut judged.reason);
        }
    }
}

/// The report on `file`; verdicts on other files have their place in the reason.
pub(crate) fn report(judged: &[Judged], file: &str) -> Report {
    let mut report = Report {
        file: file.to_owned(),
        entries: Vec::with_capacity(judged.len()),
    };
    for judged in judged {
        let here = judged.origin.file.as_deref() == Some(file)
            || (judged.origin.file.is_none() && file == COMMAND_LINE);
        let (line, place) = match judged.origin.line {
            0 => (0, None),
            line if here => (line, None),
            _ => (0, Some(judged.origin.describe())),
        };
        let parts = [place.as_deref().unwrap_or_default(), &judged.reason];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        report.entries.push(Entry {
            line,
            key: judged.name.clone(),
            verdict: judged.verdict,
            reason: parts.join(": "),
        });
    }
    // Verdicts on missing directives stand first, the others in file order. The sort is stable: verdicts on other
    // files keep their order.
    if judged
        .iter()
        .all(|judged| judged.origin.line == 0 || judged.origin.file.as_deref() == Some(file))
    {
        report.entries.sort_by_key(|entry| entry.line);
    }
    report
}

/// The faults that prevent a model, in words.
pub(crate) fn faults(judged: &[Judged], file: &str) -> Vec<String> {
    let fatal = |judged: &&Judged| judged.verdict == Verdict::Refused && judged.fatal;
    let faults = judged.iter().filter(fatal).map(|fault| {
        let place = match fault.origin.line {
            0 => file.to_owned(),
            _ => fault.origin.describe(),
        };
        let name = match fault.name.as_str() {
            "" => String::new(),
            name => format!(": {name}"),
        };
        format!("{place}{name}: {}", fault.reason)
    });
    faults.collect()
}

/// Names and places of honoured directives, and whether their file is included by another.
pub(crate) fn places(judged: &[Judged]) -> Vec<(String, String, bool)> {
    let holds = |judged: &&Judged| judged.verdict == Verdict::Honoured;
    let places = judged.iter().filter(holds);
    places
        .map(|judged| {
            let origin = &judged.origin;
            (judged.name.clone(), origin.describe(), origin.included)
        })
        .collect()
}
