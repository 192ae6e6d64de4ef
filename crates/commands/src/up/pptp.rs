//! `millrace up` for a PPTP file.

use clap::ArgMatches;
use config::pptp;
use service::pptp::{RunOptions, run};
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

/// Brings up a file's tunnel and serves it until it ends.
pub(super) fn up(path: &Path, matches: &ArgMatches) -> Result<ExitCode, Box<dyn Error>> {
    let permissions = crate::check::permitted(matches);
    for file in pptp::secrets_of(path, permissions) {
        if let Some(warning) = config::file::exposed(&file) {
            log::warn!("{warning}");
        }
    }
    let model = read(path, matches)?;
    let options = RunOptions {
        no_dns: matches.get_flag("no-dns"),
        bind_device: matches.get_one::<String>("bind-device").cloned(),
        daemon: matches.get_flag("daemon"),
        wait_at_most: super::wait_at_most(matches),
        manager: None,
    };
    run(&model, &options)?;
    Ok(ExitCode::SUCCESS)
}

/// Why the file gives no running tunnel.
pub(super) fn judge(path: &Path, matches: &ArgMatches) -> Result<(), Box<dyn Error>> {
    Ok(service::pptp::rehearse(&read(path, matches)?)?)
}

fn read(path: &Path, matches: &ArgMatches) -> Result<pptp::Pptp, Box<dyn Error>> {
    let import = pptp::read(path, crate::check::permitted(matches))?;
    let refused = import.report.with(config::report::Verdict::Refused).count();
    // The returned error describes a single fault.
    if refused > 1 {
        super::tell(&import.report);
        return Err("lines are refused (see above): mend them".into());
    }
    Ok(import.into_model()?)
}
