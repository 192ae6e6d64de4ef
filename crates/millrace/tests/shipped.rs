//! Checks that a shipped program has no option that turns encryption off.

#![cfg(not(feature = "null-cipher"))]

use std::process::Command;

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
    // The program does not contain the warning of a null cipher either, so no hidden option exists.
    let text = b"packets are NOT encrypted";
    let bytes = std::fs::read(program).unwrap();
    let is_there = bytes.windows(text.len()).any(|window| window == text);
    assert!(!is_there, "the warning of a cipher that does nothing");
}
