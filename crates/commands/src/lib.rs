//! The program's command line: each command is one file, with its part of the command line and what it does.
//!
//! It is a crate of its own so that it can be compiled for size. What is compiled last, for the program as a whole, is
//! compiled as the crate of the program is: that one holds nothing else.

#![forbid(unsafe_code)]
// They panic where the reader has gone: see `terminal`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

#[cfg(feature = "audit")]
mod audit;
mod check;
mod doctor;
mod down;
mod guard;
mod import;
mod keys;
mod leak_test;
mod list;
mod logs;
#[cfg(feature = "manual")]
mod manual;
#[cfg(feature = "pptp")]
mod migrate;
#[cfg(feature = "monitor")]
mod monitor;
mod netifd;
mod openvpn;
mod peer;
mod policy;
mod profile;
#[cfg(feature = "relay")]
mod relay;
mod restart;
mod rpcd;
mod server;
mod settings;
mod status;
mod tune;
mod up;
mod wireguard;

use clap::{Arg, ArgAction, Command};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn cli() -> Command {
    let cli = Command::new("millrace")
        .version(env!("CARGO_PKG_VERSION"))
        .about("The fast VPN for small routers")
        .max_term_width(80)
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
        .subcommand(up::command())
        .subcommand(down::command())
        .subcommand(restart::command())
        .subcommand(logs::command())
        .subcommand(doctor::command())
        .subcommand(wireguard::command())
        .subcommand(openvpn::command())
        .subcommand(netifd::command())
        .subcommand(rpcd::command())
        .subcommand(status::command())
        .subcommand(check::command())
        .subcommand(import::command())
        .subcommand(list::command())
        .subcommand(server::command())
        .subcommand(peer::command())
        .subcommand(guard::command())
        .subcommand(policy::command())
        .subcommand(leak_test::command())
        .subcommands(keys::commands())
        .subcommand(tune::command());
    #[cfg(feature = "monitor")]
    let cli = cli.subcommand(monitor::command());
    #[cfg(feature = "pptp")]
    let cli = cli.subcommand(migrate::command());
    #[cfg(feature = "relay")]
    let cli = cli.subcommand(relay::command());
    #[cfg(feature = "manual")]
    let cli = cli.subcommands(manual::commands());
    #[cfg(feature = "speed")]
    let cli = cli.subcommand(tools::speed::command());
    #[cfg(feature = "audit")]
    let cli = cli.subcommand(audit::command());
    #[cfg(feature = "lab")]
    let cli = cli
        .subcommand(tools::demo::command())
        .subcommand(tools::bench::command())
        .subcommand(tools::lab::command());
    cli
}

/// Names by which the program is only the `wireguard` command: `wg-quick` starts a user-space
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

/// Does what the program's arguments say. Returns the program's exit code: 2 for a wrong command line.
#[must_use]
pub fn run() -> ExitCode {
    // Before anything is opened or started.
    host::background::is_child();
    host::notify::begin();
    if let Some(arguments) = openvpn_arguments() {
        return openvpn::run(arguments);
    }
    // 2 for a wrong command line, as usual; clap does that by itself.
    let matches = cli().get_matches_from(arguments());
    // A tunnel that was brought up by hand says when its peer is gone and when it is back.
    let quiet = match matches.subcommand_name() {
        // Into the system's log.
        Some("netifd") => "warn,service=info,commands=info",
        Some("up") => "warn,service::wireguard=info,service::pptp=info,commands=info",
        Some("relay") => "warn,service::relay=info,commands=info",
        Some("guard") => "warn,guard=info",
        Some("policy") => "warn,policy=info",
        _ => "warn",
    };
    host::logging::begin(match matches.get_count("verbose") {
        0 => quiet,
        1 => "info",
        _ => "debug",
    });
    match matches.subcommand() {
        Some(("up", m)) => up::run(m),
        Some(("down", m)) => down::run(m),
        Some(("restart", m)) => restart::run(m),
        Some(("logs", m)) => logs::run(m),
        Some(("doctor", m)) => doctor::run(m),
        Some(("genkey", _)) => keys::genkey(),
        Some(("genpsk", _)) => keys::genpsk(),
        Some(("pubkey", _)) => keys::pubkey(),
        Some(("wireguard", m)) => wireguard::run(m),
        Some(("netifd", m)) => netifd::run(m),
        Some(("rpcd", m)) => rpcd::run(m),
        Some(("status", m)) => status::run(&m.into()),
        #[cfg(feature = "monitor")]
        Some(("monitor", m)) => monitor::run(m),
        #[cfg(feature = "pptp")]
        Some(("migrate", m)) => migrate::run(m),
        #[cfg(feature = "relay")]
        Some(("relay", m)) => relay::run(m),
        #[cfg(feature = "manual")]
        Some(("man", m)) => manual::man(m),
        #[cfg(feature = "manual")]
        Some(("completions", m)) => manual::completions(m),
        #[cfg(feature = "speed")]
        Some(("speed", m)) => tools::speed::run(m),
        Some(("server", m)) => server::run(m),
        Some(("peer", m)) => peer::run(m),
        Some(("guard", m)) => guard::run(m),
        Some(("policy", m)) => policy::run(m),
        Some(("leak-test", m)) => leak_test::run(m),
        Some(("import", m)) => import::run(m),
        Some(("list", m)) => list::run(m),
        Some(("check", m)) => check::run(&m.into()),
        Some(("tune", m)) => tune::run(m),
        #[cfg(feature = "audit")]
        Some(("audit", m)) => audit::run(m),
        #[cfg(feature = "lab")]
        Some(("demo", m)) => tools::demo::run(m),
        #[cfg(feature = "lab")]
        Some(("bench", m)) => tools::bench::run(m),
        #[cfg(feature = "lab")]
        Some(("lab", m)) => tools::lab::run(m),
        _ => ExitCode::from(2),
    }
}

#[cfg(all(test, feature = "manual"))]
mod tests {
    /// The widest line of a command's help, and of its subcommands'.
    fn widest(command: &mut clap::Command) -> String {
        let text = command.render_long_help().to_string();
        let own = text.lines().map(str::to_owned);
        let others = command.get_subcommands_mut().map(widest);
        own.chain(others)
            .max_by_key(|line| line.chars().count())
            .unwrap_or_default()
    }

    #[test]
    fn help_fits_into_80_columns() {
        let mut cli = super::cli();
        cli.build();
        let line = widest(&mut cli);
        assert!(line.chars().count() <= 80, "{line}");
    }
}
