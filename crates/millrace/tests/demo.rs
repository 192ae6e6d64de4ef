//! `millrace demo` shows its results and leaves nothing behind.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lab::tools;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Starts the demo with one second for each file size; `None` where it cannot build networks.
fn demo() -> Option<Child> {
    start(&["demo", "--seconds", "1"])
}

/// Starts the program with these arguments.
fn start(arguments: &[&str]) -> Option<Child> {
    let tools = ["wg", "ping", "openssl", "openvpn"];
    lab::require(
        tools
            .iter()
            .try_for_each(|tool| tools::find(tool).map(drop)),
    )?;
    lab::require(tools::tun())?;
    lab::require(lab::enter())?;
    let child = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn();
    Some(child.unwrap())
}

#[test]
fn wireguard_and_openvpn_stand_beside_the_programs_of_others() {
    let Some(child) = demo() else { return };
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    // The length is known before anything runs, and the limits before the figures.
    let traffic = text.find("\ndemo: direct").unwrap();
    assert!(text[..traffic].contains(" ways, about "), "{text}");
    for heading in ["WireGuard", "OpenVPN, AES-256-GCM"] {
        let (_, block) = text.split_once(&format!("\n{heading}\n\n")).unwrap();
        let (above, _) = block.split_once('|').unwrap();
        assert!(above.contains("only the ratios hold"), "{text}");
        assert!(above.lines().all(|line| line.len() <= 80), "{above}");
    }
    for part in ["files of 10 MB: Mbit/s", "tunnel at the branch: CPU s/GB"] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    let compared = |line: &&str| line.starts_with("Big files: millrace was ");
    assert_eq!(text.lines().filter(compared).count(), 2, "{text}");
    let tables = text.lines().filter(|line| line.starts_with('|'));
    assert!(tables.clone().all(|line| line.chars().count() <= 80));
}

#[test]
fn each_way_to_use_two_lines_has_a_row_and_a_drawing() {
    let Some(child) = start(&["demo", "uplinks", "--seconds", "9"]) else {
        return;
    };
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let lost = |way: &str| -> f64 {
        let row = text
            .lines()
            .find(|line| line.starts_with(&format!("| {way} ")));
        let cells: Vec<&str> = row.unwrap().split('|').map(str::trim).collect();
        cells[2].parse().unwrap()
    };
    // The line is cut for three of nine seconds, and both lines always lose some packets.
    assert!(lost("dsl") > 25.0, "{text}");
    assert!(lost("duplicate") < 10.0, "{text}");
    for way in ["lte", "failover", "critical"] {
        assert!(lost(way) < lost("dsl"), "{way}: {text}");
    }
    // The call may have been on the line that was cut.
    assert!(lost("balance") < 50.0, "{text}");
    assert!(text.contains('✂') && text.contains("····"), "{text}");
}

#[test]
fn ctrl_c_ends_every_host_and_program() {
    let Some(mut child) = demo() else { return };
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // Hosts, a web server and a tunnel's programs are running when the demo prints its first answer.
    let is_up = |line: String| line.contains("first answer after");
    assert!(lines.by_ref().map(Result::unwrap).any(is_up));
    let programs = descendants(child.id());
    assert!(programs.len() >= 2, "{programs:?}");
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let end = Instant::now() + Duration::from_secs(20);
    while let Some(program) = programs.iter().find(|program| lives(program)) {
        assert!(Instant::now() < end, "{program} lives");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the process IDs of all descendants of `process`.
fn descendants(process: u32) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![process.to_string()];
    while let Some(parent) = open.pop() {
        let tasks = fs::read_dir(format!("/proc/{parent}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            for child in children.split_whitespace() {
                found.push(child.to_owned());
                open.push(child.to_owned());
            }
        }
    }
    found
}

/// Returns whether a process exists and is not a zombie that its parent does not reap.
fn lives(process: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    !status.is_empty() && !status.contains(") Z ")
}
