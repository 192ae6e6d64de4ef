//! `millrace policy`: decides which packets of the LAN go through which tunnel.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command};
use config::policy::{DEFAULT_PATH, Policy};
use config::settings::SettingsError;
use steer::SteerError;
use steer::policy::{Done, Report};
use thiserror::Error;

use crate::arguments::{self, flag};
use crate::carrying::dead;
use crate::guard::{copy_of, must_administer, sentences, tell, until_held, write_text};
use crate::{Outcome, code, settings_files};

mod edit;
pub(crate) mod prepare;
pub(crate) mod rules;
mod text;

#[cfg(feature = "monitor")]
pub(crate) use text::rows;
use text::{document, render};
pub(crate) use text::{mark_down, render_brief, state};

/// Exit code of `status` while the policy is off, as for services that do not run.
const OFF: u8 = 3;

/// The command-line definition of `policy`.
pub(crate) fn command() -> Command {
    let of = |name: &'static str, about: &'static str| Command::new(name).about(about);
    Command::new("policy")
        .about("Route devices, networks or domains through tunnels or past them")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(edit::commands())
        .subcommand(prepare::command())
        .subcommand(
            of("on", "Apply the settings, until `off` or the next boot")
                .arg(file_argument())
                .arg(flag(
                    "wait",
                    "For units that start before the network: return only when the rules are set, or if there are no \
                     settings",
                ))
                .arg(flag("show", "Print the rules, but set nothing")),
        )
        .subcommand(
            of(
                "watch",
                "Apply the settings as `on` does; reapply when other programs undo them, or tunnels or leases change",
            )
            .arg(file_argument()),
        )
        .subcommand(of(
            "refresh",
            "Restore missing rules, if the policy is on",
        ))
        .subcommand(
            of("off", "Remove the rules: all traffic uses the router's own routes").arg(file_argument()),
        )
        .subcommand(
            of(
                "status",
                "Show which route each entry's packets take, and conflicts",
            )
            .arg(flag("json", "Print a JSON document"))
            .arg(file_argument()),
        )
}

fn file_argument() -> Arg {
    arguments::path(
        "settings",
        "FILE",
        "Settings [default: /etc/millrace/policy.toml]",
    )
}

/// Why the command failed.
#[derive(Debug, Error)]
enum CommandError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Policy(#[from] SteerError),
}

impl CommandError {
    /// Whether the settings are the cause, and not the host.
    fn is_of_settings(&self) -> bool {
        matches!(
            self,
            Self::Settings(_) | Self::Policy(SteerError::Settings(_))
        )
    }

    /// Whether the settings file does not exist.
    fn is_absence(&self) -> bool {
        matches!(self, Self::Settings(SettingsError::Read { error, .. }) if error.kind() == io::ErrorKind::NotFound)
    }
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Outcome {
    if !matches!(matches.subcommand(), Some(("on", m)) if m.get_flag("show")) {
        must_administer("policy")?;
    }
    match matches.subcommand() {
        Some(("add", m)) => return edit::add(m),
        Some(("remove", m)) => return edit::remove(m),
        Some(("list", m)) => return edit::print(m),
        Some(("prepare", m)) => return prepare::run(m),
        _ => {}
    }
    Ok(match matches.subcommand() {
        Some(("on", m)) => on(m),
        Some(("watch", m)) => watch(m),
        Some(("refresh", _)) => refresh(),
        Some(("off", m)) => off(m),
        Some(("status", m)) => status(m),
        _ => Ok(ExitCode::from(2)),
    }?)
}

fn on(matches: &ArgMatches) -> Result<ExitCode, CommandError> {
    if matches.get_flag("show") {
        let (policy, _) = Policy::read(file(matches))?;
        if let Some(fault) = policy.fault() {
            return Err(SteerError::Settings(fault).into());
        }
        host::terminal::text(steer::policy::shown(&policy)?);
        return Ok(ExitCode::SUCCESS);
    }
    if matches.get_flag("wait") {
        return Ok(wait(file(matches)));
    }
    now(file(matches))
}

/// Applies the policy of the file, or else keeps the one in force, and prints the report.
fn now(file: &Path) -> Result<ExitCode, CommandError> {
    let (done, is_asked) = match set(file) {
        Ok(done) => (done, true),
        Err(error) => (hold(file, error)?, false),
    };
    tell(&done.errors);
    host::terminal::text(render(&done.report));
    Ok(code(
        is_asked && done.errors.is_empty() && done.report.is_good(),
    ))
}

/// Sets the policy again and again until the packet filter or the rules are in place. The network waits for this, so
/// that it starts with devices blocked. Returns at once without a file.
fn wait(file: &Path) -> ExitCode {
    until_held("policy: not set yet, so the network waits", || {
        match set(file).or_else(|error| hold(file, error)) {
            Ok(done) if done.report.is_closed() => {
                tell(&done.errors);
                Ok(ExitCode::SUCCESS)
            }
            Ok(done) => Err(sentences(&done.errors).join("; ")),
            Err(error) if error.is_absence() => Ok(ExitCode::SUCCESS),
            Err(error) => Err(error.to_string()),
        }
    })
}

/// The file in which names of leases outlive a boot, beside the settings.
fn leases_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".leases");
    name.into()
}

