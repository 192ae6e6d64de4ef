//! `millrace guard`: devices of the LAN leave through a tunnel, or not at all.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::{ArgMatches, Command};
use config::guard::{DEFAULT_PATH, Guard};
use config::settings::SettingsError;
use openwrt::only_through::ListsError;
use steer::SteerError;
use steer::guard::{Done, Report, State};
use thiserror::Error;
use wanted::Wanted;

use crate::arguments::flag;
use crate::{Outcome, code};

mod judge;
mod text;
mod wanted;

pub(crate) use text::{document, render};
#[cfg(feature = "monitor")]
pub(crate) use text::{rows, state_of};
#[cfg(feature = "policy")]
pub(crate) use wanted::copy_of;
#[cfg(feature = "openwrt")]
pub(crate) use wanted::unknown_words;
pub(crate) use wanted::write_text;

/// Exit code of `status` while the guard is off, as for services that do not run.
const OFF: u8 = 3;

/// Exit code of `on`, `watch` and `reload` if no settings request a guard, or no device can be guarded: `watch` then
/// has no task.
const NOTHING: u8 = 4;

/// Precedes the reason why watching has not started yet.
const NOT_YET: &str = "guard: cannot watch yet; trying again each second";

/// The pause between two tries of `on --wait` and `watch`.
const AGAIN: Duration = Duration::from_secs(1);

/// The command-line definition of `guard`.
pub(crate) fn command() -> Command {
    let of = |name: &'static str, about: &'static str| Command::new(name).about(about);
    Command::new("guard")
        .about("Block LAN traffic that does not use a tunnel (kill switch)")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            wanted::arguments(of(
                "on",
                "Block traffic outside tunnels, now and after any tunnel ends",
            ))
            .arg(flag("show", "Print the rules, but set nothing"))
            .arg(flag(
                "if-asked",
                "For init scripts: print nothing if no settings ask for a guard",
            ))
            .arg(flag(
                "wait",
                "For units that start before the network: return only when packets are blocked, or if no settings ask \
                 for a guard",
            ))
            .arg(flag(
                "save",
                "Write the settings to the file, for the next boot",
            )),
        )
        .subcommand(wanted::arguments(of(
            "watch",
            "Apply the settings as `on` does; reapply when other programs undo them, or the LAN or tunnels change",
        )))
        .subcommand(wanted::arguments(of(
            "reload",
            "Apply changed settings, for init scripts",
        )))
        .subcommand(of(
            "refresh",
            "Restore missing rules, if the guard is on",
        ))
        .subcommand(of(
            "off",
            "Stop blocking until `on` or the next boot: traffic may leave unencrypted",
        ))
        .subcommand(
            of("status", "Show which traffic is blocked, and why")
            .arg(flag("json", "Print a JSON document"))
            .arg(wanted::file_argument())
            .arg(wanted::uci_argument()),
        )
}

/// Why the command failed.
#[derive(Debug, Error)]
enum CommandError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Guard(#[from] SteerError),
    #[error("{}: {error}", path.display())]
    Save { path: PathBuf, error: io::Error },
    #[error("{}: {error}; the guard still blocks the devices of the last valid lists", path.display())]
    Lists { path: PathBuf, error: ListsError },
    #[error(
        "no LAN device is named; write `lan = [\"br-lan\"]` to {DEFAULT_PATH}, or give --lan br-lan"
    )]
    Nothing,
    #[error("the guard cannot block any device that `only_through` lists: {}", .0.join("; "))]
    Refused(Vec<String>),
}

impl CommandError {
    /// Whether the settings are the cause, and not the host.
    fn is_of_settings(&self) -> bool {
        matches!(
            self,
            Self::Settings(_)
                | Self::Guard(SteerError::Settings(_))
                | Self::Lists { .. }
                | Self::Nothing
                | Self::Refused(_)
        )
    }

    /// Whether another attempt may succeed, once the file or the host is repaired.
    fn is_for_now(&self) -> bool {
        !matches!(self, Self::Nothing | Self::Refused(_))
    }

