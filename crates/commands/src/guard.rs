//! `millrace guard`: devices of the LAN leave by a tunnel, or not at all.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use config::guard::{DEFAULT_PATH, Guard, Pattern};
use config::settings::SettingsError;
use guard::chain::{Refusal, WantedChain};
use guard::control::{self, Done};
use guard::{GuardError, Report, State};
use thiserror::Error;

pub(crate) mod kept;
mod text;

#[cfg(feature = "monitor")]
pub(crate) use text::rows;
pub(crate) use text::{document, render};

/// Exit code of `status` where the guard is off, as that of services that do not run.
const OFF: u8 = 3;

/// The command's own command line.
pub(crate) fn command() -> Command {
    let of = |name: &'static str, about: &'static str| Command::new(name).about(about);
    Command::new("guard")
        .about("Let devices of the LAN leave by a tunnel, or not at all (kill switch)")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            settings(of(
                "on",
                "Hold what leaves by no tunnel, now and after any tunnel ends",
            ))
            .arg(flag("show", "Print what would be set, and set nothing"))
            .arg(flag(
                "save",
                "Write the settings to the file, for the next boot",
            )),
        )
        .subcommand(settings(of(
            "watch",
            "As `on`, and again when other programs undo it; follow LAN and tunnels",
        )))
        .subcommand(of(
            "refresh",
            "Set again what is missing, if the guard is on",
        ))
        .subcommand(of(
            "off",
            "Let everything leave in clear until `on` or the next boot",
        ))
        .subcommand(
            of(
                "status",
                "Show what is held and why; exit code 0 on, 1 on in part, 3 off",
            )
            .arg(flag("json", "Print a JSON document"))
            .arg(file_argument()),
        )
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    let flag = Arg::new(name).long(name).action(ArgAction::SetTrue);
    flag.help(help)
}

fn file_argument() -> Arg {
    Arg::new("settings")
        .long("settings")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help("Settings [default: /etc/millrace/guard.toml, if it is there]")
}

fn settings(command: Command) -> Command {
    let list = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name(value)
            .action(ArgAction::Append)
            .help(help)
    };
    command
        .arg(file_argument())
        .arg(list(
            "lan",
            "DEVICE",
            "A guarded device, instead of the file's; may be repeated",
        ))
        .arg(list(
            "reach",
            "DEVICE",
            "A further device that those may reach",
        ))
        .arg(list(
            "tunnel",
            "DEVICE",
            "A tunnel's device, or mr-* for all that begin so",
        ))
        .arg(
            Arg::new("table")
                .long("table")
                .value_name("NUMBER")
                .help("The guard's routing table [default: 77]"),
        )
        .arg(flag(
            "no-lead",
            "Make no default route in the table; the tunnels do",
        ))
        .arg(list(
            "dns",
            "ADDRESS",
            "A name server behind the tunnel: the router's dnsmasq asks only it, by the tunnel",
        ))
        .arg(list(
            "dns-name",
            "DOMAIN",
            "Ask it for this domain only; others as before",
        ))
        .arg(flag(
            "dns-redirect",
            "Have queries of the LAN to other servers (port 53) come to the router",
        ))
        .arg(flag(
            "dns-block-tls",
            "Refuse DNS over TLS and QUIC of the LAN (port 853)",
        ))
}

/// Exit code for a wrong command line, as of all commands.
const WRONG: u8 = 2;

/// Why the command cannot do what it was asked.
#[derive(Debug, Error)]
enum CommandError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Guard(#[from] GuardError),
    #[error("{option} cannot be {found:?}; write {wanted}")]
    Option {
        option: &'static str,
        found: String,
        wanted: &'static str,
    },
    #[error("{}: {error}", path.display())]
    Save { path: PathBuf, error: io::Error },
    #[error(
        "no device of the LAN is named: write `lan = [\"br-lan\"]` to {DEFAULT_PATH}, or say --lan br-lan"
    )]
    Nothing,
}

