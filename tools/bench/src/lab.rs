//! `millrace lab`: networks on one machine, for experiments.

mod forward;
pub(super) mod line;
mod shell;
mod toolbox;

use std::process::ExitCode;

use clap::{ArgMatches, Command};

/// Builds the command's `clap` definition.
pub fn command() -> Command {
    Command::new("lab")
        .about("Build a small network on this machine and try things in it")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(shell::command())
        .subcommand(toolbox::command())
        .subcommand(forward::command())
}

/// Runs the command.
pub fn run(matches: &ArgMatches) -> ExitCode {
    match matches.subcommand() {
        Some(("shell", m)) => shell::run(m),
        Some(("list-tools", _)) => toolbox::run(),
        Some(("forward", m)) => forward::run(m),
        _ => ExitCode::from(2),
    }
}