    fn code(&self) -> ExitCode {
        match self {
            Self::Nothing | Self::Refused(_) => ExitCode::from(NOTHING),
            _ => ExitCode::FAILURE,
        }
    }
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Outcome {
    if !matches!(matches.subcommand(), Some(("on", m)) if m.get_flag("show")) {
        must_administer("guard")?;
    }
    let result = match matches.subcommand() {
        Some(("on", m)) => on(m),
        Some(("watch", m)) => watch(m),
        Some(("reload", m)) => reload(m),
        Some(("refresh", _)) => refresh(),
        Some(("off", _)) => off(),
        Some(("status", m)) => status(m),
        _ => return Ok(ExitCode::from(2)),
    };
    Ok(result.unwrap_or_else(|error| {
        log::error!("{error}");
        error.code()
    }))
}

/// Checks that this user may see and change what the kernel holds.
pub(crate) fn must_administer(what: &str) -> Result<(), String> {
    match host::privileges::administers() {
        true => Ok(()),
        false => Err(format!(
            "{what}: this user may not read or change it; run this as root"
        )),
    }
}

fn on(matches: &ArgMatches) -> Result<ExitCode, CommandError> {
    if matches.get_flag("show") {
        return show(&Wanted::read(matches)?.guard);
    }
    if matches.get_flag("save") {
        let base = wanted::base(matches)?;
        if base.lan.is_empty() {
            return Err(CommandError::Nothing);
        }
        save(&base, wanted::file(matches))?;
    }
    if matches.get_flag("wait") {
        return Ok(wait(matches));
    }
    // A faulty file also requests a guard.
    let is_asked =
        |error: &CommandError| matches!(error, CommandError::Settings(_) | CommandError::Guard(_));
    let (mut done, is_asked) = match set(matches) {
        Ok(set) => set,
        Err(error)
            if matches.get_flag("if-asked") && !is_asked(&error) && is_nothing_held(&error) =>
        {
            if !matches!(error, CommandError::Nothing) {
                log::error!("{error}");
            }
            return Ok(ExitCode::from(NOTHING));
        }
        Err(error) => (hold(error)?, false),
    };
    tell(&done.errors);
    judge::router(&mut done.report);
    host::terminal::text(render(&done.report));
    let report = &done.report;
    // At boot the guard comes before its devices, and the services wait for it; netifd makes those of its lists.
    let is_file = || matches!(wanted::from_file(matches), Ok(Some(_)));
    let is_early = matches.get_flag("if-asked") || !(matches.contains_id("lan") || is_file());
    let has_devices = is_early || report.idle.is_empty();
    Ok(code(
        is_asked && done.errors.is_empty() && report.is_whole() && has_devices,
    ))
}

/// Sets the guard again and again until at least one layer is in place. The network waits for this, so that no packet
/// leaks when it starts. Returns at once if no settings request a guard.
fn wait(matches: &ArgMatches) -> ExitCode {
    until_held("guard: not set yet, so the network waits", || {
        match set(matches).map_or_else(hold, |set| Ok(set.0)) {
            Ok(done) if done.report.is_closed() => {
                tell(&done.errors);
                Ok(ExitCode::SUCCESS)
            }
            Ok(done) => Err(sentences(&done.errors).join("; ")),
            Err(CommandError::Nothing) => Ok(ExitCode::SUCCESS),
            Err(error) => Err(error.to_string()),
        }
    })
}

/// Repeats `attempt` until it succeeds, and returns its result. Logs a failure only if it differs from the one before.
pub(crate) fn until_held<T>(what: &str, mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let mut said = String::new();
    loop {
        let words = match attempt() {
            Ok(result) => return result,
            Err(words) => words,
        };
        if words != said {
            log::error!("{what}: {words}");
            said = words;
        }
        thread::sleep(AGAIN);
    }
}

/// The messages of errors, without repetition: a refused rule fails for each device.
pub(crate) fn sentences(errors: &[impl ToString]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for sentence in errors.iter().map(ToString::to_string) {
        if !all.contains(&sentence) {
            all.push(sentence);
        }
    }
    all
}

/// Applies all guard settings. Returns false if some settings are faulty, or some listed devices are not guarded.
fn set(matches: &ArgMatches) -> Result<(Done, bool), CommandError> {
    let wanted = match Wanted::read(matches) {
        Err(error @ (CommandError::Nothing | CommandError::Refused(_))) => {
            wanted::forget(wanted::file(matches));
            return Err(error);
        }
        other => other?,
    };
    for error in &wanted.errors {
        log::error!("{error}");
    }
    for words in &wanted.unheld {
        log::warn!("{words}");
    }
    let done = steer::guard::on(&wanted.guard)?;
    if let Some(written) = &wanted.written {
        wanted::keep(written, wanted::file(matches));
    }
    Ok((done, wanted.errors.is_empty() && wanted.unheld.is_empty()))
}

/// Whether the settings are the cause and no guard is in force, so that there is nothing to watch.
fn is_nothing_held(error: &CommandError) -> bool {
    error.is_of_settings() && steer::guard::in_force().is_none()
}

/// Restores the guard in force if the settings name no devices or are faulty: only `off` releases devices.
fn hold(error: CommandError) -> Result<Done, CommandError> {
    if error.is_of_settings()
        && let Some(done) = steer::guard::refresh()?
    {
        log::error!("{error}");
        log::warn!("the guard keeps the settings that it was switched on with");
        return Ok(done);
    }
    Err(error)
}

/// [`hold`], for `watch`: a guard that was switched on by hand needs no settings in a file.
fn hold_by_hand(error: CommandError) -> Result<Done, CommandError> {
    if matches!(error, CommandError::Nothing)
        && let Some(done) = steer::guard::refresh()?
    {
        log::info!("the guard keeps the settings that it was switched on with");
        return Ok(done);
    }
    hold(error)
}

/// Applies changed settings. Does nothing after `off`. If no interface lists devices any longer, releases those that
/// were listed.
fn reload(matches: &ArgMatches) -> Result<ExitCode, CommandError> {
    if steer::guard::is_let_go() {
        host::terminal::note(
            "guard: off by `millrace guard off`; `millrace guard on` sets it again",
        );
        return Ok(ExitCode::from(OFF));
    }
    let (done, is_good) = match set(matches) {
        Ok(set) => set,
        Err(error @ (CommandError::Nothing | CommandError::Refused(_))) => {
            let is_good = match &error {
                CommandError::Refused(_) => {
                    log::error!("{error}");
                    false
                }
                _ => true,
            };
            match steer::guard::in_force() {
                None => return Ok(ExitCode::from(NOTHING)),
                Some(guard) if guard.lan.is_empty() => {
                    let errors = steer::guard::end()?;
                    end(&errors)?;
                    return Ok(match errors.is_empty() {
                        true => ExitCode::from(NOTHING),
                        false => ExitCode::FAILURE,
                    });
                }
                Some(mut guard) => {
                    guard.groups.clear();
                    (steer::guard::on(&guard)?, is_good)
                }
            }
        }
        Err(error) if is_nothing_held(&error) => {
            log::error!("{error}");
            return Ok(ExitCode::from(NOTHING));
        }
        Err(error) => return Err(error),
    };
    tell(&done.errors);
    Ok(code(is_good && done.errors.is_empty()))
}

fn watch(matches: &ArgMatches) -> Result<ExitCode, CommandError> {
    let place = steer::guard::claim()?;
    let is_unrecorded = |error: &SteerError| matches!(error, SteerError::Record { .. });
    // Retries instead of exiting: procd would start the process again and again, and log the same error each time.
    let done = until_held(NOT_YET, || {
        // A guard that was switched on by hand is watched too.
        match set(matches).map_or_else(hold_by_hand, |set| Ok(set.0)) {
            // The watch retries other steps, but cannot work without a record.
            Ok(done) if done.errors.iter().any(is_unrecorded) => {
                Err(sentences(&done.errors).join("; "))
            }
            Err(error) if error.is_for_now() => Err(error.to_string()),
            other => Ok(other),
        }
    })?;
    tell(&done.errors);
    steer::guard::watch(place)?;
    Ok(ExitCode::SUCCESS)
}

fn refresh() -> Result<ExitCode, CommandError> {
    let Some(done) = steer::guard::refresh()? else {
        return Ok(ExitCode::SUCCESS);
    };
    tell(&done.errors);
    Ok(code(done.errors.is_empty()))
}

fn off() -> Result<ExitCode, CommandError> {
    // Faulty settings must not keep the guard from being switched off.
    let known = Guard::read(Path::new(DEFAULT_PATH)).ok();
    end(&steer::guard::off(known.as_ref())?)
}

fn end(errors: &[SteerError]) -> Result<ExitCode, CommandError> {
    for error in errors {
        log::error!("{error}");
    }
    if errors.is_empty() {
        host::terminal::note("guard: off; traffic uses the host's normal routes");
    }
    Ok(code(errors.is_empty()))
}

fn status(matches: &ArgMatches) -> Result<ExitCode, CommandError> {
    // The state in force is shown, however faulty the file is.
    let file = wanted::from_file(matches);
    let known = file.as_ref().ok().and_then(Option::as_ref);
    let mut report = steer::guard::status(known)?;
    let is_held = judge::lists(wanted::uci(matches), &mut report);
    judge::router(&mut report);
    let is_refused = !steer::guard::is_let_go() && judge::is_refused(wanted::uci(matches));
    if let Err(error) = &file {
        log::error!("{error}");
    }
    match matches.get_flag("json") {
        true => host::terminal::line(format_args!("{:#}", document(&report))),
        false => {
            #[cfg(feature = "policy")]
            judge::carried(&mut report);
            host::terminal::text(render(&report));
        }
    }
    Ok(match (report.state, report.asked) {
        (State::Off, false) if file.is_ok() && !is_refused => ExitCode::from(OFF),
        _ => code(report.is_good() && file.is_ok() && is_held),
    })
}

/// A short report for the status of tunnels; `None` if the guard is off and no settings request it.
pub(crate) fn brief() -> Option<Report> {
    if !host::privileges::administers() {
        return None;
    }
    let known = Guard::read(Path::new(DEFAULT_PATH)).ok();
    let mut report = steer::guard::status(known.as_ref()).ok()?;
    let is_held = judge::lists(Path::new(wanted::UCI), &mut report);
    judge::router(&mut report);
    (report.state != State::Off || report.asked || !is_held).then_some(report)
}

/// Logs the errors.
pub(crate) fn tell(errors: &[impl ToString]) {
    for sentence in sentences(errors) {
        log::error!("{sentence}");
    }
}

/// Prints what `on` would set.
fn show(guard: &Guard) -> Result<ExitCode, CommandError> {
    if let Some(fault) = guard.fault() {
        return Err(SteerError::Settings(fault).into());
    }
    host::terminal::text(steer::guard::shown(guard)?);
    Ok(ExitCode::SUCCESS)
}

/// Writes the settings to the file, atomically.
fn save(guard: &Guard, path: &Path) -> Result<(), CommandError> {
    if let Some(fault) = guard.fault() {
        return Err(SteerError::Settings(fault).into());
    }
    write_text(&guard.to_toml(), path, 0o644).map_err(|error| CommandError::Save {
        path: path.to_owned(),
        error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_saved_as_they_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new").join("guard.toml");
        let guard = wanted::tests::read(&["--lan", "br-lan"]).unwrap();
        save(&guard, &path).unwrap();
        assert_eq!(Guard::read(&path).unwrap(), guard);
        let mut faulty = guard.clone();
        faulty.lan.push("mr-lan".to_owned());
        assert!(save(&faulty, &path).is_err());
        assert_eq!(Guard::read(&path).unwrap(), guard);
    }
}
