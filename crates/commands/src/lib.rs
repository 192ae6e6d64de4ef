//! The program's command line: one module for each command, with its arguments and its action.
//!
//! A crate of its own, so that it can be compiled for size. The compiler's last stage, over the whole program, uses the
//! options of the program's crate, which contains nothing else.

#![forbid(unsafe_code)]
// The print macros panic when the reader has closed the pipe; see `terminal`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

#[cfg(feature = "monitor")]
mod alerts;
mod arguments;
#[cfg(feature = "audit")]
mod audit;
#[cfg(any(feature = "monitor", feature = "policy"))]
mod carrying;
mod check;
mod doctor;
mod down;
#[cfg(any(feature = "monitor", feature = "policy"))]
mod entries;
#[cfg(feature = "pptp")]
mod firewall;
#[cfg(feature = "policy")]
mod forward;
mod guard;
#[cfg(any(feature = "monitor", feature = "openwrt"))]
mod home;
mod import;
mod keys;
mod leaks;
mod list;
mod logs;
#[cfg(feature = "manual")]
mod manual;
#[cfg(all(feature = "openwrt", feature = "pptp"))]
mod migrate;
#[cfg(feature = "monitor")]
mod monitor;
#[cfg(feature = "openwrt")]
mod netifd;
mod openvpn;
#[cfg(feature = "server")]
mod peer;
#[cfg(feature = "policy")]
mod policy;
#[cfg(feature = "server")]
mod pool;
#[cfg(feature = "postquantum")]
mod pq;
mod profile;
mod reload;
mod restart;
#[cfg(feature = "openwrt")]
mod rpcd;
#[cfg(feature = "server")]
mod server;
mod settings_files;
mod status;
mod table;
#[cfg(test)]
mod tests;
mod tune;
mod up;
mod wireguard;

use clap::{Arg, ArgAction, Command};
use std::error::Error;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// The result of a command: the exit code, or an error that the program prints before it exits with 1.
type Outcome = Result<ExitCode, Box<dyn Error>>;

/// Exit code 0 if `good`, else 1.
fn code(good: bool) -> ExitCode {
    ExitCode::from(u8::from(!good))
}

/// Prints a document for programs.
fn print_json(document: &impl serde::Serialize) -> Result<(), Box<dyn Error>> {
    let text = serde_json::to_string_pretty(document)?;
    Ok(host::terminal::print(format_args!("{text}\n"))?)
}

fn cli() -> Command {
    let cli = cli_of(table::ENTRIES.iter());
    let overview = table::overview(&cli);
    cli.help_template(overview)
}

/// The command line of the program with these commands only.
fn cli_of(entries: impl Iterator<Item = &'static table::Entry>) -> Command {
    Command::new("millrace")
        .version(env!("CARGO_PKG_VERSION"))
        .about("The fast VPN for small routers")
        .max_term_width(80)
        .arg(
            Arg::new("verbose")
                .short('v')
                .long("verbose")
                .global(true)
                .action(ArgAction::Count)
                .help("Log more (-v: each event, -vv: every handshake)"),
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(entries.map(table::Entry::command))
}

/// Names by which the program acts as the `wireguard` command: `wg-quick` starts a user-space implementation with the
/// interface's name as the only argument.
const WIREGUARD_NAMES: [&str; 2] = ["millrace-wireguard", "wireguard-go"];

/// The file name that the program was called by.
fn called_by(all: &[OsString]) -> Option<&str> {
    Path::new(all.first()?).file_name()?.to_str()
}

/// The arguments of OpenVPN's own command line, if the program was called by the name `openvpn`, or with that command.
/// clap does not parse them.
fn openvpn_arguments(all: &[OsString]) -> Option<Vec<OsString>> {
    if called_by(all) == Some("openvpn") {
        return all.get(1..).map(<[OsString]>::to_vec);
    }
    let (command, arguments) = all.get(1..)?.split_first()?;
    (command == "openvpn").then(|| arguments.to_vec())
}

/// Runs the command of the program's arguments. Returns the exit code: 2 for a wrong command line.
#[must_use]
pub fn run() -> ExitCode {
    // Before the program opens a file or starts a thread.
    host::background::is_child();
    host::notify::begin();
    let mut all: Vec<OsString> = std::env::args_os().collect();
    if let Some(arguments) = openvpn_arguments(&all) {
        return openvpn::main(arguments);
    }
    if called_by(&all).is_some_and(|name| WIREGUARD_NAMES.contains(&name)) {
        all.insert(1, "wireguard".into());
    }
    let mut cli = cli();
    let matches = match cli.try_get_matches_from_mut(all) {
        Ok(matches) => matches,
        // clap exits with 2 for a wrong command line.
        Err(error) if error.use_stderr() => error.exit(),
        // clap itself would ignore a failure to print the help.
        Err(help) => {
            let text = help.render();
            match host::terminal::escapes(&std::io::stdout()) {
                true => host::terminal::text(text.ansi()),
                false => host::terminal::text(text),
            }
            return ExitCode::SUCCESS;
        }
    };
    // A tunnel that was started by hand reports when its peer goes and comes back.
    let quiet = match matches.subcommand_name() {
        // netifd's output goes to the system log.
        Some("netifd") => "warn,service=info,host::mtu=info,host::strangers=info,commands=info",
        Some("up") => {
            "warn,service::wireguard=info,service::pptp=info,service::clients=info,host::mtu=info,host::strangers=info,commands=info"
        }
        #[cfg(feature = "amnezia")]
        Some("wireguard") => "warn,host::mtu=info",
        Some("relay") => "warn,service::relay=info,host::strangers=info,commands=info",
        Some("guard" | "policy" | "forward") => "warn,steer=info",
        #[cfg(feature = "postquantum")]
        Some("pq") => "warn,service::companion=info,commands=info",
        Some("alerts") => "warn,commands::alerts=info",
        _ => "warn",
    };
    host::logging::begin(match matches.get_count("verbose") {
        0 => quiet,
        1 => "info",
        _ => "debug",
    });
    let Some((name, of_command)) = matches.subcommand() else {
        return ExitCode::from(2);
    };
    let is_it = |command: &Command| command.get_name() == name;
    let place = cli.get_subcommands().position(is_it);
    let Some(entry) = place.and_then(|it| table::ENTRIES.get(it)) else {
        return ExitCode::from(2);
    };
    // A tunnel may run for months, and does not need the definitions.
    drop(cli);
    entry.2(of_command).unwrap_or_else(|error| {
        log::error!("{error}");
        ExitCode::FAILURE
    })
}

/// Keys for files in tests: a tunnel does not start with an empty block.
#[cfg(test)]
mod blocks {
    /// The CA certificate of a client or a server.
    pub(crate) const CA: &str = concat!(
        "<ca>\n",
        include_str!("../../config/tests/openvpn/keys/ca.crt"),
        "</ca>\n"
    );

    /// A server's certificate and key.
    #[cfg(feature = "openwrt")]
    pub(crate) const SERVER: &str = concat!(
        "<cert>\n",
        include_str!("../../config/tests/openvpn/keys/server.crt"),
        "</cert>\n<key>\n",
        include_str!("../../config/tests/openvpn/keys/server.key"),
        "</key>\n"
    );
}
