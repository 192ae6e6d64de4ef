//! The program's command line: one module for each command, with its arguments and its action.
//!
//! A crate of its own, so that it can be compiled for size. The compiler's last stage, over the whole program, uses the
//! options of the program's crate, which contains nothing else.

#![forbid(unsafe_code)]
// The print macros panic when the reader has closed the pipe; see `terminal`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

#[cfg(feature = "audit")]
mod audit;
mod check;
mod doctor;
mod down;
mod guard;
#[cfg(any(feature = "monitor", feature = "openwrt"))]
mod home;
mod import;
mod keys;
mod leak_test;
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
mod profile;
#[cfg(feature = "relay")]
mod relay;
mod reload;
mod restart;
#[cfg(feature = "openwrt")]
mod rpcd;
#[cfg(feature = "server")]
mod server;
mod settings;
mod status;
mod tune;
mod up;
mod wireguard;

use clap::{Arg, ArgAction, ArgMatches, Command};
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
        .subcommand(reload::command())
        .subcommand(logs::command())
        .subcommand(doctor::command())
        .subcommand(wireguard::command())
        .subcommand(openvpn::command())
        .subcommand(status::command())
        .subcommand(check::command())
        .subcommand(import::command())
        .subcommand(list::command())
        .subcommand(guard::command())
        .subcommand(leak_test::command())
        .subcommands(keys::commands())
        .subcommand(tune::command());
    #[cfg(feature = "server")]
    let cli = cli
        .subcommand(server::command())
        .subcommand(peer::command());
    #[cfg(feature = "policy")]
    let cli = cli.subcommand(policy::command());
    #[cfg(feature = "openwrt")]
    let cli = cli
        .subcommand(netifd::command())
        .subcommand(rpcd::command());
    #[cfg(feature = "monitor")]
    let cli = cli.subcommand(monitor::command());
    #[cfg(all(feature = "openwrt", feature = "pptp"))]
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

/// Names by which the program acts as the `wireguard` command: `wg-quick` starts a user-space implementation with the
/// interface's name as the only argument.
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

/// The arguments of OpenVPN's own command line, if the program was called by the name `openvpn`, or with that command.
/// clap does not parse them.
fn openvpn_arguments(all: &[OsString]) -> Option<Vec<OsString>> {
    let (name, arguments) = all.split_first()?;
    if Path::new(name)
        .file_name()
        .is_some_and(|name| name == "openvpn")
    {
        return Some(arguments.to_vec());
    }
    let (command, arguments) = arguments.split_first()?;
    (command == "openvpn").then(|| arguments.to_vec())
}

/// Runs the command of the program's arguments. Returns the exit code: 2 for a wrong command line.
#[must_use]
pub fn run() -> ExitCode {
    // Before the program opens a file or starts a thread.
    host::background::is_child();
    host::notify::begin();
    let all: Vec<OsString> = std::env::args_os().collect();
    if let Some(arguments) = openvpn_arguments(&all) {
        return openvpn::run(arguments);
    }
    let matches = match cli().try_get_matches_from(arguments()) {
        Ok(matches) => matches,
        // clap exits with 2 for a wrong command line.
        Err(error) if error.use_stderr() => error.exit(),
        // clap itself would ignore a failure to print the help.
        Err(help) => {
            let text = help.render();
            match terminal::escapes(&std::io::stdout()) {
                true => terminal::text(text.ansi()),
                false => terminal::text(text),
            }
            return ExitCode::SUCCESS;
        }
    };
    // A tunnel that was started by hand reports when its peer goes and comes back.
    let quiet = match matches.subcommand_name() {
        // netifd's output goes to the system log.
        Some("netifd") => "warn,service=info,commands=info",
        Some("up") => {
            "warn,service::wireguard=info,service::pptp=info,service::strangers=info,commands=info"
        }
        Some("relay") => "warn,service::relay=info,service::strangers=info,commands=info",
        Some("guard") => "warn,guard=info",
        Some("policy") => "warn,policy=info",
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
    // Called by pointer: the compiler would inline functions that are called once. That makes this function a tenth
    // larger, and all of them together would use 12 KB of stack here.
    let command: fn(&ArgMatches) -> ExitCode = match name {
        "up" => up::run,
        "down" => down::run,
        "restart" => restart::run,
        "reload" => reload::run,
        "logs" => logs::run,
        "doctor" => doctor::run,
        "genkey" => |_| keys::genkey(),
        "genpsk" => |_| keys::genpsk(),
        "pubkey" => |_| keys::pubkey(),
        "wireguard" => wireguard::run,
        #[cfg(feature = "openwrt")]
        "netifd" => netifd::run,
        #[cfg(feature = "openwrt")]
        "rpcd" => rpcd::run,
        "status" => |m| status::run(&m.into()),
        #[cfg(feature = "monitor")]
        "monitor" => monitor::run,
        #[cfg(all(feature = "openwrt", feature = "pptp"))]
        "migrate" => migrate::run,
        #[cfg(feature = "relay")]
        "relay" => relay::run,
        #[cfg(feature = "manual")]
        "man" => manual::man,
        #[cfg(feature = "manual")]
        "completions" => manual::completions,
        #[cfg(feature = "speed")]
        "speed" => tools::speed::run,
        #[cfg(feature = "server")]
        "server" => server::run,
        #[cfg(feature = "server")]
        "peer" => peer::run,
        "guard" => guard::run,
        #[cfg(feature = "policy")]
        "policy" => policy::run,
        "leak-test" => leak_test::run,
        "import" => import::run,
        "list" => list::run,
        "check" => |m| check::run(&m.into()),
        "tune" => tune::run,
        #[cfg(feature = "audit")]
        "audit" => audit::run,
        #[cfg(feature = "lab")]
        "demo" => tools::demo::run,
        #[cfg(feature = "lab")]
        "bench" => tools::bench::run,
        #[cfg(feature = "lab")]
        "lab" => tools::lab::run,
        _ => return ExitCode::from(2),
    };
    command(of_command)
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

#[cfg(all(test, feature = "manual"))]
mod tests {
    /// The width of the widest line in a command's help, and in its subcommands'.
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
