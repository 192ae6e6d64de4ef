//! `millrace relay`: forwards tunnels' datagrams for clients that have two servers rather than two uplinks.

use super::settings;
use clap::{Arg, ArgMatches, Command, value_parser};
use config::relay::{self, Relay};
use config::report::Verdict;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The command-line definition of `relay`.
pub(crate) fn command() -> Command {
    let command = Command::new("relay")
        .about("Forward the tunnels of clients that hold a key to one server, until interrupted")
        .arg(
            Arg::new("FILE")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("The relay's file, with a [Relay] section; SIGHUP reads it anew"),
        )
        .arg(settings::log_argument());
    settings::arguments(command)
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    match relay(matches) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn relay(matches: &ArgMatches) -> Result<(), Box<dyn Error>> {
    let settings = settings::load(matches)?;
    let path = matches.get_one::<PathBuf>("FILE").ok_or("no FILE")?;
    settings::log_to_file(matches)?;
    if let Some(warning) = config::file::exposed(path) {
        log::warn!("{warning}");
    }
    let model = read(path)?;
    let again = || read(path).map_err(|error| error.to_string());
    Ok(service::relay::run(model, &settings.dataplane, &again)?)
}

/// Checks whether a running relay could apply its file. `matches` are its command line's.
pub(crate) fn judge(matches: &ArgMatches) -> Result<(), Box<dyn Error>> {
    settings::load(matches)?;
    let path = matches.get_one::<PathBuf>("FILE").ok_or("no FILE")?;
    read(path).map(drop)
}

/// Reads the file, and shows its refused lines.
fn read(path: &Path) -> Result<Relay, Box<dyn Error>> {
    let import = relay::read(path)?;
    // The returned error describes a single fault.
    if import.report.with(Verdict::Refused).count() > 1 {
        for entry in import.report.with(Verdict::Refused) {
            terminal::note(import.report.describe(entry));
        }
        return Err(format!(
            "{}: lines are refused (see above): mend them",
            path.display()
        )
        .into());
    }
    Ok(import.into_model()?)
}
