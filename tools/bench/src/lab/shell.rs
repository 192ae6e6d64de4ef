//! `millrace lab shell`: an interactive shell in a branch and its office.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command, value_parser};
use lab::load::{EchoServer, HttpServer};
use lab::{Host, LabError, Line, LinkOptions, Side, Site, Tunnel};

use super::line;
use crate::bench::contender::Contender;
use crate::bench::prepare;

const HOSTS: [&str; 3] = ["device", "branch", "office"];
/// How long the tunnel gets to come up before the user is told.
const ANSWER: Duration = Duration::from_secs(5);

/// Builds the command's `clap` definition.
pub(super) fn command() -> Command {
    let tunnels = Contender::ALL
        .map(Contender::name)
        .into_iter()
        .filter(|name| *name != Contender::Forwarder.name());
    let command = Command::new("shell")
        .about("Build an office, a branch router, an uplink and a tunnel, and open a shell in one of the hosts")
        .arg(
            Arg::new("host")
                .long("host")
                .default_value("device")
                .value_parser(PossibleValuesParser::new(HOSTS))
                .help("Host in which the shell or the command runs"),
        )
        .arg(
            Arg::new("tunnel")
                .long("tunnel")
                .default_value(Contender::Millrace.name())
                .value_parser(PossibleValuesParser::new(tunnels))
                .help("Program of the tunnel between branch and office"),
        )
        .arg(
            Arg::new("COMMAND")
                .num_args(0..)
                .last(true)
                .value_parser(value_parser!(OsString))
                .help("A command to run instead of a shell"),
        );
    line::arguments(command)
}

/// Runs the command. Returns the status of the shell or command, or 1 if the lab failed.
pub(super) fn run(matches: &ArgMatches) -> ExitCode {
    match shell(matches) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            host::terminal::note(format_args!("millrace: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn shell(matches: &ArgMatches) -> Result<u8, LabError> {
    let name = |key| matches.get_one::<String>(key).map_or("", String::as_str);
    let contender = Contender::named(name("tunnel")).unwrap_or(Contender::Millrace);
    let carrier = contender.carrier()?;
    prepare(if carrier.is_some() { &["wg"] } else { &[] })?;
    let site = Site::new(&LinkOptions::bare(), line::impairment(matches))?;
    let tunnel = match &carrier {
        Some(carrier) => {
            let tunnel = Tunnel::start(carrier, site.tunnel_hosts(), site.tunnel())?;
            tunnel.connect()?;
            let echo = EchoServer::start(&site.office, 7)?;
            let target = site.tunnel().inner(1);
            if echo.first_answer(&site.device, target, ANSWER)?.is_none() {
                host::terminal::note(format_args!(
                    "lab: no answer came through the tunnel within {ANSWER:?}; find out why in the shell"
                ));
            }
            Some(tunnel)
        }
        None => {
            site.route_directly()?;
            None
        }
    };
    let server = HttpServer::start(&site.office, ([0u8; 4], 80).into())?;
    host::terminal::note_text(map(&site, contender, tunnel.is_some()));

    let host: &Host = match name("host") {
        "office" => &site.office,
        "branch" => &site.branch,
        _ => &site.device,
    };
    let words: Vec<OsString> = matches
        .get_many::<OsString>("COMMAND")
        .unwrap_or_default()
        .cloned()
        .collect();
    let command = match words.split_first() {
        Some((program, arguments)) => host.command(program).args(arguments),
        None => {
            let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
            host::terminal::note(format_args!(
                "lab: a shell in {}; exit it to remove everything",
                host.name()
            ));
            // For a prompt that names the host.
            host.command(shell).env("LAB_HOST", host.name())
        }
    };
    let status = command.run_here()?;
    drop(server);
    if let Line::Emulated(line) = &site.line {
        for (side, way) in [(Side::A, "office to branch"), (Side::B, "branch to office")] {
            let frames = line.counters(side);
            host::terminal::note(format_args!(
                "lab: uplink, {way}: {} frames arrived, {} lost, {} doubled, {} overtook, {} found the queue full",
                frames.received,
                frames.lost,
                frames.duplicated,
                frames.reordered,
                frames.queue_full
            ));
        }
    }
    let signal = || status.signal().map_or(1, |signal| 128 + signal);
    Ok(u8::try_from(status.code().unwrap_or_else(signal)).unwrap_or(1))
}

/// Draws a map of the hosts and their addresses.
fn map(site: &Site, contender: Contender, tunnel: bool) -> String {
    let line = match site.line {
        Line::Cable(_) => "a cable",
        Line::Emulated(_) => "an emulated uplink",
    };
    let outside = site.office_outside();
    let mut text = format!(
        "lab: device 192.168.2.2 -- 192.168.2.1 lan [branch] wan 192.168.1.2 -- {line} -- {outside} eth0 [office]\n"
    );
    let server = if tunnel {
        let [branch, office] = [0, 1].map(|number| site.tunnel().inner(number));
        text += &format!(
            "lab: tunnel ({}): [branch] wg0 {branch} == {office} wg0 [office]; `wg show` in branch and office\n",
            contender.name()
        );
        office
    } else {
        outside
    };
    text + &format!(
        "lab: office serves files of any size: http://{server}/BYTES (try `curl -o /dev/null http://{server}/100000000`)\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_everything_behind_the_dashes() {
        let matches = command()
            .try_get_matches_from([
                "shell", "--host", "office", "--loss", "1", "--", "wg", "--x",
            ])
            .unwrap();
        let words: Vec<_> = matches.get_many::<OsString>("COMMAND").unwrap().collect();
        assert_eq!(words, ["wg", "--x"]);
        assert!(line::impairment(&matches).is_some());
        assert!(
            command()
                .try_get_matches_from(["shell", "--host", "moon"])
                .is_err()
        );
    }
}
