//! `millrace lab forward`: one end of the forwarder without a cipher. `millrace bench` starts it because it measures
//! processor time per process.

use std::net::IpAddr;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command, value_parser};
use lab::forwarder::{ForwarderOptions, forward};

/// Builds the command's `clap` definition.
pub(super) fn command() -> Command {
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
pub(super) fn run(matches: &ArgMatches) -> ExitCode {
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
