//! Runs the commands that build networks, and checks how they end.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::process::{Command, Output};

use lab::tools;

/// Runs the program; `None` where it cannot build networks.
fn millrace(arguments: &[&str]) -> Option<Output> {
    let tools = ["wg", "ping", "iperf3"];
    lab::require(
        tools
            .iter()
            .try_for_each(|tool| tools::find(tool).map(drop)),
    )?;
    lab::require(tools::tun())?;
    lab::require(lab::enter())?;
    let output = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(arguments)
        .output();
    Some(output.unwrap())
}

#[test]
fn a_short_bench_fills_its_tables() {
    let arguments = [
        "--impl",
        "millrace,forwarder",
        "--test",
        "setup,ping,memory",
    ];
    let mut line = vec!["bench", "--quick", "--reference", "forwarder"];
    line.extend(arguments);
    let Some(output) = millrace(&line) else {
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    for part in [
        "## Time",
        "## Memory",
        "set-up",
        "Ratio to forwarder",
        "RSS idle",
    ] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    assert!(!text.contains("## Failed"), "{text}");
}

/// OpenVPN is measured too, here with the stock program only, because every pair costs time.
#[test]
fn openvpn_is_measured_and_crowded() {
    if lab::require(tools::find("openvpn")).is_none() {
        return;
    }
    let line = [
        "bench",
        "--quick",
        "--impl",
        "openvpn-gcm",
        "--test",
        "setup,ping",
        "--http",
    ];
    let Some(output) = millrace(&line) else {
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    for part in ["## Time", "## Files over HTTP", "Kbyte/s", "openvpn-gcm"] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    let line = [
        "bench",
        "--quick",
        "--impl",
        "openvpn-gcm",
        "--clients",
        "5",
    ];
    let output = millrace(&line).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains("all back, s"), "{text}");
}

#[test]
fn a_command_in_the_lab_reaches_the_office_and_keeps_its_status() {
    let ping = ["ping", "-c", "1", "10.9.0.1"];
    let mut line = vec!["lab", "shell", "--delay", "1", "--"];
    line.extend(ping);
    let Some(output) = millrace(&line) else {
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 received"),
        "{output:?}"
    );
    let line = [
        "lab", "shell", "--tunnel", "none", "--", "sh", "-c", "exit 7",
    ];
    let Some(output) = millrace(&line) else {
        return;
    };
    assert_eq!(output.status.code(), Some(7), "{output:?}");
}
