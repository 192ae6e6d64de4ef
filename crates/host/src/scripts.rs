//! `PreUp` to `PostDown`: the user's own commands, run only where the user has permitted it.

use std::process::{Command, ExitStatus};

use thiserror::Error;

use crate::background;

/// Why not all commands ran.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// The kernel has no shell to run, or no process to spare.
    #[error("`{command}`: cannot be run: {error}")]
    Run {
        /// The command with `%i` replaced.
        command: String,
        /// The kernel's error.
        error: std::io::Error,
    },
    /// A command failed; those after it were not run.
    #[error("`{command}`: {status}")]
    Failed {
        /// The command with `%i` replaced.
        command: String,
        /// The command's exit status.
        status: ExitStatus,
    },
}

/// Runs the commands of one phase in order, each in its own shell, with `%i` replaced by the interface. The shell is
/// `bash` if installed, for which the commands were written; otherwise `sh`, as many routers have no `bash`.
///
/// # Errors
/// The first command that failed.
pub fn run_scripts(commands: &[String], ifname: &str) -> Result<(), ScriptError> {
    for command in commands {
        let command = command.replace("%i", ifname);
        log::info!("{ifname}: {command}");
        let status = ["bash", "sh"]
            .iter()
            .map(|shell| {
                let mut process = Command::new(shell);
                // The command may start a tunnel of its own.
                process.arg("-c").arg(&command).env_remove(background::CHILD);
                process.status()
            })
            .find(|outcome| !matches!(outcome, Err(error) if error.kind() == std::io::ErrorKind::NotFound))
            .unwrap_or_else(|| Err(std::io::ErrorKind::NotFound.into()));
        match status {
            Err(error) => return Err(ScriptError::Run { command, error }),
            Ok(status) if !status.success() => return Err(ScriptError::Failed { command, status }),
            Ok(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_run_in_order_up_to_the_first_that_fails() {
        let run = |commands: &[&str]| {
            let commands: Vec<String> = commands.iter().map(|&c| c.to_owned()).collect();
            run_scripts(&commands, "wg0")
        };
        assert!(run(&["true", "test %i = wg0"]).is_ok());
        let error = run(&["exit 3", "kill $$"]).unwrap_err().to_string();
        assert!(error.contains("exit 3") && error.contains('3'), "{error}");
    }
}
