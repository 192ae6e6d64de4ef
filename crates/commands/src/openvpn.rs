//! `millrace openvpn`: OpenVPN's own command line, also used when the program is called `openvpn`.

use clap::{Arg, ArgAction, Command};
use service::openvpn;
use std::ffi::OsString;
use std::process::ExitCode;

/// The command-line definition of `openvpn`, which passes on all arguments.
pub(crate) fn command() -> Command {
    Command::new("openvpn")
        .about(if cfg!(feature = "server") {
            "OpenVPN's own command line: a client or a server"
        } else {
            "OpenVPN's own command line: a client"
        })
        .override_usage("millrace openvpn --config FILE [--OPTION ARGUMENTS...]...")
        .disable_help_flag(true)
        .arg(
            Arg::new("ARGS")
                .action(ArgAction::Append)
                .num_args(0..)
                .allow_hyphen_values(true)
                .trailing_var_arg(true)
                .value_parser(clap::value_parser!(OsString)),
        )
}

/// Runs the command.
pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    let arguments: Result<Vec<String>, OsString> =
        arguments.into_iter().map(OsString::into_string).collect();
    match arguments {
        Ok(arguments) => openvpn::main(&arguments),
        Err(argument) => {
            terminal::note(format_args!(
                "millrace: an argument is not UTF-8: {}",
                argument.display()
            ));
            ExitCode::FAILURE
        }
    }
}
