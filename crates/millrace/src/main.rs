//! Millrace: the fast VPN for small routers. This is the program; see `docs/architecture.md`.

#![forbid(unsafe_code)]
// They panic where nobody reads any more: see `output`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod backends;
mod commands;
mod gate;
mod logging;
mod network;
mod openvpn;
mod output;
mod privileges;
mod profile;
mod running;
mod status;
mod syslog;
mod wireguard;
mod written_file;

use clap::{Arg, ArgAction, Command};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn cli() -> Command {
    let cli = Command::new("millrace")
        .version(env!("CARGO_PKG_VERSION"))
        .about("The fast VPN for small routers")
        .arg(
            Arg::new("verbose")
                .short('v')
                .long("verbose")
                .global(true)
                .action(ArgAction::Count)
                .help("Say more (-v: what happens, -vv: every handshake)"),
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(commands::up::command())
        .subcommand(commands::down::command())
        .subcommand(commands::wireguard::command())
        .subcommand(commands::openvpn::command())
        .subcommand(commands::status::command())
        .subcommand(commands::check::command())
        .subcommands(commands::keys::commands())
        .subcommand(commands::tune::command());
    #[cfg(feature = "manual")]
    let cli = cli.subcommands(commands::manual::commands());
    #[cfg(feature = "speed")]
    let cli = cli.subcommand(commands::speed::command());
    #[cfg(feature = "audit")]
    let cli = cli.subcommand(commands::audit::command());
    #[cfg(feature = "lab")]
    let cli = cli
        .subcommand(commands::demo::command())
        .subcommand(commands::bench::command())
        .subcommand(commands::lab::command());
    cli
}

/// Names by which the program is the `wireguard` command alone: `wg-quick` starts a user-space
/// implementation with the interface's name as its only argument.
const WIREGUARD_NAMES: [&str; 2] = ["millrace-wireguard", "wireguard-go"];

fn arguments() -> Vec<OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let name = arguments.first().map(PathBuf::from);
    let name = name
        .as_deref()
        .and_then(Path::file_name)
        .and_then(|n| n.to_str());
    if name.is_some_and(|name| WIREGUARD_NAMES.contains(&name)) {
        arguments.insert(1, "wireguard".into());
    }
    arguments
}

/// The arguments of OpenVPN's own command line, if that is what the program was called with: by the
/// name `openvpn`, or as a command. They are not ours to parse.
fn openvpn_arguments() -> Option<Vec<OsString>> {
    let mut arguments = std::env::args_os();
    let name = arguments.next().map(PathBuf::from)?;
    if name.file_name().is_some_and(|name| name == "openvpn") {
        return Some(arguments.collect());
    }
    (arguments.next()? == "openvpn").then(|| arguments.collect())
}

fn main() -> ExitCode {
    // Before anything is opened or started.
    commands::daemonize::is_child();
    if let Some(arguments) = openvpn_arguments() {
        return commands::openvpn::run(arguments);
    }
    // 2 for a wrong command line, as usual; clap does that by itself.
    let matches = cli().get_matches_from(arguments());
    // A tunnel that was brought up by hand says when its peer is gone and when it is back.
    let quiet = match matches.subcommand_name() {
        Some("up") => "warn,millrace::wireguard=info,millrace::commands=info",
        _ => "warn",
    };
    logging::begin(match matches.get_count("verbose") {
        0 => quiet,
        1 => "info",
        _ => "debug",
    });
    match matches.subcommand() {
        Some(("up", m)) => commands::up::run(m),
        Some(("down", m)) => commands::down::run(m),
        Some(("genkey", _)) => commands::keys::genkey(),
        Some(("genpsk", _)) => commands::keys::genpsk(),
        Some(("pubkey", _)) => commands::keys::pubkey(),
        Some(("wireguard", m)) => commands::wireguard::run(m),
        Some(("status", m)) => commands::status::run(&m.into()),
        #[cfg(feature = "manual")]
        Some(("man", m)) => commands::manual::man(m),
        #[cfg(feature = "manual")]
        Some(("completions", m)) => commands::manual::completions(m),
        #[cfg(feature = "speed")]
        Some(("speed", m)) => commands::speed::run(m),
        Some(("check", m)) => commands::check::run(&m.into()),
        Some(("tune", m)) => commands::tune::run(m),
        #[cfg(feature = "audit")]
        Some(("audit", m)) => commands::audit::run(m),
        #[cfg(feature = "lab")]
        Some(("demo", m)) => commands::demo::run(m),
        #[cfg(feature = "lab")]
        Some(("bench", m)) => commands::bench::run(m),
        #[cfg(feature = "lab")]
        Some(("lab", m)) => commands::lab::run(m),
        _ => ExitCode::from(2),
    }
}
