//! `millrace lab`: networks on one machine, for experiments.
//!
//! - `millrace lab list-tools`: the tools that the lab can use here, and how to get the others.
//! - `millrace lab forward`: one end of the forwarder without a cipher. `millrace bench` starts it because it measures
//!   processor time per process.

use std::net::IpAddr;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command, value_parser};
use lab::forwarder::{ForwarderOptions, forward};
use lab::tools;

use crate::bench::contender::Contender;
use crate::bench::table::Table;

pub(super) mod line;
mod shell;

/// Builds the command's `clap` definition.
pub fn command() -> Command {
    Command::new("lab")
        .about("Build a small network on this machine and try things in it")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(shell::command())
        .subcommand(list_tools_command())
        .subcommand(forward_command())
}

/// Runs the command.
pub fn run(matches: &ArgMatches) -> ExitCode {
    match matches.subcommand() {
        Some(("shell", m)) => shell::run(m),
        Some(("list-tools", _)) => list_tools(),
        Some(("forward", m)) => run_forward(m),
        _ => ExitCode::from(2),
    }
}

/// Programs that every distribution packages, and their purpose.
const TOOLS: [(&str, &str); 6] = [
    ("wg", "every tunnel: keys and configuration"),
    ("ping", "round trip times: demo, bench, tests"),
    ("iperf3", "TCP load: bench, tests"),
    ("wg-quick", "tests of wg-quick with Millrace"),
    ("nft", "routers that translate addresses: tests"),
    ("ip", "not used by the lab; handy in `lab shell`"),
];

/// Builds the command's `clap` definition.
fn list_tools_command() -> Command {
    Command::new("list-tools")
        .about("List the programs that the lab finds, and how to get the missing ones")
}

/// Prints the list. Returns 0 even if tools are missing.
fn list_tools() -> ExitCode {
    host::terminal::say(table().render());
    ExitCode::SUCCESS
}

fn table() -> Table {
    let mut table = Table::of_words(["tool", "what for", "here"]);
    for (name, purpose) in TOOLS {
        let here = match tools::find(name) {
            Ok(path) => path.display().to_string(),
            Err(error) => error.to_string(),
        };
        table.row([name, purpose, &here]);
    }
    for contender in [
        Contender::WireguardGo,
        Contender::WireguardGoPackaged,
        Contender::BoringTun,
        Contender::GotaTun,
    ] {
        let here = match contender.carrier() {
            Ok(_) => contender.version(),
            Err(error) => error.to_string(),
        };
        table.row([contender.name(), &contender.what(), &here]);
    }
    let tun = tools::tun().map_or_else(|error| error.to_string(), |()| "usable".to_owned());
    table.row(["/dev/net/tun", "every tunnel", &tun]);
    table
}

/// Builds the command's `clap` definition.
fn forward_command() -> Command {
    Command::new("forward")
        .about("NO ENCRYPTION: one end of the forwarder that the engine is measured against")
        .hide(true)
        .arg(Arg::new("IFNAME").required(true))
        .arg(
            Arg::new("PORT")
                .required(true)
                .value_parser(value_parser!(u16)),
        )
        .arg(
            Arg::new("REMOTE")
                .required(true)
                .value_parser(value_parser!(IpAddr)),
        )
}

/// Runs the command until its interface is deleted.
fn run_forward(matches: &ArgMatches) -> ExitCode {
    let interface = matches.get_one::<String>("IFNAME");
    let (port, remote) = (
        matches.get_one::<u16>("PORT"),
        matches.get_one::<IpAddr>("REMOTE"),
    );
    let (Some(interface), Some(&port), Some(&remote)) = (interface, port, remote) else {
        return ExitCode::from(2);
    };
    let ended = forward(&ForwarderOptions {
        interface: interface.clone(),
        port,
        remote: (remote, port).into(),
        offloads: true,
    });
    if let Err(error) = ended {
        log::error!("{error}");
    }
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_a_row() {
        let rows = table().render().lines().count();
        assert_eq!(rows, 2 + TOOLS.len() + 4 + 1);
    }
}
