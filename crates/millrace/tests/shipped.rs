//! What a program that ships must not have.

#![cfg(not(feature = "null-cipher"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::process::Command;

/// The options that a benchmark's build has, and what each would do.
#[test]
fn no_option_of_a_program_that_ships_turns_encryption_off() {
    let program = env!("CARGO_BIN_EXE_millrace");
    let output = Command::new(program)
        .args(["wireguard", "--foreground", "--null-cipher", "wg0"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("unexpected argument '--null-cipher'"),
        "{said}"
    );
    // The cipher is not there either, hidden or not: nothing names its type, its option or its warning.
    let bytes = std::fs::read(program).unwrap();
    for text in ["packets are NOT encrypted", "NO ENCRYPTION"] {
        let found = bytes
            .windows(text.len())
            .any(|window| window == text.as_bytes());
        assert!(!found, "{text}");
    }
}