impl CommandError {
    /// Whether settings are to blame, and not the host or the command line.
    fn is_of_settings(&self) -> bool {
        matches!(
            self,
            Self::Settings(_) | Self::Guard(GuardError::Settings(_)) | Self::Nothing
        )
    }

    fn code(&self) -> ExitCode {
        match self {
            Self::Option { .. } => ExitCode::from(WRONG),
            _ => ExitCode::FAILURE,
        }
    }
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    let result = match matches.subcommand() {
        Some(("on", m)) => on(m),
        Some(("watch", m)) => watch(m),
        Some(("refresh", _)) => refresh(),
        Some(("off", _)) => off(),
        Some(("status", m)) => status(m),
        _ => return ExitCode::from(2),
    };
    result.unwrap_or_else(|error| {
        log::error!("{error}");
        error.code()
    })
}

fn on(matches: &ArgMatches) -> Result<ExitCode, CommandError> {
    if matches.get_flag("show") {
        return show(&wanted(matches)?);
    }
    if matches.get_flag("save") {
        save(&wanted(matches)?, file(matches))?;
    }
    let (done, is_asked) = match set(matches) {
        Ok(done) => (done, true),
        Err(error) => (hold(matches, error)?, false),
    };
    tell(&done);
    terminal::text(render(&done.report));
    let good = is_asked && done.errors.is_empty() && done.report.is_whole();
    Ok(code(good))
}

/// Sets the guard by the file and the command line.
fn set(matches: &ArgMatches) -> Result<Done, CommandError> {
    let guard = wanted(matches)?;
    let done = control::on(&guard)?;
    if from_file(matches).is_ok_and(|file| file.as_ref() == Some(&guard)) {
        kept::keep(&guard, file(matches));
    }
    Ok(done)
}

/// With settings that are wrong, what is in force is set again, or else the last ones of the file that were good: a mistake in
/// it lets nothing go. The error itself where there are none, or where it is another one.
fn hold(matches: &ArgMatches, error: CommandError) -> Result<Done, CommandError> {
    if !error.is_of_settings() {
        return Err(error);
    }
    if let Some(done) = control::refresh()? {
        log::error!("{error}");
        log::warn!("what the guard was switched on with is still in force");
        return Ok(done);
    }
    // A file that names nothing, and none at all, is no mistake.
    let kept = match error {
        CommandError::Nothing => None,
        _ => kept::read(file(matches)),
    };
    let Some(kept) = kept else { return Err(error) };
    log::error!("{error}");
    let path = kept::path_of(file(matches));
    log::warn!(
        "the guard is set by the last settings that were good, {}",
        path.display()
    );
    Ok(control::on(&kept)?)
}

fn watch(matches: &ArgMatches) -> Result<ExitCode, CommandError> {
    let done = match set(matches) {
        Ok(done) => done,
        // Also where it was switched on by hand: that is what is watched.
        Err(error) => hold(matches, error)?,
    };
    tell(&done);
    // What cannot be set now is tried again; but without a record nothing would be: what starts this again does it then.
    let is_unrecorded = |error: &GuardError| matches!(error, GuardError::Record { .. });
    if done.errors.iter().any(is_unrecorded) {
        return Ok(ExitCode::FAILURE);
    }
    guard::watch()?;
    Ok(ExitCode::SUCCESS)
}

fn refresh() -> Result<ExitCode, CommandError> {
    let Some(done) = control::refresh()? else {
        return Ok(ExitCode::SUCCESS);
    };
    tell(&done);
    Ok(code(done.errors.is_empty()))
}

fn off() -> Result<ExitCode, CommandError> {
    // With settings that are wrong it is to be had all the same.
    let known = Guard::read(Path::new(DEFAULT_PATH)).ok();
    let errors = control::off(known.as_ref())?;
    for error in &errors {
        log::error!("{error}");
    }
    if errors.is_empty() {
        terminal::note("guard: off; everything leaves by the way that the host has for it");
    }
    Ok(code(errors.is_empty()))
}

