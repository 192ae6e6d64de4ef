//! One JSON object per line for each file.

use serde::Serialize;

use crate::examine::Audit;
use crate::role::Role;
use crate::verdict::{Gain, Verdict};

#[derive(Serialize)]
struct Line<'a> {
    path: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    inside: &'a str,
    soc: &'a str,
    role: &'a str,
    verdicts: Vec<&'a str>,
    evidence: &'a [String],
    flags: &'a str,
    gain: Option<Gain>,
    steps: &'a [String],
}

/// Returns one JSON object per finding, each on its own line, the most worth fixing first: `path`, `inside`
/// (the containers around it in an image), `soc`, `role`, `verdicts`, `evidence`, `flags`, `gain` (`what`,
/// `low`, `high`, `source`; `null` if no measurement is known), `steps`. Skipped parts follow, as
/// `cannot-tell`.
///
/// # Errors
/// Never fails in practice: every value is text or a number.
pub fn json(audit: &Audit<'_>) -> Result<String, serde_json::Error> {
    let mut lines = String::new();
    for finding in &audit.findings {
        let line = Line {
            path: &finding.path,
            inside: &finding.origin,
            soc: &audit.chip.soc.id,
            role: finding.role.word(),
            verdicts: finding
                .verdicts
                .iter()
                .map(|verdict| verdict.word())
                .collect(),
            evidence: &finding.evidence,
            flags: &finding.flags,
            gain: finding.gain,
            steps: &finding.steps,
        };
        lines += &serde_json::to_string(&line)?;
        lines.push('\n');
    }
    for skipped in &audit.skipped {
        let line = Line {
            path: &skipped.what,
            inside: &skipped.origin,
            soc: &audit.chip.soc.id,
            role: Role::Other.word(),
            verdicts: vec![Verdict::CannotTell.word()],
            evidence: &[format!("not examined: {}", skipped.why)],
            flags: "",
            gain: None,
            steps: &[],
        };
        lines += &serde_json::to_string(&line)?;
        lines.push('\n');
    }
    Ok(lines)
}
