//! OpenVPN's files and its own command line: `millrace openvpn`, also used when the program is called `openvpn`, and
//! `millrace up` for an OpenVPN file.

use crate::up::{BOUND, REFUSED, tell, tell_lines, wait_at_most};
use crate::{Outcome, arguments};
use clap::{Arg, ArgAction, ArgMatches, Command};
use config::lines::SharedLines;
use config::openvpn::{OpenVpn, Options};
use config::settings::Settings;
use host::logging;
use service::openvpn;
use std::error::Error;
use std::ffi::OsString;
use std::path::Path;
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

/// Runs the command, with options of the program before its name.
pub(crate) fn run(matches: &ArgMatches) -> Outcome {
    let words = matches.get_many::<OsString>("ARGS").unwrap_or_default();
    Ok(main(words.cloned().collect()))
}

/// Runs OpenVPN's own command line.
pub(crate) fn main(arguments: Vec<OsString>) -> ExitCode {
    match words(arguments) {
        Ok(arguments) => openvpn::main(&arguments),
        Err(error) => {
            host::terminal::note(format_args!("millrace: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Checks whether a running process with these arguments could read its files again.
pub(crate) fn judge_own(arguments: Vec<OsString>) -> Result<(), Box<dyn Error>> {
    Ok(openvpn::judge_arguments(&words(arguments)?)?)
}

fn words(arguments: Vec<OsString>) -> Result<Vec<String>, String> {
    let words = arguments.into_iter().map(OsString::into_string);
    words
        .collect::<Result<_, _>>()
        .map_err(|word| format!("an argument is not UTF-8: {}", word.display()))
}

/// Checks whether `up` could begin the tunnel of a file.
pub(crate) fn judge(
    path: &Path,
    matches: &ArgMatches,
    settings: &Settings,
) -> Result<(), Box<dyn Error>> {
    let model = read(path, matches, settings.lines.as_ref(), false)?;
    Ok(openvpn::rehearse(&model, &settings.dataplane)?)
}

/// Reads an OpenVPN file; the command line's settings override the file's. Without `tells`, reports nothing about a
/// usable file.
fn read(
    path: &Path,
    matches: &ArgMatches,
    shared: Option<&SharedLines>,
    tells: bool,
) -> Result<OpenVpn, Box<dyn Error>> {
    let options = Options {
        allow_insecure_ciphers: matches.get_flag("allow-insecure-ciphers"),
        permissions: crate::check::permitted(matches),
    };
    let mut import = config::openvpn::read(path, options)?;
    import.check_secrecy();
    import.check_files();
    for warning in import.warnings.iter().filter(|_| tells) {
        host::terminal::note(warning);
    }
    let (mut model, report) = match (import.is_usable(), import.report.clone()) {
        (true, _) => import.into_model()?,
        (false, report) => {
            tell(&report);
            import.into_model()?
        }
    };
    let refused = !report.is_clean() && !matches.get_flag("ignore-refused");
    if tells || refused {
        tell(&report);
    }
    if refused {
        return Err(REFUSED.into());
    }
    // The command line decides these, as the file may come from a stranger.
    model.service.daemon = false;
    model.service.log = None;
    if model.service.verb == 1 {
        model.service.verb = 3;
    }
    if let Some(device) = arguments::text(matches, "bind-device") {
        if !model.lines.lines.is_empty() {
            return Err(BOUND.into());
        }
        model.sockets.device = Some(device.to_owned());
    }
    if let Some(shared) = shared {
        let (origin, warnings) = model.take_lines(shared);
        if tells {
            tell_lines(origin.as_deref(), &warnings);
        }
    }
    Ok(model)
}

/// Runs the tunnel of an OpenVPN file. Each SIGHUP reads the file again.
pub(crate) fn until_end(path: &Path, matches: &ArgMatches, settings: &Settings) -> Outcome {
    let mut signals = openvpn::Caught::default();
    let shared = settings.lines.as_ref();
    let mut model = read(path, matches, shared, true)?;
    loop {
        let options = openvpn::RunOptions {
            no_dns: matches.get_flag("no-dns"),
            wait: true,
            wait_at_most: wait_at_most(matches),
            manager: None,
        };
        let again = {
            let (path, matches, shared) = (path.to_owned(), matches.clone(), shared.cloned());
            Box::new(move || {
                let model = read(&path, &matches, shared.as_ref(), false);
                model.map_err(|it| it.to_string())
            })
        };
        let file = Some(path.display().to_string());
        let dataplane = settings.dataplane.clone();
        let ended = openvpn::run(model.clone(), again, file, dataplane, options, &mut signals);
        if let Some(code) = ended {
            return Ok(code);
        }
        logging::reopen();
        // The file may have changed since `reload` judged it.
        let read = read(path, matches, shared, true).and_then(|read| {
            openvpn::rehearse(&read, &settings.dataplane)?;
            Ok(read)
        });
        match read {
            Ok(read) => model = read,
            Err(error) => log::error!("{error}; the tunnel restarts with its old configuration"),
        }
    }
}
