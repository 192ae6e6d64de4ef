//! The options of every command that has a data plane.

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use config::settings::{ENVIRONMENT, Settings, SettingsError};
use std::path::PathBuf;

/// Adds `--config`, `--set` and `--crypto-backend`.
pub(crate) fn arguments(command: Command) -> Command {
    command
        .arg(file_argument())
        .arg(
            Arg::new("set")
                .long("set")
                .value_name("KEY=VALUE")
                .action(ArgAction::Append)
                .help("One setting, for example dataplane.udp-gso=off; also through MILLRACE_SET"),
        )
        .arg(
            Arg::new("crypto-backend")
                .long("crypto-backend")
                .value_name("KIND")
                .value_parser(["auto", "portable", "simd", "engine"])
                .help(
                    "Which code computes ciphers; the same as --set dataplane.crypto-backend=KIND",
                ),
        )
}

/// `--config`.
pub(crate) fn file_argument() -> Arg {
    Arg::new("config")
        .long("config")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help("Settings file [default: /etc/millrace/millrace.toml, if it is there]")
}

/// The settings in force: file, environment, command line.
pub(crate) fn load(matches: &ArgMatches) -> Result<Settings, SettingsError> {
    let file = matches.get_one::<PathBuf>("config").map(PathBuf::as_path);
    let environment = std::env::var(ENVIRONMENT).ok();
    let mut overrides: Vec<String> = matches
        .get_many::<String>("set")
        .unwrap_or_default()
        .cloned()
        .collect();
    if let Some(kind) = matches.get_one::<String>("crypto-backend") {
        overrides.push(format!("dataplane.crypto-backend={kind}"));
    }
    Settings::load(file, environment.as_deref(), &overrides)
}

/// The option `--log` of commands that run a tunnel.
pub(crate) fn log_argument() -> Arg {
    Arg::new("log")
        .long("log")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help("Append the log to a file, which SIGHUP opens anew")
}

/// Sends the log to the file that the command line names, if any.
///
/// # Errors
/// The file cannot be opened; the text names it.
pub(crate) fn log_to_file(matches: &ArgMatches) -> Result<(), String> {
    match matches.get_one::<PathBuf>("log") {
        Some(path) => host::logging::to_file(path),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::settings::CryptoBackend;

    #[test]
    fn the_kind_of_code_may_be_chosen_in_a_word_of_its_own() {
        let matches = |words: &[&str]| {
            let words = ["up", "--config", "/dev/null"].iter().chain(words);
            arguments(Command::new("up")).try_get_matches_from(words)
        };
        let chosen = |words| {
            load(&matches(words).unwrap())
                .unwrap()
                .dataplane
                .crypto_backend
        };
        assert_eq!(chosen(&[]), CryptoBackend::Auto);
        assert_eq!(chosen(&["--crypto-backend", "simd"]), CryptoBackend::Simd);
        // The more specific option wins.
        let both = [
            "--set",
            "dataplane.crypto-backend=engine",
            "--crypto-backend",
            "portable",
        ];
        assert_eq!(chosen(&both), CryptoBackend::Portable);
        assert!(matches(&["--crypto-backend", "fast"]).is_err());
    }
}