/// Applies the policy of the file, and keeps a copy of the file as the last valid one.
fn set(file: &Path) -> Result<Done, CommandError> {
    let (policy, text) = Policy::read(file)?;
    let done = steer::policy::on(&policy, &text, &leases_of(file))?;
    let copy = copy_of(file);
    if fs::read_to_string(&copy).is_ok_and(|it| it == text) {
        return Ok(done);
    }
    // The policy works without the copy.
    if let Err(error) = write_text(&text, &copy, 0o600) {
        log::debug!("{}: {error}", copy.display());
    }
    Ok(done)
}

/// With faulty settings, restores the policy in force, or else sets the last valid one, so that no packet takes another
/// route. Returns the error if neither exists, or if it has another cause.
fn hold(file: &Path, error: CommandError) -> Result<Done, CommandError> {
    if !error.is_of_settings() || error.is_absence() {
        return Err(error);
    }
    if let Some(done) = steer::policy::refresh()? {
        log::error!("{error}");
        log::warn!("the policy keeps the settings that it was switched on with");
        return Ok(done);
    }
    let copy = copy_of(file);
    let Ok((policy, text)) = Policy::read(&copy) else {
        return Err(error);
    };
    log::error!("{error}");
    log::warn!(
        "the policy uses the last valid settings, {}",
        copy.display()
    );
    Ok(steer::policy::on(&policy, &text, &leases_of(file))?)
}

fn watch(matches: &ArgMatches) -> Result<ExitCode, CommandError> {
    let place = steer::policy::claim()?;
    // Retries instead of exiting: procd would start the process again and again, and log the same error each time.
    let done = until_held("policy: cannot watch yet; trying again each second", || {
        match set(file(matches)).or_else(|error| hold(file(matches), error)) {
            // The watch retries other steps, but cannot work without a record.
            Ok(done) if !done.report.asked => Err(sentences(&done.errors).join("; ")),
            Err(error) if !error.is_absence() => Err(error.to_string()),
            other => Ok(other),
        }
    })?;
    tell(&done.errors);
    steer::policy::watch(place)?;
    Ok(ExitCode::SUCCESS)
}

fn refresh() -> Result<ExitCode, CommandError> {
    let Some(done) = steer::policy::refresh()? else {
        return Ok(ExitCode::SUCCESS);
    };
    tell(&done.errors);
    Ok(code(done.errors.is_empty()))
}

fn off(matches: &ArgMatches) -> Result<ExitCode, CommandError> {
    // Faulty settings must not keep the policy from being switched off.
    let known = Policy::read(file(matches)).ok().map(|it| it.0);
    let errors = steer::policy::off(known.as_ref(), &leases_of(file(matches)))?;
    for error in &errors {
        log::error!("{error}");
    }
    if errors.is_empty() {
        host::terminal::note("policy: off; traffic uses the router's normal routes");
    }
    Ok(code(errors.is_empty()))
}

fn status(matches: &ArgMatches) -> Result<ExitCode, CommandError> {
    // The state in force is shown, however faulty the file is.
    let file = match Policy::read(file(matches)) {
        Ok((policy, _)) => Ok(Some(policy)),
        Err(error) => {
            let is_named = matches.contains_id("settings");
            let error = CommandError::from(error);
            match error.is_absence() && !is_named {
                true => Ok(None),
                false => Err(error),
            }
        }
    };
    let known = file.as_ref().ok().and_then(Option::as_ref);
    let mut report = steer::policy::status(known)?;
    report.notes.extend(edited(known, self::file(matches)));
    if let Err(error) = &file {
        log::error!("{error}");
    }
    match matches.get_flag("json") {
        true => host::terminal::line(format_args!("{:#}", document(&report))),
        false => {
            let tunnels = crate::status::now().unwrap_or_default();
            mark_down(&mut report, &dead(&tunnels));
            host::terminal::text(render(&report));
        }
    }
    Ok(match (report.on, report.asked) {
        (false, false) if file.is_ok() => ExitCode::from(OFF),
        _ => code(report.is_good() && file.is_ok()),
    })
}

/// A note if the settings of the file are not those in force.
fn edited(policy: Option<&Policy>, path: &Path) -> Option<String> {
    let words = settings_files::unapplied(policy?, &steer::policy::in_force()?, path)?;
    let file = match path == Path::new(DEFAULT_PATH) {
        true => String::new(),
        false => format!(" --settings {}", path.display()),
    };
    Some(format!("{words}; run `millrace policy on{file}`"))
}

/// Has a policy that is on follow its changed file. Returns whether all of the file is in force.
#[cfg(feature = "monitor")]
pub(crate) fn follow(path: &Path) -> bool {
    if steer::policy::in_force().is_none() {
        return false;
    }
    match set(path) {
        Ok(done) => {
            tell(&done.errors);
            done.errors.is_empty() && done.report.is_in_place()
        }
        Err(error) => {
            log::error!("{error}");
            false
        }
    }
}

/// A short report for the status of tunnels; `None` if the policy is off.
pub(crate) fn brief() -> Option<Report> {
    if !host::privileges::administers() {
        return None;
    }
    let report = steer::policy::status(None).ok()?;
    (report.on || report.asked).then_some(report)
}

fn file(matches: &ArgMatches) -> &Path {
    arguments::file(matches, "settings").unwrap_or_else(|| Path::new(DEFAULT_PATH))
}
