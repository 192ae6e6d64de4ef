//! The output of `millrace speed` and its exit codes.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use crypto::Backend;
use crypto::primitives::{Algorithm, is_present};
use serde_json::Value;

fn speed(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command.arg("speed").args(words);
    command
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    let lines = text(&output.stdout).lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The shortest time possible: only the list of measurements matters here.
const HURRY: [&str; 2] = ["--seconds", "0.001"];

#[test]
fn json_has_every_algorithm_operation_and_back_end_that_is_there() {
    let output = speed(&HURRY)
        .args(["--json", "--bytes", "16,1408"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    // Standard error is not a terminal, so the program prints no progress.
    assert_eq!(text(&output.stderr), "");
    let mut found = BTreeSet::new();
    for line in lines(&output) {
        let word = |key: &str| line[key].as_str().unwrap().to_owned();
        let batch = line["batch"].as_u64().unwrap();
        let (bytes, rate) = match line["bytes"].as_u64() {
            Some(bytes) => (bytes, &line["kilobytes_per_second"]),
            None => (0, &line["operations_per_second"]),
        };
        assert!(rate.as_f64().unwrap() > 0.0, "{line}");
        assert_ne!(word("implementation"), "", "{line}");
        let all = word("operation") == "seal" || word("operation") == "open";
        let all = all && (batch, bytes) == (32, 1408);
        assert_eq!(line["threads"].as_u64().is_some(), all, "{line}");
        assert_eq!(
            line["kilobytes_per_second_all"].as_f64().is_some(),
            all,
            "{line}"
        );
        let what = (word("algorithm"), word("operation"), word("backend"));
        assert!(found.insert((what, batch, bytes)), "twice: {line}");
    }
    let mut expected = BTreeSet::new();
    for algorithm in Algorithm::ALL {
        for backend in Backend::ALL {
            if !is_present(algorithm, backend) {
                continue;
            }
            for operation in algorithm.operations() {
                let what = || {
                    (
                        algorithm.to_string(),
                        operation.name().to_owned(),
                        backend.name().to_owned(),
                    )
                };
                if algorithm.is_public_key() {
                    expected.insert((what(), 1, 0));
                    continue;
                }
                for batch in [1, 32] {
                    expected.extend([16, 1408].map(|bytes| (what(), batch, bytes)));
                }
            }
        }
    }
    assert_eq!(found, expected);
}

#[test]
fn people_get_the_layout_of_openssl() {
    let words = ["aes-128-gcm", "hashes", "x25519", "--bytes=64,1408"];
    let output = speed(&HURRY).args(words).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let tables = text(&output.stdout);
    for line in [
        "The 'numbers' are in 1000s of bytes per second processed.",
        "portable, one packet at a time",
        "portable, 32 packets at a time",
    ] {
        assert!(tables.lines().any(|one| one == line), "{line}: {tables}");
    }
    for begin in [
        "type  ",
        "aes-128-gcm seal ",
        "sha512 ",
        "x25519 ",
        "tunnel cipher ",
    ] {
        assert!(
            tables.lines().any(|one| one.starts_with(begin)),
            "{begin}: {tables}"
        );
    }
}

#[test]
fn a_wrong_command_line_ends_with_2_and_says_why() {
    for (words, says) in [
        (&["aes-512-cbc"][..], "aes-512-cbc"),
        (&["--seconds", "0"], "0.001 to 3600"),
        (&["--bytes", "100000"], "1..=65000"),
        (&["--backend", "gpu"], "portable, simd, accelerator"),
        (&["--compare", "gnutls"], "openssl"),
    ] {
        let output = speed(words).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        let complaint = text(&output.stderr);
        assert!(complaint.contains(says), "{words:?}: {complaint}");
        assert_eq!(text(&output.stdout), "");
    }
}

#[test]
fn what_this_machine_has_not_is_an_error() {
    // Blowfish has only portable code.
    let output = speed(&["bf-cbc", "--backend", "accelerator"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let complaint = text(&output.stderr);
    assert!(complaint.contains("accelerator"), "{complaint}");
}

#[test]
fn without_openssl_nothing_is_compared() {
    let directory = tempfile::tempdir().unwrap();
    let output = speed(&["sha1", "--compare", "openssl"])
        .env("PATH", directory.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let complaint = text(&output.stderr);
    assert!(
        complaint.contains("is not in PATH; install the package openssl"),
        "{complaint}"
    );
    assert_eq!(text(&output.stdout), "");
}

/// Answers as OpenSSL 3.0 does, but at once and with fixed rates. It does not know RC4.
const OPENSSL: &str = r#"#!/bin/sh
case "$*" in
version) echo "OpenSSL 3.0.19 27 Jan 2026 (Library: OpenSSL 3.0.19 27 Jan 2026)" ;;
"speed -help")
    printf ' %s  words\n' -mr -seconds -bytes -evp -hmac -aead -decrypt -provider
    ;;
*rc4*) echo "+H:1408"; echo "+F:25:RC4:0.00" ;;
*rsa2048) echo "+H:16:64"; echo "+F2:2:2048:3806.000000:70579.245283" ;;
*"-bytes 1408"*) echo "+H:1408"; echo "+F:25:NAME:2000000.00" ;;
*) exit 1 ;;
esac
"#;

#[test]
fn openssl_is_compared_with() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("openssl");
    fs::write(&program, OPENSSL).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let words = [
        "aes-256-cbc+hmac-sha1",
        "sha256",
        "rc4",
        "rsa2048",
        "--bytes=1408",
        "--batch=1",
        "--compare=openssl",
    ];
    let run = |json: &[&str]| {
        let mut command = speed(&HURRY);
        command
            .args(words)
            .args(json)
            .env("PATH", directory.path())
            .output()
            .unwrap()
    };
    let output = run(&["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let theirs: Vec<String> = lines(&output)
        .iter()
        .filter(|line| line["backend"] == "openssl")
        .map(|line| {
            let rate = match &line["kilobytes_per_second"] {
                Value::Null => &line["operations_per_second"],
                rate => rate,
            };
            assert_eq!(line["implementation"], "OpenSSL 3.0.19 27 Jan 2026");
            let word = |key: &str| line[key].as_str().unwrap().to_owned();
            format!("{} {} {rate}", word("algorithm"), word("operation"))
        })
        .collect();
    assert_eq!(
        theirs,
        [
            // AES and HMAC are two passes.
            "aes-256-cbc+hmac-sha1 seal 1000.0",
            "aes-256-cbc+hmac-sha1 open 1000.0",
            "sha256 hash 2000.0",
            "rsa-2048 sign 3806.0",
            "rsa-2048 verify 70579.25",
        ]
    );
    let output = run(&[]);
    let tables = text(&output.stdout);
    assert!(tables.contains("x openssl"), "{tables}");
    assert!(
        tables.contains("\nopenssl, one packet at a time\n"),
        "{tables}"
    );
}
