//! The program `dnsmasq`, and the command that restarts it.

use std::io;
use std::process::Command;

use super::DnsError;
use crate::background;
use crate::dns::{LIMIT, find_program, helper};

/// Whether the host's `dnsmasq` can put addresses into nftables sets, according to its version.
///
/// # Errors
/// The program is missing, cannot be run, or does not end.
pub fn knows_sets() -> Result<bool, DnsError> {
    let program = "dnsmasq";
    let printed = helper::printed(Command::new(program).arg("--version"), LIMIT);
    let printed = printed.and_then(|it| it.ok_or_else(|| io::ErrorKind::TimedOut.into()));
    match printed {
        Ok(version) => Ok(has_sets(&version)),
        Err(error) => Err(DnsError::Run { program, error }),
    }
}

fn has_sets(version: &str) -> bool {
    version
        .split_ascii_whitespace()
        .any(|word| word == "nftset")
}

/// Runs the command that restarts `dnsmasq`.
pub(super) fn start_anew(words: &[String]) -> Result<(), DnsError> {
    let failed = |reason: String| DnsError::Restart {
        command: words.join(" "),
        reason,
    };
    let Some((program, arguments)) = words.split_first() else {
        return Ok(());
    };
    let path = find_program(program).unwrap_or_else(|| program.into());
    let mut command = Command::new(path);
    command.args(arguments).env_remove(background::CHILD);
    match helper::run(&mut command, "", LIMIT) {
        Ok(Some((status, _))) if status.success() => Ok(()),
        Ok(Some((status, message))) => Err(failed(match message.lines().next() {
            Some(line) => format!("{status}: {}", line.trim()),
            None => status.to_string(),
        })),
        Ok(None) => Err(failed(format!(
            "did not end in {} seconds",
            LIMIT.as_secs()
        ))),
        Err(error) => Err(failed(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dnsmasq_without_sets_is_known_by_its_options() {
        assert!(has_sets("Compile time options: IPv6 ipset nftset auth"));
        assert!(!has_sets("Compile time options: IPv6 ipset no-nftset auth"));
        assert!(!has_sets("Compile time options: IPv6 no-ipset auth"));
    }
}
