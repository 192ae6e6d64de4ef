//! Options that several commands have, and the values that a command line gives them.

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use config::guard::Pattern;
use config::settings::{ENVIRONMENT, Settings, SettingsError};
use std::path::{Path, PathBuf};

/// The option `--NAME`, without a value.
pub(crate) fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .action(ArgAction::SetTrue)
        .help(help)
}

/// The option `--NAME VALUE`.
pub(crate) fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

/// The option `--NAME VALUE`, which may be given again.
pub(crate) fn list(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    option(name, value, help).action(ArgAction::Append)
}

/// The option `--NAME VALUE`, whose value is a path.
pub(crate) fn path(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    option(name, value, help).value_parser(value_parser!(PathBuf))
}

/// An option that takes only what `parse` does; otherwise the error says what is wanted.
pub(crate) fn parsed<T: Clone + Send + Sync + 'static>(
    option: Arg,
    parse: fn(&str) -> Option<T>,
    wanted: &'static str,
) -> Arg {
    option.value_parser(move |word: &str| parse(word).ok_or(wanted))
}

/// An option that takes names of network devices.
pub(crate) fn devices(name: &'static str, help: &'static str) -> Arg {
    let parse = |word: &str| config::types::is_ifname(word).then(|| word.to_owned());
    parsed(
        list(name, "DEVICE", help),
        parse,
        "write the name of a device",
    )
}

/// An option that takes patterns of tunnels' devices.
pub(crate) fn tunnels(help: &'static str) -> Arg {
    let wanted = "write the name of a device, or its beginning and an asterisk";
    parsed(list("tunnel", "DEVICE", help), Pattern::new, wanted)
}

/// The argument of a command that takes the file of a tunnel, by its path or its name.
pub(crate) fn tunnel_file() -> Arg {
    Arg::new("FILE")
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help(
            "IFNAME.conf; NAME.ovpn; NAME.toml, or a pppd options file or pptpd.conf (PPTP); or NAME for the file of \
             that name in /etc/millrace, /etc/wireguard or /etc/openvpn/client",
        )
}

/// The value of an option or an argument, if it is given or has a default.
pub(crate) fn text<'m>(matches: &'m ArgMatches, name: &str) -> Option<&'m str> {
    matches.get_one::<String>(name).map(String::as_str)
}

/// All values of an option; `None` if it is not given.
pub(crate) fn values<T: Clone + Send + Sync + 'static>(
    matches: &ArgMatches,
    name: &str,
) -> Option<Vec<T>> {
    Some(matches.get_many::<T>(name)?.cloned().collect())
}

/// The path that an option or an argument names.
pub(crate) fn file<'m>(matches: &'m ArgMatches, name: &str) -> Option<&'m Path> {
    matches.get_one::<PathBuf>(name).map(PathBuf::as_path)
}

/// The path of an argument that is required or has a default.
pub(crate) fn path_of<'m>(matches: &'m ArgMatches, name: &str) -> &'m Path {
    file(matches, name).unwrap_or_else(|| Path::new(""))
}

/// Adds `--config`, `--set` and `--crypto-backend`, which every command with a data plane has.
pub(crate) fn of_data_plane(command: Command) -> Command {
    let kind = option(
        "crypto-backend",
        "KIND",
        "Code that computes ciphers; the same as --set dataplane.crypto-backend=KIND",
    );
    command
        .arg(settings_file())
        .arg(list(
            "set",
            "KEY=VALUE",
            "One setting, for example dataplane.udp-gso=off; also through MILLRACE_SET",
        ))
        .arg(kind.value_parser(["auto", "portable", "simd", "accelerator"]))
}

/// The option `--config`.
pub(crate) fn settings_file() -> Arg {
    path(
        "config",
        "FILE",
        "Settings file [default: /etc/millrace/millrace.toml, if it exists]",
    )
}

/// The settings in force: file, environment, command line.
pub(crate) fn settings(matches: &ArgMatches) -> Result<Settings, SettingsError> {
    let environment = std::env::var(ENVIRONMENT).ok();
    let mut overrides = values(matches, "set").unwrap_or_default();
    if let Some(kind) = text(matches, "crypto-backend") {
        overrides.push(format!("dataplane.crypto-backend={kind}"));
    }
    Settings::load(file(matches, "config"), environment.as_deref(), &overrides)
}

/// The option `--log` of commands that run a tunnel.
pub(crate) fn log() -> Arg {
    path("log", "FILE", "Append the log to a file; SIGHUP reopens it")
}

/// The option `--bind-device` of commands that run a tunnel.
pub(crate) fn bind_device() -> Arg {
    option(
        "bind-device",
        "DEVICE",
        "Send and receive only through this network device",
    )
}

/// Sends the log to the file that the command line names, if any.
///
/// # Errors
/// The file cannot be opened; the text names it.
pub(crate) fn log_to_file(matches: &ArgMatches) -> Result<(), String> {
    file(matches, "log").map_or(Ok(()), host::logging::to_file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::settings::CryptoBackend;

    #[test]
    fn the_kind_of_code_may_be_chosen_in_a_word_of_its_own() {
        let matches = |words: &[&str]| {
            let words = ["up", "--config", "/dev/null"].iter().chain(words);
            of_data_plane(Command::new("up")).try_get_matches_from(words)
        };
        let chosen = |words| {
            settings(&matches(words).unwrap())
                .unwrap()
                .dataplane
                .crypto_backend
        };
        assert_eq!(chosen(&[]), CryptoBackend::Auto);
        assert_eq!(chosen(&["--crypto-backend", "simd"]), CryptoBackend::Simd);
        // The more specific option wins.
        let both = [
            "--set",
            "dataplane.crypto-backend=accelerator",
            "--crypto-backend",
            "portable",
        ];
        assert_eq!(chosen(&both), CryptoBackend::Portable);
        assert!(matches(&["--crypto-backend", "fast"]).is_err());
    }
}
