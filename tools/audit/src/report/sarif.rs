//! SARIF 2.1.0 (OASIS), which forges show beside the code.

use serde_json::{Value, json};

use crate::examine::Audit;
use crate::verdict::Verdict;

/// One SARIF document: a rule for each verdict, a result for each verdict of each file that is worth
/// fixing.
#[must_use]
pub fn sarif(audit: &Audit<'_>) -> Value {
    let worth = || {
        Verdict::ALL
            .into_iter()
            .filter(|verdict| verdict.is_worth_fixing())
    };
    let rules: Vec<Value> = worth()
        .map(|verdict| {
            json!({
                "id": verdict.word(),
                "shortDescription": { "text": verdict.meaning() },
                "defaultConfiguration": { "level": level(verdict) },
            })
        })
        .collect();
    let results: Vec<Value> = audit
        .findings
        .iter()
        .flat_map(|finding| {
            finding.verdicts.iter().filter(|verdict| verdict.is_worth_fixing()).map(move |verdict| (finding, verdict))
        })
        .map(|(finding, &verdict)| {
            let mut text = format!(
                "{} ({}): {}. Read: {}.",
                finding.path,
                finding.role.word(),
                verdict.meaning(),
                finding.evidence.join("; ")
            );
            if !finding.steps.is_empty() {
                text += &format!(" Do: {}", finding.steps.join(" "));
            }
            json!({
                "ruleId": verdict.word(),
                "level": level(verdict),
                "message": { "text": text },
                "rank": (f64::from(finding.rank()) / 12.0).clamp(0.0, 100.0),
                "locations": [{
                    "physicalLocation": { "artifactLocation": { "uri": uri(&finding.path) } },
                }],
                "properties": { "flags": finding.flags, "soc": audit.chip.soc.id, "inside": finding.origin },
            })
        })
        .collect();
    let notifications: Vec<Value> = audit
        .skipped
        .iter()
        .map(|skipped| {
            let text = format!(
                "{} {}: not examined: {}",
                skipped.what, skipped.origin, skipped.why
            );
            json!({ "level": "warning", "message": { "text": text } })
        })
        .collect();
    let driver = json!({
        "name": "millrace audit",
        "version": env!("CARGO_PKG_VERSION"),
        "rules": rules,
    });
    document(&driver, &results, audit.skipped.is_empty(), &notifications)
}

/// A SARIF document for a box that the audit could not judge, with the reason.
#[must_use]
pub fn sarif_of_nothing(why: &str) -> Value {
    let driver = json!({ "name": "millrace audit", "version": env!("CARGO_PKG_VERSION") });
    let note = json!({ "level": "note", "message": { "text": format!("not audited: {why}") } });
    document(&driver, &[], true, &[note])
}

/// The document of one run.
fn document(driver: &Value, results: &[Value], successful: bool, notifications: &[Value]) -> Value {
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": driver },
            "results": results,
            "invocations": [{
                "executionSuccessful": successful,
                "toolExecutionNotifications": notifications,
            }],
        }],
    })
}

fn level(verdict: Verdict) -> &'static str {
    match verdict.weight() {
        10.. => "error",
        6.. => "warning",
        _ => "note",
    }
}

/// Writes a path as a relative reference (RFC 3986), with reserved characters escaped.
fn uri(path: &str) -> String {
    let mut uri = String::with_capacity(path.len());
    for byte in path.trim_start_matches('/').bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~+@".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            uri += &format!("%{byte:02X}");
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_references() {
        assert_eq!(uri("/usr/lib/libstdc++.so"), "usr/lib/libstdc++.so");
        assert_eq!(uri("/a b%"), "a%20b%25");
    }
}
