//! `millrace demo`: an office, a branch router and a device behind it, real traffic, a table.

mod lines;
mod outcome;
mod tour;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use lab::{LabError, LinkOptions, Offloads};

use super::bench::contender::Contender;
use super::bench::openvpn::{Ends, Suite};
use super::bench::prepare;
use super::lab::line;
use host::machine::Machine;
use host::terminal::rough;
use outcome::{Outcome, caveats, compared, table, words};
use tour::Tour;

/// Builds the command's `clap` definition.
pub fn command() -> Command {
    let command = Command::new("demo")
        .about("Show a tunnel at work on this one machine")
        .after_help(
            "Builds three hosts as network namespaces: an office with a web server, the\n\
             router of a branch, and a device behind that router. The device downloads\n\
             files from the office on 8 connections, first over the bare uplink, then through\n\
             a tunnel between branch and office: WireGuard by Millrace and by wireguard-go,\n\
             and OpenVPN by Millrace and by the stock program, if they are installed. Every\n\
             byte is compared. Nothing is left behind, even after Ctrl-C. An uplink with a\n\
             delay, a rate or the like is emulated in user space, and carries about a\n\
             gigabit per second at most.",
        )
        .arg(
            Arg::new("seconds")
                .long("seconds")
                .value_name("N")
                .default_value("3")
                .value_parser(value_parser!(u32).range(1..=600))
                .help("Seconds for each size of file"),
        )
        .arg(
            Arg::new("nogso")
                .long("nogso")
                .action(ArgAction::SetTrue)
                .help("An uplink without segmentation offloads, like a card without TSO and USO"),
        );
    line::arguments(command.subcommand(lines::command()))
}

/// Runs the command.
pub fn run(matches: &ArgMatches) -> ExitCode {
    let shown = match matches.subcommand() {
        Some(("uplinks", matches)) => lines::demo(matches),
        _ => demo(matches),
    };
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            host::terminal::note(format_args!("millrace: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn demo(matches: &ArgMatches) -> Result<(), LabError> {
    prepare(&["wg", "ping"])?;
    let offloads = if matches.get_flag("nogso") {
        Offloads::NoSegmentation
    } else {
        Offloads::On
    };
    let tour = Tour {
        seconds: matches.get_one::<u32>("seconds").copied().unwrap_or(3),
        link: LinkOptions::bare().offloads(offloads),
        line: line::impairment(matches),
    };
    let machine = Machine::this();
    host::terminal::say(format_args!("demo: {}", machine.show()));
    host::terminal::say(
        "demo: office, branch router, device, the traffic and the tunnels all share this one machine",
    );

    let protocols = [
        ("WireGuard", wireguard()),
        ("OpenVPN, AES-256-GCM", openvpn()),
    ];
    let mut left = 1 + protocols.iter().map(|(_, ways)| ways.len()).sum::<usize>();
    host::terminal::say(format_args!(
        "demo: {left} ways, about {} in all",
        rough(tour.time() * left as u32)
    ));
    // The bare line is shown once, and listed with each protocol.
    let mut take = |contender: Contender| {
        let rest = match io::stdout().is_terminal() {
            true => format!(", {} left", rough(tour.time() * left as u32)),
            false => String::new(),
        };
        left -= 1;
        host::terminal::say(format_args!(
            "\ndemo: {} ({}){rest}",
            title(contender),
            contender.what()
        ));
        let outcome = tour.take(contender)?;
        host::terminal::say("demo: hosts and programs are removed");
        Ok::<Outcome, LabError>(outcome)
    };
    let direct = take(Contender::Nothing)?;
    let mut tables = Vec::new();
    for (protocol, ways) in protocols {
        let mut outcomes = vec![direct.clone()];
        for contender in ways {
            outcomes.push(take(contender)?);
        }
        if outcomes.len() > 1 {
            tables.push((protocol, outcomes));
        }
    }
    host::terminal::say("");
    for (protocol, outcomes) in &tables {
        host::terminal::say(format_args!(
            "{protocol}\n\n{}\n{}",
            caveats(),
            table(outcomes).render()
        ));
        host::terminal::say(compared(outcomes));
    }
    host::terminal::say(words());
    Ok(())
}

/// Why a contender cannot be shown here.
fn missing(contender: Contender) -> Option<String> {
    contender.carrier().err().map(|error| error.to_string())
}

/// The WireGuard contenders: Millrace, and the newest installed rival.
fn wireguard() -> Vec<Contender> {
    let mut ways = vec![Contender::Millrace];
    let rivals = [Contender::WireguardGo, Contender::WireguardGoPackaged];
    match rivals.into_iter().find(|one| missing(*one).is_none()) {
        Some(rival) => ways.push(rival),
        None => host::terminal::say(format_args!(
            "demo: no other WireGuard program to compare with: {}",
            missing(Contender::WireguardGo).unwrap_or_default()
        )),
    }
    ways
}

/// The OpenVPN contenders: Millrace and the stock program; none if keys for OpenVPN cannot be made.
fn openvpn() -> Vec<Contender> {
    let of = |ends| Contender::OpenVpn(ends, Suite::Gcm);
    let mut ways = Vec::new();
    for (ends, what) in [
        (Ends::Millrace, "no OpenVPN"),
        (Ends::Stock, "no other OpenVPN program to compare with"),
    ] {
        match missing(of(ends)) {
            None => ways.push(of(ends)),
            Some(why) => host::terminal::say(format_args!("demo: {what}: {why}")),
        }
    }
    ways
}

/// The contender's name in the table.
fn title(contender: Contender) -> &'static str {
    match contender {
        Contender::Nothing => "direct",
        Contender::OpenVpn(Ends::Millrace, _) => "millrace",
        Contender::OpenVpn(Ends::Stock, _) => "openvpn",
        other => other.name(),
    }
}
