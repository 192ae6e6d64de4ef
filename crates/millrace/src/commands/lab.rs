//! placeholder
use clap::{ArgMatches, Command};
use std::process::ExitCode;
pub(crate) fn command() -> Command {
    Command::new("lab")
}
pub(crate) fn run(_: &ArgMatches) -> ExitCode {
    ExitCode::from(2)
}
