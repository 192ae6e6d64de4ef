//! Millrace: the fast VPN for small routers. This is the program; see `docs/architecture.md`.

#![forbid(unsafe_code)]

mod commands;
mod network;
mod privileges;
mod status;
mod wireguard;

use clap::{Arg, ArgAction, Command};
use std::io::Write as _;
use std::process::ExitCode;

fn cli() -> Command {
    Command::new("millrace")
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
        .subcommand(commands::wireguard::command())
        .subcommand(commands::status::command())
        .subcommand(commands::check::command())
        .subcommand(commands::demo::command())
        .subcommand(commands::bench::command())
        .subcommand(commands::lab::command())
}

fn main() -> ExitCode {
    // 2 for a wrong command line, as usual; clap does that by itself.
    let matches = cli().get_matches();
    let level = match matches.get_count("verbose") {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    let environment = env_logger::Env::default().filter_or("MILLRACE_LOG", level);
    env_logger::Builder::from_env(environment)
        .format(|out, record| {
            writeln!(
                out,
                "millrace: {}: {}",
                record.level().as_str().to_lowercase(),
                record.args()
            )
        })
        .init();
    match matches.subcommand() {
        Some(("up", m)) => commands::up::run(m),
        Some(("wireguard", m)) => commands::wireguard::run(m),
        Some(("status", m)) => commands::status::run(&m.into()),
        Some(("check", m)) => commands::check::run(&m.into()),
        Some(("demo", m)) => commands::demo::run(m),
        Some(("bench", m)) => commands::bench::run(m),
        Some(("lab", m)) => commands::lab::run(m),
        _ => ExitCode::from(2),
    }
}