fn status(matches: &ArgMatches) -> Result<ExitCode, CommandError> {
    // What is in force can be looked at, whatever the file is like.
    let file = from_file(matches);
    let report = control::status(file.as_ref().ok().and_then(Option::as_ref))?;
    if let Err(error) = &file {
        log::error!("{error}");
    }
    if matches.get_flag("json") {
        terminal::line(format_args!("{:#}", document(&report)));
    } else {
        terminal::text(render(&report));
    }
    Ok(match (report.state, report.asked) {
        (State::Off, false) if file.is_ok() => ExitCode::from(OFF),
        _ => code(report.is_good() && file.is_ok()),
    })
}

/// The guard in a word, for the status of tunnels; nothing where it is off.
pub(crate) fn brief() -> Option<Report> {
    let known = Guard::read(Path::new(DEFAULT_PATH)).ok();
    let report = control::status(known.as_ref()).ok()?;
    (report.state != State::Off || report.asked).then_some(report)
}

fn code(good: bool) -> ExitCode {
    match good {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Says what could not be done, each thing once: a rule is refused for each device.
fn tell(done: &Done) {
    let mut said: Vec<String> = Vec::new();
    for error in done.errors.iter().map(ToString::to_string) {
        if !said.contains(&error) {
            log::error!("{error}");
            said.push(error);
        }
    }
}

/// Prints what `on` would set.
fn show(guard: &Guard) -> Result<ExitCode, CommandError> {
    if let Some(fault) = guard.fault() {
        return Err(GuardError::Settings(fault).into());
    }
    let chain = WantedChain::new(guard);
    for chain in std::iter::once(chain).chain(WantedChain::of_dns(guard)) {
        terminal::text(chain.script(Refusal::Reject));
    }
    for rule in control::wanted_rules(guard)? {
        let family = if rule.family == netio::netlink::Family::V4 {
            4
        } else {
            6
        };
        let priority = rule.priority.unwrap_or(0);
        terminal::line(format_args!("# IPv{family} rule {priority} {rule}"));
    }
    Ok(ExitCode::SUCCESS)
}

fn file(matches: &ArgMatches) -> &Path {
    let named = matches.get_one::<PathBuf>("settings");
    named.map_or_else(|| Path::new(DEFAULT_PATH), PathBuf::as_path)
}

/// The settings of the file; nothing where none is named and there is none.
fn from_file(matches: &ArgMatches) -> Result<Option<Guard>, SettingsError> {
    let is_named = matches.get_one::<PathBuf>("settings").is_some();
    match Guard::read(file(matches)) {
        Err(SettingsError::Read { error, .. })
            if !is_named && error.kind() == io::ErrorKind::NotFound =>
        {
            Ok(None)
        }
        other => other.map(Some),
    }
}

/// The settings of the file, with what the command line says instead.
fn wanted(matches: &ArgMatches) -> Result<Guard, CommandError> {
    let mut guard = from_file(matches)?.unwrap_or_default();
    if let Some(names) = devices(matches, "lan", "--lan")? {
        guard.lan = names;
    }
    if let Some(names) = devices(matches, "reach", "--reach")? {
        guard.reach = names;
    }
    if let Some(words) = matches.get_many::<String>("tunnel") {
        let pattern = |word: &String| {
            Pattern::new(word).ok_or_else(|| CommandError::Option {
                option: "--tunnel",
                found: word.clone(),
                wanted: "the name of a device, or its beginning and an asterisk",
            })
        };
        guard.tunnels = words.map(pattern).collect::<Result<_, _>>()?;
    }
    if let Some(word) = matches.get_one::<String>("table") {
        guard.table = config::guard::table(word).ok_or_else(|| CommandError::Option {
            option: "--table",
            found: word.clone(),
            wanted: "the number of a routing table other than 253 to 255",
        })?;
    }
    guard.lead &= !matches.get_flag("no-lead");
    if let Some(servers) = matches.get_many::<String>("dns") {
        let server = |word: &String| {
            config::guard::server(word).ok_or_else(|| CommandError::Option {
                option: "--dns",
                found: word.clone(),
                wanted: "the address of a name server behind the tunnel",
            })
        };
        guard.dns = servers.map(server).collect::<Result<_, _>>()?;
    }
    if let Some(names) = matches.get_many::<String>("dns-name") {
        let domain = |word: &String| {
            config::guard::domain(word).ok_or_else(|| CommandError::Option {
                option: "--dns-name",
                found: word.clone(),
                wanted: "a domain, such as corp.example",
            })
        };
        guard.dns_names = names.map(domain).collect::<Result<_, _>>()?;
    }
    guard.dns_redirect |= matches.get_flag("dns-redirect");
    guard.dns_block_tls |= matches.get_flag("dns-block-tls");
    guard.merge_doubles();
    match guard.lan.is_empty() {
        true => Err(CommandError::Nothing),
        false => Ok(guard),
    }
}

fn devices(
    matches: &ArgMatches,
    name: &str,
    option: &'static str,
) -> Result<Option<Vec<String>>, CommandError> {
    let Some(words) = matches.get_many::<String>(name) else {
        return Ok(None);
    };
    let device = |word: &String| match config::types::is_ifname(word) {
        true => Ok(word.clone()),
        false => Err(CommandError::Option {
            option,
            found: word.clone(),
            wanted: "the name of a device",
        }),
    };
    words.map(device).collect::<Result<_, _>>().map(Some)
}

/// Writes the settings to the file, which is whole at all times.
fn save(guard: &Guard, path: &Path) -> Result<(), CommandError> {
    if let Some(fault) = guard.fault() {
        return Err(GuardError::Settings(fault).into());
    }
    kept::write(guard, path, 0o644).map_err(|error| CommandError::Save {
        path: path.to_owned(),
        error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Guard, CommandError> {
        let words = ["on", "--settings", "/dev/null"].iter().chain(words);
        wanted(
            &settings(Command::new("on"))
                .try_get_matches_from(words)
                .unwrap(),
        )
    }

    #[test]
    fn the_command_line_says_all_that_the_file_does() {
        let words = "--lan br-lan --lan br-guest --reach br-iot --tunnel mr-* --table 99 --no-lead";
        let guard = read(&words.split(' ').collect::<Vec<_>>()).unwrap();
        assert_eq!(
            guard.to_toml(),
            "lan = [\"br-lan\", \"br-guest\"]\nreach = [\"br-iot\"]\ntunnels = [\"mr-*\"]\ntable = 99\nlead = false\n"
        );
        assert!(matches!(read(&[]), Err(CommandError::Nothing)));
        let twice = read(&["--lan", "a", "--lan", "a", "--reach", "a"]).unwrap();
        assert_eq!((twice.lan.len(), twice.reach.len()), (1, 0));
        for wrong in [
            ["--lan", "a b"],
            ["--lan", "x\" } accept; #"],
            ["--tunnel", "*"],
            ["--table", "254"],
        ] {
            let error = read(&wrong).unwrap_err();
            assert!(matches!(error, CommandError::Option { .. }), "{error}");
            assert_eq!(error.code(), ExitCode::from(2));
            assert!(!error.is_of_settings());
        }
    }

    #[test]
    fn settings_are_saved_as_they_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new").join("guard.toml");
        let guard = read(&["--lan", "br-lan"]).unwrap();
        save(&guard, &path).unwrap();
        assert_eq!(Guard::read(&path).unwrap(), guard);
        let faulty = read(&["--lan", "mr-lan"]).unwrap();
        assert!(save(&faulty, &path).is_err());
        assert_eq!(Guard::read(&path).unwrap(), guard);
    }
}
