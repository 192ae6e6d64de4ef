//! Comparison with another build of this program: its path and the measurements for both.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use lab::LabError;

use super::contender::Contender;
use super::openvpn::{Ends, Suite};
use super::test::Test;

/// The OpenVPN suites of the comparison, besides WireGuard.
pub(super) const SUITES: [Suite; 3] = [Suite::Gcm, Suite::Cbc, Suite::GcmTcp];

/// The tests of the comparison.
pub(super) const TESTS: [Test; 3] = [Test::Tcp1, Test::Tcp1Back, Test::Memory];

/// Repetitions of the comparison: many, because differences are small.
pub(super) const REPETITIONS: u32 = 5;

/// This program and the other one, pair by pair: WireGuard, then each suite.
pub(super) fn pairs() -> impl Iterator<Item = (Contender, Contender)> {
    let of = |suite| [Ends::Millrace, Ends::Other].map(|ends| Contender::OpenVpn(ends, suite));
    let pairs = SUITES
        .into_iter()
        .map(of)
        .map(|[ours, other]| (ours, other));
    std::iter::once((Contender::Millrace, Contender::Other)).chain(pairs)
}

/// The error if `--impl` names none of the pairs.
pub(super) fn nothing_to_compare() -> LabError {
    let ours: Vec<_> = pairs().map(|(ours, _)| ours.name()).collect();
    LabError::Unusable {
        what: "--impl".to_owned(),
        hint: format!("with --against it names some of {}", ours.join(", ")),
    }
}

/// Resolves the path of a program.
///
/// # Errors
/// A message for the command line if the path is missing or not executable.
pub(super) fn program(path: &str) -> Result<PathBuf, String> {
    // Absolute, because hosts of the lab use another working directory.
    let found = fs::canonicalize(path).map_err(|error| error.to_string())?;
    let metadata = fs::metadata(&found).map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err(
            "it is no file; name a program, target/release/millrace for example".to_owned(),
        );
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return Err("it is not executable".to_owned());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_differs_in_the_program_only() {
        let names: Vec<_> = pairs().map(|(a, b)| [a.name(), b.name()]).collect();
        assert_eq!(
            names,
            [
                ["millrace", "other"],
                ["ovpn-gcm", "other-gcm"],
                ["ovpn-cbc", "other-cbc"],
                ["ovpn-gcm-tcp", "other-gcm-tcp"],
            ]
        );
    }

    #[test]
    fn only_a_program_is_taken() {
        assert!(program("/bin/sh").is_ok());
        let error = program("/no/such/file").unwrap_err();
        assert!(error.contains("No such file"), "{error}");
        assert!(
            program("/etc/passwd")
                .unwrap_err()
                .contains("not executable")
        );
        assert!(program("/etc").unwrap_err().contains("no file"));
    }
}
