//! `millrace audit --live` on the machine that runs the tests.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::process::Command;

use serde_json::Value;

fn report(format: &str) -> String {
    let program = env!("CARGO_BIN_EXE_millrace");
    let run = Command::new(program)
        .args(["audit", "--live", "--fail-on", "none", format])
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    String::from_utf8(run.stdout).unwrap()
}

#[test]
fn programs_get_a_report_of_every_box() {
    let lines = report("--json");
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(first["path"], "/");
    assert!(!first["evidence"].as_array().unwrap().is_empty());
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(line["verdicts"].is_array(), "{line}");
    }
    let sarif: Value = serde_json::from_str(&report("--sarif")).unwrap();
    assert_eq!(sarif["version"], "2.1.0");
}
